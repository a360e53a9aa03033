//! What the garbage collector of a whole control plane makes of children.

use std::time::Duration;

use operator_e2e::client::{CONFIG_MAPS, Resource};
use operator_e2e::cluster::ADMIN;
use operator_e2e::objects::{PROBES, is_settled, probe};
use operator_e2e::{Cluster, Host, Mark, Result, eventually, modules};
use serde_json::{Value, json};

const SERVICE_ACCOUNTS: Resource<'static> = Resource::new("v1", "serviceaccounts");
const SOON: Duration = Duration::from_secs(90);

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": "1"}})
}

#[tokio::test]
async fn children_go_with_their_parent_and_what_was_cut_loose_stays() -> Result<()> {
    let cluster = Cluster::full().await?;
    cluster.install_definitions().await?;
    let client = cluster.client();
    let mut host = Host::spawn(&cluster.kubeconfig(ADMIN)?, &[&modules::fixture("probe").await?], &[])?;
    host.wait_ready().await?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "loose"}});
    let kept = json!({"object": config_map("kept")});
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
