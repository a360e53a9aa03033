//! The table against scripted orders of arrival, and against a model of a server in all orders.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;
use crate::contract::TypeRef;
use crate::object::Decoder;

mod lists;
mod model;
mod writes;

const INSTALLATION: &str = "test";

/// An object in the making.
#[derive(Clone, Debug)]
struct Draft {
    name: String,
    uid: String,
    version: String,
    labelled: bool,
    terminating: bool,
    owner: Option<String>,
}

fn draft(name: &str, uid: &str, version: impl ToString) -> Draft {
    Draft {
        name: name.into(),
        uid: uid.into(),
        version: version.to_string(),
        labelled: true,
        terminating: false,
        owner: Some("parent".into()),
    }
}

impl Draft {
    fn unlabelled(self) -> Self {
        Self { labelled: false, ..self }
    }

    fn terminating(self) -> Self {
        Self { terminating: true, ..self }
    }

    fn owned_by(self, owner: &str) -> Self {
        Self { owner: Some(owner.into()), ..self }
    }

    fn stored(&self) -> Arc<Stored> {
        let mut metadata = serde_json::json!({
            "name": self.name, "namespace": "ns", "uid": self.uid, "resourceVersion": self.version,
        });
        if self.labelled {
            metadata["labels"] = serde_json::json!({ crate::names::INSTALLATION_LABEL: INSTALLATION });
        }
        if self.terminating {
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        if let Some(owner) = &self.owner {
            metadata["ownerReferences"] = serde_json::json!([
                { "apiVersion": "v1", "kind": "Parent", "name": "p", "uid": owner, "controller": true }
            ]);
        }
        let object = serde_json::json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata });
        let decoder = Decoder::new(["operator-host/test"]);
        let type_ref = TypeRef::new("v1", "ConfigMap");
        Arc::new(decoder.decode(object.to_string().as_bytes(), &type_ref, None).expect("a readable object"))
    }

    fn content(&self) -> Content {
        Content::Present(self.stored())
    }
}

fn name(name: &str) -> ObjectName {
    ObjectName::new(Some("ns"), name)
}

fn version(number: impl ToString) -> ResourceVersion {
    ResourceVersion::new(&number.to_string())
}

/// A table with one watch, of the label or of everything, that has listed nothing at version 1.
struct Bench {
    table: Table,
    watch: WatchId,
    now: Instant,
}

impl Bench {
    fn selecting() -> Self {
        Self::with(Scope { selected: true, ..Scope::default() })
    }

    fn of_everything() -> Self {
        Self::with(Scope::default())
    }

    fn with(scope: Scope) -> Self {
        let mut table = Table::new(INSTALLATION);
        let (watch, is_new) = table.join_watch(&scope);
        assert!(is_new);
        let mut bench = Self { table, watch, now: Instant::now() };
        let _ = bench.list(1, &[]);
        bench
    }

    fn list(&mut self, at: u64, objects: &[Draft]) -> Effects {
        self.table.list_started(self.watch, true);
        let mut all = Effects::default();
        for object in objects {
            all.changes.extend(self.upserted(object).changes);
        }
        let end = self.table.list_completed(self.watch, &version(at), self.now);
        all.changes.extend(end.changes);
        Effects { changes: all.changes, ..end }
    }

    fn upserted(&mut self, object: &Draft) -> Effects {
        self.table.upserted(self.watch, object.content(), self.now)
    }

    fn deleted(&mut self, object: &Draft) -> Effects {
        self.table.deleted(self.watch, &object.content())
    }

    fn own_write(&mut self, object: &Draft) -> Effects {
        self.table.own_write(object.stored(), self.now)
    }

    /// `uid@version`, or nothing.
    fn shows(&self, object: &str) -> Option<String> {
        match self.table.lookup(&name(object)) {
            Lookup::Absent => None,
            Lookup::Present(object) => Some(format!("{}@{}", object.meta.uid, object.meta.resource_version)),
            Lookup::Unreadable(object) => Some(format!("unreadable: {}", object.message)),
        }
    }

    fn later(&mut self, time: Duration) {
        self.now += time;
    }
}

fn origins(effects: &Effects) -> Vec<Origin> {
    effects.changes.iter().map(|change| change.origin).collect()
}

#[test]
fn a_selection_is_what_is_readable_in_its_scope_by_name_and_says_what_is_not() {
    let mut bench = Bench::of_everything();
    for object in ["b", "a"] {
        let _ = bench.upserted(&draft(object, object, 2).unlabelled());
    }
    let selected = |bench: &Bench, scope: &Scope| {
        let (objects, has_unreadable) = bench.table.select(scope);
        (objects.iter().map(|object| object.meta.name.name.to_string()).collect::<Vec<_>>(), has_unreadable)
    };
    let elsewhere = Scope { namespace: Some("other".into()), ..Scope::default() };
    assert_eq!(selected(&bench, &Scope::default()), (vec!["a".into(), "b".into()], false));
    assert_eq!(selected(&bench, &elsewhere), (vec![], false));
    assert_eq!(selected(&bench, &Scope::single(&name("b"))), (vec!["b".into()], false));
    assert_eq!(selected(&bench, &Scope::single(&name("c"))), (vec![], false));
    let unreadable = Unreadable { name: name("b"), uid: None, resource_version: None, message: "broken".into() };
    let _ = bench.table.upserted(bench.watch, Content::Unreadable(Arc::new(unreadable)), bench.now);
    assert_eq!(selected(&bench, &Scope::default()), (vec!["a".into()], true));
    assert_eq!(selected(&bench, &Scope::single(&name("b"))), (vec![], true));
}
