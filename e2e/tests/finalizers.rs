//! An object's end: the finalizer that waits for the module's work in the cluster and outside of it.

use operator_e2e::client::{CONFIG_MAPS, Resource};
use operator_e2e::cluster::ADMIN;
use operator_e2e::expect::{SOON, event};
use operator_e2e::host::operator;
use operator_e2e::objects::{KEEPERS, condition, config_map};
use operator_e2e::{Cluster, Result, Stage, eventually, modules};
use serde_json::{Value, json};

const FINALIZER: &str = "fixtures.example.com/keeper";

struct Keepers(Stage);

impl Keepers {
    async fn start(name: &str) -> Result<Self> {
        let mut stage = Stage::open(name, &modules::fixture("keeper").await?, &[]).await?;
        stage.host.wait_ready().await?;
        Ok(Self(stage))
    }

    async fn create(&self, name: &str, spec: Value) -> Result<Value> {
        let object = json!({
            "apiVersion": KEEPERS.api_version, "kind": "Keeper",
            "metadata": {"name": name, "namespace": self.0.namespace}, "spec": spec,
        });
        Ok(self.0.client.create(&KEEPERS, &object).await?)
    }

    async fn patch(&self, name: &str, patch: Value) -> Result<Value> {
        Ok(self.0.client.patch(&KEEPERS, &self.0.namespace, name, &patch).await?)
    }

    async fn delete(&self, resource: &Resource<'_>, name: &str) -> Result<()> {
        self.0.client.delete(resource, &self.0.namespace, name).await?;
        Ok(())
    }

    /// Waits until the host's condition has this reason and gives its message.
    async fn says(&self, name: &str, reason: &str) -> String {
        let is_said = |object: &Value| condition(object, "Reconciled")["reason"] == reason;
        let object = self.0.object(&KEEPERS, name, &format!("{name} says {reason}"), is_said).await;
        condition(&object, "Reconciled")["message"].as_str().unwrap_or_default().to_owned()
    }
}

fn finalizers(object: &Value) -> Vec<&str> {
    let list = object["metadata"]["finalizers"].as_array();
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

#[tokio::test]
async fn a_life_with_a_finalizer_costs_two_writes_more_and_ends() -> Result<()> {
    let keepers = Keepers::start("life").await?;
    let mark = keepers.0.mark().await?;
    let spec = json!({"children": [config_map("a", "1")], "outside": {"observation": {"id": 7}}});
    keepers.create("a", spec).await?;
    let object = keepers.0.settled(&KEEPERS, "a").await;
    assert_eq!(finalizers(&object), [FINALIZER]);
    assert_eq!(object["status"]["observation"], json!({"id": 7}), "what was observed outside is in the snapshot");
    let writes: Vec<String> = keepers.0.requests_since(mark).await?.writes().iter().map(ToString::to_string).collect();
    assert_eq!(writes.len(), 3, "finalizer, child, status: {writes:#?}");
    assert!(writes[0].contains("keepers"), "nothing is made before the finalizer stands: {writes:#?}");

    let mark = keepers.0.mark().await?;
    keepers.delete(&KEEPERS, "a").await?;
    keepers.0.gone(&KEEPERS, "a").await;
    let writes: Vec<String> = keepers.0.requests_since(mark).await?.writes().iter().map(ToString::to_string).collect();
    assert_eq!(writes.len(), 1, "the finalizer's removal: {writes:#?}");
    Ok(())
}

#[tokio::test]
async fn a_restart_asks_outside_again_and_writes_nothing() -> Result<()> {
    let mut keepers = Keepers::start("restart").await?;
    keepers.create("a", json!({"outside": {"observation": 1}})).await?;
    keepers.0.settled(&KEEPERS, "a").await;
    let mark = keepers.0.mark().await?;
    keepers.0.restart_after(async { Ok(()) }).await?;
    keepers.0.host.wait_ready().await?;
    eventually("a pass has seen it", SOON, || async { keepers.0.passes_of("a") > 1 }).await;
    assert_eq!(keepers.0.requests_since(mark).await?.writes().len(), 0);
    Ok(())
}

#[tokio::test]
async fn other_finalizers_stay_and_an_object_without_ours_is_left_alone() -> Result<()> {
    let keepers = Keepers::start("others").await?;
    let object = json!({
        "apiVersion": KEEPERS.api_version, "kind": "Keeper",
        "metadata": {"name": "a", "namespace": keepers.0.namespace, "finalizers": ["example.com/x", "example.com/y"]},
        "spec": {},
    });
    keepers.0.client.create(&KEEPERS, &object).await?;
    let object = keepers.0.settled(&KEEPERS, "a").await;
    assert_eq!(finalizers(&object), ["example.com/x", "example.com/y", FINALIZER]);
    keepers.delete(&KEEPERS, "a").await?;
    let is_released = |object: &Value| finalizers(object) == ["example.com/x", "example.com/y"];
    keepers.0.object(&KEEPERS, "a", "only our finalizer goes", is_released).await;

    // Made and deleted while no host ran: never ours.
    let mark = keepers.0.mark().await?;
    let passes = keepers.0.passes_of("a");
    keepers.patch("a", json!({"metadata": {"labels": {"edited": "1"}}})).await?;
    eventually("a pass has seen it", SOON, || async { keepers.0.passes_of("a") > passes }).await;
    assert_eq!(keepers.0.requests_since(mark).await?.writes().len(), 0, "it is left alone");
    keepers.patch("a", json!({"metadata": {"finalizers": null}})).await?;
    keepers.0.gone(&KEEPERS, "a").await;
    Ok(())
}

#[tokio::test]
async fn a_finalize_that_fails_keeps_the_object_and_says_why_until_it_succeeds() -> Result<()> {
    let keepers = Keepers::start("failing").await?;
    let spec = json!({"onDelete": {"failure": "the drain is stuck", "children": [config_map("farewell", "1")]}});
    keepers.create("a", spec).await?;
    keepers.0.settled(&KEEPERS, "a").await;
    keepers.delete(&KEEPERS, "a").await?;
    assert_eq!(keepers.says("a", "AsTold").await, "the drain is stuck");
    eventually("it is tried five times", SOON, || async { keepers.0.passes_of("a") >= 6 }).await;
    keepers.patch("a", json!({"spec": {"onDelete": {"failure": null, "waits": true}}})).await?;
    let message = keepers.says("a", "Waiting").await;
    assert!(message.contains("not done with it yet"), "{message}");
    keepers.0.object(&CONFIG_MAPS, "farewell", "what finalize wants is applied", |_| true).await;
    keepers.patch("a", json!({"spec": {"onDelete": {"waits": false}}})).await?;
    keepers.0.gone(&KEEPERS, "a").await;
    Ok(())
}

#[tokio::test]
async fn what_is_left_outside_keeps_the_object() -> Result<()> {
    let keepers = Keepers::start("outside").await?;
    let spec = json!({"outside": {"observation": 1, "removeFailure": "403 from the provider"}});
    keepers.create("a", spec).await?;
    keepers.0.settled(&KEEPERS, "a").await;
    keepers.delete(&KEEPERS, "a").await?;
    assert_eq!(keepers.says("a", "AsTold").await, "403 from the provider");
    let patch = json!({"spec": {"outside": {"removeFailure": null, "removeWaits": "the zone is locked"}}});
    keepers.patch("a", patch).await?;
    assert_eq!(keepers.says("a", "Waiting").await, "the zone is locked");
    keepers.patch("a", json!({"spec": {"outside": {"removeWaits": null}}})).await?;
    keepers.0.gone(&KEEPERS, "a").await;
    Ok(())
}

#[tokio::test]
async fn a_finalizer_that_somebody_takes_away_ends_the_work_and_what_is_left_is_said() -> Result<()> {
    const LEFT: &str = "what it made may be left there";
    let keepers = Keepers::start("taken").await?;
    let spec = json!({"children": [config_map("a", "1")], "outside": {"observation": 1, "removeFailure": "not now"}});
    keepers.create("a", spec).await?;
    keepers.0.settled(&KEEPERS, "a").await;
    keepers.patch("a", json!({"metadata": {"finalizers": [FINALIZER, "example.com/x"]}})).await?;
    keepers.delete(&KEEPERS, "a").await?;
    assert_eq!(keepers.says("a", "AsTold").await, "not now");
    let mark = keepers.0.mark().await?;
    keepers.patch("a", json!({"metadata": {"finalizers": ["example.com/x"]}})).await?;
    let told = event(&keepers.0.client, &keepers.0.namespace, "a", "LeftOutside").await;
    assert!(told["note"].to_string().contains(LEFT), "{told}");
    keepers.delete(&CONFIG_MAPS, "a").await?;
    keepers.patch("a", json!({"metadata": {"finalizers": null}})).await?;
    keepers.0.gone(&KEEPERS, "a").await;
    keepers.create("b", json!({})).await?;
    keepers.0.settled(&KEEPERS, "b").await;
    let requests = keepers.0.requests_since(mark).await?.writes().matching(|record| record.name == "a");
    assert!(requests.is_empty(), "nothing more is done about it: {requests}");
    assert_eq!(keepers.0.host.log().matches(LEFT).count(), 1, "{}", keepers.0.host.log());
    Ok(())
}

#[tokio::test]
async fn a_failure_outside_is_said_and_children_are_made_all_the_same() -> Result<()> {
    let keepers = Keepers::start("ensure").await?;
    let spec = json!({"children": [config_map("a", "1")], "outside": {"failure": "no route to the provider"}});
    keepers.create("a", spec).await?;
    assert_eq!(keepers.says("a", "AsTold").await, "no route to the provider");
    keepers.0.object(&CONFIG_MAPS, "a", "the child is there", |_| true).await;
    keepers.patch("a", json!({"spec": {"outside": {"failure": null, "observation": 2}}})).await?;
    let object = keepers.0.settled(&KEEPERS, "a").await;
    assert_eq!(object["status"]["observation"], 2);
    Ok(())
}

#[tokio::test]
async fn what_is_observed_later_reaches_the_module_by_its_recheck() -> Result<()> {
    let keepers = Keepers::start("recheck").await?;
    keepers.create("a", json!({"outside": {"observation": 1, "recheckMs": 200}})).await?;
    keepers.0.settled(&KEEPERS, "a").await;
    let passes = keepers.0.passes_of("a");
    let mark = keepers.0.mark().await?;
    eventually("it is looked at again and again", SOON, || async { keepers.0.passes_of("a") > passes + 4 }).await;
    assert_eq!(keepers.0.requests_since(mark).await?.writes().len(), 0, "the same observation writes nothing");
    Ok(())
}

#[tokio::test]
async fn an_object_deleted_while_no_host_runs_is_cleaned_up_by_the_next() -> Result<()> {
    let mut keepers = Keepers::start("stopped").await?;
    keepers.create("a", json!({"outside": {"observation": 1}})).await?;
    keepers.0.settled(&KEEPERS, "a").await;
    let (client, namespace) = (keepers.0.client.clone(), keepers.0.namespace.clone());
    let delete = async move {
        client.delete(&KEEPERS, &namespace, "a").await?;
        let waiting = client.get(&KEEPERS, &namespace, "a").await?;
        assert!(waiting["metadata"]["deletionTimestamp"].is_string(), "it waits: {waiting}");
        Ok(())
    };
    keepers.0.restart_after(delete).await?;
    keepers.0.gone(&KEEPERS, "a").await;
    Ok(())
}

#[tokio::test]
async fn a_paused_object_is_not_cleaned_up_until_it_goes_on() -> Result<()> {
    let keepers = Keepers::start("paused").await?;
    keepers.create("a", json!({})).await?;
    keepers.0.settled(&KEEPERS, "a").await;
    keepers.patch("a", json!({"metadata": {"annotations": {"operatorhost.dev/paused": "true"}}})).await?;
    keepers.says("a", "Paused").await;
    keepers.delete(&KEEPERS, "a").await?;
    let passes = keepers.0.passes_of("a");
    keepers.patch("a", json!({"metadata": {"labels": {"edited": "1"}}})).await?;
    eventually("a pass has seen it", SOON, || async { keepers.0.passes_of("a") > passes }).await;
    assert_eq!(finalizers(&keepers.0.get(&KEEPERS, "a").await?), [FINALIZER]);
    keepers.patch("a", json!({"metadata": {"annotations": {"operatorhost.dev/paused": null}}})).await?;
    keepers.0.gone(&KEEPERS, "a").await;
    Ok(())
}

#[tokio::test]
async fn release_shows_what_it_would_do_waits_for_no_host_and_lets_go() -> Result<()> {
    let module = modules::fixture("keeper").await?;
    let file = module.to_str().expect("UTF-8");
    let of_lease = format!("--leader-election-namespace={}", Cluster::shared().await.namespace("release-lease").await?);
    let election = [
        "--leader-elect",
        &of_lease,
        "--leader-election-lease-duration=3s",
        "--leader-election-renew-deadline=2s",
        "--leader-election-retry-period=500ms",
    ];
    let mut keepers = Keepers(Stage::open("release", &module, &election).await?);
    keepers.0.host.wait_ready().await?;
    for name in ["a", "b"] {
        keepers.create(name, json!({"outside": {"removeFailure": "the provider is gone"}})).await?;
        keepers.0.settled(&KEEPERS, name).await;
    }
    keepers.delete(&KEEPERS, "a").await?;
    keepers.says("a", "AsTold").await;

    let admin = keepers.0.cluster.kubeconfig(ADMIN)?;
    let namespace = &keepers.0.namespace.clone();
    let scope = [format!("--namespace={namespace}"), format!("--installation-id={namespace}")];
    let command = ["release", "--module", file, &scope[0], &scope[1]];
    let command: Vec<&str> = command.into_iter().chain(election).collect();
    let dry: Vec<&str> = command.iter().copied().chain(["--dry-run"]).collect();
    let shown = operator(&dry, Some(&admin)).await?;
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(shown.stdout.contains("2 of keepers.fixtures.example.com carry the finalizer"), "{}", shown.stdout);
    assert!(
        shown.stdout.contains(&format!("Keeper {namespace}/a, being deleted: would be let go of")),
        "{}",
        shown.stdout
    );
    assert_eq!(finalizers(&keepers.0.get(&KEEPERS, "b").await?), [FINALIZER], "nothing was written");

    let refused = operator(&command, Some(&admin)).await?;
    assert_eq!(refused.code, 1, "a host holds the Lease: {}", refused.stdout);
    assert!(refused.stderr.contains("a host runs. Stop it first"), "{}", refused.stderr);

    keepers.0.host.sigterm().await?;
    let released = operator(&command, Some(&admin)).await?;
    assert_eq!(released.code, 0, "{}", released.stderr);
    keepers.0.gone(&KEEPERS, "a").await;
    assert_eq!(finalizers(&keepers.0.get(&KEEPERS, "b").await?), Vec::<&str>::new());
    let again = operator(&command, Some(&admin)).await?;
    assert!(again.stdout.starts_with("0 of keepers"), "{}", again.stdout);
    Ok(())
}
