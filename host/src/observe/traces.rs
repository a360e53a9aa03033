//! Spans of passes, for an OpenTelemetry collector: where the host is built with the feature `otlp` and told where the collector is.
//!
//! A pass is the span `reconcile` that logs have as well; within it are `queue` (from when the key was due until a worker took it), `snapshot`,
//! `call` (of a hook), `plan` and a `request` for each that is sent. Where to send them, how and how many is said by OpenTelemetry's own
//! variables (<https://opentelemetry.io/docs/specs/otel/protocol/exporter/>): `OTEL_EXPORTER_OTLP_ENDPOINT` turns them on.

#[cfg(feature = "otlp")]
mod otlp;

#[cfg(feature = "otlp")]
pub(super) use otlp::layer;
#[cfg(feature = "otlp")]
pub(crate) use otlp::{flush, queued};

use http::Method;
use tracing::{Span, debug_span};

/// Target of the spans that only traces have: in logs they would be in the way.
pub(crate) const TARGET: &str = "otlp";

/// What turns traces on.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

/// Whether somebody wants traces.
pub(super) fn are_wanted() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_off = std::env::var("OTEL_SDK_DISABLED").is_ok_and(|value| value.eq_ignore_ascii_case("true"));
    ENDPOINTS.into_iter().any(is_set) && !is_off
}

/// The span of a call of this hook.
pub(crate) fn call(hook: &'static str) -> Span {
    debug_span!(target: TARGET, "call", otel.name = format!("call {hook}"), hook)
}

/// The span of a request: of a pass, or none. Watches, lists and renewals are not part of one.
pub(crate) fn request(method: &Method, path: &str) -> Span {
    if Span::current().is_none() {
        return Span::none();
    }
    let path = path.split('?').next().unwrap_or(path);
    debug_span!(
        target: TARGET,
        "request",
        otel.name = %method,
        otel.kind = "client",
        http.request.method = %method,
        url.path = path,
        http.response.status_code = tracing::field::Empty,
    )
}

#[cfg(not(feature = "otlp"))]
mod none {
    use operator_core::queue::Priority;
    use std::time::Duration;
    use tracing::Span;
    use tracing_subscriber::layer::Identity;

    /// There are none to be had: says so where they are wanted.
    pub(in super::super) fn layer() -> (Identity, Option<String>) {
        let missing =
            "this build has no traces, for which OTEL_EXPORTER_OTLP_ENDPOINT asks; build it with `--features otlp`";
        (Identity::new(), super::are_wanted().then(|| missing.to_owned()))
    }

    pub(crate) fn queued(_reconcile: &Span, _waited: Duration, _priority: Priority) {}

    pub(crate) fn flush() {}
}

#[cfg(not(feature = "otlp"))]
pub(super) use none::layer;
#[cfg(not(feature = "otlp"))]
pub(crate) use none::{flush, queued};
