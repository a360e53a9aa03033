//! The border: what the host calls ends here and goes on in the author's [`Operator`] and its hooks.

#![allow(clippy::result_large_err, reason = "the shape is the contract's")]

use crate::bindings::operator::reconciler::types::{self, Key};
use crate::bindings::working_outside::exports::operator::reconciler::external;
use crate::{Context, Descriptor, External, Finalize, Operator, Outcome, Progress, Query, Relate, Removal, Snapshot};

/// `describe` of the contract, for a module that exports these hooks.
pub fn describe<O: Operator>(hooks: &[&str]) -> Descriptor {
    report_panics();
    let mut descriptor = O::describe();
    descriptor.hooks.extend(hooks.iter().map(|&hook| hook.to_owned()));
    descriptor
}

/// `reconcile` of the contract.
pub fn reconcile<O: Operator>(key: Key, snapshot: types::Snapshot) -> Result<Outcome, types::Failure> {
    report_panics();
    Ok(O::reconcile(&Context::new(key, snapshot)?)?)
}

/// `relate` of the contract.
pub fn relate<O: Relate>(key: Key, snapshot: types::Snapshot) -> Result<Vec<Query>, types::Failure> {
    report_panics();
    Ok(O::relate(&Context::new(key, snapshot)?)?)
}

/// `finalize` of the contract.
pub fn finalize<O: Finalize>(key: Key, snapshot: types::Snapshot) -> Result<Progress, types::Failure> {
    report_panics();
    Ok(O::finalize(&Snapshot::new(key, snapshot)?)?)
}

/// `external.ensure` of the contract.
pub fn ensure<O: External>(key: Key, snapshot: types::Snapshot) -> Result<external::Observed, types::Failure> {
    report_panics();
    Ok(O::ensure(&Context::new(key, snapshot)?)?.into_contract()?)
}

/// `external.remove` of the contract.
pub fn remove<O: External>(key: Key, snapshot: types::Snapshot) -> Result<Removal, types::Failure> {
    report_panics();
    Ok(O::remove(&Snapshot::new(key, snapshot)?)?)
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
