use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::names;

const OURS: &str = "host-webapp";

fn decoder() -> Decoder {
    Decoder::new([OURS])
}

fn type_ref() -> TypeRef {
    TypeRef::new("apps/v1", "Deployment")
}

fn decode(decoder: &Decoder, object: &Value, previous: Option<&Stored>) -> Stored {
    decoder.decode(object.to_string().as_bytes(), &type_ref(), previous).expect("a readable object")
}

/// A Deployment whose fields these managers own, in the form that a server writes.
fn object(uid: &str, entries: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "web", "namespace": "shop", "uid": uid, "resourceVersion": "7", "generation": 3,
            "labels": { "app": "web", names::INSTALLATION_LABEL: "default" },
            "annotations": { names::DESIRED_ANNOTATION: "v1:abc", names::ON_PRUNE_ANNOTATION: names::ORPHAN },
            "ownerReferences": [
                { "apiVersion": "v1", "kind": "ConfigMap", "name": "else", "uid": "u9" },
                { "apiVersion": "webapp.example.com/v1", "kind": "WebApp", "name": "web", "uid": "u1",
                  "controller": true, "blockOwnerDeletion": true },
            ],
            "finalizers": ["a/b"],
            "managedFields": entries,
        },
        "spec": { "replicas": 2 },
        "status": { "managedFields": "not these" },
    })
}

fn ours(fields: Value) -> Value {
    json!({ "manager": OURS, "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": fields })
}

fn theirs(fields: Value) -> Value {
    json!({ "manager": "kubectl-edit", "operation": "Update", "apiVersion": "apps/v1", "fieldsV1": fields })
}

fn replicas_and_owner(owner: &str) -> Value {
    json!({
        "f:metadata": { "f:labels": { "f:app": {} }, "f:ownerReferences": { format!(r#"k:{{"uid":"{owner}"}}"#): {} } },
        "f:spec": { "f:replicas": {} },
    })
}

#[test]
fn the_fields_that_the_host_decides_by_are_read() {
    let stored = decode(&decoder(), &object("u2", json!([ours(replicas_and_owner("u1"))])), None);
    let meta = &stored.meta;
    assert_eq!(meta.name.to_string(), "shop/web");
    assert_eq!((&*meta.uid, meta.resource_version.number(), meta.generation), ("u2", Some(7), Some(3)));
    assert_eq!(*meta.type_ref, type_ref());
    assert_eq!((meta.installation.as_deref(), meta.desired.as_deref()), (Some("default"), Some("v1:abc")));
    assert!(meta.orphan_on_prune && !meta.paused && !meta.terminating);
    assert_eq!(meta.finalizers.iter().map(|name| &**name).collect::<Vec<_>>(), ["a/b"]);
    let controller = meta.controller.as_deref().expect("a controller");
    assert_eq!((&*controller.name, &*controller.uid, controller.block_owner_deletion), ("web", "u1", true));
    assert!(stored.controlled_by("u1") && !stored.controlled_by("u9"));
    assert_eq!(stored.owner_references().len(), 2);
    assert_eq!(stored.labels()["app"], "web");
    assert_eq!(stored.status().map(RawValue::get), Some(r#"{"managedFields":"not these"}"#));
}

#[test]
fn host_labels_and_annotations_are_read_by_their_constant_names() {
    let mut live = object("u2", json!([]));
    live["metadata"]["annotations"] = json!({ names::PAUSED_ANNOTATION: "true" });
    assert!(decode(&decoder(), &live, None).meta.paused);
    live["metadata"]["annotations"] = json!({ names::PAUSED_ANNOTATION: "false" });
    assert!(!decode(&decoder(), &live, None).meta.paused);
    assert!(!decode(&decoder(), &live, None).meta.release_prune);
    live["metadata"]["annotations"] = json!({ names::RELEASE_PRUNE_ANNOTATION: "true" });
    assert!(decode(&decoder(), &live, None).meta.release_prune);
    live["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(decode(&decoder(), &live, None).meta.terminating);
}

/// Every live object of the recorded vectors.
fn recorded() -> Vec<Value> {
    let mut objects = Vec::new();
    for folder in ["keep", "keep_limits"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(folder);
        for file in fs::read_dir(folder).expect("the vectors") {
            let text = fs::read_to_string(file.expect("a file").path()).expect("a readable file");
            let case: Value = serde_json::from_str(&text).expect("JSON");
            objects
                .extend(["live", "applied_live", "reapplied_live"].iter().filter_map(|copy| case.get(copy).cloned()));
        }
    }
    assert!(objects.len() > 300, "vectors are missing: {}", objects.len());
    objects
}

#[test]
fn exactly_managed_fields_are_cut_out() {
    let decoder = decoder();
    for object in recorded() {
        let mut expected = object.clone();
        expected["metadata"].as_object_mut().expect("metadata").remove("managedFields");
        for text in [object.to_string(), serde_json::to_string_pretty(&object).expect("text") + "\n"] {
            let stored = decoder.decode(text.as_bytes(), &type_ref(), None).expect("a readable object");
            assert_eq!(serde_json::from_str::<Value>(&stored.json).expect("still JSON"), expected);
        }
    }
}

#[test]
fn an_item_of_a_list_gets_its_type() {
    let mut live = object("u2", json!([ours(replicas_and_owner("u1"))]));
    let whole: Value = serde_json::from_str(&decode(&decoder(), &live, None).json).expect("JSON");
    for absent in [&["apiVersion", "kind"][..], &["kind"], &["apiVersion"]] {
        live = object("u2", json!([]));
        for field in absent {
            live.as_object_mut().expect("an object").remove(*field);
        }
        let stored = decode(&decoder(), &live, None);
        assert_eq!(serde_json::from_str::<Value>(&stored.json).expect("JSON"), whole);
        assert_eq!(*stored.meta.type_ref, type_ref());
    }
}

#[test]
fn children_of_one_shape_share_one_set_whoever_owns_them() {
    let decoder = decoder();
    let set = |uid: &str, owner: &str| {
        let stored = decode(&decoder, &object(uid, json!([ours(replicas_and_owner(owner))])), None);
        stored.owned.applied(OURS).expect("our entry").clone()
    };
    let (one, other) = (set("u2", "u1"), set("u3", "u4"));
    assert!(Arc::ptr_eq(&one.0, &other.0));
    assert_eq!(one.as_str(), r#"{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:replicas":{}}}"#);
}

#[test]
fn only_our_applies_and_status_patches_count() {
    let status = json!({ "f:status": { "f:readyReplicas": {} } });
    let entry = |manager: &str, operation: &str, subresource: &str, fields: &Value| json!({ "manager": manager, "operation": operation, "subresource": subresource, "fieldsV1": fields });
    let live = object(
        "u2",
        json!([
            entry(OURS, "Update", "", &json!({ "f:spec": { "f:paused": {} } })),
            entry(OURS, "Apply", "status", &status),
            entry("other", "Apply", "", &json!({ "f:spec": {} })),
            entry(OURS, "Update", "status", &status),
        ]),
    );
    let stored = decode(&decoder(), &live, None);
    assert!(stored.owned.applied(OURS).is_none());
    assert_eq!(stored.owned.status(OURS).map(OwnedSet::as_str).collect::<Vec<_>>(), [status.to_string()]);
    assert_eq!(stored.owned.record(), Record::Kept);
}

#[test]
fn wiped_managed_fields_are_seen() {
    let decoder = decoder();
    let record = |entries: Value| decode(&decoder, &object("u2", entries), None).owned.record();
    assert_eq!(record(json!([])), Record::Wiped);
    assert_eq!(record(Value::Null), Record::Wiped);
    let before = json!({ "manager": "before-first-apply", "operation": "Update", "fieldsV1": { "f:spec": {} } });
    assert_eq!(record(json!([before])), Record::BeforeFirstApply);
    let mut absent = object("u2", json!([]));
    absent["metadata"].as_object_mut().expect("metadata").remove("managedFields");
    assert_eq!(decode(&decoder, &absent, None).owned.record(), Record::Wiped);
}

#[test]
fn who_took_a_field_is_known_until_our_set_changes_again() {
    let decoder = decoder();
    let whole = object("u2", json!([ours(replicas_and_owner("u1"))]));
    let taken = object(
        "u2",
        json!([
            ours(json!({ "f:metadata": { "f:labels": { "f:app": {} } } })),
            theirs(json!({ "f:spec": { "f:replicas": {} } })),
        ]),
    );
    let first = decode(&decoder, &whole, None);
    assert_eq!(first.owned.lost(), []);
    let second = decode(&decoder, &taken, Some(&first));
    let expected = [Lost { path: ".spec.replicas".into(), manager: Some("kubectl-edit".into()) }];
    assert_eq!(second.owned.lost(), expected);
    let third = decode(&decoder, &taken, Some(&second));
    assert_eq!(third.owned.lost(), expected, "an unrelated write made the taker unknown");
    assert_eq!(decode(&decoder, &whole, Some(&third)).owned.lost(), []);
    let mut another = taken.clone();
    another["metadata"]["uid"] = json!("u3");
    assert_eq!(decode(&decoder, &another, Some(&first)).owned.lost(), [], "another object's set was compared");
}

#[test]
fn a_removed_element_is_lost_to_nobody() {
    let decoder = decoder();
    let with = json!({ "f:spec": { "f:containers": { "k:{\"name\":\"web\"}": { ".": {}, "f:image": {} } } } });
    let first = decode(&decoder, &object("u2", json!([ours(with)])), None);
    let second = decode(&decoder, &object("u2", json!([theirs(json!({ "f:spec": {} }))])), Some(&first));
    assert_eq!(second.owned.lost(), [Lost { path: r#".spec.containers[name="web"].image"#.into(), manager: None }]);
}

#[test]
fn an_unreadable_object_says_who_it_is_as_far_as_it_can() {
    let decoder = decoder();
    let mut live = object("u2", json!([]));
    live["metadata"]["generation"] = json!("three");
    let error = decoder.decode(live.to_string().as_bytes(), &type_ref(), None).expect_err("no generation");
    assert_eq!(error.name, Some(ObjectName::new(Some("shop"), "web")));
    assert_eq!(
        (error.uid.as_deref(), error.resource_version.and_then(|version| version.number())),
        (Some("u2"), Some(7))
    );
    for bytes in [&b""[..], b"{", b"[]", b"null", b"{\"metadata\":{\"name\":\"\xff\"}}", b"{\"metadata\":{}}"] {
        let error = decoder.decode(bytes, &type_ref(), None).expect_err("no object");
        assert!(error.uid.is_none(), "{error}");
    }
}
