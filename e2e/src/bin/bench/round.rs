//! One measurement of one operator, on an API server of its own.

use std::collections::HashSet;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use operator_e2e::client::{DEPLOYMENTS, Watch};
use operator_e2e::cluster::ADMIN;
use operator_e2e::objects::{WEB_APP_CRD, WEB_APPS, web_app};
use operator_e2e::process::{Process, Signal};
use operator_e2e::{Client, Cluster, Mark, Requests, Resource, Usage, eventually};
use serde_json::{Value, json};

use crate::operator::Operator;

const NAMESPACE: &str = "bench";
/// Creates at the same time.
const CREATORS: usize = 8;
/// How long an operator may take for anything, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);
/// A program rests when for so long it has used next to nothing; runtimes give memory back meanwhile.
const REST: Duration = Duration::from_secs(5);
/// Next to nothing: what idle runtimes use for themselves.
const IDLE: Duration = Duration::from_millis(20);

/// From a start of the program until it rested.
#[derive(Debug)]
pub(crate) struct Phase {
    pub(crate) took: Duration,
    pub(crate) usage: Usage,
    pub(crate) requests: Requests,
}

/// What one measurement gave.
#[derive(Debug)]
pub(crate) struct Measured {
    /// Every child made from nothing.
    pub(crate) converge: Phase,
    /// CPU time of the API server meanwhile.
    pub(crate) server: Duration,
    /// Started again with every object settled.
    pub(crate) restart: Phase,
    /// From the edit of a spec to the event of its Deployment, ascending.
    pub(crate) edits: Vec<Duration>,
}

impl Measured {
    /// The latency that so many percent of the edits did not exceed.
    pub(crate) fn latency(&self, percent: usize) -> Duration {
        let rank = (self.edits.len() * percent).div_ceil(100).saturating_sub(1);
        self.edits.get(rank).copied().unwrap_or_default()
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, Phase { took, usage, requests }) in [("from nothing", &self.converge), ("restart", &self.restart)] {
            let [took, cpu] = [took, &usage.cpu].map(Duration::as_secs_f64);
            let (megabytes, writes) = (usage.resident / 1_000_000, requests.writes().len());
            write!(f, "{name}: {took:.1} s, CPU {cpu:.2} s, {megabytes} MB, {writes} writes; ")?;
        }
        let [p50, p90] = [50, 90].map(|percent| self.latency(percent).as_secs_f64() * 1e3);
        write!(f, "edits: p50 {p50:.1} ms, p90 {p90:.1} ms")
    }
}

/// Measures the operator on a fresh API server: from nothing, single edits, a restart.
pub(crate) async fn measure(operator: &Operator, objects: u32, edits: u32) -> operator_e2e::Result<Measured> {
    let cluster = Cluster::bare().await?;
    let client = cluster.client();
    cluster.apply(WEB_APP_CRD).await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    cluster.apply(&namespace.to_string()).await?;
    create(&client, objects).await?;
    let apiserver = cluster.pids().into_iter().find(|(name, _)| name == "kube-apiserver");
    let (_, apiserver) = apiserver.context("no API server runs")?;

    let mut apps = watch_from_now(&client, &WEB_APPS).await?;
    let before = Usage::of(apiserver)?.cpu;
    let mut run = Run::start(&cluster, operator).await?;
    let took = run.settle(&mut apps, objects).await?;
    let converge = run.rest(Some(took)).await?;
    let server = Usage::of(apiserver)?.cpu.saturating_sub(before);

    let edits = edit(&client, &mut apps, objects, edits).await?;
    run.stop().await?;

    let mut run = Run::start(&cluster, operator).await?;
    run.watches().await;
    let restart = run.rest(None).await?;
    Ok(Measured { converge, server, restart, edits })
}

/// A running operator.
struct Run<'a> {
    cluster: &'a Cluster,
    operator: &'a Operator,
    mark: Mark,
    started: Instant,
    process: Process,
}

impl<'a> Run<'a> {
    async fn start(cluster: &'a Cluster, operator: &'a Operator) -> operator_e2e::Result<Self> {
        let mark = cluster.audit().mark().await?;
        let kubeconfig = cluster.kubeconfig(ADMIN)?;
        let started = Instant::now();
        let process = operator.start(&kubeconfig, &cluster.folder().join("operator.log"))?;
        Ok(Self { cluster, operator, mark, started, process })
    }

    async fn stop(mut self) -> operator_e2e::Result<()> {
        self.process.signal(Signal::TERM);
        self.process.wait(PATIENCE).await?;
        Ok(())
    }

    /// Waits until every object has a status of its generation, and tells how long that took.
    async fn settle(&self, apps: &mut Watch, objects: u32) -> operator_e2e::Result<Duration> {
        let mut settled = HashSet::new();
        while settled.len() < objects as usize {
            let app = next(apps).await.with_context(|| format!("the operator said\n{}", self.process.tail(20)))?;
            if is_settled(&app) {
                settled.insert(app["metadata"]["name"].to_string());
            }
        }
        Ok(self.started.elapsed())
    }

    /// Waits until WebApps, Deployments and Services are watched.
    async fn watches(&self) {
        eventually("three types are watched", PATIENCE, || async {
            let requests = self.requests().await.map_err(|error| format!("{error:#}"))?;
            let watched: HashSet<_> = requests.watches().iter().map(|watch| watch.resource.clone()).collect();
            if watched.len() == 3 { Ok(()) } else { Err(format!("{watched:?}")) }
        })
        .await;
    }

    /// Waits until the program rests; without another measure, it was busy for as long as it used CPU time.
    async fn rest(&mut self, took: Option<Duration>) -> operator_e2e::Result<Phase> {
        let (mut busy, mut at) = (self.started.elapsed(), Usage::of(self.process.pid())?.cpu);
        let usage = loop {
            tokio::time::sleep(REST / 50).await;
            let usage = Usage::of(self.process.pid()).with_context(|| self.process.tail(20))?;
            if usage.cpu > at + IDLE {
                (busy, at) = (self.started.elapsed(), usage.cpu);
            } else if self.started.elapsed() > busy + REST {
                break usage;
            }
        };
        Ok(Phase { took: took.unwrap_or(busy), usage, requests: self.requests().await? })
    }

    async fn requests(&self) -> operator_e2e::Result<Requests> {
        Ok(self.cluster.audit().since(self.mark).await?.by_agent(self.operator.agent()))
    }
}

async fn create(client: &Client, objects: u32) -> operator_e2e::Result<()> {
    stream::iter(0..objects)
        .map(|number| async move { client.create(&WEB_APPS, &web_app(NAMESPACE, &name(number))).await.map(drop) })
        .buffer_unordered(CREATORS)
        .try_collect::<()>()
        .await?;
    Ok(())
}

/// Edits one object after the other; the next when the last is settled.
async fn edit(client: &Client, apps: &mut Watch, objects: u32, edits: u32) -> operator_e2e::Result<Vec<Duration>> {
    let mut deployments = watch_from_now(client, &DEPLOYMENTS).await?;
    let mut latencies = Vec::new();
    for edit in 0..edits {
        let name = name(edit * (objects / edits));
        let patch = json!({"spec": {"replicas": 3 + edit % 40}});
        let sent = Instant::now();
        let edited = client.patch(&WEB_APPS, NAMESPACE, &name, &patch).await?;
        loop {
            let deployment = next(&mut deployments).await?;
            let replicas = &deployment["spec"]["replicas"];
            if deployment["metadata"]["name"] == name.as_str() && *replicas == edited["spec"]["replicas"] {
                break;
            }
        }
        latencies.push(sent.elapsed());
        loop {
            let app = next(apps).await?;
            let generation = &app["metadata"]["generation"];
            if app["metadata"]["uid"] == edited["metadata"]["uid"]
                && *generation == edited["metadata"]["generation"]
                && is_settled(&app)
            {
                break;
            }
        }
    }
    latencies.sort();
    Ok(latencies)
}

async fn watch_from_now(client: &Client, resource: &Resource<'_>) -> operator_e2e::Result<Watch> {
    let path = format!("{}?limit=1", resource.path(NAMESPACE, ""));
    let now = client.request("GET", &path, "", &Value::Null).await?;
    let version = now["metadata"]["resourceVersion"].as_str().context("a list without a version")?;
    Ok(client.watch(resource, NAMESPACE, &format!("resourceVersion={version}")).await?)
}

async fn next(watch: &mut Watch) -> operator_e2e::Result<Value> {
    Ok(watch.next(PATIENCE).await.context("the watch has ended")?["object"].take())
}

/// Both operators write the status of a generation when its children are written.
fn is_settled(app: &Value) -> bool {
    app["status"]["observedGeneration"] == app["metadata"]["generation"]
}

fn name(number: u32) -> String {
    format!("app-{number}")
}
