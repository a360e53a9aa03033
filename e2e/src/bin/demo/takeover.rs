//! Two hosts share a Lease, and the one that holds it is killed.

use std::path::Path;

use anyhow::{Context as _, ensure};
use operator_e2e::cluster::ADMIN;
use operator_e2e::{Host, Record, Requests, Result, eventually};

use crate::MODULE;
use crate::narrator::{Demo, PATIENCE};

const LEADING: &str = "leading: the Lease is held by this process";
const LEASE: &str = "lease/operator-host-default";

/// Two hosts of which one leads.
pub(crate) struct Pair {
    leader: Host,
    standby: Host,
}

pub(crate) async fn two_hosts(demo: &Demo<'_>, mut host: Host, module: &Path) -> Result<Pair> {
    demo.step("The host makes way for two that share a Lease: what is settled costs them no write").await?;
    println!("$ kill {}", host.pid());
    let status = host.sigterm().await?;
    ensure!(status.success(), "the host ended with {status}");
    let leader = start(demo, module, 8081)?;
    demo.logged(&leader, LEADING).await;
    let mut standby = start(demo, module, 8082)?;
    demo.logged(&standby, "standing by").await;
    standby.wait_ready().await?;
    demo.kubectl(&["get", LEASE]).await?;
    demo.requests().await?;
    let writes = demo.asked().await?.writes();
    ensure!(writes.is_empty(), "what was settled was written:\n{writes}");
    Ok(Pair { leader, standby })
}

/// Gives the host that is left.
pub(crate) async fn kill_the_leader(demo: &Demo<'_>, pair: Pair) -> Result<Host> {
    let Pair { mut leader, standby } = pair;
    demo.step("The leader is killed with -9, and the standby takes over").await?;
    eventually("the leader to renew its Lease", PATIENCE, || async {
        let renewals = renewals(&demo.asked().await?);
        ensure!(!renewals.is_empty(), "it did not");
        Ok(())
    })
    .await;
    println!("$ kill -9 {}", leader.pid());
    leader.kill9();
    let last_renewal = renewals(&demo.asked().await?).pop().context("the leader renewed its Lease")?;
    demo.kubectl(&["patch", "webapp/shop", "--type=merge", "-p", r#"{"spec":{"image":"nginx:1.28"}}"#]).await?;
    demo.logged(&standby, LEADING).await;
    demo.becomes("deployment/shop", "{.spec.template.spec.containers[0].image}", "nginx:1.28").await;
    demo.kubectl(&["wait", "webapp/shop", "--for=condition=Ready"]).await?;
    demo.kubectl(&["get", LEASE]).await?;
    demo.requests().await?;

    let asked = demo.asked().await?;
    let writes = asked.writes();
    let first_write = writes.iter().next().context("the standby wrote nothing")?;
    let after = first_write.received_after(&last_renewal)?.as_secs_f64();
    let is_list = |record: &Record| record.verb == "list" || record.uri.contains("sendInitialEvents");
    let lists = asked.matching(|record| record.received > last_renewal.received && is_list(record));
    ensure!(lists.is_empty(), "the standby's caches were not warm:\n{lists}");
    println!("  the standby's first write came {after:.1} s after the leader's last renewal; it listed nothing");
    Ok(standby)
}

fn start(demo: &Demo<'_>, module: &Path, port: u16) -> Result<Host> {
    let election = ["--leader-elect", "--leader-election-namespace=default"];
    println!("$ operator host --module {MODULE} {} --health-probe-bind-address=localhost:{port} &", election.join(" "));
    Host::spawn(&demo.cluster.kubeconfig(ADMIN)?, &[module], &election)
}

/// Writes of the Lease that succeeded, oldest first.
fn renewals(requests: &Requests) -> Vec<Record> {
    let renews = |record: &&Record| record.is_lease() && record.verb == "update" && record.code < 300;
    requests.iter().filter(renews).cloned().collect()
}
