//! Needs an extension that no host knows.

use operator_guest::bindings::operator::reconciler::types::Extension;

variants::variant!(|descriptor| descriptor.extensions.push(Extension {
    name: "example.com/levitation".into(),
    required: true,
    value: "true".into(),
}));
