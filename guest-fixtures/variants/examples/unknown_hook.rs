//! Names a hook that no contract has.

variants::variant!(|descriptor| descriptor.hooks.push("levitate".into()));
