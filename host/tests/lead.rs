//! Several leaderships in one process, on a real API server, over lines that break: never two of them give permits at once.

use http::Method;
use operator_core::answer::{Request, Verb};
use operator_core::contract::TypeRef;
use operator_core::lead::{Loss, Timing};
use operator_e2e::client::{CONFIG_MAPS, LEASES};
use operator_e2e::cluster::ADMIN;
use operator_e2e::{Client, Cluster, Fault, Match, Proxy, eventually};
use operator_host::api::{self, ApiError, ApiServer, Write};
use operator_host::lead::{Config, Leadership, Permit, Permits, identity};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

const SOON: Duration = Duration::from_secs(30);
/// Short terms, so that there are many.
const LEASE_DURATION: Duration = Duration::from_secs(3);
const RENEW_DEADLINE: Duration = Duration::from_secs(2);
const RETRY_PERIOD: Duration = Duration::from_millis(400);

/// One that competes, over a line of its own.
struct Contender {
    api: Arc<ApiServer>,
    permits: Permits,
    leadership: Leadership,
}

impl Contender {
    async fn start(cluster: &Cluster, proxy: &Proxy, namespace: &str) -> Self {
        let permits = Permits::while_leading();
        let kubeconfig = cluster.kubeconfig_at(ADMIN, &proxy.url()).expect("a kubeconfig");
        let api = Arc::new(api::connect(Some(&kubeconfig), None, &permits).await.expect("a client"));
        let config = Config {
            namespace: namespace.to_owned(),
            name: "contested".to_owned(),
            identity: identity(),
            timing: Timing::new(LEASE_DURATION, RENEW_DEADLINE, RETRY_PERIOD).expect("sound numbers"),
            allow_older_module: false,
        };
        let leadership = Leadership::compete(config, &api, &permits, Vec::new, &Handle::current());
        Self { api, permits, leadership }
    }

    /// Writes to a ConfigMap.
    async fn write(&self, permit: &Permit, namespace: &str, name: &str, value: &str) -> Result<(), ApiError> {
        let type_ref = TypeRef::new("v1", "ConfigMap");
        let write = Write {
            method: Method::PATCH,
            path: format!("/api/v1/namespaces/{namespace}/configmaps/{name}?fieldManager=test"),
            content_type: api::MERGE_PATCH,
            body: json!({ "data": { "key": value } }).to_string(),
            about: Request {
                verb: Verb::MergePatch,
                type_ref: &type_ref,
                plural: "configmaps",
                namespace: Some(namespace),
                name: Some(name),
            },
        };
        self.api.write(permit, write).await.map(drop)
    }
}

/// Looks again and again whether two give permits at the same time.
fn watch_over(contenders: Vec<Arc<Mutex<Permits>>>, ended: &AtomicBool) {
    let leads = |contender: &Mutex<Permits>| contender.lock().expect("nobody panicked").permit().is_ok();
    while !ended.load(Ordering::SeqCst) {
        for (number, one) in contenders.iter().enumerate() {
            for other in &contenders[number + 1..] {
                // What holds before and after also held in between.
                let both = leads(one) && leads(other) && leads(one);
                assert!(!both, "two may write at once");
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Something that goes wrong on a line, for a while.
async fn trouble(proxy: &Proxy) {
    let leases = || Match::any().path("/leases");
    let while_it_lasts = Duration::from_millis(fastrand::u64(200..4000));
    let fault = match fastrand::u8(..5) {
        0 => Fault::Delay(Duration::from_millis(fastrand::u64(1..3000))),
        1 => Fault::LoseAnswer,
        2 => Fault::LoseRequest,
        3 => Fault::status(500, "InternalError", "etcdserver: request timed out"),
        _ => {
            let _gate = proxy.hold(leases());
            return tokio::time::sleep(while_it_lasts).await;
        }
    };
    let _fault = proxy.inject(leases(), fault);
    tokio::time::sleep(while_it_lasts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_two_give_permits_at_once_whatever_the_lines_do() {
    const CONTENDERS: usize = 3;
    let cluster = Cluster::shared().await;
    let namespace = cluster.namespace("contested").await.expect("a namespace");
    let (ended, terms) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut seen = Vec::new();
    let mut tasks = Vec::new();
    for _ in 0..CONTENDERS {
        let proxy = Arc::new(cluster.proxy().await.expect("a proxy"));
        let mut contender = Contender::start(cluster, &proxy, &namespace).await;
        let permits = Arc::new(Mutex::new(contender.permits.clone()));
        seen.push(Arc::clone(&permits));
        let (namespace, terms, line, over) =
            (namespace.clone(), Arc::clone(&terms), Arc::clone(&proxy), Arc::clone(&ended));
        // Whoever has lost ends, as a process does, and another takes its place.
        tasks.push(tokio::spawn(async move {
            loop {
                if contender.leadership.acquired().await.is_ok() {
                    terms.fetch_add(1, Ordering::SeqCst);
                    contender.leadership.lost().await;
                }
                contender = Contender::start(cluster, &proxy, &namespace).await;
                *permits.lock().expect("nobody panicked") = contender.permits.clone();
            }
        }));
        tasks.push(tokio::spawn(async move {
            while !over.load(Ordering::SeqCst) {
                trouble(&line).await;
                tokio::time::sleep(Duration::from_millis(fastrand::u64(..2000))).await;
            }
        }));
    }
    let (watched, over) = (seen.clone(), Arc::clone(&ended));
    let watcher = std::thread::spawn(move || watch_over(watched, &over));

    let began = Instant::now();
    let enough = || began.elapsed() > Duration::from_secs(15) && terms.load(Ordering::SeqCst) >= 3;
    eventually("there were three terms", Duration::from_secs(90), || async { enough() }).await;
    ended.store(true, Ordering::SeqCst);
    assert!(watcher.join().is_ok(), "two gave permits at once");
    eventually("somebody leads when all is well", SOON, || async {
        seen.iter().any(|permits| permits.lock().expect("nobody panicked").permit().is_ok())
    })
    .await;
    println!("{} terms", terms.load(Ordering::SeqCst));
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

async fn value(client: &Client, namespace: &str) -> String {
    let object = client.get(&CONFIG_MAPS, namespace, "shared").await.expect("it is there");
    object["data"]["key"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_write_on_its_way_is_cut_off_when_the_term_ends_and_none_follows() {
    let cluster = Cluster::shared().await;
    let (namespace, client) = (cluster.namespace("cutoff").await.expect("a namespace"), cluster.client());
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "key": "before" },
        "metadata": { "name": "shared", "namespace": namespace } });
    client.create(&CONFIG_MAPS, &object).await.expect("a create");
    let proxy = cluster.proxy().await.expect("a proxy");
    let mut contender = Contender::start(cluster, &proxy, &namespace).await;
    assert!(contender.permits.permit().is_err(), "it has not been elected");
    contender.leadership.acquired().await.expect("nobody else competes");
    let permit = contender.permits.permit().expect("it leads");
    contender.write(&permit, &namespace, "shared", "first").await.expect("a write in the term");
    let writes = proxy.seen(&Match::writes());
    assert!(writes[0].query.ends_with("timeout=1s"), "the server was given longer than the term: {}", writes[0].query);

    let gate = proxy.hold(Match::any());
    let error = contender.write(&permit, &namespace, "shared", "second").await.expect_err("it was held back");
    assert!(matches!(error, ApiError::Transport { unsent: false, .. }), "{error}");
    assert!(permit.left().is_zero(), "cut off though the term goes on");
    assert!(matches!(contender.leadership.lost().await, Loss::NotRenewed { .. }));
    let error = contender.write(&permit, &namespace, "shared", "third").await.expect_err("the term is over");
    assert!(matches!(error, ApiError::NotLeading(_)), "{error}");
    gate.open();

    // Whoever comes next finds what the first write left.
    let mut next = Contender::start(cluster, &proxy, &namespace).await;
    next.leadership.acquired().await.expect("nobody else competes");
    assert_eq!(value(&client, &namespace).await, "first");
    let permit = next.permits.permit().expect("it leads");
    next.write(&permit, &namespace, "shared", "fourth").await.expect("a write in the next term");
    assert_eq!(value(&client, &namespace).await, "fourth");

    let permits = next.permits.clone();
    next.leadership.release().await;
    assert!(permits.permit().is_err(), "it gave the Lease back");
    let lease = client.get(&LEASES, &namespace, "contested").await.expect("it is there");
    assert_eq!(lease["spec"]["holderIdentity"], "", "{lease}");
    assert_eq!(lease["spec"]["leaseTransitions"], 1, "{lease}");
}
