//! Others change or delete what a WebApp wants: it is set right by one write.

use std::time::Duration;

use operator_e2e::client::{DEPLOYMENTS, Resource, SERVICES};
use operator_e2e::objects::{PROBES, WEB_APPS, probe, web_app};
use operator_e2e::{Requests, Result, Stage, eventually, modules};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(60);

/// A settled WebApp `shop`.
async fn shop(name: &str) -> Result<Stage> {
    let stage = Stage::open(name, modules::webapp().await?, &[]).await?;
    stage.client.create(&WEB_APPS, &web_app(&stage.namespace, "shop")).await?;
    stage.settled(&WEB_APPS, "shop").await;
    Ok(stage)
}

/// What the host asked for while somebody changed something and until it was set right.
async fn after(
    stage: &Stage,
    change: impl Future<Output = Result<()>>,
    is_right: impl AsyncFn() -> Result<()>,
) -> Result<Requests> {
    let (mark, passes) = (stage.mark().await?, stage.passes());
    change.await?;
    eventually("it is set right", SOON, || is_right()).await;
    eventually("the pass has ended", SOON, || async { stage.passes() > passes }).await;
    stage.quiesce(&WEB_APPS, "shop").await?;
    is_right().await?;
    stage.requests_since(mark).await
}

async fn has_two_replicas(stage: &Stage) -> Result<()> {
    let replicas = stage.get(&DEPLOYMENTS, "shop").await?["spec"]["replicas"].take();
    anyhow::ensure!(replicas == 2, "{replicas}");
    Ok(())
}

#[tokio::test]
async fn a_field_that_another_manager_changes_is_reverted_by_one_write() -> Result<()> {
    let stage = shop("drift").await?;
    let (client, namespace) = (&stage.client, stage.namespace.as_str());
    let seven = json!({"spec": {"replicas": 7}});
    let is_right = async || has_two_replicas(&stage).await;

    let merge_patch = async {
        client.patch(&DEPLOYMENTS, namespace, "shop", &seven).await?;
        Ok(())
    };
    one_child_write(&after(&stage, merge_patch, is_right).await?, "deployments.apps");

    let put = async {
        let mut object = stage.get(&DEPLOYMENTS, "shop").await?;
        object["spec"]["replicas"] = json!(7);
        client.replace(&DEPLOYMENTS, &object).await?;
        Ok(())
    };
    one_child_write(&after(&stage, put, is_right).await?, "deployments.apps");

    let apply = async {
        let mut object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 7}});
        object["metadata"] = json!({"name": "shop", "namespace": namespace});
        client.apply(&DEPLOYMENTS, "kubectl", &object).await?;
        Ok(())
    };
    one_child_write(&after(&stage, apply, is_right).await?, "deployments.apps");

    let scale = async {
        client.patch_subresource(&DEPLOYMENTS, namespace, "shop", "scale", &seven).await?;
        Ok(())
    };
    one_child_write(&after(&stage, scale, is_right).await?, "deployments.apps");
    Ok(())
}

#[tokio::test]
async fn a_child_that_is_deleted_is_made_again_by_one_write() -> Result<()> {
    let stage = shop("deleted").await?;
    for (resource, kind) in [(DEPLOYMENTS, "deployments.apps"), (SERVICES, "services")] {
        let uid = async || Result::<_>::Ok(stage.get(&resource, "shop").await?["metadata"]["uid"].take());
        let before = uid().await?;
        let delete = async {
            stage.client.delete(&resource, &stage.namespace, "shop").await?;
            Ok(())
        };
        let is_another = async || {
            anyhow::ensure!(uid().await? != before, "it is still there");
            Ok(())
        };
        one_child_write(&after(&stage, delete, is_another).await?, kind);
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
    assert!(writes.iter().all(|record| record.code < 300), "something was refused:\n{requests}");
}

#[tokio::test]
async fn a_status_that_is_tampered_with_is_set_right_by_one_status_write() -> Result<()> {
    let stage = shop("tampered").await?;
    let before = timeless_status(&stage).await?;
    let tamperings = [
        json!({"readyReplicas": 41}),
        json!({"readyReplicas": null}),
        json!({"conditions": []}),
        json!({"observedGeneration": 99}),
    ];
    for tampering in tamperings {
        let status = json!({"status": tampering});
        let tamper = async {
            stage.client.patch_subresource(&WEB_APPS, &stage.namespace, "shop", "status", &status).await?;
            Ok(())
        };
        let is_right = async || {
            let now = timeless_status(&stage).await?;
            anyhow::ensure!(now == before, "{now}");
            Ok(())
        };
        let requests = after(&stage, tamper, is_right).await?;
        assert_eq!(requests.writes().len(), 1, "after {status}:\n{requests}");
        assert!(requests.writes().iter().all(|record| record.subresource == "status"), "{requests}");
    }
    Ok(())
}

/// The status without the times of conditions.
async fn timeless_status(stage: &Stage) -> Result<Value> {
    let mut status = stage.get(&WEB_APPS, "shop").await?["status"].take();
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastTransitionTime"] = Value::Null;
    }
    Ok(status)
}

/// The value is right all along, but it is no longer ours: whether that is worth a write is the same warm and cold.
#[tokio::test]
async fn a_field_that_is_changed_there_and_back_costs_one_write_at_most() -> Result<()> {
    let mut stage = shop("there-and-back").await?;
    let there_and_back = async |client: operator_e2e::Client, namespace: String| {
        for replicas in [5, 2] {
            client.patch(&DEPLOYMENTS, &namespace, "shop", &json!({"spec": {"replicas": replicas}})).await?;
        }
        Result::<()>::Ok(())
    };

    // Neither version is seen before both are made.
    let (mark, passes) = (stage.mark().await?, stage.passes());
    stage.proxy.pause_watches();
    there_and_back(stage.client.clone(), stage.namespace.clone()).await?;
    stage.proxy.resume_watches();
    eventually("a pass has seen it", SOON, || async { stage.passes() > passes }).await;
    stage.quiesce(&WEB_APPS, "shop").await?;
    let warm = stage.requests_since(mark).await?.writes();
    assert!(warm.len() <= 1, "{warm}");

    let mark = stage.mark().await?;
    stage.restart_after(there_and_back(stage.client.clone(), stage.namespace.clone())).await?;
    eventually("a pass has seen it", SOON, || async { stage.passes() > 0 }).await;
    stage.quiesce(&WEB_APPS, "shop").await?;
    let cold = stage.requests_since(mark).await?.writes();
    assert_eq!(cold.counts(), warm.counts(), "cold:\n{cold}warm:\n{warm}");

    let mark = stage.mark().await?;
    stage.restart_after(async { Ok(()) }).await?;
    eventually("a pass has seen it", SOON, || async { stage.passes() > 0 }).await;
    stage.quiesce(&WEB_APPS, "shop").await?;
    let settled = stage.requests_since(mark).await?.writes();
    assert!(settled.is_empty(), "{settled}");
    Ok(())
}

const WIDGETS_V1: Resource<'static> = Resource::new("example.com/v1", "widgets");
const WIDGETS_V2: Resource<'static> = Resource::new("example.com/v2", "widgets");

/// A type that is served in two versions, with a status.
fn widget_definition() -> Value {
    let version = |name: &str, stored: bool| {
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({
            "name": name,
            "served": true,
            "storage": stored,
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [version("v1", true), version("v2", false)],
        },
    })
}

#[tokio::test]
async fn a_childs_controller_that_writes_its_status_in_another_version_causes_no_write() -> Result<()> {
    let stage = Stage::open("versions", &modules::fixture("probe").await?, &[]).await?;
    stage.cluster.apply(&widget_definition().to_string()).await?;
    let widget = json!({
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "wheel"},
        "spec": {"spokes": 3, "rims": [{"size": 20}]},
    });
    let spec = json!({"children": [{"object": widget}], "report": true});
    stage.client.create(&PROBES, &probe(&stage.namespace, "cart", spec)).await?;
    eventually("the Widget is made", SOON, || async { stage.get(&WIDGETS_V1, "wheel").await }).await;
    stage.settled(&PROBES, "cart").await;
    // What the new child itself causes is over.
    stage.quiesce(&PROBES, "cart").await?;

    let (mark, passes) = (stage.mark().await?, stage.passes());
    let mut live = stage.get(&WIDGETS_V2, "wheel").await?;
    live["status"] = json!({"turns": 7});
    let path = format!("{}/status", WIDGETS_V2.path(&stage.namespace, "wheel"));
    stage.client.request("PUT", &path, "application/json", &live).await?;
    eventually("a pass has seen it", SOON, || async { stage.passes() > passes }).await;
    stage.quiesce(&PROBES, "cart").await?;
    let requests = stage.requests_since(mark).await?;
    assert!(requests.is_empty(), "{requests}");
    Ok(())
}
