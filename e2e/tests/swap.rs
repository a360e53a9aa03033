//! Another build in the module's file while the host runs: what is written, what is kept, and what becomes of the build before.

use std::collections::BTreeSet;
use std::time::Duration;

use operator_e2e::builds::Builds;
use operator_e2e::client::{CONFIG_MAPS, Resource};
use operator_e2e::objects::{PROBES, condition, config_map, is_settled};
use operator_e2e::{Mark, Requests, Result, eventually, modules};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(60);
const BUDGETS: Resource<'static> = Resource::new("policy/v1", "poddisruptionbudgets");

fn names(prefix: &str, many: usize) -> Vec<String> {
    (0..many).map(|number| format!("{prefix}-{number}")).collect()
}

fn plan(version: &str, label: &str) -> Value {
    json!({"plan": "probe", "version": version, "label": label})
}

async fn writes_about(builds: &Builds, mark: Mark, prefix: &str) -> Result<Requests> {
    let writes = builds.requests_since(mark).await?.writes();
    Ok(writes.matching(|record| record.name.starts_with(prefix)))
}

/// The label that marks a ConfigMap as one build's.
async fn label(builds: &Builds, name: &str) -> Result<Value> {
    Ok(builds.get(&CONFIG_MAPS, name).await?["metadata"]["labels"]["build"].take())
}

#[tokio::test]
async fn an_equal_build_writes_nothing_another_label_each_child_once_and_no_edit_is_lost() -> Result<()> {
    let (still, edited) = (names("still", 20), names("edited", 5));
    let first = modules::probe_with(&plan("0.1.0", "one")).await?;
    let builds = Builds::start("equal", &plan("0.1.0", "one"), &[]).await?;
    builds.populate(&still).await?;
    builds.populate(&edited).await?;
    let edits = builds.edit(&edited);

    let mark = builds.mark().await?;
    let build = builds.swap(&modules::stamped(&first, "another file, the same build")).await?;
    builds.served(&build, &still).await;
    let writes = writes_about(&builds, mark, "still-").await?;
    assert!(writes.is_empty(), "an equal build writes nothing:\n{writes}");

    let mark = builds.mark().await?;
    let build = builds.swap(&modules::probe_with(&plan("0.2.0", "two")).await?).await?;
    builds.served(&build, &still).await;
    let writes = writes_about(&builds, mark, "still-").await?;
    let written: BTreeSet<&str> = writes.iter().map(|record| record.name.as_str()).collect();
    assert_eq!(written, still.iter().map(String::as_str).collect(), "each child carries the new label:\n{writes}");
    assert!(writes.len() == still.len() && writes.of("configmaps").len() == still.len(), "once:\n{writes}");

    let swaps = builds.swaps();
    builds.install(b"#!/bin/sh\necho not a module\n")?;
    builds.noted("is not WebAssembly").await;
    builds.noted("version 0.2.0").await;
    builds.host.wait_log("the module that runs stays", SOON).await;
    builds.want("meanwhile", &[config_map("meanwhile", "1")]).await?;
    builds.settles("meanwhile").await;
    assert_eq!(label(&builds, "meanwhile").await?, "two", "the build that ran before serves on");
    assert_eq!(builds.swaps(), swaps, "{}", builds.swap_lines().join("\n"));

    let last = edits.stop().await?;
    builds.kept(&last).await;
    Ok(())
}

/// What the process of the host holds.
#[derive(Debug)]
struct Held {
    /// Resident, in bytes.
    memory: u64,
    threads: usize,
    sockets: usize,
    /// Everything else that is open.
    files: Vec<String>,
}

impl Held {
    fn by(builds: &Builds) -> Result<Self> {
        let (sockets, files): (Vec<_>, Vec<_>) =
            builds.host.open_files()?.into_iter().partition(|file| file.starts_with("socket:"));
        Ok(Self { memory: builds.host.rss()?, threads: builds.host.threads()?, sockets: sockets.len(), files })
    }
}

#[tokio::test]
async fn fifty_swaps_leave_nothing_behind() -> Result<()> {
    const SWAPS: usize = 50;
    let edited = names("edited", 20);
    let builds = Builds::start("fifty", &plan("0.1.0", "one"), &[]).await?;
    builds.populate(&edited).await?;
    let edits = builds.edit(&edited);
    let one = modules::probe_with(&plan("0.1.0", "one")).await?;
    let two = modules::probe_with(&plan("0.2.0", "two")).await?;
    let swap = async |number: usize| {
        let build = if number.is_multiple_of(2) { &one } else { &two };
        builds.swap(&modules::stamped(build, &format!("build {number}"))).await.map(drop)
    };
    for number in 1..=5 {
        swap(number).await?;
    }
    let at_rest = async || {
        eventually("one module is mapped and its compilation over", SOON, || async {
            let mapped = builds.host.mapped_modules()?;
            anyhow::ensure!(mapped.len() == 1, "{mapped:?}");
            Ok(())
        })
        .await;
    };
    at_rest().await;
    let before = Held::by(&builds)?;
    for number in 6..=SWAPS {
        swap(number).await?;
    }
    at_rest().await;
    eventually("memory, threads and files are as after the first five swaps", SOON, || async {
        let now = Held::by(&builds)?;
        let is_as_before = now.memory <= before.memory + (10 << 20)
            && now.threads <= before.threads
            && now.files.len() <= before.files.len()
            // Connections come and go with the work; one that stays at each swap would be many.
            && now.sockets < before.sockets + SWAPS / 2;
        anyhow::ensure!(is_as_before, "{now:?}, before {before:?}");
        Ok(())
    })
    .await;
    let last = edits.stop().await?;
    builds.kept(&last).await;
    Ok(())
}

#[tokio::test]
async fn calls_in_flight_end_on_their_build_and_nothing_waits_for_them() -> Result<()> {
    let limits = ["--workers=4", "--timeout=60s", "--cpu-timeout=10s"];
    let builds = Builds::start("flight", &plan("0.1.0", "one"), &limits).await?;
    let one = modules::probe_with(&plan("0.1.0", "one")).await?;
    let two = modules::probe_with(&plan("0.2.0", "two")).await?;
    // Both are compiled now, so that the swap below takes no longer than a look at the file.
    builds.swap(&two).await?;
    let before = builds.swap(&modules::stamped(&one, "")).await?;
    builds.create("gauge", json!({"behaviour": "spin", "amount": 200_000, "data": {"a": "1"}})).await?;
    builds.served(&before, &["gauge".to_owned()]).await;
    // The gauge called it twice, and waited for its writes.
    let turns = 200_000 * 8000 / took_ms(&builds.passes_on(&before, "gauge")[0]).max(1);

    builds.create("loop", json!({"behaviour": "loop"})).await?;
    builds.create("slow", json!({"behaviour": "spin", "amount": turns, "data": {"a": "1"}})).await?;
    builds.want("behind", &[config_map("behind", "1")]).await?;
    // It came after them: they are with their workers.
    builds.settles("behind").await;
    let after = builds.swap(&two).await?;
    let ended = [builds.passes_of("slow"), builds.passes_of("loop")];
    assert_eq!(ended, [0, 0], "both calls are in flight at the swap");
    builds.want("new", &[config_map("new", "1")]).await?;
    builds.settles("new").await;
    assert_eq!(label(&builds, "new").await?, "two", "what comes after the swap is the new build's");
    assert_eq!(builds.passes_of("loop"), 0, "it did not wait for the call that loops");

    builds.served(&after, &["slow".to_owned()]).await;
    let slow = [builds.passes_on(&before, "slow"), builds.passes_on(&after, "slow")];
    assert!(slow[0].len() == 1 && slow[0][0].contains("created ConfigMap"), "the call's outcome counts: {slow:?}");
    assert!(slow[1][0].contains("changed ConfigMap"), "then it is the new build's: {slow:?}");
    assert_eq!(label(&builds, "slow").await?, "two");
    builds.served(&before, &["loop".to_owned()]).await;
    let reconciled = condition(&builds.get(&PROBES, "loop").await?, "Reconciled").clone();
    assert_eq!(reconciled["reason"], "ModuleTimeout", "it ends at its deadline, on the build that it began with");
    eventually("the build before is gone", SOON, || async {
        let mapped = builds.host.mapped_modules()?;
        anyhow::ensure!(mapped.len() == 1, "{mapped:?}");
        Ok(())
    })
    .await;
    Ok(())
}

fn took_ms(pass: &str) -> u64 {
    let text = pass.split_once("took_ms=").map_or("", |(_, text)| text);
    text.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[tokio::test]
async fn another_operator_is_refused_with_the_reason() -> Result<()> {
    let builds = Builds::start("other", &plan("0.1.0", "one"), &[]).await?;
    builds.want("a", &[config_map("a", "1")]).await?;
    builds.settles("a").await;
    builds.install(&modules::probe_with(&json!({"plan": "other", "version": "0.2.0"})).await?)?;
    builds.noted("it is named \"other\", not \"probe\"").await;
    let manager = json!({"plan": "probe", "version": "0.2.0", "fieldManager": "other"});
    builds.install(&modules::probe_with(&manager).await?)?;
    builds.noted("its field manager is \"other\", not \"operator-host/probe\"").await;
    builds.set("a", json!({"children": [{"object": config_map("a", "2")}]})).await?;
    builds.settles("a").await;
    assert_eq!(builds.swaps(), 0, "{}", builds.swap_lines().join("\n"));

    builds.install(&modules::probe_with(&plan("0.1.0", "one")).await?)?;
    builds.host.wait_log("the file holds what runs again", SOON).await;
    let page = builds.host.health("/readyz?verbose").await?;
    assert!(page.contains("[+]module/probe ok\n"), "{page}");
    Ok(())
}

#[tokio::test]
async fn a_new_child_type_is_watched_before_the_build_serves_and_an_old_one_no_longer_after() -> Result<()> {
    let builds = Builds::start("types", &plan("0.1.0", "one"), &[]).await?;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "a"}}},
    });
    builds.want("a", &[config_map("a", "1"), budget]).await?;
    let message = builds.reconciled("a", "InvalidOutcome").await;
    assert!(message.contains("PodDisruptionBudget"), "{message}");

    let mark = builds.mark().await?;
    let mut declares = plan("0.2.0", "one");
    declares["children"] = json!([["policy/v1", "PodDisruptionBudget"]]);
    builds.swap(&modules::probe_with(&declares).await?).await?;
    builds.settles("a").await;
    let line = builds.swap_lines().remove(0);
    assert!(line.contains("child type PodDisruptionBudget.policy/v1 is new"), "{line}");
    let requests = builds.cluster.audit().since(mark).await?;
    let requests = requests.by_agent("operator-host/").within(&builds.namespace).of("poddisruptionbudgets.policy");
    let watched = requests.watches().iter().map(|record| record.answered.clone()).next().unwrap_or_default();
    let writes = requests.writes();
    assert!(writes.len() == 1 && requests.beyond_watches().len() == 1, "a create alone:\n{requests}");
    assert!(writes.iter().all(|write| watched < write.received), "watched before it is written:\n{requests}");

    let mark = builds.mark().await?;
    builds.swap(&modules::probe_with(&plan("0.3.0", "one")).await?).await?;
    let line = builds.swap_lines().remove(1);
    assert!(line.contains("PodDisruptionBudget.policy/v1 is no longer declared"), "{line}");
    builds.reconciled("a", "InvalidOutcome").await;
    eventually("its watch has ended", SOON, || async {
        let requests = builds.cluster.audit().since(mark).await?;
        let requests = requests.by_agent("operator-host/").within(&builds.namespace).of("poddisruptionbudgets.policy");
        anyhow::ensure!(requests.iter().any(|record| record.is_watch() && !record.started), "{requests}");
        Ok(())
    })
    .await;
    builds.get(&BUDGETS, "a").await?;
    Ok(())
}

#[tokio::test]
async fn a_build_whose_new_type_is_not_served_waits_until_it_is_while_the_one_before_serves() -> Result<()> {
    let builds = Builds::start("waits", &plan("0.1.0", "one"), &[]).await?;
    let mut declares = plan("0.2.0", "two");
    declares["children"] = json!([["swap.example.com/v1", "Gadget"]]);
    builds.install(&modules::probe_with(&declares).await?)?;
    builds.noted("waits for Gadget.swap.example.com/v1").await;
    builds.noted("does not serve").await;
    builds.want("a", &[config_map("a", "1")]).await?;
    builds.settles("a").await;
    assert_eq!(label(&builds, "a").await?, "one");

    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.swap.example.com"},
        "spec": {
            "group": "swap.example.com", "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    builds.cluster.apply(&crd.to_string()).await?;
    builds.swapped(1).await;
    let is_new = |object: &Value| object["metadata"]["labels"]["build"] == "two";
    builds.object(&CONFIG_MAPS, "a", "the new build serves", is_new).await;
    Ok(())
}

#[tokio::test]
async fn a_build_that_panics_at_one_object_fails_that_one_alone_and_stays() -> Result<()> {
    let builds = Builds::start("poison", &plan("0.1.0", "one"), &[]).await?;
    let sound = names("sound", 5);
    builds.populate(&sound).await?;
    builds.populate(&["poison".to_owned()]).await?;
    let mut panics = plan("0.2.0", "two");
    panics["panicsAt"] = json!("poison");
    builds.swap(&modules::probe_with(&panics).await?).await?;
    let message = builds.reconciled("poison", "ModuleTrapped").await;
    assert!(message.contains("this build panics at poison"), "{message}");
    for name in &sound {
        let is_new = |object: &Value| object["metadata"]["labels"]["build"] == "two";
        builds.object(&CONFIG_MAPS, name, &format!("{name} is the new build's"), is_new).await;
    }
    assert_eq!(label(&builds, "poison").await?, "one", "its children stay as they are");
    assert_eq!(builds.swaps(), 1, "one object takes no build back");
    Ok(())
}

#[tokio::test]
async fn the_primary_type_may_move_to_another_version_without_a_write() -> Result<()> {
    let builds = Builds::start("version", &plan("0.1.0", "one"), &[]).await?;
    builds.populate(&names("moved", 3)).await?;
    let mut crd: Value = serde_json::from_str(operator_e2e::objects::PROBE_CRD)?;
    let mut second = crd["spec"]["versions"][0].clone();
    (second["name"], second["storage"]) = (json!("v2"), json!(false));
    crd["spec"]["versions"] = json!([crd["spec"]["versions"][0], second]);
    builds.cluster.apply(&crd.to_string()).await?;

    let mark = builds.mark().await?;
    let mut moved = plan("0.2.0", "one");
    moved["primary"] = json!("fixtures.example.com/v2");
    let build = builds.swap(&modules::probe_with(&moved).await?).await?;
    builds.served(&build, &names("moved", 3)).await;
    let writes = builds.requests_since(mark).await?.writes();
    assert!(writes.is_empty(), "{writes}");
    let child = builds.get(&CONFIG_MAPS, "moved-0").await?;
    assert_eq!(child["metadata"]["ownerReferences"][0]["apiVersion"], "fixtures.example.com/v1");
    builds.set("moved-0", json!({"children": [{"object": config_map("moved-0", "edited")}]})).await?;
    let is_edited = |object: &Value| object["data"]["key"] == "edited";
    builds.object(&CONFIG_MAPS, "moved-0", "an edit is carried out", is_edited).await;
    eventually("the status is written through the new version", SOON, || async {
        is_settled(&builds.get(&PROBES, "moved-0").await?)
    })
    .await;
    Ok(())
}
