//! What is done to children.

use super::{counter, counters};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// What was done to the children of one module, an object a time.
#[derive(Debug)]
pub struct Children {
    /// Made.
    pub create: Counter,
    /// Set right.
    pub change: Counter,
    /// Deleted, as no longer wanted.
    pub delete: Counter,
    /// Cut loose, as no longer wanted.
    pub orphan: Counter,
    /// Deleted to be made anew.
    pub recreate: Counter,
    /// Left alone, as it is not to be touched.
    pub refuse: Counter,
}

impl Children {
    pub(super) fn register(registry: &mut Registry) -> impl Fn(&str) -> Self + use<> {
        let total = counters(registry, "operator_children", "What was done to the module's children");
        move |module| {
            let action = |action| counter(&total, [("module", module), ("action", action)]);
            Self {
                create: action("create"),
                change: action("change"),
                delete: action("delete"),
                orphan: action("orphan"),
                recreate: action("recreate"),
                refuse: action("refuse"),
            }
        }
    }
}
