//! A server that went back in time, or that lags behind what is known already: nothing is done by what no longer holds, and the
//! work goes on.

use std::time::Duration;

use operator_e2e::client::SERVICES;
use operator_e2e::cluster::ADMIN;
use operator_e2e::expect::{reconciled, runs};
use operator_e2e::objects::{WEB_APP_CRD, WEB_APPS, web_app_of};
use operator_e2e::{Client, Cluster, Fault, Host, Match, Result, Stage, eventually, modules};
use serde_json::json;

const SOON: Duration = Duration::from_secs(60);
/// Longer than the host waits, after an outage, for its watches to find the server again.
const A_WHILE: Duration = Duration::from_secs(12);
const HOST: &str = "operator-host/";

#[tokio::test]
async fn what_a_restore_undid_is_not_made_again() -> Result<()> {
    a_restore_undoes(0).await
}

#[tokio::test]
async fn what_a_restore_undid_is_not_made_again_though_its_versions_are_new() -> Result<()> {
    a_restore_undoes(2000).await
}

/// Goes back to before a WebApp was made, another edited and a third deleted. Versions count from `ahead` further on.
async fn a_restore_undoes(ahead: usize) -> Result<()> {
    let mut cluster = Cluster::bare().await?;
    cluster.apply(WEB_APP_CRD).await?;
    let (client, namespace) = (cluster.client(), cluster.namespace("restored").await?);
    let proxy = cluster.proxy().await?;
    let kubeconfig = cluster.kubeconfig_at(ADMIN, &proxy.url())?;
    let module = modules::webapp().await?;
    let mut host = Host::spawn(&kubeconfig, &[module], &["--namespace", &namespace])?;
    host.wait_ready().await?;
    for name in ["edited", "deleted", "kept"] {
        client.create(&WEB_APPS, &web_app_of(&namespace, name, "web:1")).await?;
    }
    for name in ["edited", "deleted", "kept"] {
        settles(&client, &namespace, name).await;
    }
    let snapshot = cluster.snapshot().await?;

    let busy = Fault::status(500, "InternalError", "not now");
    let busy = proxy.inject(Match::writes().path("/services/failing"), busy);
    for name in ["undone", "failing"] {
        client.create(&WEB_APPS, &web_app_of(&namespace, name, "web:1")).await?;
    }
    client.patch(&WEB_APPS, &namespace, "edited", &json!({"spec": {"image": "web:2"}})).await?;
    client.delete(&WEB_APPS, &namespace, "deleted").await?;
    for name in ["undone", "edited"] {
        settles(&client, &namespace, name).await;
    }
    reconciled(&client, &WEB_APPS, &namespace, "failing", "ApplyFailed", SOON).await;
    let mark = cluster.audit().mark().await?;

    // The worst order: the children are known anew, and that some are missing, while the primaries are not.
    let primaries = proxy.hold(Match::any().path("/webapps").and(|seen| !seen.is_write()));
    cluster.restore_ahead(&snapshot, ahead).await?;
    drop(busy);
    primaries.wait_for(1, SOON).await;
    host.wait_log("went back in time", SOON).await;
    tokio::time::sleep(A_WHILE).await;
    primaries.open();

    // Everything goes on from there.
    client.patch(&WEB_APPS, &namespace, "kept", &json!({"spec": {"image": "web:3"}})).await?;
    client.create(&WEB_APPS, &web_app_of(&namespace, "later", "web:3")).await?;
    for name in ["kept", "later"] {
        runs(&client, &namespace, name, "web:3", SOON).await;
        settles(&client, &namespace, name).await;
    }
    for name in ["edited", "deleted"] {
        settles(&client, &namespace, name).await;
        runs(&client, &namespace, name, "web:1", SOON).await;
    }
    let writes = cluster.audit().since(mark).await?.by_agent(HOST).writes();
    let stale = writes.matching(|record| record.name != "kept" && record.name != "later");
    assert!(stale.is_empty(), "something was done by what was known before: {stale}");
    assert!(host.sigterm().await?.success());
    Ok(())
}

async fn settles(client: &Client, namespace: &str, name: &str) {
    reconciled(client, &WEB_APPS, namespace, name, "Settled", SOON).await;
}

#[tokio::test]
async fn a_server_that_lags_behind_is_waited_for() -> Result<()> {
    let stage = Stage::open("lagging", modules::webapp().await?, &[]).await?;
    let names = ["edited", "robbed", "kept"];
    for name in names {
        stage.client.create(&WEB_APPS, &web_app_of(&stage.namespace, name, "web:1")).await?;
    }
    for name in names {
        stage.settled(&WEB_APPS, name).await;
    }
    // The watches land on a server that has not come so far: it says so where it is asked for a version, answers a list that has
    // to be consistent when it has caught up, and tells of nothing.
    let mark = stage.mark().await?;
    let is_for_version = |seen: &operator_e2e::proxy::Seen| {
        !seen.is_write() && seen.query.contains("NotOlderThan") && seen.query.contains("resourceVersion=")
    };
    let behind = stage.proxy.inject(Match::any().and(is_for_version), Fault::version_too_large());
    stage.proxy.pause_watches();
    stage.proxy.cut_watches();
    stage.client.patch(&WEB_APPS, &stage.namespace, "edited", &json!({"spec": {"image": "web:2"}})).await?;
    stage.client.delete(&SERVICES, &stage.namespace, "robbed").await?;
    eventually("every watch was told", SOON, || async { behind.hits() >= 3 }).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let requests = stage.requests_since(mark).await?.writes();
    assert!(requests.is_empty(), "something was done by a server that lags behind: {requests}");
    assert!(!stage.host.log_contains("went back in time"), "{}", stage.host.log());

    drop(behind);
    stage.proxy.resume_watches();
    runs(&stage.client, &stage.namespace, "edited", "web:2", SOON).await;
    eventually("the Service is back", SOON, || stage.get(&SERVICES, "robbed")).await;
    for name in names {
        stage.quiesce(&WEB_APPS, name).await?;
        stage.settled(&WEB_APPS, name).await;
    }
    let requests = stage.requests_since(mark).await?.writes();
    let children = requests.matching(|record| record.resource != "webapps.webapp.example.com");
    let mut written: Vec<&str> = children.iter().map(|record| record.name.as_str()).collect();
    written.sort_unstable();
    assert_eq!(written, ["edited", "robbed"], "{requests}");
    Ok(())
}
