//! `--prune-guard`: what would prune too much at once is held, said, and let go when it is confirmed.

use std::time::{Duration, Instant};

use operator_e2e::client::CONFIG_MAPS;
use operator_e2e::objects::{PROBES, condition, config_map, wanting};
use operator_e2e::{Mark, Probes, Requests, Result};
use serde_json::{Value, json};

/// Long enough that a host which does not hold would have deleted.
const A_WHILE: Duration = Duration::from_secs(2);
/// How long an outcome is held that nobody confirms.
const HOLD: Duration = Duration::from_secs(60);

/// ConfigMaps `NAME-0`, `NAME-1` …
fn config_maps(name: &str, numbers: std::ops::Range<usize>) -> Vec<Value> {
    numbers.map(|number| config_map(&format!("{name}-{number}"), "1")).collect()
}

async fn deletes(probes: &Probes, mark: Mark) -> Result<Requests> {
    Ok(probes.requests_since(mark).await?.writes().of("configmaps").verb("delete"))
}

/// A host with this guard, and one Probe with so many children that no other one's are half of all.
async fn guarded(name: &str) -> Result<Probes> {
    let probes = Probes::start(name, &["--prune-guard"]).await?;
    probes.want("others", &config_maps("others", 0..60)).await?;
    probes.settles("others").await;
    Ok(probes)
}

/// Makes Probes with three ConfigMaps each, then takes all of them out of their wish, and waits until that is held.
async fn hold(probes: &Probes, names: &[&str]) -> Result<Mark> {
    for name in names {
        probes.want(name, &config_maps(name, 0..3)).await?;
    }
    for name in names {
        probes.settles(name).await;
    }
    let mark = probes.mark().await?;
    for name in names {
        probes.set(name, wanting(&[config_map(&format!("{name}-new"), "1")])).await?;
    }
    for name in names {
        let message = probes.reconciled(name, "PruneGuard").await;
        for number in 0..3 {
            let child = format!("ConfigMap {}/{name}-{number}", probes.namespace);
            assert!(message.contains(&child), "{message}");
        }
    }
    Ok(mark)
}

#[tokio::test]
async fn an_outcome_without_any_of_the_children_is_held_until_it_is_confirmed() -> Result<()> {
    let probes = guarded("guard").await?;
    let names = ["released", "confirmed", "taken-back"];
    let mark = hold(&probes, &names).await?;
    let held = probes.get(&PROBES, "released").await?;
    assert_eq!(condition(&held, "Reconciled")["status"], "False", "{held}");
    let message = condition(&held, "Reconciled")["message"].as_str().unwrap_or_default().to_owned();
    let (before, command) = message.split_once("kubectl ").expect("it names the command");
    assert!(before.starts_with("the outcome prunes every child: "), "{message}");
    for name in names {
        probes.object(&CONFIG_MAPS, &format!("{name}-new"), "the rest of the outcome is carried out", |_| true).await;
    }
    tokio::time::sleep(A_WHILE).await;
    let deleted = deletes(&probes, mark).await?;
    assert!(deleted.is_empty(), "{deleted}");
    let status = probes.requests_since(mark).await?.writes().of("probes.fixtures.example.com");
    assert!(status.len() <= 2 * names.len(), "the condition was written again and again: {status}");

    // By the command that it names.
    let arguments: Vec<&str> = command.split_whitespace().collect();
    probes.cluster.kubectl(&arguments).await?.ok()?;
    probes.settles("released").await;
    // By an equal answer to other input.
    let touched = json!({"metadata": {"labels": {"touched": "yes"}}});
    probes.client.patch(&PROBES, &probes.namespace, "confirmed", &touched).await?;
    probes.settles("confirmed").await;
    for name in ["released", "confirmed"] {
        for number in 0..3 {
            probes.gone(&CONFIG_MAPS, &format!("{name}-{number}")).await;
        }
    }
    // Not at all, as it was a mistake.
    probes.set("taken-back", wanting(&config_maps("taken-back", 0..3))).await?;
    probes.settles("taken-back").await;
    let deleted = deletes(&probes, mark).await?;
    let others = deleted.matching(|record| record.name.starts_with("taken-back") && record.name != "taken-back-new");
    assert!(others.is_empty(), "{others}");
    assert_eq!(deleted.len(), 3 + 3 + 1, "{deleted}");
    Ok(())
}

#[tokio::test]
async fn what_nobody_confirms_is_let_go_after_a_minute() -> Result<()> {
    let probes = guarded("minute").await?;
    let began = Instant::now();
    let mark = hold(&probes, &["a"]).await?;
    let held = Instant::now();
    // Asked again on the same input, it stays as it is.
    let untouched = json!({"metadata": {"finalizers": ["example.com/none"]}});
    probes.client.patch(&PROBES, &probes.namespace, "a", &untouched).await?;
    tokio::time::sleep(A_WHILE).await;
    let deleted = deletes(&probes, mark).await?;
    assert!(deleted.is_empty(), "{deleted}");
    probes.client.patch(&PROBES, &probes.namespace, "a", &json!({"metadata": {"finalizers": null}})).await?;

    tokio::time::sleep(HOLD.saturating_sub(held.elapsed())).await;
    probes.settles("a").await;
    for number in 0..3 {
        probes.gone(&CONFIG_MAPS, &format!("a-{number}")).await;
    }
    assert!(began.elapsed() >= HOLD, "it was let go after {:?}", began.elapsed());
    Ok(())
}

#[tokio::test]
async fn more_than_half_of_a_modules_children_within_a_minute_are_held() -> Result<()> {
    let probes = Probes::start("half", &["--prune-guard"]).await?;
    let names = ["a", "b", "c", "d"];
    for name in names {
        probes.want(name, &config_maps(name, 0..3)).await?;
    }
    for name in names {
        probes.settles(name).await;
    }
    // Six of twelve: each of them one of several, and none of them held.
    for (name, left) in [("a", 2), ("b", 2), ("c", 2), ("d", 2), ("a", 1), ("b", 1)] {
        probes.set(name, wanting(&config_maps(name, 0..left))).await?;
        probes.settles(name).await;
    }
    let mark = probes.mark().await?;
    probes.set("c", wanting(&config_maps("c", 0..1))).await?;
    let message = probes.reconciled("c", "PruneGuard").await;
    let child = format!("ConfigMap {}/c-1", probes.namespace);
    assert!(message.contains("more than half of the module's children") && message.contains(&child), "{message}");
    assert!(deletes(&probes, mark).await?.is_empty());
    // What is wanted is made and changed as ever.
    probes.set("d", wanting(&config_maps("d", 0..4))).await?;
    probes.settles("d").await;
    Ok(())
}
