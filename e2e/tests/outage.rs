//! An API server that is away while many objects have work: everybody is served soon after it is back, and it meets no storm.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use operator_e2e::client::DEPLOYMENTS;
use operator_e2e::objects::{WEB_APPS, is_settled, web_app_of};
use operator_e2e::proxy::Seen;
use operator_e2e::{Match, Result, Stage, eventually, modules};
use serde_json::{Value, json};

const KEYS: usize = 500;
const WORKERS: usize = 4;
/// Stands for half an hour: by then every backoff of a watch has grown to its longest, give or take a doubling.
const AWAY: Duration = Duration::from_secs(25);
/// How soon after the return everything has to be as wanted.
const BAR: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(240);
/// Requests that a test has on their way at a time.
const AT_ONCE: usize = 8;

fn name(number: usize) -> String {
    format!("shop-{number}")
}

/// Whether every WebApp is settled and every Deployment runs the image; what is missing.
async fn converged(stage: &Stage, image: &str) -> Result<()> {
    let deployments = stage.client.list(&DEPLOYMENTS, &stage.namespace, "").await?;
    let runs = |object: &&Value| object["spec"]["template"]["spec"]["containers"][0]["image"] == image;
    let up_to_date = deployments.iter().filter(runs).count();
    let web_apps = stage.client.list(&WEB_APPS, &stage.namespace, "").await?;
    let settled = web_apps.iter().filter(|object| is_settled(object).is_ok()).count();
    anyhow::ensure!(up_to_date == KEYS && settled == KEYS, "{up_to_date} Deployments, {settled} settled of {KEYS}");
    Ok(())
}

/// Waits until the host has sent so many writes and everything is as wanted. Looking costs the server as much as working, so
/// that writes are counted first.
async fn converges(stage: &Stage, image: &str, writes: usize, deadline: Duration) {
    let began = Instant::now();
    eventually(&format!("{writes} writes"), deadline, || async {
        match stage.proxy.count(&Match::writes()) {
            sent if sent >= writes => Ok(()),
            sent => Err(sent.to_string()),
        }
    })
    .await;
    let what = format!("every WebApp is settled and runs {image}");
    eventually(&what, deadline.saturating_sub(began.elapsed()), || converged(stage, image)).await;
}

#[tokio::test]
async fn all_keys_converge_within_30_seconds_of_the_return_and_the_first_second_is_quiet() -> Result<()> {
    let workers = format!("--workers={WORKERS}");
    let mut stage = Stage::open("outage", modules::webapp().await?, &[&workers]).await?;
    stage.host.wait_ready().await?;
    let stage = stage;
    let create = |number| {
        let web_app = web_app_of(&stage.namespace, &name(number), "web:1");
        let client = &stage.client;
        async move { client.create(&WEB_APPS, &web_app).await }
    };
    stream::iter((0..KEYS).map(create)).buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
    converges(&stage, "web:1", 3 * KEYS, PATIENCE).await;

    stage.proxy.refuse().await;
    let gone = Instant::now();
    let edit = |number| {
        let (name, patch) = (name(number), json!({"spec": {"image": "web:2"}}));
        let (client, namespace) = (&stage.client, &stage.namespace);
        async move { client.patch(&WEB_APPS, namespace, &name, &patch).await }
    };
    stream::iter((0..KEYS).map(edit)).buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
    tokio::time::sleep(AWAY.saturating_sub(gone.elapsed())).await;
    stage.proxy.forget();
    stage.proxy.accept().await?;
    let back = Instant::now();
    // A Deployment and a status each.
    converges(&stage, "web:2", 2 * KEYS, BAR).await;
    println!("{KEYS} keys converged {:?} after the return", back.elapsed());

    // The host knows that the server is back by its own question, which comes a while after.
    let probes = stage.proxy.seen(&Match::any().path("/readyz"));
    let known = probes.first().map(|probe| probe.at).expect("the host asks whether the server is well");
    let writes = stage.proxy.seen(&Match::writes());
    for (since, what) in [(back, "the return"), (known, "it was known")] {
        let within = |seen: &&Seen| seen.at >= since && seen.at < since + Duration::from_secs(1);
        let first: Vec<&str> = writes.iter().filter(within).map(|seen| seen.path.as_str()).collect();
        assert!(first.len() <= 2 * WORKERS, "{} writes in the first second after {what}: {first:?}", first.len());
    }
    assert_eq!(writes.len(), 2 * KEYS, "something was written twice");
    Ok(())
}
