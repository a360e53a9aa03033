//! Answers that are not the object's fault: quotas, namespaces that go away, webhooks and rights. Each is said where a user
//! looks, is not asked for again and again, and stops nothing else.

use std::time::Duration;

use operator_e2e::client::{CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, Resource, SERVICES};
use operator_e2e::expect::{reconciled, runs};
use operator_e2e::objects::{PROBES, WEB_APPS, condition, config_map, probe, web_app_of};
use operator_e2e::webhook::{MUTATING, VALIDATING, configuration};
use operator_e2e::{Cluster, Mark, Requests, Result, Stage, Verdict, Webhook, eventually, modules};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(60);
/// Long enough for a hot loop to show.
const A_WHILE: Duration = Duration::from_secs(3);
/// Exponential backoff from 5 ms comes to about this many tries in the while.
const TRIES: usize = 14;
const QUOTAS: Resource<'static> = Resource::new("v1", "resourcequotas");
const REVIEWS: Resource<'static> = Resource::new("authorization.k8s.io/v1", "selfsubjectaccessreviews");

/// Writes to a resource since the mark, tried or done.
async fn writes(stage: &Stage, mark: Mark, resource: &str) -> Result<Requests> {
    Ok(stage.requests_since(mark).await?.writes().of(resource))
}

#[tokio::test]
async fn a_full_quota_is_waited_for_without_heat() -> Result<()> {
    let stage = Stage::open("quota", modules::webapp().await?, &[]).await?;
    let hard = json!({"count/services": "0"});
    let quota = json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"namespace": stage.namespace, "name": "full"},
        "spec": {"hard": hard},
    });
    stage.client.create(&QUOTAS, &quota).await?;
    // The controller that counts is not there.
    let counted = json!({"status": {"hard": hard, "used": {"count/services": "0"}}});
    stage.client.patch_subresource(&QUOTAS, &stage.namespace, "full", "status", &counted).await?;

    let mark = stage.mark().await?;
    stage.client.create(&WEB_APPS, &web_app_of(&stage.namespace, "shop", "web:1")).await?;
    let refused = reconciled(&stage.client, &WEB_APPS, &stage.namespace, "shop", "ApplyFailed", SOON).await;
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(message.contains("Service") && message.contains("quota"), "{message}");
    stage.get(&DEPLOYMENTS, "shop").await?;
    tokio::time::sleep(A_WHILE).await;
    let tried = writes(&stage, mark, "services").await?;
    // The first pass may find the quota not known yet.
    assert!(tried.len() <= 2, "a full quota was asked again and again: {tried}");

    stage.client.delete(&QUOTAS, &stage.namespace, "full").await?;
    stage.quiesce(&WEB_APPS, "shop").await?;
    reconciled(&stage.client, &WEB_APPS, &stage.namespace, "shop", "Settled", SOON).await;
    stage.get(&SERVICES, "shop").await?;
    Ok(())
}

#[tokio::test]
async fn in_a_namespace_that_goes_away_nothing_is_made_again_and_again() -> Result<()> {
    let stage = Stage::open("terminating", modules::webapp().await?, &[]).await?;
    stage.client.create(&WEB_APPS, &web_app_of(&stage.namespace, "shop", "web:1")).await?;
    stage.settled(&WEB_APPS, "shop").await;
    // No controller empties it here, so that it stays as long as the test wants.
    stage.client.delete(&NAMESPACES, "", &stage.namespace).await?;
    let mark = stage.mark().await?;
    stage.client.delete(&SERVICES, &stage.namespace, "shop").await?;
    stage.client.patch(&WEB_APPS, &stage.namespace, "shop", &json!({"spec": {"image": "web:2"}})).await?;
    let refused = reconciled(&stage.client, &WEB_APPS, &stage.namespace, "shop", "ApplyFailed", SOON).await;
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(message.contains("Service") && message.contains("being deleted"), "{message}");
    runs(&stage.client, &stage.namespace, "shop", "web:2", SOON).await;
    tokio::time::sleep(A_WHILE).await;
    let tried = writes(&stage, mark, "services").await?;
    // The Service's deletion by the test, and one try to make it again: the edit is none of the Service's business.
    let tried = tried.by_agent("operator-host/");
    assert_eq!(tried.len(), 1, "{tried}");
    Ok(())
}

#[tokio::test]
async fn what_rights_forbid_is_named_and_done_once_it_is_allowed() -> Result<()> {
    let (cluster, user) = (Cluster::shared().await, "user-1");
    let client = cluster.client();
    client.grant(user, "webapp.example.com", &["webapps"], &["get", "list", "watch"]).await?;
    client.grant(user, "webapp.example.com", &["webapps/status"], &["patch"]).await?;
    client.grant(user, "webapp.example.com", &["webapps/finalizers"], &["update"]).await?;
    client.grant(user, "apps", &["deployments"], &["get", "list", "watch", "create", "patch"]).await?;
    client.grant(user, "", &["services"], &["get", "list", "watch"]).await?;
    let kubeconfig = format!("--kubeconfig={}", cluster.kubeconfig(user)?.display());
    let stage = Stage::open("rights", modules::webapp().await?, &[&kubeconfig]).await?;

    // Never had them.
    let mark = stage.mark().await?;
    client.create(&WEB_APPS, &web_app_of(&stage.namespace, "shop", "web:1")).await?;
    forbidden(&stage, r#"User "user-1" cannot patch resource "services""#).await;
    runs(&client, &stage.namespace, "shop", "web:1", SOON).await;
    tokio::time::sleep(A_WHILE).await;
    let tried = writes(&stage, mark, "services").await?;
    assert!((2..=TRIES).contains(&tried.len()), "tried again, and in no hot loop: {tried}");
    let sibling = writes(&stage, mark, "deployments.apps").await?;
    assert_eq!(sibling.len(), 1, "the sibling was written again with each try: {sibling}");
    let status = writes(&stage, mark, "webapps.webapp.example.com").await?;
    assert!(status.len() <= 2, "the condition was written with each try: {status}");

    // An apply of what is not there needs two of them.
    client.grant(user, "", &["services"], &["patch"]).await?;
    forbidden(&stage, r#"User "user-1" cannot create resource "services""#).await;
    let create = client.grant(user, "", &["services"], &["create"]).await?;
    reconciled(&client, &WEB_APPS, &stage.namespace, "shop", "Settled", SOON).await;
    stage.get(&SERVICES, "shop").await?;

    // Loses one.
    client.revoke(create).await?;
    may_create_services(&stage, user, false).await;
    let mark = stage.mark().await?;
    client.delete(&SERVICES, &stage.namespace, "shop").await?;
    client.patch(&WEB_APPS, &stage.namespace, "shop", &json!({"spec": {"image": "web:2"}})).await?;
    forbidden(&stage, r#"User "user-1" cannot create resource "services""#).await;
    runs(&client, &stage.namespace, "shop", "web:2", SOON).await;
    tokio::time::sleep(A_WHILE).await;
    let tried = writes(&stage, mark, "services").await?.by_agent("operator-host/");
    assert!((2..=TRIES).contains(&tried.len()), "tried again, and in no hot loop: {tried}");
    client.grant(user, "", &["services"], &["create"]).await?;
    reconciled(&client, &WEB_APPS, &stage.namespace, "shop", "Settled", SOON).await;
    stage.get(&SERVICES, "shop").await?;
    Ok(())
}

/// Waits until the condition says that it is this right that is missing for the Service.
async fn forbidden(stage: &Stage, right: &str) {
    eventually(&format!("the condition says: {right}"), SOON, || async {
        let object = stage.get(&WEB_APPS, "shop").await?;
        let condition = condition(&object, "Reconciled");
        let message = condition["message"].as_str().unwrap_or_default();
        let is_said = message.contains("Service") && message.contains(right);
        anyhow::ensure!(is_said && condition["reason"] == "ApplyFailed", "{condition}");
        Ok(())
    })
    .await;
}

/// Waits until the server's authorizer knows.
async fn may_create_services(stage: &Stage, user: &str, allowed: bool) {
    let client = stage.cluster.client_as(user, "operator-e2e");
    let attributes = json!({"verb": "create", "resource": "services", "namespace": stage.namespace});
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    });
    eventually("the authorizer knows", SOON, || async {
        let answer = client.create(&REVIEWS, &review).await?;
        anyhow::ensure!(answer["status"]["allowed"] == allowed, "{answer}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_webhook_that_says_no_is_quoted() -> Result<()> {
    let stage = Stage::open("denied", &modules::fixture("probe").await?, &[]).await?;
    let webhook = Webhook::serve(stage.cluster.certificates(), |object| match object["metadata"]["name"].as_str() {
        Some("bad") => Verdict::Deny("no bad names on Fridays".to_owned()),
        _ => Verdict::Allow,
    })
    .await?;
    let hook = webhook.configuration("Validating", &stage.namespace, "", &["configmaps"]);
    stage.client.create(&VALIDATING, &hook).await?;
    eventually("the webhook is in force", SOON, || async {
        let mut bad = config_map("bad", "1");
        bad["metadata"]["namespace"] = json!(stage.namespace);
        let made = stage.client.create(&CONFIG_MAPS, &bad).await;
        if made.is_ok() {
            let _ = stage.client.delete(&CONFIG_MAPS, &stage.namespace, "bad").await;
        }
        made.is_err()
    })
    .await;

    let mark = stage.mark().await?;
    let children = json!([{"object": config_map("bad", "1")}, {"object": config_map("good", "1")}]);
    stage.client.create(&PROBES, &probe(&stage.namespace, "p", json!({"children": children}))).await?;
    let denied = eventually("the denial is in the condition", SOON, || async {
        let object = stage.get(&PROBES, "p").await.map_err(|error| error.to_string())?;
        let condition = condition(&object, "Reconciled").clone();
        let is_quoted = condition["message"].as_str().is_some_and(|text| text.contains("no bad names on Fridays"));
        if is_quoted { Ok(condition) } else { Err(condition.to_string()) }
    })
    .await;
    assert_eq!(denied["status"], "False", "{denied}");
    stage.get(&CONFIG_MAPS, "good").await?;
    tokio::time::sleep(A_WHILE).await;
    let tried = writes(&stage, mark, "configmaps").await?.matching(|record| record.name == "bad");
    assert!(tried.len() <= TRIES, "a hot loop: {tried}");
    let good = writes(&stage, mark, "configmaps").await?.matching(|record| record.name == "good");
    assert_eq!(good.len(), 1, "the sibling was written again with each try: {good}");
    let status = writes(&stage, mark, "probes.fixtures.example.com").await?;
    assert!(status.len() <= 2, "the condition was written with each try: {status}");
    Ok(())
}

#[tokio::test]
async fn a_dead_webhook_for_one_type_stops_only_that_type() -> Result<()> {
    const KEYS: usize = 10;
    let stage = Stage::open("dead", modules::webapp().await?, &[]).await?;
    // Nobody listens on port 1.
    let hook = configuration("Validating", "https://127.0.0.1:1/", None, &stage.namespace, "", &["services"]);
    stage.client.create(&VALIDATING, &hook).await?;
    eventually("the webhook is in force", SOON, || async {
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"namespace": stage.namespace, "name": "try"},
            "spec": {"ports": [{"port": 80}]},
        });
        let made = stage.client.create(&SERVICES, &service).await;
        if made.is_ok() {
            let _ = stage.client.delete(&SERVICES, &stage.namespace, "try").await;
        }
        made.is_err()
    })
    .await;

    let mark = stage.mark().await?;
    let names: Vec<String> = (0..KEYS).map(|number| format!("shop-{number}")).collect();
    for name in &names {
        stage.client.create(&WEB_APPS, &web_app_of(&stage.namespace, name, "web:1")).await?;
    }
    for name in &names {
        let failed = reconciled(&stage.client, &WEB_APPS, &stage.namespace, name, "ApplyFailed", SOON).await;
        let message = failed["message"].as_str().unwrap_or_default();
        assert!(message.contains("Service") && message.contains("webhook.example.com"), "{message}");
        runs(&stage.client, &stage.namespace, name, "web:1", SOON).await;
    }
    stage.client.patch(&WEB_APPS, &stage.namespace, "shop-0", &json!({"spec": {"image": "web:2"}})).await?;
    runs(&stage.client, &stage.namespace, "shop-0", "web:2", SOON).await;
    assert!(!stage.host.log_contains("in trouble"), "a webhook was taken for the API server:\n{}", stage.host.log());
    tokio::time::sleep(A_WHILE).await;
    let deployments = writes(&stage, mark, "deployments.apps").await?;
    assert_eq!(deployments.len(), KEYS + 1, "{deployments}");

    stage.client.delete(&VALIDATING, "", &stage.namespace).await?;
    for name in &names {
        stage.quiesce(&WEB_APPS, name).await?;
    }
    for name in &names {
        reconciled(&stage.client, &WEB_APPS, &stage.namespace, name, "Settled", SOON).await;
        stage.get(&SERVICES, name).await?;
    }
    Ok(())
}

/// A webhook that pulls every image from elsewhere, and puts a second container beside the first.
fn rewrite(object: &Value) -> Verdict {
    let containers = "/spec/template/spec/containers";
    let found = object.pointer(containers).and_then(Value::as_array).cloned().unwrap_or_default();
    let mut patch = Vec::new();
    if let Some(image) = found[0]["image"].as_str().filter(|image| !image.starts_with("mirror/")) {
        let mirrored = format!("mirror/{image}");
        patch.push(json!({"op": "replace", "path": format!("{containers}/0/image"), "value": mirrored}));
    }
    if found.len() == 1 {
        let sidecar = json!({"name": "sidecar", "image": "sidecar:1"});
        patch.push(json!({"op": "add", "path": format!("{containers}/-"), "value": sidecar}));
    }
    Verdict::Patch(json!(patch))
}

#[tokio::test]
async fn what_a_webhook_rewrites_is_left_as_it_is() -> Result<()> {
    const KEYS: usize = 50;
    let mut stage = Stage::open("rewritten", modules::webapp().await?, &[]).await?;
    let webhook = Webhook::serve(stage.cluster.certificates(), rewrite).await?;
    let hook = webhook.configuration("Mutating", &stage.namespace, "apps", &["deployments"]);
    stage.client.create(&MUTATING, &hook).await?;
    let trial = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": stage.namespace, "name": "try"},
        "spec": {
            "selector": {"matchLabels": {"app": "try"}},
            "template": {
                "metadata": {"labels": {"app": "try"}},
                "spec": {"containers": [{"name": "web", "image": "web:1"}]},
            },
        },
    });
    eventually("the webhook is in force", SOON, || async {
        let made = stage.client.create(&DEPLOYMENTS, &trial).await.map_err(|error| error.to_string())?;
        let _ = stage.client.delete(&DEPLOYMENTS, &stage.namespace, "try").await;
        let image = &made["spec"]["template"]["spec"]["containers"][0]["image"];
        if image == "mirror/web:1" { Ok(()) } else { Err(image.to_string()) }
    })
    .await;

    let mark = stage.mark().await?;
    let names: Vec<String> = (0..KEYS).map(|number| format!("shop-{number}")).collect();
    for name in &names {
        stage.client.create(&WEB_APPS, &web_app_of(&stage.namespace, name, "web:1")).await?;
    }
    for name in &names {
        runs(&stage.client, &stage.namespace, name, "mirror/web:1", SOON).await;
        stage.settled(&WEB_APPS, name).await;
    }
    stage.quiesce(&WEB_APPS, "shop-0").await?;
    let applied = writes(&stage, mark, "deployments.apps").await?;
    assert_eq!(applied.len(), KEYS, "{applied}");
    let log = stage.host.log();
    let said = log.lines().filter(|line| line.contains("mirror/web:1") && line.contains("/shop-0 "));
    assert_eq!(said.count(), 1, "what admission changed is said once:\n{log}");

    // An edit is one more write, and after a restart there is nothing to do.
    stage.client.patch(&WEB_APPS, &stage.namespace, "shop-1", &json!({"spec": {"image": "web:2"}})).await?;
    runs(&stage.client, &stage.namespace, "shop-1", "mirror/web:2", SOON).await;
    stage.settled(&WEB_APPS, "shop-1").await;
    let applied = writes(&stage, mark, "deployments.apps").await?;
    assert_eq!(applied.len(), KEYS + 1, "{applied}");
    let restarted = stage.mark().await?;
    stage.restart_after(async { Ok(()) }).await?;
    stage.host.wait_ready().await?;
    eventually("every object had its pass", SOON, || async { stage.passes() >= KEYS }).await;
    let written = stage.requests_since(restarted).await?.writes();
    assert!(written.is_empty(), "a restart wrote: {written}");
    Ok(())
}
