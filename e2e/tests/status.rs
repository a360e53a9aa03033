//! Definitions in the cluster that are not the module's own, and statuses that never come to rest: no write loop, and what is lost
//! is said.

use std::time::Duration;

use operator_e2e::client::DEPLOYMENTS;
use operator_e2e::objects::{PROBES, WEB_APP_CRD, WEB_APPS, condition, probe, web_app};
use operator_e2e::{Cluster, Host, Requests, Result, Stage, eventually, modules};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(60);

/// The WebApp's definition, with something else in place of a part of its only version.
async fn definition(cluster: &Cluster, edit: impl FnOnce(&mut Value)) -> Result<()> {
    let own = cluster.kubectl_command(&["create", "--dry-run=client", "-o", "json", "-f", "-"]).stdin(WEB_APP_CRD);
    let mut object: Value = serde_json::from_str(&own.run().await?.ok()?)?;
    edit(&mut object["spec"]["versions"][0]);
    let published = async || cluster.client().text("/openapi/v3/apis/webapp.example.com/v1").await.ok();
    let before = published().await;
    cluster.apply(&object.to_string()).await?;
    // The server publishes a definition some time after it serves it.
    eventually("the definition is published", SOON, || async {
        published().await.is_some_and(|now| Some(now) != before)
    })
    .await;
    Ok(())
}

/// What a type that the host does not expect costs: settling, one change, and many looks at what did not change.
async fn works_without_a_loop(cluster: &Cluster, name: &str) -> Result<(Host, String)> {
    let (client, namespace) = (cluster.client(), cluster.namespace(name).await?);
    let arguments = [format!("--namespace={namespace}"), format!("--installation-id={namespace}")];
    let arguments = [&arguments[0], &arguments[1], "-v", "--resync=500ms"];
    let host = Host::spawn(&cluster.kubeconfig("admin")?, &[modules::webapp().await?], &arguments)?;
    client.create(&WEB_APPS, &web_app(&namespace, "shop")).await?;
    let deployed = async |replicas: u32| {
        eventually("the Deployment follows", SOON, || async {
            let live = client.get(&DEPLOYMENTS, &namespace, "shop").await?["spec"]["replicas"].take();
            anyhow::ensure!(live == replicas, "{live}");
            Ok(())
        })
        .await;
        looks(&host, 5).await;
    };
    deployed(2).await;

    let mark = cluster.audit().mark().await?;
    client.patch(&WEB_APPS, &namespace, "shop", &json!({"spec": {"replicas": 4}})).await?;
    deployed(4).await;
    let writes = writes_since(cluster, mark, &namespace).await?;
    assert_eq!(writes.of("deployments.apps").len(), 1, "{writes}");
    assert!(writes.of("webapps.webapp.example.com").len() <= 1, "more than one status write after a change:\n{writes}");

    let mark = cluster.audit().mark().await?;
    for number in 0..3 {
        let touch = json!({"metadata": {"annotations": {"touched": number.to_string()}}});
        client.patch(&WEB_APPS, &namespace, "shop", &touch).await?;
        looks(&host, 3).await;
    }
    let writes = writes_since(cluster, mark, &namespace).await?;
    assert!(writes.is_empty(), "writes though nothing changed:\n{writes}");
    Ok((host, namespace))
}

/// Waits for so many more passes.
async fn looks(host: &Host, number: usize) {
    let before = host.passes().len();
    eventually("the object is looked at again", SOON, || async { host.passes().len() >= before + number }).await;
}

async fn writes_since(cluster: &Cluster, mark: operator_e2e::Mark, namespace: &str) -> Result<Requests> {
    Ok(cluster.audit().since(mark).await?.by_agent("operator-host/").within(namespace).writes())
}

/// One cluster, one definition after the other: a type has one name.
#[tokio::test]
async fn a_definition_that_keeps_less_is_said_once_and_makes_no_loop() -> Result<()> {
    let cluster = Cluster::bare().await?;
    let (client, status) = (cluster.client(), "/schema/openAPIV3Schema/properties/status");

    // As a tutorial has it: conditions of a type and a status, and no more.
    let small = json!({"type": "object", "properties": {
        "readyReplicas": {"type": "integer"},
        "conditions": {"type": "array", "items": {
            "type": "object",
            "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
        }},
    }});
    definition(&cluster, |version| *version.pointer_mut(status).expect("its schema") = small).await?;
    let (host, _) = works_without_a_loop(&cluster, "small").await?;
    says_once(&host, "does not keep", "status.conditions[].reason");
    says_once(&host, "the API server prunes these fields", "status.conditions[].reason");
    let object = client.list(&WEB_APPS, "", "").await?.remove(0);
    assert_eq!(*condition(&object, "Reconciled"), json!({"type": "Reconciled", "status": "True"}));
    drop(host);

    // What it can hold from now on is written though the object is settled, and nobody touches it.
    let (host, namespace) = works_without_a_loop(&cluster, "larger").await?;
    let larger = json!({"type": "object", "properties": {
        "readyReplicas": {"type": "integer"},
        "conditions": {"type": "array", "items": {
            "type": "object",
            "properties": {"type": {"type": "string"}, "status": {"type": "string"}, "reason": {"type": "string"}},
        }},
    }});
    let mark = cluster.audit().mark().await?;
    definition(&cluster, |version| *version.pointer_mut(status).expect("its schema") = larger).await?;
    host.wait_log("the definition in the cluster has changed", SOON).await;
    eventually("the reason is written", SOON, || async {
        let object = client.list(&WEB_APPS, &namespace, "").await?.remove(0);
        anyhow::ensure!(condition(&object, "Reconciled")["reason"] == "Settled", "{object}");
        Ok(())
    })
    .await;
    let writes = writes_since(&cluster, mark, &namespace).await?;
    assert_eq!(writes.len(), 1, "{writes}");
    drop(host);

    let bare = json!({"type": "object", "properties": {"readyReplicas": {"type": "integer"}}});
    definition(&cluster, |version| *version.pointer_mut(status).expect("its schema") = bare).await?;
    let (host, _) = works_without_a_loop(&cluster, "no-conditions").await?;
    says_once(&host, "does not keep", "status.conditions");
    drop(host);

    definition(&cluster, |version| version["subresources"] = json!({})).await?;
    let (host, _) = works_without_a_loop(&cluster, "no-subresource").await?;
    let namespaced =
        |object: &&Value| object["metadata"]["namespace"].as_str().is_some_and(|name| name.starts_with("no-sub"));
    let objects = client.list(&WEB_APPS, "", "").await?;
    let object = objects.iter().find(namespaced).expect("it is there");
    assert_eq!(condition(object, "Reconciled")["status"], "True", "{object}");
    assert!(object["status"].get("observedGeneration").is_none(), "each write would make it wrong: {object}");
    assert!(!host.log_contains("the definition in the cluster"), "its schema is the module's own: {}", host.log());
    drop(host);

    // A status that the schema refuses is not written, and the object says so.
    let strict = |version: &mut Value| {
        let ready = version.pointer_mut(&format!("{status}/properties/readyReplicas")).expect("its schema");
        *ready = json!({"type": "integer", "minimum": 1});
    };
    definition(&cluster, strict).await?;
    let namespace = cluster.namespace("strict").await?;
    let arguments = [format!("--namespace={namespace}"), format!("--installation-id={namespace}")];
    let arguments = [&*arguments[0], &*arguments[1]];
    let host = Host::spawn(&cluster.kubeconfig("admin")?, &[modules::webapp().await?], &arguments)?;
    client.create(&WEB_APPS, &web_app(&namespace, "shop")).await?;
    eventually("the object says what is wrong with its status", SOON, || async {
        let object = client.get(&WEB_APPS, &namespace, "shop").await?;
        let condition = condition(&object, "Reconciled");
        let message = condition["message"].as_str().unwrap_or_default();
        anyhow::ensure!(condition["reason"] == "InvalidOutcome" && message.contains("readyReplicas"), "{object}");
        Ok(())
    })
    .await;
    drop(host);

    // One that lists the types of conditions, and not the host's.
    let listed = |version: &mut Value| {
        let type_ = version.pointer_mut(&format!("{status}/properties/conditions/items/properties/type"));
        *type_.expect("its schema") = json!({"type": "string", "enum": ["Ready"]});
    };
    definition(&cluster, listed).await?;
    let (host, namespace) = works_without_a_loop(&cluster, "listed").await?;
    let object = client.get(&WEB_APPS, &namespace, "shop").await?;
    assert_eq!(condition(&object, "Ready")["status"], "False", "{object}");
    assert_eq!(object["status"]["conditions"].as_array().map(Vec::len), Some(1), "{object}");
    says_once(&host, "did not keep", "Reconciled");
    drop(host);

    let paused = json!({"type": "boolean"});
    definition(&cluster, |version| {
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["paused"] = paused
    })
    .await?;
    let (host, _) = works_without_a_loop(&cluster, "newer").await?;
    says_once(&host, "the definition in the cluster is newer", "spec.paused");
    Ok(())
}

/// There is one line of this text in the log, and it names the field.
#[track_caller]
fn says_once(host: &Host, text: &str, field: &str) {
    let log = host.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(text)).collect();
    assert!(lines.len() == 1 && lines[0].contains(field), "{text:?} about {field} in\n{log}");
}

/// A module whose message counts its own calls, and asks to be called again and again.
#[tokio::test]
async fn a_status_that_differs_from_call_to_call_is_slowed_and_named() -> Result<()> {
    let stage = Stage::open("counts", &modules::fixture("probe").await?, &[]).await?;
    let spec = json!({"behaviour": "counts", "requeueAfterMs": 200});
    stage.client.create(&PROBES, &probe(&stage.namespace, "clock", spec)).await?;
    stage.host.wait_log("differs from call to call", SOON).await;

    let mark = stage.mark().await?;
    looks(&stage.host, 10).await;
    let writes = stage.requests_since(mark).await?.writes();
    assert!(writes.len() <= 1, "still a write for each call:\n{writes}");
    says_once(&stage.host, "differs from call to call", "].message");
    Ok(())
}
