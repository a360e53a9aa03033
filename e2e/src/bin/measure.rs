//! What the host costs: N WebApps from nothing on a bare API server, a restart, and the latency of single edits. Measures, asserts nothing.
//!
//! `measure [N]`, 3,000 by default. CPU and memory are the host's own, from /proc; requests are counted by the API server's audit log.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use operator_e2e::client::DEPLOYMENTS;
use operator_e2e::cluster::ADMIN;
use operator_e2e::{Client, Cluster, Host, Resource, eventually, host, modules};
use serde_json::json;

const WEBAPPS: Resource<'static> = Resource::new("webapp.example.com/v1", "webapps");
const NAMESPACE: &str = "measure";
const PATIENCE: Duration = Duration::from_secs(900);
const EDITS: usize = 200;
/// Creates at the same time.
const CREATORS: usize = 8;

#[tokio::main]
async fn main() -> operator_e2e::Result<()> {
    let objects = match std::env::args().nth(1) {
        Some(number) => number.parse().context("usage: measure [NUMBER OF OBJECTS]")?,
        None => 3000,
    };
    let module = modules::build("webapp").await?;
    let cluster = Cluster::bare().await?;
    let client = cluster.client();
    let module_text = module.to_str().context("the module's path is no UTF-8")?;
    cluster.apply(&host::operator(&["crd", "--module", module_text], None).await?.ok()?).await?;
    cluster
        .apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}).to_string())
        .await?;
    println!("program: {}", host::operator_bin()?.display());

    let mark = cluster.audit().mark().await?;
    let mut running = start(&cluster, &module).await?;
    let started = Instant::now();
    create(&client, objects).await?;
    println!("{objects} WebApps created in {:.1} s", started.elapsed().as_secs_f64());
    settled(&client, objects).await;
    println!(
        "from nothing: settled after {:.1} s, CPU {:.2} s, resident {} MB, proportional {} MB",
        started.elapsed().as_secs_f64(),
        running.cpu()?.as_secs_f64(),
        running.rss()? >> 20,
        running.pss()? >> 20
    );
    let requests = cluster.audit().since(mark).await?.by_agent("operator-host/");
    println!("requests by verb and resource: {:?}", requests.counts());

    let mut latencies = latencies(&client, objects).await?;
    latencies.sort();
    let at = |percent: usize| latencies[(latencies.len() * percent / 100).min(latencies.len() - 1)].as_secs_f64() * 1e3;
    println!(
        "edit of spec.replicas to the Deployment's event, {EDITS} edits: p50 {:.1} ms, p99 {:.1} ms",
        at(50),
        at(99)
    );
    println!("resident after the edits {} MB", running.rss()? >> 20);
    running.sigterm().await?;

    let mark = cluster.audit().mark().await?;
    let running = start(&cluster, &module).await?;
    // Every key has run when the CPU time stands still.
    let mut before = Duration::ZERO;
    eventually("the restarted host to rest", PATIENCE, || {
        let now = running.cpu();
        let rests = now.as_ref().is_ok_and(|now| *now == before);
        before = now.unwrap_or_default();
        async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            rests
        }
    })
    .await;
    println!(
        "restart: CPU {:.2} s, resident {} MB, proportional {} MB, writes {}",
        running.cpu()?.as_secs_f64(),
        running.rss()? >> 20,
        running.pss()? >> 20,
        cluster.audit().since(mark).await?.by_agent("operator-host/").writes().len()
    );
    Ok(())
}

async fn start(cluster: &Cluster, module: &Path) -> operator_e2e::Result<Host> {
    let mut host = Host::spawn(&cluster.kubeconfig(ADMIN)?, &[module], &[])?;
    host.wait_ready().await?;
    Ok(host)
}

fn webapp(number: usize) -> serde_json::Value {
    json!({
        "apiVersion": "webapp.example.com/v1", "kind": "WebApp",
        "metadata": {"name": format!("app-{number}"), "namespace": NAMESPACE},
        "spec": {"image": "nginx:1.27", "replicas": 2},
    })
}

async fn create(client: &Client, objects: usize) -> operator_e2e::Result<()> {
    stream::iter(0..objects)
        .map(|number| async move { client.create(&WEBAPPS, &webapp(number)).await.map(drop) })
        .buffer_unordered(CREATORS)
        .try_collect::<()>()
        .await?;
    Ok(())
}

/// Waits until every object has a status of its generation.
async fn settled(client: &Client, objects: usize) {
    eventually("every WebApp to be settled", PATIENCE, || async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let all = client.list(&WEBAPPS, NAMESPACE, "resourceVersion=0").await.map_err(|error| error.to_string())?;
        let done =
            all.iter().filter(|app| app["status"]["observedGeneration"] == app["metadata"]["generation"]).count();
        if done == objects { Ok(()) } else { Err(format!("{done} of {objects}")) }
    })
    .await;
}

/// From sending an edit of a WebApp to the event of its Deployment, one after the other.
async fn latencies(client: &Client, objects: usize) -> operator_e2e::Result<Vec<Duration>> {
    let mut watch = client.watch(&DEPLOYMENTS, NAMESPACE, "").await?;
    let mut latencies = Vec::with_capacity(EDITS);
    for edit in 0..EDITS {
        let name = format!("app-{}", (edit * 7919) % objects);
        let replicas = 3 + edit % 40;
        let sent = Instant::now();
        client.patch(&WEBAPPS, NAMESPACE, &name, &json!({"spec": {"replicas": replicas}})).await?;
        loop {
            let event = watch.next(Duration::from_secs(30)).await.with_context(|| format!("no event of {name}"))?;
            let deployment = &event["object"];
            if deployment["metadata"]["name"] == name.as_str() && deployment["spec"]["replicas"] == replicas {
                break;
            }
        }
        latencies.push(sent.elapsed());
    }
    Ok(latencies)
}
