//! The one place that sends requests to the API server.
//!
//! In come paths and bodies, out come bytes, lines of a watch, or an [`ApiError`] that tells an answer from its absence. Every request
//! carries our user agent and a time limit, every write a [`Permit`] but those that are [`exempt`], and every answer to a write is reported
//! to the breaker. Objects stay bytes: what they mean is the caller's to find out.

mod cause;
mod connect;
mod connections;
pub mod discovery;
pub(crate) mod escape;
pub mod exempt;
mod line;
mod lines;
pub mod openapi;
mod probe;

pub use connect::connect;
pub use lines::Lines;

use crate::lead::{NotLeading, Permit};
use crate::observe::metrics::Requests;
use crate::observe::traces;
use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response, Uri, header};
use http_body_util::BodyExt as _;
use http_body_util::Full;
use hyper::body::Incoming;
use line::{Client, Line};
use operator_core::answer::{self, Answer};
use operator_core::backoff::Bucket;
use operator_core::breaker::{Breaker, Signal, Transition};
use std::error::Error;
use std::io;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tower::ServiceExt as _;
use tracing::{Instrument as _, Span};

/// Longest wait for an answer, watches excepted.
const TIMEOUT: Duration = Duration::from_secs(30);
/// What the client grants beyond the server's own time limit, so that the server is the one to end a request.
const GRACE: Duration = Duration::from_secs(5);
/// Largest answer that is taken in, a page of a list included.
const ANSWER_MAX: usize = 256 << 20;

/// The API server of one cluster, by connections that live on the tokio runtime of whoever sends by them.
pub struct ApiServer {
    client: Client,
    standing: Arc<Standing>,
}

/// What is known of the server, whoever asks it.
struct Standing {
    line: Line,
    url: String,
    requests: Requests,
    breaker: Mutex<Breaker>,
    is_open: watch::Sender<bool>,
    /// Writes that were sent and are not answered.
    unanswered: AtomicUsize,
    /// Of requests in all.
    rate: OnceLock<Mutex<Bucket>>,
}

/// A write, from when it is sent to its answer.
struct Unanswered<'a>(&'a AtomicUsize);

impl<'a> Unanswered<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Why a request brought nothing.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The server answered, and not with success.
    #[error("{} {}: {}", .0.code, .0.reason, .0.message)]
    Answer(Box<Answer>),
    /// No answer. A write may have been carried out all the same unless `unsent`.
    #[error("no answer from the API server: {message}")]
    Transport {
        /// What the client saw.
        message: String,
        /// Whether the request certainly never reached the server.
        unsent: bool,
    },
    /// The answer is larger than anything that the host takes in.
    #[error("the API server's answer is larger than {} MiB", .limit >> 20)]
    TooLarge {
        /// In bytes.
        limit: usize,
    },
    /// A write that was not sent: the permit is over, or lasts too short a time for an answer.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
}

/// A write. What it is about tells the breaker, and the table of answers, what an answer means.
#[derive(Debug)]
pub struct Write<'a> {
    /// `PATCH` or `DELETE`; POST where nothing else exists.
    pub method: Method,
    /// Path and query, without `timeout`.
    pub path: String,
    /// Media type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
    /// What is asked for.
    pub about: answer::Request<'a>,
}

/// Media type of a server-side apply. The server reads the body as YAML, of which JSON is a part.
pub const APPLY: &str = "application/apply-patch+yaml";
/// Media type of RFC 7386.
pub const MERGE_PATCH: &str = "application/merge-patch+json";
/// Media type of RFC 6902.
pub const JSON_PATCH: &str = "application/json-patch+json";
/// Media type of a DeleteOptions.
pub const JSON: &str = "application/json";

impl ApiServer {
    fn new(line: Line, url: &Uri) -> Self {
        let (url, requests) = (url.to_string(), Requests::new(url.authority()));
        let breaker = Mutex::new(Breaker::new(fastrand::u64(..)));
        let (is_open, unanswered) = (watch::Sender::new(false), AtomicUsize::new(0));
        Self {
            client: line.client(),
            standing: Arc::new(Standing { line, url, requests, breaker, is_open, unanswered, rate: OnceLock::new() }),
        }
    }

    /// The same server by other connections, for a thread that drives them itself.
    pub fn apart(&self) -> Self {
        Self { client: self.standing.line.client(), standing: Arc::clone(&self.standing) }
    }

    /// Sends no more than so many requests from now on, but for those about the Lease: a renewal must not wait for them. To be called once.
    pub fn limit(&self, rate: Bucket) {
        // Err: it was called before; the first rate stays.
        let _ = self.standing.rate.set(Mutex::new(rate));
    }

    /// Waits until another request may be sent.
    async fn turn(&self) {
        let Some(rate) = self.standing.rate.get() else { return };
        let wait = rate.lock().unwrap_or_else(PoisonError::into_inner).reserve(Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        &self.standing.url
    }

    /// What was sent.
    pub fn requests(&self) -> &Requests {
        &self.standing.requests
    }

    /// Whether the breaker is open; changes are seen by [`watch::Receiver::changed`].
    pub fn breaker(&self) -> watch::Receiver<bool> {
        self.standing.is_open.subscribe()
    }

    /// Asks once whether the server knows us. A server that can't be reached is no error: watches go on trying, and say so.
    ///
    /// # Errors
    /// The server does not accept our credentials.
    pub async fn check_access(&self) -> anyhow::Result<()> {
        match self.get("/version").await {
            Err(ApiError::Answer(answer)) if answer.code == 401 => anyhow::bail!(
                "the API server at {} does not accept our credentials (401 {}); check the user and token of the kubeconfig",
                self.url(),
                answer.message
            ),
            Err(error @ ApiError::Transport { .. }) => {
                tracing::warn!(url = self.url(), %error, "the API server can't be reached yet; tried again until it can");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Reads one object, list or document.
    ///
    /// # Errors
    /// No answer, or one that is no success.
    pub async fn get(&self, path: &str) -> Result<Bytes, ApiError> {
        self.turn().await;
        self.get_within(path, TIMEOUT + GRACE).await
    }

    /// The same, with a time limit of its own, and at once whatever else is sent.
    ///
    /// # Errors
    /// No answer, or one that is no success.
    pub async fn get_within(&self, path: &str, limit: Duration) -> Result<Bytes, ApiError> {
        let result = self.read(path, limit).await;
        self.report(absence(&result));
        result
    }

    async fn read(&self, path: &str, limit: Duration) -> Result<Bytes, ApiError> {
        let request = request(Method::GET, path, None, String::new())?;
        let sending = within(limit, async { collect(self.send(request).await?).await });
        sending.instrument(traces::request(&Method::GET, path)).await
    }

    /// Opens a watch. The server ends it; a caller that no longer wants it drops it.
    ///
    /// # Errors
    /// No answer, or one that is no success. Errors within the stream come as events of it.
    pub async fn watch(&self, path: &str) -> Result<Lines, ApiError> {
        self.turn().await;
        let request = request(Method::GET, path, None, String::new())?;
        let response = within(TIMEOUT + GRACE, self.send(request)).await;
        self.report(absence(&response));
        let response = response?;
        if response.status().is_success() {
            return Ok(Lines::new(response.into_body()));
        }
        match within(GRACE, collect(response)).await {
            Ok(_) => Err(ApiError::Transport { message: "an answer that makes no sense".into(), unsent: false }),
            Err(error) => Err(error),
        }
    }

    /// Sends a write. The permit shows that this process may, and until when: the server is given no more time than that.
    ///
    /// # Errors
    /// No answer, or one that is no success; or nothing was sent, as the permit is over.
    pub async fn write(&self, permit: &Permit, write: Write<'_>) -> Result<Bytes, ApiError> {
        self.turn().await;
        let timeout = TIMEOUT.min(permit.left());
        // The server counts from when the request arrives: what is left after the last second is for the way there.
        let Some(seconds) = NonZeroU64::new(timeout.as_secs()) else { return Err(NotLeading.into()) };
        let path = with_query(&write.path, &format!("timeout={seconds}s"));
        let request = request(write.method.clone(), &path, Some(write.content_type), write.body)?;
        let unanswered = Unanswered::new(&self.standing.unanswered);
        let sending = within(timeout + GRACE, async { collect(self.send(request).await?).await });
        let result = sending.instrument(traces::request(&write.method, &write.path)).await;
        drop(unanswered);
        self.report(signal(&result, &write.about));
        result
    }

    /// How many writes were sent and are not answered: of them nobody knows whether they are carried out.
    pub fn unanswered(&self) -> usize {
        self.standing.unanswered.load(Ordering::SeqCst)
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, ApiError> {
        let sent = self.standing.requests.sent(request.method());
        let response = self.client.clone().oneshot(request).await.map_err(|error| transport(&*error))?;
        sent.answered(response.status());
        Span::current().record("http.response.status_code", response.status().as_u16());
        Ok(response)
    }

    fn report(&self, signal: Option<Signal>) {
        let Some(signal) = signal else { return };
        let transition = self.breaker_state().report(Instant::now(), signal);
        match transition {
            Some(Transition::Opened) => self.standing.is_open.send_replace(true),
            Some(Transition::Closed) => self.standing.is_open.send_replace(false),
            None => return,
        };
    }
}

impl ApiServer {
    fn breaker_state(&self) -> std::sync::MutexGuard<'_, Breaker> {
        self.standing.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn request(
    method: Method,
    path: &str,
    content_type: Option<&'static str>,
    body: String,
) -> Result<Request<Full<Bytes>>, ApiError> {
    let mut request = Request::builder().method(method).uri(path).header(header::ACCEPT, JSON);
    if let Some(content_type) = content_type {
        request = request.header(header::CONTENT_TYPE, content_type);
    }
    request
        .body(Full::from(body))
        .map_err(|error| ApiError::Transport { message: format!("{path}: {error}"), unsent: true })
}

async fn within<T>(limit: Duration, work: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        Err(ApiError::Transport { message: format!("nothing came within {} s", limit.as_secs()), unsent: false })
    })
}

/// The whole body of a success; anything else as an error.
async fn collect(response: Response<Incoming>) -> Result<Bytes, ApiError> {
    let (parts, mut body) = response.into_parts();
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| transport(&error))?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > ANSWER_MAX {
            return Err(ApiError::TooLarge { limit: ANSWER_MAX });
        }
        whole.extend_from_slice(&data);
    }
    if parts.status.is_success() {
        return Ok(whole.freeze());
    }
    let headers = parts.headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    Err(ApiError::Answer(Box::new(Answer::parse(parts.status.as_u16(), headers, &whole))))
}

fn with_query(path: &str, parameter: &str) -> String {
    let separator = if path.contains('?') { '&' } else { '?' };
    format!("{path}{separator}{parameter}")
}

/// What went wrong on the way; and whether the request never left.
fn transport(error: &(dyn Error + 'static)) -> ApiError {
    let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    let unsent = cause::chain(error).any(|cause| cause.downcast_ref().is_some_and(refused));
    ApiError::Transport { message: cause::line(error), unsent }
}

/// What the end of a read says of the server as a whole: nothing, unless there was no answer. An error may be that of one
/// type alone, as where an aggregated API has nobody behind it.
fn absence<T>(result: &Result<T, ApiError>) -> Option<Signal> {
    matches!(result, Err(ApiError::Transport { .. })).then_some(Signal::Transport)
}

/// What a write's end says of the server as a whole.
fn signal<T>(result: &Result<T, ApiError>, about: &answer::Request<'_>) -> Option<Signal> {
    match result {
        Ok(_) => Some(Signal::Success),
        Err(ApiError::TooLarge { .. } | ApiError::NotLeading(_)) => None,
        Err(ApiError::Transport { .. }) => Some(Signal::Transport),
        Err(ApiError::Answer(answer)) => Some(answer::signal(answer, about)),
    }
}
