//! `/healthz` and `/readyz`: named checks in, the answer that a kubelet or a person expects out.
//!
//! The texts are those of kube-apiserver and controller-runtime (`pkg/healthz`): `ok`, or one line a check with `?verbose` and
//! whenever one fails.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::routing::get;
use tokio::net::TcpListener;

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// All is well.
    Ok,
    /// Nothing that fails the probe, but worth a word: a type that is not served or forbidden.
    Noted(String),
    /// The probe fails, for this reason.
    Failed(String),
}

type Checks = Box<dyn Fn() -> Vec<(String, Finding)> + Send + Sync>;

/// The checks of the process, asked at each probe. Clones share them.
#[derive(Clone, Default)]
pub struct Health {
    live: Arc<Mutex<Vec<Checks>>>,
    ready: Arc<Mutex<Vec<Checks>>>,
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").finish_non_exhaustive()
    }
}

impl Health {
    /// No checks yet: ready from the start.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check of liveness: where it fails, a restart helps. It runs at each probe, and must not block.
    pub fn live(&self, name: impl Into<String>, check: impl Fn() -> Finding + Send + Sync + 'static) {
        let name = name.into();
        let check: Checks = Box::new(move || vec![(name.clone(), check())]);
        self.live.lock().unwrap_or_else(PoisonError::into_inner).push(check);
    }

    /// Adds a readiness check. It runs at each probe: it must neither block nor add checks itself.
    pub fn check(&self, name: impl Into<String>, check: impl Fn() -> Finding + Send + Sync + 'static) {
        let name = name.into();
        self.checks(move || vec![(name.clone(), check())]);
    }

    /// Adds readiness checks of which there may be others at each probe.
    pub fn checks(&self, checks: impl Fn() -> Vec<(String, Finding)> + Send + Sync + 'static) {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(checks));
    }

    /// What `/healthz` says. A process that answers lives, but for what only a restart mends.
    fn liveness(&self, verbose: bool) -> (StatusCode, String) {
        let ping = ("ping".to_owned(), Finding::Ok);
        let findings: Vec<_> = std::iter::once(ping).chain(ask(&self.live)).collect();
        report("healthz", &findings, verbose)
    }

    /// What `/readyz` says.
    fn readiness(&self, verbose: bool) -> (StatusCode, String) {
        report("readyz", &ask(&self.ready), verbose)
    }
}

/// Serves the endpoints; to be spawned and dropped with the runtime.
pub async fn serve(listener: TcpListener, health: Health) {
    super::serve::serve(listener, router(health)).await;
}

fn router(health: Health) -> Router {
    let healthz =
        |State(health): State<Health>, RawQuery(query): RawQuery| async move { page(health.liveness(verbose(query))) };
    let readyz =
        |State(health): State<Health>, RawQuery(query): RawQuery| async move { page(health.readiness(verbose(query))) };
    Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).with_state(health)
}

fn ask(checks: &Mutex<Vec<Checks>>) -> Vec<(String, Finding)> {
    checks.lock().unwrap_or_else(PoisonError::into_inner).iter().flat_map(|check| check()).collect()
}

fn page((status, text): (StatusCode, String)) -> (StatusCode, [(HeaderName, &'static str); 3], String) {
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (status, headers, text)
}

/// `?verbose`, with or without a value.
fn verbose(query: Option<String>) -> bool {
    query.is_some_and(|query| query.split('&').any(|pair| pair == "verbose" || pair.starts_with("verbose=")))
}

fn report(probe: &str, findings: &[(String, Finding)], verbose: bool) -> (StatusCode, String) {
    let failed = findings.iter().any(|(_, finding)| matches!(finding, Finding::Failed(_)));
    if !failed && !verbose {
        return (StatusCode::OK, "ok".to_owned());
    }
    let mut text = String::new();
    for (name, finding) in findings {
        // Writing to a String can't fail.
        let _ = match finding {
            Finding::Ok => writeln!(text, "[+]{name} ok"),
            Finding::Noted(note) => writeln!(text, "[+]{name} ok: {note}"),
            Finding::Failed(reason) => writeln!(text, "[-]{name} failed: {reason}"),
        };
    }
    let (status, outcome) =
        if failed { (StatusCode::INTERNAL_SERVER_ERROR, "failed") } else { (StatusCode::OK, "passed") };
    let _ = writeln!(text, "{probe} check {outcome}");
    (status, text)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;
    use crate::observe::address::BindAddress;

    async fn probe(health: &Health, target: &str) -> String {
        let address: BindAddress = "127.0.0.1:0".parse().expect("an address");
        let listener = address.listen().await.expect("a free port").expect("not off");
        let address = listener.local_addr().expect("it is bound");
        let server = tokio::spawn(serve(listener, health.clone()));
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("it answers");
        server.abort();
        answer
    }

    #[tokio::test]
    async fn readiness_follows_its_checks() {
        let (health, synced) = (Health::new(), Arc::new(AtomicBool::new(false)));
        let state = Arc::clone(&synced);
        health.check("modules", || Finding::Ok);
        health.check("cache Gadget.example.com/v1", || Finding::Noted("not served".into()));
        health.check("cache Deployment.apps/v1", move || match state.load(Ordering::SeqCst) {
            true => Finding::Ok,
            false => Finding::Failed("the first sync is running".into()),
        });

        let answer = probe(&health, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
        let text = "[+]modules ok\n[+]cache Gadget.example.com/v1 ok: not served\n\
                    [-]cache Deployment.apps/v1 failed: the first sync is running\nreadyz check failed\n";
        assert!(answer.ends_with(text), "{answer}");

        synced.store(true, Ordering::SeqCst);
        let answer = probe(&health, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nok"), "{answer}");
        let answer = probe(&health, "/readyz?verbose").await;
        assert!(answer.contains("[+]cache Gadget.example.com/v1 ok: not served\n"), "{answer}");
        assert!(answer.ends_with("readyz check passed\n"), "{answer}");
    }

    #[tokio::test]
    async fn a_process_that_is_not_ready_is_healthy() {
        let health = Health::new();
        health.check("modules", || Finding::Failed("loading".into()));
        assert!(probe(&health, "/healthz").await.ends_with("\r\n\r\nok"));
        assert!(probe(&health, "/healthz?verbose=1").await.ends_with("[+]ping ok\nhealthz check passed\n"));
        assert!(probe(&health, "/else").await.starts_with("HTTP/1.1 404"));
    }

    #[tokio::test]
    async fn what_only_a_restart_mends_fails_the_health() {
        let health = Health::new();
        health.live("leader-election", || Finding::Failed("it stands still".into()));
        let answer = probe(&health, "/healthz").await;
        assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
        assert!(answer.ends_with("[-]leader-election failed: it stands still\nhealthz check failed\n"), "{answer}");
        assert!(probe(&health, "/readyz").await.ends_with("\r\n\r\nok"));
    }
}
