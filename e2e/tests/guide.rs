//! What `docs/guest-authors.md` tells an author to write and run gives an operator, word for word.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use operator_e2e::client::{CONFIG_MAPS, Resource};
use operator_e2e::cluster::ADMIN;
use operator_e2e::expect::reconciled;
use operator_e2e::folder::Folder;
use operator_e2e::{Cluster, Host, Result, host, modules};
use serde_json::json;

const SITES: Resource<'static> = Resource::new("example.com/v1", "sites");
const MODULE: &str = "target/wasm32-unknown-unknown/release/site.wasm";

#[tokio::test]
#[ignore = "compiles a crate and its dependencies from nothing; make test-guests runs it"]
async fn the_guide_leads_from_an_empty_folder_to_an_operator_that_runs() -> Result<()> {
    let folder = Folder::new("guide")?;
    symlink(modules::workspace(), folder.join("operator"))?;
    let guide = std::fs::read_to_string(modules::workspace().join("docs/guest-authors.md"))?;
    let (_, guide) = guide.split_once("## A new module\n").context("the guide begins with a new module")?;
    let (alone, with_a_cluster) = guide.split_once("Then, against a cluster:").context("a cluster comes in last")?;
    let said = run(&script(alone), &folder).await?;
    assert!(said.contains("Primary:          Site.example.com/v1"), "{said}");

    for command in ["operator crd --module", "operator host --module"] {
        assert!(with_a_cluster.contains(&format!("    {command} {MODULE}")), "{with_a_cluster}");
    }
    let module = folder.join("site").join(MODULE);
    let cluster = Cluster::shared().await;
    let crds = host::operator(&["crd", "--module", &module.display().to_string()], None).await?.ok()?;
    cluster.apply(&crds).await?;
    let mut host = Host::spawn(&cluster.kubeconfig(ADMIN)?, &[&module], &[])?;
    host.wait_ready().await?;
    let (client, namespace) = (cluster.client(), cluster.namespace("guide").await?);
    let site = json!({
        "apiVersion": "example.com/v1",
        "kind": "Site",
        "metadata": {"name": "blog", "namespace": namespace},
        "spec": {"title": "Hello"},
    });
    client.create(&SITES, &site).await?;
    reconciled(&client, &SITES, &namespace, "blog", "Settled", Duration::from_secs(60)).await;
    let site = client.get(&SITES, &namespace, "blog").await?;
    assert_eq!(site["status"]["pages"], 1, "{site}");
    let pages = client.get(&CONFIG_MAPS, &namespace, "blog").await?;
    assert_eq!(pages["data"]["index.html"], "<h1>Hello</h1>", "{pages}");
    Ok(())
}

/// The files that the text shows, each below a line that begins with its name, and the commands, in the order of the text.
fn script(text: &str) -> String {
    let mut script = String::new();
    let (mut file, mut in_file) = ("", false);
    for line in text.lines() {
        if line.starts_with("```") {
            script += &if in_file { "END\n".to_owned() } else { format!("cat > {file} <<'END'\n") };
            in_file = !in_file;
        } else if in_file {
            script += &format!("{line}\n");
        } else if let Some(command) = line.strip_prefix("    ") {
            script += &format!("{command}\n");
        } else if let Some((name, _)) = line.strip_prefix('`').and_then(|line| line.split_once('`')) {
            file = name;
        }
    }
    script
}

/// Runs it with the program under test in the `PATH`, and gives what it said.
async fn run(script: &str, folder: &Path) -> Result<String> {
    let program = host::operator_bin()?;
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let path = program.parent().map(PathBuf::from).into_iter().chain(std::env::split_paths(&rest));
    let output = tokio::process::Command::new("bash")
        .args(["-euxc", script])
        .current_dir(folder)
        .env("PATH", std::env::join_paths(path)?)
        .env_remove("CARGO_TARGET_DIR")
        // Nobody debugs it.
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .kill_on_drop(true)
        .output()
        .await?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{script}\n{said}\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(said)
}
