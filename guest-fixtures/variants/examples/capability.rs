//! Asks for something outside the cluster.

use operator_guest::bindings::exports::operator::reconciler::describe::Capability;

variants::variant!(|descriptor| descriptor.capabilities.push(Capability {
    name: "site".into(),
    target: "dir:/var/www".into(),
    reason: "publishes pages".into(),
}));
