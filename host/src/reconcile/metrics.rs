//! What `/metrics` finds here when somebody asks.

use super::Shared;
use crate::observe::metrics::Metrics;
use operator_core::queue::Traffic;
use std::sync::Arc;

impl Shared {
    pub(super) fn add_metrics(self: &Arc<Self>, metrics: &mut Metrics) {
        let is_open = self.api.breaker();
        metrics.show_requests(self.api.requests(), move || *is_open.borrow());
        metrics.show_lanes(self.whenever_asked(Self::lanes));
        metrics.show_modules(self.whenever_asked(Self::versions));
        metrics.show_types(self.whenever_asked(|shared| shared.watches.kept()));
    }

    fn lanes(&self) -> Vec<(String, Traffic)> {
        let lane = |operator: &super::Operator| {
            (operator.serving().descriptor().name.clone(), self.queue.traffic(operator.lane))
        };
        self.operators.iter().map(lane).collect()
    }

    /// Nothing is found any more when the controller is gone.
    fn whenever_asked<T>(self: &Arc<Self>, look: fn(&Self) -> Vec<T>) -> impl Fn() -> Vec<T> + use<T> {
        let shared = Arc::downgrade(self);
        move || shared.upgrade().map(|shared| look(&shared)).unwrap_or_default()
    }
}
