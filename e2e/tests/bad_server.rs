//! An API server that fails three requests in ten, in every way that there is, for a while: nothing storms, nobody starves, all converges.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use operator_e2e::client::DEPLOYMENTS;
use operator_e2e::objects::{WEB_APPS, is_settled, web_app_of};
use operator_e2e::{Fault, Match, Result, Stage, eventually, modules};
use serde_json::{Value, json};

const KEYS: usize = 100;
const PATIENCE: Duration = Duration::from_secs(120);
const AT_ONCE: usize = 8;
/// How long the server is bad, in seconds; a whole minute by `make test-long`.
const SECONDS: &str = "OPERATOR_E2E_FAULT_SECONDS";

fn name(number: usize) -> String {
    format!("shop-{number}")
}

/// Whether every WebApp is settled and runs the image; what is missing.
async fn converged(stage: &Stage, image: &str) -> Result<()> {
    let deployments = stage.client.list(&DEPLOYMENTS, &stage.namespace, "").await?;
    let runs = |object: &&Value| object["spec"]["template"]["spec"]["containers"][0]["image"] == image;
    let up_to_date = deployments.iter().filter(runs).count();
    let web_apps = stage.client.list(&WEB_APPS, &stage.namespace, "").await?;
    let settled = web_apps.iter().filter(|object| is_settled(object).is_ok()).count();
    anyhow::ensure!(up_to_date == KEYS && settled == KEYS, "{up_to_date} Deployments, {settled} settled of {KEYS}");
    Ok(())
}

async fn edit_all(stage: &Stage, image: &str) -> Result<()> {
    let edit = |number| {
        let patch = json!({"spec": {"image": image}});
        async move { stage.client.patch(&WEB_APPS, &stage.namespace, &name(number), &patch).await }
    };
    stream::iter((0..KEYS).map(edit)).buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
    Ok(())
}

#[tokio::test]
async fn a_server_that_fails_three_requests_in_ten_meets_no_storm_and_all_keys_converge() -> Result<()> {
    let seconds = std::env::var(SECONDS).ok().and_then(|text| text.parse().ok()).unwrap_or(15);
    let mut stage = Stage::open("bad-server", modules::webapp().await?, &[]).await?;
    stage.host.wait_ready().await?;
    let create = |number| {
        let web_app = web_app_of(&stage.namespace, &name(number), "web:0");
        let client = &stage.client;
        async move { client.create(&WEB_APPS, &web_app).await }
    };
    stream::iter((0..KEYS).map(create)).buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
    eventually("every WebApp runs web:0", PATIENCE, || converged(&stage, "web:0")).await;

    let faults = [
        Fault::too_many_requests(1),
        Fault::status(500, "InternalError", "etcdserver: leader changed"),
        Fault::status(503, "ServiceUnavailable", "apiserver is shutting down"),
        Fault::LoseRequest,
        Fault::LoseAnswer,
        Fault::Delay(Duration::from_secs(2)),
    ];
    stage.proxy.forget();
    let began = Instant::now();
    let injected: Vec<_> = faults
        .into_iter()
        // Six in a hundred each: about three in ten.
        .map(|fault| stage.proxy.inject(Match::any().and(|_| fastrand::u8(..100) < 6), fault))
        .collect();
    let mut edits = 0;
    while began.elapsed() < Duration::from_secs(seconds) {
        edits += 1;
        edit_all(&stage, &format!("web:{edits}")).await?;
        let rest = Duration::from_secs(seconds).saturating_sub(began.elapsed());
        // The length of the fault is what is asked for, not something to wait for.
        tokio::time::sleep(rest.min(Duration::from_secs(20))).await;
    }
    let met: Vec<usize> = injected.iter().map(operator_e2e::proxy::Injected::hits).collect();
    let requests = stage.proxy.seen(&Match::any()).len();
    let probes = stage.proxy.count(&Match::any().path("/readyz"));
    let (image, minutes) = (format!("web:{edits}"), began.elapsed().as_secs_f64() / 60.0);
    drop(injected);
    println!(
        "{requests} requests ({probes} of them probes) in {minutes:.2} minutes, {edits} edits a key; faults {met:?}"
    );
    assert!(met.iter().all(|hits| *hits > 0), "{met:?}");
    // Fifteen a key and minute, and no less than what as many edits take.
    let most = KEYS * (15.0 * minutes).ceil() as usize;
    assert!(requests - probes <= most.max(KEYS * 8), "{requests} requests for {KEYS} keys in {minutes:.2} minutes");
    eventually(&format!("every WebApp runs {image}"), PATIENCE, || converged(&stage, &image)).await;
    println!("converged {:.1} s after it began", began.elapsed().as_secs_f64());
    Ok(())
}

#[tokio::test]
async fn a_rate_that_is_asked_for_is_kept_to() -> Result<()> {
    let stage = Stage::open("qps", modules::webapp().await?, &["--qps=10", "--burst=5"]).await?;
    eventually("the host is ready", PATIENCE, || async { stage.host.health("/readyz").await }).await;
    stage.proxy.forget();
    let began = Instant::now();
    for number in 0..20 {
        stage.client.create(&WEB_APPS, &web_app_of(&stage.namespace, &name(number), "web:1")).await?;
    }
    eventually("all are settled", PATIENCE, || async {
        let web_apps = stage.client.list(&WEB_APPS, &stage.namespace, "").await?;
        let settled = web_apps.iter().filter(|object| is_settled(object).is_ok()).count();
        anyhow::ensure!(settled == 20, "{settled} of 20");
        Ok(())
    })
    .await;
    let allowed = 10.0 * began.elapsed().as_secs_f64() + 5.0;
    let sent = stage.proxy.count(&Match::any());
    assert!(sent >= 60, "{sent} requests: two children and a status each");
    assert!(sent as f64 <= allowed + 1.0, "{sent} requests in {:?}", began.elapsed());
    Ok(())
}
