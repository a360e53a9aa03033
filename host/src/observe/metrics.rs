//! `/metrics`: what the host counts, in Prometheus' text format.
//!
//! Counters and histograms are added to where things happen, by handles whose labels are resolved when the host starts. What can be looked
//! at (queues, tables, standings) is looked at when somebody asks. Names and labels are controller-runtime's where it has them
//! (`pkg/internal/controller/metrics`, `pkg/internal/metrics`, `pkg/metrics`). Each label has few values that are known beforehand:
//! modules, types, words of fixed lists; never the name of an object.

mod authorize;
mod calls;
mod children;
mod events;
mod leader;
mod modules;
mod process;
mod queue;
mod reconcile;
mod requests;
mod types;

pub use authorize::Authorizer;
pub use calls::Calls;
pub use children::Children;
pub use events::EventCounts;
pub use modules::Swaps;
pub use queue::QueueTimes;
pub use reconcile::Reconciles;
pub use requests::{Requests, Sent};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, prometheus_text};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Everything that `/metrics` shows.
#[derive(Debug)]
pub struct Metrics(Registry);

/// What is counted of one module, whichever build of it runs.
#[derive(Debug)]
pub struct ModuleMetrics {
    /// Passes, and how they ended.
    pub reconciles: Reconciles,
    /// How long keys wait, and are worked on.
    pub queue: QueueTimes,
    /// Calls of the module.
    pub calls: Calls,
    /// Builds that were to take its place.
    pub swaps: Swaps,
    /// What was done to its children.
    pub children: Children,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Those of the process; others are added by whoever has them.
    pub fn new() -> Self {
        let mut metrics = Self(Registry::default());
        metrics.show_process();
        metrics
    }

    /// What these modules count: in their order, all at 0.
    pub fn count_modules(&mut self, names: &[&str]) -> Vec<ModuleMetrics> {
        let registry = &mut self.0;
        let reconciles = Reconciles::register(registry);
        let queue = QueueTimes::register(registry);
        let calls = Calls::register(registry);
        let swaps = Swaps::register(registry);
        let children = Children::register(registry);
        let of_module = |name: &&str| ModuleMetrics {
            reconciles: reconciles(name),
            queue: queue(name),
            calls: calls(name),
            swaps: swaps(name),
            children: children(name),
        };
        names.iter().map(of_module).collect()
    }

    /// Shows what `look` finds, each time that somebody asks.
    fn show(&mut self, look: impl Fn(&mut DescriptorEncoder<'_>) -> fmt::Result + Send + Sync + 'static) {
        self.0.register_collector(Box::new(Shown(look)));
    }

    /// The page.
    fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.0)?;
        Ok(text)
    }
}

/// Serves `/metrics` to whoever may read it, or to anybody; to be spawned and dropped with the runtime.
pub async fn serve(listener: TcpListener, metrics: Metrics, authorizer: Option<Authorizer>) {
    let router = Router::new().route("/metrics", get(page)).with_state(Arc::new((metrics, authorizer)));
    super::serve::serve(listener, router).await;
}

type Page = Arc<(Metrics, Option<Authorizer>)>;

async fn page(State(page): State<Page>, headers: HeaderMap) -> Response {
    let (metrics, authorizer) = &*page;
    if let Some(authorizer) = authorizer
        && let Err(status) = authorizer.check(&headers).await
    {
        return (status, status.canonical_reason().unwrap_or_default()).into_response();
    }
    match metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus_text::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

struct Shown<F>(F);

impl<F: Fn(&mut DescriptorEncoder<'_>) -> fmt::Result + Send + Sync + 'static> Collector for Shown<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0(&mut encoder)
    }
}

impl<F> fmt::Debug for Shown<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").finish_non_exhaustive()
    }
}

type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter>;
type Gauges = Family<Labels, Gauge>;
type Histograms = Family<Labels, Histogram, Buckets>;

fn labels<const N: usize>(labels: [(&'static str, &str); N]) -> Labels {
    labels.into_iter().map(|(name, value)| (name, value.to_owned())).collect()
}

/// Counters of this name; `_total` is added to it.
fn counters(registry: &mut Registry, name: &str, help: &str) -> Counters {
    let family = Counters::default();
    registry.register(name, help, family.clone());
    family
}

fn counter<const N: usize>(family: &Counters, of: [(&'static str, &str); N]) -> Counter {
    family.get_or_create_owned(&labels(of))
}

fn gauges(registry: &mut Registry, name: &str, help: &str) -> Gauges {
    let family = Gauges::default();
    registry.register(name, help, family.clone());
    family
}

fn gauge<const N: usize>(family: &Gauges, of: [(&'static str, &str); N]) -> Gauge {
    family.get_or_create_owned(&labels(of))
}

/// Upper bounds of a histogram's buckets, in seconds.
#[derive(Clone, Copy)]
struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

fn histograms(registry: &mut Registry, name: &str, help: &str, buckets: &'static [f64]) -> Histograms {
    let family = Histograms::new_with_constructor(Buckets(buckets));
    registry.register(name, help, family.clone());
    family
}

fn histogram<const N: usize>(family: &Histograms, of: [(&'static str, &str); N]) -> Histogram {
    family.get_or_create_owned(&labels(of))
}

/// Values of one name that were just looked at.
fn show<M: EncodeMetric + TypedMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (Labels, M)>,
) -> fmt::Result {
    // As a registry ends what it is given.
    let help = format!("{help}.");
    let mut family = encoder.encode_descriptor(name, &help, None, M::TYPE)?;
    values.into_iter().try_for_each(|(labels, value)| value.encode(family.encode_family(&labels)?))
}

#[cfg(test)]
mod tests;
