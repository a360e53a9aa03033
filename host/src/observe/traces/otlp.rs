//! The collector's side of traces: OTLP over HTTP, in batches, by a thread of its own.

use super::{TARGET, are_wanted};
use crate::tls;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry::KeyValue;
use opentelemetry::trace::{Span as _, Tracer as _, TracerProvider as _};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use operator_core::queue::Priority;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};
use tokio::runtime::Runtime;
use tracing::{Level, Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

/// Who says it, where `OTEL_SERVICE_NAME` does not name another.
const SERVICE: &str = "operator-host";
/// Largest answer of a collector that is taken in.
const ANSWER_MAX: usize = 1 << 20;

static TRACES: OnceLock<(SdkTracerProvider, SdkTracer)> = OnceLock::new();

/// What takes in the spans, where traces are wanted; and what is wrong with how they are to be sent.
pub(in super::super) fn layer<S>() -> (Option<impl Layer<S>>, Option<String>)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    if !are_wanted() {
        return (None, None);
    }
    match tracer() {
        Ok(tracer) => {
            let of_passes = Targets::new().with_target("operator", Level::INFO).with_target(TARGET, Level::DEBUG);
            (Some(tracing_opentelemetry::layer().with_tracer(tracer).with_filter(of_passes)), None)
        }
        Err(error) => (None, Some(format!("there are no traces: {error:#}"))),
    }
}

fn tracer() -> anyhow::Result<SdkTracer> {
    let exporter =
        SpanExporter::builder().with_http().with_protocol(protocol()?).with_http_client(Collector::new()?).build()?;
    let named = std::env::var_os("OTEL_SERVICE_NAME").is_some();
    let resource = Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    let resource = if named { resource } else { resource.with_service_name(SERVICE) };
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build()).build();
    let tracer = provider.tracer(SERVICE);
    // Err: a second start of the log, which changes nothing.
    let _ = TRACES.set((provider, tracer.clone()));
    Ok(tracer)
}

/// The one that is asked for, else the one that every collector takes.
fn protocol() -> anyhow::Result<Protocol> {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty()).map(|value| (name, value));
    let asked = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"].into_iter().find_map(set);
    match asked {
        None => Ok(Protocol::HttpBinary),
        Some((_, value)) if value == "http/protobuf" => Ok(Protocol::HttpBinary),
        Some((_, value)) if value == "http/json" => Ok(Protocol::HttpJson),
        Some((name, value)) => anyhow::bail!("{name} is {value:?}; http/protobuf or http/json is expected"),
    }
}

/// Tells how long a key was due before a worker took it, as a part of its pass that lies before it.
pub(crate) fn queued(reconcile: &Span, waited: Duration, priority: Priority) {
    let Some((_, tracer)) = TRACES.get() else { return };
    let taken = SystemTime::now();
    let queue = tracer
        .span_builder("queue")
        .with_start_time(taken.checked_sub(waited).unwrap_or(taken))
        .with_attributes([KeyValue::new("priority", format!("{priority:?}").to_lowercase())]);
    queue.start_with_context(tracer, &reconcile.context()).end_with_timestamp(taken);
}

/// Sends what waits to be sent, at the end of the process, which does not wait for long: another host may lead by then.
pub(crate) fn flush() {
    if let Some((provider, _)) = TRACES.get() {
        // A collector that is gone is no failure of the host's.
        let _ = provider.shutdown_with_timeout(Duration::from_secs(1));
    }
}

/// Where the exporter's thread sends its requests, which it also drives.
#[derive(Debug)]
struct Collector {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    runtime: Runtime,
}

impl Collector {
    fn new() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let tls = tls::trusting_the_system()?;
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
        Ok(Self { client: Client::builder(TokioExecutor::new()).build(connector), runtime })
    }
}

#[async_trait::async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        self.runtime.block_on(async {
            let response = self.client.request(request.map(Full::new)).await?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_MAX).collect().await?.to_bytes();
            Ok(Response::from_parts(parts, body))
        })
    }
}
