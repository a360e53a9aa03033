//! The harness itself, shown on a real API server: what other tests build on.

use std::process::Stdio;
use std::time::{Duration, Instant};

use operator_e2e::client::{CONFIG_MAPS, DEPLOYMENTS, PODS, SECRETS};
use operator_e2e::{Client, Cluster, Fault, Mark, Match, Result, eventually};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

const SOON: Duration = Duration::from_secs(30);

fn config_map(namespace: &str, name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": {"key": value},
    })
}

fn deployment(namespace: &str, name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "example.test/web:1"}]},
            },
        },
    })
}

#[tokio::test]
async fn the_audit_log_counts_what_an_agent_did() -> Result<()> {
    let cluster = Cluster::shared().await;
    let namespace = cluster.namespace("audit").await?;
    let client = cluster.client_as("admin", "counted/1.0");
    let bystander = cluster.client_as("admin", "bystander/1.0");

    let mark = cluster.audit().mark().await?;
    client.create(&CONFIG_MAPS, &config_map(&namespace, "a", "1")).await?;
    bystander.create(&CONFIG_MAPS, &config_map(&namespace, "b", "1")).await?;
    client.patch(&CONFIG_MAPS, &namespace, "a", &json!({"data": {"key": "2"}})).await?;
    client.list(&CONFIG_MAPS, &namespace, "").await?;
    client.create(&DEPLOYMENTS, &deployment(&namespace, "web", 0)).await?;
    client.patch_subresource(&DEPLOYMENTS, &namespace, "web", "status", &json!({"status": {"replicas": 0}})).await?;
    let missing = client.get(&SECRETS, &namespace, "none").await;
    assert_eq!(missing.unwrap_err().code(), 404);

    let all = cluster.audit().since(mark).await?;
    let requests = all.by_agent("counted/");
    let counts = requests.counts();
    let count = |verb: &str, resource: &str| counts.get(&(verb.to_owned(), resource.to_owned())).copied();
    assert_eq!(count("create", "configmaps"), Some(1), "{requests}");
    assert_eq!(count("patch", "configmaps"), Some(1), "{requests}");
    assert_eq!(count("list", "configmaps"), Some(1), "{requests}");
    assert_eq!(count("patch", "deployments.apps/status"), Some(1), "{requests}");
    assert_eq!(count("get", "secrets"), Some(1), "{requests}");
    assert_eq!(requests.writes().len(), 4, "{requests}");
    assert_eq!(all.by_agent("bystander/").writes().of("configmaps").len(), 1);
    Ok(())
}

#[tokio::test]
async fn an_open_watch_is_no_finished_request() -> Result<()> {
    let cluster = Cluster::shared().await;
    let namespace = cluster.namespace("watch").await?;
    let client = cluster.client_as("admin", "watcher/1.0");

    let mark = cluster.audit().mark().await?;
    let mut watch = client.watch(&CONFIG_MAPS, &namespace, "resourceVersion=0").await?;
    client.create(&CONFIG_MAPS, &config_map(&namespace, "a", "1")).await?;
    let event = watch.next(SOON).await.expect("the watch stays open");
    assert_eq!(event["type"], "ADDED");

    let requests = cluster.audit().since(mark).await?.by_agent("watcher/");
    assert_eq!(requests.watches().len(), 1, "{requests}");
    assert_eq!(requests.beyond_watches().len(), 1, "{requests}");
    Ok(())
}

#[tokio::test]
async fn a_spare_user_may_do_nothing_until_it_is_granted() -> Result<()> {
    let cluster = Cluster::shared().await;
    let user = cluster.client_as("user-0", "spare/1.0");
    let refused = user.list(&SECRETS, "default", "").await.expect_err("no rights yet");
    assert_eq!(refused.code(), 403);

    cluster.client().grant("user-0", "", &["secrets"], &["list"]).await?;
    eventually("user-0 may list secrets", SOON, || user.list(&SECRETS, "default", "")).await;
    Ok(())
}

#[tokio::test]
async fn kubectl_works_with_the_cluster() -> Result<()> {
    let cluster = Cluster::shared().await;
    let namespaces = cluster.kubectl(&["get", "namespaces", "-o", "name"]).await?.ok()?;
    assert!(namespaces.contains("namespace/default"), "{namespaces}");

    let failed = cluster.kubectl(&["get", "pod", "none"]).await?;
    assert_eq!(failed.code, 1);
    assert!(failed.stderr.contains("NotFound"), "{}", failed.stderr);
    Ok(())
}

#[tokio::test]
async fn a_definition_is_served_once_it_is_applied() -> Result<()> {
    let cluster = Cluster::shared().await;
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "probes.harness.test"},
        "spec": {
            "group": "harness.test",
            "scope": "Namespaced",
            "names": {"kind": "Probe", "plural": "probes"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    cluster.apply(&crd.to_string()).await?;
    let probes = operator_e2e::Resource::new("harness.test/v1", "probes");
    let probe = json!({
        "apiVersion": "harness.test/v1",
        "kind": "Probe",
        "metadata": {"name": "a", "namespace": "default"},
    });
    cluster.client().create(&probes, &probe).await?;
    Ok(())
}

#[tokio::test]
async fn versions_expire_the_server_restarts_in_place_and_etcd_goes_back() -> Result<()> {
    let mut cluster = Cluster::bare().await?;
    let client = cluster.client();
    let old = client.create(&CONFIG_MAPS, &config_map("default", "a", "1")).await?;
    let old = old["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    client.patch(&CONFIG_MAPS, "default", "a", &json!({"data": {"key": "2"}})).await?;

    let url = cluster.url();
    cluster.stop_apiserver();
    assert_eq!(client.text("/readyz").await.expect_err("stopped").code(), 0);
    cluster.expire_versions().await?;
    assert_eq!(cluster.url(), url);
    let exact = format!("resourceVersion={old}&resourceVersionMatch=Exact");
    let expired = client.list(&CONFIG_MAPS, "default", &exact).await.expect_err("compacted");
    assert_eq!(expired.code(), 410, "{expired}");
    let query = format!("resourceVersion={old}");
    let event = match client.watch(&CONFIG_MAPS, "default", &query).await {
        Ok(mut watch) => watch.next(SOON).await.expect("an answer")["object"]["code"].clone(),
        Err(error) => json!(error.code()),
    };
    assert_eq!(event, 410);

    let snapshot = cluster.snapshot().await?;
    client.patch(&CONFIG_MAPS, "default", "a", &json!({"data": {"key": "3"}})).await?;
    cluster.restore(&snapshot).await?;
    let restored = client.get(&CONFIG_MAPS, "default", "a").await?;
    assert_eq!(restored["data"]["key"], "2");

    let requests = cluster.audit().since(Mark::START).await?.by_agent("operator-e2e");
    assert_eq!(requests.writes().of("configmaps").len(), 3, "restarts keep the audit log: {requests}");
    Ok(())
}

/// A client through the proxy, as the administrator.
fn through(proxy: &operator_e2e::Proxy, cluster: &Cluster) -> Result<Client> {
    Client::new(&proxy.url(), None, Some(cluster.user("admin").token()), "through/1.0")
}

#[tokio::test]
async fn the_proxy_streams_pauses_ends_and_cuts_watches() -> Result<()> {
    let cluster = Cluster::shared().await;
    let namespace = cluster.namespace("proxy").await?;
    let proxy = cluster.proxy().await?;
    let client = through(&proxy, cluster)?;
    let direct = cluster.client();

    let mut watch = client.watch(&CONFIG_MAPS, &namespace, "resourceVersion=0").await?;
    direct.create(&CONFIG_MAPS, &config_map(&namespace, "a", "1")).await?;
    assert_eq!(watch.next(SOON).await.expect("open")["object"]["metadata"]["name"], "a");
    assert_eq!(proxy.open_watches(), 1);

    proxy.pause_watches();
    direct.create(&CONFIG_MAPS, &config_map(&namespace, "b", "1")).await?;
    let early = tokio::time::timeout(Duration::from_millis(300), watch.next(SOON)).await;
    assert!(early.is_err(), "a paused watch brought {early:?}");
    proxy.resume_watches();
    assert_eq!(watch.next(SOON).await.expect("open")["object"]["metadata"]["name"], "b");

    proxy.cut_watches();
    assert_eq!(watch.next(SOON).await, None);
    eventually("no watch is open", SOON, || async { proxy.open_watches() == 0 }).await;

    let mut watch = client.watch(&CONFIG_MAPS, &namespace, "resourceVersion=0").await?;
    assert!(watch.next(SOON).await.is_some());
    assert!(watch.next(SOON).await.is_some());
    proxy.end_watches();
    assert_eq!(watch.next(SOON).await, None);
    assert_eq!(proxy.count(&Match::watches()), 2);
    Ok(())
}

#[tokio::test]
async fn the_proxy_breaks_requests_as_told() -> Result<()> {
    let cluster = Cluster::shared().await;
    let namespace = cluster.namespace("faults").await?;
    let proxy = cluster.proxy().await?;
    let client = through(&proxy, cluster)?;
    let direct = cluster.client();

    let busy = proxy.inject_times(1, Match::any().path("/configmaps"), Fault::too_many_requests(1));
    assert_eq!(client.list(&CONFIG_MAPS, &namespace, "").await.expect_err("busy").code(), 429);
    client.list(&CONFIG_MAPS, &namespace, "").await?;
    assert_eq!(busy.hits(), 1);

    let lost = proxy.inject_times(1, Match::writes(), Fault::LoseAnswer);
    let create = client.create(&CONFIG_MAPS, &config_map(&namespace, "lost", "1")).await;
    assert_eq!(create.expect_err("the answer is lost").code(), 0);
    direct.get(&CONFIG_MAPS, &namespace, "lost").await?;
    drop(lost);

    let lost = proxy.inject(Match::writes(), Fault::LoseRequest);
    let create = client.create(&CONFIG_MAPS, &config_map(&namespace, "never", "1")).await;
    assert_eq!(create.expect_err("the request is lost").code(), 0);
    assert_eq!(direct.find(&CONFIG_MAPS, &namespace, "never").await?, None);
    drop(lost);

    let slow = proxy.delay_writes(Duration::from_millis(200));
    let began = Instant::now();
    client.create(&CONFIG_MAPS, &config_map(&namespace, "slow", "1")).await?;
    assert!(began.elapsed() >= Duration::from_millis(200));
    drop(slow);

    let gate = proxy.hold(Match::writes().path("/configmaps"));
    let held = tokio::spawn({
        let (client, object) = (client.clone(), config_map(&namespace, "held", "1"));
        async move { client.create(&CONFIG_MAPS, &object).await }
    });
    gate.wait_for(1, SOON).await;
    assert_eq!(direct.find(&CONFIG_MAPS, &namespace, "held").await?, None);
    gate.open();
    held.await??;

    proxy.refuse().await;
    assert_eq!(client.list(&CONFIG_MAPS, &namespace, "").await.expect_err("refused").code(), 0);
    proxy.accept().await?;
    client.list(&CONFIG_MAPS, &namespace, "").await?;
    Ok(())
}

#[tokio::test]
async fn a_deployment_becomes_ready_on_the_full_cluster() -> Result<()> {
    let cluster = Cluster::full().await?;
    let client = cluster.client();
    client.create(&DEPLOYMENTS, &deployment("default", "web", 2)).await?;
    eventually("2 of 2 replicas are ready", Duration::from_secs(90), || async {
        let status = client.get(&DEPLOYMENTS, "default", "web").await?["status"].take();
        if status["readyReplicas"] == 2 { Ok(()) } else { Err(anyhow::anyhow!("{status}")) }
    })
    .await;

    client.delete(&DEPLOYMENTS, "default", "web").await?;
    eventually("the pods are collected", Duration::from_secs(90), || async {
        client.list(&PODS, "default", "").await.is_ok_and(|pods| pods.is_empty())
    })
    .await;
    Ok(())
}

#[tokio::test]
async fn nothing_outlives_a_cluster() -> Result<()> {
    let cluster = Cluster::bare().await?;
    let folder = cluster.folder().to_owned();
    let pids = cluster.pids();
    assert_eq!(pids.len(), 2);
    drop(cluster);
    for (name, pid) in pids {
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "{name} still runs");
    }
    assert!(!folder.exists());
    Ok(())
}

/// Processes that a harness process with this id started.
fn started_by(owner: u32) -> Vec<String> {
    let mark = format!("OPERATOR_E2E_OWNER={owner}-");
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let environments = processes.filter_map(|process| {
        let environment = std::fs::read(process.path().join("environ")).ok()?;
        String::from_utf8_lossy(&environment).split('\0').find(|pair| pair.starts_with(&mark)).map(str::to_owned)
    });
    environments.collect()
}

#[tokio::test]
async fn nothing_outlives_a_process_that_is_killed() -> Result<()> {
    let mut harness = Command::new(env!("CARGO_BIN_EXE_cluster"))
        .arg("--bare")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let owner = harness.id().expect("it runs");
    let stdout = harness.stdout.take().expect("a pipe");
    let line = BufReader::new(stdout).lines().next_line().await?.expect("a line once it is ready");
    let kubeconfig = line.strip_prefix("export KUBECONFIG=").expect("the kubeconfig");
    assert!(std::path::Path::new(kubeconfig).exists());
    assert_eq!(started_by(owner).len(), 2);

    harness.kill().await?;
    eventually("all that it started is gone, files too", SOON, || async {
        started_by(owner).is_empty() && !std::path::Path::new(kubeconfig).exists()
    })
    .await;
    Ok(())
}
