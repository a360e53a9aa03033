//! Modules that misbehave: one bad object stays one bad object.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use operator_e2e::client::CONFIG_MAPS;
use operator_e2e::objects::{PROBES, WIDGET_CRD, WIDGETS, config_map, wanting};
use operator_e2e::{Probes, Result, eventually};
use serde_json::{Value, json};

const HEALTHY: usize = 50;
const PATIENCE: Duration = Duration::from_secs(60);

/// What must be said of a behaviour: the condition's reason, and a text within its message.
const BAD: [(&str, &str, &str); 11] = [
    ("loop", "ModuleTimeout", "CPU time (--cpu-timeout)"),
    ("sleep-loop", "ModuleTimeout", ""),
    ("eat-memory", "ModuleOutOfMemory", "64 MiB"),
    ("overflow-stack", "ModuleTrapped", "the module's stack is full"),
    ("panic", "ModuleTrapped", "the probe panic panics on purpose"),
    ("trap", "ModuleTrapped", "the module aborted"),
    ("big-output", "LimitExceeded", "larger than 8 MiB"),
    ("deep-json", "InvalidOutcome", "is not valid JSON"),
    ("invalid-json", "InvalidOutcome", "is not valid JSON"),
    ("undeclared-type", "InvalidOutcome", "PersistentVolumeClaim.v1 is not among the children"),
    ("other-namespace", "InvalidOutcome", "metadata.namespace is \"kube-public\""),
];

async fn names_with(probes: &Probes, value: &str) -> Result<BTreeSet<String>> {
    let objects = probes.client.list(&CONFIG_MAPS, &probes.namespace, "").await?;
    let healthy = objects.iter().filter(|object| object["data"]["key"] == value);
    Ok(healthy.filter_map(|object| object["metadata"]["name"].as_str().map(str::to_owned)).collect())
}

#[tokio::test]
async fn each_bad_key_says_why_and_backs_off_while_every_other_key_is_served() -> Result<()> {
    let probes = Probes::start_wasi("bad", &["--cpu-timeout=300ms", "--workers=2"]).await?;
    for index in 0..HEALTHY {
        probes.want(&format!("healthy-{index}"), &[config_map(&format!("healthy-{index}"), "1")]).await?;
    }
    for (name, ..) in BAD {
        probes.create(name, json!({"behaviour": name, "data": {"key": "sound"}})).await?;
    }
    for (name, reason, text) in BAD {
        let (found, message) = probes.refused(name).await;
        assert_eq!(found, reason, "{name}: {message}");
        assert!(message.contains(text), "{name}: {message}");
    }

    // All of them still fail again and again; a change of each healthy key is served meanwhile.
    let began = Instant::now();
    for index in 0..HEALTHY {
        let name = format!("healthy-{index}");
        probes.set(&name, wanting(&[config_map(&name, "2")])).await?;
    }
    eventually("every healthy key is served", PATIENCE, || async {
        let served = names_with(&probes, "2").await?.len();
        if served == HEALTHY { Ok(()) } else { Err(anyhow::anyhow!("{served} of {HEALTHY}")) }
    })
    .await;
    let served_in = began.elapsed();
    assert!(served_in < Duration::from_secs(20), "{HEALTHY} healthy keys took {served_in:?}");

    let counts: Vec<(&str, usize)> = BAD.iter().map(|(name, ..)| (*name, probes.passes_of(name))).collect();
    assert!(counts.iter().all(|(_, passes)| (1..=16).contains(passes)), "5 ms doubling, no hot loop: {counts:?}");
    // The pass that runs just now may have said it already.
    let log = probes.host.log();
    let (said, passes) = (log.matches("panics on purpose").count(), probes.passes_of("panic"));
    assert!((1..=passes + 1).contains(&said), "a panic is said once a call: {said} times in {passes} passes\n{log}");
    Ok(())
}

#[tokio::test]
async fn a_key_that_was_cured_is_served_at_once() -> Result<()> {
    let probes = Probes::start("cured", &["--cpu-timeout=200ms"]).await?;
    for name in ["panic", "loop", "eat-memory"] {
        probes.create(name, json!({"behaviour": name})).await?;
    }
    probes.reconciled("panic", "ModuleTrapped").await;
    probes.reconciled("loop", "ModuleTimeout").await;
    probes.reconciled("eat-memory", "ModuleOutOfMemory").await;
    for name in ["panic", "loop", "eat-memory"] {
        probes.set(name, wanting(&[config_map(name, "1")])).await?;
        probes.settles(name).await;
    }
    Ok(())
}

#[tokio::test]
async fn an_optional_type_that_is_absent_holds_only_its_own_children_until_it_appears() -> Result<()> {
    let probes = Probes::start("optional", &[]).await?;
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 1},
    });
    let mut spec = wanting(&[widget, config_map("sibling", "1")]);
    spec["report"] = json!(true);
    probes.create("a", spec).await?;
    let message = probes.reconciled("a", "TypeUnavailable").await;
    assert!(message.contains("children[0] (Widget"), "{message}");
    assert!(message.contains("Widget.example.com/v1 is not served"), "{message}");
    probes.object(&CONFIG_MAPS, "sibling", "the sibling is applied", |_| true).await;
    probes.create("b", json!({"report": true})).await?;
    probes.settles("b").await;
    assert_eq!(probes.status("b").await?["seen"]["unavailable"], json!(["Widget"]));

    probes.cluster.apply(WIDGET_CRD).await?;
    let seen = |probe: &Value| probe["status"]["seen"]["unavailable"] == json!([]);
    eventually("the widget is made once its type is served", PATIENCE, || async {
        probes.client.get(&WIDGETS, &probes.namespace, "w").await
    })
    .await;
    probes.settles("a").await;
    probes.object(&PROBES, "b", "every key is told that the type is there", seen).await;
    Ok(())
}
