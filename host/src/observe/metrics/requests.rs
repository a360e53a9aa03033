//! Requests to the API server: client-go's `rest_client_requests_total`, and the breaker.

use super::{Metrics, counter, labels, show};
use http::uri::Authority;
use http::{Method, StatusCode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;

/// The methods that the host sends.
const METHODS: [Method; 5] = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
/// No answer, the codes that API servers answer with, any other code.
const CODES: [&str; 24] = [
    "<error>", "200", "201", "202", "204", "304", "400", "401", "403", "404", "405", "406", "408", "409", "410", "413",
    "415", "422", "429", "500", "502", "503", "504", "other",
];
const NO_ANSWER: usize = 0;
const OTHER: usize = CODES.len() - 1;

type OfMethod = [Counter; CODES.len()];

/// Requests that were sent to one API server.
#[derive(Debug)]
pub struct Requests {
    family: super::Counters,
    by_method: [OfMethod; METHODS.len()],
}

impl Requests {
    /// None yet. `server` is where they go.
    pub fn new(server: Option<&Authority>) -> Self {
        let host = server.map_or("", Authority::as_str);
        let family = Family::default();
        let by_method = METHODS.map(|method| {
            CODES.map(|code| counter(&family, [("code", code), ("method", method.as_str()), ("host", host)]))
        });
        Self { family, by_method }
    }

    /// A request is sent now. Without an answer until the guard is dropped, it counts as one that failed.
    pub fn sent(&self, method: &Method) -> Sent<'_> {
        let place = METHODS.iter().position(|known| known == method);
        Sent { of_method: place.map(|place| &self.by_method[place]), code: NO_ANSWER }
    }
}

/// A request from when it is sent until it is counted.
#[derive(Debug)]
pub struct Sent<'a> {
    of_method: Option<&'a OfMethod>,
    code: usize,
}

impl Sent<'_> {
    /// The answer began with this code.
    pub fn answered(mut self, status: StatusCode) {
        self.code = CODES.iter().position(|code| *code == status.as_str()).unwrap_or(OTHER);
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        if let Some(of_method) = self.of_method {
            of_method[self.code].inc();
        }
    }
}

impl Metrics {
    /// Shows requests to an API server, and whether its breaker is open.
    pub fn show_requests(&mut self, requests: &Requests, is_open: impl Fn() -> bool + Send + Sync + 'static) {
        self.0.register(
            "rest_client_requests",
            "Number of HTTP requests, partitioned by status code, method, and host",
            requests.family.clone(),
        );
        self.show(move |encoder| {
            let open = ConstGauge::new(u32::from(is_open()));
            let help = "1 while the API server is in trouble and no object is worked on";
            show(encoder, "operator_breaker_open", help, [(labels([]), open)])
        });
    }
}
