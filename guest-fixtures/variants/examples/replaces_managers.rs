//! Takes over from an earlier manager.

variants::variant!(|descriptor| descriptor.replaces_managers.push("old-operator".into()));
