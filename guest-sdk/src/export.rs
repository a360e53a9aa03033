//! The border: what the host calls ends here and goes on in the author's [`Operator`].

use crate::bindings::operator::reconciler::types::{self, Key, Snapshot};
use crate::{Context, Descriptor, Failure, Operator, Outcome};

/// `describe` of the contract.
pub fn describe<O: Operator>() -> Descriptor {
    report_panics();
    O::describe()
}

/// `reconcile` of the contract.
#[allow(clippy::result_large_err, reason = "the shape is the contract's")]
pub fn reconcile<O: Operator>(key: Key, snapshot: Snapshot) -> Result<Outcome, types::Failure> {
    report_panics();
    Ok(call::<O>(key, snapshot)?)
}

/// One call, in the author's terms.
pub(crate) fn call<O: Operator>(key: Key, snapshot: Snapshot) -> Result<Outcome, Failure> {
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
