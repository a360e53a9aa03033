//! Passes: controller-runtime's `pkg/internal/controller/metrics`, under its names and with its buckets.

use super::{Counters, counter, counters, histogram, histograms};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::time::Duration;

const SECONDS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
];

/// How the passes of one module ended.
#[derive(Debug)]
pub struct Reconciles {
    success: Counter,
    requeue: Counter,
    requeue_after: Counter,
    error: Counter,
    errors: Counter,
    terminal_errors: Counter,
    panics: Counter,
    seconds: Histogram,
}

impl Reconciles {
    pub(super) fn register(registry: &mut Registry) -> impl Fn(&str) -> Self + use<> {
        let total =
            counters(registry, "controller_runtime_reconcile", "Total number of reconciliations per controller");
        let errors = counters(
            registry,
            "controller_runtime_reconcile_errors",
            "Total number of reconciliation errors per controller",
        );
        let terminal_errors = counters(
            registry,
            "controller_runtime_terminal_reconcile_errors",
            "Total number of terminal reconciliation errors per controller",
        );
        let panics = counters(
            registry,
            "controller_runtime_reconcile_panics",
            "Total number of reconciliation panics per controller",
        );
        let seconds = histograms(
            registry,
            "controller_runtime_reconcile_time_seconds",
            "Length of time per reconciliation per controller",
            &SECONDS,
        );
        move |module| {
            let ended = |result| counter(&total, [("controller", module), ("result", result)]);
            let of_module = |family: &Counters| counter(family, [("controller", module)]);
            Self {
                success: ended("success"),
                requeue: ended("requeue"),
                requeue_after: ended("requeue_after"),
                error: ended("error"),
                errors: of_module(&errors),
                terminal_errors: of_module(&terminal_errors),
                panics: of_module(&panics),
                seconds: histogram(&seconds, [("controller", module)]),
            }
        }
    }

    /// Nothing is left to do until something changes.
    pub fn succeeded(&self) {
        self.success.inc();
    }

    /// It comes again, at once or after a time of its own.
    pub fn requeued(&self, after: Duration) {
        let requeued = if after.is_zero() { &self.requeue } else { &self.requeue_after };
        requeued.inc();
    }

    /// It failed and is tried again.
    pub fn failed(&self) {
        self.error.inc();
        self.errors.inc();
    }

    /// It failed and is not tried again until something changes.
    pub fn failed_for_good(&self) {
        self.failed();
        self.terminal_errors.inc();
    }

    /// It panicked, and is tried again.
    pub fn panicked(&self) {
        self.failed();
        self.panics.inc();
    }

    /// However it ended, it took so long.
    pub fn took(&self, time: Duration) {
        self.seconds.observe(time.as_secs_f64());
    }
}
