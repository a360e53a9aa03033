//! Panics when asked what it is.

variants::variant!(|descriptor| descriptor.name = descriptor.hooks.pop().expect("the variant panics on purpose"));
