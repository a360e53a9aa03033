//! Nothing wrong.

variants::variant!(|descriptor| descriptor.version = "0.1.1".into());
