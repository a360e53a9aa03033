//! Nothing wrong by itself: another name for the same primary type as `sound`.

variants::variant!(|descriptor| descriptor.name = "other".into());
