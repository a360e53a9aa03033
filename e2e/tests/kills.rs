//! A leader that is killed again and again while every site is edited and some come and go: each time the other takes over, and in the
//! end every site, and every record outside the cluster, is as it should be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use operator_e2e::client::{CONFIG_MAPS, Resource};
use operator_e2e::cluster::ADMIN;
use operator_e2e::expect::SOON;
use operator_e2e::folder::Folder;
use operator_e2e::objects::is_settled;
use operator_e2e::{Client, Cluster, Host, Record, Result, eventually, modules};
use serde_json::{Value, json};

const SITES: Resource<'static> = Resource::new("learn.cloudcaptain.io/v1alpha1", "staticsites");
const SITES_CRD: &str = include_str!("../../crds/staticsite/staticsites.yaml");
const LEADING: &str = "leading: the Lease is held by this process";
const PATIENCE: Duration = Duration::from_secs(180);
/// From the last renewal of the killed to the first write of its follower.
const BAR: Duration = Duration::from_secs(17);
const AT_ONCE: usize = 8;

/// A number of the environment, by which `make test-long` asks for more than fits into every run.
fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn name(number: usize) -> String {
    format!("site-{number:03}")
}

fn site(namespace: &str, name: &str, content: &str) -> Value {
    json!({
        "apiVersion": SITES.api_version, "kind": "StaticSite",
        "metadata": {"name": name, "namespace": namespace}, "spec": {"content": content},
    })
}

/// Edits one site after the other until it is told to end; gives the last content of each.
fn edit(
    client: Client,
    namespace: String,
    count: usize,
    end: Arc<AtomicBool>,
) -> tokio::task::JoinHandle<Result<BTreeMap<String, String>>> {
    tokio::spawn(async move {
        let (mut contents, mut turns) = (BTreeMap::new(), tokio::time::interval(Duration::from_millis(20)));
        for edit in 1.. {
            turns.tick().await;
            if end.load(Ordering::SeqCst) {
                break;
            }
            let (name, content) = (name(edit % count), format!("<p>{edit}</p>"));
            client.patch(&SITES, &namespace, &name, &json!({"spec": {"content": content}})).await?;
            contents.insert(name, content);
        }
        Ok(contents)
    })
}

#[tokio::test]
async fn whoever_is_killed_the_other_goes_on_and_nothing_is_lost_or_left_behind() -> Result<()> {
    let (rounds, count) = (number("OPERATOR_E2E_KILLS", 3), number("OPERATOR_E2E_OBJECTS", 60));
    let cluster = Cluster::shared().await;
    cluster.apply(SITES_CRD).await?;
    let (client, namespace) = (cluster.client(), cluster.namespace("kills").await?);
    let (records, module) = (Folder::new("records")?, modules::staticsite().await?);
    let arguments = [
        format!("--namespace={namespace}"),
        format!("--installation-id={namespace}"),
        "--leader-elect".to_owned(),
        format!("--leader-election-namespace={namespace}"),
        format!("--grant=records:dir={}", records.display()),
    ];
    let start = || {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Host::spawn(&cluster.kubeconfig(ADMIN)?, &[module], &arguments)
    };
    let mut leader = start()?;
    leader.wait_log(LEADING, SOON).await;
    let create = async |name: String| {
        client.create(&SITES, &site(&namespace, &name, "<p>0</p>")).await?;
        Ok::<_, anyhow::Error>(())
    };
    stream::iter((0..count).map(|number| create(name(number)))).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let end = Arc::new(AtomicBool::new(false));
    let edits = edit(client.clone(), namespace.clone(), count, Arc::clone(&end));

    let mut waited = Vec::new();
    for round in 0..rounds {
        let mut standby = start()?;
        standby.wait_log("standing by: the Lease is held by", SOON).await;
        standby.wait_ready().await?;
        // One comes, and the one of the round before goes, on both sides of the kill.
        create(format!("guest-{round}")).await?;
        let mark = cluster.audit().mark().await?;
        eventually("the leader has renewed its Lease and written", SOON, || async {
            let requests = cluster.audit().since(mark).await?.within(&namespace);
            let is_there = requests.iter().any(is_renewal) && requests.iter().any(is_write);
            anyhow::ensure!(is_there, "{} requests", requests.len());
            Ok(())
        })
        .await;
        leader.kill9();
        let killed = jiff::Timestamp::now();
        if round > 0 {
            client.delete(&SITES, &namespace, &format!("guest-{}", round - 1)).await?;
        }
        standby.wait_log(LEADING, Duration::from_secs(30)).await;
        let requests = || async { Ok::<_, anyhow::Error>(cluster.audit().since(mark).await?.within(&namespace)) };
        // What was on its way arrived long before the next term could begin.
        let next_term = (killed + Duration::from_secs(5)).strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let first = eventually("the follower writes", SOON, || async {
            let requests = requests().await?;
            let first = requests.iter().find(|record| is_write(record) && record.received > next_term).cloned();
            first.ok_or_else(|| anyhow::anyhow!("{} requests", requests.len()))
        })
        .await;
        let requests = requests().await?;
        let renewal = requests.iter().rfind(|record| is_renewal(record) && record.received < next_term);
        let after = first.received_after(renewal.expect("the leader renewed its Lease"))?;
        assert!(after <= BAR, "round {round}: the follower wrote {after:?} after the last renewal");
        waited.push(after);
        leader = standby;
    }
    end.store(true, Ordering::SeqCst);
    let contents = edits.await??;

    let sites: BTreeSet<String> = (0..count).map(name).chain([format!("guest-{}", rounds - 1)]).collect();
    eventually("every site is settled, and none is left that was deleted", PATIENCE, || async {
        let live = client.list(&SITES, &namespace, "").await?;
        let unsettled = live.iter().filter(|object| is_settled(object).is_err()).count();
        anyhow::ensure!(live.len() == sites.len() && unsettled == 0, "{} sites, {unsettled} are not", live.len());
        Ok(())
    })
    .await;
    for (name, content) in &contents {
        let page = client.get(&CONFIG_MAPS, &namespace, name).await?["data"]["index.html"].take();
        assert_eq!(page, **content, "the last edit of {name} is lost");
    }
    let expected: BTreeSet<String> = sites.iter().map(|name| format!("{namespace}_{name}.json")).collect();
    let files = std::fs::read_dir(&*records)?.map(|file| Ok(file?.file_name().to_string_lossy().into_owned()));
    assert_eq!(
        files.collect::<Result<BTreeSet<String>>>()?,
        expected,
        "one record a site, and none of those that went"
    );
    println!("{rounds} kills of {count} sites; the follower wrote after {waited:?}");
    Ok(())
}

fn is_renewal(record: &Record) -> bool {
    record.is_lease() && record.verb == "update" && record.code < 300 && is_hosts(record)
}

fn is_write(record: &Record) -> bool {
    record.is_write() && is_hosts(record)
}

fn is_hosts(record: &Record) -> bool {
    record.agent.starts_with("operator-host/")
}
