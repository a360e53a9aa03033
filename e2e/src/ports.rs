//! Free ports that two test processes never both take.
//!
//! Ports come from below the range the kernel hands out to outgoing connections; each is guarded by a locked file
//! for as long as the [`Port`] lives, and the kernel drops that lock with the process.

use std::fmt;
use std::fs::{self, File};
use std::net::TcpListener;

use anyhow::{Context as _, bail};

const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// A TCP port on 127.0.0.1 that is ours.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _lock: File,
}

impl Port {
    /// Takes a port that nobody listens on and no other test process has taken.
    ///
    /// # Errors
    /// When none of many tries is free, or the lock files can't be written.
    pub fn free() -> crate::Result<Self> {
        let locks = std::env::temp_dir().join("operator-e2e-ports");
        fs::create_dir_all(&locks).with_context(|| format!("cannot make the folder {}", locks.display()))?;
        for _ in 0..1_000 {
            let number = fastrand::u16(RANGE);
            let path = locks.join(number.to_string());
            let lock = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
            if lock.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", number)).is_ok() {
                return Ok(Self { number, _lock: lock });
            }
        }
        bail!("no free port between {} and {}", RANGE.start, RANGE.end)
    }

    /// Its number.
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.number
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}
