//! Declares a type that it reads but does not own.

use operator_guest::bindings::exports::operator::reconciler::describe::RelatedType;

variants::variant!(|descriptor| descriptor.related.push(RelatedType {
    api_version: "v1".into(),
    kind: "Pod".into(),
    optional: false,
}));
