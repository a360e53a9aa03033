//! Types that can't be watched, or not yet: unknown is not empty, and one bad type stays one bad type.

use std::path::Path;
use std::time::Duration;

use operator_e2e::client::{CONFIG_MAPS, CRDS, DEPLOYMENTS, Resource, SERVICES};
use operator_e2e::cluster::ADMIN;
use operator_e2e::expect::{image, reconciled, runs};
use operator_e2e::objects::{
    PROBE_CRD, PROBES, WEB_APP_CRD, WEB_APPS, WIDGET_CRD, WIDGETS, config_map, probe, web_app_of,
};
use operator_e2e::{Cluster, Fault, Host, Match, Result, eventually, modules};
use serde_json::json;

const SOON: Duration = Duration::from_secs(60);
/// Long enough that a host which does not wait would have written.
const A_WHILE: Duration = Duration::from_millis(500);
const API_SERVICES: Resource<'static> = Resource::new("apiregistration.k8s.io/v1", "apiservices");

/// A host with the WebApp module, for that user and namespace alone.
async fn webapp_host(kubeconfig: &Path, namespace: &str) -> Result<Host> {
    let module = modules::webapp().await?;
    Host::spawn(kubeconfig, &[module], &["--namespace", namespace])
}

#[tokio::test]
async fn a_forbidden_child_type_holds_its_keys_until_it_is_allowed() -> Result<()> {
    let cluster = Cluster::shared().await;
    let (client, user) = (cluster.client(), "user-0");
    cluster.apply(WEB_APP_CRD).await?;
    let namespace = cluster.namespace("forbidden").await?;
    let all = ["get", "list", "watch", "create", "patch", "delete"];
    client.grant(user, "webapp.example.com", &["webapps"], &["get", "list", "watch"]).await?;
    client.grant(user, "webapp.example.com", &["webapps/status"], &["patch"]).await?;
    client.grant(user, "webapp.example.com", &["webapps/finalizers"], &["update"]).await?;
    client.grant(user, "", &["services"], &all).await?;
    client.create(&WEB_APPS, &web_app_of(&namespace, "shop", "web:1")).await?;

    let mut host = webapp_host(&cluster.kubeconfig(user)?, &namespace).await?;
    host.wait_ready().await?;
    let waiting = reconciled(&client, &WEB_APPS, &namespace, "shop", "TypeUnavailable", SOON).await;
    assert_eq!(waiting["status"], "Unknown", "{waiting}");
    let message = waiting["message"].as_str().unwrap_or_default();
    assert!(message.contains("Deployment") && message.contains("forbidden"), "{message}");
    assert_eq!(client.find(&SERVICES, &namespace, "shop").await?, None, "a child was made in part");
    assert!(host.log_contains("deployments"), "the log names what is missing");

    client.grant(user, "apps", &["deployments"], &all).await?;
    reconciled(&client, &WEB_APPS, &namespace, "shop", "Settled", SOON).await;
    assert_eq!(image(&client, &namespace, "shop").await?, "web:1");
    client.get(&SERVICES, &namespace, "shop").await?;
    Ok(())
}

#[tokio::test]
async fn an_optional_type_is_done_without_until_it_is_served() -> Result<()> {
    let cluster = Cluster::shared().await;
    let client = cluster.client();
    cluster.apply(PROBE_CRD).await?;
    let namespace = cluster.namespace("optional").await?;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"a": 1}});
    let children = json!([{"object": config_map("c", "1")}, {"object": widget}]);
    let wanted = probe(&namespace, "p", json!({"children": children, "report": true}));
    client.create(&PROBES, &wanted).await?;

    // An aggregated API that nobody serves: 503 in discovery, of this group alone.
    let broken = json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1.example.com"},
        "spec": {
            "group": "example.com",
            "version": "v1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": true,
            "service": {"namespace": "default", "name": "nowhere"},
        },
    });
    client.create(&API_SERVICES, &broken).await?;
    eventually("the group answers 503", SOON, || async {
        client.text("/apis/example.com/v1").await.is_err_and(|error| error.code() == 503)
    })
    .await;
    let module = modules::fixture("probe").await?;
    let mut host = Host::spawn(&cluster.kubeconfig(ADMIN)?, &[&module], &["--namespace", &namespace])?;
    let without = reconciled(&client, &PROBES, &namespace, "p", "TypeUnavailable", SOON).await;
    assert!(without["message"].as_str().unwrap_or_default().contains("Widget"), "{without}");
    eventually("the sibling is applied", SOON, || client.get(&CONFIG_MAPS, &namespace, "c")).await;
    host.wait_ready().await?;

    // Then the type is absent, then it appears.
    client.delete(&API_SERVICES, "", "v1.example.com").await?;
    cluster.apply(WIDGET_CRD).await?;
    reconciled(&client, &PROBES, &namespace, "p", "Settled", SOON).await;
    let widget = client.get(&WIDGETS, &namespace, "w").await?;
    assert_eq!(widget["spec"]["a"], 1);
    eventually("the module sees the Widget", SOON, || async {
        let seen = client.get(&PROBES, &namespace, "p").await?["status"]["seen"].take();
        anyhow::ensure!(seen == json!({"children": ["Widget/w", "ConfigMap/c"], "unavailable": []}), "{seen}");
        Ok(())
    })
    .await;

    // A type that goes away takes nothing else with it.
    let config_map = client.get(&CONFIG_MAPS, &namespace, "c").await?["metadata"].take();
    client.delete(&CRDS, "", "widgets.example.com").await?;
    reconciled(&client, &PROBES, &namespace, "p", "TypeUnavailable", SOON).await;
    let now = client.get(&CONFIG_MAPS, &namespace, "c").await?["metadata"].take();
    assert_eq!(now["uid"], config_map["uid"], "the ConfigMap was made anew");
    assert_eq!(now["resourceVersion"], config_map["resourceVersion"], "the ConfigMap was written");
    Ok(())
}

#[tokio::test]
async fn nothing_is_decided_before_every_needed_type_is_synced() -> Result<()> {
    let cluster = Cluster::shared().await;
    let client = cluster.client();
    cluster.apply(WEB_APP_CRD).await?;
    let namespace = cluster.namespace("synced").await?;
    let proxy = cluster.proxy().await?;
    let kubeconfig = cluster.kubeconfig_at(ADMIN, &proxy.url())?;
    client.create(&WEB_APPS, &web_app_of(&namespace, "shop", "web:1")).await?;

    let services = Match::any().path("/services").and(|seen| !seen.is_write());
    let gate = proxy.hold(services.clone());
    let mut host = webapp_host(&kubeconfig, &namespace).await?;
    gate.wait_for(1, SOON).await;
    host.wait_log("watching type=Deployment.apps/v1", SOON).await;
    host.wait_log("watching type=WebApp.webapp.example.com/v1", SOON).await;
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(proxy.count(&Match::writes()), 0, "something was written before Services were known");
    assert!(host.health("/readyz").await.is_err(), "ready before Services were known");
    gate.open();
    host.wait_ready().await?;
    reconciled(&client, &WEB_APPS, &namespace, "shop", "Settled", SOON).await;
    assert!(host.sigterm().await?.success());

    // The same with children that are there already: seen half, they would be made again.
    proxy.forget();
    let gate = proxy.hold(services);
    let mut host = webapp_host(&kubeconfig, &namespace).await?;
    gate.wait_for(1, SOON).await;
    tokio::time::sleep(A_WHILE).await;
    gate.open();
    host.wait_ready().await?;
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(proxy.count(&Match::writes()), 0, "{:?}", proxy.seen(&Match::writes()));
    Ok(())
}

#[tokio::test]
async fn a_definition_may_come_late_and_hold_less() -> Result<()> {
    let cluster = Cluster::bare().await?;
    let client = cluster.client();
    let namespace = cluster.namespace("late").await?;
    let proxy = cluster.proxy().await?;
    let mut host = webapp_host(&cluster.kubeconfig_at(ADMIN, &proxy.url())?, &namespace).await?;
    host.wait_ready().await?;
    host.wait_log("operator crd --module FILE | kubectl apply -f -", SOON).await;

    // What a server answers right after a definition was made, and for longer than it really does.
    let busy = Fault::status(429, "TooManyRequests", "storage is (re)initializing");
    let busy = proxy.inject_times(2, Match::any().path("/webapps"), busy);
    let mut crd: serde_json::Value = yaml_to_json(&cluster, WEB_APP_CRD).await?;
    let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
    let properties = crd.pointer_mut(status).and_then(|status| status.as_object_mut()).expect("a status schema");
    properties.remove("conditions").expect("it has conditions");
    client.create(&CRDS, &crd).await?;
    let shop = web_app_of(&namespace, "shop", "web:1");
    eventually("WebApps are served", SOON, || client.create(&WEB_APPS, &shop)).await;
    eventually("the WebApp is worked on", SOON, || image(&client, &namespace, "shop")).await;
    assert_eq!(busy.hits(), 2, "the type was not asked for while it was initializing");
    eventually("what the definition can hold is written", SOON, || async {
        let status =
            client.get(&WEB_APPS, &namespace, "shop").await.map_err(|error| error.to_string())?["status"].take();
        if status["readyReplicas"] == 0 { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    host.wait_log("conditions", SOON).await;

    assert_eq!(client.list(&DEPLOYMENTS, &namespace, "").await?.len(), 1);
    Ok(())
}

/// As the server would read it, without sending it there.
async fn yaml_to_json(cluster: &Cluster, yaml: &str) -> Result<serde_json::Value> {
    let create = cluster.kubectl_command(&["create", "--dry-run=client", "-o", "json", "-f", "-"]);
    let mut object: serde_json::Value = serde_json::from_str(&create.stdin(yaml).run().await?.ok()?)?;
    object.as_object_mut().map(|object| object.remove("status"));
    Ok(object)
}

#[tokio::test]
async fn a_server_without_streaming_lists_is_read_by_pages() -> Result<()> {
    let cluster = Cluster::options().apiserver_flag("--feature-gates=WatchList=false").start().await?;
    let client = cluster.client();
    cluster.apply(WEB_APP_CRD).await?;
    let namespace = cluster.namespace("pages").await?;
    for number in 0..5 {
        client.create(&WEB_APPS, &web_app_of(&namespace, &format!("shop-{number}"), "web:1")).await?;
    }
    let audit = cluster.audit();
    let began = audit.mark().await?;
    let mut host = webapp_host(&cluster.kubeconfig(ADMIN)?, &namespace).await?;
    host.wait_ready().await?;
    for number in 0..5 {
        reconciled(&client, &WEB_APPS, &namespace, &format!("shop-{number}"), "Settled", SOON).await;
    }
    let requests = audit.since(began).await?.by_agent("operator-host/").within(&namespace);
    for resource in ["webapps.webapp.example.com", "deployments.apps", "services"] {
        let of = requests.of(resource);
        assert_eq!(of.verb("list").len(), 1, "{of}");
        let watches = of.matching(|record| record.is_watch() && record.started && record.code == 200);
        assert_eq!(watches.len(), 1, "{of}");
        let refused = of.matching(|record| record.is_watch() && !record.started && record.code >= 400);
        assert!(refused.len() <= 1, "streaming was tried again: {of}");
    }
    assert!(host.sigterm().await?.success());

    let restarted = audit.mark().await?;
    let mut host = webapp_host(&cluster.kubeconfig(ADMIN)?, &namespace).await?;
    host.wait_ready().await?;
    client.patch(&WEB_APPS, &namespace, "shop-0", &json!({"spec": {"image": "web:2"}})).await?;
    runs(&client, &namespace, "shop-0", "web:2", SOON).await;
    reconciled(&client, &WEB_APPS, &namespace, "shop-0", "Settled", SOON).await;
    let writes = audit.since(restarted).await?.by_agent("operator-host/").writes();
    let others = writes.matching(|record| record.name != "shop-0");
    assert!(others.is_empty(), "a restart wrote what was settled: {others}");
    Ok(())
}
