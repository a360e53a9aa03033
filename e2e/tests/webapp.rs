//! A WebApp under real controllers: what a scale and a new image cost, and that nothing is reported too early.

use std::time::Duration;

use operator_e2e::client::{DEPLOYMENTS, Resource};
use operator_e2e::objects::{WEB_APPS, condition, is_settled, web_app};
use operator_e2e::{Cluster, Host, Result, eventually, modules};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(90);

/// A WebApp's status as a user reads it.
fn ready(object: &Value, of: u64) -> Result<()> {
    is_settled(object)?;
    let ready = condition(object, "Ready");
    let current = object["status"]["observedGeneration"] == object["metadata"]["generation"];
    let all = object["status"]["readyReplicas"] == of;
    anyhow::ensure!(current && all && ready["status"] == "True", "{}", object["status"]);
    Ok(())
}

#[tokio::test]
async fn a_scale_costs_one_write_and_a_new_image_is_ready_only_when_it_runs() -> Result<()> {
    let cluster = Cluster::full().await?;
    cluster.install_definitions().await?;
    let client = cluster.client();
    let host = Host::spawn(&cluster.kubeconfig("admin")?, &[modules::webapp().await?], &["-v"])?;
    client.create(&WEB_APPS, &web_app("default", "shop")).await?;
    eventually("2/2 replicas are ready", SOON, || async { ready(&client.get(&WEB_APPS, "default", "shop").await?, 2) })
        .await;

    scale(&cluster, &host).await?;
    new_image(&cluster).await
}

/// 2 → 3, and what it cost.
async fn scale(cluster: &Cluster, host: &Host) -> Result<()> {
    let client = cluster.client();
    let mut deployments = watch_from_now(cluster, &DEPLOYMENTS).await?;
    let (mark, passes) = (cluster.audit().mark().await?, host.passes().len());
    cluster.kubectl(&["scale", "webapp", "shop", "--replicas=3"]).await?.ok()?;
    eventually("3/3 replicas are ready", SOON, || async { ready(&client.get(&WEB_APPS, "default", "shop").await?, 3) })
        .await;

    let requests = cluster.audit().since(mark).await?.by_agent("operator-host/").beyond_watches();
    let writes = requests.writes();
    let status = writes.matching(|record| record.subresource == "status");
    assert_eq!(writes.of("deployments.apps").len(), 1, "{requests}");
    assert_eq!(writes.of("services").len(), 0, "{requests}");
    assert!(status.len() <= 2, "more than two status writes:\n{requests}");
    assert_eq!(writes.len(), 1 + status.len(), "{requests}");
    assert!(requests.iter().all(|record| record.code < 300), "something was rejected:\n{requests}");
    assert!(requests.verb("get").is_empty() && requests.verb("list").is_empty(), "a read:\n{requests}");

    // One pass for the edit, at most one for each version of the Deployment that somebody else made.
    let made = host.passes().len() - passes;
    let last = client.get(&DEPLOYMENTS, "default", "shop").await?["metadata"]["resourceVersion"].take();
    let mut versions = 0;
    loop {
        let version = deployments.next(SOON).await.expect("the watch stays open");
        versions += 1;
        if version["object"]["metadata"]["resourceVersion"] == last {
            break;
        }
    }
    let others = versions - 1;
    assert!(made <= 1 + others, "{made} passes for one edit and {others} versions of the Deployment\n{}", host.log());
    Ok(())
}

/// No version of the WebApp claims to be Ready with an image that the Deployment controller has not seen yet.
async fn new_image(cluster: &Cluster) -> Result<()> {
    let client = cluster.client();
    let mut versions = watch_from_now(cluster, &WEB_APPS).await?;
    let patch = json!({"spec": {"image": "example.test/web:2"}});
    let generation = client.patch(&WEB_APPS, "default", "shop", &patch).await?["metadata"]["generation"].take();

    let mut seen = Vec::new();
    loop {
        let version = versions.next(SOON).await.expect("the watch stays open")["object"].take();
        if version["status"]["observedGeneration"] != generation {
            continue;
        }
        let is_ready = condition(&version, "Ready")["status"] == "True";
        seen.push(version["status"].clone());
        if is_ready {
            break;
        }
    }
    assert!(seen.len() > 1, "Ready with the new generation before the rollout began: {seen:?}");
    let deployment = client.get(&DEPLOYMENTS, "default", "shop").await?;
    let status = &deployment["status"];
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "example.test/web:2");
    assert_eq!(status["observedGeneration"], deployment["metadata"]["generation"]);
    assert_eq!(status["updatedReplicas"], 3, "Ready before every replica runs the new image: {status}");
    Ok(())
}

async fn watch_from_now(cluster: &Cluster, resource: &Resource<'_>) -> Result<operator_e2e::client::Watch> {
    let client = cluster.client();
    let now = client.request("GET", &format!("{}?limit=1", resource.path("default", "")), "", &Value::Null).await?;
    let version = now["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    Ok(client.watch(resource, "default", &format!("resourceVersion={version}")).await?)
}
