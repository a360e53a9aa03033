//! A field manager longer than the API server takes.

variants::variant!(|descriptor| descriptor.field_manager = Some("m".repeat(129)));
