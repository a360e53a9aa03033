//! A StaticSite on a real control plane.

use operator_e2e::{Cluster, Result};
use serde_json::{Value, json};

const CRD: &str = include_str!("../../crds/staticsite/staticsites.yaml");

fn site(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "learn.cloudcaptain.io/v1alpha1",
        "kind": "StaticSite",
        "metadata": {"name": name},
        "spec": spec,
    })
}

/// Before any operator sees it.
#[tokio::test]
async fn the_definition_refuses_what_no_site_can_be_and_fills_in_what_is_left_out() -> Result<()> {
    let cluster = Cluster::shared().await;
    cluster.apply(CRD).await?;
    let namespace = cluster.namespace("schema").await?;
    let apply = |name: &'static str, spec: Value| {
        cluster.kubectl_command(&["apply", "-n", &namespace, "-f", "-"]).stdin(site(name, spec).to_string()).run()
    };
    let refused = [
        (json!({"content": "<p>shop</p>", "tier": "prod", "replicas": 1}), "prod sites need at least 2 replicas"),
        (json!({"content": "<p>shop</p>", "tier": "prod"}), "prod sites need at least 2 replicas"),
        (json!({"content": "<p>x</p>", "replicaz": 2}), "unknown field \"spec.replicaz\""),
        (json!({"replicas": 2}), "spec.content: Required value"),
        (json!({"content": ""}), "spec.content"),
        (json!({"content": "x", "replicas": 11}), "should be less than or equal to 10"),
        (json!({"content": "x", "tier": "test"}), "supported values: \"dev\", \"prod\""),
    ];
    for (spec, words) in refused {
        let output = apply("shop", spec.clone()).await?;
        assert!(output.code != 0 && output.stderr.contains(words), "{spec}: {words:?} is not said: {output:?}");
    }

    apply("hello", json!({"content": "<h1>hello</h1>"})).await?.ok()?;
    let stored = cluster.kubectl(&["get", "site", "hello", "-n", &namespace, "-o", "jsonpath={.spec}"]).await?.ok()?;
    let stored: Value = serde_json::from_str(&stored)?;
    assert_eq!(stored, json!({"content": "<h1>hello</h1>", "replicas": 1, "tier": "dev"}));

    let changed = apply("hello", json!({"content": "<h1>hello</h1>", "replicas": 2, "tier": "prod"})).await?;
    assert!(changed.stderr.contains("tier cannot change after creation"), "{changed:?}");
    apply("hello", json!({"content": "<h1>hello</h1>", "replicas": 2})).await?.ok()?;
    let columns = cluster.kubectl(&["get", "site", "-n", &namespace]).await?.ok()?;
    let columns: Vec<&str> = columns.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(columns, ["NAME", "REPLICAS", "READY", "REASON", "AGE"]);
    Ok(())
}
