//! The work queue: controller-runtime's `pkg/internal/metrics/workqueue.go`, a lane as a queue of its own, and its numbers of workers.

use super::{Labels, Metrics, histogram, histograms, labels, show};
use operator_core::queue::{Priority, Traffic};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::time::Duration;

const SECONDS: [f64; 12] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0];

/// How long the keys of one module wait, and are worked on.
#[derive(Debug)]
pub struct QueueTimes {
    waited: Histogram,
    worked: Histogram,
}

impl QueueTimes {
    pub(super) fn register(registry: &mut Registry) -> impl Fn(&str) -> Self + use<> {
        let waited = histograms(
            registry,
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested",
            &SECONDS,
        );
        let worked = histograms(
            registry,
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes",
            &SECONDS,
        );
        move |module| Self {
            waited: histogram(&waited, [("name", module), ("controller", module)]),
            worked: histogram(&worked, [("name", module), ("controller", module)]),
        }
    }

    /// A key was ready so long before a worker took it.
    pub fn waited(&self, time: Duration) {
        self.waited.observe(time.as_secs_f64());
    }

    /// A key was with a worker so long.
    pub fn worked(&self, time: Duration) {
        self.worked.observe(time.as_secs_f64());
    }
}

impl Metrics {
    /// Shows the lane of each module.
    pub fn show_lanes(&mut self, look: impl Fn() -> Vec<(String, Traffic)> + Send + Sync + 'static) {
        self.show(move |encoder| {
            let lanes = look();
            let of_lanes = |value: fn(&Traffic) -> f64| {
                let lanes = lanes.iter();
                lanes.map(move |(module, traffic)| (of_queue(module), ConstGauge::new(value(traffic))))
            };
            let counted = |value: fn(&Traffic) -> u64| {
                let lanes = lanes.iter();
                lanes.map(move |(module, traffic)| (of_queue(module), ConstCounter::new(value(traffic))))
            };
            let of_controllers = |value: fn(&Traffic) -> usize| {
                let lanes = lanes.iter();
                lanes.map(move |(module, traffic)| (labels([("controller", module)]), ConstGauge::new(value(traffic))))
            };
            show(encoder, "workqueue_depth", "Current depth of workqueue by workqueue and priority", depths(&lanes))?;
            show(encoder, "workqueue_adds", "Total number of adds handled by workqueue", counted(|lane| lane.added))?;
            show(
                encoder,
                "workqueue_retries",
                "Total number of items added to the workqueue with a non-zero delay to be tried again",
                counted(|lane| lane.retried),
            )?;
            show(
                encoder,
                "workqueue_unfinished_work_seconds",
                "How many seconds of work has been done that is in progress and hasn't been observed by work_duration",
                of_lanes(|lane| lane.running.as_secs_f64()),
            )?;
            show(
                encoder,
                "workqueue_longest_running_processor_seconds",
                "How many seconds has the longest running processor for workqueue been running",
                of_lanes(|lane| lane.longest_running.as_secs_f64()),
            )?;
            show(
                encoder,
                "controller_runtime_active_workers",
                "Number of currently used workers per controller",
                of_controllers(|lane| lane.in_flight),
            )?;
            show(
                encoder,
                "controller_runtime_max_concurrent_reconciles",
                "Maximum number of concurrent reconciles per controller",
                of_controllers(|lane| lane.in_flight_max),
            )
        });
    }
}

fn of_queue(module: &str) -> Labels {
    labels([("name", module), ("controller", module)])
}

fn depths(lanes: &[(String, Traffic)]) -> impl Iterator<Item = (Labels, ConstGauge<usize>)> {
    lanes.iter().flat_map(|(module, traffic)| {
        let ready = Priority::ALL.into_iter().zip(traffic.ready);
        ready.map(|(priority, keys)| {
            let of_priority = [("name", &**module), ("controller", module), ("priority", word(priority))];
            (labels(of_priority), ConstGauge::new(keys))
        })
    })
}

fn word(priority: Priority) -> &'static str {
    match priority {
        Priority::Change => "change",
        Priority::Retry => "retry",
        Priority::Resync => "resync",
        Priority::Backlog => "backlog",
    }
}
