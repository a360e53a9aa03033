//! Declares one type of children twice.

variants::variant!(|descriptor| descriptor.children.extend_from_within(..));
