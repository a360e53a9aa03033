//! Leader election: client-go's `leader_election_master_status`.

use super::{Metrics, labels, show};
use prometheus_client::metrics::gauge::ConstGauge;

impl Metrics {
    /// Shows whether this process holds the Lease of this name.
    pub fn show_leader(&mut self, lease: String, leads: impl Fn() -> bool + Send + Sync + 'static) {
        self.show(move |encoder| {
            let status = ConstGauge::new(u32::from(leads()));
            let help = "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master";
            show(encoder, "leader_election_master_status", help, [(labels([("name", &lease)]), status)])
        });
    }
}
