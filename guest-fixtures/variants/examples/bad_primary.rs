//! A primary without a kind.

variants::variant!(|descriptor| descriptor.primary.kind.clear());
