//! Modules whose work is suspended while the host runs, by an annotation of the Lease.
//!
//! It is the Lease's because that is what all replicas share: a standby that takes over finds it there, and whoever may edit the Lease may
//! suspend. Passes that run end as they began.

use super::Shared;
use operator_core::lead::Paused;
use operator_core::names;
use operator_core::queue::Priority;
use operator_core::reconciled::{Problem, Reason};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::watch;
use tracing::info;

/// Suspends modules and lets them go on, whenever the Lease says something else.
pub(super) async fn follow(shared: Arc<Shared>, lease: String, mut paused: watch::Receiver<Paused>) {
    while paused.changed().await.is_ok() {
        shared.pause(&lease, &mut paused);
    }
}

impl Shared {
    /// Does as the Lease says. Every object of a module that changed is looked at, so that its condition says so.
    pub(super) fn pause(&self, lease: &str, paused: &mut watch::Receiver<Paused>) {
        let now = paused.borrow_and_update().clone();
        for (index, operator) in self.operators.iter().enumerate() {
            let serving = operator.serving();
            let module = &serving.descriptor().name;
            let is_paused = now.contains(module);
            if operator.is_paused.swap(is_paused, Ordering::Relaxed) == is_paused {
                continue;
            }
            match is_paused {
                true => info!(module, lease, "paused: nothing is done for its objects until the Lease says otherwise"),
                false => info!(module, lease, "goes on: the Lease no longer says that it is paused"),
            }
            self.enqueue_all(index, &serving, Priority::Change);
        }
    }
}

/// What the object says meanwhile.
pub(super) fn problem(module: &str) -> Problem {
    let message = format!("module {module} is suspended by the annotation {} of the Lease", names::PAUSED_ANNOTATION);
    Problem::new(Reason::Paused, message)
}
