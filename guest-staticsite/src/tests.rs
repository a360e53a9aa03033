//! What a StaticSite becomes, seen from the host's side.

use operator_guest::testing::Call;
use operator_guest::{ConditionStatus, Operator, Outcome};
use serde_json::{Value, json};

use crate::StaticSite;
use crate::children::CONTENT;

const PAGE: &str = "<h1>hello</h1>";

fn site(spec: Value) -> Call {
    named("hello", spec)
}

fn named(name: &str, spec: Value) -> Call {
    Call::new(json!({
        "apiVersion": "learn.cloudcaptain.io/v1alpha1",
        "kind": "StaticSite",
        "metadata": { "name": name, "namespace": "sites", "uid": "1", "generation": 4 },
        "spec": spec,
    }))
}

fn hello() -> Call {
    site(json!({ "content": PAGE, "replicas": 2, "tier": "dev" }))
}

/// The Deployment of `hello` as the server holds it, with the given status.
fn deployment(replicas: i32, status: Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "hello", "namespace": "sites", "uid": "2", "generation": 7 },
        "spec": { "replicas": replicas },
        "status": status,
    })
}

/// (status, reason, message) of `Ready`.
fn ready(outcome: &Outcome) -> (ConditionStatus, &str, &str) {
    let status = outcome.status.as_ref().expect("a site always reports");
    let [ready] = status.conditions.as_slice() else { panic!("one condition: {:?}", status.conditions) };
    assert_eq!(ready.type_, "Ready");
    (ready.status, &ready.reason, &ready.message)
}

fn hash_of(content: &str) -> String {
    let outcome = site(json!({ "content": content, "replicas": 1, "tier": "dev" })).reconcile::<StaticSite>().unwrap();
    let deployment = outcome.object("Deployment", "hello").unwrap();
    deployment["spec"]["template"]["metadata"]["annotations"][CONTENT].as_str().unwrap().to_owned()
}

#[test]
fn a_site_is_a_page_the_pods_that_serve_it_and_a_service() {
    let selector = json!({ "app.kubernetes.io/name": "staticsite", "app.kubernetes.io/instance": "hello" });
    let mut labels = selector.clone();
    labels["app.kubernetes.io/managed-by"] = json!("minioperator");
    let metadata = json!({ "name": "hello", "labels": labels });
    let hash = "4db7ef630005c462450ea587722b1a7cff53dfdcd35d7dd40bcf8e97e50826ee";
    assert_eq!(
        hello().reconcile::<StaticSite>().unwrap().objects(),
        [
            json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": metadata,
                "data": { "index.html": PAGE },
            }),
            json!({
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": metadata,
                "spec": {
                    "replicas": 2,
                    "selector": { "matchLabels": selector },
                    "template": {
                        "metadata": { "labels": labels, "annotations": { CONTENT: hash } },
                        "spec": {
                            "containers": [{
                                "name": "nginx",
                                "image": "nginx:1.30-alpine",
                                "ports": [{ "name": "http", "containerPort": 80 }],
                                "readinessProbe": { "httpGet": { "path": "/", "port": "http" } },
                                "volumeMounts": [
                                    { "name": "content", "mountPath": "/usr/share/nginx/html", "readOnly": true },
                                ],
                            }],
                            "volumes": [{ "name": "content", "configMap": { "name": "hello" } }],
                        },
                    },
                },
            }),
            json!({
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": metadata,
                "spec": { "selector": selector, "ports": [{ "name": "http", "port": 80, "targetPort": "http" }] },
            }),
        ]
    );
}

#[test]
fn other_content_is_another_template_and_the_same_content_is_the_same() {
    assert_eq!(hash_of(PAGE), hash_of(PAGE));
    assert_ne!(hash_of(PAGE), hash_of("<h1>hello!</h1>"));
    // The same as `printf %s abc | sha256sum` in any build and on any machine.
    assert_eq!(hash_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

#[test]
fn ready_is_what_rollout_status_would_say() {
    let rolled_out = json!({ "observedGeneration": 7, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2 });
    let (yes, no) = (ConditionStatus::True, ConditionStatus::False);
    let cases = [
        ("rolled out", 2, json!({}), yes, "Available", "2/2 pods ready at http://hello.sites.svc"),
        ("one is not ready", 2, json!({ "readyReplicas": 1 }), no, "PodsNotReady", "1/2 pods ready"),
        (
            "one is of an older template",
            2,
            json!({ "updatedReplicas": 1 }),
            no,
            "RollingOut",
            "1/2 pods run the current template",
        ),
        ("an old pod is left", 2, json!({ "replicas": 3 }), no, "RollingOut", "2/2 pods run the current template"),
        (
            "the latest spec is not observed",
            2,
            json!({ "observedGeneration": 6 }),
            no,
            "RollingOut",
            "0/2 pods run the current template",
        ),
        ("scaled by somebody", 7, json!({}), no, "RollingOut", "0/2 pods run the current template"),
    ];
    for (case, replicas, change, status, reason, message) in cases {
        let mut live = rolled_out.clone();
        live.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let outcome = hello().child(deployment(replicas, live)).reconcile::<StaticSite>().unwrap();
        assert_eq!(ready(&outcome), (status, reason, message), "{case}");
    }
    let new = hello().reconcile::<StaticSite>().unwrap();
    assert_eq!(ready(&new), (no, "RollingOut", "0/2 pods run the current template"));
    let mut terminating = deployment(2, rolled_out);
    terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let outcome = hello().child(terminating).reconcile::<StaticSite>().unwrap();
    assert_eq!(ready(&outcome), (no, "RollingOut", "0/2 pods run the current template"));
}

#[test]
fn the_status_says_where_the_site_is_once_its_record_is_published() {
    let fields = |call: Call| call.reconcile::<StaticSite>().unwrap().status.unwrap().fields_json();
    assert_eq!(fields(hello()), json!({ "readyReplicas": 0 }));
    let published = json!({ "namespace": "sites", "name": "hello", "url": "http://hello.sites.svc" });
    assert_eq!(fields(hello().observation(published)), json!({ "readyReplicas": 0, "url": "http://hello.sites.svc" }));
}

#[test]
fn it_claims_nothing_for_itself() {
    for object in hello().reconcile::<StaticSite>().unwrap().objects() {
        let fields: Vec<&String> = object["metadata"].as_object().unwrap().keys().collect();
        assert_eq!(fields, ["labels", "name"], "who owns an object is the host's to say, and to look at: {object}");
    }
}

#[test]
fn a_name_that_a_service_or_a_label_cannot_carry_is_refused_before_anything_is_published() {
    let long = "a".repeat(64);
    for name in ["1site", "blog.front", "blog-", &long] {
        let call = named(name, json!({ "content": PAGE, "replicas": 1, "tier": "dev" }));
        for failure in [call.clone().reconcile::<StaticSite>().unwrap_err(), call.ensure::<StaticSite>().unwrap_err()] {
            assert_eq!((failure.terminal, failure.reason.as_str()), (true, "InvalidName"), "{name}");
        }
    }
}

#[test]
fn a_folder_that_is_not_granted_is_a_failure_that_names_the_record() {
    let failure = hello().ensure::<StaticSite>().unwrap_err();
    assert_eq!((failure.terminal, failure.reason.as_str()), (false, "RecordFailed"));
    assert!(failure.message.starts_with("the record sites_hello.json can't be published: "), "{failure}");
    let failure = site(json!({})).remove::<StaticSite>().unwrap_err();
    assert!(failure.message.starts_with("the record sites_hello.json can't be removed: "), "{failure}");
}

#[test]
fn it_describes_what_it_manages_and_asks_for() {
    let descriptor = StaticSite::describe();
    assert_eq!((descriptor.name.as_str(), descriptor.primary.kind.as_str()), ("staticsite", "StaticSite"));
    assert_eq!(descriptor.finalizer.as_deref(), Some("learn.cloudcaptain.io/external-record"));
    assert_eq!(
        (descriptor.capabilities[0].name.as_str(), descriptor.capabilities[0].target.as_str()),
        ("records", "/records")
    );
    let children: Vec<_> = descriptor.children.iter().map(|child| (&*child.api_version, &*child.kind)).collect();
    assert_eq!(children, [("v1", "ConfigMap"), ("apps/v1", "Deployment"), ("v1", "Service")]);

    let crd: Value = serde_json::from_str(&descriptor.crds[0]).unwrap();
    let version = &crd["spec"]["versions"][0];
    assert_eq!(crd["spec"]["names"]["shortNames"], json!(["site"]));
    assert_eq!(version["subresources"], json!({ "status": {} }));
    let columns = version["additionalPrinterColumns"].as_array().unwrap();
    let columns: Vec<_> = columns.iter().map(|column| &column["name"]).collect();
    assert_eq!(columns, ["Replicas", "Ready", "Reason", "Age"]);
}
