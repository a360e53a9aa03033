//! Children of one object over time: terminating, made anew, disowned, deleted, cut loose, and with names at the limits.

use std::time::{Duration, Instant};

use operator_e2e::client::{CONFIG_MAPS, Resource, SERVICES};
use operator_e2e::expect::SOON;
use operator_e2e::objects::{PROBES, condition, config_map, wanting};
use operator_e2e::{Match, Probes, Result, eventually};
use serde_json::{Value, json};

const JOBS: Resource<'static> = Resource::new("batch/v1", "jobs");
const SERVICE_ACCOUNTS: Resource<'static> = Resource::new("v1", "serviceaccounts");
const LABEL: &str = "operatorhost.dev/installation";

fn job(name: &str, image: &str) -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": image}],
        }}},
    })
}

/// Holds an object's deletion up, as a controller of somebody else does.
async fn hold(probes: &Probes, resource: &Resource<'_>, name: &str) -> Result<()> {
    finalizers(probes, resource, name, json!(["example.com/hold"])).await
}

async fn let_go(probes: &Probes, resource: &Resource<'_>, name: &str) -> Result<()> {
    finalizers(probes, resource, name, json!([])).await
}

async fn finalizers(probes: &Probes, resource: &Resource<'_>, name: &str, wanted: Value) -> Result<()> {
    let patch = json!({"metadata": {"finalizers": wanted}});
    probes.client.patch(resource, &probes.namespace, name, &patch).await?;
    Ok(())
}

#[tokio::test]
async fn a_terminating_child_is_waited_for_and_made_again_when_it_is_gone() -> Result<()> {
    let probes = Probes::start("terminating", &[]).await?;
    probes.want("a", &[config_map("a", "old"), config_map("sibling", "old")]).await?;
    probes.settles("a").await;
    let uid = probes.client.get(&CONFIG_MAPS, &probes.namespace, "a").await?["metadata"]["uid"].take();
    hold(&probes, &CONFIG_MAPS, "a").await?;
    let mark = probes.mark().await?;

    probes.client.delete(&CONFIG_MAPS, &probes.namespace, "a").await?;
    let message = probes.reconciled("a", "Waiting").await;
    assert_eq!(
        message,
        format!(
            "ConfigMap {}/a: the object of this name is being deleted; it is made again when it is gone",
            probes.namespace
        )
    );
    probes.set("a", wanting(&[config_map("a", "new"), config_map("sibling", "new")])).await?;
    probes.reconciled("a", "Waiting").await;
    probes.object(&CONFIG_MAPS, "sibling", "the sibling goes on", |object| object["data"]["key"] == "new").await;
    let live = probes.client.get(&CONFIG_MAPS, &probes.namespace, "a").await?;
    assert_eq!(live["data"]["key"], "old", "an apply to a terminating object would be lost");

    let_go(&probes, &CONFIG_MAPS, "a").await?;
    let freed = Instant::now();
    probes.object(&CONFIG_MAPS, "a", "a is made again", |object| object["data"]["key"] == "new").await;
    assert!(freed.elapsed() < Duration::from_secs(5), "woken by the deletion, not by a timer: {:?}", freed.elapsed());
    probes.settles("a").await;
    let again = probes.client.get(&CONFIG_MAPS, &probes.namespace, "a").await?;
    assert_ne!(again["metadata"]["uid"], uid);
    let requests = probes.requests_since(mark).await?;
    let to_a = requests.of("configmaps").writes().matching(|record| record.name == "a");
    assert_eq!(to_a.len(), 1, "one create and nothing before it: {requests}");
    Ok(())
}

#[tokio::test]
async fn a_host_killed_between_the_delete_and_the_create_of_a_recreate_loses_nothing() -> Result<()> {
    let mut probes = Probes::start("killed", &[]).await?;
    let spec = |image: &str| json!({"children": [{"object": job("work", image), "onImmutable": "Recreate"}]});
    probes.create("a", spec("example.test/work:1")).await?;
    probes.settles("a").await;
    hold(&probes, &JOBS, "work").await?;

    probes.set("a", spec("example.test/work:2")).await?;
    probes
        .object(&JOBS, "work", "the Job is being deleted", |job| job["metadata"]["deletionTimestamp"].is_string())
        .await;
    probes.host.kill9();
    let_go(&probes, &JOBS, "work").await?;
    probes.gone(&JOBS, "work").await;

    probes.restart().await?;
    let image = |job: &Value| job["spec"]["template"]["spec"]["containers"][0]["image"] == "example.test/work:2";
    probes.object(&JOBS, "work", "the Job is made after the restart", image).await;
    probes.settles("a").await;
    Ok(())
}

#[tokio::test]
async fn an_immutable_change_is_made_by_recreating_or_reported_as_the_child_says() -> Result<()> {
    let probes = Probes::start("immutable", &[]).await?;
    let spec = |image: &str| {
        json!({"children": [
            {"object": job("anew", image), "onImmutable": "Recreate"},
            {"object": job("fixed", image)},
            {"object": config_map("sibling", image)},
        ]})
    };
    probes.create("a", spec("example.test/work:1")).await?;
    probes.settles("a").await;
    let mark = probes.mark().await?;
    probes.set("a", spec("example.test/work:2")).await?;

    let message = probes.reconciled("a", "ChildImmutable").await;
    assert!(message.contains(&format!("Job {}/fixed: ", probes.namespace)), "{message}");
    assert!(message.contains("spec.template"), "the field is named: {message}");
    assert!(!message.contains("/anew"), "{message}");
    let image = |job: &Value| job["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    let anew = |job: &Value| image(job) == "example.test/work:2";
    let reported = Instant::now();
    probes.object(&JOBS, "anew", "the one that may be is made anew", anew).await;
    assert!(reported.elapsed() < Duration::from_secs(5), "not by a timer: {:?}", reported.elapsed());
    let fixed = probes.client.get(&JOBS, &probes.namespace, "fixed").await?;
    assert_eq!(image(&fixed), "example.test/work:1");
    let sibling = probes.client.get(&CONFIG_MAPS, &probes.namespace, "sibling").await?;
    assert_eq!(sibling["data"]["key"], "example.test/work:2");

    let requests = probes.requests_since(mark).await?.of("jobs.batch");
    let of = |name: &str, verb: &str| requests.verb(verb).matching(|record| record.name == name).len();
    assert_eq!(of("anew", "delete"), 1, "{requests}");
    assert_eq!(of("fixed", "delete"), 0, "{requests}");
    assert_eq!(of("fixed", "patch"), 1, "an answer that stands is not asked for again: {requests}");
    let probed = requests.matching(|record| record.uri.contains("dryRun=All"));
    assert_eq!(probed.len(), 1, "a dry run under another name came first: {requests}");

    probes.set("a", spec("example.test/work:1")).await?;
    probes.settles("a").await;
    Ok(())
}

#[tokio::test]
async fn a_recreate_that_the_server_would_refuse_deletes_nothing() -> Result<()> {
    let probes = Probes::start("refused", &[]).await?;
    let spec = |image: &str| json!({"children": [{"object": job("work", image), "onImmutable": "Recreate"}]});
    probes.create("a", spec("example.test/work:1")).await?;
    probes.settles("a").await;
    let mut broken = spec("example.test/work:2");
    broken["children"][0]["object"]["spec"]["template"]["spec"]["restartPolicy"] = json!("Always");

    probes.set("a", broken).await?;
    let (_, message) = probes.refused("a").await;
    assert!(message.contains("restartPolicy"), "{message}");
    let job = probes.client.get(&JOBS, &probes.namespace, "work").await?;
    assert!(job["metadata"]["deletionTimestamp"].is_null(), "{job}");
    Ok(())
}

#[tokio::test]
async fn a_controller_stripped_from_a_child_is_reported_with_what_restores_it() -> Result<()> {
    let probes = Probes::start("disowned", &[]).await?;
    let probe = probes.want("a", &[config_map("a", "1")]).await?;
    let uid = probe["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    probes.settles("a").await;
    let strip = json!({"metadata": {"ownerReferences": null}});
    probes.client.patch(&CONFIG_MAPS, &probes.namespace, "a", &strip).await?;
    let message = probes.reconciled("a", "ChildNotOwned").await;
    assert!(message.contains("no controller") && message.contains(&uid), "{message}");

    let restore = json!({"metadata": {"ownerReferences": [{
        "apiVersion": "fixtures.example.com/v1", "kind": "Probe", "name": "a", "uid": uid, "controller": true,
    }]}});
    probes.client.patch(&CONFIG_MAPS, &probes.namespace, "a", &restore).await?;
    probes.settles("a").await;
    Ok(())
}

#[tokio::test]
async fn a_name_that_becomes_free_while_a_sibling_is_on_its_way_is_taken() -> Result<()> {
    let probes = Probes::start("freed", &[]).await?;
    let mut foreign = config_map("taken", "foreign");
    foreign["metadata"]["namespace"] = json!(probes.namespace);
    probes.client.create(&CONFIG_MAPS, &foreign).await?;
    let gate = probes.proxy.hold(Match::writes().path("/configmaps/slow"));
    probes.want("a", &[config_map("taken", "1"), config_map("slow", "1")]).await?;
    gate.wait_for(1, SOON).await;
    eventually("the name is watched", SOON, || async {
        probes.proxy.count(&Match::watches().path("/configmaps").query("metadata.name%3Dtaken")) > 0
    })
    .await;
    probes.client.delete(&CONFIG_MAPS, &probes.namespace, "taken").await?;
    // The host hears of it: what is asked of it later it has done.
    probes.want("b", &[config_map("b", "1")]).await?;
    probes.settles("b").await;
    gate.open();
    probes.settles("a").await;
    Ok(())
}

#[tokio::test]
async fn a_child_that_is_no_longer_wanted_is_deleted_and_an_orphan_is_cut_loose() -> Result<()> {
    let probes = Probes::start("pruned", &[]).await?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "orphan"}});
    let children = json!({"children": [
        {"object": config_map("kept", "1")},
        {"object": config_map("dropped", "1")},
        {"object": config_map("loose", "1"), "onPrune": "Orphan"},
        {"object": account, "onPrune": "Orphan"},
    ]});
    probes.create("a", children).await?;
    probes.settles("a").await;
    let mark = probes.mark().await?;
    probes.set("a", wanting(&[config_map("kept", "1")])).await?;
    probes.gone(&CONFIG_MAPS, "dropped").await;
    probes.settles("a").await;

    for (resource, name) in [(&CONFIG_MAPS, "loose"), (&SERVICE_ACCOUNTS, "orphan")] {
        let live = probes.client.get(resource, &probes.namespace, name).await?;
        let metadata = &live["metadata"];
        assert!(metadata["ownerReferences"].is_null(), "{live}");
        assert!(metadata["labels"].is_null() && metadata["annotations"].is_null(), "{live}");
    }
    let requests = probes.requests_since(mark).await?;
    assert_eq!(requests.of("configmaps").writes().len(), 2, "one delete, one release: {requests}");
    assert_eq!(requests.of("serviceaccounts").writes().len(), 1, "{requests}");

    // Wanted again, it is somebody else's.
    probes.set("a", wanting(&[config_map("kept", "1"), config_map("loose", "1")])).await?;
    let message = probes.reconciled("a", "ChildNotOwned").await;
    assert!(message.contains("/loose: exists and has no controller"), "{message}");
    Ok(())
}

#[tokio::test]
async fn waiting_leaves_all_children_as_they_are() -> Result<()> {
    let probes = Probes::start("leave", &[]).await?;
    probes.want("a", &[config_map("a", "1")]).await?;
    probes.settles("a").await;
    let mark = probes.mark().await?;
    probes.set("a", json!({"leaveChildren": true})).await?;
    probes.settles("a").await;
    let requests = probes.requests_since(mark).await?;
    assert!(requests.of("configmaps").writes().is_empty(), "{requests}");
    probes.client.get(&CONFIG_MAPS, &probes.namespace, "a").await?;
    Ok(())
}

#[tokio::test]
async fn names_at_the_limits_work_or_are_refused_by_the_rule_they_break() -> Result<()> {
    let probes = Probes::start("names", &[]).await?;
    // 253 bytes: the most that an object's name may have.
    let longest = [&"a".repeat(63), &"b".repeat(63), &"c".repeat(63), &"d".repeat(61)].map(String::as_str).join(".");
    assert_eq!(longest.len(), 253);
    probes.want(&longest, &[config_map(&longest, "1")]).await?;
    probes.settles(&longest).await;
    let child = probes.client.get(&CONFIG_MAPS, &probes.namespace, &longest).await?;
    assert_eq!(child["metadata"]["labels"], json!({LABEL: probes.namespace}), "no label carries the parent's name");

    let service = |name: &str| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
    for (probe, object, rule) in [
        ("upper", config_map("Upper", "1"), "lower case"),
        ("unicode", config_map("käse", "1"), "lower case"),
        ("too-long", config_map(&format!("{longest}x"), "1"), "253"),
        ("service", service(&longest), "63"),
        ("slash", config_map("a/b", "1"), "a/b"),
        ("dots", config_map("..", "1"), ".."),
    ] {
        probes.want(probe, &[object, config_map(probe, "sibling")]).await?;
        let (_, message) = probes.refused(probe).await;
        assert!(message.contains(rule), "{probe}: {message}");
        probes.object(&CONFIG_MAPS, probe, "the sibling is applied", |_| true).await;
    }
    probes.want("digit", &[service("9lives")]).await?;
    probes.look_again("digit").await?;
    let digit = probes.get(&PROBES, "digit").await?;
    let condition = condition(&digit, "Reconciled");
    let made = probes.client.find(&SERVICES, &probes.namespace, "9lives").await?.is_some();
    assert_eq!(made, condition["reason"] == "Settled", "{condition}");
    Ok(())
}
