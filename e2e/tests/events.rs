//! Events on primaries: what is told, once, and what is not worth telling.

use operator_e2e::client::{CONFIG_MAPS, EVENTS};
use operator_e2e::expect::{SOON, event, events};
use operator_e2e::objects::{WEB_APPS, config_map, is_settled, wanting, web_app};
use operator_e2e::{Cluster, Host, Probes, Result, eventually, modules};
use serde_json::{Value, json};

#[tokio::test]
async fn what_the_host_does_is_told_in_one_event_a_kind() -> Result<()> {
    let probes = Probes::start("events", &[]).await?;
    let object = probes.want("a", &[config_map("one", "1"), config_map("two", "1")]).await?;
    probes.settles("a").await;
    let namespace = &probes.namespace;
    let created = event(&probes.client, &probes.namespace, "a", "Created").await;
    assert_eq!(created["note"], format!("Created ConfigMap {namespace}/one, ConfigMap {namespace}/two"));
    assert_eq!((&created["type"], &created["action"]), (&json!("Normal"), &json!("Reconcile")));
    assert_eq!(created["reportingController"], "operatorhost.dev/probe");
    assert!(!created["reportingInstance"].as_str().unwrap_or_default().is_empty());
    assert_eq!(created["regarding"]["uid"], object["metadata"]["uid"]);
    assert_eq!(created["regarding"]["kind"], "Probe");
    let described = probes.cluster.kubectl(&["describe", "probe", "a", "-n", namespace]).await?.ok()?;
    assert!(described.contains("Created ConfigMap"), "{described}");

    probes.set("a", wanting(&[config_map("one", "2")])).await?;
    let pruned = event(&probes.client, &probes.namespace, "a", "Pruned").await;
    assert_eq!(pruned["note"], format!("Deleted ConfigMap {namespace}/two as no longer wanted"));
    probes.settles("a").await;
    let all = probes.client.list(&EVENTS, namespace, "").await?;
    assert_eq!(all.len(), 2, "a change of a child is not told: {all:#?}");
    Ok(())
}

#[tokio::test]
async fn what_is_in_the_way_is_told_and_equal_trouble_is_counted() -> Result<()> {
    let probes = Probes::start("trouble", &[]).await?;
    let mut theirs = config_map("taken", "theirs");
    theirs["metadata"]["namespace"] = probes.namespace.clone().into();
    probes.client.create(&CONFIG_MAPS, &theirs).await?;
    probes.want("refused", &[config_map("taken", "1")]).await?;
    let refused = event(&probes.client, &probes.namespace, "refused", "ChildNotOwned").await;
    assert_eq!(refused["type"], "Warning");
    assert!(refused["note"].as_str().unwrap_or_default().contains("has no controller"), "{refused}");

    let failing = json!({"failure": {"reason": "NoQuota", "message": "ask for more"}});
    probes.create("failing", failing).await?;
    probes.passed("failing", 8).await;
    let failed = eventually("the repetitions are counted", SOON, || async {
        let failed = event(&probes.client, &probes.namespace, "failing", "NoQuota").await;
        anyhow::ensure!(failed["series"]["count"].as_u64().unwrap_or(0) >= 2, "{failed}");
        Ok(failed)
    })
    .await;
    assert_eq!((&failed["type"], &failed["note"]), (&json!("Warning"), &json!("ask for more")));
    let sent = probes.proxy.count(
        &operator_e2e::Match::any()
            .path("/events")
            .and(|seen| seen.path.contains("failing") || String::from_utf8_lossy(&seen.body).contains("ask for more")),
    );
    assert!(sent <= 3, "{sent} requests for one failure that is repeated");
    Ok(())
}

#[tokio::test]
async fn what_a_module_says_is_told_when_it_is_news() -> Result<()> {
    let mut probes = Probes::start("said", &[]).await?;
    let spec = |value: &str| {
        json!({
            "children": [{"object": config_map("a", value)}],
            "events": [{"reason": "Scaled", "message": "to 3"}, {"warning": true, "reason": "Old", "message": "of 1999"}],
        })
    };
    probes.create("a", spec("1")).await?;
    probes.settles("a").await;
    assert_eq!(event(&probes.client, &probes.namespace, "a", "Scaled").await["note"], "to 3");
    assert_eq!(event(&probes.client, &probes.namespace, "a", "Old").await["type"], "Warning");

    // Looking again tells nothing, and neither does a restart.
    let mark = probes.mark().await?;
    probes.look_again("a").await?;
    probes.restart().await?;
    probes.passed("a", 1).await;
    probes.look_again("a").await?;
    let told = probes.requests_since(mark).await?.matching(|record| record.is_event());
    assert!(told.is_empty(), "{told}");
    Ok(())
}

#[tokio::test]
async fn where_events_may_not_be_written_all_else_goes_on() -> Result<()> {
    const USER: &str = "user-6";
    let cluster = Cluster::shared().await;
    cluster.install_definitions().await?;
    let client = cluster.client();
    client.grant(USER, "webapp.example.com", &["webapps"], &["list", "watch"]).await?;
    client.grant(USER, "webapp.example.com", &["webapps/status"], &["patch"]).await?;
    client.grant(USER, "webapp.example.com", &["webapps/finalizers"], &["update"]).await?;
    client.grant(USER, "apps", &["deployments"], &["get", "list", "watch", "create", "patch"]).await?;
    client.grant(USER, "", &["services"], &["get", "list", "watch", "create", "patch"]).await?;
    let namespace = cluster.namespace("no-events").await?;
    let scope = [format!("--namespace={namespace}"), format!("--installation-id={namespace}")];
    let host = Host::spawn(&cluster.kubeconfig(USER)?, &[modules::webapp().await?], &[&scope[0], &scope[1]])?;
    for name in ["a", "b", "c"] {
        client.create(&WEB_APPS, &web_app(&namespace, name)).await?;
    }
    for name in ["a", "b", "c"] {
        eventually(&format!("{name} is settled"), SOON, || async {
            is_settled(&client.get(&WEB_APPS, &namespace, name).await?)
        })
        .await;
    }
    host.wait_log("events can't be written", SOON).await;
    assert_eq!(host.log().matches("events can't be written").count(), 1, "{}", host.log());
    assert_eq!(events(&client, &namespace, "a", "Created").await?, Vec::<Value>::new());
    Ok(())
}
