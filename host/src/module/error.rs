//! What can go wrong in a call, by class, in words that are the same every time.
//!
//! In: wasmtime's error and what the host counted. Out: [`CallError`]. Its text goes into conditions, so it holds no
//! times, addresses or counters: equal failures must not look like a change.

use std::time::Duration;

use wasmtime::{Trap, WasmBacktrace};

use crate::module::call::{Guest, Stage, Stop};
use crate::module::limits::Limits;
use crate::module::log::clean;

/// Frames of the module's own code that are told.
const FRAMES: usize = 6;
/// Longest name of a frame.
const FRAME_BYTES: usize = 160;
/// Longest text taken from a guest or from wasmtime.
const TEXT_BYTES: usize = 2 << 10;

/// Why a call gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The module's code stopped.
    #[error("{what}{}", at(backtrace))]
    Trapped {
        /// The panic message where the module left one, else the kind of trap.
        what: String,
        /// Functions of the module, innermost first.
        backtrace: Vec<String>,
    },
    /// The module did not come to an end.
    #[error("the call was stopped: {limit}")]
    Timeout {
        /// The limit that was reached.
        limit: TimeLimit,
        /// Where it was when it was stopped; not in the text, because it differs from call to call.
        backtrace: Vec<String>,
    },
    /// The module wanted more memory than it is given.
    #[error("the module ran out of memory: an instance is given {}{}", bytes(*limit), at(backtrace))]
    OutOfMemory {
        /// Bytes of all memories and tables together.
        limit: usize,
        /// Functions of the module, innermost first.
        backtrace: Vec<String>,
    },
    /// Too much went in or out.
    #[error("{what} is larger than {}", bytes(*limit))]
    LimitExceeded {
        /// What was too large.
        what: &'static str,
        /// In bytes.
        limit: usize,
    },
    /// The answer is not one that the contract allows.
    #[error("the module's answer can't be used: {0}")]
    InvalidOutcome(String),
}

/// A limit on time, with its flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeLimit {
    /// CPU time of the calling thread.
    #[error("it used more than {0:?} of CPU time (--cpu-timeout)")]
    Cpu(Duration),
    /// Time on the wall.
    #[error("it took longer than {0:?} (--timeout)")]
    Wall(Duration),
    /// Time on the wall of a call that works outside the cluster.
    #[error("it took longer than {0:?} (--external-timeout)")]
    Outside(Duration),
}

impl TimeLimit {
    pub(crate) fn time(self) -> Duration {
        let (Self::Cpu(time) | Self::Wall(time) | Self::Outside(time)) = self;
        time
    }
}

impl CallError {
    /// The reason of the host's condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Trapped { .. } => "ModuleTrapped",
            Self::Timeout { .. } => "ModuleTimeout",
            Self::OutOfMemory { .. } => "ModuleOutOfMemory",
            Self::LimitExceeded { .. } => "LimitExceeded",
            Self::InvalidOutcome(_) => "InvalidOutcome",
        }
    }

    /// Where the module was, innermost first; empty where that means nothing.
    pub fn backtrace(&self) -> &[String] {
        match self {
            Self::Trapped { backtrace, .. } | Self::Timeout { backtrace, .. } | Self::OutOfMemory { backtrace, .. } => {
                backtrace
            }
            Self::LimitExceeded { .. } | Self::InvalidOutcome(_) => &[],
        }
    }

    /// Where it was when it was stopped, for the log: the text does not say it, because it differs from call to call.
    pub fn stopped_in(&self) -> Option<String> {
        matches!(self, Self::Timeout { .. }).then(|| self.backtrace().join(" < "))
    }

    /// The class of an error that wasmtime gave.
    pub(crate) fn classify(stage: Stage, error: &wasmtime::Error, guest: &mut Guest, limits: &Limits) -> Self {
        let backtrace = frames(error);
        let trap = error.downcast_ref::<Trap>().copied();
        let stop = error.downcast_ref::<Stop>();
        match stop {
            Some(Stop::Time(limit)) => return Self::Timeout { limit: *limit, backtrace },
            Some(stop @ (Stop::NotServed(_) | Stop::Random { .. } | Stop::EmptyPoll)) => {
                return Self::Trapped { what: stop.to_string(), backtrace };
            }
            Some(Stop::Exit) | None => {}
        }
        // After a refused growth most languages abort; a full stack is a full stack all the same.
        if guest.memory.refused() && trap != Some(Trap::StackOverflow) {
            return Self::OutOfMemory { limit: limits.memory, backtrace };
        }
        if let Some(panic) = guest.log.sink().take_panic() {
            return Self::Trapped { what: format!("the module panicked: {panic}"), backtrace };
        }
        if stop.is_some() || error.downcast_ref::<wasmtime_wasi::I32Exit>().is_some() {
            return Self::Trapped { what: Stop::Exit.to_string(), backtrace };
        }
        match trap {
            Some(trap) => Self::Trapped { what: kind(trap, recurses(error)), backtrace },
            None if stage == Stage::Starting => {
                let why = clean(&error.root_cause().to_string(), TEXT_BYTES);
                Self::Trapped { what: format!("the module can't be started: {why}"), backtrace }
            }
            None => Self::of_border(error, limits),
        }
    }

    /// wasmtime has no types for what goes wrong while values cross, only texts.
    fn of_border(error: &wasmtime::Error, limits: &Limits) -> Self {
        let text = error.root_cause().to_string();
        if text.contains("fuel allocated for hostcalls has been exhausted") {
            return Self::LimitExceeded { what: "what the module hands over", limit: limits.output };
        }
        Self::InvalidOutcome(clean(&text, TEXT_BYTES))
    }
}

/// A guest has two stacks, wasmtime's and one in its own memory, and either may be full first.
fn kind(trap: Trap, recurses: bool) -> String {
    match trap {
        Trap::StackOverflow => "the module's stack is full, as from endless recursion".into(),
        Trap::MemoryOutOfBounds if recurses => "the module's stack is full, as from endless recursion".into(),
        Trap::UnreachableCodeReached => "the module aborted".into(),
        other => other.to_string(),
    }
}

fn at(backtrace: &[String]) -> String {
    if backtrace.is_empty() { String::new() } else { format!(" (in {})", backtrace.join(" < ")) }
}

/// `64 MiB` where that is exact, else `1000 bytes`.
fn bytes(n: usize) -> String {
    const UNITS: [(usize, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    UNITS
        .iter()
        .find(|(size, _)| n >= *size && n.is_multiple_of(*size))
        .map_or_else(|| format!("{n} bytes"), |(size, unit)| format!("{} {unit}", n / size))
}

/// The module's own functions by readable name, innermost first; what its language brings is left out.
fn frames(error: &wasmtime::Error) -> Vec<String> {
    let Some(trace) = error.downcast_ref::<WasmBacktrace>() else { return Vec::new() };
    let mut names: Vec<String> = trace
        .frames()
        .iter()
        .filter_map(|frame| frame.func_name())
        .map(|name| clean(&format!("{:#}", rustc_demangle::demangle(name)), FRAME_BYTES))
        .filter(|name| !of_language(name))
        .collect();
    // A recursion fills the trace with one name.
    names.dedup();
    names.truncate(FRAMES);
    names
}

/// Whether one function fills most of the trace.
fn recurses(error: &wasmtime::Error) -> bool {
    let Some(trace) = error.downcast_ref::<WasmBacktrace>() else { return false };
    let frames = trace.frames();
    let same = |index: u32| frames.iter().filter(|frame| frame.func_index() == index).count();
    frames.len() >= 10 && frames.iter().any(|frame| same(frame.func_index()) * 2 >= frames.len())
}

fn of_language(name: &str) -> bool {
    const PREFIXES: [&str; 15] = [
        "core::",
        "std::",
        "alloc::",
        "<core::",
        "<std::",
        "<alloc::",
        "__rust",
        "__rdl",
        "__rg",
        "rust_",
        "dlmalloc",
        "<dlmalloc",
        "abort",
        "wit_bindgen",
        "operator_guest::",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || name.contains("panic_fmt") || name.contains('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_in_round_units() {
        assert_eq!(bytes(64 << 20), "64 MiB");
        assert_eq!(bytes(1000), "1000 bytes");
        assert_eq!(bytes(0), "0 bytes");
    }

    #[test]
    fn messages_name_the_limit_and_its_flag() {
        let error = CallError::Timeout {
            limit: TimeLimit::Cpu(Duration::from_secs(1)),
            backtrace: vec!["webapp::reconcile".into()],
        };
        assert_eq!(error.to_string(), "the call was stopped: it used more than 1s of CPU time (--cpu-timeout)");
        assert_eq!(error.reason(), "ModuleTimeout");
    }

    #[test]
    fn the_languages_own_functions_are_left_out() {
        assert!(of_language("core::panicking::panic_fmt"));
        assert!(of_language("operator:reconciler/reconcile@0.1.0#reconcile"));
        assert!(!of_language("webapp::desired::deployment"));
    }
}
