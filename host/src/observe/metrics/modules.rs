//! Builds of modules: which run, and which came and went.

use super::{Metrics, counter, counters, labels, show};
use operator_core::lead::ModuleVersion;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// Builds that appeared in the file of one module.
#[derive(Debug)]
pub struct Swaps {
    /// Took its place.
    pub swapped: Counter,
    /// Could not.
    pub refused: Counter,
}

impl Swaps {
    pub(super) fn register(registry: &mut Registry) -> impl Fn(&str) -> Self + use<> {
        let total =
            counters(registry, "operator_module_swaps", "Builds that appeared in the module's file while it ran");
        move |module| {
            let ended = |result| counter(&total, [("module", module), ("result", result)]);
            Self { swapped: ended("swapped"), refused: ended("refused") }
        }
    }
}

impl Metrics {
    /// Shows which builds run.
    pub fn show_modules(&mut self, look: impl Fn() -> Vec<ModuleVersion> + Send + Sync + 'static) {
        self.show(move |encoder| {
            let builds = look().into_iter().map(|ModuleVersion { name, version, digest }| {
                let build = [("module", &*name), ("version", &*version), ("digest", &*digest)];
                (labels(build), ConstGauge::new(1u32))
            });
            show(encoder, "operator_module_info", "The build of the module that runs", builds)
        });
    }
}
