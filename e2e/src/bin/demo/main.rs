//! The whole life of a WebApp, and that of a StaticSite, on a real control plane, narrated; each step with the requests that the host needed.

mod edited;
mod life;
mod narrator;
mod others;
mod rights;
mod site;
mod swap;
mod takeover;

use anyhow::ensure;
use narrator::{Demo, say};
use operator_e2e::folder::Folder;
use operator_e2e::{Cluster, modules};

/// The module's file, as the narrated commands name it.
const MODULE: &str = "webapp.wasm";

#[tokio::main]
async fn main() -> operator_e2e::Result<()> {
    say("A Kubernetes control plane: API server, etcd, controller manager, scheduler, and kwok for the node");
    let cluster = Cluster::full().await?;
    println!("  ready after {:.1} s", cluster.started_in().as_secs_f64());
    let demo = Demo::new(&cluster);
    let folder = Folder::new("demo")?;
    let module = folder.write(MODULE, std::fs::read(modules::build("webapp").await?)?)?;

    life::definition(&demo, &module).await?;
    let host = life::start(&demo, &module).await?;
    life::apply(&demo).await?;
    life::scale(&demo).await?;

    others::change_a_child(&demo).await?;
    others::have_the_name(&demo).await?;
    others::break_the_schema(&demo).await?;

    let build = swap::another_build(&demo, &host, &folder).await?;
    swap::garbage(&demo, &host, &folder, &build).await?;

    let pair = takeover::two_hosts(&demo, host, &module).await?;
    let mut host = takeover::kill_the_leader(&demo, pair).await?;

    life::delete(&demo).await?;
    say("SIGTERM: the host ends its work and exits 0");
    let status = host.sigterm().await?;
    ensure!(status.success(), "the host ended with {status}");
    println!("  {status}");

    site::life(&demo, &folder).await?;
    rights::cover(&demo, &[&module, modules::staticsite().await?]).await
}
