//! Declares its own primary type as a type of children.

variants::variant!(|descriptor| descriptor
    .children
    .push(operator_guest::ChildType::new("fixtures.example.com/v1", "Variant")));
