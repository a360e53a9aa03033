//! Others change, delete or own what a WebApp wants: what is ours is set right by one write, what is not stays as it is.

use std::time::Duration;

use operator_e2e::client::{CONFIG_MAPS, DEPLOYMENTS, Resource, SERVICES};
use operator_e2e::objects::{WEB_APPS, condition, is_settled, web_app};
use operator_e2e::{Client, Cluster, Host, Requests, Result, eventually, modules};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);

/// A namespace of the shared cluster with a settled WebApp `shop`, and the host that settled it.
struct Shop {
    cluster: &'static Cluster,
    client: Client,
    namespace: String,
    host: Host,
}

impl Shop {
    async fn open(name: &str) -> Result<Self> {
        Self::open_with(name, |_, _| async { Ok(()) }).await
    }

    /// The same, with something arranged before.
    async fn open_with<F>(name: &str, arrange: impl FnOnce(Client, String) -> F) -> Result<Self>
    where
        F: Future<Output = Result<()>>,
    {
        let cluster = cluster().await?;
        let (namespace, client) = (cluster.namespace(name).await?, cluster.client());
        let arguments = [&format!("--namespace={namespace}"), &format!("--installation-id={namespace}"), "-v"];
        let host = Host::spawn(&cluster.kubeconfig("admin")?, &[modules::webapp().await?], &arguments)?;
        arrange(client.clone(), namespace.clone()).await?;
        client.create(&WEB_APPS, &web_app(&namespace, "shop")).await?;
        Ok(Self { cluster, client, namespace, host })
    }

    async fn settled(self) -> Result<Self> {
        eventually("the WebApp is settled", SOON, || async { is_settled(&self.web_app().await?) }).await;
        Ok(self)
    }

    async fn web_app(&self) -> Result<Value> {
        Ok(self.client.get(&WEB_APPS, &self.namespace, "shop").await?)
    }

    async fn child(&self, resource: &Resource<'_>) -> Result<Value> {
        Ok(self.client.get(resource, &self.namespace, "shop").await?)
    }

    /// Runs a change by somebody else, waits until `restored`, and gives the requests that the host made for it.
    async fn after<F, G>(&self, change: impl Future<Output = Result<()>>, restored: impl Fn() -> F) -> Result<Requests>
    where
        F: Future<Output = Result<G>>,
    {
        let (mark, passes) = (self.cluster.audit().mark().await?, self.passes());
        change.await?;
        eventually("it is set right", SOON, &restored).await;
        eventually("the pass has ended", SOON, || async { self.passes() > passes }).await;
        // What the host's own write set off has come to an end when the next thing is answered.
        let touched = json!({"metadata": {"labels": {"touched": format!("{:08x}", fastrand::u32(..))}}});
        let passes = self.passes();
        self.client.patch(&WEB_APPS, &self.namespace, "shop", &touched).await?;
        eventually("a later pass has ended", SOON, || async { self.passes() > passes }).await;
        let all = self.cluster.audit().since(mark).await?.by_agent("operator-host/").beyond_watches();
        Ok(all.within(&self.namespace))
    }

    fn passes(&self) -> usize {
        self.host.log().lines().filter(|line| line.contains("reconciled") && line.contains("took_ms")).count()
    }
}

async fn cluster() -> Result<&'static Cluster> {
    static DEFINED: tokio::sync::OnceCell<()> = tokio::sync::OnceCell::const_new();
    let cluster = Cluster::shared().await;
    DEFINED.get_or_try_init(|| cluster.install_definitions()).await?;
    Ok(cluster)
}

fn replicas(object: &Value) -> Result<()> {
    anyhow::ensure!(object["spec"]["replicas"] == 2, "{}", object["spec"]["replicas"]);
    Ok(())
}

#[tokio::test]
async fn a_field_that_another_manager_changes_is_reverted_by_one_write() -> Result<()> {
    let shop = Shop::open("drift").await?.settled().await?;
    let (client, namespace) = (&shop.client, shop.namespace.as_str());
    let restored = || async { replicas(&shop.child(&DEPLOYMENTS).await?) };

    let merge_patch = async {
        client.patch(&DEPLOYMENTS, namespace, "shop", &json!({"spec": {"replicas": 7}})).await?;
        Ok(())
    };
    one_child_write(&shop.after(merge_patch, restored).await?, "deployments.apps");

    let put = async {
        let mut object = shop.child(&DEPLOYMENTS).await?;
        object["spec"]["replicas"] = json!(7);
        client.replace(&DEPLOYMENTS, &object).await?;
        Ok(())
    };
    one_child_write(&shop.after(put, restored).await?, "deployments.apps");

    let apply = async {
        let object = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "shop", "namespace": namespace},
            "spec": {"replicas": 7},
        });
        client.apply(&DEPLOYMENTS, "kubectl", &object).await?;
        Ok(())
    };
    one_child_write(&shop.after(apply, restored).await?, "deployments.apps");

    let scale = async {
        client.patch_subresource(&DEPLOYMENTS, namespace, "shop", "scale", &json!({"spec": {"replicas": 7}})).await?;
        Ok(())
    };
    one_child_write(&shop.after(scale, restored).await?, "deployments.apps");
    Ok(())
}

#[tokio::test]
async fn a_child_that_is_deleted_is_made_again_by_one_write() -> Result<()> {
    let shop = Shop::open("deleted").await?.settled().await?;
    for (resource, kind) in [(DEPLOYMENTS, "deployments.apps"), (SERVICES, "services")] {
        let before = shop.child(&resource).await?["metadata"]["uid"].take();
        let delete = async {
            shop.client.delete(&resource, &shop.namespace, "shop").await?;
            Ok(())
        };
        let requests = shop
            .after(delete, || async {
                let now = shop.child(&resource).await?["metadata"]["uid"].take();
                anyhow::ensure!(now != before, "it is still there");
                Ok(())
            })
            .await?;
        one_child_write(&requests, kind);
    }
    Ok(())
}

/// Exactly one write to that kind of child and none to the other, at most two of the status, nothing refused.
#[track_caller]
fn one_child_write(requests: &Requests, kind: &str) {
    let writes = requests.writes();
    let status = writes.matching(|record| record.subresource == "status");
    assert_eq!(writes.of(kind).len(), 1, "not exactly one write to {kind}:\n{requests}");
    assert!(status.len() <= 2, "more than two status writes:\n{requests}");
    assert_eq!(writes.len(), 1 + status.len(), "writes beside {kind} and status:\n{requests}");
    assert!(requests.iter().all(|record| record.code < 300 || record.verb == "get"), "{requests}");
}

#[tokio::test]
async fn a_status_that_is_tampered_with_is_set_right_by_one_status_write() -> Result<()> {
    let shop = Shop::open("status").await?.settled().await?;
    let before = shop.web_app().await?["status"].take();
    let tamperings = [
        json!({"readyReplicas": 41}),
        json!({"readyReplicas": null}),
        json!({"conditions": []}),
        json!({"observedGeneration": 99}),
    ];
    for tampering in tamperings {
        let tamper = async {
            let status = json!({"status": tampering});
            shop.client.patch_subresource(&WEB_APPS, &shop.namespace, "shop", "status", &status).await?;
            Ok(())
        };
        let requests = shop
            .after(tamper, || async {
                let status = shop.web_app().await?["status"].take();
                anyhow::ensure!(same_status(&status, &before), "{status}");
                Ok(())
            })
            .await?;
        let writes = requests.writes();
        assert_eq!(writes.len(), 1, "after {tampering}:\n{requests}");
        assert!(writes.iter().all(|record| record.subresource == "status"), "{requests}");
    }
    Ok(())
}

/// Equal but for the times of conditions.
fn same_status(one: &Value, other: &Value) -> bool {
    let timeless = |status: &Value| {
        let mut status = status.clone();
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastTransitionTime"] = Value::Null;
        }
        status
    };
    timeless(one) == timeless(other)
}

#[tokio::test]
async fn an_object_of_the_name_without_owner_is_left_alone_and_named() -> Result<()> {
    let shop = Shop::open_with("foreign", |client, namespace| async move {
        client.create(&DEPLOYMENTS, &foreign_deployment(&namespace)).await?;
        Ok(())
    })
    .await?;
    let before = shop.child(&DEPLOYMENTS).await?;
    let message = refused(&shop).await;
    let named = format!("Deployment {}/shop", shop.namespace);
    assert!(message.contains(&named) && message.contains("no controller"), "{message}");
    untouched_but_sibling_applied(&shop, &before).await?;

    // Free again: taken within a second.
    shop.client.delete(&DEPLOYMENTS, &shop.namespace, "shop").await?;
    let began = std::time::Instant::now();
    eventually("the name is taken", SOON, || async {
        let owner = shop.child(&DEPLOYMENTS).await?["metadata"]["ownerReferences"][0]["kind"].take();
        anyhow::ensure!(owner == "WebApp", "{owner}");
        Ok(())
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(5), "it took {:?} on a machine that may be busy", began.elapsed());
    eventually("the WebApp is settled", SOON, || async { is_settled(&shop.web_app().await?) }).await;
    Ok(())
}

#[tokio::test]
async fn an_object_of_the_name_with_another_controller_is_left_alone_and_both_are_named() -> Result<()> {
    let shop = Shop::open_with("owned", |client, namespace| async move {
        let owner = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "landlord", "namespace": &namespace},
        });
        let uid = client.create(&CONFIG_MAPS, &owner).await?["metadata"]["uid"].take();
        let mut object = foreign_deployment(&namespace);
        object["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "landlord", "uid": uid, "controller": true}]);
        client.create(&DEPLOYMENTS, &object).await?;
        Ok(())
    })
    .await?;
    let before = shop.child(&DEPLOYMENTS).await?;
    let message = refused(&shop).await;
    let named = format!("Deployment {}/shop", shop.namespace);
    assert!(message.contains(&named) && message.contains("ConfigMap landlord"), "{message}");
    untouched_but_sibling_applied(&shop, &before).await
}

fn foreign_deployment(namespace: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "shop", "namespace": namespace},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "other"}},
            "template": {
                "metadata": {"labels": {"app": "other"}},
                "spec": {"containers": [{"name": "other", "image": "example.test/other:1"}]},
            },
        },
    })
}

/// What the condition of a refused child says.
async fn refused(shop: &Shop) -> String {
    eventually("the WebApp reports a child that is not its own", SOON, || async {
        let object = shop.web_app().await?;
        let reconciled = condition(&object, "Reconciled");
        anyhow::ensure!(reconciled["reason"] == "ChildNotOwned" && reconciled["status"] == "False", "{reconciled}");
        Ok(reconciled["message"].as_str().unwrap_or_default().to_owned())
    })
    .await
}

async fn untouched_but_sibling_applied(shop: &Shop, before: &Value) -> Result<()> {
    eventually("the Service is made", SOON, || async { shop.child(&SERVICES).await }).await;
    // The host worked on it since: an edit of the WebApp reaches the sibling.
    let passes = shop.passes();
    let edit = json!({"spec": {"port": 9090, "replicas": 9}});
    shop.client.patch(&WEB_APPS, &shop.namespace, "shop", &edit).await?;
    eventually("the Service follows", SOON, || async {
        let port = shop.child(&SERVICES).await?["spec"]["ports"][0]["targetPort"].take();
        anyhow::ensure!(port == 9090 && shop.passes() > passes, "{port}");
        Ok(())
    })
    .await;
    assert_eq!(shop.child(&DEPLOYMENTS).await?, *before, "somebody else's object was touched");
    Ok(())
}
