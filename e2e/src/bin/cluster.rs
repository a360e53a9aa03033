//! A cluster for a person to try things on: starts it, says how to reach it, stops it at Ctrl-C.
//!
//! `cluster` is a full one; `cluster --bare` is etcd and the API server alone.

use operator_e2e::Cluster;
use operator_e2e::cluster::ADMIN;

#[tokio::main]
async fn main() -> operator_e2e::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let options = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Cluster::options().full(),
        ["--bare"] => Cluster::options(),
        _ => anyhow::bail!("unknown arguments {args:?}; known: --bare"),
    };
    eprintln!("starting a Kubernetes control plane; the first time, its programs are built, which takes minutes");
    let cluster = options.start().await?;
    let kubeconfig = cluster.kubeconfig(ADMIN)?;
    eprintln!("ready after {:.1} s at {}", cluster.started_in().as_secs_f64(), cluster.url());
    for (name, pid) in cluster.pids() {
        eprintln!("  {name}: process {pid}, log {}", cluster.folder().join(format!("{name}.log")).display());
    }
    eprintln!("  audit log: {}", cluster.folder().join("audit.log").display());
    eprintln!("  kubectl: {}", cluster.kubectl_path().display());
    println!("export KUBECONFIG={}", kubeconfig.display());
    eprintln!("press Ctrl-C to stop it");
    let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result?,
        _ = term.recv() => {}
    }
    eprintln!("stopping");
    drop(cluster);
    Ok(())
}
