//! What a module may answer, what it may not, and when it is asked again.

use std::time::{Duration, Instant};

use operator_e2e::client::CONFIG_MAPS;
use operator_e2e::expect::reconciled;
use operator_e2e::objects::{PROBES, WEB_APPS, condition, config_map, wanting, web_app};
use operator_e2e::{Probes, Result, Stage, eventually, modules};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(60);

fn behaviour(name: &str) -> Value {
    json!({"behaviour": name, "data": {"key": "1"}})
}

#[tokio::test]
async fn a_bad_child_is_refused_by_index_and_field_and_its_sibling_is_applied() -> Result<()> {
    let probes = Probes::start("refused", &[]).await?;
    let cases = [
        // The behaviour; what the message says of the child and of the field.
        ("invalid-json", "children[1]", "is not valid JSON"),
        ("not-an-object", "children[1]", "must be an object"),
        ("duplicate-keys", "children[1]", "data.a: the key stands twice"),
        ("nan", "children[1]", "is not valid JSON"),
        ("deep-json", "children[1]", "is not valid JSON"),
        ("no-name", "children[1]", "metadata.name: is required"),
        ("undeclared-type", "children[1] (PersistentVolumeClaim", "PersistentVolumeClaim.v1 is not among the children"),
        ("other-namespace", "children[1] (ConfigMap kube-public/bad)", "metadata.namespace is \"kube-public\""),
        ("generate-name", "children[1] (ConfigMap", "metadata.generateName"),
        ("uid", "children[1] (ConfigMap", "metadata.uid: is the API server's to write"),
        ("resource-version", "children[1] (ConfigMap", "metadata.resourceVersion"),
        ("managed-fields", "children[1] (ConfigMap", "metadata.managedFields"),
        ("owner-references", "children[1] (ConfigMap", "metadata.ownerReferences: is the host's to write"),
        ("host-label", "children[1] (ConfigMap", "metadata.labels[\"operatorhost.dev/installation\"]"),
        ("host-annotation", "children[1] (ConfigMap", "metadata.annotations[\"operatorhost.dev/desired\"]"),
        ("child-status", "children[1] (Service", "status: a child's status is its own controller's"),
    ];
    for (name, ..) in cases {
        probes.create(name, behaviour(name)).await?;
    }
    for (name, child, field) in cases {
        let (reason, message) = probes.refused(name).await;
        assert_eq!(reason, "InvalidOutcome", "{name}: {message}");
        assert!(message.contains(child), "{name} names the child: {message}");
        assert!(message.contains(field), "{name} names the field: {message}");
        probes.object(&CONFIG_MAPS, name, &format!("the sibling of {name} is applied"), |_| true).await;
    }
    let bad = probes.client.find(&CONFIG_MAPS, &probes.namespace, "bad").await?;
    assert_eq!(bad, None, "nothing of a refused child is applied");
    Ok(())
}

#[tokio::test]
async fn an_outcome_that_is_bad_as_a_whole_writes_nothing_and_prunes_nothing() -> Result<()> {
    let probes = Probes::start("whole", &[]).await?;
    let cases = [
        ("many-children", "LimitExceeded", "10000 children, 500 is the most"),
        ("duplicate-child", "InvalidOutcome", "the same object as children[0]"),
        ("big-output", "LimitExceeded", "8 MiB"),
    ];
    for (name, ..) in cases {
        probes.create(name, behaviour("ok")).await?;
    }
    for (name, reason, text) in cases {
        probes.settles(name).await;
        let before = probes.client.get(&CONFIG_MAPS, &probes.namespace, name).await?;
        probes.set(name, behaviour(name)).await?;
        let message = probes.reconciled(name, reason).await;
        assert!(message.contains(text), "{name}: {message}");
        let after = probes.client.get(&CONFIG_MAPS, &probes.namespace, name).await?;
        assert_eq!(after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"], "{name} was touched");
    }
    assert_eq!(probes.client.list(&CONFIG_MAPS, &probes.namespace, "").await?.len(), cases.len());
    Ok(())
}

#[tokio::test]
async fn a_live_child_that_is_edited_and_returned_is_refused_with_a_hint() -> Result<()> {
    let probes = Probes::start("live", &[]).await?;
    probes.create("a", behaviour("return-live")).await?;
    let (reason, message) = probes.refused("a").await;
    assert_eq!(reason, "InvalidOutcome");
    assert!(message.contains("this looks like a live object that was edited"), "{message}");
    let live = probes.client.get(&CONFIG_MAPS, &probes.namespace, "a").await?;
    assert_eq!(live["data"], json!({"key": "1"}), "neither edited nor pruned");
    Ok(())
}

#[tokio::test]
async fn a_status_that_breaks_the_contract_is_refused_and_the_children_are_applied() -> Result<()> {
    let probes = Probes::start("status", &[]).await?;
    let cases = [
        ("status-reserved", "observedGeneration"),
        ("status-not-an-object", "object"),
        ("status-broken", "JSON"),
        ("undeclared-condition", "\"Undeclared\""),
        ("host-condition", "\"Reconciled\""),
    ];
    for (name, ..) in cases {
        probes.create(name, behaviour(name)).await?;
    }
    for (name, text) in cases {
        let (reason, message) = probes.refused(name).await;
        assert_eq!(reason, "InvalidOutcome", "{name}: {message}");
        assert!(message.contains(text), "{name}: {message}");
        probes.object(&CONFIG_MAPS, name, &format!("the child of {name} is applied"), |_| true).await;
    }
    Ok(())
}

#[tokio::test]
async fn what_is_refused_is_not_pruned_and_not_asked_for_in_a_hot_loop() -> Result<()> {
    let probes = Probes::start("kept", &[]).await?;
    probes.want("a", &[config_map("bad", "1"), config_map("other", "1")]).await?;
    probes.settles("a").await;
    let mut bad = config_map("bad", "2");
    bad["metadata"]["uid"] = json!("11111111-1111-1111-1111-111111111111");
    probes.set("a", wanting(&[bad])).await?;
    probes.reconciled("a", "InvalidOutcome").await;
    probes.gone(&CONFIG_MAPS, "other").await;
    let kept = probes.client.get(&CONFIG_MAPS, &probes.namespace, "bad").await?;
    assert_eq!(kept["data"]["key"], "1", "a refused child still counts as wanted");

    let mark = probes.mark().await?;
    // 5 ms doubling: eleven tries in the first ten seconds.
    let before = probes.passes_of("a");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let passes = probes.passes_of("a") - before;
    assert!(passes <= 12, "{passes} passes in three seconds");
    let requests = probes.requests_since(mark).await?;
    assert!(requests.is_empty(), "the condition is the same: {requests}");
    Ok(())
}

#[tokio::test]
async fn what_is_no_longer_wanted_stays_while_its_successor_can_t_be_made() -> Result<()> {
    let probes = Probes::start("renamed", &[]).await?;
    let mut foreign = config_map("taken", "1");
    foreign["metadata"]["namespace"] = json!(probes.namespace);
    probes.client.create(&CONFIG_MAPS, &foreign).await?;
    let mut rejected = config_map("rejected", "1");
    rejected["data"] = json!({"no key": "1"});
    for (primary, reason, successor) in
        [("a", "ChildRejected", rejected), ("b", "ChildNotOwned", config_map("taken", "2"))]
    {
        let (old, also) = (format!("{primary}-old"), format!("{primary}-also"));
        probes.want(primary, &[config_map(&old, "1")]).await?;
        probes.settles(primary).await;
        probes.set(primary, wanting(std::slice::from_ref(&successor))).await?;
        probes.reconciled(primary, reason).await;

        // What stands in the way is known by now: it is not asked for again.
        let before = probes.passes_of(primary);
        probes.set(primary, wanting(&[successor, config_map(&also, "1")])).await?;
        probes.object(&CONFIG_MAPS, &also, "a sibling is made", |_| true).await;
        probes.passed(primary, before + 1).await;
        probes.client.get(&CONFIG_MAPS, &probes.namespace, &old).await?;

        probes.set(primary, wanting(&[config_map(&format!("{primary}-new"), "1")])).await?;
        probes.settles(primary).await;
        probes.gone(&CONFIG_MAPS, &old).await;
        probes.client.get(&CONFIG_MAPS, &probes.namespace, &format!("{primary}-new")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn requeue_after_asks_again_and_nothing_else_does() -> Result<()> {
    let probes = Probes::start("requeue", &[]).await?;
    let mut spec = wanting(&[config_map("a", "1")]);
    spec["requeueAfterMs"] = json!(400);
    probes.create("a", spec).await?;
    probes.settles("a").await;
    let mark = probes.mark().await?;
    let (began, before) = (Instant::now(), probes.passes_of("a"));
    probes.passed("a", before + 4).await;
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(1100), "four passes in {took:?}: every 400 ms is three times and a rest");
    let requests = probes.requests_since(mark).await?;
    assert!(requests.is_empty(), "{requests}");

    probes.set("a", wanting(&[config_map("a", "1")])).await?;
    probes.settles("a").await;
    let before = probes.passes_of("a");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let after = probes.passes_of("a");
    assert!(after <= before + 1, "{} passes after the module no longer asks", after - before);
    Ok(())
}

fn failure(terminal: bool, retry_after_ms: Option<u64>) -> Value {
    json!({"failure": {
        "terminal": terminal, "reason": "NoLicence", "message": "the licence has ended", "retryAfterMs": retry_after_ms,
    }})
}

#[tokio::test]
async fn a_terminal_failure_waits_for_a_change_and_resyncs_are_no_change() -> Result<()> {
    let probes = Probes::start("terminal", &["--resync=300ms"]).await?;
    let mut spec = failure(true, None);
    spec["status"] = json!({"fields": {"phase": "Failed"}, "conditions": [
        {"type": "Ready", "status": "False", "reason": "NoLicence", "message": "no licence"},
    ]});
    probes.create("a", spec).await?;
    let message = probes.reconciled("a", "NoLicence").await;
    assert_eq!(message, "the licence has ended");
    let status = probes.status("a").await?;
    assert_eq!(status["phase"], "Failed", "a failure may carry a status: {status}");

    let calls = || probes.host.log().matches("NoLicence: the licence has ended").count();
    let before = calls();
    let passes = probes.passes_of("a");
    probes.passed("a", passes + 4).await;
    assert_eq!(calls(), before, "the module was called at a resync");

    probes.want("b", &[]).await?;
    probes.set("a", wanting(&[config_map("a", "1")])).await?;
    probes.settles("a").await;
    Ok(())
}

#[tokio::test]
async fn a_failure_is_tried_again_after_the_time_it_names_and_else_after_a_backoff() -> Result<()> {
    let probes = Probes::start("failure", &[]).await?;
    probes.want("named", &[config_map("named", "1")]).await?;
    probes.settles("named").await;
    probes.set("named", failure(false, Some(500))).await?;
    probes.create("backoff", failure(false, None)).await?;
    probes.reconciled("named", "NoLicence").await;
    probes.reconciled("backoff", "NoLicence").await;
    probes.client.get(&CONFIG_MAPS, &probes.namespace, "named").await?;

    let mark = probes.mark().await?;
    let (began, named) = (Instant::now(), probes.passes_of("named"));
    probes.passed("named", named + 4).await;
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(1400), "four tries in {took:?}: every 500 ms is three times and a rest");
    let passes = probes.passes_of("backoff");
    assert!((5..=14).contains(&passes), "5 ms doubling is about nine tries in two seconds, not {passes}");
    // That it repeats is told in the series of its event, now and then.
    let requests = probes.requests_since(mark).await?.matching(|record| !record.is_event());
    assert!(requests.is_empty(), "the condition is the same: {requests}");

    probes.set("backoff", wanting(&[])).await?;
    let changed = Instant::now();
    probes.settles("backoff").await;
    assert!(changed.elapsed() < Duration::from_secs(2), "a change does not wait for the backoff");
    Ok(())
}

#[tokio::test]
async fn a_condition_of_the_module_stands_beside_the_hosts() -> Result<()> {
    let probes = Probes::start("conditions", &[]).await?;
    let mut spec = wanting(&[config_map("a", "1")]);
    spec["status"] = json!({"fields": {"keys": 1}, "conditions": [
        {"type": "Ready", "status": "True", "reason": "AsWanted", "message": "all there"},
    ]});
    probes.create("a", spec).await?;
    probes.settles("a").await;
    let probe = probes.client.get(&PROBES, &probes.namespace, "a").await?;
    let ready = condition(&probe, "Ready");
    assert_eq!(ready["observedGeneration"], 1);
    assert!(ready["lastTransitionTime"].is_string());
    assert_eq!(probe["status"]["keys"], 1);
    assert_eq!(probe["status"]["observedGeneration"], 1);
    Ok(())
}

#[tokio::test]
async fn a_name_that_no_child_can_carry_is_a_failure_that_names_the_rule() -> Result<()> {
    let stage = Stage::open("names", modules::webapp().await?, &["--resync=500ms"]).await?;
    let mark = stage.mark().await?;
    let names = ["1shop".to_owned(), "my.shop".to_owned(), "s".repeat(64), format!("{}.s", "s".repeat(251))];
    for name in &names {
        stage.client.create(&WEB_APPS, &web_app(&stage.namespace, name)).await?;
    }
    let mut messages = Vec::new();
    for name in &names {
        let failed = reconciled(&stage.client, &WEB_APPS, &stage.namespace, name, "InvalidName", SOON).await;
        let message = failed["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!(failed["status"], "False", "{failed}");
        assert!(message.contains(&format!("{name:?} can't name a Service")), "{message}");
        assert!(message.contains("at most 63 characters") && message.contains("start with a letter"), "{message}");
        messages.push(format!("InvalidName: {message}"));
    }
    // For good: nothing is written but the conditions, and no resync calls the module again.
    let before = stage.passes();
    eventually("three resyncs", SOON, || async { stage.passes() >= before + 3 * names.len() }).await;
    let requests = stage.requests_since(mark).await?.writes();
    let children = requests.matching(|record| record.resource != "webapps.webapp.example.com");
    assert!(children.is_empty(), "{children}");
    assert_eq!(requests.len(), names.len(), "one status write each: {requests}");
    let log = stage.host.log();
    for message in messages {
        assert_eq!(log.matches(&message).count(), 1, "{message}\n{log}");
    }
    Ok(())
}

#[tokio::test]
async fn the_longest_name_of_a_primary_is_no_limit_of_its_children() -> Result<()> {
    let probes = Probes::start("longest", &[]).await?;
    let name = format!("1{}.a", "b".repeat(250));
    probes.want(&name, &[config_map(&name, "1")]).await?;
    probes.settles(&name).await;
    let child = probes.get(&CONFIG_MAPS, &name).await?;
    assert_eq!(child["metadata"]["ownerReferences"][0]["name"], json!(name));
    let labels = child["metadata"]["labels"].as_object().expect("labels").values();
    assert!(labels.into_iter().all(|value| value.as_str().is_some_and(|value| value.len() <= 63)), "{child}");
    Ok(())
}
