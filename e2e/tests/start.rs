//! How the host starts and ends when something is in the way: visibly, and with the exit code that says so.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use operator_e2e::client::DEPLOYMENTS;
use operator_e2e::cluster::ADMIN;
use operator_e2e::expect::reconciled;
use operator_e2e::host::operator_bin;
use operator_e2e::objects::{WEB_APPS, web_app_of};
use operator_e2e::process::{Process, Signal};
use operator_e2e::{Cluster, Host, Match, Result, Stage, eventually, modules};
use serde_json::json;
use tokio::net::TcpListener;

const SOON: Duration = Duration::from_secs(60);

#[tokio::test]
async fn an_unreachable_server_is_tried_until_it_answers() -> Result<()> {
    let cluster = Cluster::shared().await;
    cluster.install_definitions().await?;
    let namespace = cluster.namespace("unreachable").await?;
    let client = cluster.client();
    client.create(&WEB_APPS, &web_app_of(&namespace, "shop", "web:1")).await?;
    let proxy = cluster.proxy().await?;
    proxy.refuse().await;
    let kubeconfig = cluster.kubeconfig_at(ADMIN, &proxy.url())?;
    let mut host = Host::spawn(&kubeconfig, &[modules::webapp().await?], &["--namespace", &namespace])?;
    host.wait_log("can't be reached", SOON).await;
    host.wait_log(proxy.url().trim_start_matches("http://"), SOON).await;
    eventually("its health port answers", SOON, || host.health("/healthz")).await;
    assert!(host.health("/readyz").await.is_err(), "ready without a server");

    proxy.accept().await?;
    host.wait_ready().await?;
    reconciled(&client, &WEB_APPS, &namespace, "shop", "Settled", SOON).await;
    assert!(host.sigterm().await?.success());
    Ok(())
}

#[tokio::test]
async fn a_wrong_token_ends_the_start_with_a_message() -> Result<()> {
    let cluster = Cluster::shared().await;
    let right = std::fs::read_to_string(cluster.kubeconfig(ADMIN)?)?;
    let wrong = right.replace(cluster.user(ADMIN).token(), "wrong");
    let path: PathBuf = cluster.folder().join("kubeconfig-wrong.yaml");
    std::fs::write(&path, wrong)?;
    let mut host = Host::spawn(&path, &[modules::webapp().await?], &[])?;
    let status = host.wait_exit(SOON).await?;
    assert_eq!(status.code(), Some(1), "{}", host.log());
    let log = host.log();
    assert!(log.contains("401") && log.contains(&cluster.url()) && log.contains("token"), "{log}");
    Ok(())
}

#[tokio::test]
async fn a_log_that_nobody_takes_stops_nothing() -> Result<()> {
    let cluster = Cluster::shared().await;
    cluster.install_definitions().await?;
    let namespace = cluster.namespace("unheard").await?;
    let client = cluster.client();
    let mut command = Command::new(operator_bin()?);
    command.args(["host", "--health-probe-bind-address=0", "--namespace", &namespace, "--module"]);
    command.arg(modules::webapp().await?).env("KUBECONFIG", cluster.kubeconfig(ADMIN)?);
    let mut host = Process::spawn("operator host", &mut command, Path::new("/dev/full"))?;
    // More of them than there are workers, and each pass has something to say.
    for name in ["a", "b", "c", "d", "e", "f"] {
        client.create(&WEB_APPS, &web_app_of(&namespace, name, "web:1")).await?;
    }
    for name in ["a", "b", "c", "d", "e", "f"] {
        reconciled(&client, &WEB_APPS, &namespace, name, "Settled", SOON).await;
    }
    host.signal(Signal::TERM);
    assert_eq!(host.wait(SOON).await?.code(), Some(0), "it drained");
    Ok(())
}

#[tokio::test]
async fn a_credential_plugin_that_fails_is_named_with_its_complaint_and_gives_nothing_away() -> Result<()> {
    let cluster = Cluster::shared().await;
    let cases = [
        ("echo hunter2; echo log in first >&2; exit 3", "failed (exit status: 3): log in first"),
        ("echo hunter2", "printed what is no ExecCredential"),
    ];
    for (script, told) in cases {
        let plugin = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
            "env": [{"name": "PASSWORD", "value": "hunter2"}], "interactiveMode": "Never",
        });
        let right = std::fs::read_to_string(cluster.kubeconfig(ADMIN)?)?;
        let token = format!("token: {}", cluster.user(ADMIN).token());
        let path = cluster.folder().join("kubeconfig-plugin.yaml");
        std::fs::write(&path, right.replace(&token, &format!("exec: {plugin}")))?;
        let mut host = Host::spawn(&path, &[modules::webapp().await?], &[])?;
        assert_eq!(host.wait_exit(SOON).await?.code(), Some(1), "{}", host.log());
        let log = host.log();
        assert!(log.contains(&format!("credential plugin (users[].user.exec) {told}\n")), "{log}");
        assert!(!log.contains("hunter2"), "{log}");
    }
    Ok(())
}

#[tokio::test]
async fn every_mistake_is_listed_before_the_start_fails() -> Result<()> {
    let cluster = Cluster::shared().await;
    let mut host = Host::spawn(
        &cluster.folder().join("no-such-kubeconfig"),
        &["no-such-module.wasm".as_ref(), cluster.folder()],
        &["--context", "no-such-context"],
    )?;
    assert_eq!(host.wait_exit(SOON).await?.code(), Some(1), "{}", host.log());
    let log = host.log();
    assert!(log.contains("no-such-module.wasm"), "{log}");
    assert!(log.contains(&cluster.folder().display().to_string()), "{log}");
    assert!(log.lines().filter(|line| line.starts_with("error:")).count() >= 3, "{log}");
    Ok(())
}

#[tokio::test]
async fn sigterm_ends_a_start_that_waits_for_an_answer() -> Result<()> {
    let cluster = Cluster::shared().await;
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let kubeconfig = cluster.kubeconfig_at(ADMIN, &format!("http://{}", silent.local_addr()?))?;
    let mut host = Host::spawn(&kubeconfig, &[modules::webapp().await?], &[])?;
    let _asked = tokio::time::timeout(SOON, silent.accept()).await.context("it never asked the server")??;
    host.signal(Signal::TERM);
    let status = host.wait_exit(Duration::from_secs(10)).await?;
    assert_eq!(status.code(), Some(0), "{}", host.log());
    Ok(())
}

#[tokio::test]
async fn sigterm_lets_what_has_begun_end() -> Result<()> {
    let mut stage = Stage::open("drained", modules::webapp().await?, &[]).await?;
    stage.host.wait_ready().await?;
    let gate = stage.proxy.hold(Match::writes());
    stage.client.create(&WEB_APPS, &web_app_of(&stage.namespace, "shop", "web:1")).await?;
    gate.wait_for(2, SOON).await;
    stage.host.signal(Signal::TERM);
    stage.host.wait_log("draining", SOON).await;
    stage.client.create(&WEB_APPS, &web_app_of(&stage.namespace, "late", "web:1")).await?;
    assert_eq!(stage.host.exited(), None, "it did not wait for what had begun");
    gate.open();
    let status = stage.host.wait_exit(SOON).await?;
    assert_eq!(status.code(), Some(0), "{}", stage.host.log());
    stage.get(&DEPLOYMENTS, "shop").await?;
    assert_eq!(stage.client.find(&DEPLOYMENTS, &stage.namespace, "late").await?, None, "a pass began after the signal");
    Ok(())
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() -> Result<()> {
    let mut stage = Stage::open("impatient", modules::webapp().await?, &[]).await?;
    stage.host.wait_ready().await?;
    let gate = stage.proxy.hold(Match::writes());
    stage.client.create(&WEB_APPS, &web_app_of(&stage.namespace, "shop", "web:1")).await?;
    gate.wait_for(2, SOON).await;
    stage.host.signal(Signal::INT);
    stage.host.wait_log("draining", SOON).await;
    stage.host.signal(Signal::TERM);
    let status = stage.host.wait_exit(Duration::from_secs(10)).await?;
    assert_eq!(status.code(), Some(1), "{}", stage.host.log());
    Ok(())
}
