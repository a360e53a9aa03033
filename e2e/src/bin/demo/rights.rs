//! What both operators asked for, beside what `operator rbac` says that they need.

use std::path::Path;

use anyhow::ensure;
use operator_e2e::rights::{Right, granted, used_by};
use operator_e2e::{Mark, Result, host};
use serde_json::json;

use crate::narrator::{Demo, USER_AGENT, say};

const NAMESPACE: &str = "operator-host";

/// The host ran as administrator until now: every request of it, in the audit log, is one that the printed rights allow.
pub(crate) async fn cover(demo: &Demo<'_>, modules: &[&Path]) -> Result<()> {
    say("Every request of the hosts, from the first to the last, beside what operator rbac prints");
    println!("$ operator rbac --module webapp.wasm --module staticsite.wasm | kubectl apply -f -");
    let client = demo.cluster.client();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    demo.cluster.apply(&namespace.to_string()).await?;
    let files: Vec<String> = modules.iter().map(|module| format!("--module={}", module.display())).collect();
    let arguments: Vec<&str> = ["rbac"].into_iter().chain(files.iter().map(String::as_str)).collect();
    let printed = host::operator(&arguments, None).await?.ok()?;
    demo.cluster.kubectl_command(&["apply", "-f", "-"]).stdin(printed).run().await?.ok()?;
    let granted = granted(&client, NAMESPACE).await?;
    let requests = demo.cluster.audit().since(Mark::START).await?.by_agent(USER_AGENT);
    let used = used_by(&requests);
    let more: Vec<&Right> = used.difference(&granted).collect();
    ensure!(more.is_empty(), "asked for beyond the printed rights: {more:?}");
    let deletes: Vec<&Right> = granted.iter().filter(|(verb, _)| verb.starts_with("delete")).collect();
    ensure!(deletes.is_empty(), "the printed rights hold a delete: {deletes:?}");
    println!(
        "  {} requests, {} rights used of {} printed, no delete among them",
        requests.len(),
        used.len(),
        granted.len()
    );
    Ok(())
}
