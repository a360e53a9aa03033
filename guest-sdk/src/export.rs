//! The border: what the host calls ends here and goes on in the author's [`Operator`].

use crate::bindings::operator::reconciler::types::{Key, Snapshot};
use crate::{Context, Descriptor, Failure, Operator, Outcome};

/// `describe` of the contract.
pub fn describe<O: Operator>() -> Descriptor {
    report_panics();
    O::describe()
}

/// `reconcile` of the contract.
pub fn reconcile<O: Operator>(key: Key, snapshot: Snapshot) -> Result<Outcome, Failure> {
    report_panics();
    O::reconcile(&Context::new(key, snapshot)?)
}

/// Sends panics to the host's log: a trap alone says `unreachable`.
#[cfg(target_family = "wasm")]
fn report_panics() {
    static INSTALLED: std::sync::Once = std::sync::Once::new();
    INSTALLED.call_once(|| std::panic::set_hook(Box::new(|panic| crate::log::error(panic.to_string()))));
}

/// The test runner prints panics itself.
#[cfg(not(target_family = "wasm"))]
fn report_panics() {}
