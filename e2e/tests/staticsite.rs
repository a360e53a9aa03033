//! A StaticSite on a real control plane: the drills of `docs/review-runbook.md`, under the rights that `operator rbac` prints.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use operator_e2e::client::{CONFIG_MAPS, DEPLOYMENTS, PODS, SERVICES};
use operator_e2e::cluster::{ADMIN, User};
use operator_e2e::folder::Folder;
use operator_e2e::objects::{condition, is_settled};
use operator_e2e::{
    Client, Cluster, Fault, Host, Mark, Match, Requests, Resource, Result, Stage, eventually, expect, host, modules,
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

const SOON: Duration = Duration::from_secs(90);
const CRD: &str = include_str!("../../crds/staticsite/staticsites.yaml");
const SITES: Resource<'static> = Resource::new("learn.cloudcaptain.io/v1alpha1", "staticsites");
const FINALIZER: &str = "learn.cloudcaptain.io/external-record";
const HASH: &str = "learn.cloudcaptain.io/content-sha256";
const ACCOUNT: &str = "operator-host";
const LEADING: &str = "leading: the Lease is held by this process";

fn site(name: &str, spec: Value) -> Value {
    json!({"apiVersion": SITES.api_version, "kind": "StaticSite", "metadata": {"name": name}, "spec": spec})
}

/// A namespace with the operator's account, whose rights are those that are printed, and a folder for records.
struct Sites {
    cluster: &'static Cluster,
    client: Client,
    namespace: String,
    account: User,
    records: Folder,
}

impl Sites {
    async fn open(name: &str) -> Result<Self> {
        static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
        let cluster = CLUSTER.get_or_try_init(start_cluster).await?;
        let namespace = cluster.namespace(name).await?;
        let module = modules::staticsite().await?.display().to_string();
        let rights = host::operator(
            &[
                "rbac",
                &format!("--module={module}"),
                &format!("--namespace={namespace}"),
                &format!("--service-account-namespace={namespace}"),
                &format!("--leader-election-id=operator-host-{namespace}"),
            ],
            None,
        )
        .await?
        .ok()?;
        cluster.apply(&rights).await?;
        let account = cluster.service_account(&namespace, ACCOUNT).await?;
        Ok(Self { cluster, client: cluster.client(), namespace, account, records: Folder::new("records")? })
    }

    /// A host with the account's rights.
    async fn host(&self) -> Result<Host> {
        let mut host = self.host_at(&self.cluster.kubeconfig_of(&self.account)?, &[]).await?;
        host.wait_ready().await?;
        Ok(host)
    }

    async fn host_at(&self, kubeconfig: &Path, more: &[&str]) -> Result<Host> {
        let own = [
            format!("--namespace={}", self.namespace),
            format!("--installation-id={}", self.namespace),
            format!("--grant=records:dir={}", self.records.display()),
            "-v".to_owned(),
        ];
        let arguments: Vec<&str> = own.iter().map(String::as_str).chain(more.iter().copied()).collect();
        Host::spawn(kubeconfig, &[modules::staticsite().await?], &arguments)
    }

    /// A replica that takes part in the election.
    async fn replica(&self) -> Result<Host> {
        let (lease, namespace) = (format!("operator-host-{}", self.namespace), &self.namespace);
        let election = [
            "--leader-elect".to_owned(),
            format!("--leader-election-id={lease}"),
            format!("--leader-election-namespace={namespace}"),
        ];
        let election: Vec<&str> = election.iter().map(String::as_str).collect();
        self.host_at(&self.cluster.kubeconfig_of(&self.account)?, &election).await
    }

    async fn create(&self, name: &str, content: &str, replicas: u32) -> Result<()> {
        let mut object = site(name, json!({"content": content, "replicas": replicas}));
        object["metadata"]["namespace"] = json!(self.namespace);
        self.client.create(&SITES, &object).await?;
        Ok(())
    }

    async fn get(&self, resource: &Resource<'_>, name: &str) -> Result<Value> {
        Ok(self.client.get(resource, &self.namespace, name).await?)
    }

    async fn patch(&self, resource: &Resource<'_>, name: &str, patch: Value) -> Result<Value> {
        Ok(self.client.patch(resource, &self.namespace, name, &patch).await?)
    }

    async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let args: Vec<&str> = ["-n", &self.namespace].into_iter().chain(args.iter().copied()).collect();
        self.cluster.kubectl(&args).await?.ok()
    }

    /// Waits until the site's status is about its present spec and says that so many pods are ready.
    async fn ready(&self, name: &str, replicas: u32) -> Value {
        eventually(&format!("{name} is ready with {replicas} pods"), SOON, || async {
            let object = self.get(&SITES, name).await?;
            is_settled(&object)?;
            let current = object["status"]["observedGeneration"] == object["metadata"]["generation"];
            let is_ready = condition(&object, "Ready")["reason"] == "Available";
            anyhow::ensure!(
                current && is_ready && object["status"]["readyReplicas"] == replicas,
                "{}",
                object["status"]
            );
            Ok(object)
        })
        .await
    }

    /// Waits until `Reconciled` has this reason; gives its message.
    async fn says(&self, name: &str, reason: &str) -> String {
        eventually(&format!("{name} says {reason}"), SOON, || async {
            let object = self.get(&SITES, name).await?;
            let said = condition(&object, "Reconciled");
            anyhow::ensure!(said["reason"] == reason, "{}", object["status"]);
            Ok(said["message"].as_str().unwrap_or_default().to_owned())
        })
        .await
    }

    /// Waits until an object is as told.
    async fn becomes(&self, resource: &Resource<'_>, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        eventually(what, SOON, || async {
            let object = self.get(resource, name).await?;
            anyhow::ensure!(is(&object), "{object}");
            Ok(object)
        })
        .await
    }

    async fn gone(&self, resource: &Resource<'_>, name: &str) {
        expect::gone(&self.client, resource, &self.namespace, name, SOON).await;
    }

    /// What lies in the folder.
    fn records(&self) -> Result<BTreeSet<String>> {
        let files = std::fs::read_dir(&*self.records)?;
        files.map(|file| Ok(file?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn record_of(&self, name: &str) -> String {
        format!("{}_{name}.json", self.namespace)
    }

    async fn mark(&self) -> Result<Mark> {
        self.cluster.audit().mark().await
    }

    /// What hosts asked for in the namespace since then, of which nothing was refused for want of a right.
    async fn requests_since(&self, mark: Mark) -> Result<Requests> {
        let requests = self.cluster.audit().since(mark).await?.by_agent("operator-host/").within(&self.namespace);
        let refused = requests.matching(|record| matches!(record.code, 401 | 403));
        assert!(refused.is_empty(), "the host asked for what it may not:\n{refused}");
        let deletes = requests.matching(|record| record.verb.starts_with("delete"));
        assert!(deletes.is_empty(), "the garbage collector deletes, the host does not:\n{deletes}");
        Ok(requests)
    }
}

async fn start_cluster() -> Result<Cluster> {
    let enforced = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement";
    let cluster = Cluster::options().full().apiserver_flag(enforced).start().await?;
    cluster.apply(CRD).await?;
    Ok(cluster)
}

fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn hash(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["metadata"]["annotations"][HASH]
}

/// Before any operator sees it.
#[tokio::test]
async fn the_definition_refuses_what_no_site_can_be_and_fills_in_what_is_left_out() -> Result<()> {
    let Sites { cluster, namespace, .. } = Sites::open("schema").await?;
    let apply = |name: &'static str, spec: Value| {
        cluster.kubectl_command(&["apply", "-n", &namespace, "-f", "-"]).stdin(site(name, spec).to_string()).run()
    };
    let refused = [
        (json!({"content": "<p>shop</p>", "tier": "prod", "replicas": 1}), "prod sites need at least 2 replicas"),
        (json!({"content": "<p>shop</p>", "tier": "prod"}), "prod sites need at least 2 replicas"),
        (json!({"content": "<p>x</p>", "replicaz": 2}), "unknown field \"spec.replicaz\""),
        (json!({"replicas": 2}), "spec.content: Required value"),
        (json!({"content": ""}), "spec.content"),
        (json!({"content": "x", "replicas": 11}), "should be less than or equal to 10"),
        (json!({"content": "x", "tier": "test"}), "supported values: \"dev\", \"prod\""),
    ];
    for (spec, words) in refused {
        let output = apply("shop", spec.clone()).await?;
        assert!(output.code != 0 && output.stderr.contains(words), "{spec}: {words:?} is not said: {output:?}");
    }

    apply("hello", json!({"content": "<h1>hello</h1>"})).await?.ok()?;
    let stored = cluster.kubectl(&["get", "site", "hello", "-n", &namespace, "-o", "jsonpath={.spec}"]).await?.ok()?;
    let stored: Value = serde_json::from_str(&stored)?;
    assert_eq!(stored, json!({"content": "<h1>hello</h1>", "replicas": 1, "tier": "dev"}));

    let changed = apply("hello", json!({"content": "<h1>hello</h1>", "replicas": 2, "tier": "prod"})).await?;
    assert!(changed.stderr.contains("tier cannot change after creation"), "{changed:?}");
    apply("hello", json!({"content": "<h1>hello</h1>", "replicas": 2})).await?.ok()?;
    let columns = cluster.kubectl(&["get", "site", "-n", &namespace]).await?.ok()?;
    let columns: Vec<&str> = columns.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(columns, ["NAME", "REPLICAS", "READY", "REASON", "AGE"]);
    Ok(())
}

/// Drill 1.
#[tokio::test]
async fn a_new_site_gets_its_finalizer_its_record_and_its_children_and_then_costs_nothing() -> Result<()> {
    let sites = Sites::open("create").await?;
    let host = sites.host().await?;
    let mark = sites.mark().await?;
    sites.create("hello", "<h1>hello</h1>", 2).await?;
    let object = sites.ready("hello", 2).await;

    let url = format!("http://hello.{}.svc", sites.namespace);
    assert_eq!(object["status"]["url"], url);
    assert_eq!(condition(&object, "Ready")["message"], format!("2/2 pods ready at {url}"));
    assert_eq!(finalizers(&object), [FINALIZER]);
    let record: Value = serde_json::from_str(&std::fs::read_to_string(sites.records.join(sites.record_of("hello")))?)?;
    assert_eq!(record, json!({"namespace": sites.namespace, "name": "hello", "url": url}));
    for resource in [&CONFIG_MAPS, &DEPLOYMENTS, &SERVICES] {
        let child = sites.get(resource, "hello").await?;
        let owner = &child["metadata"]["ownerReferences"][0];
        let controls = owner["controller"] == true && owner["blockOwnerDeletion"] == true;
        assert!(controls && owner["uid"] == object["metadata"]["uid"], "{child}");
        assert_eq!(child["metadata"]["labels"]["app.kubernetes.io/managed-by"], "minioperator", "{child}");
    }
    let columns = sites.kubectl(&["get", "site", "hello", "--no-headers"]).await?;
    let columns: Vec<&str> = columns.split_whitespace().collect();
    assert_eq!(columns[..4], ["hello", "2", "True", "Available"]);

    let writes = sites.requests_since(mark).await?.writes();
    let first = writes.iter().next().map(ToString::to_string).unwrap_or_default();
    assert!(first.contains("staticsites") && !first.contains("status"), "the finalizer comes first:\n{writes}");
    assert_eq!(writes.matching(|record| record.subresource.is_empty()).len(), 4, "one write an object:\n{writes}");

    let (mark, passes) = (sites.mark().await?, host.passes().len());
    sites.patch(&SITES, "hello", json!({"metadata": {"labels": {"looked": "at"}}})).await?;
    eventually("a pass has seen it", SOON, || async { host.passes().len() > passes }).await;
    let requests = sites.requests_since(mark).await?.beyond_watches();
    assert!(requests.is_empty(), "a settled site costs nothing:\n{requests}");
    Ok(())
}

/// Drill 2.
#[tokio::test]
async fn a_change_is_reported_when_it_runs_and_new_content_rolls_the_pods() -> Result<()> {
    let sites = Sites::open("change").await?;
    let _host = sites.host().await?;
    sites.create("hello", "<h1>one</h1>", 2).await?;
    let before = sites.ready("hello", 2).await;
    let mut versions = sites
        .client
        .watch(
            &SITES,
            &sites.namespace,
            &format!("resourceVersion={}", before["metadata"]["resourceVersion"].as_str().unwrap_or_default()),
        )
        .await?;
    sites.patch(&SITES, "hello", json!({"spec": {"replicas": 3}})).await?;
    loop {
        let version = versions.next(SOON).await.expect("the watch stays open")["object"].take();
        if version["status"]["observedGeneration"] == 2 && condition(&version, "Ready")["status"] == "True" {
            assert_eq!(version["status"]["readyReplicas"], 3, "Ready of the new generation before it runs: {version}");
            break;
        }
    }

    let old = hash(&sites.get(&DEPLOYMENTS, "hello").await?).clone();
    let mark = sites.mark().await?;
    sites.patch(&SITES, "hello", json!({"spec": {"content": "<h1>two</h1>"}})).await?;
    sites.ready("hello", 3).await;
    assert_eq!(sites.get(&CONFIG_MAPS, "hello").await?["data"]["index.html"], "<h1>two</h1>");
    let new = hash(&sites.get(&DEPLOYMENTS, "hello").await?).clone();
    assert_ne!(new, old);
    eventually("every pod is of the new content", SOON, || async {
        let pods = sites.client.list(&PODS, &sites.namespace, "labelSelector=app.kubernetes.io/instance=hello").await?;
        let old: Vec<_> = pods.iter().filter(|pod| pod["metadata"]["annotations"][HASH] != new).collect();
        anyhow::ensure!(pods.len() == 3 && old.is_empty(), "{} pods, {} of them old", pods.len(), old.len());
        Ok(())
    })
    .await;
    let writes = sites.requests_since(mark).await?.writes();
    assert_eq!((writes.of("configmaps").len(), writes.of("deployments.apps").len()), (1, 1), "{writes}");
    Ok(())
}

/// Drill 3.
#[tokio::test]
async fn the_status_is_the_operators() -> Result<()> {
    let sites = Sites::open("status").await?;
    let _host = sites.host().await?;
    sites.create("hello", "<h1>hello</h1>", 2).await?;
    let before = sites.ready("hello", 2).await;
    sites
        .kubectl(&[
            "patch",
            "site",
            "hello",
            "--subresource=status",
            "--type=merge",
            "-p",
            r#"{"status":{"readyReplicas":0,"url":"http://evil"}}"#,
        ])
        .await?;
    let after = sites.becomes(&SITES, "hello", "the status is back", |site| site["status"] == before["status"]).await;
    assert_eq!(after["metadata"]["generation"], 1, "a status is no change of the spec");
    Ok(())
}

/// Drill 4.
#[tokio::test]
async fn what_drifts_is_set_right_by_one_write() -> Result<()> {
    let sites = Sites::open("drift").await?;
    let _host = sites.host().await?;
    sites.create("hello", "<h1>hello</h1>", 3).await?;
    sites.ready("hello", 3).await;

    let mark = sites.mark().await?;
    sites.kubectl(&["scale", "deployment", "hello", "--replicas=7"]).await?;
    sites.becomes(&DEPLOYMENTS, "hello", "3 replicas again", |live| live["spec"]["replicas"] == 3).await;
    sites.patch(&CONFIG_MAPS, "hello", json!({"data": {"index.html": "defaced"}})).await?;
    let restored = |live: &Value| live["data"]["index.html"] == "<h1>hello</h1>";
    sites.becomes(&CONFIG_MAPS, "hello", "the page again", restored).await;
    let deleted = sites.get(&SERVICES, "hello").await?["metadata"]["uid"].take();
    sites.client.delete(&SERVICES, &sites.namespace, "hello").await?;
    sites.becomes(&SERVICES, "hello", "the Service again", |live| live["metadata"]["uid"] != deleted).await;
    sites.ready("hello", 3).await;

    let writes = sites.requests_since(mark).await?.writes().matching(|record| record.subresource.is_empty());
    assert_eq!(writes.len(), 3, "one for each:\n{writes}");
    Ok(())
}

/// Drill 5.
#[tokio::test]
async fn a_site_deleted_while_the_operator_is_stopped_waits_for_it() -> Result<()> {
    let sites = Sites::open("stopped").await?;
    let mut host = sites.host().await?;
    sites.create("hello", "<h1>hello</h1>", 2).await?;
    sites.ready("hello", 2).await;
    assert_eq!(host.sigterm().await?.code(), Some(0), "{}", host.log());

    sites.kubectl(&["delete", "site", "hello", "--wait=false"]).await?;
    let waiting = sites.get(&SITES, "hello").await?;
    assert!(waiting["metadata"]["deletionTimestamp"].is_string(), "{waiting}");
    assert_eq!(finalizers(&waiting), [FINALIZER]);
    assert_eq!(sites.records()?, BTreeSet::from([sites.record_of("hello")]), "which is the point");

    let mark = sites.mark().await?;
    let _host = sites.host().await?;
    sites.gone(&SITES, "hello").await;
    assert_eq!(sites.records()?, BTreeSet::new());
    for resource in [&DEPLOYMENTS, &CONFIG_MAPS, &SERVICES] {
        sites.gone(resource, "hello").await;
    }
    let writes = sites.requests_since(mark).await?.writes();
    assert_eq!(writes.len(), 1, "the finalizer's removal:\n{writes}");
    Ok(())
}

/// Drill 6.
#[tokio::test]
async fn another_writer_loses_nothing_and_what_is_not_ours_is_reported() -> Result<()> {
    let sites = Sites::open("writers").await?;
    let _host = sites.host().await?;
    sites.create("hello", "<h1>hello</h1>", 1).await?;
    sites.ready("hello", 1).await;
    for edit in 0..30 {
        let replicas = 1 + edit % 3;
        let annotations = json!({format!("edit-{edit}"): "kept"});
        sites
            .patch(&SITES, "hello", json!({"metadata": {"annotations": annotations}, "spec": {"replicas": replicas}}))
            .await?;
        sites.patch(&DEPLOYMENTS, "hello", json!({"metadata": {"annotations": annotations}})).await?;
    }
    let object = sites.ready("hello", 3).await;
    let kept = |object: &Value| (0..30).all(|edit| object["metadata"]["annotations"][format!("edit-{edit}")] == "kept");
    assert!(kept(&object), "an edit was overwritten: {object}");
    let deployment = sites.get(&DEPLOYMENTS, "hello").await?;
    assert!(kept(&deployment), "an edit was overwritten: {deployment}");

    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "taken", "namespace": sites.namespace}, "data": {"index.html": "theirs"},
    });
    let theirs = sites.client.create(&CONFIG_MAPS, &theirs).await?;
    sites.create("taken", "<h1>ours</h1>", 1).await?;
    let message = sites.says("taken", "ChildNotOwned").await;
    assert!(message.contains("taken"), "{message}");
    assert_eq!(sites.get(&CONFIG_MAPS, "taken").await?, theirs, "never adopted, never touched");
    sites.get(&SERVICES, "taken").await?;
    sites.client.delete(&CONFIG_MAPS, &sites.namespace, "taken").await?;
    sites.ready("taken", 1).await;
    Ok(())
}

#[tokio::test]
async fn a_record_that_cannot_be_removed_keeps_the_site_and_says_why() -> Result<()> {
    let sites = Sites::open("stuck").await?;
    let _host = sites.host().await?;
    sites.create("hello", "<h1>hello</h1>", 1).await?;
    sites.ready("hello", 1).await;
    // A folder in its place can't be removed as a file.
    let record = sites.records.join(sites.record_of("hello"));
    std::fs::remove_file(&record)?;
    std::fs::create_dir(&record)?;
    sites.kubectl(&["delete", "site", "hello", "--wait=false"]).await?;
    let message = sites.says("hello", "RecordFailed").await;
    assert!(message.starts_with(&format!("the record {} can't be removed: ", sites.record_of("hello"))), "{message}");
    assert_eq!(finalizers(&sites.get(&SITES, "hello").await?), [FINALIZER]);
    std::fs::remove_dir(&record)?;
    sites.gone(&SITES, "hello").await;
    Ok(())
}

#[tokio::test]
async fn a_host_killed_after_the_removal_and_before_the_finalizer_is_gone_does_no_harm() -> Result<()> {
    let sites = Sites::open("between").await?;
    let proxy = sites.cluster.proxy().await?;
    let mut host = sites.host_at(&sites.cluster.kubeconfig_at(ADMIN, &proxy.url())?, &[]).await?;
    host.wait_ready().await?;
    sites.create("hello", "<h1>hello</h1>", 1).await?;
    sites.ready("hello", 1).await;
    let refused = proxy.inject(Match::writes().path("/staticsites/hello"), Fault::LoseRequest);
    sites.kubectl(&["delete", "site", "hello", "--wait=false"]).await?;
    eventually("the record is removed", SOON, || async { sites.records().is_ok_and(|records| records.is_empty()) })
        .await;
    host.kill9();
    drop(refused);
    assert_eq!(finalizers(&sites.get(&SITES, "hello").await?), [FINALIZER]);
    let _host = sites.host().await?;
    sites.gone(&SITES, "hello").await;
    assert_eq!(sites.records()?, BTreeSet::new());
    Ok(())
}

#[tokio::test]
async fn the_leader_is_killed_while_sites_come_and_go_and_the_records_are_those_of_the_sites() -> Result<()> {
    const COUNT: usize = 20;
    let sites = Sites::open("takeover").await?;
    let mut leader = sites.replica().await?;
    leader.wait_log(LEADING, SOON).await;
    let mut standby = sites.replica().await?;
    standby.wait_ready().await?;
    let name = |number: usize| format!("site-{number}");
    for number in 0..COUNT {
        sites.create(&name(number), "<h1>hello</h1>", 1).await?;
    }
    eventually("some are published", SOON, || async { sites.records().is_ok_and(|records| records.len() >= 5) }).await;
    for number in (0..COUNT).step_by(2) {
        sites.kubectl(&["delete", "site", &name(number), "--wait=false"]).await?;
        if number == COUNT / 2 {
            leader.kill9();
        }
    }
    standby.wait_log(LEADING, SOON).await;
    for number in (0..COUNT).step_by(2) {
        sites.gone(&SITES, &name(number)).await;
    }
    let mut expected = BTreeSet::new();
    for number in (1..COUNT).step_by(2) {
        sites.ready(&name(number), 1).await;
        expected.insert(sites.record_of(&name(number)));
    }
    assert_eq!(sites.records()?, expected, "one record for each site, none twice and none left over");
    sites.requests_since(Mark::START).await?;
    Ok(())
}

#[tokio::test]
async fn two_resyncs_of_500_settled_sites_ask_for_nothing() -> Result<()> {
    const COUNT: usize = 500;
    Cluster::shared().await.apply(CRD).await?;
    let records = Folder::new("records")?;
    let grant = format!("--grant=records:dir={}", records.display());
    let stage = Stage::open("steady", modules::staticsite().await?, &[&grant, "--resync=15s"]).await?;
    let create = |number: usize| {
        let mut object = site(&format!("site-{number}"), json!({"content": format!("<p>{number}</p>")}));
        object["metadata"]["namespace"] = json!(stage.namespace);
        let client = &stage.client;
        async move { client.create(&SITES, &object).await.map(drop) }
    };
    stream::iter((0..COUNT).map(create)).buffer_unordered(16).try_collect::<()>().await?;
    eventually("all are settled", SOON * 2, || async {
        let sites = stage.client.list(&SITES, &stage.namespace, "").await?;
        let settled = sites.iter().filter(|site| is_settled(site).is_ok()).count();
        anyhow::ensure!(settled == COUNT, "{settled} are");
        Ok(())
    })
    .await;
    assert_eq!(std::fs::read_dir(&*records)?.count(), COUNT);

    // A resync is a pass for what is outside, and one for the object.
    let resynced = async |times: usize| {
        let passes = stage.passes() + times * 2 * COUNT;
        eventually(&format!("{times} resyncs of each"), SOON * 2, || async { stage.passes() >= passes }).await;
    };
    // The last events of the beginning are written meanwhile.
    resynced(1).await;
    let mark = stage.mark().await?;
    resynced(2).await;
    let requests = stage.requests_since(mark).await?;
    assert!(requests.is_empty(), "{requests}");
    Ok(())
}
