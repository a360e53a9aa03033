//! A primary type that moves on to another version: its children stay as they are, though they still name the old one.

use std::time::Duration;

use operator_e2e::client::CONFIG_MAPS;
use operator_e2e::folder::Folder;
use operator_e2e::objects::{PROBE_CRD, config_map, wanting};
use operator_e2e::{Mark, Probes, Requests, Result, eventually, modules};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(60);
const NAMES: [&str; 3] = ["edited", "deleted", "robbed"];

/// The definition of Probes with these versions: name, whether it is served, whether it is stored.
fn definition(versions: &[(&str, bool, bool)]) -> Result<Value> {
    let mut crd: Value = serde_json::from_str(PROBE_CRD)?;
    let version = |(name, served, stored): &(&str, bool, bool)| {
        let mut version = crd["spec"]["versions"][0].clone();
        (version["name"], version["served"], version["storage"]) = (json!(name), json!(served), json!(stored));
        version
    };
    let versions: Vec<Value> = versions.iter().map(version).collect();
    crd["spec"]["versions"] = json!(versions);
    Ok(crd)
}

/// Waits until this host has had a pass of every Probe.
async fn all_passed(probes: &Probes) {
    for name in NAMES {
        probes.passed(name, 1).await;
    }
}

/// The children that were written since then.
async fn written(probes: &Probes, mark: Mark) -> Result<Requests> {
    Ok(probes.requests_since(mark).await?.writes().of("configmaps"))
}

/// What the ConfigMap says of its owners: the version of each.
async fn owners(probes: &Probes, name: &str) -> Result<Vec<Value>> {
    let child = probes.get(&CONFIG_MAPS, name).await?;
    let owners = child["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    Ok(owners.into_iter().map(|owner| owner["apiVersion"].clone()).collect())
}

#[tokio::test]
async fn a_primary_type_at_another_version_writes_no_child_and_keeps_the_old_owner_reference() -> Result<()> {
    let (old, new) = ("fixtures.example.com/v1", "fixtures.example.com/v2");
    let build = |version: &'static str, primary: &'static str| async move {
        modules::probe_with(&json!({"plan": "probe", "version": version, "primary": primary})).await
    };
    let folder = Folder::new("module")?;
    let file = folder.write("probe.wasm", build("0.1.0", old).await?)?;
    let mut probes = Probes::start_file(&file, "versions", &[]).await?;
    for name in NAMES {
        probes.want(name, &[config_map(name, "1")]).await?;
    }
    for name in NAMES {
        probes.settles(name).await;
    }

    // The cluster moves on first; a host that works with the old version goes on.
    let mark = probes.mark().await?;
    probes.cluster.apply(&definition(&[("v1", true, false), ("v2", true, true)])?.to_string()).await?;
    probes.look_again("edited").await?;
    let second = build("0.2.0", new).await?;
    let replaced = async { folder.write("probe.wasm", second).map(drop) };
    probes.restart_after(replaced).await?;
    all_passed(&probes).await;
    assert!(probes.host.log_contains("primary=Probe.fixtures.example.com/v2"), "{}", probes.host.log());
    let writes = written(&probes, mark).await?;
    assert!(writes.is_empty(), "the move itself wrote: {writes}");
    for name in NAMES {
        assert_eq!(owners(&probes, name).await?, [old]);
    }

    // What has to be written is written once, and is still the same owner's.
    probes.set("edited", wanting(&[config_map("edited", "2")])).await?;
    let is_edited = |object: &Value| object["data"]["key"] == "2";
    probes.object(&CONFIG_MAPS, "edited", "the edit is carried out", is_edited).await;
    let stripped = json!({"metadata": {"labels": null}});
    probes.client.patch(&CONFIG_MAPS, &probes.namespace, "robbed", &stripped).await?;
    let is_labelled = |object: &Value| object["metadata"]["labels"]["operatorhost.dev/installation"].is_string();
    probes.object(&CONFIG_MAPS, "robbed", "the label is restored", is_labelled).await;
    probes.client.delete(&CONFIG_MAPS, &probes.namespace, "deleted").await?;
    eventually("the child is back", SOON, || probes.get(&CONFIG_MAPS, "deleted")).await;
    for name in NAMES {
        probes.look_again(name).await?;
        probes.settles(name).await;
    }
    let writes = written(&probes, mark).await?;
    let writes = writes.by_agent("operator-host/");
    assert_eq!(writes.len(), 3, "one each: {writes}");
    assert_eq!(owners(&probes, "edited").await?, [old]);
    assert_eq!(owners(&probes, "robbed").await?, [old]);
    assert_eq!(owners(&probes, "deleted").await?, [new], "a new child names the new version");

    // The old version is served no more.
    let mark = probes.mark().await?;
    probes.cluster.apply(&definition(&[("v1", false, false), ("v2", true, true)])?.to_string()).await?;
    probes.restart().await?;
    all_passed(&probes).await;
    let writes = probes.requests_since(mark).await?.writes();
    assert!(writes.is_empty(), "{writes}");
    Ok(())
}
