//! What a user sees of a status, and that equal input never plans a second write.

mod server;

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::json;

use self::server::{Crd, Server};
use super::*;
use crate::contract::{ConditionStatus, Status};

const NOW: &str = "2026-11-29T16:00:00Z";
const LATER: &str = "2026-11-29T17:00:00Z";
const DECLARED: [&str; 2] = ["Ready", "Degraded"];

fn declared() -> Vec<String> {
    DECLARED.map(String::from).to_vec()
}

fn condition(type_: &str, status: ConditionStatus, message: &str) -> Condition {
    Condition { type_: type_.into(), status, reason: "Because".into(), message: message.into() }
}

fn module(fields: Value, conditions: Vec<Condition>) -> ModuleStatus {
    let status = Status { fields: fields.to_string(), conditions };
    ModuleStatus::check(&status, &declared()).expect("a sound status")
}

fn settled() -> Reconciled {
    Reconciled { status: ConditionStatus::True, reason: "Settled".into(), message: "All as wanted".into() }
}

fn failed(reason: &str) -> Reconciled {
    Reconciled { status: ConditionStatus::False, reason: reason.into(), message: "no".into() }
}

fn ready(replicas: u32) -> ModuleStatus {
    let status = if replicas == 2 { ConditionStatus::True } else { ConditionStatus::False };
    module(json!({ "readyReplicas": replicas }), vec![condition("Ready", status, &format!("{replicas}/2"))])
}

fn said<'a>(input: u64, module: Option<&'a ModuleStatus>) -> Said<'a> {
    Said { input, generation: Some(1), module, reconciled: None }
}

fn condition_of<'v>(object: &'v Value, type_: &str) -> Option<&'v Value> {
    object["status"]["conditions"].as_array()?.iter().find(|entry| entry["type"] == type_)
}

#[test]
fn a_settled_status_is_written_once_with_the_generation_it_is_of() {
    let mut server = Server::new(Crd::WebApp);
    let plan = server.converge(Some(&ready(2)), &settled(), NOW);
    assert!(plan.lost.is_empty());
    assert_eq!(
        server.object["status"],
        json!({ "readyReplicas": 2, "observedGeneration": 1, "conditions": [
            { "type": "Ready", "status": "True", "reason": "Because", "message": "2/2", "observedGeneration": 1,
              "lastTransitionTime": NOW },
            { "type": "Reconciled", "status": "True", "reason": "Settled", "message": "All as wanted",
              "observedGeneration": 1, "lastTransitionTime": NOW },
        ] })
    );
}

#[test]
fn an_unsettled_pass_moves_only_the_host_s_condition() {
    let mut server = Server::new(Crd::WebApp);
    server.converge(Some(&ready(2)), &settled(), NOW);
    let before = server.object.clone();
    server.object["metadata"]["generation"] = 2.into();
    server.converge(None, &failed("ApplyFailed"), LATER);
    assert_eq!(server.object["status"]["observedGeneration"], 1, "the new generation was reported as done");
    assert_eq!(condition_of(&server.object, "Ready"), condition_of(&before, "Ready"));
    let reconciled = condition_of(&server.object, "Reconciled").expect("the host's condition");
    assert_eq!((&reconciled["reason"], &reconciled["observedGeneration"]), (&json!("ApplyFailed"), &json!(2)));
}

#[test]
fn a_transition_time_moves_only_when_the_status_flips() {
    let mut server = Server::new(Crd::WebApp);
    server.converge(Some(&ready(0)), &settled(), NOW);
    server.converge(Some(&ready(1)), &settled(), LATER);
    let time = |server: &Server| condition_of(&server.object, "Ready").map(|ready| ready["lastTransitionTime"].clone());
    assert_eq!(time(&server), Some(json!(NOW)), "only the message changed");
    server.converge(Some(&ready(2)), &settled(), LATER);
    assert_eq!(time(&server), Some(json!(LATER)));
}

#[test]
fn others_conditions_stay_as_they_are_and_where_they_are() {
    let mut server = Server::new(Crd::WebApp);
    let foreign = json!({ "type": "Synced", "status": "Unknown", "extra": [1.5, null] });
    server.object["status"] = json!({ "conditions": [foreign, { "type": "Degraded", "status": "True" }, "odd"] });
    let plan = server.plan(Some(&ready(2)), Some(&settled()), NOW);
    let conditions = plan.patch.expect("there is much to write").body["status"]["conditions"].clone();
    let types: Vec<_> = conditions.as_array().expect("a list").iter().map(|entry| entry["type"].as_str()).collect();
    assert_eq!(types, [Some("Synced"), None, Some("Ready"), Some("Reconciled")], "Degraded was declared, not returned");
    assert_eq!(conditions[0], foreign);
}

#[test]
fn a_second_condition_of_our_type_goes() {
    let mut server = Server::new(Crd::WebApp);
    server.converge(Some(&ready(2)), &settled(), NOW);
    let twice = condition_of(&server.object, "Ready").expect("ready").clone();
    server.object["status"]["conditions"].as_array_mut().expect("a list").push(twice);
    server.converge(Some(&ready(2)), &settled(), LATER);
    assert_eq!(server.object["status"]["conditions"].as_array().map(Vec::len), Some(2));
}

#[test]
fn fields_that_are_no_longer_returned_go_and_others_fields_stay() {
    let mut server = Server::new(Crd::Open);
    server.converge(Some(&module(json!({ "a": 1, "b": { "ours": 1, "deep": { "x": 1 } } }), vec![])), &settled(), NOW);
    server.write_as("somebody", &json!({ "b": { "theirs": 2 }, "c": 3 }));
    server.converge(Some(&module(json!({ "a": 1 }), vec![])), &settled(), NOW);
    let status = &server.object["status"];
    assert_eq!((&status["a"], &status["b"], &status["c"]), (&json!(1), &json!({ "theirs": 2 }), &json!(3)));
}

#[test]
fn a_map_that_was_all_ours_goes_whole() {
    let mut server = Server::new(Crd::Open);
    server.converge(Some(&module(json!({ "b": { "x": 1, "deep": { "y": [1] } } }), vec![])), &settled(), NOW);
    server.converge(Some(&module(json!({}), vec![])), &settled(), NOW);
    assert_eq!(server.object["status"].get("b"), None);
}

#[test]
fn a_tampered_status_is_put_right_by_one_write() {
    let mut server = Server::new(Crd::WebApp);
    server.converge(Some(&ready(2)), &settled(), NOW);
    let good = server.object["status"].clone();
    server.write_as("somebody", &json!({ "readyReplicas": 99, "conditions": [] }));
    server.converge(Some(&ready(2)), &settled(), NOW);
    assert_eq!(server.object["status"], good);
}

#[test]
fn what_a_schema_drops_is_said_and_not_written_again() {
    let mut server = Server::new(Crd::OnlyTypeAndStatus);
    let plan = server.converge(Some(&ready(2)), &settled(), NOW);
    let members = ["lastTransitionTime", "message", "reason"];
    assert_eq!(plan.lost, members.map(|member| format!("status.conditions[].{member}")));
    assert_eq!(
        server.object["status"],
        json!({ "readyReplicas": 2, "conditions": [{ "type": "Ready", "status": "True" }, { "type": "Reconciled", "status": "True" }] })
    );
}

#[test]
fn a_type_without_conditions_gets_fields_only() {
    let mut server = Server::new(Crd::NoConditions);
    let plan = server.converge(Some(&ready(2)), &settled(), NOW);
    assert_eq!(plan.lost, ["status.conditions"]);
    assert_eq!(server.object["status"], json!({ "readyReplicas": 2, "observedGeneration": 1 }));
    assert_eq!(server.plan(None, Some(&failed("ApplyFailed")), NOW).patch, None);
}

#[test]
fn without_a_status_subresource_the_generation_is_written_nowhere() {
    let mut server = Server::new(Crd::NoSubresource);
    server.converge(Some(&ready(2)), &settled(), NOW);
    assert!(!server.object["status"].to_string().contains("observedGeneration"));
    assert_eq!(server.object["metadata"]["generation"], 2, "one write, one generation");
}

#[test]
fn after_a_refusal_the_status_is_planned_without_the_host_s_condition() {
    let mut server = Server::new(Crd::WebApp);
    let plan = server.plan(Some(&ready(2)), None, NOW);
    server.patch(&plan.patch.expect("the module's own is left"));
    assert_eq!(condition_of(&server.object, "Reconciled"), None);
    assert!(condition_of(&server.object, "Ready").is_some());
    assert_eq!(server.plan(Some(&ready(2)), None, NOW).patch, None);
}

#[test]
fn a_status_that_the_module_has_none_of_leaves_its_fields() {
    let mut server = Server::new(Crd::WebApp);
    server.converge(Some(&ready(2)), &settled(), NOW);
    let good = server.object["status"].clone();
    assert_eq!(server.plan(None, Some(&settled()), LATER).patch, None);
    assert_eq!(server.object["status"], good);
}

#[test]
fn a_long_message_is_cut_between_characters() {
    let long = "ä".repeat(40_000);
    let status = module(json!({}), vec![condition("Ready", ConditionStatus::False, &format!("x{long}"))]);
    let mut server = Server::new(Crd::WebApp);
    server.converge(Some(&status), &settled(), NOW);
    let message = condition_of(&server.object, "Ready").and_then(|ready| ready["message"].as_str()).expect("a message");
    assert_eq!(message.len(), 32 * 1024 - 1);
}

#[test]
fn a_failure_s_reason_that_no_server_takes_becomes_one_that_it_takes() {
    let mut server = Server::new(Crd::WebApp);
    server.converge(None, &failed("not camel case!"), NOW);
    let reconciled = condition_of(&server.object, "Reconciled").expect("the host's condition");
    assert_eq!(reconciled["reason"], "InvalidOutcome");
}

#[test]
fn reasons_are_metav1_s() {
    for good in ["A", "ReplicasReady", "a1_,:b", "Ready_", "A9"] {
        assert!(is_reason(good), "{good}");
    }
    let too_long = "a".repeat(1025);
    for bad in ["", "1a", "_a", "a:", "a,", "a b", "a-b", "ä", "a\n", too_long.as_str()] {
        assert!(!is_reason(bad), "{bad}");
    }
}

#[test]
fn a_status_that_breaks_the_contract_is_refused_by_name() {
    let check = |fields: &str, conditions: Vec<Condition>| {
        let refused = ModuleStatus::check(&Status { fields: fields.into(), conditions }, &declared());
        refused.expect_err(fields).to_string()
    };
    let ready = || condition("Ready", ConditionStatus::True, "");
    assert!(check("{", vec![]).starts_with("status.fields: "));
    assert_eq!(check("[]", vec![]), "status.fields must be a JSON object");
    assert!(check(r#"{"a":{"b":1,"b":1}}"#, vec![]).contains("a.b"));
    assert!(check(r#"{"conditions":[]}"#, vec![]).contains("must not hold conditions"));
    assert!(check(r#"{"observedGeneration":1}"#, vec![]).contains("must not hold observedGeneration"));
    assert!(check("{}", vec![condition("Other", ConditionStatus::True, "")]).contains("\"Other\""));
    assert!(check("{}", vec![condition("Reconciled", ConditionStatus::True, "")]).contains("\"Reconciled\""));
    assert!(check("{}", vec![ready(), ready()]).contains("twice"));
    assert!(check("{}", vec![Condition { reason: String::new(), ..ready() }]).contains("not CamelCase"));
}

#[test]
fn a_message_with_a_counter_is_slowed_and_named() {
    let mut server = Server::new(Crd::WebApp);
    let (mut flapping, start) = (Flapping::default(), Instant::now());
    let (mut writes, mut named) = (0, Vec::new());
    for pass in 0..600u64 {
        let status = module(json!({}), vec![condition("Ready", ConditionStatus::True, &format!("pass {pass}"))]);
        let Some(patch) = server.plan(Some(&status), Some(&settled()), NOW).patch else { continue };
        match flapping.judge(start + Duration::from_secs(pass), &said(1, Some(&status)), &patch) {
            Verdict::Write => {
                writes += 1;
                server.patch(&patch);
            }
            Verdict::Slowed { fields, .. } => named = fields,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(named, [r#"status.conditions[type="Ready"].message"#]);
    assert!(writes <= 12, "{writes} writes in 10 minutes");
}

#[test]
fn a_status_that_follows_its_input_is_never_slowed() {
    let mut server = Server::new(Crd::WebApp);
    let (mut flapping, now) = (Flapping::default(), Instant::now());
    for input in 0..100u32 {
        let status = module(json!({ "readyReplicas": input }), vec![]);
        let patch = server.plan(Some(&status), Some(&settled()), NOW).patch.expect("a new number");
        assert_eq!(flapping.judge(now, &said(input.into(), Some(&status)), &patch), Verdict::Write);
        server.patch(&patch);
    }
}

#[test]
fn tampering_with_a_steady_status_is_put_right_and_a_fight_over_it_slowed() {
    let mut server = Server::new(Crd::WebApp);
    let (mut flapping, start, status) = (Flapping::default(), Instant::now(), ready(2));
    let (mut written, mut named) = (Vec::new(), Vec::new());
    for second in 0..100 {
        let now = start + Duration::from_secs(second);
        let Some(patch) = server.plan(Some(&status), Some(&settled()), NOW).patch else {
            panic!("it was changed back")
        };
        match flapping.judge(now, &said(1, Some(&status)), &patch) {
            Verdict::Write => {
                server.patch(&patch);
                assert!(flapping.written(now, server.plan(Some(&status), Some(&settled()), NOW).patch).is_empty());
                server.write_as("somebody", &json!({ "readyReplicas": 99 }));
                written.push(second);
            }
            Verdict::Fought { fields, .. } => named = fields,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(written, [0, 1, 2, 3, 4, 5, 6, 8, 12, 20, 36, 68], "the first, five reverts, then at growing intervals");
    assert_eq!(named, ["status.readyReplicas"]);
}

#[test]
fn what_the_server_puts_back_is_tried_once() {
    let mut server = Server::new(Crd::WebApp);
    server.defaults = Some(json!({ "phase": "Pending" }));
    let (mut flapping, now) = (Flapping::default(), Instant::now());
    let mut writes = 0;
    for _ in 0..10 {
        // Our own write brought the default, so that it counts as ours.
        let Some(patch) = server.plan(Some(&ready(2)), Some(&settled()), NOW).patch else { break };
        match flapping.judge(now, &said(1, Some(&ready(2))), &patch) {
            Verdict::Write => {
                server.patch(&patch);
                writes += 1;
                let left = server.plan(Some(&ready(2)), Some(&settled()), NOW).patch;
                assert_eq!(flapping.written(now, left), ["status.phase"]);
            }
            Verdict::Futile { fields } => assert_eq!(fields, ["status.phase"]),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(writes, 1);
}

/// As where a schema lists the condition types that it takes.
#[test]
fn a_condition_that_is_never_taken_is_not_tried_again_at_another_time() {
    let server = Server::new(Crd::WebApp);
    let mut flapping = Flapping::default();
    let plan = |now| server.plan(None, Some(&settled()), now).patch;
    assert_eq!(flapping.written(Instant::now(), plan(NOW)), ["status.conditions[type=\"Reconciled\"]"]);
    let later = plan("2026-01-01T10:00:00Z").expect("it is still wanted");
    assert!(matches!(flapping.judge(Instant::now(), &said(0, None), &later), Verdict::Futile { .. }));
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        (-3..3i64).prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from)
    ];
    leaf.prop_recursive(2, 8, 3, |below| {
        prop_oneof![
            prop::collection::vec(below.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-c]", below, 0..3)
                .prop_map(|fields| fields.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
}

fn module_status() -> impl Strategy<Value = ModuleStatus> {
    let fields = (prop::option::of(0..4i64), prop::collection::btree_map("[a-c]", json_value(), 0..3));
    let status = prop::sample::select(vec![ConditionStatus::True, ConditionStatus::False, ConditionStatus::Unknown]);
    let conditions = DECLARED.map(|type_| {
        prop::option::of((status.clone(), "[xy]"))
            .prop_map(move |said| said.map(|(status, text)| condition(type_, status, &text)))
    });
    (fields, conditions).prop_map(|((replicas, fields), conditions)| {
        let mut fields: Map<String, Value> = fields.into_iter().collect();
        fields.extend(replicas.map(|replicas| ("readyReplicas".into(), replicas.into())));
        module(fields.into(), conditions.into_iter().flatten().collect())
    })
}

#[derive(Clone, Debug)]
enum Event {
    Settled(ModuleStatus),
    Unsettled,
    Generation,
    Foreign(String, Value),
    ForeignCondition(String),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => module_status().prop_map(Event::Settled),
        1 => Just(Event::Unsettled),
        1 => Just(Event::Generation),
        1 => ("[a-e]", json_value()).prop_map(|(name, value)| Event::Foreign(name, value)),
        1 => "[ST]".prop_map(Event::ForeignCondition),
    ]
}

proptest! {
    /// `converge` fails where a second plan on equal input writes.
    #[test]
    fn equal_input_never_writes_twice(
        crd in prop::sample::select(Crd::ALL.to_vec()),
        events in prop::collection::vec(event(), 1..12),
    ) {
        let mut server = Server::new(crd);
        for event in events {
            match event {
                Event::Settled(status) => {
                    server.converge(Some(&status), &settled(), NOW);
                    server.check_holds(&status);
                }
                Event::Unsettled => {
                    let before = server.object["status"].clone();
                    server.converge(None, &failed("Waiting"), LATER);
                    server.check_only_reconciled_moved(&before);
                }
                Event::Generation => {
                    let generation = server.object["metadata"]["generation"].as_i64().unwrap_or_default();
                    server.object["metadata"]["generation"] = (generation + 1).into();
                }
                Event::Foreign(name, value) => server.write_as("somebody", &json!({ name: value })),
                Event::ForeignCondition(type_) => server.add_condition("somebody", &type_),
            }
            server.check_foreign_conditions();
        }
    }
}
