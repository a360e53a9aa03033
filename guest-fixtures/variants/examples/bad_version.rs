//! A version that is no semantic version.

variants::variant!(|descriptor| descriptor.version = "first".into());
