//! Children that are as wanted, and how the host knows: what the server stores in other words, and what users strip.

use std::time::Duration;

use operator_e2e::client::{CONFIG_MAPS, DEPLOYMENTS, SECRETS, Watch};
use operator_e2e::objects::{PROBES, condition, config_map, wanting};
use operator_e2e::{Probes, Result};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);
const LABEL: &str = "operatorhost.dev/installation";
const ANNOTATION: &str = "operatorhost.dev/desired";

fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "example.test/web:1"}]},
            },
        },
    })
}

/// Values that the server stores in other words than they were sent, and values that are easily taken for absent.
fn awkward() -> Vec<Value> {
    let pod = json!({
        "containers": [{
            "name": "main",
            "image": "example.test/web:1",
            "args": [],
            "command": ["serve"],
            "env": [{"name": "EMPTY", "value": ""}, {"name": "SET", "value": "x"}],
            "ports": [
                {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
                {"name": "dns-udp", "containerPort": 53, "protocol": "UDP"},
                {"name": "http", "containerPort": 8080},
            ],
            "resources": {
                "limits": {"cpu": "1000m", "memory": "1024Mi", "ephemeral-storage": "1.5Gi"},
                "requests": {"cpu": 1, "memory": "0.5Gi"},
            },
            "securityContext": {},
            "stdin": false,
            "volumeMounts": [{"name": "scratch", "mountPath": "/scratch", "readOnly": false}],
        }],
        "nodeSelector": {},
        "tolerations": [],
        "hostNetwork": false,
        "volumes": [{"name": "scratch", "emptyDir": {}}, {"name": "sized", "emptyDir": {"sizeLimit": "1024Mi"}}],
    });
    vec![
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "awkward", "annotations": {}},
            "spec": {
                "replicas": 0,
                "paused": false,
                "selector": {"matchLabels": {"app": "awkward"}},
                "template": {"metadata": {"labels": {"app": "awkward"}}, "spec": pod},
            },
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "dns"},
            "spec": {
                "selector": {"app": "awkward"},
                "externalIPs": [],
                "ports": [
                    {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
                    {"name": "dns-udp", "port": 53, "protocol": "UDP"},
                ],
            },
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "plain"},
            "spec": {"selector": {"app": "awkward"}, "ports": [{"port": 80, "targetPort": "http"}]},
        }),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "nothing"}, "data": {}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "blank"}, "data": {"a": "", "b": "\u{85}\u{2028} x"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "plain"}, "stringData": {"a": ""}}),
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"},
            "automountServiceAccountToken": false, "imagePullSecrets": [],
        }),
    ]
}

fn awkward_spec() -> Value {
    let mut spec = wanting(&awkward());
    for child in spec["children"].as_array_mut().into_iter().flatten() {
        if child["object"]["kind"] == "ServiceAccount" {
            child["onPrune"] = json!("Orphan");
        }
    }
    spec
}

#[tokio::test]
async fn what_the_server_stores_in_other_words_is_as_wanted_and_stays_so_after_a_restart() -> Result<()> {
    let mut probes = Probes::start("words", &["--resync=1s"]).await?;
    let mark = probes.mark().await?;
    probes.create("a", awkward_spec()).await?;
    probes.settles("a").await;
    let requests = probes.requests_since(mark).await?;
    let to_children = requests.writes().matching(|record| record.resource != "probes.fixtures.example.com");
    assert_eq!(to_children.len(), awkward().len(), "one write a child: {requests}");

    let mark = probes.mark().await?;
    let passes = probes.passes_of("a");
    probes.passed("a", passes + 2).await;
    let again = probes.requests_since(mark).await?;
    assert!(again.is_empty(), "resyncs: {again}");

    probes.host.sigterm().await?;
    let mark = probes.mark().await?;
    probes.restart().await?;
    probes.passed("a", 2).await;
    let requests = probes.requests_since(mark).await?;
    let beyond_lists = requests.matching(|record| record.verb != "list");
    assert!(beyond_lists.is_empty(), "after a restart: {requests}");
    Ok(())
}

#[tokio::test]
async fn a_creation_timestamp_of_null_is_no_difference() -> Result<()> {
    let mut probes = Probes::start("nulls", &["--resync=1s"]).await?;
    let mut wanted = deployment("typed");
    // As Go's and JavaScript's typed objects are written.
    wanted["metadata"]["creationTimestamp"] = Value::Null;
    wanted["spec"]["strategy"] = json!({});
    wanted["spec"]["template"]["metadata"]["creationTimestamp"] = Value::Null;
    wanted["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({});
    wanted["status"] = json!({});
    probes.want("a", &[wanted]).await?;
    probes.settles("a").await;
    let mark = probes.mark().await?;
    let passes = probes.passes_of("a");
    probes.passed("a", passes + 2).await;
    probes.restart().await?;
    probes.passed("a", 1).await;

    let live = probes.client.get(&DEPLOYMENTS, &probes.namespace, "typed").await?;
    assert_eq!(live["metadata"]["generation"], 1);
    let writes = probes.requests_since(mark).await?.writes();
    assert!(writes.is_empty(), "{writes}");
    Ok(())
}

/// Every version of a Probe's `Reconciled` condition from here on.
async fn conditions_from(probes: &Probes, name: &str) -> Result<Watch> {
    let version = probes.client.get(&PROBES, &probes.namespace, name).await?;
    let version = version["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    let query = format!("resourceVersion={version}&fieldSelector=metadata.name={name}");
    Ok(probes.client.watch(&PROBES, &probes.namespace, &query).await?)
}

#[tokio::test]
async fn what_a_user_strips_from_a_child_is_restored_and_the_status_does_not_flap() -> Result<()> {
    let probes = Probes::start("stripped", &[]).await?;
    let spec = |children: &[Value]| {
        let mut spec = wanting(children);
        // `status.seen` lists what the module sees: a gap would show there.
        spec["report"] = json!(true);
        spec
    };
    probes.create("a", spec(&[config_map("a", "1")])).await?;
    probes.settles("a").await;
    probes
        .object(&PROBES, "a", "the module sees its child", |probe| {
            probe["status"]["seen"]["children"] == json!(["ConfigMap/a"])
        })
        .await;
    let mut versions = conditions_from(&probes, "a").await?;

    let strip_label = json!({"metadata": {"labels": {LABEL: null}}});
    let strip_annotation = json!({"metadata": {"annotations": {ANNOTATION: null}}});
    for (what, patch) in [("label", strip_label), ("annotation", strip_annotation)] {
        let mark = probes.mark().await?;
        probes.client.patch(&CONFIG_MAPS, &probes.namespace, "a", &patch).await?;
        let is_whole = |object: &Value| {
            let metadata = &object["metadata"];
            metadata["labels"][LABEL].is_string() && metadata["annotations"][ANNOTATION].is_string()
        };
        probes.object(&CONFIG_MAPS, "a", &format!("the {what} is restored"), is_whole).await;
        probes.look_again("a").await?;
        let requests = probes.requests_since(mark).await?;
        assert_eq!(requests.writes().len(), 1, "{what}: {requests}");
    }

    let mark = probes.mark().await?;
    let mut live = probes.client.get(&CONFIG_MAPS, &probes.namespace, "a").await?;
    live["metadata"]["managedFields"] = json!([{}]);
    live["data"]["theirs"] = json!("kept");
    probes.client.replace(&CONFIG_MAPS, &live).await?;
    let managers = |object: &Value| {
        let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        entries.iter().map(|entry| entry["manager"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let restored = |object: &Value| managers(object) == ["operator-host/probe"];
    probes.object(&CONFIG_MAPS, "a", "our ownership is restored, the server's entry gone", restored).await;
    probes.look_again("a").await?;
    let requests = probes.requests_since(mark).await?;
    assert_eq!(requests.writes().len(), 2, "{requests}");

    let dropped = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"other": "2"}});
    probes.set("a", spec(&[dropped])).await?;
    let really_gone = |object: &Value| object["data"] == json!({"other": "2", "theirs": "kept"});
    probes.object(&CONFIG_MAPS, "a", "a dropped field really goes", really_gone).await;
    probes.settles("a").await;

    let mut reasons = Vec::new();
    loop {
        let event = versions.next(SOON).await.expect("the watch stays open");
        let probe = &event["object"];
        assert_eq!(probe["status"]["seen"]["children"], json!(["ConfigMap/a"]), "the module saw a gap");
        let condition = condition(probe, "Reconciled");
        reasons.push(condition["reason"].clone());
        if condition["observedGeneration"] == 2 {
            break;
        }
    }
    assert!(reasons.iter().all(|reason| reason == "Settled"), "the status flapped: {reasons:?}");
    Ok(())
}

#[tokio::test]
async fn a_secret_is_written_once_and_its_plain_text_is_not_compared() -> Result<()> {
    let probes = Probes::start("secret", &[]).await?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"password": "one"},
    });
    probes.want("a", &[secret]).await?;
    probes.settles("a").await;
    let mark = probes.mark().await?;
    let drift = json!({"data": {"password": "dHdv"}});
    probes.client.patch(&SECRETS, &probes.namespace, "s", &drift).await?;
    let restored = |object: &Value| object["data"]["password"] == "b25l";
    probes.object(&SECRETS, "s", "the drift is reverted", restored).await;
    let requests = probes.requests_since(mark).await?;
    assert_eq!(requests.of("secrets").writes().len(), 1, "{requests}");
    Ok(())
}

#[tokio::test]
async fn a_label_that_was_stripped_while_no_host_ran_is_restored_by_one_write() -> Result<()> {
    let mut probes = Probes::start("unlabelled", &[]).await?;
    probes.want("a", &[config_map("a", "1")]).await?;
    probes.settles("a").await;
    let (client, namespace) = (probes.cluster.client(), probes.namespace.clone());
    let mark = probes.mark().await?;
    let strip = json!({"metadata": {"labels": {LABEL: null}}});
    probes
        .restart_after(async {
            client.patch(&CONFIG_MAPS, &namespace, "a", &strip).await.map(drop).map_err(Into::into)
        })
        .await?;
    let is_whole = |object: &Value| object["metadata"]["labels"][LABEL].is_string();
    probes.object(&CONFIG_MAPS, "a", "the label is restored", is_whole).await;
    probes.settles("a").await;
    probes.look_again("a").await?;
    let requests = probes.requests_since(mark).await?;
    let written = requests.writes().matching(|record| record.code == 200);
    assert_eq!(written.len(), 1, "{requests}");
    Ok(())
}
