//! What is settled costs nothing: a thousand WebApps looked at again, and found by a host that starts anew.

use std::path::Path;
use std::time::Duration;

use futures::StreamExt as _;
use operator_e2e::client::DEPLOYMENTS;
use operator_e2e::objects::{WEB_APPS, is_settled, web_app};
use operator_e2e::{Cluster, Host, Result, eventually, modules};
use serde_json::json;

const OBJECTS: usize = 1000;
const SOON: Duration = Duration::from_secs(30);
/// A thousand objects on a busy machine, children and status included.
const ALL: Duration = Duration::from_secs(180);

#[tokio::test]
async fn a_thousand_settled_objects_cost_nothing_again_and_after_a_restart() -> Result<()> {
    let cluster = Cluster::bare().await?;
    cluster.install_definitions().await?;
    let (namespace, client) = (cluster.namespace("settled").await?, cluster.client());
    let names: Vec<String> = (0..OBJECTS).map(|number| format!("app-{number:03}")).collect();
    let creates = names.iter().map(|name| {
        let (client, object) = (&client, web_app(&namespace, name));
        async move { client.create(&WEB_APPS, &object).await.map(drop) }
    });
    let mut creates = futures::stream::iter(creates).buffer_unordered(32);
    while let Some(created) = creates.next().await {
        created?;
    }

    let (kubeconfig, module) = (cluster.kubeconfig("admin")?, modules::webapp().await?);
    let mut host = Host::spawn(&kubeconfig, &[module], &["--resync=4s", "-v"])?;
    eventually("every WebApp is settled", ALL, || async {
        let left = client.list(&WEB_APPS, &namespace, "").await?.iter().filter(|app| is_settled(app).is_err()).count();
        if left == 0 { Ok(()) } else { Err(anyhow::anyhow!("{left} are not")) }
    })
    .await;

    let mark = cluster.audit().mark().await?;
    let before = passes(&host);
    eventually("every key was reconciled again, twice", ALL, || async { passes(&host) >= before + 2 * OBJECTS }).await;
    let requests = cluster.audit().since(mark).await?.by_agent("operator-host/").beyond_watches();
    assert!(requests.is_empty(), "passes over what is settled made requests:\n{requests}");

    host.sigterm().await?;
    restart_writes_nothing(&cluster, &kubeconfig, module, &namespace).await
}

/// Passes that wrote nothing.
fn passes(host: &Host) -> usize {
    host.log().matches("reconciled, nothing written").count()
}

async fn restart_writes_nothing(cluster: &Cluster, kubeconfig: &Path, module: &Path, namespace: &str) -> Result<()> {
    let client = cluster.client();
    let mark = cluster.audit().mark().await?;
    let mut host = Host::spawn(kubeconfig, &[module], &["--resync=0", "-v"])?;
    host.wait_ready().await?;
    eventually("every WebApp was looked at", ALL, || async { passes(&host) >= OBJECTS }).await;
    let requests = cluster.audit().since(mark).await?.by_agent("operator-host/");
    assert!(requests.writes().is_empty(), "a restart wrote:\n{}", requests.writes());

    // It is at work: the next change gets through.
    client.patch(&WEB_APPS, namespace, "app-500", &json!({"spec": {"replicas": 5}})).await?;
    eventually("the Deployment follows", SOON, || async {
        let deployment = client.get(&DEPLOYMENTS, namespace, "app-500").await?;
        anyhow::ensure!(deployment["spec"]["replicas"] == 5, "{}", deployment["spec"]["replicas"]);
        Ok(())
    })
    .await;
    Ok(())
}
