//! Which requests go wrong, and how.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Seen, lock};

type Condition = Arc<dyn Fn(&Seen) -> bool + Send + Sync>;

/// A description of requests; conditions add up.
#[derive(Clone)]
pub struct Match(Vec<Condition>);

impl Match {
    /// Every request.
    #[must_use]
    pub const fn any() -> Self {
        Self(Vec::new())
    }

    /// Creates, updates, patches and deletes of anything but Leases and Events.
    #[must_use]
    pub fn writes() -> Self {
        Self::any().and(Seen::is_write).and(|seen| !seen.path.contains("/leases") && !seen.path.contains("/events"))
    }

    /// Watches.
    #[must_use]
    pub fn watches() -> Self {
        Self::any().and(Seen::is_watch)
    }

    /// Requests with that HTTP method.
    #[must_use]
    pub fn method(self, method: &str) -> Self {
        let method = method.to_owned();
        self.and(move |seen| seen.method == method)
    }

    /// Requests whose path contains this, such as `/deployments/web` or `/status`.
    #[must_use]
    pub fn path(self, part: &str) -> Self {
        let part = part.to_owned();
        self.and(move |seen| seen.path.contains(&part))
    }

    /// Requests whose query contains this.
    #[must_use]
    pub fn query(self, part: &str) -> Self {
        let part = part.to_owned();
        self.and(move |seen| seen.query.contains(&part))
    }

    /// Requests for which the condition is true.
    #[must_use]
    pub fn and(mut self, condition: impl Fn(&Seen) -> bool + Send + Sync + 'static) -> Self {
        self.0.push(Arc::new(condition));
        self
    }

    pub(super) fn is(&self, seen: &Seen) -> bool {
        self.0.iter().all(|condition| condition(seen))
    }
}

impl fmt::Debug for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Match({} conditions)", self.0.len())
    }
}

/// What happens to a request.
#[derive(Debug, Clone)]
pub enum Fault {
    /// It reaches the server this much later.
    Delay(Duration),
    /// It never reaches the server; this is the answer.
    Answer {
        /// The HTTP status code.
        code: u16,
        /// Headers, such as `Retry-After`.
        headers: Vec<(String, String)>,
        /// The body.
        body: Value,
    },
    /// It never reaches the server, and the connection breaks.
    LoseRequest,
    /// It is carried out, and the connection breaks instead of the answer.
    LoseAnswer,
    #[doc(hidden)]
    Hold(watch::Sender<Held>),
}

impl Fault {
    /// An answer as the API server words it.
    #[must_use]
    pub fn status(code: u16, reason: &str, message: &str) -> Self {
        Self::Answer {
            code,
            headers: Vec::new(),
            body: json!({
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": message,
                "reason": reason,
                "code": code,
            }),
        }
    }

    /// 504, as a server answers that is asked for a version which it has not come to yet.
    #[must_use]
    pub fn version_too_large() -> Self {
        let mut fault = Self::status(504, "Timeout", "Too large resource version");
        if let Self::Answer { body, .. } = &mut fault {
            let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
            body["details"] = json!({"causes": [cause], "retryAfterSeconds": 1});
        }
        fault
    }

    /// 429 with `Retry-After`, in seconds.
    #[must_use]
    pub fn too_many_requests(retry_after: u32) -> Self {
        let mut fault = Self::status(429, "TooManyRequests", "the server has received too many requests");
        if let Self::Answer { headers, body, .. } = &mut fault {
            headers.push(("Retry-After".to_owned(), retry_after.to_string()));
            body["details"] = json!({"retryAfterSeconds": retry_after});
        }
        fault
    }
}

#[doc(hidden)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Held {
    arrived: usize,
    open: bool,
}

/// Waits at a closed gate.
pub(super) async fn wait_at(gate: &watch::Sender<Held>) {
    gate.send_modify(|held| held.arrived += 1);
    // The sender is at hand, so the wait ends only when the gate opens.
    let _ = gate.subscribe().wait_for(|held| held.open).await;
}

/// A gate that holds requests back; opens when dropped.
#[derive(Debug)]
#[must_use = "the gate opens when it is dropped"]
pub struct Gate {
    held: watch::Sender<Held>,
    _rule: Injected,
}

impl Gate {
    /// How many requests have come to the gate so far.
    #[must_use]
    pub fn arrived(&self) -> usize {
        self.held.borrow().arrived
    }

    /// Waits until that many requests have come to the gate.
    ///
    /// # Panics
    /// When they have not within the deadline.
    pub async fn wait_for(&self, count: usize, deadline: Duration) {
        let mut held = self.held.subscribe();
        let arrived = held.wait_for(|held| held.arrived >= count);
        if tokio::time::timeout(deadline, arrived).await.is_err() {
            panic!("{} of {count} requests came to the gate within {deadline:?}", self.arrived());
        }
    }

    /// Lets all that wait through, and all that come later.
    pub fn open(self) {}
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.held.send_modify(|held| held.open = true);
    }
}

/// A fault in force; it ends when this is dropped.
#[derive(Debug)]
#[must_use = "the fault ends when this is dropped"]
pub struct Injected {
    id: u64,
    rules: Rules,
}

impl Injected {
    /// How many requests met the fault so far.
    #[must_use]
    pub fn hits(&self) -> usize {
        lock(&self.rules.0).iter().find(|rule| rule.id == self.id).map_or(0, |rule| rule.hits)
    }
}

impl Drop for Injected {
    fn drop(&mut self) {
        lock(&self.rules.0).retain(|rule| rule.id != self.id);
    }
}

#[derive(Debug)]
struct Rule {
    id: u64,
    matching: Match,
    fault: Fault,
    times: usize,
    hits: usize,
}

/// The faults in force, oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules(Arc<Mutex<Vec<Rule>>>);

impl Rules {
    pub(super) fn add(&self, matching: Match, fault: Fault, times: usize) -> Injected {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        lock(&self.0).push(Rule { id, matching, fault, times, hits: 0 });
        Injected { id, rules: self.clone() }
    }

    pub(super) fn hold(&self, matching: Match) -> Gate {
        let (held, _) = watch::channel(Held::default());
        let rule = self.add(matching, Fault::Hold(held.clone()), usize::MAX);
        Gate { held, _rule: rule }
    }

    /// The faults that this request meets, each counted as used.
    pub(super) fn meet(&self, seen: &Seen) -> Vec<Fault> {
        let mut rules = lock(&self.0);
        let matching = rules.iter_mut().filter(|rule| rule.hits < rule.times && rule.matching.is(seen));
        matching
            .map(|rule| {
                rule.hits += 1;
                rule.fault.clone()
            })
            .collect()
    }
}
