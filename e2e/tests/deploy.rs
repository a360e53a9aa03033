//! The manifests of `deploy/` on a real API server: admission takes what they make, and the host works with the rights that
//! they give, all of which it needs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use operator_e2e::client::{DEPLOYMENTS, SERVICES};
use operator_e2e::cluster::User;
use operator_e2e::expect::{runs, trouble_repeats};
use operator_e2e::folder::{Folder, copy};
use operator_e2e::objects::{WEB_APPS, is_settled, web_app};
use operator_e2e::rights::{Right, granted, resources, texts, used_by};
use operator_e2e::{Client, Cluster, Host, Mark, Options, Requests, Resource, Result, eventually, host, modules};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "operator-host";
const ACCOUNT: &str = "operator-host";
const LABEL: &str = "operatorhost.dev/installation";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

const WEBAPP: &str = "webapp";
const STATICSITE: &str = "staticsite";

/// A cluster with everything that `kubectl apply -k deploy/OPERATOR` makes.
struct Deployed {
    operator: &'static str,
    cluster: Cluster,
    client: Client,
    account: User,
    /// The container of the host, as the Deployment has it.
    container: Value,
    folder: Folder,
}

impl Deployed {
    async fn on(operator: &'static str, options: Options) -> Result<Self> {
        let enforced = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement";
        let cluster = options.apiserver_flag(enforced).start().await?;
        let folder = manifests().await?;
        let overlay = folder.join("deploy").join(operator).display().to_string();
        let applied = cluster.kubectl(&["apply", "--server-side", "-k", &overlay]).await?;
        assert!(!applied.stderr.contains("Warning"), "the server warns:\n{}", applied.stderr);
        applied.ok()?;
        cluster.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).await?.ok()?;

        let client = cluster.client();
        let mut deployment = client.get(&DEPLOYMENTS, NAMESPACE, "operator-host").await?;
        let container = deployment["spec"]["template"]["spec"]["containers"][0].take();
        let account = cluster.service_account(NAMESPACE, ACCOUNT).await?;
        Ok(Self { operator, cluster, client, account, container, folder })
    }

    /// Starts the host as the container would, with the account's rights.
    async fn host(&self, name: &str, more: &[&str]) -> Result<Host> {
        let cache = format!("--module-cache={}", self.folder.join(name).display());
        let arguments = self.container["args"].as_array().context("the container has arguments")?;
        let arguments: Vec<&str> = arguments.iter().filter_map(Value::as_str).collect();
        assert_eq!(arguments.first(), Some(&"host"));
        assert!(arguments.contains(&"--module=/modules/module.wasm"), "{arguments:?}");
        // What is a path in the container is another one here, and two pods share no port.
        let differs =
            |argument: &&str| argument.starts_with("--module") || argument.starts_with("--metrics-bind-address");
        let same = arguments[1..].iter().copied().filter(|argument| !differs(argument));
        // And what a pod finds in its service account has to be said.
        let namespace = format!("--leader-election-namespace={NAMESPACE}");
        let own = [cache.as_str(), namespace.as_str()];
        let arguments: Vec<&str> = same.chain(own).chain(more.iter().copied()).collect();
        let mut host = Host::spawn(&self.cluster.kubeconfig_of(&self.account)?, &[&self.module()], &arguments)?;
        host.wait_ready().await?;
        Ok(host)
    }

    fn module(&self) -> PathBuf {
        module_in(&self.folder, self.operator)
    }

    /// What the account asked for until now.
    async fn requests(&self) -> Result<Requests> {
        let all = self.cluster.audit().since(Mark::START).await?;
        Ok(all.matching(|record| record.user == self.account.name()))
    }
}

fn module_in(folder: &Path, operator: &str) -> PathBuf {
    folder.join("deploy").join(operator).join(format!("{operator}.wasm"))
}

/// `deploy/`, and what it refers to, with the modules where `deploy/README.md` says.
async fn manifests() -> Result<Folder> {
    let repository = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let folder = Folder::new("deploy")?;
    for part in ["deploy", "crds"] {
        copy(&repository.join(part), &folder.join(part))?;
    }
    std::fs::copy(modules::webapp().await?, module_in(&folder, WEBAPP))?;
    std::fs::copy(modules::staticsite().await?, module_in(&folder, STATICSITE))?;
    Ok(folder)
}

#[tokio::test]
async fn restricted_admission_takes_the_pods() -> Result<()> {
    for operator in [WEBAPP, STATICSITE] {
        restricted_admission_takes(&Deployed::on(operator, Cluster::options()).await?).await?;
    }
    Ok(())
}

async fn restricted_admission_takes(Deployed { cluster, client, .. }: &Deployed) -> Result<()> {
    let template = client.get(&DEPLOYMENTS, NAMESPACE, "operator-host").await?["spec"]["template"].take();
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "host", "namespace": NAMESPACE, "labels": template["metadata"]["labels"]},
        "spec": template["spec"],
    });
    let create =
        |pod: &Value| cluster.kubectl_command(&["create", "--dry-run=server", "-f", "-"]).stdin(pod.to_string()).run();
    let taken = create(&pod).await?;
    assert!(!taken.stderr.contains("Warning"), "{}", taken.stderr);
    taken.ok()?;

    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
    let refused = create(&pod).await?;
    assert!(refused.code != 0 && refused.stderr.contains("restricted"), "admission is off: {refused:?}");
    Ok(())
}

#[tokio::test]
async fn a_module_may_be_part_of_the_image() -> Result<()> {
    let folder = manifests().await?;
    let overlay = folder.join("deploy/overlay");
    std::fs::create_dir(&overlay)?;
    let kustomization = "resources: [../base]\ncomponents: [../module-in-image]\n";
    std::fs::write(overlay.join("kustomization.yaml"), kustomization)?;
    let cluster = Cluster::shared().await;
    let rendered = cluster.kubectl(&["kustomize", &overlay.display().to_string()]).await?.ok()?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    cluster.apply(&namespace.to_string()).await?;
    let dry_run = ["apply", "--server-side", "--dry-run=server", "-o", "json", "-f", "-"];
    let list = cluster.kubectl_command(&dry_run).stdin(rendered).run().await?.ok()?;
    let list: Value = serde_json::from_str(&list)?;
    let items = list["items"].as_array().context("a list")?;
    let deployment = items.iter().find(|item| item["kind"] == "Deployment").context("a Deployment")?;
    let pod = &deployment["spec"]["template"]["spec"];
    let names = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().map(|entry| entry["name"].to_string()).collect()
    };
    assert_eq!(names(&pod["volumes"]), ["\"cache\""]);
    assert_eq!(names(&pod["containers"][0]["volumeMounts"]), ["\"cache\""]);
    Ok(())
}

#[tokio::test]
async fn the_rights_are_enough_and_none_is_more_than_needed() -> Result<()> {
    let (mut allowed, mut used) = (BTreeSet::new(), BTreeSet::new());
    // Servers that stream lists, and those that do not.
    for flag in ["--feature-gates=WatchList=true", "--feature-gates=WatchList=false"] {
        let deployed = Deployed::on(WEBAPP, Cluster::options().apiserver_flag(flag)).await?;
        allowed = granted(&deployed.client, NAMESPACE).await?;
        life(&deployed, &[]).await?;
        let requests = deployed.requests().await?;
        let refused = requests.matching(|record| matches!(record.code, 401 | 403));
        assert!(refused.is_empty(), "the host asked for what it may not:\n{refused}");
        used.extend(used_by(&requests));
        if flag.ends_with("false") {
            for right in allowed.difference(&used) {
                deployed.assert_needed(right).await?;
            }
        }
    }
    let more: Vec<&Right> = used.difference(&allowed).collect();
    assert!(more.is_empty(), "rights that no role of the manifests gives: {more:?}");
    Ok(())
}

#[tokio::test]
async fn operator_rbac_prints_the_same_rights_and_those_of_a_namespace_alone() -> Result<()> {
    let deployed = Deployed::on(WEBAPP, Cluster::options()).await?;
    let of_manifests = granted(&deployed.client, NAMESPACE).await?;
    deployed.grant_what_is_printed(&[]).await?;
    assert_eq!(granted(&deployed.client, NAMESPACE).await?, of_manifests);

    deployed.grant_what_is_printed(&["--namespace=default"]).await?;
    assert_eq!(granted(&deployed.client, NAMESPACE).await?, of_manifests);
    let everywhere = deployed.client.list(&Resource::new(RBAC, "clusterroles"), "", "").await?;
    assert!(!everywhere.iter().any(is_ours), "a ClusterRole for a host that works in one namespace");
    life(&deployed, &["--namespace=default"]).await?;
    let refused = deployed.requests().await?.matching(|record| matches!(record.code, 401 | 403));
    assert!(refused.is_empty(), "the host asked for what it may not:\n{refused}");
    Ok(())
}

#[tokio::test]
async fn a_module_that_works_outside_has_its_folder_and_its_rights() -> Result<()> {
    let deployed = Deployed::on(STATICSITE, Cluster::options()).await?;
    let arguments = texts(&deployed.container["args"]);
    assert!(arguments.contains(&"--grant=records:dir=/records".to_owned()), "{arguments:?}");
    let mounts = deployed.container["volumeMounts"].as_array().into_iter().flatten();
    let paths: Vec<&Value> = mounts.map(|mount| &mount["mountPath"]).collect();
    assert_eq!(paths, ["/modules", "/cache", "/records"]);

    let of_manifests = granted(&deployed.client, NAMESPACE).await?;
    assert!(of_manifests.iter().all(|(verb, _)| verb != "delete"), "{of_manifests:?}");
    deployed.grant_what_is_printed(&[]).await?;
    assert_eq!(granted(&deployed.client, NAMESPACE).await?, of_manifests);
    Ok(())
}

fn is_ours(object: &Value) -> bool {
    object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("operator-host"))
}

/// A WebApp is made, scaled and set right by one replica, robbed of its children's labels and deleted under the other.
async fn life(deployed: &Deployed, arguments: &[&str]) -> Result<()> {
    let client = &deployed.client;
    let mut leader = deployed.host("leader", arguments).await?;
    let sample = deployed.folder.join("deploy/samples/webapp.yaml").display().to_string();
    deployed.cluster.kubectl(&["apply", "-f", &sample]).await?.ok()?;
    eventually("shop is settled", SOON, || async { is_settled(&client.get(&WEB_APPS, "default", "shop").await?) })
        .await;
    client.get(&SERVICES, "default", "shop").await?;
    let mut standby = deployed.host("standby", arguments).await?;

    client.patch(&WEB_APPS, "default", "shop", &json!({"spec": {"replicas": 3}})).await?;
    has_replicas(client, 3).await;
    client.patch(&DEPLOYMENTS, "default", "shop", &json!({"spec": {"replicas": 9}})).await?;
    has_replicas(client, 3).await;
    assert_eq!(leader.sigterm().await?.code(), Some(0), "{}", leader.log());

    client.delete(&SERVICES, "default", "shop").await?;
    eventually("the Service is back", SOON, || client.get(&SERVICES, "default", "shop")).await;
    // The host looks where they went.
    for resource in [&DEPLOYMENTS, &SERVICES] {
        client.patch(resource, "default", "shop", &json!({"metadata": {"labels": {LABEL: null}}})).await?;
        eventually("the label is back", SOON, || async {
            let child = client.get(resource, "default", "shop").await?;
            anyhow::ensure!(child["metadata"]["labels"][LABEL] == "default", "{}", child["metadata"]);
            Ok(())
        })
        .await;
    }
    // Somebody else's Service has the name.
    let theirs = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "taken", "namespace": "default"},
        "spec": {"ports": [{"port": 80}]},
    });
    client.create(&SERVICES, &theirs).await?;
    client.create(&WEB_APPS, &web_app("default", "taken")).await?;
    trouble_repeats(client, &WEB_APPS, "default", "taken").await;
    client.delete(&WEB_APPS, "default", "shop").await?;
    client.create(&WEB_APPS, &web_app("default", "other")).await?;
    runs(client, "default", "other", "example.test/web:1", SOON).await;
    assert_eq!(standby.sigterm().await?.code(), Some(0), "{}", standby.log());
    Ok(())
}

async fn has_replicas(client: &Client, wanted: u32) {
    eventually(&format!("{wanted} replicas"), SOON, || async {
        let deployment = client.get(&DEPLOYMENTS, "default", "shop").await?;
        anyhow::ensure!(deployment["spec"]["replicas"] == wanted, "{}", deployment["spec"]["replicas"]);
        Ok(())
    })
    .await;
}

impl Deployed {
    /// Takes all rights away and gives those that `operator rbac` prints.
    async fn grant_what_is_printed(&self, arguments: &[&str]) -> Result<()> {
        for (kind, namespaced) in
            [("clusterrolebindings", false), ("clusterroles", false), ("rolebindings", true), ("roles", true)]
        {
            for object in self.client.list(&Resource::new(RBAC, kind), "", "").await?.iter().filter(|o| is_ours(o)) {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let namespace = object["metadata"]["namespace"].as_str().filter(|_| namespaced).unwrap_or_default();
                self.client.delete(&Resource::new(RBAC, kind), namespace, name).await?;
            }
        }
        let module = self.module().display().to_string();
        let command: Vec<&str> = ["rbac", "--module", &module].into_iter().chain(arguments.iter().copied()).collect();
        let printed = host::operator(&command, None).await?.ok()?;
        self.cluster
            .kubectl_command(&["apply", "--server-side", "--force-conflicts", "-f", "-"])
            .stdin(printed)
            .run()
            .await?
            .ok()?;
        Ok(())
    }

    /// A right that no request names: without it the server refuses an apply that makes a child, with it none.
    async fn assert_needed(&self, right: &Right) -> Result<()> {
        let clusterroles = Resource::new(RBAC, "clusterroles");
        let role = self.client.get(&clusterroles, "", "operator-host-webapp").await?;
        let account =
            Client::new(&self.cluster.url(), Some(self.cluster.ca_file()), Some(self.account.token()), "operator-e2e")?;
        let owner = self.client.get(&WEB_APPS, "default", "other").await?;
        let (resource, child) = new_child(right, &owner);
        let apply = || async {
            let path = format!("{}?dryRun=All&force=true&fieldManager=test", resource.path("default", "new"));
            account.request("PATCH", &path, "application/apply-patch+yaml", &child).await
        };
        apply().await.with_context(|| format!("with {right:?}"))?;

        let mut less = json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": "operator-host-webapp"}});
        less["rules"] = without(&role["rules"], right);
        self.client.replace(&clusterroles, &less).await?;
        eventually(&format!("an apply is refused without {right:?}"), SOON, || async {
            apply().await.is_err_and(|error| error.code() == 403)
        })
        .await;
        less["rules"] = role["rules"].clone();
        self.client.replace(&clusterroles, &less).await?;
        eventually(&format!("an apply is taken with {right:?}"), SOON, apply).await;
        Ok(())
    }
}

/// A child of this owner, of the resource that the right is about or any.
fn new_child((_, resource): &Right, owner: &Value) -> (Resource<'static>, Value) {
    let reference = json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true,
    });
    let metadata = json!({"name": "new", "namespace": "default", "ownerReferences": [reference]});
    if resource == "services" {
        let spec = json!({"ports": [{"port": 80}]});
        return (SERVICES, json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}));
    }
    let labels = json!({"app": "new"});
    let spec = json!({
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "web", "image": "example.test/web:1"}]},
        },
    });
    (DEPLOYMENTS, json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}))
}

/// The rules without this right.
fn without(rules: &Value, (verb, resource): &Right) -> Value {
    let mut rules = rules.clone();
    for rule in rules.as_array_mut().into_iter().flatten() {
        if resources(rule).contains(resource) {
            let verbs = texts(&rule["verbs"]).into_iter().filter(|other| other != verb);
            rule["verbs"] = verbs.collect();
        }
    }
    // A rule must have a verb.
    rules.as_array().into_iter().flatten().filter(|rule| !texts(&rule["verbs"]).is_empty()).cloned().collect()
}
