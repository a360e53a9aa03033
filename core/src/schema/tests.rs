use serde_json::json;

use super::*;

/// The document of one custom type, with the parts of apimachinery's that it refers to.
fn schema(root: Value) -> Schema {
    let mut root = root;
    root["x-kubernetes-group-version-kind"] = json!([{ "group": "example.com", "version": "v1", "kind": "Site" }]);
    root["properties"]["metadata"] = json!({
        "description": "Standard object's metadata.",
        "allOf": [{ "$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" }],
    });
    let document = json!({ "openapi": "3.0.0", "components": { "schemas": {
        "com.example.v1.Site": root,
        "com.example.v1.SiteList": { "type": "object", "x-kubernetes-group-version-kind":
            [{ "group": "example.com", "version": "v1", "kind": "SiteList" }] },
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": { "type": "object", "properties": {
            "labels": { "type": "object", "additionalProperties": { "type": "string", "default": "" } },
            "finalizers": { "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set",
                "x-kubernetes-patch-strategy": "merge" },
            "ownerReferences": { "type": "array", "x-kubernetes-list-map-keys": ["uid"], "x-kubernetes-list-type": "map",
                "items": { "allOf": [{ "$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference" }], "default": {} } },
        } },
        "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference": { "type": "object", "x-kubernetes-map-type": "atomic",
            "properties": { "uid": { "type": "string" } } },
        "io.k8s.api.Props": { "type": "object", "properties": {
            "not": { "$ref": "#/components/schemas/io.k8s.api.Props" }, "list": { "type": "array", "items": { "type": "string" } } } },
    } } })
    .to_string();
    Schema::parse(document.as_bytes(), &TypeRef::new("example.com/v1", "Site")).expect("a document").expect("the type")
}

fn is_atomic(schema: &Schema, pointer: &str, value: Value) -> bool {
    fn at(schema: &Schema, path: &Path<'_>, rest: &[&str], value: &Value) -> bool {
        match rest {
            [] => schema.is_atomic(path, value),
            [first, rest @ ..] => match first.parse() {
                Ok(index) => at(schema, &path.item(index), rest, value),
                Err(_) => at(schema, &path.field(first), rest, value),
            },
        }
    }
    let steps: Vec<_> = pointer.split('/').skip(1).collect();
    at(schema, &Path::Root, &steps, &value)
}

#[test]
fn what_is_atomic_follows_the_published_marks() {
    let string = json!({ "type": "string" });
    let schema = schema(json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": {
        "args": { "type": "array", "items": string },
        "tags": { "type": "array", "items": string, "x-kubernetes-list-type": "set" },
        "old": { "type": "array", "items": string, "x-kubernetes-patch-strategy": "merge,retainKeys" },
        "labels": { "type": "object", "additionalProperties": string },
        "frozen": { "type": "object", "additionalProperties": string, "x-kubernetes-map-type": "atomic" },
        "raw": { "type": "object" },
        "loose": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        "selector": { "description": "atomic here", "allOf": [{ "$ref": "#/components/schemas/io.k8s.api.Props" }],
            "x-kubernetes-map-type": "atomic" },
        "props": { "$ref": "#/components/schemas/io.k8s.api.Props" },
        "gone": { "$ref": "#/components/schemas/io.k8s.api.Absent" },
        "peers": { "type": "array", "x-kubernetes-list-type": "map", "items": { "type": "object", "properties": {
            "hosts": { "type": "array", "items": string } } } },
    } } } }));
    let list = || json!(["x"]);
    let map = || json!({ "a": "b" });
    for (pointer, value, atomic) in [
        ("/spec", map(), false),
        ("/spec/args", list(), true),
        ("/spec/args", json!([]), true),
        ("/spec/tags", list(), false),
        ("/spec/old", list(), false),
        ("/spec/labels", map(), false),
        ("/spec/frozen", map(), true),
        ("/spec/raw", map(), true),
        ("/spec/loose", map(), false),
        ("/spec/loose/deep/list", list(), true),
        ("/spec/loose/deep/map", map(), false),
        ("/spec/selector", map(), true),
        ("/spec/props", map(), false),
        ("/spec/props/not/not/not", map(), false),
        ("/spec/props/not/not/list", list(), true),
        ("/spec/gone", map(), false),
        ("/spec/peers", list(), false),
        ("/spec/peers/0", map(), false),
        ("/spec/peers/7/hosts", list(), true),
        ("/spec/unknown", list(), true),
        ("/metadata/labels", map(), false),
        ("/metadata/finalizers", list(), false),
        ("/metadata/ownerReferences", list(), false),
        ("/metadata/ownerReferences/0", map(), true),
        ("/spec/args/0", json!("x"), false),
    ] {
        assert_eq!(is_atomic(&schema, pointer, value), atomic, "{pointer}");
    }
}

fn status(status: Value) -> Schema {
    schema(json!({ "type": "object", "properties": { "status": status } }))
}

#[test]
fn a_status_loses_what_the_server_would_prune() {
    let schema = status(json!({ "type": "object", "properties": {
        "replicas": { "type": "integer" },
        "conditions": { "type": "array", "items": { "type": "object", "properties": { "type": {}, "status": {} } } },
        "labels": { "type": "object", "additionalProperties": { "type": "object", "properties": { "a": {} } } },
        "any": { "type": "object", "additionalProperties": true },
        "loose": { "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "known": { "type": "object", "properties": { "a": {} } } } },
        "template": { "type": "object", "x-kubernetes-embedded-resource": true, "properties": { "spec": { "type": "object" } } },
        "bare": { "type": "object" },
    } }));
    let mut value = json!({
        "replicas": 0, "phase": "Ready", "observedGeneration": 1,
        "conditions": [{ "type": "A", "status": "True", "reason": "R" }, { "type": "B", "reason": "R", "message": "m" }],
        "labels": { "x": { "a": 1, "b": 2 } }, "any": { "a": { "b": [1] } }, "loose": { "x": { "y": 1 }, "known": { "a": 1, "b": 2 } },
        "template": { "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "x" }, "extra": 1 }, "bare": { "a": 1 },
    });
    let lost = schema.prune_status(&mut value);
    assert_eq!(
        lost,
        [
            "status.bare.a",
            "status.conditions[].message",
            "status.conditions[].reason",
            "status.labels.x.b",
            "status.loose.known.b",
            "status.observedGeneration",
            "status.phase",
            "status.template.extra",
        ]
    );
    let kept = json!({
        "replicas": 0, "conditions": [{ "type": "A", "status": "True" }, { "type": "B" }], "labels": { "x": { "a": 1 } },
        "any": { "a": { "b": [1] } }, "loose": { "x": { "y": 1 }, "known": { "a": 1 } },
        "template": { "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "x" } }, "bare": {},
    });
    assert_eq!(value, kept);
    assert_eq!(schema.prune_status(&mut value), [""; 0], "what is pruned once stays as it is");
}

#[test]
fn a_type_without_status_keeps_nothing_and_an_open_one_all() {
    let mut value = json!({ "a": 1, "b": 2 });
    let none = schema(json!({ "type": "object", "properties": { "spec": { "type": "object" } } }));
    assert!(!none.keeps(&["status"]));
    assert_eq!(none.prune_status(&mut value), ["status.a", "status.b"]);
    assert_eq!(value, json!({}));
    let open = schema(json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {} }));
    assert!(open.keeps(&["status", "observedGeneration"]));
    let mut value = json!({ "a": { "b": 1 } });
    assert_eq!(open.prune_status(&mut value), [""; 0]);
    let some = status(json!({ "type": "object", "properties": { "observedGeneration": { "type": "integer" } } }));
    assert!(some.keeps(&["status", "observedGeneration"]) && !some.keeps(&["status", "conditions"]));
}

#[test]
fn a_document_without_the_type_has_no_schema_and_no_document_is_an_error() {
    let of = |document: &str| Schema::parse(document.as_bytes(), &TypeRef::new("example.com/v1", "Site"));
    assert!(of(r#"{"openapi":"3.0.0"}"#).is_ok_and(|schema| schema.is_none()));
    assert!(of(r#"{"components":{"schemas":{"a":{}}}}"#).is_ok_and(|schema| schema.is_none()));
    assert!(of("404 page not found").is_err());
}

/// The paths that a schema calls atomic in an object, not looking below one.
fn atomic_in(schema: &Schema, value: &Value, path: &Path<'_>, pointer: &str, found: &mut Vec<String>) {
    if schema.is_atomic(path, value) {
        found.push(pointer.to_owned());
        return;
    }
    for (name, below) in value.as_object().into_iter().flatten() {
        atomic_in(schema, below, &path.field(name), &format!("{pointer}/{name}"), found);
    }
    for (index, below) in value.as_array().into_iter().flatten().enumerate() {
        atomic_in(schema, below, &path.item(index), &format!("{pointer}/{index}"), found);
    }
}

#[test]
fn the_published_documents_say_what_was_recorded_to_be_atomic() {
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut checked = 0;
    for folder in ["keep", "keep_limits"] {
        for file in std::fs::read_dir(data.join(folder)).expect("the vectors") {
            let text = std::fs::read(file.expect("a file").path()).expect("a readable file");
            let case: Value = serde_json::from_slice(&text).expect("JSON");
            let (version, kind) = (case["desired"]["apiVersion"].as_str(), case["desired"]["kind"].as_str());
            let type_ref = TypeRef::new(version.expect("a version"), kind.expect("a kind"));
            let document = data.join("openapi").join(format!("{}.json", type_ref.api_version.replace('/', "_")));
            // The custom types of the vectors have none.
            let Ok(document) = std::fs::read(document) else { continue };
            let schema = Schema::parse(&document, &type_ref).expect("a document").expect("the type");
            let mut found = vec!["/metadata/ownerReferences/0".to_owned()];
            atomic_in(&schema, &case["desired"], &Path::Root, "", &mut found);
            found.sort();
            let mut recorded: Vec<_> =
                case["atomic"].as_array().expect("paths").iter().filter_map(Value::as_str).collect();
            recorded.sort_unstable();
            assert_eq!(found, recorded, "{}", case["name"]);
            checked += 1;
        }
    }
    assert!(checked > 100, "documents are missing: {checked}");
}

/// The text of a definition of Sites whose version v1 has this schema.
fn definition_text(schema: &str) -> String {
    let versions = format!(
        r#"[{{"name":"v0","served":false,"schema":{{"openAPIV3Schema":{{"type":"object"}}}}}},
            {{"name":"v1","served":true,"subresources":{{"status":{{}}}},"schema":{{"openAPIV3Schema":{schema}}}}}]"#
    );
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
            "spec":{{"group":"example.com","scope":"Namespaced","names":{{"kind":"Site","plural":"sites"}},"versions":{versions}}}}}"#
    )
}

/// The definition of a Site with these properties.
fn definition(properties: &Value) -> Schema {
    let text = definition_text(&json!({ "type": "object", "properties": properties }).to_string());
    Definition::parse(&text).expect("a definition").schema("v1").expect("a schema").expect("the version")
}

#[test]
fn a_definition_tells_its_type_and_versions() {
    let text = definition_text("{}");
    let sites = Definition::parse(&text).expect("a definition");
    assert!(sites.is_of(&TypeRef::new("example.com/v2", "Site")));
    assert!(!sites.is_of(&TypeRef::new("example.com/v1", "Page")));
    assert!(!sites.is_of(&TypeRef::new("example.org/v1", "Site")));
    assert!(sites.serves("v1") && !sites.serves("v0") && !sites.serves("v2"));
    assert!(!sites.is_cluster_scoped());
    assert_eq!(sites.plural(), "sites");
    assert!(sites.has_status("v1") && !sites.has_status("v0") && !sites.has_status("v2"));
    assert_eq!(sites.schema("v2").expect("nothing is wrong"), None);
    let error = Definition::parse("{").expect_err("half a text").to_string();
    assert!(error.starts_with("is not the JSON of a CustomResourceDefinition: "), "{error}");
    let text = text.replace("CustomResourceDefinition", "Deployment");
    let error = Definition::parse(&text).expect_err("another type").to_string();
    assert_eq!(
        error,
        "is a Deployment.apiextensions.k8s.io/v1, not a CustomResourceDefinition.apiextensions.k8s.io/v1"
    );
}

#[test]
fn two_definitions_of_a_type_differ_in_the_fields_that_one_prunes() {
    let conditions = |fields: Value| {
        json!({ "type": "object", "properties": { "conditions": {
            "type": "array", "items": { "type": "object", "properties": fields } } } })
    };
    let text = json!({ "type": "string" });
    let newer = json!({
        "spec": { "type": "object", "properties": { "image": text, "ports": { "type": "object", "properties": { "http": text } } } },
        "status": conditions(json!({ "type": text, "reason": text })),
    });
    let older = json!({
        "metadata": { "type": "object" },
        "spec": { "type": "object", "properties": { "image": text, "paused": text } },
        "status": conditions(json!({ "type": text })),
    });
    let served = schema(json!({ "type": "object", "properties": older }));
    assert_eq!(served.lacks(&definition(&newer)), ["spec.ports", "status.conditions[].reason"]);
    assert_eq!(definition(&newer).lacks(&served), ["spec.paused"]);
    assert_eq!(definition(&older).lacks(&served), Vec::<String>::new());
    assert_eq!(served.lacks(&definition(&older)), Vec::<String>::new());
}

#[test]
fn what_preserves_unknown_fields_lacks_nothing() {
    let text = json!({ "type": "string" });
    let labels = |below: Value| {
        json!({ "spec": { "type": "object", "properties": {
            "labels": { "type": "object", "additionalProperties": below } } } })
    };
    let deep = labels(json!({ "type": "object", "properties": { "value": text } }));
    let open = json!({ "spec": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    assert_eq!(definition(&open).lacks(&definition(&deep)), Vec::<String>::new());
    assert_eq!(definition(&labels(json!({ "type": "object" }))).lacks(&definition(&deep)), ["spec.labels.*.value"]);
}

#[test]
fn a_schema_that_never_ends_is_refused_and_not_followed() {
    let deep = |levels: usize| {
        let (open, close) = (r#"{"type":"object","properties":{"a":"#.repeat(levels), "}}".repeat(levels));
        let text = definition_text(&format!("{open}{{}}{close}"));
        Definition::parse(&text).expect("a definition").schema("v1")
    };
    assert!(deep(50).expect("sound").is_some());
    assert!(deep(100_000).expect_err("too deep").to_string().contains("nested more than 100 deep"));
}
