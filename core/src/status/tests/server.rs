//! As much of an API server as a status sees: merge patch, pruning, generations, field ownership.

use std::collections::BTreeMap;

use super::*;
use crate::contract::TypeRef;
use crate::schema::Schema;

/// Shapes of CRDs that statuses meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crd {
    /// With everything.
    WebApp,
    /// Keeps only type and status of a condition, and no observedGeneration.
    OnlyTypeAndStatus,
    /// With everything but a status subresource.
    NoSubresource,
    /// Without conditions.
    NoConditions,
    /// Keeps whatever it is given.
    Open,
}

impl Crd {
    pub(super) const ALL: [Self; 5] =
        [Self::WebApp, Self::OnlyTypeAndStatus, Self::NoSubresource, Self::NoConditions, Self::Open];

    fn schema(self) -> Schema {
        let integer = json!({ "type": "integer" });
        let text = json!({ "type": "string" });
        let pair = json!({ "type": { "type": "string" }, "status": { "type": "string" } });
        let whole = json!({ "type": text, "status": text, "reason": text, "message": text, "lastTransitionTime": text, "observedGeneration": integer });
        let list =
            |properties: Value| json!({ "type": "array", "items": { "type": "object", "properties": properties } });
        let a = json!({ "type": "object", "properties": { "a": integer, "b": text } });
        let status = match self {
            Self::WebApp | Self::NoSubresource => {
                json!({ "properties": { "readyReplicas": integer, "observedGeneration": integer, "phase": text, "a": a, "conditions": list(whole) } })
            }
            Self::OnlyTypeAndStatus => json!({ "properties": { "readyReplicas": integer, "conditions": list(pair) } }),
            Self::NoConditions => json!({ "properties": { "readyReplicas": integer, "observedGeneration": integer } }),
            Self::Open => json!({ "x-kubernetes-preserve-unknown-fields": true }),
        };
        let type_ref = TypeRef::new("example.com/v1", "WebApp");
        let document = json!({ "components": { "schemas": { "WebApp": {
            "type": "object",
            "properties": { "status": status },
            "x-kubernetes-group-version-kind": [{ "group": "example.com", "version": "v1", "kind": "WebApp" }],
        } } } });
        Schema::parse(document.to_string().as_bytes(), &type_ref).expect("a document").expect("the type")
    }
}

pub(super) struct Server {
    crd: Crd,
    schema: Schema,
    pub(super) object: Value,
    /// What the server puts into a status that lacks it.
    pub(super) defaults: Option<Value>,
    /// Who wrote the leaf at a path last.
    managers: BTreeMap<Vec<String>, String>,
    foreign_conditions: Vec<Value>,
    versions: u64,
}

impl Server {
    pub(super) fn new(crd: Crd) -> Self {
        let object = json!({ "metadata": { "generation": 1, "resourceVersion": "1" } });
        let (managers, foreign_conditions) = (BTreeMap::new(), Vec::new());
        Self { crd, schema: crd.schema(), object, defaults: None, managers, foreign_conditions, versions: 1 }
    }

    pub(super) fn plan(&self, module: Option<&ModuleStatus>, reconciled: Option<&Reconciled>, now: &str) -> StatusPlan {
        let live = self.object.get("status").map(Value::to_string);
        let owned = json!({ "f:status": self.owned(&[]) }).to_string();
        let owned = Fields::parse(&owned).expect("a tree of owned fields");
        let generation = self.object["metadata"]["generation"].as_i64();
        plan(&Input {
            live: live.as_deref(),
            resource_version: self.object["metadata"]["resourceVersion"].as_str().expect("a version"),
            generation: generation.filter(|_| self.crd != Crd::NoSubresource),
            owned: &[owned],
            declared: &declared(),
            module,
            reconciled,
            now,
            schema: Some(&self.schema),
        })
    }

    /// Plans and writes; a second plan must find nothing to do, at any later time.
    pub(super) fn converge(&mut self, module: Option<&ModuleStatus>, reconciled: &Reconciled, now: &str) -> StatusPlan {
        let plan = self.plan(module, Some(reconciled), now);
        if let Some(patch) = &plan.patch {
            self.patch(patch);
            let again = self.plan(module, Some(reconciled), "2099-01-01T00:00:00Z").patch;
            assert_eq!(again, None, "equal input wrote twice to a {:?}: {}", self.crd, self.object["status"]);
        }
        plan
    }

    pub(super) fn patch(&mut self, patch: &StatusPatch) {
        let version = &patch.body["metadata"]["resourceVersion"];
        assert_eq!(*version, self.object["metadata"]["resourceVersion"], "the precondition is the live version");
        self.write_as("us", &patch.body["status"]);
    }

    /// A merge patch of the status by a manager.
    pub(super) fn write_as(&mut self, manager: &str, patch: &Value) {
        let before = self.object.get("status").cloned().unwrap_or(Value::Null);
        let mut status = before.clone();
        merge(&mut status, patch);
        self.schema.prune_status(&mut status);
        for (name, value) in self.defaults.iter().filter_map(Value::as_object).flatten() {
            let status = status.as_object_mut().expect("an object");
            status.entry(name.clone()).or_insert_with(|| value.clone());
        }
        if status == before {
            return;
        }
        let (mut old, mut new) = (BTreeMap::new(), BTreeMap::new());
        leaves(&before, &mut Vec::new(), &mut old);
        leaves(&status, &mut Vec::new(), &mut new);
        self.managers.retain(|path, _| new.contains_key(path));
        for (path, value) in new {
            if old.get(&path) != Some(&value) {
                self.managers.insert(path, manager.to_owned());
            }
        }
        self.object["status"] = status;
        self.versions += 1;
        self.object["metadata"]["resourceVersion"] = self.versions.to_string().into();
        if self.crd == Crd::NoSubresource {
            let generation = self.object["metadata"]["generation"].as_i64().unwrap_or_default();
            self.object["metadata"]["generation"] = (generation + 1).into();
        }
    }

    /// A foreign condition at the front of the list.
    pub(super) fn add_condition(&mut self, manager: &str, type_: &str) {
        let mut conditions = self.object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|entry| entry["type"] != type_);
        conditions
            .insert(0, json!({ "type": type_, "status": "True", "message": "theirs", "extra": { "b": 1, "a": 1.0 } }));
        self.write_as(manager, &json!({ "conditions": conditions }));
        self.foreign_conditions = self.foreign();
    }

    fn foreign(&self) -> Vec<Value> {
        let conditions = self.object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().filter(|entry| entry["type"] == "S" || entry["type"] == "T").collect()
    }

    pub(super) fn check_foreign_conditions(&self) {
        assert_eq!(self.foreign(), self.foreign_conditions, "somebody else's conditions changed");
    }

    /// What the schema keeps of the module's status stands in the object.
    pub(super) fn check_holds(&self, status: &ModuleStatus) {
        let mut wanted = Value::Object(status.fields().clone());
        self.schema.prune_status(&mut wanted);
        assert!(holds(&self.object["status"], &wanted), "{} lacks some of {wanted}", self.object["status"]);
        if self.crd != Crd::NoConditions {
            for type_ in DECLARED {
                let said = status.conditions().iter().find(|condition| condition.type_ == type_);
                let live = condition_of(&self.object, type_).map(|live| &live["status"]);
                assert_eq!(live, said.map(|said| Value::from(said.status.as_str())).as_ref(), "{type_}");
            }
        }
    }

    pub(super) fn check_only_reconciled_moved(&self, before: &Value) {
        let without = |status: &Value| {
            let mut status = status.clone();
            if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
                conditions.retain(|entry| entry["type"] != "Reconciled");
            }
            status
        };
        let (before, mut after) = (without(before), without(&self.object["status"]));
        if before.get("conditions").is_none()
            && let Some(fields) = after.as_object_mut()
        {
            fields.remove("conditions");
        }
        let before = if before.is_null() && after == json!({}) { json!({}) } else { before };
        assert_eq!(before, after, "an unsettled pass moved more than Reconciled");
    }

    /// The tree of what our manager owns below a path.
    fn owned(&self, path: &[String]) -> Value {
        let mut tree = Map::new();
        for (leaf, _) in self.managers.iter().filter(|(leaf, manager)| leaf.starts_with(path) && *manager == "us") {
            if let Some(name) = leaf.get(path.len()) {
                let below: Vec<String> = path.iter().chain([name]).cloned().collect();
                tree.insert(format!("f:{name}"), self.owned(&below));
            }
        }
        tree.into()
    }
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let fields = target.as_object_mut().expect("made an object above");
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Maps are taken apart, lists are atomic.
fn leaves(value: &Value, path: &mut Vec<String>, found: &mut BTreeMap<Vec<String>, Value>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                path.push(name.clone());
                leaves(value, path, found);
                path.pop();
            }
        }
        Value::Null => {}
        _ => {
            found.insert(path.clone(), value.clone());
        }
    }
}

/// Whether all that is wanted is there; maps may hold more.
fn holds(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(name, wanted)| live.get(name).is_some_and(|live| holds(live, wanted)))
        }
        (Value::Null, Value::Object(wanted)) => wanted.is_empty(),
        _ => live == wanted,
    }
}
