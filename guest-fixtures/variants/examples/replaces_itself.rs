//! Takes fields over from itself.

variants::variant!(|descriptor| descriptor.replaces_managers.push("operator-host/variant".into()));
