//! Needs something of its host that only another host has.

wit_bindgen::generate!({
    inline: "
        package fixtures:imports;
        interface store {
            get: func(key: string) -> string;
        }
        world module {
            include operator:reconciler/reconciler@0.1.0;
            import store;
        }
    ",
    path: "../../wit",
    generate_all,
});

use exports::operator::reconciler::{describe, reconcile};
use operator::reconciler::types::{Failure, Key, Outcome, Snapshot, TypeRef};

struct Module;

impl describe::Guest for Module {
    fn describe() -> describe::Descriptor {
        describe::Descriptor {
            name: fixtures::imports::store::get("name"),
            version: "0.1.0".into(),
            primary: TypeRef { api_version: "fixtures.example.com/v1".into(), kind: "Variant".into() },
            children: Vec::new(),
            related: Vec::new(),
            condition_types: Vec::new(),
            crds: Vec::new(),
            capabilities: Vec::new(),
            hooks: Vec::new(),
            field_manager: None,
            replaces_managers: Vec::new(),
            finalizer: None,
            extensions: Vec::new(),
        }
    }
}

impl reconcile::Guest for Module {
    fn reconcile(_: Key, _: Snapshot) -> Result<Outcome, Failure> {
        Ok(Outcome { children: None, status: None, events: Vec::new(), requeue_after: None, extensions: Vec::new() })
    }
}

export!(Module);
