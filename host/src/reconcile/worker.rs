//! A worker thread: takes a key, runs its pass, says when it is due again.

use super::pass::{Next, Pass};
use super::{QueueKey, Shared};
use crate::api::ApiServer;
use crate::observe::metrics::ModuleMetrics;
use crate::observe::traces;
use crate::watch::Writer;
use operator_core::queue::{Popped, Priority};
use rustix::time::{ClockId, clock_gettime};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tracing::{debug, error, info_span};

/// A worker's own way to the API server. The thread that waits for an answer is the one that reads it: no other has to wake it.
pub(super) struct Line {
    runtime: Runtime,
    api: ApiServer,
}

impl Line {
    fn new(api: &ApiServer) -> std::io::Result<Self> {
        Ok(Self { runtime: Builder::new_current_thread().enable_all().build()?, api: api.apart() })
    }

    /// Waits, and drives the connections of this line meanwhile, so that one that the server closed is not used again. Requests must be
    /// sent by the API server of this line: those of another would have their connections here, where they stand still between two waits.
    pub(super) fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(async {
            // What is ready at once, as keys of a long queue are, would leave no time to look at them.
            tokio::task::yield_now().await;
            what.await
        })
    }

    /// Ends it without waiting for what blocks a thread of its own: the look-up of a name, or a credential plugin that asks nobody.
    fn end(self) {
        self.runtime.shutdown_background();
    }
}

/// Starts the worker threads.
pub(super) fn start(shared: &Arc<Shared>) -> std::io::Result<Vec<std::thread::JoinHandle<()>>> {
    (0..shared.settings.workers)
        .map(|number| {
            let (shared, line) = (Arc::clone(shared), Line::new(&shared.api)?);
            std::thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
                work(&shared, &line);
                line.end();
            })
        })
        .collect()
}

/// Works until the queue is shut down.
fn work(shared: &Arc<Shared>, line: &Line) {
    while let Some(popped) = line.wait(shared.queue.next()) {
        let (before, began) = (thread_cpu(), Instant::now());
        // A fault of ours in one pass is that key's problem: it backs off, and the thread goes on.
        let next = catch_unwind(AssertUnwindSafe(|| pass(shared, line, &popped)));
        count(shared, &popped, next.as_ref().ok(), began.elapsed());
        let next = next.unwrap_or_else(|_| {
            error!(object = %popped.key.name, "a pass panicked; this is a bug of the host, please report it");
            Next::Failed(None)
        });
        settle(shared, &popped.key, next);
        shared.queue.done(&popped.key, thread_cpu().saturating_sub(before));
    }
}

fn pass(shared: &Arc<Shared>, line: &Line, popped: &Popped<QueueKey>) -> Next {
    let key = &popped.key;
    let Some(operator) = shared.operators.get(key.operator) else { return Next::Gone };
    let serving = operator.serving();
    let module = serving.descriptor();
    let id = format!("{:08x}", fastrand::u32(..));
    let span = info_span!(
        "reconcile",
        module = module.name,
        digest = serving.module.short_digest(),
        kind = module.primary.kind,
        namespace = key.name.namespace.as_deref(),
        name = &*key.name.name,
        id,
    );
    traces::queued(&span, popped.waited, popped.priority);
    let _entered = span.enter();
    let permit = match shared.permits.permit() {
        Ok(permit) => permit,
        // The term is over, and soon the process: the next holder's queue has the key.
        Err(error) => {
            debug!(%error, "nothing is done");
            return Next::Failed(None);
        }
    };
    let mut memory = shared.memories.take(key);
    let writer = Writer { api: &line.api, permit: &permit, author: key };
    let next = Pass {
        shared,
        operator,
        serving: &serving,
        key,
        id: &id,
        line,
        writer,
        memory: &mut memory,
        written: Vec::new(),
        outside: None,
        primary: None,
        deeds: Vec::new(),
        told: None,
    }
    .run();
    if next != Next::Gone {
        shared.memories.put(key.clone(), memory);
    }
    next
}

/// Counts a pass; one without a `next` panicked.
fn count(shared: &Shared, popped: &Popped<QueueKey>, next: Option<&Next>, took: Duration) {
    let Some(operator) = shared.operators.get(popped.key.operator) else { return };
    let ModuleMetrics { reconciles, queue, .. } = &operator.metrics;
    queue.waited(popped.waited);
    queue.worked(took);
    reconciles.took(took);
    match next {
        Some(Next::Done | Next::Gone) => reconciles.succeeded(),
        Some(Next::After(delay)) => reconciles.requeued(*delay),
        Some(Next::Failed(_) | Next::FailedAfter(_)) => reconciles.failed(),
        Some(Next::FailedForGood) => reconciles.failed_for_good(),
        None => reconciles.panicked(),
    }
}

/// Tells the queue when the key is due again.
fn settle(shared: &Shared, key: &QueueKey, next: Next) {
    let Some(operator) = shared.operators.get(key.operator) else { return };
    match next {
        Next::Gone => return shared.queue.remove(key),
        // The retry comes before any resync, which must not cut the backoff short.
        Next::Failed(no_later) => {
            shared.queue.failed(key);
            if let Some(delay) = no_later {
                shared.queue.add_after(operator.lane, key.clone(), delay, Priority::Retry);
            }
            return;
        }
        Next::FailedAfter(delay) => {
            return shared.queue.add_after(operator.lane, key.clone(), delay, Priority::Retry);
        }
        Next::After(delay) => {
            shared.queue.forget(key);
            shared.queue.add_after(operator.lane, key.clone(), delay, Priority::Retry);
        }
        Next::Done | Next::FailedForGood => shared.queue.forget(key),
    }
    let resync = shared.settings.resync;
    if !resync.is_zero() {
        let jittered = resync.mul_f64(0.9 + 0.2 * fastrand::f64());
        shared.queue.add_after(operator.lane, key.clone(), jittered, Priority::Resync);
    }
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::connect;
    use crate::lead::Permits;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::{Barrier, mpsc};

    fn line_to(url: &str) -> Line {
        let kubeconfig = std::env::temp_dir().join(format!("operator-host-{:016x}", fastrand::u64(..)));
        let config = format!(
            "clusters: [{{name: a, cluster: {{server: \"{url}\"}}}}]\nusers: [{{name: a, user: {{}}}}]\n\
             contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\ncurrent-context: a\n"
        );
        std::fs::write(&kubeconfig, config).expect("a file");
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let api = runtime.block_on(connect(Some(&kubeconfig), None, &Permits::always())).expect("a client");
        std::fs::remove_file(&kubeconfig).expect("it is there");
        Line::new(&api).expect("a line")
    }

    /// Answers one request as a server that would keep the connection.
    fn answer(connection: &mut TcpStream) {
        let mut lines = BufReader::new(&mut *connection).lines();
        while lines.next().is_some_and(|line| !line.expect("a line").is_empty()) {}
        connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").expect("it is open");
    }

    #[test]
    fn a_connection_that_the_server_closed_between_two_waits_loses_no_request() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", server.local_addr().expect("an address"));
        let between_waits = Arc::new(Barrier::new(2));
        let of_server = Arc::clone(&between_waits);
        std::thread::spawn(move || {
            for connection in server.incoming() {
                let mut connection = connection.expect("a connection");
                answer(&mut connection);
                of_server.wait();
                drop(connection);
                of_server.wait();
            }
        });
        let line = line_to(&url);
        for _ in 0..3 {
            line.wait(line.api.get("/version")).expect("an answer");
            between_waits.wait();
            between_waits.wait();
        }
    }
    #[test]
    fn a_worker_ends_though_something_that_a_request_began_never_does() {
        let line = line_to("http://127.0.0.1:1");
        let (never, hangs) = mpsc::channel::<()>();
        line.wait(async { drop(tokio::task::spawn_blocking(move || hangs.recv())) });
        let (ended, end) = mpsc::channel();
        std::thread::spawn(move || {
            line.end();
            ended.send(()).expect("the test listens");
        });
        end.recv_timeout(Duration::from_secs(30)).expect("the worker waits for what never ends");
        drop(never);
    }
}
