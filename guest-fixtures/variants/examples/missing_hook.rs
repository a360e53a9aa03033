//! Names a hook that it does not export.

variants::variant!(|descriptor| descriptor.hooks.push("finalize".into()));
