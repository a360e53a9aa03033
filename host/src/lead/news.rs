//! What a watch of the one Lease shows, so that a release is taken over at once and a loss is noticed.

use crate::api::ApiServer;
use crate::api::exempt::LeaseName;
use crate::watch::{Author, Sink, Watches};
use operator_core::contract::TypeRef;
use operator_core::lead::Lease;
use operator_core::table::Change;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tracing::warn;

/// The latest state of the Lease that the watch knows.
pub(super) struct News {
    latest: watch::Receiver<Option<Lease>>,
    /// Watches as long as it lives.
    watches: Watches,
}

impl News {
    pub(super) fn follow(handle: Handle, api: Arc<ApiServer>, lease: &LeaseName) -> Self {
        let (sender, latest) = watch::channel(None);
        let watches = Watches::new(handle, api, "", [""; 0]);
        watches.start(Arc::new(Told(sender)));
        watches.watch_name(&LeaseName::type_ref(), lease.name());
        Self { latest, watches }
    }

    /// The next state that it comes to know; None: there is no Lease.
    pub(super) async fn next(&mut self) -> Option<Lease> {
        // The sender lives as long as the watches do.
        let _ = self.latest.changed().await;
        self.latest.borrow_and_update().clone()
    }
}

impl Drop for News {
    fn drop(&mut self) {
        self.watches.stop();
    }
}

struct Told(watch::Sender<Option<Lease>>);

impl Sink for Told {
    fn changed(&self, _: &TypeRef, change: &Change, _: Option<&Author>) {
        match change.new.as_ref().map(|stored| Lease::parse(stored.json.as_bytes())).transpose() {
            Ok(lease) => _ = self.0.send_replace(lease),
            Err(error) => warn!(lease = %change.name, %error, "the watch showed what is no Lease"),
        }
    }

    fn state_changed(&self, _: &TypeRef) {}

    fn definition_may_have_changed(&self, _: &TypeRef) {}
}
