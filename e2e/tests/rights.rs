//! What `operator rbac` prints for each module, in one namespace: a whole life passes under it, and nothing of it is left over.

use std::collections::BTreeSet;
use std::path::PathBuf;

use operator_e2e::client::{CONFIG_MAPS, DEPLOYMENTS, Resource};
use operator_e2e::expect::{SOON, gone, trouble_repeats};
use operator_e2e::folder::Folder;
use operator_e2e::objects::{ASKER_CRD, ASKERS, KEEPER_CRD, KEEPERS, WIDGET_CRD, config_map, is_settled};
use operator_e2e::rights::{Right, granted, used_by};
use operator_e2e::{Client, Cluster, Host, Mark, Result, eventually, host, modules};
use serde_json::{Value, json};

const NAMESPACE: &str = "operator-host";
const LABEL: &str = "operatorhost.dev/installation";
const CLUSTER_ROLES: Resource<'static> = Resource::new("rbac.authorization.k8s.io/v1", "clusterroles");
const APPS: Resource<'static> = Resource::new("apps.example.com/v1", "webapps");
const APPS_CRD: &str = include_str!("../../examples/webapp-apps/crd.yaml");

/// An object of a module and the life that it is led through.
struct Life<'a> {
    module: PathBuf,
    definition: &'a str,
    primary: Resource<'static>,
    object: Value,
    /// A change of it after which it wants less.
    less: Value,
    /// Another object, and what stands in the way of it: type and object.
    troubled: (Value, Resource<'static>, Value),
    /// Its children: type, namespace, name, and a change by somebody else.
    children: Vec<(Resource<'static>, &'static str, &'static str, Value)>,
}

/// Leads the life under the printed rights, and checks them against what was asked for.
async fn lives_under_its_rights(life: &Life<'_>) -> Result<BTreeSet<Right>> {
    let cluster = Cluster::options()
        .apiserver_flag("--enable-admission-plugins=OwnerReferencesPermissionEnforcement")
        // Where lists are not streamed both verbs are used.
        .apiserver_flag("--feature-gates=WatchList=false")
        .start()
        .await?;
    let client = cluster.client();
    cluster.apply(life.definition).await?;
    for name in [NAMESPACE, "depot"] {
        cluster
            .apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).to_string())
            .await?;
    }
    let module = life.module.display().to_string();
    let printed = host::operator(&["rbac", "--module", &module, "--namespace=default"], None).await?.ok()?;
    cluster.kubectl_command(&["apply", "--server-side", "-f", "-"]).stdin(printed).run().await?.ok()?;
    let account = cluster.service_account(NAMESPACE, "operator-host").await?;
    let folder = Folder::new("rights")?;
    let cache = format!("--module-cache={}", folder.join("modules").display());
    let election = format!("--leader-election-namespace={NAMESPACE}");
    let arguments = ["--namespace=default", "--leader-elect", &election, &cache];
    let mut host = Host::spawn(&cluster.kubeconfig_of(&account)?, &[&life.module], &arguments)?;
    host.wait_ready().await?;

    live(&client, life).await?;
    assert_eq!(host.sigterm().await?.code(), Some(0), "{}", host.log());
    let mut again = Host::spawn(&cluster.kubeconfig_of(&account)?, &[&life.module], &arguments)?;
    again.wait_ready().await?;
    let requests = cluster.audit().since(Mark::START).await?;
    let requests = requests.matching(|record| record.user == account.name());
    let refused = requests.matching(|record| matches!(record.code, 401 | 403));
    assert!(refused.is_empty(), "the host asked for what it may not:\n{refused}");
    let (granted, used) = (granted(&client, NAMESPACE).await?, used_by(&requests));
    let more: Vec<&Right> = used.difference(&granted).collect();
    assert!(more.is_empty(), "rights that are not printed: {more:?}");
    // What the server asks for beside the request itself (tests/deploy.rs shows that it does): `create` for an apply that makes
    // something, `update` of the owner's finalizers for blockOwnerDeletion.
    let left: Vec<&Right> = granted.difference(&used).filter(|right| !is_implied(right)).collect();
    assert!(left.is_empty(), "rights that nothing used: {left:?}");
    Ok(granted)
}

fn is_implied((verb, resource): &Right) -> bool {
    verb == "create" || (verb == "update" && resource.ends_with("/finalizers"))
}

async fn live(client: &Client, life: &Life<'_>) -> Result<()> {
    let name = life.object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    client.create(&life.primary, &life.object).await?;
    let settled = || async {
        let object = client.get(&life.primary, "default", &name).await?;
        is_settled(&object)
    };
    eventually("it is settled", SOON, settled).await;
    for (resource, namespace, child, change) in &life.children {
        let before = client.get(resource, namespace, child).await?;
        let version = client.patch(resource, namespace, child, change).await?["metadata"]["resourceVersion"].clone();
        assert_ne!(version, before["metadata"]["resourceVersion"], "the change changes nothing");
        eventually(&format!("{child} is set right"), SOON, || async {
            let live = client.get(resource, namespace, child).await?;
            anyhow::ensure!(live["metadata"]["resourceVersion"] != version, "{live}");
            Ok(())
        })
        .await;
        client.patch(resource, namespace, child, &json!({"metadata": {"labels": {LABEL: null}}})).await?;
        eventually(&format!("{child} has its label again"), SOON, || async {
            let live = client.get(resource, namespace, child).await?;
            anyhow::ensure!(live["metadata"]["labels"][LABEL] == "default", "{}", live["metadata"]);
            Ok(())
        })
        .await;
    }
    let (troubled, resource, foreign) = &life.troubled;
    client.create(resource, foreign).await?;
    client.create(&life.primary, troubled).await?;
    let troubled = troubled["metadata"]["name"].as_str().unwrap_or_default();
    trouble_repeats(client, &life.primary, "default", troubled).await;
    if !life.less.is_null() {
        client.patch(&life.primary, "default", &name, &life.less).await?;
        eventually("it wants less", SOON, settled).await;
    }
    client.delete(&life.primary, "default", &name).await?;
    gone(client, &life.primary, "default", &name, SOON).await;
    Ok(())
}

fn in_default(mut object: Value) -> Value {
    object["metadata"]["namespace"] = "default".into();
    object
}

fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "a", "image": "a:1"}]}},
        },
    })
}

#[tokio::test]
async fn a_module_with_hooks_and_children_anywhere() -> Result<()> {
    let mut elsewhere = config_map("there", "1");
    elsewhere["metadata"]["namespace"] = "depot".into();
    let role = json!({"apiVersion": CLUSTER_ROLES.api_version, "kind": "ClusterRole", "metadata": {"name": "kept"}, "rules": []});
    let life = Life {
        module: modules::fixture("keeper").await?,
        definition: KEEPER_CRD,
        primary: KEEPERS,
        object: json!({
            "apiVersion": KEEPERS.api_version, "kind": "Keeper", "metadata": {"name": "a", "namespace": "default"},
            "spec": {"children": [elsewhere, role, deployment("web")], "outside": {"observation": 1}},
        }),
        less: json!({"spec": {"children": []}}),
        troubled: (
            json!({
                "apiVersion": KEEPERS.api_version, "kind": "Keeper", "metadata": {"name": "b", "namespace": "default"},
                "spec": {"children": [config_map("theirs", "1")]},
            }),
            CONFIG_MAPS,
            in_default(config_map("theirs", "theirs")),
        ),
        children: vec![
            (CONFIG_MAPS, "depot", "there", json!({"data": {"key": "2"}})),
            (CLUSTER_ROLES, "", "kept", json!({"metadata": {"annotations": {"operatorhost.dev/desired": "v1:0"}}})),
            (DEPLOYMENTS, "default", "web", json!({"spec": {"replicas": 7}})),
        ],
    };
    let granted = lives_under_its_rights(&life).await?;
    let right = |verb: &str, resource: &str| (verb.to_owned(), resource.to_owned());
    assert!(granted.contains(&right("patch", "keepers.fixtures.example.com")), "for its finalizer");
    assert!(granted.contains(&right("delete", "configmaps")), "it prunes");
    Ok(())
}

#[tokio::test]
async fn a_module_that_asks_for_other_objects() -> Result<()> {
    let asker = |name: &str, spec: Value| {
        json!({
            "apiVersion": ASKERS.api_version, "kind": "Asker",
            "metadata": {"name": name, "namespace": "default"}, "spec": spec,
        })
    };
    let gadgets = WIDGET_CRD.replace("widget", "gadget").replace("Widget", "Gadget");
    let life = Life {
        module: modules::fixture("asker").await?,
        definition: &[ASKER_CRD, WIDGET_CRD, &gadgets].join("\n---\n"),
        primary: ASKERS,
        object: asker(
            "a",
            json!({"queries": [
                {"id": "map", "namespace": "default", "name": "settings"},
                {"id": "space", "kind": "Namespace", "name": "depot"},
                {"id": "gadgets", "apiVersion": "example.com/v1", "kind": "Gadget", "namespace": "default", "labels": "a=b"},
                {"id": "widgets", "apiVersion": "example.com/v1", "kind": "Widget", "namespace": "default"},
            ]}),
        ),
        less: json!({"spec": {"queries": []}}),
        troubled: (asker("b", json!({"restless": true})), CONFIG_MAPS, in_default(config_map("settings", "1"))),
        children: vec![],
    };
    let granted = lives_under_its_rights(&life).await?;
    let writes: BTreeSet<&str> = granted
        .iter()
        .filter(|(verb, resource)| !matches!(&**verb, "list" | "watch") && !resource.starts_with("leases"))
        .map(|(_, resource)| &**resource)
        .collect();
    let expected = BTreeSet::from(["askers.fixtures.example.com/status", "events.events.k8s.io"]);
    assert_eq!(writes, expected, "what is asked for is read alone");
    Ok(())
}

#[tokio::test]
async fn a_module_that_deletes_nothing() -> Result<()> {
    let life = Life {
        module: modules::webapp_apps().await?.to_owned(),
        definition: APPS_CRD,
        primary: APPS,
        object: json!({
            "apiVersion": APPS.api_version, "kind": "WebApp", "metadata": {"name": "shop", "namespace": "default"},
            "spec": {"image": "example.test/web:1", "replicas": 3, "port": 8080},
        }),
        less: Value::Null,
        troubled: (
            json!({
                "apiVersion": APPS.api_version, "kind": "WebApp", "metadata": {"name": "other", "namespace": "default"},
                "spec": {"image": "example.test/web:1", "replicas": 3, "port": 8080},
            }),
            DEPLOYMENTS,
            in_default(deployment("other-deployment")),
        ),
        children: vec![(DEPLOYMENTS, "default", "shop-deployment", json!({"spec": {"replicas": 7}}))],
    };
    let granted = lives_under_its_rights(&life).await?;
    let deletes: Vec<&Right> = granted.iter().filter(|(verb, _)| verb == "delete").collect();
    assert!(deletes.is_empty(), "{deletes:?}");
    Ok(())
}
