//! What one call of a module costs: a fresh instance, a snapshot of about 6 KB, one thread.
//!
//! `cargo bench -p operator-host --bench module_call -- path/to/module.wasm`; without a path it uses the WebApp module
//! that `cargo build --release --target wasm32-unknown-unknown -p webapp` leaves.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use operator_core::contract::{Key, LiveObject, ObjectName, Snapshot, TypeRef};
use operator_host::module::{Module, Runtime, RuntimeOptions};

const WARM_UP: usize = 2_000;
const CALLS: usize = 20_000;

fn main() -> anyhow::Result<()> {
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let path =
        wanted.map_or_else(|| PathBuf::from("../target/wasm32-unknown-unknown/release/webapp.wasm"), PathBuf::from);
    let options = RuntimeOptions { compiler: Some(env!("CARGO_BIN_EXE_operator").into()), ..RuntimeOptions::default() };
    let runtime = Runtime::new(options)?;
    let module = runtime.load(&[path]).remove(0)?;
    let (key, snapshot) = webapp();
    let bytes = snapshot.primary.len() + snapshot.children.iter().map(|child| child.json.len()).sum::<usize>();
    println!(
        "{} ({}), snapshot of {bytes} bytes, pooled: {}",
        module.descriptor().name,
        module.kind().as_str(),
        module.is_pooled()
    );

    let mut walls: Vec<Duration> = Vec::with_capacity(CALLS);
    let mut cpu = Duration::ZERO;
    let started = Instant::now();
    for call in 0..WARM_UP + CALLS {
        let report = call_once(&module, &key, &snapshot)?;
        if call >= WARM_UP {
            walls.push(report.0);
            cpu += report.1;
        }
    }
    walls.sort_unstable();
    let percentile = |p: usize| walls[walls.len() * p / 100];
    println!(
        "{} calls in {:?}: p50 {:?}, p90 {:?}, p99 {:?}, CPU {:?} a call",
        walls.len(),
        started.elapsed(),
        percentile(50),
        percentile(90),
        percentile(99),
        cpu / CALLS as u32
    );
    Ok(())
}

fn call_once(module: &Arc<Module>, key: &Key, snapshot: &Snapshot) -> anyhow::Result<(Duration, Duration)> {
    let report = module.reconcile(key, snapshot, 0);
    let outcome = report.result?.map_err(|failure| anyhow::anyhow!("{}: {}", failure.reason, failure.message))?;
    anyhow::ensure!(outcome.children.is_some_and(|children| children.len() == 2), "the WebApp wants two children");
    Ok((report.wall, report.cpu))
}

/// A WebApp with its Deployment and Service as the API server stores them, managedFields cut out.
fn webapp() -> (Key, Snapshot) {
    let name = ObjectName::new(Some("shop"), "shop");
    let key = Key { name: name.clone(), uid: "5f0c1f9e-6a55-4e8e-9f59-0a7a0a3f3f01".into() };
    let live = |api_version: &str, kind: &str, json: String| LiveObject {
        type_ref: TypeRef::new(api_version, kind),
        name: name.clone(),
        json: json.into(),
    };
    let meta = |kind: &str| {
        serde_json::json!({
            "name": "shop", "namespace": "shop", "uid": format!("uid-of-{kind}"), "resourceVersion": "4711", "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "shop", "operatorhost.dev/installation": "default"},
            "annotations": {
                "deployment.kubernetes.io/revision": "3",
                "operatorhost.dev/desired": "v1:0123456789abcdef0123456789abcdef",
                "example.com/filler": "x".repeat(1200),
            },
            "ownerReferences": [{"apiVersion": "webapp.example.com/v1", "kind": "WebApp", "name": "shop", "uid": key.uid,
                "controller": true, "blockOwnerDeletion": true}],
        })
    };
    let condition = |type_: &str| {
        serde_json::json!({"type": type_, "status": "True", "reason": "MinimumReplicasAvailable",
            "message": "Deployment has minimum availability.", "lastUpdateTime": "2026-01-01T00:00:00Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let primary = serde_json::json!({
        "apiVersion": "webapp.example.com/v1", "kind": "WebApp", "metadata": meta("WebApp"),
        "spec": {"image": "nginx:1.27", "replicas": 3, "port": 8080},
        "status": {"readyReplicas": 3, "observedGeneration": 3, "conditions": [condition("Ready"), condition("Reconciled")]},
    });
    let deployment = serde_json::json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("Deployment"),
        "spec": {
            "replicas": 3, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
            "selector": {"matchLabels": {"app": "shop"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": {
                "metadata": {"labels": {"app": "shop"}},
                "spec": {
                    "containers": [{"name": "web", "image": "nginx:1.27", "imagePullPolicy": "IfNotPresent",
                        "ports": [{"containerPort": 8080, "protocol": "TCP"}], "resources": {},
                        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}],
                    "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
                    "securityContext": {}, "terminationGracePeriodSeconds": 30,
                },
            },
        },
        "status": {"replicas": 3, "readyReplicas": 3, "updatedReplicas": 3, "availableReplicas": 3, "observedGeneration": 3,
            "conditions": [condition("Available"), condition("Progressing")]},
    });
    let service = serde_json::json!({
        "apiVersion": "v1", "kind": "Service", "metadata": meta("Service"),
        "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.17", "clusterIPs": ["10.0.0.17"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster", "sessionAffinity": "None",
            "selector": {"app": "shop"}, "ports": [{"port": 80, "targetPort": 8080, "protocol": "TCP"}]},
        "status": {"loadBalancer": {}},
    });
    let children =
        vec![live("apps/v1", "Deployment", deployment.to_string()), live("v1", "Service", service.to_string())];
    (
        key,
        Snapshot {
            primary: primary.to_string().into(),
            children,
            related: vec![],
            observation: None,
            unavailable: vec![],
        },
    )
}
