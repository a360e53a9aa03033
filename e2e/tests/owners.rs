//! An object of a wanted name that is not the WebApp's: it stays as it is, and the condition names it and its controller.

use std::time::Duration;

use operator_e2e::client::{CONFIG_MAPS, DEPLOYMENTS, SERVICES};
use operator_e2e::expect::reconciled;
use operator_e2e::objects::{WEB_APPS, web_app};
use operator_e2e::{Result, Stage, eventually, modules};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(60);

/// A Deployment of the name `shop` that somebody else made.
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

#[tokio::test]
async fn an_object_without_owner_is_left_alone_and_its_name_taken_when_it_is_free() -> Result<()> {
    let stage = Stage::open("foreign", modules::webapp().await?, &[]).await?;
    let foreign = stage.client.create(&DEPLOYMENTS, &foreign_deployment(&stage.namespace)).await?;
    stage.client.create(&WEB_APPS, &web_app(&stage.namespace, "shop")).await?;
    let message = refused(&stage).await;
    let named = format!("Deployment {}/shop", stage.namespace);
    assert!(message.contains(&named) && message.contains("has no controller"), "{message}");
    untouched_and_sibling_applied(&stage, &foreign).await?;

    let mark = stage.mark().await?;
    stage.client.delete(&DEPLOYMENTS, &stage.namespace, "shop").await?;
    eventually("the name is taken", SOON, || async {
        let owner = stage.get(&DEPLOYMENTS, "shop").await?["metadata"]["ownerReferences"][0]["kind"].take();
        anyhow::ensure!(owner == "WebApp", "{owner}");
        Ok(())
    })
    .await;
    let requests = stage.cluster.audit().since(mark).await?.of("deployments.apps").within(&stage.namespace).writes();
    let freed = requests.iter().find(|request| request.verb == "delete").expect("the test deleted it");
    let taken = requests.by_agent("operator-host/");
    let taken = taken.iter().find(|request| request.code == 201).expect("the host made it");
    let after = taken.received_after(freed)?;
    assert!(after < Duration::from_secs(1), "the name was taken {after:?} after it was free\n{requests}");
    stage.settled(&WEB_APPS, "shop").await;
    Ok(())
}

#[tokio::test]
async fn an_object_of_another_controller_is_left_alone_and_the_controller_named() -> Result<()> {
    let stage = Stage::open("owned", modules::webapp().await?, &[]).await?;
    let mut landlord = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    landlord["metadata"] = json!({"name": "landlord", "namespace": stage.namespace});
    let uid = stage.client.create(&CONFIG_MAPS, &landlord).await?["metadata"]["uid"].take();
    let mut object = foreign_deployment(&stage.namespace);
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "landlord", "uid": uid, "controller": true}]);
    let foreign = stage.client.create(&DEPLOYMENTS, &object).await?;

    stage.client.create(&WEB_APPS, &web_app(&stage.namespace, "shop")).await?;
    let message = refused(&stage).await;
    let named = format!("Deployment {}/shop", stage.namespace);
    assert!(message.contains(&named) && message.contains("ConfigMap landlord"), "{message}");
    untouched_and_sibling_applied(&stage, &foreign).await
}

/// What the condition of the WebApp says of the child that is not its own.
async fn refused(stage: &Stage) -> String {
    let condition = reconciled(&stage.client, &WEB_APPS, &stage.namespace, "shop", "ChildNotOwned", SOON).await;
    assert_eq!(condition["status"], "False", "{condition}");
    condition["message"].as_str().unwrap_or_default().to_owned()
}

async fn untouched_and_sibling_applied(stage: &Stage, foreign: &Value) -> Result<()> {
    let edit = json!({"spec": {"port": 9090, "replicas": 9}});
    stage.client.patch(&WEB_APPS, &stage.namespace, "shop", &edit).await?;
    eventually("the Service follows an edit", SOON, || async {
        let port = stage.get(&SERVICES, "shop").await?["spec"]["ports"][0]["targetPort"].take();
        anyhow::ensure!(port == 9090, "{port}");
        Ok(())
    })
    .await;
    stage.quiesce(&WEB_APPS, "shop").await?;
    assert_eq!(stage.get(&DEPLOYMENTS, "shop").await?, *foreign, "somebody else's object was touched");
    Ok(())
}
