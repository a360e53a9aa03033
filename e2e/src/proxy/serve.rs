//! The way of one request through the proxy.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures::TryStreamExt as _;
use http::{HeaderName, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::faults::{Fault, wait_at};
use super::streams::Cut;
use super::{Seen, Shared, lock};

type Answer = Response<UnsyncBoxBody<Bytes, Cut>>;

/// Serves connections until this future is dropped, and they with it.
pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                // Events shall not wait for more to send.
                let _ = stream.set_nodelay(true);
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    let service = service_fn(move |request| serve(request, Arc::clone(&shared)));
                    let connection = hyper::server::conn::http1::Builder::new();
                    // A connection that a fault broke is what the test wanted.
                    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Answers one request; an error breaks the connection.
async fn serve(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Answer, Cut> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
    let agent = parts.headers.get(http::header::USER_AGENT).and_then(|agent| agent.to_str().ok());
    let seen = Seen {
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        agent: agent.unwrap_or_default().to_owned(),
        body: body.clone(),
        at: Instant::now(),
    };
    let is_watch = seen.is_watch();
    let faults = shared.rules.meet(&seen);
    lock(&shared.seen).push(seen);

    let mut answer_lost = false;
    for fault in faults {
        match fault {
            Fault::Delay(by) => tokio::time::sleep(by).await,
            Fault::Hold(gate) => wait_at(&gate).await,
            Fault::Answer { code, headers, body } => return Ok(answer(code, &headers, body.to_string())),
            Fault::LoseRequest => return Err(Cut),
            Fault::LoseAnswer => answer_lost = true,
        }
    }

    let mut onward = Request::new(Body::from(body));
    *onward.method_mut() = parts.method;
    *onward.uri_mut() = parts.uri;
    *onward.headers_mut() = parts.headers;
    for header in hop_by_hop() {
        onward.headers_mut().remove(header);
    }
    let response = match shared.upstream.kube().send(onward).await {
        Ok(response) => response,
        // As with the server itself gone: no answer at all.
        Err(_) => return Err(Cut),
    };
    let (mut parts, body) = response.into_parts();
    for header in hop_by_hop() {
        parts.headers.remove(header);
    }
    if answer_lost {
        // Only a whole answer says that the write is done.
        let _ = body.collect().await;
        return Err(Cut);
    }
    let body = if is_watch {
        let chunks = shared.streams.pass(body).map_ok(Frame::data);
        StreamBody::new(chunks).boxed_unsync()
    } else {
        body.map_err(|_| Cut).boxed_unsync()
    };
    Ok(Response::from_parts(parts, body))
}

fn answer(code: u16, headers: &[(String, String)], body: String) -> Answer {
    let mut response = Response::builder().status(code).header("Content-Type", "application/json");
    for (name, value) in headers {
        response = response.header(name, value);
    }
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync();
    match response.body(body) {
        Ok(response) => response,
        Err(error) => panic!("a fault's answer is no HTTP response: {error}"),
    }
}

/// What belongs to one connection only.
const fn hop_by_hop() -> [HeaderName; 3] {
    [http::header::HOST, http::header::CONNECTION, http::header::TRANSFER_ENCODING]
}
