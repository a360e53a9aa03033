//! Children beyond an owner reference's reach, in an order, taken over from an earlier operator, and handed to others in part.

use operator_e2e::client::{CONFIG_MAPS, DEPLOYMENTS, Resource};
use operator_e2e::expect::SOON;
use operator_e2e::objects::{KEEPERS, condition, config_map};
use operator_e2e::{Result, Stage, eventually, modules};
use serde_json::{Value, json};

const CLUSTER_ROLES: Resource<'static> = Resource::new("rbac.authorization.k8s.io/v1", "clusterroles");
const CONTROLLER: &str = "operatorhost.dev/controller";
const MANAGER: &str = "operator-host/keeper";

struct Keepers(Stage);

impl Keepers {
    async fn start(name: &str) -> Result<Self> {
        let mut stage = Stage::open(name, &modules::fixture("keeper").await?, &[]).await?;
        stage.host.wait_ready().await?;
        Ok(Self(stage))
    }

    async fn create(&self, name: &str, children: Value) -> Result<Value> {
        let object = json!({
            "apiVersion": KEEPERS.api_version, "kind": "Keeper",
            "metadata": {"name": name, "namespace": self.0.namespace}, "spec": {"children": children, "outside": {"observation": 1}},
        });
        Ok(self.0.client.create(&KEEPERS, &object).await?)
    }

    async fn want(&self, name: &str, children: Value) -> Result<()> {
        let patch = json!({"spec": {"children": children}});
        self.0.client.patch(&KEEPERS, &self.0.namespace, name, &patch).await?;
        Ok(())
    }

    async fn says(&self, name: &str, reason: &str) -> String {
        let is_said = |object: &Value| condition(object, "Reconciled")["reason"] == reason;
        let object = self.0.object(&KEEPERS, name, &format!("{name} says {reason}"), is_said).await;
        condition(&object, "Reconciled")["message"].as_str().unwrap_or_default().to_owned()
    }

    /// Tells of a Deployment what its controller would when it is rolled out.
    async fn roll_out(&self, name: &str) -> Result<()> {
        let live = self.0.get(&DEPLOYMENTS, name).await?;
        let replicas = &live["spec"]["replicas"];
        let status = json!({"status": {
            "observedGeneration": live["metadata"]["generation"], "replicas": replicas, "updatedReplicas": replicas,
            "readyReplicas": replicas, "availableReplicas": replicas,
        }});
        self.0.client.patch_subresource(&DEPLOYMENTS, &self.0.namespace, name, "status", &status).await?;
        Ok(())
    }
}

fn in_namespace(mut object: Value, namespace: &str) -> Value {
    object["metadata"]["namespace"] = namespace.into();
    object
}

fn deployment(name: &str, image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "a", "image": image}]}},
        },
    })
}

fn cluster_role(name: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": []})
}

#[tokio::test]
async fn children_elsewhere_are_tracked_set_right_pruned_and_cleaned_up() -> Result<()> {
    let mut keepers = Keepers::start("anywhere").await?;
    let depot = keepers.0.cluster.namespace("depot").await?;
    let role = format!("{}-role", keepers.0.namespace);
    let client = keepers.0.client.clone();
    let two = json!([
        in_namespace(config_map("a", "1"), &depot),
        in_namespace(config_map("b", "1"), &depot),
        cluster_role(&role)
    ]);
    keepers.create("a", two.clone()).await?;
    keepers.0.settled(&KEEPERS, "a").await;
    let child = client.get(&CONFIG_MAPS, &depot, "a").await?;
    assert_eq!(child["metadata"]["ownerReferences"], Value::Null, "the garbage collector would take it for an orphan");
    let controller = child["metadata"]["annotations"][CONTROLLER].as_str().unwrap_or_default();
    assert!(
        controller.starts_with(&format!("Keeper.fixtures.example.com/v1 {}/a ", keepers.0.namespace)),
        "{controller}"
    );
    client.get(&CLUSTER_ROLES, "", &role).await?;

    // Drift.
    client.patch(&CONFIG_MAPS, &depot, "a", &json!({"data": {"key": "edited"}})).await?;
    eventually("it is set right", SOON, || async {
        let live = client.get(&CONFIG_MAPS, &depot, "a").await?;
        anyhow::ensure!(live["data"]["key"] == "1", "{live}");
        Ok(())
    })
    .await;
    client.delete(&CONFIG_MAPS, &depot, "b").await?;
    eventually("it is made again", SOON, || async { client.get(&CONFIG_MAPS, &depot, "b").await.map(drop) }).await;
    keepers.0.settled(&KEEPERS, "a").await;

    // A restart knows them.
    let mark = keepers.0.cluster.audit().mark().await?;
    keepers.0.restart_after(async { Ok(()) }).await?;
    keepers.0.host.wait_ready().await?;
    eventually("a pass has seen it", SOON, || async { keepers.0.passes_of("a") >= 1 }).await;
    keepers.0.settled(&KEEPERS, "a").await;
    let requests = keepers.0.cluster.audit().since(mark).await?;
    assert_eq!(requests.by_agent("operator-host/").within(&depot).writes().len(), 0);

    // Pruning, and the end.
    keepers.want("a", json!([in_namespace(config_map("a", "1"), &depot), cluster_role(&role)])).await?;
    eventually("what is no longer wanted is pruned", SOON, || async {
        match client.find(&CONFIG_MAPS, &depot, "b").await? {
            None => Ok(()),
            Some(live) => Err(anyhow::anyhow!("{live}")),
        }
    })
    .await;
    client.delete(&KEEPERS, &keepers.0.namespace, "a").await?;
    keepers.0.gone(&KEEPERS, "a").await;
    assert_eq!(client.find(&CONFIG_MAPS, &depot, "a").await?, None, "it went before the finalizer");
    assert_eq!(client.find(&CLUSTER_ROLES, "", &role).await?, None);
    Ok(())
}

#[tokio::test]
async fn a_child_elsewhere_that_is_held_up_keeps_the_object_and_an_orphan_stays() -> Result<()> {
    let keepers = Keepers::start("held-up").await?;
    let depot = keepers.0.cluster.namespace("depot").await?;
    let client = keepers.0.client.clone();
    let orphan = json!({"object": in_namespace(config_map("stays", "1"), &depot), "orphan": true});
    keepers.create("a", json!([in_namespace(config_map("held", "1"), &depot), orphan])).await?;
    keepers.0.settled(&KEEPERS, "a").await;
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    client.patch(&CONFIG_MAPS, &depot, "held", &hold).await?;
    client.delete(&KEEPERS, &keepers.0.namespace, "a").await?;
    let message = keepers.says("a", "Waiting").await;
    assert_eq!(message, format!("the object is being deleted, and so are ConfigMap {depot}/held"));
    client.patch(&CONFIG_MAPS, &depot, "held", &json!({"metadata": {"finalizers": null}})).await?;
    keepers.0.gone(&KEEPERS, "a").await;
    let stays = client.get(&CONFIG_MAPS, &depot, "stays").await?;
    assert_eq!(stays["metadata"].get("annotations"), None, "it is cut loose: {stays}");
    Ok(())
}

#[tokio::test]
async fn nobody_elses_object_elsewhere_is_touched_and_the_command_hands_it_over() -> Result<()> {
    let keepers = Keepers::start("foreign").await?;
    let depot = keepers.0.cluster.namespace("depot").await?;
    keepers.0.client.create(&CONFIG_MAPS, &in_namespace(config_map("a", "theirs"), &depot)).await?;
    keepers.create("a", json!([in_namespace(config_map("a", "1"), &depot)])).await?;
    let message = keepers.says("a", "ChildNotOwned").await;
    let (_, command) = message.split_once("hand it over: kubectl ").unwrap_or_else(|| panic!("a command: {message}"));
    assert!(command.starts_with(&format!("annotate configmap a -n {depot} '{CONTROLLER}=Keeper.")), "{command}");
    let value = command.split_once('=').map_or("", |(_, value)| value.trim_end_matches('\''));
    let annotate = json!({"metadata": {"annotations": {CONTROLLER: value}}});
    keepers.0.client.patch(&CONFIG_MAPS, &depot, "a", &annotate).await?;
    keepers.0.settled(&KEEPERS, "a").await;
    assert_eq!(keepers.0.client.get(&CONFIG_MAPS, &depot, "a").await?["data"]["key"], "1");
    Ok(())
}

#[tokio::test]
async fn a_later_wave_waits_until_the_earlier_is_ready() -> Result<()> {
    let keepers = Keepers::start("waves").await?;
    let wanted = |image: &str, value: &str| json!([{"object": deployment("database", image)}, {"object": config_map("schema", value), "wave": 1}]);
    keepers.create("a", wanted("db:1", "1")).await?;
    let message = keepers.says("a", "Waiting").await;
    let database = format!("Deployment {}/database", keepers.0.namespace);
    assert_eq!(message, format!("wave 1 waits until these are ready: {database}"));
    let object = keepers.0.get(&KEEPERS, "a").await?;
    assert_eq!(object["status"]["observation"], 1, "a waiting wave is not in the way of the module's status");
    assert_eq!(keepers.0.client.find(&CONFIG_MAPS, &keepers.0.namespace, "schema").await?, None);
    keepers.roll_out("database").await?;
    keepers.0.settled(&KEEPERS, "a").await;
    keepers.0.get(&CONFIG_MAPS, "schema").await?;

    // A change goes through in the same order; what is as wanted waits for nothing.
    keepers.want("a", wanted("db:2", "1")).await?;
    keepers.0.settled(&KEEPERS, "a").await;
    keepers.want("a", wanted("db:2", "2")).await?;
    keepers.says("a", "Waiting").await;
    assert_eq!(keepers.0.get(&CONFIG_MAPS, "schema").await?["data"]["key"], "1");
    keepers.roll_out("database").await?;
    keepers.0.settled(&KEEPERS, "a").await;
    assert_eq!(keepers.0.get(&CONFIG_MAPS, "schema").await?["data"]["key"], "2");
    Ok(())
}

#[tokio::test]
async fn configuration_is_applied_before_what_uses_it() -> Result<()> {
    let keepers = Keepers::start("order").await?;
    let mark = keepers.0.mark().await?;
    keepers.create("a", json!([deployment("web", "web:1"), config_map("settings", "1")])).await?;
    keepers.0.settled(&KEEPERS, "a").await;
    let writes = keepers.0.requests_since(mark).await?.writes();
    let of = |plural: &str| {
        let plural = format!("/{plural}/");
        writes.iter().position(|record| record.uri.contains(&plural)).unwrap_or_else(|| panic!("no {plural}"))
    };
    assert!(of("configmaps") < of("deployments"), "in the order that the server answered them");
    Ok(())
}

#[tokio::test]
async fn what_an_earlier_operator_applied_is_taken_over_and_no_longer_stays() -> Result<()> {
    let keepers = Keepers::start("take-over").await?;
    // Paused until the earlier operator's child is there.
    let object = json!({
        "apiVersion": KEEPERS.api_version, "kind": "Keeper",
        "metadata": {
            "name": "a", "namespace": keepers.0.namespace, "annotations": {"operatorhost.dev/paused": "true"},
        },
        "spec": {"children": [config_map("a", "1")]},
    });
    let primary = keepers.0.client.create(&KEEPERS, &object).await?;
    let mut child = in_namespace(config_map("a", "old"), &keepers.0.namespace);
    child["data"]["dropped"] = "by the new one".into();
    child["metadata"]["ownerReferences"] = json!([{
        "apiVersion": KEEPERS.api_version, "kind": "Keeper", "name": "a", "uid": primary["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true,
    }]);
    keepers.0.client.apply(&CONFIG_MAPS, "old-operator", &child).await?;
    let other = json!({"data": {"theirs": "kept"}});
    keepers.0.client.patch(&CONFIG_MAPS, &keepers.0.namespace, "a", &other).await?;
    let go_on = json!({"metadata": {"annotations": {"operatorhost.dev/paused": null}}});
    keepers.0.client.patch(&KEEPERS, &keepers.0.namespace, "a", &go_on).await?;
    keepers.0.settled(&KEEPERS, "a").await;
    let live = keepers.0.get(&CONFIG_MAPS, "a").await?;
    assert_eq!(live["data"], json!({"key": "1", "theirs": "kept"}), "what the new operator does not want is gone");
    let managers: Vec<&str> = managers(&live);
    assert!(managers.contains(&MANAGER) && !managers.contains(&"old-operator"), "{managers:?}");
    Ok(())
}

fn managers(object: &Value) -> Vec<&str> {
    let entries = object["metadata"]["managedFields"].as_array();
    entries.into_iter().flatten().filter_map(|entry| entry["manager"].as_str()).collect()
}

#[tokio::test]
async fn a_field_that_is_handed_over_keeps_its_value_and_may_be_changed_by_others() -> Result<()> {
    let keepers = Keepers::start("handed-over").await?;
    keepers.create("a", json!([deployment("web", "web:1")])).await?;
    keepers.0.settled(&KEEPERS, "a").await;
    keepers.want("a", json!([{"object": deployment("web", "web:1"), "release": ["spec.replicas"]}])).await?;
    let is_released = |live: &Value| {
        let entries = live["metadata"]["managedFields"].as_array();
        let ours = entries.into_iter().flatten().find(|entry| entry["manager"] == MANAGER);
        ours.is_some_and(|ours| ours["fieldsV1"]["f:spec"].get("f:replicas").is_none())
    };
    let live = keepers.0.object(&DEPLOYMENTS, "web", "it is ours no longer", is_released).await;
    assert_eq!(live["spec"]["replicas"], 2, "its value stays");
    keepers.0.settled(&KEEPERS, "a").await;
    let mark = keepers.0.mark().await?;
    let scale = json!({"spec": {"replicas": 7}});
    keepers.0.client.patch(&DEPLOYMENTS, &keepers.0.namespace, "web", &scale).await?;
    keepers.0.quiesce(&KEEPERS, "a").await?;
    assert_eq!(keepers.0.get(&DEPLOYMENTS, "web").await?["spec"]["replicas"], 7);
    assert_eq!(keepers.0.requests_since(mark).await?.writes().len(), 0, "an autoscaler is not worked against");
    Ok(())
}
