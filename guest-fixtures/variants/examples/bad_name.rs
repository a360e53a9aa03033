//! A name that is no DNS label.

variants::variant!(|descriptor| descriptor.name = "Bad_Name".into());
