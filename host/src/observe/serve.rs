//! Serves the pages of probes and metrics to whoever asks, and holds nothing for those who do not.
//!
//! Everybody in a cluster may reach a pod's ports. `axum::serve` keeps a connection for as long as the other side likes: who opens many and
//! asks nothing takes all file descriptors of the process, those for the API server among them.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// How long a connection may take for its one request and the answer.
const TIME: Duration = Duration::from_secs(10);
/// Connections at the same time. Who comes later waits for a place.
const PLACES: usize = 64;
/// How long to wait where no connection can be taken, as when the process has no file descriptor left.
const PAUSE: Duration = Duration::from_secs(1);

/// Serves the router for as long as the process runs; to be spawned and dropped with the runtime.
pub(super) async fn serve(listener: TcpListener, router: Router) {
    serve_within(listener, router, PLACES, TIME).await;
}

async fn serve_within(listener: TcpListener, router: Router, places: usize, time: Duration) {
    let places = Arc::new(Semaphore::new(places));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let service = TowerToHyperService::new(router.clone());
        // One request each: an idle connection is one that asks nothing.
        let connection = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move {
            // Whoever went away, or is cut off, asks again.
            let _ = timeout(time, connection).await;
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn who_asks_is_answered_though_others_hold_every_place() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let router = Router::new().route("/", get(|| async { "here" }));
        tokio::spawn(serve_within(listener, router, 2, Duration::from_millis(50)));
        let mut idle = Vec::new();
        for begun in ["", "GET / HT", "GET / HTTP/1.1\r\nA: "] {
            let mut stream = TcpStream::connect(address).await.expect("it listens");
            stream.write_all(begun.as_bytes()).await.expect("it is connected");
            idle.push(stream);
        }
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("it is connected");
        let mut answer = String::new();
        // Without `Connection: close` in the request: that it ends shows that no connection is kept.
        stream.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("here"), "{answer}");
        for mut stream in idle {
            stream.read_to_end(&mut Vec::new()).await.expect("a connection that asks nothing is closed");
        }
    }
}
