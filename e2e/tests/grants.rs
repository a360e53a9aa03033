//! What modules are given outside the cluster, as the one who runs the host meets it.

use std::fs;
use std::path::Path;

use operator_e2e::cluster::ADMIN;
use operator_e2e::expect::SOON;
use operator_e2e::folder::Folder;
use operator_e2e::host::operator;
use operator_e2e::objects::EXPLORERS;
use operator_e2e::{Cluster, Result, Stage, modules};
use serde_json::{Value, json};

const OTHERS: [&str; 3] = ["--grant=token:env=HOME", "--grant=api:http=192.0.2.1", "--grant=more:env=HOME"];

fn files(folder: &Folder) -> String {
    format!("--grant=files:dir={}", folder.display())
}

/// What a host says that does not start.
async fn refused(module: &Path, grants: &[&str]) -> Result<String> {
    let module = format!("--module={}", module.display());
    let mut args = vec!["host", "--health-probe-bind-address=0", module.as_str()];
    args.extend(grants);
    let kubeconfig = Cluster::shared().await.kubeconfig(ADMIN)?;
    let output = tokio::time::timeout(SOON, operator(&args, Some(&kubeconfig))).await??;
    assert_eq!(output.code, 1, "{}{}", output.stdout, output.stderr);
    Ok(output.stderr)
}

#[tokio::test]
async fn a_host_says_which_grants_are_missing_and_which_nobody_asks_for() -> Result<()> {
    let explorer = modules::fixture("explorer").await?;
    let text = refused(&explorer, &["--grant=filez:dir=/tmp", OTHERS[0]]).await?;
    for words in [
        "capability \"files\" (keeps files) is not granted: --grant files:dir=/files",
        "--grant api:http=api.example.com",
        "--grant more:dir=PATH, --grant more:env=KEY or --grant more:http=HOST",
        "--grant filez:dir=/tmp: no module asks for it",
    ] {
        assert!(text.contains(words), "{words:?} is not said: {text}");
    }
    assert!(!text.contains("--grant token"), "it is granted: {text}");

    let text =
        refused(&explorer, &[&["--grant=files:dir=/nowhere", "--grant=token:env=NOT_SET"], &OTHERS[1..]].concat())
            .await?;
    assert!(text.contains("/nowhere: No such file or directory"), "{text}");
    assert!(text.contains("NOT_SET: environment variable not found"), "{text}");

    let module = format!("--module={}", explorer.display());
    let output = operator(&["host", &module, "--grant=files:ftp=example.com"], None).await?;
    assert_eq!(output.code, 2, "usage: {output:?}");
    assert!(output.stderr.contains("NAME:dir=PATH"), "{output:?}");
    Ok(())
}

#[tokio::test]
async fn inspect_shows_what_is_asked_for_and_what_would_grant_it() -> Result<()> {
    let module = format!("--module={}", modules::fixture("explorer").await?.display());
    let text = operator(&["inspect", &module, OTHERS[0]], None).await?.ok()?;
    for words in [
        "Capabilities:     files: dir:/files, keeps files",
        "not granted; --grant files:dir=/files would",
        "token: env:EXPLORER_TOKEN, proves who it is",
        "granted by --grant token:env=HOME",
    ] {
        assert!(text.contains(words), "{words:?} is not shown:\n{text}");
    }
    Ok(())
}

#[tokio::test]
async fn a_module_works_in_the_folder_that_it_was_granted_and_cleans_it_up() -> Result<()> {
    let folder = Folder::new("granted")?;
    let granted = files(&folder);
    let args: Vec<&str> = [granted.as_str()].into_iter().chain(OTHERS).collect();
    let mut stage = Stage::open("grants", &modules::fixture("explorer").await?, &args).await?;
    stage.host.wait_ready().await?;
    stage.host.wait_log("granted", SOON).await;
    assert!(!stage.host.log().contains(&std::env::var("HOME")?), "no value is logged");

    let object = json!({
        "apiVersion": EXPLORERS.api_version, "kind": "Explorer",
        "metadata": {"name": "a", "namespace": stage.namespace},
        "spec": {
            "steps": [{"write": "/files/a.txt", "text": "hello"}, {"list": "/files"}],
            "reconcile": [{"list": "/files"}],
            "remove": [{"delete": "/files/a.txt"}],
        },
    });
    stage.client.create(&EXPLORERS, &object).await?;
    let object = stage.settled(&EXPLORERS, "a").await;
    assert_eq!(object["status"]["observation"], json!([null, ["a.txt"]]));
    assert!(object["status"]["reconcile"][0]["error"].is_string(), "what decides sees no file: {object}");
    assert_eq!(fs::read_to_string(folder.join("a.txt"))?, "hello");

    // Somebody cleans up: the module says that there is nothing to delete, and the object waits until there is.
    fs::rename(folder.join("a.txt"), folder.join("elsewhere.txt"))?;
    stage.client.delete(&EXPLORERS, &stage.namespace, "a").await?;
    let waits = |object: &Value| object["status"]["conditions"].to_string().contains("No such file");
    stage.object(&EXPLORERS, "a", "it waits for its file", waits).await;
    fs::rename(folder.join("elsewhere.txt"), folder.join("a.txt"))?;
    stage.gone(&EXPLORERS, "a").await;
    assert!(!folder.join("a.txt").exists(), "it goes after its file");
    Ok(())
}
