//! The watches against a real API server.

use operator_core::contract::{ObjectName, TypeRef};
use operator_core::table::{Change, Lookup};
use operator_e2e::client::{CONFIG_MAPS, CRDS};
use operator_e2e::{Client, Cluster, Match, eventually};
use operator_host::api::discovery::Resource;
use operator_host::api::{self, ApiServer, Write};
use operator_host::lead::Permits;
use operator_host::watch::{Author, Need, Sink, TypeState, Watches, Watching, Writer};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;

const SOON: Duration = Duration::from_secs(20);
/// Longer than the reflector's longest wait between two attempts.
const RETRIED: Duration = Duration::from_secs(60);
const THINGS: operator_e2e::Resource<'static> = operator_e2e::Resource::new("watch.example.com/v1", "things");

/// Remembers who was woken.
#[derive(Default)]
struct Woken(Mutex<Vec<(String, Option<Author>)>>);

impl Woken {
    fn take(&self) -> Vec<(String, Option<Author>)> {
        std::mem::take(&mut self.0.lock().expect("nobody panicked"))
    }
}

impl Sink for Woken {
    fn changed(&self, _: &TypeRef, change: &Change, author: Option<&Author>) {
        self.0.lock().expect("nobody panicked").push((change.name.name.to_string(), author.cloned()));
    }
    fn state_changed(&self, _: &TypeRef) {}
    fn definition_may_have_changed(&self, _: &TypeRef) {}
}

/// Watches of a test's own namespace.
struct Bench {
    watches: Watches,
    _watching: Watching,
    woken: Arc<Woken>,
    api: Arc<ApiServer>,
    client: Client,
    namespace: String,
}

impl Bench {
    async fn of(cluster: &Cluster, needs: impl Fn(&str) -> Vec<Need>) -> Self {
        Self::at(cluster, &cluster.kubeconfig(operator_e2e::cluster::ADMIN).expect("a kubeconfig"), needs).await
    }

    async fn at(cluster: &Cluster, kubeconfig: &Path, needs: impl Fn(&str) -> Vec<Need>) -> Self {
        let _ = tracing_subscriber::fmt().with_test_writer().try_init();
        let namespace = cluster.namespace("watch").await.expect("a namespace");
        let api = Arc::new(api::connect(Some(kubeconfig), None, &Permits::always()).await.expect("a client"));
        let watches = Watches::new(Handle::current(), Arc::clone(&api), "test", ["operator-host/test"]);
        let woken = Arc::new(Woken::default());
        let watching = watches.join(&needs(&namespace));
        watches.start(Arc::clone(&woken) as Arc<dyn Sink>);
        Self { watches, _watching: watching, woken, api, client: cluster.client(), namespace }
    }

    async fn synced(&self, type_ref: &TypeRef) {
        self.in_state("synced", type_ref, |state| *state == TypeState::Synced).await;
    }

    async fn in_state(&self, what: &str, type_ref: &TypeRef, is: impl Fn(&TypeState) -> bool) {
        eventually(what, RETRIED, || async {
            let state = self.watches.state(type_ref);
            if is(&state) { Ok(()) } else { Err(format!("{state:?}")) }
        })
        .await;
    }

    /// The `data.a` of a ConfigMap in the table.
    fn shows(&self, name: &str) -> Option<String> {
        match self.watches.lookup(&config_maps(), &self.name(name)) {
            Lookup::Present(object) => {
                let object: Value = serde_json::from_str(&object.json).expect("JSON");
                Some(object["data"]["a"].as_str().unwrap_or_default().to_owned())
            }
            Lookup::Absent => None,
            Lookup::Unreadable(object) => panic!("unreadable: {}", object.message),
        }
    }

    async fn comes_to_show(&self, name: &str, value: Option<&str>) {
        eventually(&format!("{name} shows {value:?}"), SOON, || async {
            let shown = self.shows(name);
            if shown.as_deref() == value { Ok(()) } else { Err(format!("{shown:?}")) }
        })
        .await;
    }

    fn name(&self, name: &str) -> ObjectName {
        ObjectName::new(Some(&self.namespace), name)
    }

    fn config_map(&self, name: &str, value: &str) -> Value {
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "a": value },
            "metadata": { "name": name, "namespace": self.namespace } })
    }

    async fn set(&self, name: &str, value: &str) {
        let patch = json!({ "data": { "a": value } });
        self.client.patch(&CONFIG_MAPS, &self.namespace, name, &patch).await.expect("a patch");
    }

    async fn create(&self, object: &Value) -> Value {
        self.client.create(&CONFIG_MAPS, object).await.expect("a create")
    }

    async fn resource(&self) -> Arc<Resource> {
        self.watches.resource(&config_maps()).expect("ConfigMaps are watched")
    }

    async fn own_write(&self, author: &Author, name: &str, value: &str) {
        let resource = self.resource().await;
        let permit = Permits::always().permit().expect("no election");
        let writer = Writer { api: &self.api, permit: &permit, author };
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "a": value }, "metadata": {
            "name": name, "namespace": self.namespace, "labels": { "operatorhost.dev/installation": "test" } } });
        let name = self.name(name);
        let write = Write {
            method: http::Method::PATCH,
            path: format!("{}?fieldManager=operator-host%2Ftest&force=true", resource.object(&name)),
            content_type: api::APPLY,
            body: object.to_string(),
            about: operator_core::answer::Request {
                verb: operator_core::answer::Verb::Apply,
                type_ref: &resource.type_ref,
                plural: &resource.plural,
                namespace: name.namespace.as_deref(),
                name: Some(&name.name),
            },
        };
        self.watches.write(writer, &resource, &name, write).await.expect("a write");
    }
}

fn config_maps() -> TypeRef {
    TypeRef::new("v1", "ConfigMap")
}

fn things() -> TypeRef {
    TypeRef::new("watch.example.com/v1", "Thing")
}

fn need(type_ref: TypeRef, namespace: &str, labelled: bool) -> Need {
    Need { type_ref, namespaces: vec![namespace.to_owned()], labelled }
}

fn primaries(namespace: &str) -> Vec<Need> {
    vec![need(config_maps(), namespace, false)]
}

fn children(namespace: &str) -> Vec<Need> {
    vec![need(config_maps(), namespace, true)]
}

fn crd() -> Value {
    json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "things.watch.example.com" },
        "spec": { "group": "watch.example.com", "scope": "Namespaced",
            "names": { "plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList" },
            "versions": [{ "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }] } })
}

/// The life of an object as the table sees it, on a server with streaming lists or without.
async fn a_table_follows_the_server(cluster: &Cluster) {
    let bench = Bench::of(cluster, primaries).await;
    bench.synced(&config_maps()).await;
    let _ = bench.create(&bench.config_map("a", "1")).await;
    bench.comes_to_show("a", Some("1")).await;
    bench.set("a", "2").await;
    bench.comes_to_show("a", Some("2")).await;
    assert!(bench.watches.primaries(&config_maps()).contains(&bench.name("a")));
    let _ = bench.client.delete(&CONFIG_MAPS, &bench.namespace, "a").await.expect("a delete");
    bench.comes_to_show("a", None).await;
    bench.watches.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_follows_a_server_with_streaming_lists() {
    let cluster = Cluster::shared().await;
    a_table_follows_the_server(cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_follows_a_server_without_streaming_lists() {
    let cluster = Cluster::options().apiserver_flag("--feature-gates=WatchList=false").start().await;
    a_table_follows_the_server(&cluster.expect("a cluster")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_writes_are_read_at_once_and_wake_nobody_but_others() {
    let cluster = Cluster::shared().await;
    let bench = Bench::of(cluster, children).await;
    bench.synced(&config_maps()).await;
    bench.woken.take();
    let author = Author { operator: 0, name: bench.name("parent") };
    for round in 0..50 {
        let value = round.to_string();
        bench.own_write(&author, "child", &value).await;
        assert_eq!(bench.shows("child"), Some(value), "the host did not read its own write");
    }
    // The watch has told of all of it when it tells of what came after.
    let mut last = bench.config_map("last", "1");
    last["metadata"]["labels"] = json!({ "operatorhost.dev/installation": "test" });
    let _ = bench.create(&last).await;
    bench.comes_to_show("last", Some("1")).await;
    let woken = bench.woken.take();
    let by_others: Vec<_> = woken.iter().filter(|(_, by)| by.as_ref() != Some(&author)).map(|(name, _)| name).collect();
    assert_eq!(by_others, ["last"], "an echo woke its own writer");
    bench.watches.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_robbed_of_its_label_stays_and_a_deleted_one_goes() {
    let cluster = Cluster::shared().await;
    let bench = Bench::of(cluster, |namespace| {
        vec![need(config_maps(), namespace, false), need(TypeRef::new("v1", "Secret"), namespace, true)]
    })
    .await;
    let secrets = TypeRef::new("v1", "Secret");
    bench.synced(&config_maps()).await;
    bench.synced(&secrets).await;
    let parent = bench.create(&bench.config_map("parent", "1")).await;
    bench.comes_to_show("parent", Some("1")).await;
    let uid = parent["metadata"]["uid"].as_str().expect("a uid").to_owned();
    let secret = |name: &str| {
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": {
            "name": name, "namespace": bench.namespace, "labels": { "operatorhost.dev/installation": "test" },
            "ownerReferences": [
                { "apiVersion": "v1", "kind": "ConfigMap", "name": "parent", "uid": uid, "controller": true },
            ] } })
    };
    let secrets_resource = operator_e2e::client::SECRETS;
    for name in ["robbed", "deleted"] {
        bench.client.create(&secrets_resource, &secret(name)).await.expect("a create");
    }
    let names = || -> Vec<String> {
        let children = bench.watches.children(&secrets, &uid);
        children.iter().map(|child| child.meta.name.name.to_string()).collect()
    };
    eventually("both children", SOON, || async { names() == ["deleted", "robbed"] }).await;
    let patch = json!({ "metadata": { "labels": { "operatorhost.dev/installation": null } } });
    let robbed = bench.client.patch(&secrets_resource, &bench.namespace, "robbed", &patch).await.expect("a patch");
    let _ = bench.client.delete(&secrets_resource, &bench.namespace, "deleted").await.expect("a delete");
    eventually("the deleted child is gone", SOON, || async { names() == ["robbed"] }).await;
    eventually("the table shows the stripped object", SOON, || async {
        match bench.watches.lookup(&secrets, &bench.name("robbed")) {
            Lookup::Present(object) => {
                robbed["metadata"]["resourceVersion"] == object.meta.resource_version.to_string()
            }
            Lookup::Absent | Lookup::Unreadable(_) => panic!("the module saw a gap"),
        }
    })
    .await;
    bench.watches.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_type_that_comes_and_goes_is_absent_then_synced_then_absent() {
    let cluster = Cluster::bare().await.expect("a cluster");
    let bench = Bench::of(&cluster, |namespace| vec![need(things(), namespace, false)]).await;
    let is_absent = |state: &TypeState| matches!(state, TypeState::Absent { .. });
    bench.in_state("absent", &things(), is_absent).await;
    bench.client.create(&CRDS, &crd()).await.expect("a CRD");
    bench.synced(&things()).await;
    let thing = json!({ "apiVersion": "watch.example.com/v1", "kind": "Thing",
        "metadata": { "name": "a", "namespace": bench.namespace } });
    bench.client.create(&THINGS, &thing).await.expect("a thing");
    eventually("the thing is seen", SOON, || async { bench.watches.primaries(&things()).len() == 1 }).await;
    let _ = bench.client.delete(&CRDS, "", "things.watch.example.com").await.expect("a delete");
    let was_synced = |state: &TypeState| matches!(state, TypeState::Absent { was_synced: true, .. });
    bench.in_state("absent again", &things(), was_synced).await;
    bench.watches.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forbidden_type_is_said_to_be_and_synced_once_it_is_allowed() {
    let cluster = Cluster::bare().await.expect("a cluster");
    let kubeconfig = cluster.kubeconfig("user-0").expect("a kubeconfig");
    let bench = Bench::at(&cluster, &kubeconfig, children).await;
    let is_forbidden =
        |state: &TypeState| matches!(state, TypeState::Forbidden { message, .. } if message.contains("user-0"));
    bench.in_state("forbidden", &config_maps(), is_forbidden).await;
    bench.client.grant("user-0", "", &["configmaps"], &["get", "list", "watch"]).await.expect("a grant");
    bench.synced(&config_maps()).await;
    bench.watches.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_watch_goes_on_where_it_was_without_a_list() {
    let cluster = Cluster::bare().await.expect("a cluster");
    let proxy = cluster.proxy().await.expect("a proxy");
    let kubeconfig = cluster.kubeconfig_at(operator_e2e::cluster::ADMIN, &proxy.url()).expect("a kubeconfig");
    let bench = Bench::at(&cluster, &kubeconfig, primaries).await;
    bench.synced(&config_maps()).await;
    let _ = bench.create(&bench.config_map("a", "1")).await;
    bench.comes_to_show("a", Some("1")).await;
    proxy.cut_watches();
    bench.set("a", "2").await;
    bench.comes_to_show("a", Some("2")).await;
    proxy.end_watches();
    bench.set("a", "3").await;
    bench.comes_to_show("a", Some("3")).await;
    // The list of nothing, which asks a server that is back how far it has come, does not count.
    let lists = Match::any().path("/configmaps").and(|seen| {
        (!seen.is_watch() || seen.query.contains("sendInitialEvents")) && !seen.query.contains("fieldSelector")
    });
    assert_eq!(proxy.count(&lists), 1, "a cut watch was answered by a list");
    assert_eq!(bench.watches.state(&config_maps()), TypeState::Synced);
    bench.watches.stop();
    drop(bench.api);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_watch_of_a_name_asks_for_no_other_as_rights_may_be_bound_to_it() {
    let cluster = Cluster::bare().await.expect("a cluster");
    let proxy = cluster.proxy().await.expect("a proxy");
    let kubeconfig = cluster.kubeconfig_at(operator_e2e::cluster::ADMIN, &proxy.url()).expect("a kubeconfig");
    let bench = Bench::at(&cluster, &kubeconfig, |_| Vec::new()).await;
    let _ = bench.create(&bench.config_map("a", "1")).await;
    assert!(bench.watches.watch_name(&config_maps(), &bench.name("a")));
    bench.comes_to_show("a", Some("1")).await;
    proxy.cut_watches();
    bench.set("a", "2").await;
    bench.comes_to_show("a", Some("2")).await;
    let requests = Match::any().path("/configmaps");
    let of_others = requests.clone().and(|seen| !seen.query.contains("fieldSelector=metadata.name%3Da"));
    assert!(proxy.count(&requests.and(|seen| !seen.is_watch())) > 0, "it did not ask how far the server has come");
    assert_eq!(proxy.seen(&of_others).iter().map(|seen| &seen.query).collect::<Vec<_>>(), Vec::<&String>::new());
    bench.watches.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_restart_and_expired_versions_lose_nothing() {
    let mut cluster = Cluster::bare().await.expect("a cluster");
    let bench = Bench::of(&cluster, primaries).await;
    bench.synced(&config_maps()).await;
    let _ = bench.create(&bench.config_map("kept", "1")).await;
    let _ = bench.create(&bench.config_map("gone", "1")).await;
    bench.comes_to_show("gone", Some("1")).await;
    cluster.restart_apiserver().await.expect("a restart");
    bench.set("kept", "2").await;
    bench.comes_to_show("kept", Some("2")).await;
    let _ = bench.client.delete(&CONFIG_MAPS, &bench.namespace, "gone").await.expect("a delete");
    cluster.expire_versions().await.expect("a compaction");
    bench.set("kept", "3").await;
    bench.comes_to_show("kept", Some("3")).await;
    bench.comes_to_show("gone", None).await;
    bench.watches.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_etcd_is_noticed_by_our_own_next_write() {
    let mut cluster = Cluster::bare().await.expect("a cluster");
    let bench = Bench::of(&cluster, children).await;
    bench.synced(&config_maps()).await;
    let author = Author { operator: 0, name: bench.name("parent") };
    bench.own_write(&author, "a", "before").await;
    let snapshot = cluster.snapshot().await.expect("a snapshot");
    for round in 0..100 {
        bench.own_write(&author, "a", &format!("lost {round}")).await;
    }
    bench.own_write(&author, "b", "lost").await;
    cluster.restore(&snapshot).await.expect("a restore");
    bench.own_write(&author, "a", "after").await;
    bench.comes_to_show("a", Some("after")).await;
    bench.comes_to_show("b", None).await;
    bench.set("a", "by another").await;
    bench.comes_to_show("a", Some("by another")).await;
    bench.watches.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_name_tells_when_it_becomes_free_even_if_it_was_before_the_watch_stood() {
    let cluster = Cluster::shared().await;
    let bench = Bench::of(cluster, children).await;
    bench.synced(&config_maps()).await;
    let _ = bench.create(&bench.config_map("taken", "1")).await;
    let name = bench.name("taken");
    assert!(bench.watches.watch_name(&config_maps(), &name));
    bench.comes_to_show("taken", Some("1")).await;
    bench.woken.take();
    let _ = bench.client.delete(&CONFIG_MAPS, &bench.namespace, "taken").await.expect("a delete");
    eventually("the waiter is woken", SOON, || async { bench.woken.take().iter().any(|(name, _)| name == "taken") })
        .await;
    bench.watches.unwatch_name(&config_maps(), &name);

    assert!(bench.watches.watch_name(&config_maps(), &name));
    eventually("the waiter is woken", SOON, || async { bench.woken.take().iter().any(|(name, _)| name == "taken") })
        .await;
    bench.watches.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_lasts_as_long_as_somebody_needs_it() {
    let cluster = Cluster::shared().await;
    let bench = Bench::of(cluster, |_| Vec::new()).await;
    let needs = children(&bench.namespace);
    let (one, other) = (bench.watches.join(&needs), bench.watches.join(&needs));
    bench.synced(&config_maps()).await;
    let author = Author { operator: 0, name: bench.name("parent") };
    bench.own_write(&author, "a", "1").await;
    drop(one);
    bench.set("a", "2").await;
    bench.comes_to_show("a", Some("2")).await;
    drop(other);
    assert_eq!(bench.shows("a"), None, "nobody looks at it any more");
    let _again = bench.watches.join(&needs);
    bench.synced(&config_maps()).await;
    bench.comes_to_show("a", Some("2")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_more_objects_of_a_type_holds_up_nobody_else() {
    let cluster = Cluster::shared().await;
    let bench = Bench::of(cluster, |_| Vec::new()).await;
    let one = bench.watches.join(&children(&bench.namespace));
    bench.synced(&config_maps()).await;
    let other = bench.watches.join(&primaries(&bench.namespace));
    assert_eq!(one.state(&config_maps()), TypeState::Synced);
    bench.synced(&config_maps()).await;
    assert_eq!(other.state(&config_maps()), TypeState::Synced);
    drop(other);
    assert_eq!(one.state(&config_maps()), TypeState::Synced);
}
