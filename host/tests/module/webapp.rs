//! The WebApp module in each form that cargo builds.

use std::process::Command;

use operator_core::contract::{ConditionStatus, Snapshot, TypeRef};
use operator_host::module::{Module, ModuleKind};
use serde_json::{Value, json};

use crate::support::{key, load, outcome, target, webapp, workspace};

fn snapshot() -> Snapshot {
    let primary = json!({
        "apiVersion": "webapp.example.com/v1",
        "kind": "WebApp",
        "metadata": {"namespace": "shop", "name": "shop", "uid": "5f0c1f9e", "generation": 1},
        "spec": {"image": "nginx:1.27", "replicas": 2, "port": 8080},
    });
    Snapshot {
        primary: primary.to_string().into(),
        children: vec![],
        related: vec![],
        observation: None,
        unavailable: vec![],
    }
}

#[track_caller]
fn assert_is_webapp(module: &Module) {
    assert_eq!(module.descriptor().primary, TypeRef::new("webapp.example.com/v1", "WebApp"));
    assert_eq!(module.contract_version(), "0.1.0");
    assert!(module.is_pooled());
    let outcome = outcome(module.reconcile(&key(), &snapshot(), 0));
    let objects: Vec<Value> =
        outcome.children.unwrap().iter().map(|child| serde_json::from_str(&child.object).unwrap()).collect();
    let kinds: Vec<_> = objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Deployment", "Service"]);
    let status = outcome.status.unwrap();
    assert_eq!(status.conditions[0].status, ConditionStatus::False);
    assert_eq!(status.conditions[0].message, "0/2 replicas ready");
}

#[test]
fn a_core_module_runs() {
    let module = load(&webapp("wasm32-unknown-unknown")).unwrap();
    assert_eq!(module.kind(), ModuleKind::CoreModule);
    assert_is_webapp(&module);
}

#[test]
fn a_component_of_wasip2_runs() {
    let module = load(&webapp("wasm32-wasip2")).unwrap();
    assert_eq!(module.kind(), ModuleKind::Component);
    assert_is_webapp(&module);
}

#[test]
fn a_core_module_of_wasip1_gets_its_adapter() {
    let module = load(&webapp("wasm32-wasip1")).unwrap();
    assert_eq!(module.kind(), ModuleKind::CoreModuleWithWasi);
    assert_is_webapp(&module);
}

#[test]
#[ignore = "needs cargo-component: make test-guests installs it and runs this too"]
fn a_component_of_cargo_component_runs() {
    // A folder of its own: it puts the component where cargo's module was, and writes `src/bindings.rs`, which git ignores.
    let target = target().join("cargo-component");
    let status = Command::new("cargo-component")
        .current_dir(workspace())
        .args(["build", "--quiet", "--profile", "guest", "-p", "webapp"])
        .env("CARGO_TARGET_DIR", &target)
        .status()
        .unwrap();
    assert!(status.success(), "cargo component build: {status}");
    let module = load(&target.join("wasm32-wasip1/guest/webapp.wasm")).unwrap();
    assert_eq!(module.kind(), ModuleKind::Component);
    assert_is_webapp(&module);
}
