//! Leader election: client-go's `leader_election_master_status` and `leader_election_slowpath_total`.

use super::{Metrics, labels, show};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

impl Metrics {
    /// Shows whether this process holds the Lease of this name, and how often it had to read the Lease before it could renew it.
    pub fn show_leader(
        &mut self,
        lease: String,
        leads: impl Fn() -> bool + Send + Sync + 'static,
        slow_paths: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        self.show(move |encoder| {
            let help = "Total number of slow path exercised in renewing leader leases";
            let slow = ConstCounter::new(slow_paths());
            show(encoder, "leader_election_slowpath", help, [(labels([("name", &lease)]), slow)])?;
            let status = ConstGauge::new(u32::from(leads()));
            let help = "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master";
            show(encoder, "leader_election_master_status", help, [(labels([("name", &lease)]), status)])
        });
    }
}
