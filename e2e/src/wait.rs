//! Waiting for a condition instead of sleeping.

use std::fmt::Display;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(25);

/// What one look at the world gave: the thing waited for, or what was seen instead.
pub trait Observation {
    /// What the waiting test gets.
    type Seen;

    /// The value, or a description of what was there instead (empty when there is nothing to say).
    ///
    /// # Errors
    /// While the condition does not hold.
    fn seen(self) -> Result<Self::Seen, String>;
}

impl Observation for bool {
    type Seen = ();

    fn seen(self) -> Result<(), String> {
        self.then_some(()).ok_or_default()
    }
}

impl<T> Observation for Option<T> {
    type Seen = T;

    fn seen(self) -> Result<T, String> {
        self.ok_or_default()
    }
}

impl<T, E: Display> Observation for Result<T, E> {
    type Seen = T;

    fn seen(self) -> Result<T, String> {
        self.map_err(|error| format!("{error:#}"))
    }
}

trait OrDefault<T> {
    fn ok_or_default(self) -> Result<T, String>;
}

impl<T> OrDefault<T> for Option<T> {
    fn ok_or_default(self) -> Result<T, String> {
        self.ok_or_else(String::new)
    }
}

/// Looks again and again until `look` gives `true`, `Some` or `Ok`, and returns what it gave.
///
/// # Panics
/// At the deadline, with `what` and the last thing seen instead. A look that hangs counts as well.
pub async fn eventually<O, F, Fut>(what: &str, deadline: Duration, mut look: F) -> O::Seen
where
    O: Observation,
    F: FnMut() -> Fut,
    Fut: Future<Output = O>,
{
    let started = Instant::now();
    let mut last = String::new();
    loop {
        let left = deadline.saturating_sub(started.elapsed());
        match tokio::time::timeout(left.max(INTERVAL), look()).await {
            Ok(observation) => match observation.seen() {
                Ok(seen) => return seen,
                Err(instead) => last = instead,
            },
            Err(_) => "the last look did not come back".clone_into(&mut last),
        }
        assert!(
            started.elapsed() < deadline,
            "not within {deadline:?}: {what}{}{last}",
            if last.is_empty() { "" } else { "; last seen: " }
        );
        tokio::time::sleep(INTERVAL).await;
    }
}
