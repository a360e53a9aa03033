//! What an author can rely on, seen through an operator that shows what it is given.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use operator_guest::live::Live;
use operator_guest::testing::Call;
use operator_guest::{
    Child, ChildType, Condition, Context, Descriptor, Event, EventType, Failure, OnImmutable, OnPrune, Operator,
    Outcome, Status, TypeRef,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Copies a ConfigMap's `color` into its status.
struct Painter;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PainterSpec {
    palette: Palette,
}

#[derive(Deserialize)]
struct Palette {
    colors: Vec<Color>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Color {
    Red,
    Blue,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct PainterStatus {
    seen: Option<String>,
    colors: usize,
}

#[derive(Deserialize)]
struct Paint<'a> {
    #[serde(borrow)]
    data: BTreeMap<&'a str, &'a str>,
}

impl<'a> Live<'a> for Paint<'a> {
    const API_VERSION: &'static str = "v1";
    const KIND: &'static str = "ConfigMap";
}

operator_guest::operator!(Painter);

impl Operator for Painter {
    type Spec = PainterSpec;
    type Status = PainterStatus;

    fn describe() -> Descriptor {
        Descriptor::new("painter", "1.2.3", TypeRef::new("example.com/v1", "Painter"))
            .child(ChildType::new("v1", "ConfigMap").on_immutable(OnImmutable::Recreate).on_prune(OnPrune::Orphan))
            .child(ChildType::new("example.com/v1", "Canvas").any_namespace().optional())
            .condition_type("Ready")
    }

    fn reconcile(ctx: &Context<Self>) -> Result<Outcome, Failure> {
        let paint: Option<Paint> = ctx.child("paint")?;
        let seen = paint.and_then(|paint| paint.data.get("color").map(|color| color.to_string()));
        let status = Status::new(&PainterStatus { seen, colors: ctx.spec().palette.colors.len() })?;
        Ok(Outcome::waiting().status(status))
    }
}

fn painter() -> Call {
    Call::new(json!({
        "apiVersion": "example.com/v1",
        "kind": "Painter",
        "metadata": {
            "name": "bob",
            "namespace": "art",
            "uid": "7",
            "generation": 3,
            "labels": { "team": "blue" },
            "managedBy": "somebody",
        },
        "spec": { "palette": { "colors": ["red", "blue"] } },
    }))
}

fn paint(namespace: &str, data: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "paint", "namespace": namespace },
        "data": data,
    })
}

fn reported(call: Call) -> Value {
    let outcome = call.reconcile::<Painter>().expect("a painter is reconciled");
    outcome.status.expect("a painter reports").fields_json()
}

#[test]
fn a_live_child_is_found_by_type_name_and_namespace() {
    assert_eq!(
        reported(painter().child(paint("art", json!({ "color": "green" })))),
        json!({ "seen": "green", "colors": 2 })
    );
    assert_eq!(reported(painter().child(paint("other", json!({ "color": "green" })))), json!({ "colors": 2 }));
    let mut secret = paint("art", json!({ "color": "green" }));
    secret["kind"] = json!("Secret");
    assert_eq!(reported(painter().child(secret)), json!({ "colors": 2 }));
}

#[test]
fn a_live_child_that_does_not_decode_is_named() {
    let failure = painter().child(paint("art", json!({ "color": 5 }))).reconcile::<Painter>().unwrap_err();
    assert!(failure.terminal);
    assert_eq!(failure.reason, "UndecodableObject");
    assert!(failure.message.starts_with("live ConfigMap paint: "), "{failure}");
}

#[test]
fn a_bad_spec_names_the_path_of_the_field() {
    let mut primary = json!({ "metadata": { "name": "bob" }, "spec": { "palette": { "colors": ["red", "mauve"] } } });
    let failure = Call::new(primary.clone()).reconcile::<Painter>().unwrap_err();
    assert_eq!(failure.reason, "InvalidSpec");
    assert_eq!(failure.message, "spec.palette.colors[1]: unknown variant `mauve`, expected `red` or `blue`");

    primary.as_object_mut().unwrap().remove("spec");
    let failure = Call::new(primary).reconcile::<Painter>().unwrap_err();
    assert_eq!(failure.to_string(), "InvalidSpec: missing field `spec`");
}

/// Reports all that the context says.
struct Mirror;

operator_guest::operator!(Mirror);

impl Operator for Mirror {
    type Spec = Value;
    type Status = PainterStatus;

    fn describe() -> Descriptor {
        Painter::describe()
    }

    fn reconcile(ctx: &Context<Self>) -> Result<Outcome, Failure> {
        let before = ctx.status()?;
        let metadata = ctx.metadata();
        let status = Status::new(&json!({
            "name": ctx.name(),
            "namespace": ctx.namespace(),
            "uid": metadata.uid,
            "generation": metadata.generation,
            "labels": metadata.labels,
            "spec": ctx.spec(),
            "before": before,
            "observed": ctx.observed_generation()?,
            "children": ctx.children().map(|child| child.name()).collect::<Vec<_>>(),
            "unavailable": ctx.unavailable().iter().map(|missing| &missing.kind).collect::<Vec<_>>(),
            "now": ctx.now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64,
        }))?;
        Ok(Outcome::waiting().status(status))
    }
}

fn mirror(status: Value) -> Call {
    Call::new(json!({
        "metadata": { "name": "bob", "namespace": "art", "uid": "7", "generation": 3, "labels": { "team": "blue" } },
        "spec": { "any": 1 },
        "status": status,
    }))
}

#[test]
fn the_context_shows_the_object_its_children_what_is_unavailable_and_the_time() {
    let call = mirror(json!({ "seen": "red", "colors": 1, "observedGeneration": 2, "conditions": [] }))
        .child(paint("art", json!({})))
        .unavailable(TypeRef::new("example.com/v1", "Canvas"))
        .now(SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123));
    assert_eq!(
        call.reconcile::<Mirror>().unwrap().status.unwrap().fields_json(),
        json!({
            "name": "bob",
            "namespace": "art",
            "uid": "7",
            "generation": 3,
            "labels": { "team": "blue" },
            "spec": { "any": 1 },
            "before": { "seen": "red", "colors": 1 },
            "observed": 2,
            "children": ["paint"],
            "unavailable": ["Canvas"],
            "now": 1_700_000_000_123_u64,
        })
    );
}

#[test]
fn a_status_of_another_shape_is_a_failure_only_for_who_asks() {
    assert!(painter().reconcile::<Painter>().is_ok());
    let failure = mirror(json!({ "colors": "many" })).reconcile::<Mirror>().unwrap_err();
    assert_eq!((failure.terminal, failure.reason.as_str()), (true, "InvalidStatus"));
    assert!(failure.message.starts_with("status.colors: invalid type"), "{failure}");
}

#[test]
fn desired_children_have_no_nulls_and_the_mildest_policy_unless_told() {
    let metadata = json!({ "name": "a", "labels": null });
    let object = json!({ "kind": "ConfigMap", "metadata": metadata, "data": { "list": [{ "b": null }] } });
    let child = Child::new(object);
    let kept: Value = serde_json::from_str(&child.object).unwrap();
    assert_eq!(kept, json!({ "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "list": [{}] } }));
    assert_eq!((child.on_immutable, child.on_prune), (OnImmutable::Fail, OnPrune::Delete));

    let child = child.on_immutable(OnImmutable::Recreate).on_prune(OnPrune::Orphan);
    assert_eq!((child.on_immutable, child.on_prune), (OnImmutable::Recreate, OnPrune::Orphan));
}

#[test]
fn desired_children_come_from_types_too() {
    #[derive(Serialize)]
    struct ConfigMap {
        kind: &'static str,
        immutable: Option<bool>,
    }
    let child = Child::typed(&ConfigMap { kind: "ConfigMap", immutable: None }).unwrap();
    assert_eq!(child.object, r#"{"kind":"ConfigMap"}"#);

    let unreadable = BTreeMap::from([([1, 2], "a key that is no text")]);
    assert_eq!(Child::typed(&unreadable).unwrap_err().reason, "InvalidChild");
}

#[test]
fn waiting_leaves_children_alone_and_an_empty_set_prunes_them() {
    assert_eq!(Outcome::waiting().children, None);
    assert_eq!(Outcome::new([]).children, Some(Vec::new()));
}

#[test]
fn a_status_is_an_object() {
    let failure = Status::new(&"fine").unwrap_err();
    assert_eq!((failure.terminal, failure.reason.as_str()), (true, "InvalidStatus"));
    assert_eq!(failure.message, "the status is no JSON object: \"fine\"");
}

#[test]
fn timers_round_up_to_whole_milliseconds() {
    let requeued = |time| Outcome::waiting().requeue_after(time).requeue_after;
    assert_eq!(requeued(Duration::from_secs(2)), Some(2000));
    assert_eq!(requeued(Duration::from_micros(1)), Some(1), "a short wait is not none");
    assert_eq!(requeued(Duration::MAX), Some(u64::MAX));
    assert_eq!(Failure::retry("Busy", "later").retry_after(Duration::from_micros(1500)).retry_after, Some(2));
}

#[test]
fn failures_carry_what_outcomes_carry() {
    let status = Status::conditions_only().condition(Condition::is_false("Ready", "Broken", "it broke"));
    let failure =
        Failure::terminal("Broken", "it broke").status(status.clone()).event(Event::warning("Broken", "it broke"));
    assert!(failure.terminal);
    assert_eq!(failure.status.as_ref(), Some(&status));
    assert_eq!(status.fields, "{}");
    assert_eq!(failure.events[0].type_, EventType::Warning);
}
