//! What one call of a module may cost, and the count of the memory it takes.
//!
//! In: the host's flags. Out: [`Limits`], and [`MemoryMeter`], which wasmtime asks before memories and tables grow.

use std::time::Duration;

use wasmtime::ResourceLimiter;

const MIB: usize = 1 << 20;

/// What one call of a module may cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// CPU time of the calling thread. Defaults to 1 s.
    pub cpu: Duration,
    /// Time on the wall, for calls that get no CPU. Defaults to 5 s.
    pub wall: Duration,
    /// Time on the wall of a call that works outside the cluster, waiting included. Defaults to 30 s.
    pub external: Duration,
    /// Bytes of all memories and tables of an instance together. Defaults to 64 MiB.
    pub memory: usize,
    /// Bytes that a module may hand to the host in one answer or one log line. Defaults to 8 MiB.
    pub output: usize,
    /// Bytes of a snapshot's JSON. Defaults to 8 MiB.
    pub snapshot: usize,
    /// Log lines kept of a call; more are counted and dropped. Defaults to 200.
    pub log_lines: usize,
    /// Bytes of log kept of a call; more are counted and dropped. Defaults to 64 KiB.
    pub log_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu: Duration::from_secs(1),
            wall: Duration::from_secs(5),
            external: Duration::from_secs(30),
            memory: 64 * MIB,
            output: 8 * MIB,
            snapshot: 8 * MIB,
            log_lines: 200,
            log_bytes: 64 << 10,
        }
    }
}

/// Counts the bytes of all memories and tables of an instance, and refuses what goes over the limit.
///
/// A guest that is refused memory traps with a text that does not say why: `refused` is how the host knows.
#[derive(Debug)]
pub(crate) struct MemoryMeter {
    limit: usize,
    used: usize,
    refused: bool,
}

impl MemoryMeter {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, used: 0, refused: false }
    }

    /// Bytes taken so far. Wasm memories never shrink, so this is also the peak.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Whether the guest ever asked for more than the limit.
    pub(crate) fn refused(&self) -> bool {
        self.refused
    }

    fn grow(&mut self, by: usize) -> bool {
        match self.used.checked_add(by) {
            Some(total) if total <= self.limit => {
                self.used = total;
                true
            }
            _ => {
                self.refused = true;
                false
            }
        }
    }
}

impl ResourceLimiter for MemoryMeter {
    fn memory_growing(&mut self, current: usize, desired: usize, max: Option<usize>) -> wasmtime::Result<bool> {
        if max.is_some_and(|max| desired > max) {
            // The module's own maximum, or the pool's: not granted, so not counted.
            self.refused = true;
            return Ok(false);
        }
        Ok(self.grow(desired.saturating_sub(current)))
    }

    fn table_growing(&mut self, current: usize, desired: usize, max: Option<usize>) -> wasmtime::Result<bool> {
        if max.is_some_and(|max| desired > max) {
            return Ok(false);
        }
        Ok(self.grow(desired.saturating_sub(current).saturating_mul(size_of::<usize>())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_and_tables_share_one_limit() {
        let mut meter = MemoryMeter::new(100);
        assert!(meter.memory_growing(0, 60, None).unwrap());
        assert!(meter.table_growing(0, 4, None).unwrap());
        assert_eq!(meter.used(), 92);
        assert!(!meter.refused());
        assert!(!meter.memory_growing(60, 70, None).unwrap());
        assert!(meter.refused());
        assert_eq!(meter.used(), 92, "what was refused is not counted");
    }

    #[test]
    fn growth_that_overflows_is_refused() {
        let mut meter = MemoryMeter::new(usize::MAX);
        assert!(meter.memory_growing(0, 10, None).unwrap());
        assert!(!meter.table_growing(0, usize::MAX, None).unwrap());
    }
}
