//! What a WebApp becomes, seen from the host's side.

use operator_guest::testing::Call;
use operator_guest::{ConditionStatus, EventType, Operator, Outcome};
use serde_json::{Value, json};

use crate::WebApp;

fn web_app(spec: Value, status: Value) -> Call {
    Call::new(json!({
        "apiVersion": "apps.example.com/v1",
        "kind": "WebApp",
        "metadata": { "name": "my-service", "namespace": "default", "uid": "1", "generation": 4 },
        "spec": spec,
        "status": status,
    }))
}

fn my_service() -> Call {
    web_app(json!({ "image": "web:1", "replicas": 5, "port": 8080 }), json!({ "observedGeneration": 3 }))
}

fn deployment(replicas: i32, image: &str, ready: i32) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "my-service-deployment", "namespace": "default", "generation": 2 },
        "spec": {
            "replicas": replicas,
            "template": {
                "spec": { "containers": [{ "name": "app", "image": image, "ports": [{ "containerPort": 8080 }] }] },
            },
        },
        "status": { "observedGeneration": 2, "replicas": 5, "updatedReplicas": 5, "readyReplicas": ready },
    })
}

/// (status, reason, message, readyReplicas)
fn seen(outcome: &Outcome) -> (ConditionStatus, &str, &str, Value) {
    let status = outcome.status.as_ref().expect("a WebApp always reports");
    let [available] = status.conditions.as_slice() else { panic!("one condition: {:?}", status.conditions) };
    assert_eq!(available.type_, "Available");
    (available.status, &available.reason, &available.message, status.fields_json()["readyReplicas"].clone())
}

#[test]
fn a_web_app_is_a_deployment_with_the_labels_of_its_operator() {
    let labels = json!({ "app": "my-service", "managed-by": "webapp-operator" });
    assert_eq!(
        my_service().reconcile::<WebApp>().unwrap().objects(),
        [json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": { "name": "my-service-deployment", "labels": labels },
            "spec": {
                "replicas": 5,
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": {
                        "containers": [{ "name": "app", "image": "web:1", "ports": [{ "containerPort": 8080 }] }],
                    },
                },
            },
        })]
    );
}

#[test]
fn it_is_available_when_its_deployment_is_rolled_out() {
    let outcome = my_service().reconcile::<WebApp>().unwrap();
    let not_ready = "DeploymentNotReady";
    assert_eq!(seen(&outcome), (ConditionStatus::False, not_ready, "0/5 replicas are available", json!(0)));
    let outcome = my_service().child(deployment(5, "web:1", 3)).reconcile::<WebApp>().unwrap();
    assert_eq!(seen(&outcome), (ConditionStatus::False, not_ready, "3/5 replicas are available", json!(3)));
    let outcome = my_service().child(deployment(5, "web:1", 5)).reconcile::<WebApp>().unwrap();
    assert_eq!(seen(&outcome), (ConditionStatus::True, "DeploymentReady", "All replicas are available", json!(5)));
}

#[test]
fn each_spec_is_an_event_once_its_deployment_is_written() {
    let events = |call: Call| call.reconcile::<WebApp>().unwrap().events;
    assert_eq!(events(my_service()), [], "nothing is written yet");
    assert_eq!(events(my_service().child(deployment(5, "web:0", 5))), [], "the old image still runs");
    assert_eq!(events(my_service().child(deployment(7, "web:1", 5))), [], "somebody else's replicas");

    let written = events(my_service().child(deployment(5, "web:1", 0)));
    let [event] = written.as_slice() else { panic!("one event: {written:?}") };
    assert_eq!((event.type_, event.reason.as_str()), (EventType::Normal, "Reconciled"));
    assert_eq!(event.message, "Deployment my-service-deployment updated to 5 replicas");

    let spec = json!({ "image": "web:1", "replicas": 5, "port": 8080 });
    let reported = web_app(spec, json!({ "observedGeneration": 4 })).child(deployment(5, "web:1", 0));
    assert_eq!(events(reported), [], "it was said");
}

#[test]
fn what_is_missing_is_named() {
    let cases = [
        (json!({ "replicas": 1, "port": 80 }), "spec: missing field `image`"),
        (json!({ "image": "web", "port": 80 }), "spec: missing field `replicas`"),
        (json!({ "image": "web", "replicas": 1 }), "spec: missing field `port`"),
    ];
    for (spec, message) in cases {
        let failure = web_app(spec, json!({})).reconcile::<WebApp>().unwrap_err();
        assert_eq!((failure.terminal, failure.reason.as_str()), (true, "InvalidSpec"));
        assert_eq!(failure.message, message);
    }
}

#[test]
fn a_name_that_no_label_can_carry_is_refused() {
    let named = |name: &str| {
        Call::new(json!({
            "metadata": { "name": name },
            "spec": { "image": "web", "replicas": 1, "port": 80 },
        }))
    };
    let failure = named(&"a".repeat(64)).reconcile::<WebApp>().unwrap_err();
    assert_eq!((failure.terminal, failure.reason.as_str()), (true, "InvalidName"));
    assert!(named(&"a".repeat(63)).reconcile::<WebApp>().is_ok());
}

#[test]
fn its_schema_stores_an_incomplete_web_app() {
    let descriptor = WebApp::describe();
    assert_eq!(
        (descriptor.name.as_str(), descriptor.condition_types.as_slice()),
        ("webapp-operator", &["Available".to_owned()][..])
    );
    let crd: Value = serde_json::from_str(&descriptor.crds[0]).unwrap();
    let version = &crd["spec"]["versions"][0];
    assert_eq!(version["subresources"], json!({ "status": {} }));
    let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
    assert_eq!(spec.get("required"), None);
    for field in ["image", "replicas", "port"] {
        assert_eq!(spec["properties"][field].get("default"), None, "{field}");
    }
    assert_eq!(spec["properties"]["replicas"]["minimum"], 1);
}
