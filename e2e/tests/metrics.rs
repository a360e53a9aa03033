//! `/metrics` beside what happens: what an object's life moves, and what stays still.

use std::collections::BTreeMap;
use std::time::Duration;

use operator_e2e::builds::Builds;
use operator_e2e::client::{CONFIG_MAPS, DEPLOYMENTS, Resource};
use operator_e2e::cluster::ADMIN;
use operator_e2e::host::operator;
use operator_e2e::metrics::Page;
use operator_e2e::objects::{WEB_APPS, config_map, web_app};
use operator_e2e::{Client, Cluster, Host, Mark, Match, MetricsPort, Probes, Result, Stage, eventually, modules};
use serde_json::json;

const SOON: Duration = Duration::from_secs(60);

/// Waits until the page shows this sum.
async fn shows(port: &MetricsPort, name: &str, labels: &[(&str, &str)], wanted: f64) {
    eventually(&format!("{name}{labels:?} is {wanted}"), SOON, || async {
        let sum = port.scrape().await?.sum(name, labels)?;
        anyhow::ensure!(sum == wanted, "{sum}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn the_life_of_a_webapp_moves_what_it_should_and_requests_are_as_many_as_the_server_saw() -> Result<()> {
    let port = MetricsPort::free()?;
    let mut stage = Stage::open("measured", modules::webapp().await?, &[&port.argument()]).await?;
    stage.host.wait_ready().await?;
    let webapps = [("kind", "WebApp"), ("group", "webapp.example.com"), ("version", "v1")];
    let before = port.scrape().await?;
    assert_eq!(before.sum("operator_children_total", &[])?, 0.0);
    assert_eq!(before.sum("operator_store_objects", &webapps)?, 0.0);
    assert_eq!(before.sum("operator_watch_synced", &webapps)?, 1.0);
    assert_eq!(before.sum("operator_module_info", &[("module", "webapp")])?, 1.0);

    stage.client.create(&WEB_APPS, &web_app(&stage.namespace, "shop")).await?;
    stage.settled(&WEB_APPS, "shop").await;
    stage.quiesce(&WEB_APPS, "shop").await?;
    shows(&port, "workqueue_depth", &[], 0.0).await;
    shows(&port, "controller_runtime_active_workers", &[("controller", "webapp")], 0.0).await;
    let page = port.scrape().await?;
    let children = |action| page.sum("operator_children_total", &[("module", "webapp"), ("action", action)]);
    assert_eq!((children("create")?, children("change")?, children("delete")?), (2.0, 0.0, 0.0));
    let succeeded = [("controller", "webapp"), ("result", "success")];
    assert!(page.sum("controller_runtime_reconcile_total", &succeeded)? >= 1.0);
    assert_eq!(page.sum("controller_runtime_reconcile_errors_total", &[])?, 0.0);
    assert_eq!(page.sum("operator_store_objects", &webapps)?, 1.0);
    assert!(page.sum("operator_store_bytes", &webapps)? > 100.0);
    for times in ["controller_runtime_reconcile_time_seconds", "workqueue_work_duration_seconds"] {
        let passes = page.sum("controller_runtime_reconcile_total", &[])?;
        assert_eq!(page.sum(&format!("{times}_count"), &[])?, passes, "{times}");
    }
    writes_agree(&stage, &page).await?;

    stage.client.patch(&WEB_APPS, &stage.namespace, "shop", &json!({"spec": {"replicas": 5}})).await?;
    let scaled = |deployment: &serde_json::Value| deployment["spec"]["replicas"] == 5;
    stage.object(&DEPLOYMENTS, "shop", "the Deployment follows", scaled).await;
    shows(&port, "operator_children_total", &[("action", "change")], 1.0).await;
    stage.client.delete(&WEB_APPS, &stage.namespace, "shop").await?;
    shows(&port, "operator_store_objects", &webapps, 0.0).await;
    Ok(())
}

/// Writes by code: as the page counts them, and as the API server's audit log does.
async fn writes_agree(stage: &Stage, page: &Page) -> Result<()> {
    let writes = stage.requests_since(Mark::START).await?.writes();
    let mut seen: BTreeMap<u16, f64> = BTreeMap::new();
    for write in &writes {
        *seen.entry(write.code).or_default() += 1.0;
    }
    assert!(seen.len() >= 2, "creates and a status:\n{writes}");
    for (code, count) in seen {
        let labels = [("code", &*code.to_string()), ("method", "PATCH")];
        assert_eq!(page.sum("rest_client_requests_total", &labels)?, count, "{code}:\n{writes}");
    }
    // Lists, watches and discovery.
    assert!(page.sum("rest_client_requests_total", &[("code", "200"), ("method", "GET")])? >= 3.0);
    Ok(())
}

#[tokio::test]
async fn a_module_that_fails_moves_the_class_of_its_failure() -> Result<()> {
    let port = MetricsPort::free()?;
    let probes = Probes::start_wasi("classes", &["--cpu-timeout=300ms", &port.argument()]).await?;
    let classes =
        [("loop", "timeout"), ("eat-memory", "out_of_memory"), ("panic", "trapped"), ("big-output", "limit_exceeded")];
    for (behaviour, class) in classes {
        let outcome = [("module", "probe"), ("outcome", class)];
        assert_eq!(port.scrape().await?.sum("operator_module_calls_total", &outcome)?, 0.0, "{class}");
        probes.create(behaviour, json!({"behaviour": behaviour})).await?;
        probes.refused(behaviour).await;
        assert!(port.scrape().await?.sum("operator_module_calls_total", &outcome)? >= 1.0, "{class}");
        probes.set(behaviour, json!({})).await?;
        probes.settles(behaviour).await;
    }
    let page = port.scrape().await?;
    assert!(page.sum("controller_runtime_reconcile_total", &[("result", "error")])? >= 4.0);
    assert!(page.sum("workqueue_retries_total", &[("name", "probe")])? >= 4.0);
    assert_eq!(page.sum("controller_runtime_terminal_reconcile_errors_total", &[])?, 0.0);

    let failure = json!({"terminal": true, "reason": "Never", "message": "it can't be done"});
    probes.create("never", json!({"failure": failure})).await?;
    probes.reconciled("never", "Never").await;
    shows(&port, "controller_runtime_terminal_reconcile_errors_total", &[("controller", "probe")], 1.0).await;
    assert_eq!(port.scrape().await?.sum("operator_module_calls_total", &[("outcome", "failure")])?, 1.0);
    assert_eq!(port.scrape().await?.sum("controller_runtime_reconcile_panics_total", &[])?, 0.0);
    Ok(())
}

#[tokio::test]
async fn a_page_that_is_asked_for_while_hundreds_of_objects_are_worked_on_is_whole_and_only_counts_up() -> Result<()> {
    const OBJECTS: u16 = 200;
    let port = MetricsPort::free()?;
    let probes = Probes::start("busy", &[&port.argument()]).await?;
    for number in 0..OBJECTS {
        let name = format!("object-{number}");
        probes.want(&name, &[config_map(&name, "1")]).await?;
    }
    let (mut before, mut pages) = (BTreeMap::new(), 0);
    loop {
        let page = port.scrape().await?;
        let counted = page.counted();
        for (name, value) in &before {
            assert!(counted.get(name).is_some_and(|now| now >= value), "{name} was {value}: {counted:?}");
        }
        (before, pages) = (counted, pages + 1);
        if page.sum("operator_children_total", &[("action", "create")])? == f64::from(OBJECTS) {
            break;
        }
        let last = probes.host.passes().last().cloned();
        assert!(pages < 100_000, "not all are made: {last:?}");
    }
    for number in 0..OBJECTS {
        probes.settles(&format!("object-{number}")).await;
    }
    let page = port.scrape().await?;
    assert_eq!(page.sum("operator_store_objects", &[("kind", "ConfigMap")])?, f64::from(OBJECTS));
    assert!(page.sum("workqueue_adds_total", &[("name", "probe")])? >= f64::from(OBJECTS));
    assert!(page.values("operator_store_objects", "kind").len() < 10, "types alone, no names of objects");
    Ok(())
}

#[tokio::test]
async fn the_leader_is_told_from_the_standby() -> Result<()> {
    let cluster = Cluster::shared().await;
    cluster.install_definitions().await?;
    let namespace = cluster.namespace("master").await?;
    let module = modules::webapp().await?;
    let host = |port: &MetricsPort| -> Result<Host> {
        let arguments = [
            format!("--namespace={namespace}"),
            format!("--installation-id={namespace}"),
            "--leader-elect".to_owned(),
            format!("--leader-election-namespace={namespace}"),
            port.argument(),
        ];
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Host::spawn(&cluster.kubeconfig(ADMIN)?, &[module], &arguments)
    };
    let lease = format!("operator-host-{namespace}");
    let name = [("name", &*lease)];
    let ports = (MetricsPort::free()?, MetricsPort::free()?);
    let mut first = host(&ports.0)?;
    first.wait_log("leading: the Lease is held by this process", SOON).await;
    shows(&ports.0, "leader_election_master_status", &name, 1.0).await;
    let second = host(&ports.1)?;
    second.wait_log("standing by: the Lease is held by", SOON).await;
    shows(&ports.1, "leader_election_master_status", &name, 0.0).await;
    assert!(first.sigterm().await?.success());
    shows(&ports.1, "leader_election_master_status", &name, 1.0).await;
    Ok(())
}

#[tokio::test]
async fn a_swap_is_counted_and_the_build_that_runs_is_named() -> Result<()> {
    let port = MetricsPort::free()?;
    let plan = |version| json!({"plan": "probe", "version": version, "label": "one"});
    let builds = Builds::start("swaps", &plan("0.1.0"), &[&port.argument()]).await?;
    builds.swap(&modules::probe_with(&plan("0.2.0")).await?).await?;
    shows(&port, "operator_module_swaps_total", &[("module", "probe"), ("result", "swapped")], 1.0).await;
    builds.install(b"not a module")?;
    shows(&port, "operator_module_swaps_total", &[("module", "probe"), ("result", "refused")], 1.0).await;
    let page = port.scrape().await?;
    assert_eq!(page.values("operator_module_info", "version"), ["0.2.0".to_owned()].into());
    Ok(())
}

#[tokio::test]
async fn each_thing_that_is_done_to_children_is_counted_by_its_name() -> Result<()> {
    let port = MetricsPort::free()?;
    let probes = Probes::start("actions", &[&port.argument()]).await?;
    let mut foreign = config_map("taken", "theirs");
    foreign["metadata"]["namespace"] = json!(probes.namespace);
    probes.client.create(&CONFIG_MAPS, &foreign).await?;
    probes.want("refused", &[config_map("taken", "ours")]).await?;
    probes.reconciled("refused", "ChildNotOwned").await;

    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "account"}});
    let secret = |type_: &str| {
        json!({
            "object": {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secret"}, "type": type_},
            "onImmutable": "Recreate",
        })
    };
    let others = [json!({"object": config_map("map", "1")}), json!({"object": account, "onPrune": "Orphan"})];
    let wanting = |type_| {
        let [map, account] = &others;
        json!({"children": [map, account, secret(type_)]})
    };
    probes.create("life", wanting("example.com/one")).await?;
    probes.settles("life").await;
    probes.set("life", wanting("example.com/two")).await?;
    probes.settles("life").await;
    probes.set("life", json!({"children": [secret("example.com/two")]})).await?;
    probes.settles("life").await;

    let page = port.scrape().await?;
    let counted = |action| page.sum("operator_children_total", &[("module", "probe"), ("action", action)]);
    assert!(counted("refuse")? >= 1.0);
    for (action, count) in [("create", 4.0), ("change", 0.0), ("recreate", 1.0), ("delete", 1.0), ("orphan", 1.0)] {
        assert_eq!(counted(action)?, count, "{action}");
    }
    Ok(())
}

#[tokio::test]
async fn an_outage_shows_as_errors_an_open_breaker_and_watches_that_began_again() -> Result<()> {
    let port = MetricsPort::free()?;
    let probes = Probes::start("outages", &[&port.argument()]).await?;
    let restarts = [("kind", "Probe"), ("group", "fixtures.example.com")];
    assert_eq!(port.scrape().await?.sum("operator_watch_restarts_total", &restarts)?, 0.0);
    shows(&port, "operator_breaker_open", &[], 0.0).await;

    probes.proxy.refuse().await;
    shows(&port, "operator_breaker_open", &[], 1.0).await;
    assert!(port.scrape().await?.sum("rest_client_requests_total", &[("code", "<error>"), ("method", "GET")])? >= 1.0);
    probes.proxy.accept().await?;
    shows(&port, "operator_breaker_open", &[], 0.0).await;
    eventually("the watch was opened again", SOON, || async {
        let sum = port.scrape().await?.sum("operator_watch_restarts_total", &restarts)?;
        anyhow::ensure!(sum >= 1.0, "{sum}");
        Ok(())
    })
    .await;
    Ok(())
}

#[tokio::test]
async fn the_page_is_for_those_who_may_read_it_where_that_is_asked_for() -> Result<()> {
    let cluster = Cluster::shared().await;
    let port = MetricsPort::free()?;
    let arguments = [&*port.argument(), "--metrics-authorization"];
    let mut stage = Stage::open("authorized", modules::webapp().await?, &arguments).await?;
    stage.host.wait_ready().await?;
    let (client, namespace) = (&stage.client, &stage.namespace);
    let accounts = Resource::new("v1", "serviceaccounts");
    for name in ["reader", "stranger"] {
        let account =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}});
        client.create(&accounts, &account).await?;
    }
    // What `operator rbac` prints for readers.
    let module = modules::webapp().await?.display().to_string();
    let printed =
        operator(&["rbac", "--module", &module, "--service-account=measured", "--metrics-authorization"], None).await?;
    let role = printed.stdout.split("---\n").find(|document| document.contains("nonResourceURLs"));
    cluster.apply(role.unwrap_or_else(|| panic!("no role for readers:\n{}", printed.stdout))).await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "measured-metrics-reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
    });
    client.create(&Resource::new("rbac.authorization.k8s.io/v1", "clusterrolebindings"), &binding).await?;

    let ask = async |token: Option<&str>| {
        let client = Client::new(&port.url(), None, token, "scraper")?;
        Ok::<_, anyhow::Error>(client.text("/metrics").await.map_err(|error| error.code()))
    };
    assert_eq!(ask(None).await?, Err(401));
    assert_eq!(ask(Some("made up")).await?, Err(401));
    let stranger = cluster.service_account(namespace, "stranger").await?;
    assert_eq!(ask(Some(stranger.token())).await?, Err(403));
    let reader = cluster.service_account(namespace, "reader").await?;
    let page = ask(Some(reader.token())).await?;
    assert!(page.as_ref().is_ok_and(|page| page.contains("operator_module_info")), "{page:?}");

    // Asked once a minute and token.
    let reviews = || stage.proxy.count(&Match::any().path("reviews"));
    let before = reviews();
    for _ in 0..5 {
        assert!(ask(Some(reader.token())).await?.is_ok());
        assert_eq!(ask(Some("made up")).await?, Err(401));
    }
    assert_eq!(reviews(), before);
    Ok(())
}
