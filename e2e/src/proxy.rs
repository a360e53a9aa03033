//! A proxy in front of the API server that breaks the line when a test says so.
//!
//! Plain HTTP comes in (a kubeconfig may name `http://127.0.0.1:<port>`), HTTPS goes out, with the caller's token and
//! user agent; watches stream through. Each request is noted as [`Seen`] and compared with the [`Fault`]s in force. A
//! fault ends when its [`Injected`] is dropped or its number of times is used up.

mod faults;
mod serve;
mod streams;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use self::faults::{Fault, Gate, Injected, Match};

use self::faults::Rules;
use self::streams::Streams;
use crate::client::Client;

/// A request that came through, or tried to.
#[derive(Debug, Clone)]
pub struct Seen {
    /// `GET`, `PATCH`.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The query, without `?`.
    pub query: String,
    /// The user agent.
    pub agent: String,
    /// The request's body.
    pub body: Bytes,
    /// When it came.
    pub at: Instant,
}

impl Seen {
    /// Whether it is a watch.
    #[must_use]
    pub fn is_watch(&self) -> bool {
        self.query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch"))
    }

    /// Whether it asks for a change.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.method != "GET"
    }
}

/// A running proxy; it stops when dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    upstream: Client,
    seen: Mutex<Vec<Seen>>,
    rules: Rules,
    streams: Streams,
}

impl Proxy {
    /// A proxy in front of the API server at that address.
    ///
    /// # Errors
    /// When it can't listen or the certificate can't be used.
    pub async fn start(url: &str, ca: &Path) -> crate::Result<Self> {
        // The caller's own token and user agent pass through.
        let upstream = Client::new(url, Some(ca), None, "")?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("the proxy can't listen")?;
        let address = listener.local_addr().context("the proxy has no address")?;
        let shared =
            Arc::new(Shared { upstream, seen: Mutex::default(), rules: Rules::default(), streams: Streams::default() });
        let accepting = tokio::spawn(serve::accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, accepting: Mutex::new(Some(accepting)) })
    }

    /// Where it listens, `http://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on, requests that match meet this fault, each time, until the returned value is dropped.
    pub fn inject(&self, matching: Match, fault: Fault) -> Injected {
        self.shared.rules.add(matching, fault, usize::MAX)
    }

    /// The next `times` requests that match meet this fault, unless the returned value is dropped before.
    pub fn inject_times(&self, times: usize, matching: Match, fault: Fault) -> Injected {
        self.shared.rules.add(matching, fault, times)
    }

    /// Holds matching requests back before they reach the server, until the gate is opened or dropped.
    pub fn hold(&self, matching: Match) -> Gate {
        self.shared.rules.hold(matching)
    }

    /// Breaks every open watch in the middle: the client sees a connection that ended too early.
    pub fn cut_watches(&self) {
        self.shared.streams.cut();
    }

    /// Ends every open watch as a server does whose time for it is over.
    pub fn end_watches(&self) {
        self.shared.streams.end();
    }

    /// Watches stay open but bring nothing more until [`resume_watches`](Self::resume_watches).
    pub fn pause_watches(&self) {
        self.shared.streams.pause(true);
    }

    /// Lets watches bring what they held back.
    pub fn resume_watches(&self) {
        self.shared.streams.pause(false);
    }

    /// How many watches are open through the proxy.
    #[must_use]
    pub fn open_watches(&self) -> usize {
        self.shared.streams.open()
    }

    /// Closes the port and breaks every connection: new ones are refused.
    pub async fn refuse(&self) {
        let accepting = lock(&self.accepting).take();
        if let Some(accepting) = accepting {
            accepting.abort();
            // The listener is closed once the task is gone.
            let _ = accepting.await;
        }
    }

    /// Opens the port again.
    ///
    /// # Errors
    /// When somebody else took it.
    pub async fn accept(&self) -> crate::Result<()> {
        self.refuse().await;
        let listener = TcpListener::bind(self.address).await.context("the proxy's port is taken")?;
        let accepting = tokio::spawn(serve::accept(listener, Arc::clone(&self.shared)));
        *lock(&self.accepting) = Some(accepting);
        Ok(())
    }

    /// All requests so far that match.
    #[must_use]
    pub fn seen(&self, matching: &Match) -> Vec<Seen> {
        lock(&self.shared.seen).iter().filter(|seen| matching.is(seen)).cloned().collect()
    }

    /// How many requests so far match.
    #[must_use]
    pub fn count(&self, matching: &Match) -> usize {
        lock(&self.shared.seen).iter().filter(|seen| matching.is(seen)).count()
    }

    /// Forgets what was seen.
    pub fn forget(&self) {
        lock(&self.shared.seen).clear();
    }

    /// Delays every write by this much until the returned value is dropped.
    pub fn delay_writes(&self, by: Duration) -> Injected {
        self.inject(Match::writes(), Fault::Delay(by))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(accepting) = lock(&self.accepting).take() {
            accepting.abort();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A test that failed while it held the lock has its own message already.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
