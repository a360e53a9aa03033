use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::*;
use crate::contract::TypeRef;
use crate::object::Decoder;
use crate::schema::Schema;

/// Recorded cases: the desired object, the live one, and what is right.
fn vectors(folder: &str, at_least: usize) -> Vec<Value> {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(folder);
    let mut files: Vec<_> =
        fs::read_dir(folder).expect("the vectors").map(|file| file.expect("a file").path()).collect();
    files.sort();
    assert!(files.len() >= at_least, "vectors are missing");
    files.iter().map(|file| serde_json::from_str(&fs::read_to_string(file).expect("text")).expect("JSON")).collect()
}

fn text<'a>(case: &'a Value, field: &str) -> &'a str {
    case[field].as_str().unwrap_or_default()
}

fn desired(case: &Value) -> Desired {
    let mut desired = Desired::parse(&case["desired"].to_string()).expect("a sound desired object");
    desired.hash = text(case, "desired_hash").into();
    desired
}

fn decode(object: &Value, manager: &str) -> Stored {
    Decoder::new([manager]).decode(object.to_string().as_bytes(), &TypeRef::new("", ""), None).expect("an object")
}

/// A schema that calls atomic what the case lists, and nothing else.
fn schema(case: &Value) -> Schema {
    let desired = &case["sent"];
    let atomic: Vec<&str> = case["atomic"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    let (group, version) = text(desired, "apiVersion").rsplit_once('/').unwrap_or(("", text(desired, "apiVersion")));
    let mut root = schema_of(desired, "", &atomic);
    root["x-kubernetes-group-version-kind"] = json!([{ "group": group, "version": version, "kind": desired["kind"] }]);
    let document = json!({ "components": { "schemas": { "it": root } } }).to_string();
    let type_ref = TypeRef::new(text(desired, "apiVersion"), text(desired, "kind"));
    Schema::parse(document.as_bytes(), &type_ref).expect("a document").expect("the type")
}

fn schema_of(value: &Value, path: &str, atomic: &[&str]) -> Value {
    let kind = if atomic.contains(&path) { "atomic" } else { "granular" };
    match value {
        Value::Object(fields) => {
            let below =
                |(name, value): (&String, &Value)| (name.clone(), schema_of(value, &format!("{path}/{name}"), atomic));
            json!({ "x-kubernetes-map-type": kind, "properties": fields.iter().map(below).collect::<Map<_, _>>() })
        }
        Value::Array(items) => {
            let mut all = json!({});
            for (index, item) in items.iter().enumerate() {
                merge(&mut all, schema_of(item, &format!("{path}/{index}"), atomic));
            }
            json!({ "x-kubernetes-list-type": kind, "items": all })
        }
        _ => json!({}),
    }
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn says(case: &Value, live: &Value, published: Published<'_>) -> Result<&'static str, NeedsSchema> {
    let manager = text(case, "manager");
    let verdict = keep(&desired(case), OnPrune::Delete, false, &decode(live, manager), manager, None, published)?;
    Ok(if verdict == Verdict::Keep { "keep" } else { "apply" })
}

/// What the check says of a case that it should not.
fn wrong(case: &Value, published: Published<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    let (said, right) = (says(case, &case["live"], published), text(case, "expect"));
    if said != Ok(right) {
        wrong.push(format!("{}: says {said:?}, right is {right}", text(case, "name")));
    }
    if let Some(again) = case.get("reapplied_live").map(|live| says(case, live, published))
        && again != Ok("keep")
    {
        wrong.push(format!("{}: {again:?} after our own apply: would be applied for ever", text(case, "name")));
    }
    wrong
}

#[test]
fn every_recorded_case_comes_out_right() {
    let mut all = Vec::new();
    for case in vectors("keep", 156) {
        all.extend(wrong(&case, Published::Schema(&schema(&case))));
    }
    assert!(all.is_empty(), "{all:#?}");
}

#[test]
fn without_a_published_schema_nothing_is_applied_without_need() {
    let mut all = Vec::new();
    for case in vectors("keep", 156) {
        all.extend(wrong(&case, Published::Nothing));
    }
    assert!(all.is_empty(), "{all:#?}");
}

#[test]
fn while_the_schema_is_not_loaded_an_answer_is_right_or_asks_for_it() {
    let mut asked = 0;
    for case in
        vectors("keep", 156).iter().chain(&vectors("keep_limits", 18)).filter(|case| text(case, "rule") != "none")
    {
        match says(case, &case["live"], Published::NotLoaded) {
            Ok(said) => assert_eq!(said, text(case, "expect"), "{}", text(case, "name")),
            Err(NeedsSchema) => asked += 1,
        }
    }
    assert!(asked > 0, "no case was ambiguous");
}

#[test]
fn what_ownership_alone_cannot_tell_the_rule_tells() {
    for case in vectors("keep_limits", 18) {
        let schema = schema(&case);
        let (with, without) = (wrong(&case, Published::Schema(&schema)), wrong(&case, Published::Nothing));
        match text(&case, "rule") {
            "schema" => {
                assert_eq!(with, [""; 0]);
                assert!(!without.is_empty(), "{}: no longer needs the schema: move it to keep/", text(&case, "name"));
            }
            "order" => assert_eq!(without, [""; 0]),
            // The set alone is right because this check knows nothing of what is sent otherwise.
            "set alone" => assert_eq!(without, [""; 0]),
            "none" => assert!(!with.is_empty(), "{}: no limit any more: move it to keep/", text(&case, "name")),
            other => panic!("unknown rule {other}"),
        }
    }
}

/// A case by its name.
fn case(name: &str) -> Value {
    vectors("keep", 156).into_iter().find(|case| text(case, "name") == name).expect("the case")
}

#[test]
fn a_set_that_is_as_after_our_apply_needs_no_schema() {
    let case = case("deployment-plain");
    let manager = text(&case, "manager");
    let live = decode(&case["live"], manager);
    let applied = live.owned.applied(manager);
    let warm = |applied| keep(&desired(&case), OnPrune::Delete, false, &live, manager, applied, Published::NotLoaded);
    assert_eq!(warm(applied), Ok(Verdict::Keep));
    assert_eq!(warm(None), Err(NeedsSchema), "a selector is atomic, which a cold check can't know");
}

#[test]
fn the_reason_of_an_apply_is_told() {
    let case = case("deployment-plain");
    let manager = text(&case, "manager");
    let live = decode(&case["live"], manager);
    let verdict = |desired: &Desired, on_prune, manager| {
        keep(desired, on_prune, false, &live, manager, None, Published::Nothing).expect("nothing to ask")
    };
    let same = desired(&case);
    assert_eq!(verdict(&same, OnPrune::Delete, manager), Verdict::Keep);
    assert_eq!(verdict(&same, OnPrune::Delete, "another"), Verdict::Apply(Drift::NotApplied));
    assert_eq!(verdict(&same, OnPrune::Orphan, manager), Verdict::Apply(Drift::Ownership));
    let other = Desired { hash: Arc::from("v1:other"), ..same };
    assert_eq!(verdict(&other, OnPrune::Delete, manager), Verdict::Apply(Drift::Hash));
}

mod random {
    use super::*;
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    /// Objects of a type without schema: maps are granular, lists are atomic.
    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            ".*".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..4).prop_map(Value::from),
                btree_map("[a-z./:{}]{0,4}", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    /// What the server records for a value of such a type.
    fn owned(value: &Value) -> Value {
        let mut fields = Map::new();
        if let Value::Object(below) = value {
            if !below.is_empty() {
                fields.insert(".".into(), json!({}));
            }
            fields.extend(below.iter().map(|(name, value)| (format!("f:{name}"), owned(value))));
        }
        fields.into()
    }

    /// One of the owned paths, by number, taken out.
    fn without_nth(fields: &mut Value, number: &mut usize) -> bool {
        let Some(below) = fields.as_object_mut() else { return false };
        for name in below.keys().filter(|name| *name != ".").cloned().collect::<Vec<_>>() {
            if below[&name] == json!({}) {
                if *number == 0 {
                    below.remove(&name);
                    return true;
                }
                *number -= 1;
            } else if without_nth(&mut below[&name], number) {
                return true;
            }
        }
        false
    }

    fn object(spec: &Value) -> (Desired, Value) {
        let wish = json!({ "apiVersion": "a/v1", "kind": "Loose", "metadata": { "name": "x" }, "spec": spec });
        let desired = Desired::parse(&wish.to_string()).expect("a sound object");
        let sent = json!({
            "metadata": { "labels": { crate::names::INSTALLATION_LABEL: "i" }, "annotations": { crate::names::DESIRED_ANNOTATION: "h" } },
            "spec": desired.value.get("spec"),
        });
        (desired, owned(&sent))
    }

    fn loose() -> Schema {
        let root = json!({
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "x-kubernetes-group-version-kind": [{ "group": "a", "version": "v1", "kind": "Loose" }],
        });
        let document = json!({ "components": { "schemas": { "it": root } } }).to_string();
        Schema::parse(document.as_bytes(), &TypeRef::new("a/v1", "Loose")).expect("a document").expect("the type")
    }

    fn verdict(desired: &Desired, fields: &Value) -> Verdict {
        let live = json!({
            "apiVersion": "a/v1", "kind": "Loose",
            "metadata": {
                "name": "x", "uid": "u", "resourceVersion": "1", "annotations": { crate::names::DESIRED_ANNOTATION: &*desired.hash },
                "managedFields": [{ "manager": "m", "operation": "Apply", "fieldsV1": fields }],
            },
            "spec": desired.value.get("spec"),
        });
        let live = decode(&live, "m");
        keep(desired, OnPrune::Delete, false, &live, "m", None, Published::Schema(&loose()))
            .expect("the schema is there")
    }

    proptest! {
        #[test]
        fn an_untouched_object_is_kept(spec in btree_map("[a-z]{1,3}", value(), 0..5)) {
            let (desired, fields) = object(&Value::Object(spec.into_iter().collect()));
            prop_assert_eq!(verdict(&desired, &fields), Verdict::Keep);
        }

        #[test]
        fn whatever_path_another_takes_is_applied_again(spec in btree_map("[a-z]{1,3}", value(), 1..5), number in 0_usize..12) {
            let (desired, mut fields) = object(&Value::Object(spec.into_iter().collect()));
            if without_nth(&mut fields, &mut { number }) {
                prop_assert_eq!(verdict(&desired, &fields), Verdict::Apply(Drift::Ownership));
            }
        }

        #[test]
        fn a_path_that_is_no_longer_desired_is_applied(spec in btree_map("[a-z]{1,3}", value(), 0..5)) {
            let (desired, mut fields) = object(&Value::Object(spec.into_iter().collect()));
            fields["f:spec"]["f:dropped"] = json!({});
            prop_assert_eq!(verdict(&desired, &fields), Verdict::Apply(Drift::Ownership));
        }
    }
}
