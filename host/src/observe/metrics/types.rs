//! The types that are watched, and what the host keeps of them.

use super::{Labels, Metrics, labels, show};
use crate::watch::{Kept, TypeState};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

impl Metrics {
    /// Shows each type that is watched.
    pub fn show_types(&mut self, look: impl Fn() -> Vec<Kept> + Send + Sync + 'static) {
        self.show(move |encoder| {
            let types = look();
            let gauges =
                |value: fn(&Kept) -> usize| types.iter().map(move |kept| (of_type(kept), ConstGauge::new(value(kept))));
            let restarts = types.iter().map(|kept| (of_type(kept), ConstCounter::new(kept.restarts)));
            show(
                encoder,
                "operator_store_objects",
                "Objects of the type that are cached",
                gauges(|kept| kept.objects),
            )?;
            show(encoder, "operator_store_bytes", "Bytes of their JSON", gauges(|kept| kept.bytes))?;
            show(
                encoder,
                "operator_watch_synced",
                "1 while the cache of the type may be acted upon",
                gauges(|kept| usize::from(kept.state == TypeState::Synced)),
            )?;
            let silence = types.iter().map(|kept| (of_type(kept), ConstGauge::new(kept.silence.as_secs_f64())));
            let help = "How long the most silent watch of the type has brought nothing";
            show(encoder, "operator_watch_silence_seconds", help, silence)?;
            show(
                encoder,
                "operator_watch_restarts",
                "Watches of the type that were opened again after they had ended",
                restarts,
            )
        });
    }
}

fn of_type(kept: &Kept) -> Labels {
    let type_ref = &kept.type_ref;
    labels([("kind", &*type_ref.kind), ("group", type_ref.group()), ("version", type_ref.version())])
}
