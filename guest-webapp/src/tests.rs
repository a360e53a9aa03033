//! What a WebApp becomes, seen from the host's side.

use operator_guest::testing::Call;
use operator_guest::{ConditionStatus, Failure, OnImmutable, OnPrune, Operator, Outcome};
use serde_json::{Value, json};

use crate::WebApp;

fn web_app(spec: Value) -> Call {
    Call::new(json!({
        "apiVersion": "webapp.example.com/v1",
        "kind": "WebApp",
        "metadata": { "name": "shop", "namespace": "default", "uid": "1", "generation": 4 },
        "spec": spec,
    }))
}

fn shop() -> Call {
    web_app(json!({ "image": "nginx:1.27", "replicas": 2, "port": 8080 }))
}

/// The Deployment of `shop` as the server holds it, with the given status.
fn deployment(replicas: i32, status: Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "shop", "namespace": "default", "uid": "2", "generation": 7 },
        "spec": { "replicas": replicas },
        "status": status,
    })
}

/// (status, reason, message, readyReplicas)
fn seen(outcome: &Outcome) -> (ConditionStatus, &str, &str, Value) {
    let status = outcome.status.as_ref().expect("a WebApp always reports");
    let [ready] = status.conditions.as_slice() else { panic!("one condition: {:?}", status.conditions) };
    assert_eq!(ready.type_, "Ready");
    (ready.status, &ready.reason, &ready.message, status.fields_json()["readyReplicas"].clone())
}

fn failed(call: Call) -> Failure {
    call.reconcile::<WebApp>().expect_err("this WebApp can't be reconciled")
}

#[test]
fn a_new_web_app_wants_a_deployment_and_a_service_of_its_name() {
    let outcome = shop().reconcile::<WebApp>().unwrap();
    assert_eq!(
        outcome.objects(),
        [
            json!({
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": { "name": "shop", "labels": { "app": "shop" } },
                "spec": {
                    "replicas": 2,
                    "selector": { "matchLabels": { "app": "shop" } },
                    "template": {
                        "metadata": { "labels": { "app": "shop" } },
                        "spec": {
                            "containers": [
                                { "name": "web", "image": "nginx:1.27", "ports": [{ "containerPort": 8080 }] },
                            ],
                        },
                    },
                },
            }),
            json!({
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": { "name": "shop", "labels": { "app": "shop" } },
                "spec": { "selector": { "app": "shop" }, "ports": [{ "port": 80, "targetPort": 8080 }] },
            }),
        ]
    );
    for child in outcome.children.as_ref().unwrap() {
        assert_eq!((child.on_immutable, child.on_prune), (OnImmutable::Fail, OnPrune::Orphan));
    }
    assert_eq!(outcome.requeue_after, None, "a WebApp needs no timer");
}

#[test]
fn the_status_counts_zero_ready_replicas_too() {
    let outcome = shop().reconcile::<WebApp>().unwrap();
    assert_eq!(seen(&outcome), (ConditionStatus::False, "ReplicasNotReady", "0/2 replicas ready", json!(0)));
}

#[test]
fn ready_needs_every_replica_of_the_latest_template_observed_and_ready() {
    let rolled_out = json!({ "observedGeneration": 7, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2 });
    let cases = [
        ("rolled out", 2, rolled_out.clone(), ConditionStatus::True, 2),
        ("no status yet", 2, json!({}), ConditionStatus::False, 0),
        ("one is not ready", 2, with(&rolled_out, "readyReplicas", 1), ConditionStatus::False, 1),
        ("one is of an older template", 2, with(&rolled_out, "updatedReplicas", 1), ConditionStatus::False, 2),
        ("an old pod is left", 2, with(&rolled_out, "replicas", 3), ConditionStatus::False, 2),
        ("the latest spec is not observed", 2, with(&rolled_out, "observedGeneration", 6), ConditionStatus::False, 2),
        ("scaled by somebody", 3, rolled_out.clone(), ConditionStatus::False, 2),
    ];
    for (case, replicas, status, ready, count) in cases {
        let outcome = shop().child(deployment(replicas, status)).reconcile::<WebApp>().unwrap();
        let reason = if ready == ConditionStatus::True { "ReplicasReady" } else { "ReplicasNotReady" };
        let message = format!("{count}/2 replicas ready");
        assert_eq!(seen(&outcome), (ready, reason, message.as_str(), json!(count)), "{case}");
    }
}

#[test]
fn a_deployment_that_is_being_deleted_is_not_ready() {
    let status = json!({ "observedGeneration": 7, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2 });
    let mut terminating = deployment(2, status);
    terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let outcome = shop().child(terminating).reconcile::<WebApp>().unwrap();
    assert_eq!(seen(&outcome).0, ConditionStatus::False);
}

#[test]
fn what_lives_does_not_change_what_is_wanted() {
    let live = deployment(9, json!({ "observedGeneration": 7, "readyReplicas": 9 }));
    let wanted = shop().reconcile::<WebApp>().unwrap().children;
    assert_eq!(shop().child(live).reconcile::<WebApp>().unwrap().children, wanted);
}

#[test]
fn a_spec_that_does_not_decode_names_the_field() {
    let cases = [
        (json!({ "replicas": 1, "port": 80 }), "spec: missing field `image`"),
        (json!({ "image": "nginx", "port": 80 }), "spec: missing field `replicas`"),
        (json!({ "image": "nginx", "replicas": 1 }), "spec: missing field `port`"),
        (
            json!({ "image": "nginx", "replicas": "two", "port": 80 }),
            "spec.replicas: invalid type: string \"two\", expected i32",
        ),
    ];
    for (spec, message) in cases {
        let failure = failed(web_app(spec));
        assert_eq!((failure.terminal, failure.reason.as_str()), (true, "InvalidSpec"));
        assert_eq!(failure.message, message);
    }
}

#[test]
fn a_name_that_a_service_or_a_label_cannot_carry_is_refused() {
    let long = "a".repeat(64);
    for name in ["1shop", "shop.front", "shop-", &long] {
        let failure = failed(Call::new(json!({
            "metadata": { "name": name, "namespace": "default" },
            "spec": { "image": "nginx", "replicas": 1, "port": 80 },
        })));
        assert_eq!((failure.terminal, failure.reason.as_str()), (true, "InvalidName"), "{name}");
        assert!(failure.message.starts_with(&format!("metadata.name: {name:?}")), "{}", failure.message);
    }
    let longest = "a".repeat(63);
    let call = Call::new(json!({
        "metadata": { "name": longest, "namespace": "default" },
        "spec": { "image": "nginx", "replicas": 1, "port": 80 },
    }));
    assert!(call.reconcile::<WebApp>().is_ok());
}

#[test]
fn it_describes_what_it_manages() {
    let descriptor = WebApp::describe();
    assert_eq!((descriptor.name.as_str(), descriptor.primary.kind.as_str()), ("webapp", "WebApp"));
    assert_eq!(descriptor.condition_types, ["Ready"]);
    let children: Vec<_> = descriptor.children.iter().map(|child| (&*child.api_version, &*child.kind)).collect();
    assert_eq!(children, [("apps/v1", "Deployment"), ("v1", "Service")]);

    let crd: Value = serde_json::from_str(&descriptor.crds[0]).unwrap();
    let version = &crd["spec"]["versions"][0];
    assert_eq!(crd["spec"]["names"]["shortNames"], json!(["wa"]));
    assert_eq!(version["subresources"]["status"], json!({}));
    assert_eq!(version["subresources"]["scale"]["statusReplicasPath"], ".status.readyReplicas");
    let columns = version["additionalPrinterColumns"].as_array().unwrap();
    assert_eq!(columns.iter().map(|column| &column["name"]).collect::<Vec<_>>(), ["Replicas", "Ready", "Age"]);

    let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
    assert_eq!(spec["required"], json!(["image"]));
    assert_eq!(spec["properties"]["image"]["minLength"], 1);
    let limits = |field: &str| {
        let field = &spec["properties"][field];
        [&field["minimum"], &field["maximum"], &field["default"]].map(|number| number.as_f64().unwrap())
    };
    assert_eq!(limits("replicas"), [1.0, 50.0, 1.0]);
    assert_eq!(limits("port"), [1.0, 65535.0, 8080.0]);
}

fn with(status: &Value, field: &str, value: i32) -> Value {
    let mut status = status.clone();
    status[field] = json!(value);
    status
}
