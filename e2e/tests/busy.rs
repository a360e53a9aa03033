//! Many edits at once, and somebody who never gives in: few writes, the right end, and a word on who is in the way.

use std::time::{Duration, Instant};

use operator_e2e::client::DEPLOYMENTS;
use operator_e2e::objects::{WEB_APPS, condition, web_app};
use operator_e2e::{Match, Result, Stage, eventually, modules};
use serde_json::json;

const SOON: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_burst_of_edits_ends_right_with_few_writes_and_one_pass_at_a_time() -> Result<()> {
    const EDITS: usize = 100;
    let stage = Stage::open("burst", modules::webapp().await?, &["--workers=8"]).await?;
    stage.client.create(&WEB_APPS, &web_app(&stage.namespace, "shop")).await?;
    stage.settled(&WEB_APPS, "shop").await;

    let _slow = stage.proxy.delay_writes(Duration::from_millis(100));
    let mark = stage.mark().await?;
    let began = Instant::now();
    for number in 1..=EDITS {
        let patch = json!({"spec": {"image": format!("example.test/web:{number}")}});
        stage.client.patch(&WEB_APPS, &stage.namespace, "shop", &patch).await?;
    }
    // A write takes 100 ms: where the machine makes a burst last longer than that, there is time for more of them.
    let most = 15.max(2 + began.elapsed().as_millis() / 100);
    stage.settled(&WEB_APPS, "shop").await;

    let deployment = stage.get(&DEPLOYMENTS, "shop").await?;
    let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(*image, format!("example.test/web:{EDITS}"));
    let writes = stage.requests_since(mark).await?.writes();
    assert!(writes.of("deployments.apps").len() as u128 <= most, "more than {most}:\n{writes}");
    assert!(writes.of("services").is_empty(), "{writes}");

    let passes: Vec<_> = stage.host.passes().iter().filter_map(|line| interval(line)).collect();
    assert_eq!(passes.len(), stage.passes(), "every pass tells when it ended and what it took");
    let overlapping = passes.windows(2).find(|pair| pair[1].0 < pair[0].1);
    assert!(overlapping.is_none(), "two passes of one object at once: {overlapping:?}\n{}", stage.host.log());
    Ok(())
}

/// Begin and end of a pass in milliseconds of the day, from the line that ends it.
fn interval(line: &str) -> Option<(f64, f64)> {
    let time = line.split_whitespace().next()?.split_once('T')?.1.trim_end_matches('Z');
    let mut parts = time.split(':').map(|part| part.parse::<f64>().ok());
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    let end = (hours * 3600.0 + minutes * 60.0 + seconds) * 1000.0;
    let took = line.split_once("took_ms=")?.1.split_whitespace().next()?.parse::<f64>().ok()?;
    Some((end - took, end))
}

#[tokio::test]
async fn a_fight_over_a_field_is_slowed_and_names_field_and_manager() -> Result<()> {
    let stage = Stage::open("fight", modules::webapp().await?, &[]).await?;
    stage.client.create(&WEB_APPS, &web_app(&stage.namespace, "shop")).await?;
    stage.settled(&WEB_APPS, "shop").await;

    let mark = stage.mark().await?;
    let began = Instant::now();
    let rival = tokio::spawn(fight(stage.cluster.client_as("admin", "rival/1.0"), stage.namespace.clone()));
    let message = eventually("the WebApp reports the fight", SOON, || async {
        let object = stage.get(&WEB_APPS, "shop").await?;
        let reconciled = condition(&object, "Reconciled");
        anyhow::ensure!(reconciled["reason"] == "RevertLimit", "{reconciled}");
        Ok(reconciled["message"].as_str().unwrap_or_default().to_owned())
    })
    .await;
    assert!(message.contains("spec.replicas") && message.contains("rival"), "{message}");

    // Five reverts are free, then they come after 1, 3 and 7 seconds.
    let reverts = Match::writes().path("/deployments/shop");
    let created = 1;
    eventually("eight reverts", SOON, || async { stage.proxy.count(&reverts) - created >= 8 }).await;
    assert!(began.elapsed() >= Duration::from_secs(7), "eight reverts within {:?}", began.elapsed());
    let writes = stage.requests_since(mark).await?.writes();
    let (reverts, status) = (writes.of("deployments.apps").len(), writes.of("webapps.webapp.example.com").len());
    assert!(reverts <= 9 && status <= 2 * reverts, "{writes}");

    rival.abort();
    // The next revert is due within 16 seconds.
    eventually("the fight is over", Duration::from_secs(60), || async {
        let replicas = stage.get(&DEPLOYMENTS, "shop").await?["spec"]["replicas"].take();
        anyhow::ensure!(replicas == 2, "{replicas} replicas");
        Ok(())
    })
    .await;
    stage.settled(&WEB_APPS, "shop").await;
    Ok(())
}

/// Sets the Deployment's replicas to 7 as often as they are anything else.
async fn fight(client: operator_e2e::Client, namespace: String) -> Result<()> {
    let seven = json!({"spec": {"replicas": 7}});
    let mut versions = client.watch(&DEPLOYMENTS, &namespace, "").await?;
    loop {
        let Some(event) = versions.next(Duration::from_secs(600)).await else { return Ok(()) };
        if event["object"]["spec"]["replicas"] != 7 {
            client.patch(&DEPLOYMENTS, &namespace, "shop", &seven).await?;
        }
    }
}
