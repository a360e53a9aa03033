//! Two hosts, one Lease: one writes, the other takes over when the first ends, in whatever way, and nothing is lost or written twice.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use operator_e2e::client::{DEPLOYMENTS, LEASES};
use operator_e2e::cluster::ADMIN;
use operator_e2e::expect::{reconciled, runs};
use operator_e2e::folder::Folder;
use operator_e2e::objects::{PROBES, WEB_APPS, config_map, is_settled, probe, wanting, web_app_of};
use operator_e2e::process::Signal;
use operator_e2e::{Client, Cluster, Host, Mark, Match, Requests, Result, eventually, modules};
use serde_json::json;
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;

const SOON: Duration = Duration::from_secs(60);
/// One user a host, so that the audit log tells them apart.
const FIRST: &str = "user-0";
const SECOND: &str = "user-1";
/// May do everything but with Leases.
const WITHOUT_LEASES: &str = "user-2";
/// May do everything but watch Leases.
const WITHOUT_WATCH: &str = "user-3";
const LEADING: &str = "leading: the Lease is held by this process";

/// A namespace with its own Lease, for hosts of different users.
struct Stage {
    cluster: &'static Cluster,
    client: Client,
    namespace: String,
}

impl Stage {
    async fn open(name: &str) -> Result<Self> {
        static PREPARED: OnceCell<()> = OnceCell::const_new();
        let cluster = Cluster::shared().await;
        PREPARED.get_or_try_init(|| prepare(cluster)).await?;
        Ok(Self { cluster, client: cluster.client(), namespace: cluster.namespace(name).await? })
    }

    /// A host of this user that takes part in the election.
    async fn host(&self, user: &str) -> Result<Host> {
        self.host_at(&self.cluster.kubeconfig(user)?).await
    }

    async fn host_at(&self, kubeconfig: &Path) -> Result<Host> {
        self.host_with(kubeconfig, modules::webapp().await?, &[])
    }

    /// A host with the module `probe`, which may do everything.
    fn probe_host(&self, module: &Path, more: &[&str]) -> Result<Host> {
        self.host_with(&self.cluster.kubeconfig(ADMIN)?, module, more)
    }

    fn host_with(&self, kubeconfig: &Path, module: &Path, more: &[&str]) -> Result<Host> {
        let namespace = &self.namespace;
        let own = [
            format!("--namespace={namespace}"),
            format!("--installation-id={namespace}"),
            "--leader-elect".to_owned(),
            format!("--leader-election-namespace={namespace}"),
        ];
        let arguments: Vec<&str> = own.iter().map(String::as_str).chain(more.iter().copied()).collect();
        Host::spawn(kubeconfig, &[module], &arguments)
    }

    /// The first leads, the second stands by, ready to take over.
    async fn pair(&self) -> Result<(Host, Host)> {
        let first = self.host(FIRST).await?;
        first.wait_log(LEADING, SOON).await;
        let mut second = self.host(SECOND).await?;
        second.wait_log("standing by: the Lease is held by", SOON).await;
        second.wait_ready().await?;
        Ok((first, second))
    }

    /// Writes the annotation that pauses modules into the Lease, or takes it out.
    async fn pause(&self, modules: Option<&str>) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {"operatorhost.dev/paused": modules}}});
        self.client.patch(&LEASES, &self.namespace, &self.lease(), &patch).await?;
        Ok(())
    }

    fn lease(&self) -> String {
        format!("operator-host-{}", self.namespace)
    }

    async fn web_apps(&self, count: usize) -> Result<()> {
        let creates = (0..count).map(|number| async move {
            self.client.create(&WEB_APPS, &web_app_of(&self.namespace, &name(number), "web:0")).await.map(drop)
        });
        stream::iter(creates).buffer_unordered(16).try_collect::<()>().await?;
        Ok(())
    }

    async fn all_settled(&self) {
        eventually("every WebApp is settled", SOON, || async {
            let left = self.client.list(&WEB_APPS, &self.namespace, "").await?;
            let left = left.iter().filter(|object| is_settled(object).is_err()).count();
            anyhow::ensure!(left == 0, "{left} are not");
            Ok(())
        })
        .await;
    }

    /// Edits one WebApp after the other until it is told to end.
    fn edits(&self, count: usize) -> Edits {
        let (client, namespace) = (self.cluster.client(), self.namespace.clone());
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let task = tokio::spawn(async move {
            let mut images = BTreeMap::new();
            let mut turns = tokio::time::interval(Duration::from_millis(20));
            for edit in 1.. {
                turns.tick().await;
                if end.load(Ordering::SeqCst) {
                    break;
                }
                let (name, image) = (name(edit % count), format!("web:{edit}"));
                client.patch(&WEB_APPS, &namespace, &name, &json!({"spec": {"image": image}})).await?;
                images.insert(name, image);
            }
            Ok(images)
        });
        Edits { task, ended }
    }

    /// Every edit has come through.
    async fn has(&self, images: &BTreeMap<String, String>) {
        for (name, image) in images {
            runs(&self.client, &self.namespace, name, image, SOON).await;
        }
        self.all_settled().await;
    }

    /// Waits until something was written and the Lease renewed so many times since then.
    async fn written_and_renewed(&self, times: usize, mark: Mark) {
        eventually(&format!("something was written, and the Lease renewed {times} times"), SOON, || async {
            let requests = self.since(mark).await?;
            anyhow::ensure!(renewals(&requests).len() >= times && !requests.writes().is_empty(), "{requests}");
            Ok(())
        })
        .await;
    }

    async fn mark(&self) -> Result<Mark> {
        self.cluster.audit().mark().await
    }

    /// What hosts asked for in the namespace since then.
    async fn since(&self, mark: Mark) -> Result<Requests> {
        Ok(self.cluster.audit().since(mark).await?.by_agent("operator-host/").within(&self.namespace))
    }
}

fn name(number: usize) -> String {
    format!("shop-{number:03}")
}

struct Edits {
    task: JoinHandle<Result<BTreeMap<String, String>>>,
    ended: Arc<AtomicBool>,
}

impl Edits {
    /// Ends them and gives the last image of each object that was edited.
    async fn end(self) -> Result<BTreeMap<String, String>> {
        self.ended.store(true, Ordering::SeqCst);
        self.task.await?
    }
}

async fn prepare(cluster: &Cluster) -> Result<()> {
    cluster.install_definitions().await?;
    let client = cluster.client();
    for user in [FIRST, SECOND, WITHOUT_LEASES, WITHOUT_WATCH] {
        client.grant(user, "webapp.example.com", &["webapps"], &["list", "watch"]).await?;
        client.grant(user, "webapp.example.com", &["webapps/status"], &["patch"]).await?;
        client.grant(user, "webapp.example.com", &["webapps/finalizers"], &["update"]).await?;
        client.grant(user, "apps", &["deployments"], &["get", "list", "watch", "create", "patch"]).await?;
        client.grant(user, "", &["services"], &["get", "list", "watch", "create", "patch"]).await?;
    }
    for user in [FIRST, SECOND] {
        client.grant(user, "coordination.k8s.io", &["leases"], &["get", "create", "update", "watch"]).await?;
    }
    client.grant(WITHOUT_WATCH, "coordination.k8s.io", &["leases"], &["get", "create", "update"]).await?;
    Ok(())
}

/// The writes of the Lease that succeeded, oldest first.
fn renewals(requests: &Requests) -> Requests {
    requests.matching(|record| record.is_lease() && ["create", "update"].contains(&&*record.verb) && record.code < 300)
}

#[tokio::test]
async fn a_leader_that_is_killed_is_followed_within_17_seconds_without_a_list_and_nothing_is_lost() -> Result<()> {
    const OBJECTS: usize = 200;
    let stage = Stage::open("killed").await?;
    stage.web_apps(OBJECTS).await?;
    let (mut first, second) = stage.pair().await?;
    stage.all_settled().await;
    let mark = stage.mark().await?;
    let edits = stage.edits(OBJECTS);
    stage.written_and_renewed(1, mark).await;
    first.kill9();

    second.wait_log(LEADING, Duration::from_secs(30)).await;
    let images = edits.end().await?;
    stage.has(&images).await;
    assert!(images.len() > OBJECTS / 2, "only {} objects were edited", images.len());

    let requests = stage.since(mark).await?;
    let (of_first, of_second) = (requests.by_user(FIRST), requests.by_user(SECOND));
    let renewals = renewals(&of_first);
    let last_renewal = renewals.iter().last().expect("the first renewed its Lease");
    let writes = of_second.writes();
    let first_write = writes.iter().next().expect("the second wrote");
    let after = first_write.received_after(last_renewal)?;
    assert!(after <= Duration::from_secs(17), "the second wrote {after:?} after the last renewal");
    assert!(
        after >= Duration::from_secs(10),
        "the second wrote {after:?} after a renewal, within the term of the first"
    );
    let lists = of_second.matching(|record| record.verb == "list" || record.uri.contains("sendInitialEvents"));
    assert!(lists.is_empty(), "its caches were not warm:\n{lists}");
    println!("the second wrote {after:?} after the last renewal");
    Ok(())
}

#[tokio::test]
async fn a_standby_is_ready_sends_nothing_and_says_who_leads() -> Result<()> {
    let stage = Stage::open("standby").await?;
    stage.web_apps(5).await?;
    let (first, second) = stage.pair().await?;
    stage.all_settled().await;
    let lease = stage.client.get(&LEASES, &stage.namespace, &stage.lease()).await?;
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
    assert!(first.log_contains(&holder), "{lease}");
    assert!(second.log_contains(&format!("is held by {holder}")), "{}", second.log());
    let told = second.health("/readyz?verbose").await?;
    assert!(told.contains(&format!("leader-election ok: the Lease is held by {holder}")), "{told}");
    let modules = lease["metadata"]["annotations"]["operatorhost.dev/modules"].as_str().unwrap_or_default();
    assert!(modules.contains(r#""name":"webapp","version":"0.1.0","digest":"sha256:"#), "{modules}");

    let mark = stage.mark().await?;
    let edits = stage.edits(5);
    stage.written_and_renewed(3, mark).await;
    stage.has(&edits.end().await?).await;
    let requests = stage.since(mark).await?.by_user(SECOND);
    let requests = requests.matching(|record| !record.is_watch());
    assert!(requests.is_empty(), "a standby that hears of each renewal has nothing to ask for:\n{requests}");
    Ok(())
}

#[tokio::test]
async fn a_leader_that_ends_hands_over_at_once() -> Result<()> {
    let stage = Stage::open("handover").await?;
    stage.web_apps(20).await?;
    let (mut first, second) = stage.pair().await?;
    let mark = stage.mark().await?;
    let edits = stage.edits(20);
    stage.written_and_renewed(1, mark).await;
    assert!(first.sigterm().await?.success(), "{}", first.log());
    second.wait_log(LEADING, SOON).await;
    stage.has(&edits.end().await?).await;

    let requests = stage.since(mark).await?;
    let of_first = requests.by_user(FIRST);
    let release = renewals(&of_first);
    let release = release.iter().last().expect("the first released its Lease");
    let late = of_first.writes().matching(|record| record.answered > release.received);
    assert!(late.is_empty(), "work went on after the release:\n{late}");
    let writes = requests.by_user(SECOND).writes();
    let first_write = writes.iter().next().expect("the second wrote");
    assert!(first_write.received > release.received, "{first_write}\n{release}");
    let after = first_write.received_after(release)?;
    assert!(after < Duration::from_secs(3), "the second wrote {after:?} after the release");
    Ok(())
}

#[tokio::test]
async fn a_leader_that_was_stopped_beyond_its_term_writes_nothing_more_and_ends() -> Result<()> {
    let stage = Stage::open("stopped").await?;
    stage.web_apps(50).await?;
    let (mut first, second) = stage.pair().await?;
    let mark = stage.mark().await?;
    let edits = stage.edits(50);
    stage.written_and_renewed(1, mark).await;
    first.signal(Signal::STOP);
    second.wait_log(LEADING, Duration::from_secs(30)).await;
    first.signal(Signal::CONT);
    let status = first.wait_exit(SOON).await?;
    assert_eq!(status.code(), Some(1), "{}", first.log());
    assert!(first.log_contains("lost the Lease: it could not be renewed within 10 s"), "{}", first.log());
    stage.has(&edits.end().await?).await;

    let requests = stage.since(mark).await?;
    let takeover = renewals(&requests.by_user(SECOND));
    let takeover = takeover.iter().next().expect("the second took the Lease");
    let late = requests.by_user(FIRST).writes().matching(|record| record.received > takeover.received);
    assert!(late.is_empty(), "written without the Lease:\n{late}");
    Ok(())
}

#[tokio::test]
async fn a_leader_that_is_cut_off_ends_before_another_takes_over() -> Result<()> {
    let stage = Stage::open("cutoff").await?;
    stage.web_apps(20).await?;
    let proxy = stage.cluster.proxy().await?;
    let mut first = stage.host_at(&stage.cluster.kubeconfig_at(FIRST, &proxy.url())?).await?;
    first.wait_log(LEADING, SOON).await;
    let second = stage.host(SECOND).await?;
    second.wait_log("standing by", SOON).await;
    stage.all_settled().await;
    let mark = stage.mark().await?;
    let edits = stage.edits(20);
    // Nothing comes through any more, and nobody says so.
    let cut = proxy.hold(Match::any());
    cut.wait_for(5, SOON).await;
    second.wait_log(LEADING, Duration::from_secs(30)).await;
    let status = first.exited().expect("the first still runs though the second leads");
    assert_eq!(status.code(), Some(1), "{}", first.log());
    assert!(first.log_contains("lost the Lease"), "{}", first.log());
    let unanswered = first.log_contains("unanswered=") && !first.log_contains("unanswered=0");
    assert!(unanswered, "it does not say that writes were on their way: {}", first.log());
    drop(cut);
    stage.has(&edits.end().await?).await;

    let requests = stage.since(mark).await?;
    let takeover = renewals(&requests.by_user(SECOND));
    let takeover = takeover.iter().next().expect("the second took the Lease");
    let late = requests.by_user(FIRST).writes().matching(|record| record.received > takeover.received);
    assert!(late.is_empty(), "written without the Lease:\n{late}");
    Ok(())
}

#[tokio::test]
async fn a_lease_that_somebody_else_takes_ends_the_process_with_a_word() -> Result<()> {
    let stage = Stage::open("taken").await?;
    let mut host = stage.host(FIRST).await?;
    host.wait_log(LEADING, SOON).await;
    let other = json!({"spec": {"holderIdentity": "somebody-else"}});
    stage.client.patch(&LEASES, &stage.namespace, &stage.lease(), &other).await?;
    let status = host.wait_exit(Duration::from_secs(10)).await?;
    assert_eq!(status.code(), Some(1), "{}", host.log());
    assert!(host.log_contains("lost the Lease: somebody-else holds it now"), "{}", host.log());
    assert!(host.log_contains(&format!("{}/{}", stage.namespace, stage.lease())), "{}", host.log());
    Ok(())
}

#[tokio::test]
async fn a_host_that_may_not_use_leases_says_so_and_leads_when_it_may() -> Result<()> {
    let stage = Stage::open("forbidden").await?;
    stage.web_apps(1).await?;
    let mut host = stage.host(WITHOUT_LEASES).await?;
    host.wait_log("grant get, create, update, list and watch on leases", SOON).await;
    host.wait_log("WARN", SOON).await;
    host.wait_ready().await?;
    let told = host.health("/readyz?verbose").await?;
    assert!(
        told.contains("leader-election ok: the Lease can't be read or taken: leases.coordination.k8s.io"),
        "{told}"
    );
    assert_eq!(stage.since(Mark::START).await?.by_user(WITHOUT_LEASES).writes().len(), 0);

    let verbs = ["get", "create", "update", "list", "watch"];
    stage.client.grant(WITHOUT_LEASES, "coordination.k8s.io", &["leases"], &verbs).await?;
    host.wait_log(LEADING, SOON).await;
    reconciled(&stage.client, &WEB_APPS, &stage.namespace, &name(0), "Settled", SOON).await;
    assert!(host.sigterm().await?.success());
    let lease = stage.client.get(&LEASES, &stage.namespace, &stage.lease()).await?;
    assert_eq!(lease["spec"]["holderIdentity"], "", "{lease}");
    Ok(())
}

#[tokio::test]
async fn a_standby_that_may_not_watch_the_lease_asks_for_it() -> Result<()> {
    let stage = Stage::open("unwatched").await?;
    let mut first = stage.host(FIRST).await?;
    first.wait_log(LEADING, SOON).await;
    let second = stage.host(WITHOUT_WATCH).await?;
    second.wait_log("standing by: the Lease is held by", SOON).await;
    assert!(first.sigterm().await?.success(), "{}", first.log());
    second.wait_log(LEADING, Duration::from_secs(12)).await;
    Ok(())
}

#[tokio::test]
async fn a_lease_lost_during_a_call_ends_the_process_without_waiting_for_it() -> Result<()> {
    let stage = Stage::open("calling").await?;
    let long = ["--timeout=120s", "--cpu-timeout=120s", "-v"];
    let mut host = stage.probe_host(&modules::fixture("probe").await?, &long)?;
    host.wait_log(LEADING, SOON).await;
    host.wait_ready().await?;
    let before = host.cpu()?;
    stage.client.create(&PROBES, &probe(&stage.namespace, "slow", json!({"behaviour": "loop"}))).await?;
    eventually("the call runs", SOON, || async {
        let used = host.cpu()?.saturating_sub(before);
        anyhow::ensure!(used > Duration::from_millis(500), "{used:?} of CPU time");
        Ok(())
    })
    .await;
    let mark = stage.mark().await?;
    let other = json!({"spec": {"holderIdentity": "somebody-else"}});
    stage.client.patch(&LEASES, &stage.namespace, &stage.lease(), &other).await?;
    let status = host.wait_exit(Duration::from_secs(10)).await?;
    assert_eq!(status.code(), Some(1), "{}", host.log());
    let writes = stage.since(mark).await?.writes();
    assert!(writes.is_empty(), "{writes}");
    Ok(())
}

#[tokio::test]
async fn an_older_module_holds_back_after_a_newer_one_unless_it_is_allowed() -> Result<()> {
    let stage = Stage::open("older").await?;
    let folder = Folder::new("modules")?;
    let build = async |version: &str| -> Result<PathBuf> {
        let module = modules::probe_with(&json!({"plan": "probe", "version": version})).await?;
        folder.write(&format!("{version}.wasm"), module)
    };
    let (old, new) = (build("1.9.0").await?, build("1.10.0").await?);
    let mut newer = stage.probe_host(&new, &[])?;
    newer.wait_log(LEADING, SOON).await;
    let mut older = stage.probe_host(&old, &["-v"])?;
    older.wait_log("standing by", SOON).await;
    older.wait_ready().await?;
    let wanting = |value: &str| wanting(&[config_map("child", value)]);
    stage.client.create(&PROBES, &probe(&stage.namespace, "one", wanting("a"))).await?;
    reconciled(&stage.client, &PROBES, &stage.namespace, "one", "Settled", SOON).await;
    assert!(newer.sigterm().await?.success(), "{}", newer.log());

    let why = "module probe is 1.9.0 here and 1.10.0 there";
    older.wait_log(why, SOON).await;
    assert!(older.log_contains("--allow-older-module"), "{}", older.log());
    older.wait_ready().await?;
    let told = older.health("/readyz?verbose").await?;
    assert!(told.contains(why), "{told}");

    let patch = json!({"spec": wanting("b")});
    stage.client.patch(&PROBES, &stage.namespace, "one", &patch).await?;
    let allowed = stage.probe_host(&old, &["--allow-older-module"])?;
    allowed.wait_log(LEADING, SOON).await;
    reconciled(&stage.client, &PROBES, &stage.namespace, "one", "Settled", SOON).await;
    assert_eq!(older.exited(), None, "{}", older.log());
    assert!(older.passes().is_empty() && !older.log_contains(LEADING), "it did not hold back: {}", older.log());
    Ok(())
}

#[tokio::test]
async fn a_module_that_the_lease_pauses_does_nothing_whoever_leads_until_it_goes_on() -> Result<()> {
    let stage = Stage::open("paused").await?;
    let (mut first, second) = stage.pair().await?;
    stage.web_apps(3).await?;
    stage.all_settled().await;
    stage.pause(Some("another, webapp")).await?;
    for number in 0..3 {
        let condition = reconciled(&stage.client, &WEB_APPS, &stage.namespace, &name(number), "Paused", SOON).await;
        let message = condition["message"].as_str().unwrap_or_default();
        assert!(message.contains("module webapp is suspended") && message.contains("of the Lease"), "{message}");
    }
    let edit = json!({"spec": {"image": "web:1"}});
    stage.client.patch(&WEB_APPS, &stage.namespace, &name(0), &edit).await?;
    reconciled(&stage.client, &WEB_APPS, &stage.namespace, &name(0), "Paused", SOON).await;
    assert!(first.health("/readyz?verbose").await?.contains("paused by the Lease"));
    first.sigterm().await?;
    second.wait_log(LEADING, SOON).await;
    second.wait_log("paused: nothing is done for its objects", SOON).await;
    let live = stage.client.get(&DEPLOYMENTS, &stage.namespace, &name(0)).await?;
    assert_eq!(live["spec"]["template"]["spec"]["containers"][0]["image"], "web:0");
    stage.pause(None).await?;
    runs(&stage.client, &stage.namespace, &name(0), "web:1", SOON).await;
    stage.all_settled().await;
    Ok(())
}

#[tokio::test]
async fn hosts_of_other_modules_and_leases_work_side_by_side_and_one_that_dies_takes_none_along() -> Result<()> {
    let stage = Stage::open("side-by-side").await?;
    let other = ["--leader-election-id=probes"];
    let web = stage.host(FIRST).await?;
    let mut probes = stage.probe_host(&modules::fixture("probe").await?, &other)?;
    for host in [&web, &probes] {
        host.wait_log(LEADING, SOON).await;
    }
    let want = |name: &str, value: &str| probe(&stage.namespace, name, wanting(&[config_map(name, value)]));
    stage.web_apps(3).await?;
    stage.client.create(&PROBES, &want("before", "1")).await?;
    reconciled(&stage.client, &PROBES, &stage.namespace, "before", "Settled", SOON).await;
    stage.all_settled().await;
    probes.kill9();
    let images = {
        let mark = stage.mark().await?;
        let edits = stage.edits(3);
        stage.written_and_renewed(1, mark).await;
        edits.end().await?
    };
    stage.has(&images).await;
    assert!(!web.log_contains("lost the Lease"), "{}", web.log());
    stage.client.create(&PROBES, &want("after", "1")).await?;
    let again = stage.probe_host(&modules::fixture("probe").await?, &other)?;
    again.wait_log(LEADING, SOON).await;
    reconciled(&stage.client, &PROBES, &stage.namespace, "after", "Settled", SOON).await;
    Ok(())
}
