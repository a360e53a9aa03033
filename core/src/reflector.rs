//! One watch of one type, as a state machine: what the API server answers and what the clock says goes in; which
//! request to send next and how far the table may be trusted comes out.
//!
//! The semantics are client-go's (`tools/cache/reflector.go`) and KEP-3157's: the first list is streamed
//! (`sendInitialEvents`) where the server can do that and read by pages otherwise, and is consistent (no
//! resourceVersion); later ones are not older than what was seen; a version that the server no longer has, or does not
//! have yet, leads back to a consistent list. Beyond client-go: a watch that is silent for [`SILENCE`] is renewed by a
//! list, because a watch from a version ahead of the server's (a restored etcd) is silent for ever; and a type that is
//! absent or forbidden is a state, not a log line.

mod fault;
mod line;

use std::time::{Duration, Instant};

use crate::backoff::Backoff;
use crate::object::ResourceVersion;

pub use fault::{Fault, FaultKind};
pub use line::{Broken, Line, Page, parse_line, parse_page};

/// A stream without any line for so long is renewed. The server sends a bookmark every minute where anything happens at
/// all in its storage.
pub const SILENCE: Duration = Duration::from_secs(180);
/// Longest wait between two attempts.
pub const RETRY_MAX: Duration = Duration::from_secs(30);
/// A watch that ends sooner was no watch: the next one waits.
const SHORT: Duration = Duration::from_secs(1);
/// The server is asked to end a watch after a random time between these (client-go: 5 to 10 minutes), so that the
/// watches of many clients spread over its replicas.
const SERVER_TIMEOUT: (u64, u64) = (300, 600);
/// Objects a page (client-go `defaultPageSize`).
const PAGE: u32 = 500;

/// How a type stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Its first list is under way.
    Syncing,
    /// The table shows it.
    Synced,
    /// The server does not serve it.
    Absent {
        /// In the server's words.
        message: String,
    },
    /// We may not list or watch it.
    Forbidden {
        /// In the server's words.
        message: String,
    },
    /// Something else is wrong; what was synced before still holds, as far as it goes.
    Failing {
        /// In the server's words, or the transport's.
        message: String,
    },
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing before this time.
    Wait(Instant),
    /// Send this request now.
    Send(Request),
}

/// A request, without the type's path and the selectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A list as the beginning of a watch.
    StreamList {
        /// None: consistent.
        not_older_than: Option<ResourceVersion>,
        /// When the server ends it.
        timeout: Duration,
    },
    /// A list, or a page of one.
    List {
        /// None: consistent.
        not_older_than: Option<ResourceVersion>,
        /// Objects a page; None: all at once.
        limit: Option<u32>,
        /// The page after the one that gave this token.
        page: Option<String>,
    },
    /// What happened after a version.
    Watch {
        /// The version.
        from: ResourceVersion,
        /// When the server ends it.
        timeout: Duration,
    },
}

impl Request {
    /// The query parameters, in need of escaping.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::StreamList { not_older_than, timeout } => {
                let mut parameters = watch_parameters(*timeout);
                parameters.push(("sendInitialEvents", "true".into()));
                parameters.push(("resourceVersionMatch", "NotOlderThan".into()));
                parameters.extend(not_older_than.iter().map(|version| ("resourceVersion", version.to_string())));
                parameters
            }
            Self::List { not_older_than, limit, page } => {
                let version = not_older_than.iter().map(|version| ("resourceVersion", version.to_string()));
                let limit = limit.iter().map(|limit| ("limit", limit.to_string()));
                let page = page.iter().map(|token| ("continue", token.clone()));
                let mut parameters: Vec<_> = limit.chain(page).chain(version).collect();
                if not_older_than.is_some() {
                    parameters.push(("resourceVersionMatch", "NotOlderThan".into()));
                }
                parameters
            }
            Self::Watch { from, timeout } => {
                let mut parameters = watch_parameters(*timeout);
                parameters.push(("resourceVersion", from.to_string()));
                parameters
            }
        }
    }

    /// Whether the answer is a stream of lines.
    pub fn is_stream(&self) -> bool {
        !matches!(self, Self::List { .. })
    }

    /// Whether a list begins with it, and if so, whether that one is consistent.
    pub fn begins_list(&self) -> Option<bool> {
        match self {
            Self::StreamList { not_older_than, .. } | Self::List { not_older_than, page: None, .. } => {
                Some(not_older_than.is_none())
            }
            Self::List { page: Some(_), .. } | Self::Watch { .. } => None,
        }
    }
}

fn watch_parameters(timeout: Duration) -> Vec<(&'static str, String)> {
    vec![
        ("watch", "true".into()),
        ("allowWatchBookmarks", "true".into()),
        ("timeoutSeconds", timeout.as_secs().to_string()),
    ]
}

/// What a line or page means for the table, apart from the objects in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing more.
    Object,
    /// Everything up to this version has been told.
    Progress(ResourceVersion),
    /// The list is complete, as of this version.
    ListComplete(ResourceVersion),
    /// More pages follow.
    MorePages,
}

/// What the next request is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Plan {
    /// A list that is consistent, or not older than what was seen.
    List {
        consistent: bool,
    },
    /// A list that is consistent and not cut into pages: one of them came too late.
    WholeList,
    Page {
        token: String,
    },
    Watch,
}

/// The request that was last sent.
#[derive(Clone, Debug)]
struct Open {
    plan: Plan,
    since: Instant,
    last_line: Instant,
    /// When the server was asked to end it.
    ends: Instant,
    /// The server accepted it.
    is_accepted: bool,
    /// Its list is not complete yet.
    is_listing: bool,
}

/// The state machine of one watch. See the [module](self).
#[derive(Debug)]
pub struct Reflector {
    rng: fastrand::Rng,
    backoff: Backoff,
    state: State,
    is_trusted: bool,
    /// The line broke, and the server has not shown since how far it is.
    is_lost: bool,
    /// The newest version seen.
    version: Option<ResourceVersion>,
    /// The server knows streaming lists, as far as we know.
    can_stream: bool,
    plan: Plan,
    not_before: Option<Instant>,
    open: Option<Open>,
    /// When the last list was complete.
    listed: Option<Instant>,
    ended_early: bool,
}

impl Reflector {
    /// A watch that has not begun; `seed` feeds its timeouts and the jitter of its backoff.
    pub fn new(seed: u64) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(seed),
            backoff: Backoff::watch(),
            state: State::Syncing,
            is_trusted: false,
            is_lost: false,
            version: None,
            can_stream: true,
            plan: Plan::List { consistent: true },
            not_before: None,
            open: None,
            listed: None,
            ended_early: false,
        }
    }

    /// How the type stands, as this watch sees it.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Whether the table may be acted upon: synced once, and since then neither absent nor forbidden, nor back in time.
    pub fn is_trusted(&self) -> bool {
        self.is_trusted
    }

    /// Whether the line broke, and the server has not shown since how far it is: it may have been restored from a backup
    /// meanwhile.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// The server is back after an outage: what was lost is tried again now, spread a little, and not when the backoff says.
    pub fn server_is_back(&mut self, now: Instant) {
        if self.is_lost {
            self.not_before = Some(now + self.jitter());
        }
    }

    /// What to do next. A request that it returns counts as sent.
    pub fn next(&mut self, now: Instant) -> Step {
        if let Some(until) = self.not_before.filter(|until| *until > now) {
            return Step::Wait(until);
        }
        let (shortest, longest) = SERVER_TIMEOUT;
        let timeout = Duration::from_secs(self.rng.u64(shortest..=longest));
        let request = self.request(timeout);
        let is_listing = !matches!(request, Request::Watch { .. });
        self.not_before = None;
        self.ended_early = false;
        let (plan, ends) = (self.plan.clone(), now + timeout);
        self.open = Some(Open { plan, since: now, last_line: now, ends, is_accepted: false, is_listing });
        Step::Send(request)
    }

    fn request(&self, timeout: Duration) -> Request {
        let seen = self.version.clone();
        match &self.plan {
            Plan::List { consistent } => {
                let not_older_than = seen.filter(|_| !consistent);
                if self.can_stream {
                    return Request::StreamList { not_older_than, timeout };
                }
                // As in client-go: the watch cache serves a list of a version only without a limit.
                let limit = not_older_than.is_none().then_some(PAGE);
                Request::List { not_older_than, limit, page: None }
            }
            Plan::WholeList => Request::List { not_older_than: None, limit: None, page: None },
            Plan::Page { token } => {
                Request::List { not_older_than: None, limit: Some(PAGE), page: Some(token.clone()) }
            }
            Plan::Watch => match seen {
                Some(from) => Request::Watch { from, timeout },
                None => Request::StreamList { not_older_than: None, timeout },
            },
        }
    }

    /// When the open stream has been silent for too long: then call [`Reflector::silent`].
    pub fn silence_ends(&self) -> Option<Instant> {
        self.open.as_ref().map(|open| open.last_line + SILENCE)
    }

    /// The server accepted the request for a stream.
    pub fn opened(&mut self, now: Instant) {
        let Some(open) = &mut self.open else { return };
        open.last_line = now;
        open.is_accepted = true;
        if !open.is_listing {
            self.synced();
        }
    }

    /// An ADDED, MODIFIED or DELETED line; its version where it could be read.
    pub fn object(&mut self, version: Option<&ResourceVersion>, now: Instant) -> Heard {
        let Some(open) = &mut self.open else { return Heard::Object };
        open.last_line = now;
        // While a list is streamed versions come in no order.
        if !open.is_listing && version.is_some() {
            self.version = version.cloned();
        }
        Heard::Object
    }

    /// A BOOKMARK line; `ends_list` if it is annotated as the end of the initial events.
    pub fn bookmark(&mut self, version: ResourceVersion, ends_list: bool, now: Instant) -> Heard {
        let Some(open) = &mut self.open else { return Heard::Object };
        open.last_line = now;
        match open.is_listing {
            true if ends_list => self.list_complete(version, now),
            true => Heard::Object,
            false => {
                self.version = Some(version.clone());
                Heard::Progress(version)
            }
        }
    }

    /// A page of a list.
    pub fn page(&mut self, version: ResourceVersion, next: Option<String>, now: Instant) -> Heard {
        self.open = None;
        match next.filter(|token| !token.is_empty()) {
            Some(token) => {
                self.plan = Plan::Page { token };
                Heard::MorePages
            }
            None => self.list_complete(version, now),
        }
    }

    fn list_complete(&mut self, version: ResourceVersion, now: Instant) -> Heard {
        self.version = Some(version.clone());
        self.listed = Some(now);
        self.plan = Plan::Watch;
        if let Some(open) = &mut self.open {
            open.is_listing = false;
        }
        self.synced();
        Heard::ListComplete(version)
    }

    fn synced(&mut self) {
        self.state = State::Synced;
        self.is_trusted = true;
        self.is_lost = false;
    }

    /// The server ended the stream, cleanly.
    pub fn ended(&mut self, now: Instant) {
        let Some(open) = self.open.take() else { return };
        self.ended_early = now + SHORT < open.ends;
        if open.is_listing {
            return self.retry_after(Duration::ZERO, now);
        }
        if now.saturating_duration_since(open.since) < SHORT {
            self.retry_after(Duration::ZERO, now);
        }
    }

    /// Whether the last stream ended before its time: the server restarted, or the type's definition changed.
    pub fn ended_early(&self) -> bool {
        self.ended_early
    }

    /// Nothing came for [`SILENCE`]: drop the stream.
    pub fn silent(&mut self, now: Instant) {
        let Some(open) = self.open.take() else { return };
        if open.is_listing {
            // A server that does not know the parameter sends the objects, but never the end of them.
            self.can_stream = false;
            return self.retry_after(Duration::ZERO, now);
        }
        self.plan = Plan::List { consistent: false };
    }

    /// The server went back in time, as some watch saw: drop the stream and list. Until then nothing is to be trusted.
    pub fn relist(&mut self) {
        self.open = None;
        self.not_before = None;
        self.plan = Plan::List { consistent: true };
        self.is_trusted = false;
        if matches!(self.state, State::Synced | State::Failing { .. }) {
            self.state = State::Syncing;
        }
    }

    /// The request failed, or an ERROR line came: drop the stream.
    pub fn failed(&mut self, fault: Fault, now: Instant) {
        let open = self.open.take();
        let was_watching = open.as_ref().is_some_and(|open| !open.is_listing);
        let sent = open.as_ref().map(|open| open.plan.clone());
        self.ended_early = was_watching;
        self.is_lost &= !matches!(fault.kind, FaultKind::Absent | FaultKind::Forbidden);
        self.is_lost |= fault.kind == FaultKind::Lost;
        let Fault { kind, message, retry_after } = fault;
        let at_least = retry_after.unwrap_or_default();
        match kind {
            FaultKind::Expired | FaultKind::TooLarge => self.version_unavailable(kind, sent, was_watching, now),
            FaultKind::Unsupported if self.can_stream && sent != Some(Plan::Watch) => self.can_stream = false,
            FaultKind::Absent => {
                self.state = State::Absent { message };
                self.is_trusted = false;
                self.plan = Plan::List { consistent: true };
                self.retry_after(at_least, now);
            }
            FaultKind::Forbidden => {
                self.state = State::Forbidden { message };
                self.is_trusted = false;
                self.retry_after(at_least, now);
            }
            FaultKind::Initializing => self.not_before = Some(now + at_least.max(SHORT) + self.jitter()),
            FaultKind::Lost
                if open.is_some_and(|open| was_watching && open.is_accepted && now >= open.since + SHORT) => {}
            FaultKind::Lost | FaultKind::Unsupported | FaultKind::Other => {
                self.state = State::Failing { message };
                self.retry_after(at_least, now);
            }
        }
    }

    /// A watch leads to a list at once, a list that is not consistent to one that is; but not again and again, unless the line
    /// broke in between.
    fn version_unavailable(&mut self, kind: FaultKind, sent: Option<Plan>, was_watching: bool, now: Instant) {
        let is_watch_too_old = was_watching && kind == FaultKind::Expired;
        self.plan = match sent {
            Some(Plan::Page { .. }) => Plan::WholeList,
            _ => Plan::List { consistent: !is_watch_too_old },
        };
        let listed_just_now = self.listed.is_some_and(|listed| now.saturating_duration_since(listed) < RETRY_MAX);
        let was_consistent = matches!(sent, Some(Plan::List { consistent: true } | Plan::WholeList));
        if was_consistent || was_watching && listed_just_now && !self.is_lost {
            self.not_before = Some(now + self.delay(now));
        }
    }

    fn delay(&mut self, now: Instant) -> Duration {
        self.backoff.next(now, &mut self.rng).min(RETRY_MAX)
    }

    fn jitter(&mut self) -> Duration {
        Duration::from_millis(self.rng.u64(0..500))
    }

    /// The same again, or the list anew if one was under way.
    fn retry_after(&mut self, at_least: Duration, now: Instant) {
        if matches!(self.plan, Plan::Page { .. } | Plan::WholeList) {
            self.plan = Plan::List { consistent: true };
        }
        let delay = self.delay(now).max(at_least.min(RETRY_MAX));
        self.not_before = Some(now + delay);
    }
}

#[cfg(test)]
mod tests;
