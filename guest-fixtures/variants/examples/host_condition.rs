//! Claims the host's own condition type.

variants::variant!(|descriptor| descriptor.condition_types.push("Reconciled".into()));
