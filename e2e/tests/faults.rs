//! The line to the API server breaks, the server goes away or forgets: nothing is lost, nothing is done twice, and nobody is
//! stormed.

use std::path::Path;
use std::time::{Duration, Instant};

use operator_e2e::client::{DEPLOYMENTS, SERVICES};
use operator_e2e::cluster::ADMIN;
use operator_e2e::expect::{gone, reconciled, runs};
use operator_e2e::objects::{WEB_APP_CRD, WEB_APPS, web_app_of};
use operator_e2e::proxy::Seen;
use operator_e2e::{Client, Cluster, Fault, Host, Match, Proxy, Result, eventually, modules};
use serde_json::json;

const SOON: Duration = Duration::from_secs(60);
const HOST: &str = "operator-host/";

async fn webapp_host(kubeconfig: &Path, namespace: &str) -> Result<Host> {
    let module = modules::webapp().await?;
    let mut host = Host::spawn(kubeconfig, &[module], &["--namespace", namespace])?;
    host.wait_ready().await?;
    Ok(host)
}

/// A namespace with that many WebApps at image `web:1`, settled, and the host behind a proxy.
struct Scene<'a> {
    cluster: &'a Cluster,
    client: Client,
    proxy: Proxy,
    namespace: String,
    host: Host,
}

impl<'a> Scene<'a> {
    async fn set(cluster: &'a Cluster, prefix: &str, web_apps: usize) -> Result<Self> {
        cluster.apply(WEB_APP_CRD).await?;
        let namespace = cluster.namespace(prefix).await?;
        let client = cluster.client();
        for number in 0..web_apps {
            client.create(&WEB_APPS, &web_app_of(&namespace, &name(number), "web:1")).await?;
        }
        let proxy = cluster.proxy().await?;
        let host = webapp_host(&cluster.kubeconfig_at(ADMIN, &proxy.url())?, &namespace).await?;
        let scene = Self { cluster, client, proxy, namespace, host };
        for number in 0..web_apps {
            scene.settled(number).await;
        }
        Ok(scene)
    }

    async fn settled(&self, number: usize) {
        reconciled(&self.client, &WEB_APPS, &self.namespace, &name(number), "Settled", SOON).await;
    }

    async fn edit(&self, number: usize, image: &str) -> Result<()> {
        let patch = json!({"spec": {"image": image}});
        self.client.patch(&WEB_APPS, &self.namespace, &name(number), &patch).await?;
        Ok(())
    }

    async fn has_image(&self, number: usize, wanted: &str) {
        runs(&self.client, &self.namespace, &name(number), wanted, SOON).await;
    }
}

fn name(number: usize) -> String {
    format!("shop-{number}")
}

/// Whole lists, streamed ones too; those of a single name are looks at the server's version.
fn lists() -> Match {
    Match::any().and(|seen| {
        let collection =
            seen.path.ends_with("/webapps") || seen.path.ends_with("/deployments") || seen.path.ends_with("/services");
        collection
            && !seen.is_write()
            && !seen.query.contains("metadata.name")
            && (!seen.is_watch() || seen.query.contains("sendInitialEvents"))
    })
}

fn described(seen: &[Seen]) -> Vec<String> {
    seen.iter().map(|seen| format!("{} {}?{}", seen.method, seen.path, seen.query)).collect()
}

#[tokio::test]
async fn watches_that_break_or_end_go_on_where_they_were() -> Result<()> {
    let scene = Scene::set(Cluster::shared().await, "cut", 5).await?;
    scene.proxy.forget();
    for (round, image) in ["web:2", "web:3"].into_iter().enumerate() {
        for number in 0..5 {
            scene.edit(number, image).await?;
            match round {
                0 => scene.proxy.cut_watches(),
                _ => scene.proxy.end_watches(),
            }
        }
        // A child that goes while nobody watches is noticed as well.
        scene.client.delete(&SERVICES, &scene.namespace, &name(0)).await?;
        for number in 0..5 {
            scene.has_image(number, image).await;
            scene.settled(number).await;
        }
        eventually("the Service is back", SOON, || scene.client.get(&SERVICES, &scene.namespace, "shop-0")).await;
    }
    let listed = scene.proxy.seen(&lists());
    assert!(listed.is_empty(), "the types were listed anew: {:?}", described(&listed));
    Ok(())
}

#[tokio::test]
async fn a_server_that_restarts_and_forgets_is_caught_up_with() -> Result<()> {
    let mut cluster = Cluster::bare().await?;
    let mark;
    {
        let scene = Scene::set(&cluster, "forgets", 5).await?;
        let Scene { client, proxy, namespace, mut host, .. } = scene;
        mark = cluster.audit().mark().await?;
        // Unseen by the host: edits, a child that goes, an object that goes and one that comes; then their versions expire.
        proxy.refuse().await;
        for number in 0..3 {
            client.patch(&WEB_APPS, &namespace, &name(number), &json!({"spec": {"image": "web:2"}})).await?;
        }
        client.delete(&SERVICES, &namespace, "shop-3").await?;
        client.delete(&WEB_APPS, &namespace, "shop-4").await?;
        client.create(&WEB_APPS, &web_app_of(&namespace, "shop-5", "web:2")).await?;
        cluster.expire_versions().await?;
        proxy.forget();
        proxy.accept().await?;
        for number in [0, 1, 2, 5] {
            runs(&client, &namespace, &name(number), "web:2", SOON).await;
        }
        eventually("the Service is back", SOON, || client.get(&SERVICES, &namespace, "shop-3")).await;
        let listed = proxy.seen(&lists());
        assert!(listed.len() <= 6, "more than two lists a type: {:?}", described(&listed));

        // Restarts in the middle of edits.
        proxy.forget();
        for round in 3..6 {
            let image = format!("web:{round}");
            for number in [0, 1, 2, 3, 5] {
                let patch = json!({"spec": {"image": image}});
                client.patch(&WEB_APPS, &namespace, &name(number), &patch).await?;
            }
            cluster.restart_apiserver().await?;
        }
        for number in [0, 1, 2, 3, 5] {
            runs(&client, &namespace, &name(number), "web:5", SOON).await;
            reconciled(&client, &WEB_APPS, &namespace, &name(number), "Settled", SOON).await;
        }
        let listed = proxy.seen(&lists());
        assert!(listed.len() <= 9, "more than a list a type and restart: {:?}", described(&listed));
        assert!(host.sigterm().await?.success());
    }
    let requests = cluster.audit().since(mark).await?.by_agent(HOST);
    let gone = requests.writes().matching(|record| record.name == "shop-4");
    assert!(gone.is_empty(), "something was done for an object that was gone: {gone}");
    Ok(())
}

#[tokio::test]
async fn a_settled_host_notices_edits_at_once_after_an_outage() -> Result<()> {
    let scene = Scene::set(Cluster::shared().await, "quiet", 3).await?;
    scene.proxy.refuse().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    scene.edit(0, "web:2").await?;
    scene.proxy.accept().await?;
    let back = Instant::now();
    scene.has_image(0, "web:2").await;
    scene.settled(0).await;
    let took = back.elapsed();
    assert!(took < Duration::from_secs(30), "it took {took:?}");
    println!("noticed {took:?} after the server was back");
    Ok(())
}

#[tokio::test]
async fn a_lost_answer_leads_to_one_look_and_no_second_write() -> Result<()> {
    let scene = Scene::set(Cluster::shared().await, "lost", 0).await?;
    let audit = scene.cluster.audit();
    let mark = audit.mark().await?;
    let lost = scene.proxy.inject_times(1, Match::writes().path("/deployments/"), Fault::LoseAnswer);
    scene.client.create(&WEB_APPS, &web_app_of(&scene.namespace, "shop-0", "web:1")).await?;
    scene.settled(0).await;
    assert_eq!(lost.hits(), 1);
    let requests = audit.since(mark).await?.by_agent(HOST).within(&scene.namespace);
    assert_eq!(requests.of("deployments.apps").writes().len(), 1, "{requests}");
    assert_eq!(requests.of("services").writes().len(), 1, "{requests}");
    assert!(requests.verb("get").len() <= 1, "{requests}");

    // The same with a change, and with the status.
    drop(lost);
    let mark = audit.mark().await?;
    let lost = scene.proxy.inject_times(1, Match::writes().path("/deployments/"), Fault::LoseAnswer);
    scene.edit(0, "web:2").await?;
    scene.has_image(0, "web:2").await;
    scene.settled(0).await;
    assert_eq!(lost.hits(), 1);
    let requests = audit.since(mark).await?.by_agent(HOST).within(&scene.namespace);
    assert_eq!(requests.of("deployments.apps").writes().len(), 1, "{requests}");
    assert!(requests.verb("get").len() <= 1, "{requests}");

    drop(lost);
    let mark = audit.mark().await?;
    let lost = scene.proxy.inject_times(1, Match::writes().path("/status"), Fault::LoseAnswer);
    scene.client.create(&WEB_APPS, &web_app_of(&scene.namespace, "shop-1", "web:1")).await?;
    scene.settled(1).await;
    scene.edit(1, "web:2").await?;
    scene.settled(1).await;
    assert_eq!(lost.hits(), 1);
    let requests = audit.since(mark).await?.by_agent(HOST).within(&scene.namespace);
    let status = requests.matching(|record| record.subresource == "status");
    assert!(status.len() <= 3, "{status}");
    Ok(())
}

#[tokio::test]
async fn a_request_that_never_arrived_is_sent_again() -> Result<()> {
    let scene = Scene::set(Cluster::shared().await, "never", 0).await?;
    let lost = scene.proxy.inject_times(2, Match::writes(), Fault::LoseRequest);
    scene.client.create(&WEB_APPS, &web_app_of(&scene.namespace, "shop-0", "web:1")).await?;
    scene.settled(0).await;
    assert_eq!(lost.hits(), 2);
    scene.client.get(&SERVICES, &scene.namespace, "shop-0").await?;
    scene.has_image(0, "web:1").await;
    Ok(())
}

#[tokio::test]
async fn a_busy_server_is_given_the_time_that_it_asks_for() -> Result<()> {
    let scene = Scene::set(Cluster::shared().await, "busy", 0).await?;
    let busy = scene.proxy.inject_times(1, Match::writes(), Fault::too_many_requests(3));
    for number in 0..10 {
        scene.client.create(&WEB_APPS, &web_app_of(&scene.namespace, &name(number), "web:1")).await?;
    }
    for number in 0..10 {
        scene.settled(number).await;
    }
    assert_eq!(busy.hits(), 1);
    let writes = scene.proxy.seen(&Match::writes());
    let refused = writes.first().map(|write| write.at).expect("there were writes");
    // Passes that ran when the refusal came may end; none begins.
    let quiet = Duration::from_millis(1500)..Duration::from_millis(2900);
    let meanwhile: Vec<Seen> = writes.into_iter().filter(|write| quiet.contains(&(write.at - refused))).collect();
    assert!(meanwhile.is_empty(), "written while the server asked for patience: {:?}", described(&meanwhile));
    Ok(())
}

#[tokio::test]
async fn an_object_that_is_being_deleted_is_left_alone() -> Result<()> {
    let scene = Scene::set(Cluster::shared().await, "leaving", 1).await?;
    let Scene { client, namespace, .. } = &scene;
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    client.patch(&WEB_APPS, namespace, "shop-0", &hold).await?;
    client.delete(&WEB_APPS, namespace, "shop-0").await?;
    let audit = scene.cluster.audit();
    let mark = audit.mark().await?;
    let before = client.get(&WEB_APPS, namespace, "shop-0").await?;
    client.delete(&SERVICES, namespace, "shop-0").await?;
    client.patch(&DEPLOYMENTS, namespace, "shop-0", &json!({"spec": {"replicas": 7}})).await?;
    client.patch(&WEB_APPS, namespace, "shop-0", &json!({"spec": {"image": "web:9"}})).await?;
    // Another object shows that the host has seen all of it.
    client.create(&WEB_APPS, &web_app_of(namespace, "shop-1", "web:1")).await?;
    scene.settled(1).await;
    let after = client.get(&WEB_APPS, namespace, "shop-0").await?;
    assert_eq!(after["status"], before["status"]);
    let requests = audit.since(mark).await?.by_agent(HOST).within(namespace).beyond_watches();
    let about = requests.matching(|record| record.name == "shop-0");
    assert!(about.is_empty(), "{about}");

    client.patch(&WEB_APPS, namespace, "shop-0", &json!({"metadata": {"finalizers": null}})).await?;
    gone(client, &WEB_APPS, namespace, "shop-0", SOON).await;
    Ok(())
}
