//! Objects that a module asks for: found by name and by labels, watched as long as somebody asks, and waking exactly who asked.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use operator_e2e::client::{CONFIG_MAPS, Resource};
use operator_e2e::expect::{SOON, reconciled};
use operator_e2e::objects::{ASKERS, WIDGET_CRD, WIDGETS, condition};
use operator_e2e::{Cluster, Host, Mark, MetricsPort, Result, Stage, eventually, modules};
use serde_json::{Value, json};

const GADGETS: Resource<'static> = Resource::new("example.com/v1", "gadgets");

fn asker(namespace: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": ASKERS.api_version, "kind": "Asker",
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    })
}

fn config_map(namespace: &str, name: &str, tier: &str, data: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {"tier": tier}}, "data": data,
    })
}

/// The definition of a type that no other test has.
fn gadgets_of_their_own(widgets: &str) -> String {
    widgets.replace("widget", "gadget").replace("Widget", "Gadget")
}

struct Askers(Stage);

impl Askers {
    async fn start(name: &str, arguments: &[&str]) -> Result<Self> {
        let mut stage = Stage::open(name, &modules::fixture("asker").await?, arguments).await?;
        stage.host.wait_ready().await?;
        Ok(Self(stage))
    }

    /// Makes an Asker with these queries, which are about its own namespace.
    async fn ask(&self, name: &str, queries: &[Value]) -> Result<()> {
        self.create(name, json!({"queries": self.here(queries)})).await
    }

    /// Gives an Asker other queries.
    async fn ask_instead(&self, name: &str, queries: &[Value]) -> Result<()> {
        let patch = json!({"spec": {"queries": self.here(queries)}});
        self.0.client.patch(&ASKERS, &self.0.namespace, name, &patch).await?;
        Ok(())
    }

    fn here(&self, queries: &[Value]) -> Vec<Value> {
        let mut queries = queries.to_vec();
        queries.iter_mut().for_each(|query| query["namespace"] = json!(self.0.namespace));
        queries
    }

    async fn create(&self, name: &str, spec: Value) -> Result<()> {
        self.0.client.create(&ASKERS, &asker(&self.0.namespace, name, spec)).await?;
        Ok(())
    }

    async fn make(&self, name: &str, tier: &str, data: Value) -> Result<()> {
        self.0.client.create(&CONFIG_MAPS, &config_map(&self.0.namespace, name, tier, data)).await?;
        Ok(())
    }

    async fn change(&self, name: &str, patch: Value) -> Result<()> {
        self.0.client.patch(&CONFIG_MAPS, &self.0.namespace, name, &patch).await?;
        Ok(())
    }

    /// Waits until an Asker's status shows that a query found this.
    async fn finds(&self, name: &str, query: &str, found: &[&str]) {
        let what = format!("{name} finds {found:?} by {query}");
        let is_found = |object: &Value| object["status"]["found"][query] == json!(found);
        self.0.object(&ASKERS, name, &what, is_found).await;
    }

    /// Waits until the host's condition has this reason and gives its message.
    async fn says(&self, name: &str, reason: &str) -> String {
        let condition = reconciled(&self.0.client, &ASKERS, &self.0.namespace, name, reason, SOON).await;
        condition["message"].as_str().unwrap_or_default().to_owned()
    }

    /// Watches of ConfigMaps in the namespace: those that were opened since the cluster began, and of these the ones that ended.
    async fn watches(&self, since: Mark) -> Result<(usize, usize)> {
        let requests = self.0.cluster.audit().since(since).await?;
        let watches = requests.by_agent("operator-host/").within(&self.0.namespace).of("configmaps").verb("watch");
        let opened = watches.matching(|watch| watch.started).len();
        Ok((opened, watches.len() - opened))
    }
}

#[tokio::test]
async fn what_is_asked_for_is_found_by_name_by_labels_and_whole_and_every_change_of_it_is_seen() -> Result<()> {
    let askers = Askers::start("found", &[]).await?;
    askers.make("one", "front", json!({"a": "1"})).await?;
    askers.make("two", "back", json!({"a": "2"})).await?;
    let queries = [
        json!({"id": "name", "name": "one"}),
        json!({"id": "absent", "name": "late"}),
        json!({"id": "front", "labels": "tier in (front)"}),
        json!({"id": "rest", "labels": "tier!=front,!nothing"}),
        json!({"id": "all"}),
    ];
    askers.ask("a", &queries).await?;
    askers.finds("a", "name", &["one=1"]).await;
    askers.finds("a", "absent", &[]).await;
    askers.finds("a", "front", &["one=1"]).await;

    askers.make("late", "back", json!({"a": "3"})).await?;
    askers.finds("a", "absent", &["late=3"]).await;
    askers.change("two", json!({"metadata": {"labels": {"tier": "front"}}})).await?;
    askers.finds("a", "front", &["one=1", "two=2"]).await;
    askers.change("one", json!({"metadata": {"labels": {"tier": "back"}}, "data": {"a": "4"}})).await?;
    askers.finds("a", "front", &["two=2"]).await;
    askers.finds("a", "name", &["one=4"]).await;
    askers.0.client.delete(&CONFIG_MAPS, &askers.0.namespace, "late").await?;
    askers.finds("a", "absent", &[]).await;
    askers.0.settled(&ASKERS, "a").await;
    let object = askers.0.get(&ASKERS, "a").await?;
    let all = object["status"]["found"]["all"].as_array().cloned().unwrap_or_default();
    assert!(all.contains(&json!("one=4")) && all.contains(&json!("two=2")), "{all:?}");
    Ok(())
}

#[tokio::test]
async fn objects_without_a_namespace_are_found() -> Result<()> {
    let askers = Askers::start("scope", &[]).await?;
    let query = json!({"id": "own", "kind": "Namespace", "name": askers.0.namespace});
    askers.create("a", json!({"queries": [query]})).await?;
    askers.finds("a", "own", &[&format!("{}=", askers.0.namespace)]).await;
    Ok(())
}

#[tokio::test]
async fn a_question_may_follow_from_what_another_found_but_must_come_to_an_end() -> Result<()> {
    let askers = Askers::start("follow", &[]).await?;
    askers.make("one", "x", json!({"a": "1", "next": "two"})).await?;
    askers.make("two", "x", json!({"a": "2", "next": "three"})).await?;
    let query = json!({"id": "one", "name": "one", "namespace": askers.0.namespace});
    askers.create("a", json!({"queries": [query], "follow": true})).await?;
    askers.finds("a", "two", &["two=2"]).await;
    askers.finds("a", "three", &[]).await;
    askers.make("three", "x", json!({"a": "3"})).await?;
    askers.finds("a", "three", &["three=3"]).await;

    askers.create("endless", json!({"restless": true})).await?;
    let message = askers.says("endless", "InvalidOutcome").await;
    assert!(message.contains("something else each time"), "{message}");
    askers.ask_instead("endless", &[]).await?;
    let patch = json!({"spec": {"restless": false}});
    askers.0.client.patch(&ASKERS, &askers.0.namespace, "endless", &patch).await?;
    askers.0.settled(&ASKERS, "endless").await;
    Ok(())
}

#[tokio::test]
async fn what_can_not_be_asked_is_said() -> Result<()> {
    let askers = Askers::start("invalid", &[]).await?;
    askers.ask("a", &[json!({"id": "x", "labels": "tier=(front"})]).await?;
    let message = askers.says("a", "InvalidOutcome").await;
    assert!(message.contains("query \"x\"") && message.contains("tier=(front"), "{message}");
    for (kind, expected) in [
        ("Pod", "Pod.v1 is not among the related types"),
        ("Namespace", "is for a namespace, and Namespace.v1 is cluster-scoped"),
    ] {
        askers.ask_instead("a", &[json!({"id": "x", "kind": kind})]).await?;
        eventually(expected, SOON, || async {
            let object = askers.0.get(&ASKERS, "a").await?;
            let condition = condition(&object, "Reconciled");
            let message = condition["message"].as_str().unwrap_or_default();
            anyhow::ensure!(condition["reason"] == "InvalidOutcome" && message.contains(expected), "{condition}");
            Ok(())
        })
        .await;
    }
    Ok(())
}

#[tokio::test]
async fn a_type_that_is_not_served_is_waited_for_unless_it_is_optional() -> Result<()> {
    let askers = Askers::start("absent", &[]).await?;
    askers.ask("needs", &[json!({"id": "g", "apiVersion": "example.com/v1", "kind": "Gadget"})]).await?;
    let message = askers.says("needs", "TypeUnavailable").await;
    assert!(message.contains("Gadget.example.com/v1"), "{message}");
    askers.ask("can-do-without", &[json!({"id": "w", "apiVersion": "example.com/v1", "kind": "Widget"})]).await?;
    askers.finds("can-do-without", "w", &[]).await;
    let object = askers.0.settled(&ASKERS, "can-do-without").await;
    assert_eq!(object["status"]["unavailable"], json!(["Widget"]), "unknown is not empty");

    askers.0.cluster.apply(&gadgets_of_their_own(WIDGET_CRD)).await?;
    askers.0.cluster.apply(WIDGET_CRD).await?;
    for (resource, kind) in [(GADGETS, "Gadget"), (WIDGETS, "Widget")] {
        let object = json!({
            "apiVersion": "example.com/v1", "kind": kind,
            "metadata": {"name": "it", "namespace": askers.0.namespace},
        });
        askers.0.client.create(&resource, &object).await?;
    }
    askers.finds("needs", "g", &["it="]).await;
    askers.finds("can-do-without", "w", &["it="]).await;
    Ok(())
}

#[tokio::test]
async fn a_forbidden_type_is_said_by_who_asks_and_nobody_else() -> Result<()> {
    let cluster = Cluster::shared().await;
    let (client, namespace) = (cluster.client(), cluster.namespace("forbidden").await?);
    cluster.install_definitions().await?;
    let user = "user-0";
    client.grant(user, "fixtures.example.com", &["askers"], &["list", "watch"]).await?;
    client.grant(user, "fixtures.example.com", &["askers/status"], &["patch"]).await?;
    let module = modules::fixture("asker").await?;
    let arguments = [format!("--namespace={namespace}"), format!("--installation-id={namespace}")];
    let arguments = arguments.each_ref().map(String::as_str);
    let mut host = Host::spawn(&cluster.kubeconfig(user)?, &[&module], &arguments)?;
    host.wait_ready().await?;
    let query = json!({"id": "x", "name": "it", "namespace": namespace});
    client.create(&ASKERS, &asker(&namespace, "asks", json!({"queries": [query]}))).await?;
    client.create(&ASKERS, &asker(&namespace, "silent", json!({}))).await?;
    let condition = reconciled(&client, &ASKERS, &namespace, "asks", "TypeUnavailable", SOON).await;
    let message = condition["message"].as_str().unwrap_or_default();
    assert!(message.contains("ConfigMap.v1") && message.contains("forbidden"), "{message}");
    reconciled(&client, &ASKERS, &namespace, "silent", "Settled", SOON).await;

    // What is granted later is noticed.
    client.grant(user, "", &["configmaps"], &["list", "watch"]).await?;
    reconciled(&client, &ASKERS, &namespace, "asks", "Settled", SOON).await;
    Ok(())
}

#[tokio::test]
async fn what_many_ask_for_is_watched_once_and_no_longer_when_nobody_asks() -> Result<()> {
    let askers = Askers::start("watches", &[]).await?;
    let mark = askers.0.mark().await?;
    let tiers = [json!({"id": "a", "labels": "tier=front"}), json!({"id": "b", "labels": "tier==front"})];
    for name in ["a", "b", "c"] {
        askers.ask(name, &tiers).await?;
        askers.0.settled(&ASKERS, name).await;
    }
    assert_eq!(askers.watches(mark).await?, (1, 0), "opened and ended");
    askers.0.client.delete(&ASKERS, &askers.0.namespace, "a").await?;
    askers.0.gone(&ASKERS, "a").await;
    askers.ask_instead("b", &[]).await?;
    askers.0.settled(&ASKERS, "b").await;
    askers.0.quiesce(&ASKERS, "b").await?;
    assert_eq!(askers.watches(mark).await?, (1, 0), "one still asks");
    askers.ask_instead("c", &[]).await?;
    eventually("the watch ends", SOON, || async {
        let watches = askers.watches(mark).await?;
        anyhow::ensure!(watches == (1, 1), "opened and ended: {watches:?}");
        Ok(())
    })
    .await;
    Ok(())
}

#[tokio::test]
async fn more_names_than_may_be_watched_singly_are_all_followed() -> Result<()> {
    let askers = Askers::start("names", &[]).await?;
    let mark = askers.0.mark().await?;
    let queries: Vec<Value> = (0..60).map(|n| json!({"id": format!("q{n}"), "name": format!("c{n}")})).collect();
    askers.ask("a", &queries).await?;
    askers.0.settled(&ASKERS, "a").await;
    askers
        .ask("b", &(60..120).map(|n| json!({"id": "q", "name": format!("c{n}")})).take(1).collect::<Vec<_>>())
        .await?;
    let further: Vec<Value> = (60..120).map(|n| json!({"id": format!("q{n}"), "name": format!("c{n}")})).collect();
    askers.ask_instead("b", &further).await?;
    askers.0.settled(&ASKERS, "b").await;
    for name in ["c5", "c119"] {
        askers.make(name, "x", json!({"a": "1"})).await?;
    }
    askers.finds("a", "q5", &["c5=1"]).await;
    askers.finds("b", "q119", &["c119=1"]).await;
    let (opened, _) = askers.watches(mark).await?;
    assert_eq!(opened, 65, "64 names, and the namespace");
    Ok(())
}

#[tokio::test]
async fn a_snapshot_carries_as_many_as_it_may_and_says_that_there_are_more() -> Result<()> {
    let askers = &Askers::start("many", &[]).await?;
    let make = |name: String| async move { askers.make(&name, "many", json!({"a": "1"})).await };
    let makes = (0..1_001).map(|n| make(format!("c{n:04}")));
    futures::stream::iter(makes).buffer_unordered(32).try_collect::<Vec<_>>().await?;
    askers.ask("a", &[json!({"id": "many", "labels": "tier=many"})]).await?;
    let object = askers.0.settled(&ASKERS, "a").await;
    assert_eq!(object["status"]["found"]["many"].as_array().map(Vec::len), Some(1_000));
    assert_eq!(object["status"]["truncated"], json!(["many"]));
    askers.0.client.delete(&CONFIG_MAPS, &askers.0.namespace, "c0000").await?;
    let is_whole = |object: &Value| object["status"]["truncated"] == json!([]);
    askers.0.object(&ASKERS, "a", "what fits is carried whole", is_whole).await;
    Ok(())
}

#[tokio::test]
async fn of_1000_objects_exactly_the_3_that_ask_are_reconciled_and_a_restart_writes_nothing() -> Result<()> {
    let port = MetricsPort::free()?;
    let mut askers = Askers::start("thousand", &[&port.argument()]).await?;
    askers.make("shared", "x", json!({"a": "1"})).await?;
    askers.make("other", "x", json!({"a": "1"})).await?;
    let creates = (0..1_000).map(|n| {
        let queries = if n % 400 == 7 { vec![json!({"id": "x", "name": "shared"})] } else { Vec::new() };
        let (askers, name) = (&askers, format!("a{n}"));
        async move { askers.ask(&name, &queries).await }
    });
    futures::stream::iter(creates).buffer_unordered(32).try_collect::<Vec<_>>().await?;
    eventually("all are settled", Duration::from_secs(120), || async {
        let objects = askers.0.client.list(&ASKERS, &askers.0.namespace, "").await?;
        let settled = objects.iter().filter(|object| condition(object, "Reconciled")["reason"] == "Settled").count();
        anyhow::ensure!(settled == 1_000, "{settled}");
        Ok(())
    })
    .await;
    let passes = || async {
        let page = port.scrape().await?;
        let idle = page.sum("workqueue_depth", &[])? + page.sum("controller_runtime_active_workers", &[])?;
        anyhow::ensure!(idle == 0.0, "something is in work");
        page.sum("controller_runtime_reconcile_total", &[])
    };
    let mut before = eventually("the host is at rest", SOON, &passes).await;

    askers.change("other", json!({"data": {"a": "2"}})).await?;
    for value in ["2", "3"] {
        askers.change("shared", json!({"data": {"a": value}})).await?;
        for name in ["a7", "a407", "a807"] {
            askers.finds(name, "x", &[&format!("shared={value}")]).await;
        }
        let after = eventually("the host is at rest", SOON, &passes).await;
        assert_eq!(after - before, 3.0, "reconciles by one change of what 3 ask for");
        before = after;
    }

    let mark = askers.0.mark().await?;
    askers.0.restart_after(async { Ok(()) }).await?;
    askers.0.host.wait_ready().await?;
    eventually("every object had its pass", Duration::from_secs(120), || async {
        let passes = passes().await?;
        anyhow::ensure!(passes >= 1_000.0, "{passes}");
        Ok(())
    })
    .await;
    let writes: Vec<String> = askers.0.requests_since(mark).await?.writes().iter().map(ToString::to_string).collect();
    assert!(writes.is_empty(), "{writes:#?}");
    Ok(())
}
