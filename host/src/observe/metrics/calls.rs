//! Calls of modules.

use super::{counter, counters, gauge, gauges, histogram, histograms};
use crate::module::{CallError, CallReport};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// From what a small module takes to the default of `--timeout`.
const SECONDS: [f64; 15] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

/// Calls of one module, and what came of them.
#[derive(Debug)]
pub struct Calls {
    ok: Counter,
    failure: Counter,
    trapped: Counter,
    timeout: Counter,
    out_of_memory: Counter,
    limit_exceeded: Counter,
    invalid_outcome: Counter,
    seconds: Histogram,
    skipped: Counter,
    running: Gauge,
    memory_peak: Gauge,
}

impl Calls {
    pub(super) fn register(registry: &mut Registry) -> impl Fn(&str) -> Self + use<> {
        let total = counters(registry, "operator_module_calls", "Calls of the module by what came of them");
        let seconds =
            histograms(registry, "operator_module_call_seconds", "How long calls of the module take", &SECONDS);
        let skipped = counters(
            registry,
            "operator_module_calls_skipped",
            "Calls that were left out as nothing had changed that the module is shown",
        );
        let running = gauges(registry, "operator_module_instances", "Instances of the module that run now");
        let peak = gauges(
            registry,
            "operator_module_memory_peak_bytes",
            "Most bytes of memories and tables that an instance of the module had since the host started",
        );
        move |module| {
            let ended = |outcome| counter(&total, [("module", module), ("outcome", outcome)]);
            Self {
                ok: ended("ok"),
                failure: ended("failure"),
                trapped: ended("trapped"),
                timeout: ended("timeout"),
                out_of_memory: ended("out_of_memory"),
                limit_exceeded: ended("limit_exceeded"),
                invalid_outcome: ended("invalid_outcome"),
                seconds: histogram(&seconds, [("module", module)]),
                skipped: counter(&skipped, [("module", module)]),
                running: gauge(&running, [("module", module)]),
                memory_peak: gauge(&peak, [("module", module)]),
            }
        }
    }

    /// Makes a call, and counts what came of it.
    pub fn count<T>(&self, call: impl FnOnce() -> CallReport<T>) -> CallReport<T> {
        self.running.inc();
        let report = call();
        self.running.dec();
        self.ended(&report);
        report
    }

    /// A call ended.
    pub(super) fn ended<T>(&self, report: &CallReport<T>) {
        let outcome = match &report.result {
            Ok(Ok(_)) => &self.ok,
            Ok(Err(_)) => &self.failure,
            Err(CallError::Trapped { .. }) => &self.trapped,
            Err(CallError::Timeout { .. }) => &self.timeout,
            Err(CallError::OutOfMemory { .. }) => &self.out_of_memory,
            Err(CallError::LimitExceeded { .. }) => &self.limit_exceeded,
            Err(CallError::InvalidOutcome(_)) => &self.invalid_outcome,
        };
        outcome.inc();
        self.seconds.observe(report.wall.as_secs_f64());
        let peak = i64::try_from(report.memory_peak).unwrap_or(i64::MAX);
        // Of two at the same time the larger one stays, give or take a moment.
        if peak > self.memory_peak.get() {
            self.memory_peak.set(peak);
        }
    }

    /// A call was left out: it would give what the last one gave.
    pub fn skipped(&self) {
        self.skipped.inc();
    }
}
