//! Two operators whose types share kind and plural, in one host: each lives its own life, and each write is one of its own.

use std::time::Duration;

use operator_e2e::client::{DEPLOYMENTS, LEASES, Resource};
use operator_e2e::cluster::ADMIN;
use operator_e2e::objects::{WEB_APPS, condition, is_settled, web_app};
use operator_e2e::{Client, Cluster, Host, Mark, Requests, Result, eventually, expect, modules};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(90);
/// WebApps of `examples/webapp-apps`.
const APPS: Resource<'static> = Resource::new("apps.example.com/v1", "webapps");
const APPS_CRD: &str = include_str!("../../../examples/webapp-apps/crd.yaml");
const LOCK: &str = "webapp-operator-lock";

/// A cluster whose Deployments roll out, and a host that runs both operators under one Lease.
struct Stage {
    cluster: Cluster,
    client: Client,
    host: Host,
}

impl Stage {
    async fn open() -> Result<Self> {
        let cluster = Cluster::full().await?;
        cluster.install_definitions().await?;
        cluster.apply(APPS_CRD).await?;
        let modules = [modules::webapp().await?, modules::webapp_apps().await?];
        let election =
            ["--leader-elect", &format!("--leader-election-id={LOCK}"), "--leader-election-namespace=default"];
        let mut host = Host::spawn(&cluster.kubeconfig(ADMIN)?, &modules, &election)?;
        host.wait_ready().await?;
        Ok(Self { client: cluster.client(), cluster, host })
    }

    async fn create(&self, name: &str, spec: Value) -> Result<()> {
        let object = json!({
            "apiVersion": APPS.api_version,
            "kind": "WebApp",
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
        });
        self.client.create(&APPS, &object).await?;
        Ok(())
    }

    /// Waits until a WebApp of either operator is settled and this condition of it holds, for so many replicas.
    async fn ready(&self, resource: &Resource<'_>, name: &str, type_: &str, replicas: u64) -> Value {
        eventually(&format!("{name} of {} is {type_}", resource.api_version), SOON, || async {
            let object = self.client.get(resource, "default", name).await?;
            is_settled(&object)?;
            let holds = condition(&object, type_)["status"] == "True" && object["status"]["readyReplicas"] == replicas;
            anyhow::ensure!(holds, "{}", object["status"]);
            Ok(object)
        })
        .await
    }

    /// Waits for the one event of this reason about a WebApp of `examples/webapp-apps`.
    async fn event(&self, name: &str, reason: &str) -> Value {
        let event = expect::event(&self.client, "default", name, reason).await;
        assert_eq!(event["regarding"]["apiVersion"], APPS.api_version, "{event}");
        event
    }

    async fn mark(&self) -> Result<Mark> {
        self.cluster.audit().mark().await
    }

    async fn writes_since(&self, mark: Mark) -> Result<Requests> {
        Ok(self.cluster.audit().since(mark).await?.by_agent("operator-host/").writes())
    }
}

#[tokio::test]
async fn two_operators_of_one_kind_share_a_host_and_write_only_what_is_theirs() -> Result<()> {
    let stage = Stage::open().await?;
    let lease = stage.client.get(&LEASES, "default", LOCK).await?;
    assert!(lease["spec"]["holderIdentity"].is_string(), "one Lease for both: {lease}");

    let mark = stage.mark().await?;
    stage.client.create(&WEB_APPS, &web_app("default", "shop")).await?;
    stage.create("shop", json!({"image": "example.test/web:1", "replicas": 3, "port": 8080})).await?;
    stage.ready(&WEB_APPS, "shop", "Ready", 2).await;
    let shop = stage.ready(&APPS, "shop", "Available", 3).await;
    assert_eq!(condition(&shop, "Available")["reason"], "DeploymentReady");
    let deployment = stage.client.get(&DEPLOYMENTS, "default", "shop-deployment").await?;
    assert_eq!(deployment["metadata"]["labels"]["managed-by"], "webapp-operator");
    assert_eq!(deployment["metadata"]["ownerReferences"][0]["uid"], shop["metadata"]["uid"]);
    let told = stage.event("shop", "Reconciled").await;
    assert_eq!(told["type"], "Normal", "{told}");
    assert_eq!(told["note"], "Deployment shop-deployment updated to 3 replicas");
    assert_eq!(told["regarding"]["uid"], shop["metadata"]["uid"], "{told}");
    let writes = stage.writes_since(mark).await?;
    assert_eq!(writes.of("deployments.apps").len(), 2, "one for each operator:\n{writes}");
    assert_eq!(writes.of("services").len(), 1, "{writes}");

    edit(&stage).await?;
    drift(&stage).await?;
    missing(&stage).await?;
    delete(&stage).await
}

/// An edit is one write of the one operator's Deployment, and nothing of the other's.
async fn edit(stage: &Stage) -> Result<()> {
    let mark = stage.mark().await?;
    stage.client.patch(&APPS, "default", "shop", &json!({"spec": {"replicas": 5}})).await?;
    stage.ready(&APPS, "shop", "Available", 5).await;
    let writes = stage.writes_since(mark).await?;
    assert_eq!(writes.of("deployments.apps").len(), 1, "{writes}");
    assert_eq!(writes.of("webapps.webapp.example.com").len(), 0, "{writes}");
    assert!(writes.iter().all(|record| record.name.starts_with("shop")), "{writes}");
    Ok(())
}

/// What somebody else changes is changed back, by one write.
async fn drift(stage: &Stage) -> Result<()> {
    let mark = stage.mark().await?;
    stage.cluster.kubectl(&["scale", "deployment", "shop-deployment", "--replicas=1"]).await?.ok()?;
    eventually("the replicas are back", SOON, || async {
        let deployment = stage.client.get(&DEPLOYMENTS, "default", "shop-deployment").await?;
        anyhow::ensure!(deployment["spec"]["replicas"] == 5, "{}", deployment["spec"]["replicas"]);
        Ok(())
    })
    .await;
    stage.ready(&APPS, "shop", "Available", 5).await;
    let writes = stage.writes_since(mark).await?;
    assert_eq!(writes.of("deployments.apps").len(), 1, "{writes}");
    Ok(())
}

/// The schema lets an incomplete WebApp through: the operator names what is missing and makes nothing.
async fn missing(stage: &Stage) -> Result<()> {
    for (name, spec, field) in [
        ("no-replicas", json!({"image": "web:1", "port": 80}), "replicas"),
        ("no-port", json!({"image": "web:1", "replicas": 1}), "port"),
    ] {
        stage.create(name, spec).await?;
        let said = eventually(&format!("{name} says what is missing"), SOON, || async {
            let object = stage.client.get(&APPS, "default", name).await?;
            let said = condition(&object, "Reconciled").clone();
            anyhow::ensure!(said["status"] == "False", "{}", object["status"]);
            Ok(said)
        })
        .await;
        assert_eq!(said["reason"], "InvalidSpec", "{said}");
        assert_eq!(said["message"], format!("spec: missing field `{field}`"), "{said}");
        let told = stage.event(name, "InvalidSpec").await;
        assert_eq!((&told["type"], &told["note"]), (&json!("Warning"), &said["message"]), "{told}");
        let made = stage.client.find(&DEPLOYMENTS, "default", &format!("{name}-deployment")).await?;
        assert_eq!(made, None, "nothing is made of half a spec");
    }
    stage.client.patch(&APPS, "default", "no-port", &json!({"spec": {"port": 80}})).await?;
    stage.ready(&APPS, "no-port", "Available", 1).await;
    Ok(())
}

/// The garbage collector takes the Deployment along; the other operator's WebApp of the same name stays.
async fn delete(stage: &Stage) -> Result<()> {
    let mark = stage.mark().await?;
    stage.client.delete(&APPS, "default", "shop").await?;
    eventually("the Deployment is collected", SOON, || async {
        match stage.client.find(&DEPLOYMENTS, "default", "shop-deployment").await? {
            None => Ok(()),
            Some(deployment) => Err(anyhow::anyhow!("{}", deployment["metadata"])),
        }
    })
    .await;
    stage.ready(&WEB_APPS, "shop", "Ready", 2).await;
    let writes = stage.writes_since(mark).await?;
    assert!(writes.is_empty(), "deleting is the garbage collector's:\n{writes}");
    assert!(!stage.host.log_contains("panicked"), "{}", stage.host.log());
    Ok(())
}
