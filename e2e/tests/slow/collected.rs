//! What the garbage collector and the namespace controller of a whole control plane make of primaries and children.

use std::collections::BTreeMap;
use std::time::Duration;

use operator_e2e::client::{CONFIG_MAPS, NAMESPACES, Resource};
use operator_e2e::cluster::ADMIN;
use operator_e2e::expect::gone;
use operator_e2e::objects::{PROBES, WEB_APPS, config_map, is_settled, probe, web_app};
use operator_e2e::{Cluster, Host, Mark, Result, eventually, modules};
use serde_json::json;

const SERVICE_ACCOUNTS: Resource<'static> = Resource::new("v1", "serviceaccounts");
const SOON: Duration = Duration::from_secs(90);

#[tokio::test]
async fn children_go_with_their_parent_and_what_was_cut_loose_stays() -> Result<()> {
    let cluster = Cluster::full().await?;
    cluster.install_definitions().await?;
    let client = cluster.client();
    let mut host = Host::spawn(&cluster.kubeconfig(ADMIN)?, &[&modules::fixture("probe").await?], &[])?;
    host.wait_ready().await?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "loose"}});
    let kept = json!({"object": config_map("kept", "1")});
    let both = json!({"children": [kept, {"object": account, "onPrune": "Orphan"}]});
    client.create(&PROBES, &probe("default", "a", both)).await?;
    let settled = || async { is_settled(&client.get(&PROBES, "default", "a").await?) };
    eventually("both children are there", SOON, settled).await;

    client.patch(&PROBES, "default", "a", &json!({"spec": {"children": [kept]}})).await?;
    eventually("the account is cut loose", SOON, || async {
        let account = client.get(&SERVICE_ACCOUNTS, "default", "loose").await.ok()?;
        account["metadata"]["ownerReferences"].is_null().then_some(())
    })
    .await;
    client.delete(&PROBES, "default", "a").await?;
    eventually("the collector takes the child", SOON, || async {
        client.find(&CONFIG_MAPS, "default", "kept").await.is_ok_and(|child| child.is_none())
    })
    .await;
    client.get(&SERVICE_ACCOUNTS, "default", "loose").await?;

    let deletes = cluster.audit().since(Mark::START).await?.by_agent("operator-host/").verb("delete");
    assert!(deletes.is_empty(), "deleting is the collector's: {deletes}");
    Ok(())
}

#[tokio::test]
async fn a_namespace_goes_with_all_that_is_in_it_and_nothing_is_made_again() -> Result<()> {
    const KEYS: usize = 20;
    /// Long enough for a hot loop to show.
    const A_WHILE: Duration = Duration::from_secs(3);
    let cluster = Cluster::full().await?;
    cluster.install_definitions().await?;
    let (client, namespace) = (cluster.client(), cluster.namespace("goes").await?);
    let mut host = Host::spawn(&cluster.kubeconfig(ADMIN)?, &[modules::webapp().await?], &[])?;
    host.wait_ready().await?;
    let names: Vec<String> = (0..KEYS).map(|number| format!("shop-{number}")).collect();
    for name in &names {
        client.create(&WEB_APPS, &web_app(&namespace, name)).await?;
    }
    for name in &names {
        let is_ready = || async {
            let object = client.get(&WEB_APPS, &namespace, name).await?;
            anyhow::ensure!(object["status"]["readyReplicas"] == 2, "{}", object["status"]);
            is_settled(&object)
        };
        eventually(&format!("{name} is ready"), SOON, is_ready).await;
    }

    let (mark, said) = (cluster.audit().mark().await?, host.log().lines().count());
    client.delete(&NAMESPACES, "", &namespace).await?;
    gone(&client, &NAMESPACES, "", &namespace, SOON).await;
    tokio::time::sleep(A_WHILE).await;

    let requests = cluster.audit().since(mark).await?.by_agent("operator-host/").within(&namespace).beyond_watches();
    let (mut of_key, mut of_child) = (BTreeMap::<&str, usize>::new(), BTreeMap::<(&str, &str), usize>::new());
    for request in &requests {
        *of_key.entry(&request.name).or_default() += 1;
        if request.is_write() && request.resource != "webapps.webapp.example.com" {
            *of_child.entry((&request.resource, &request.name)).or_default() += 1;
        }
    }
    assert!(of_child.values().all(|tries| *tries <= 1), "a child was tried again: {of_child:?}\n{requests}");
    assert!(of_key.values().all(|requests| *requests <= 10), "{of_key:?}\n{requests}");
    let log = host.log();
    let said: Vec<&str> = log.lines().skip(said).collect();
    assert!(said.len() <= 6 * KEYS, "{} lines:\n{}", said.len(), said.join("\n"));
    assert!(!log.contains("events can't be written"), "there is nobody to tell: {log}");
    println!("{} requests, {} lines of log", requests.len(), said.len());

    // Everybody else is served.
    client.create(&WEB_APPS, &web_app("default", "shop")).await?;
    eventually("another namespace's WebApp is settled", SOON, || async {
        is_settled(&client.get(&WEB_APPS, "default", "shop").await?)
    })
    .await;
    Ok(())
}
