//! Exports a hook that its descriptor does not name, as toolchains do that export stubs of everything.

wit_bindgen::generate!({
    inline: "
        package fixtures:hooks;
        world module {
            include operator:reconciler/reconciler@0.1.0;
            include operator:reconciler/relating@0.1.0;
        }
    ",
    path: "../../wit",
    generate_all,
});

use exports::operator::reconciler::{describe, reconcile, relate};
use operator::reconciler::types::{Failure, Key, Outcome, Snapshot, TypeRef};

struct Module;

impl describe::Guest for Module {
    fn describe() -> describe::Descriptor {
        describe::Descriptor {
            name: "variant".into(),
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

impl relate::Guest for Module {
    fn relate(_: Key, _: Snapshot) -> Result<Vec<relate::Query>, Failure> {
        Ok(Vec::new())
    }
}

export!(Module);
