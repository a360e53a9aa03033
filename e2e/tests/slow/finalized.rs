//! A namespace, and a definition, that are deleted with objects in them which wait for their module.

use std::time::Duration;

use operator_e2e::client::{NAMESPACES, Resource};
use operator_e2e::cluster::ADMIN;
use operator_e2e::expect::gone;
use operator_e2e::objects::{KEEPER_CRD, KEEPERS, config_map, is_settled};
use operator_e2e::{Client, Cluster, Host, Requests, Result, eventually, modules};
use serde_json::json;

const OBJECTS: usize = 50;
const SOON: Duration = Duration::from_secs(90);
const DEFINITIONS: Resource<'static> = Resource::new("apiextensions.k8s.io/v1", "customresourcedefinitions");

async fn keepers(client: &Client, namespace: &str) -> Result<()> {
    for number in 0..OBJECTS {
        let object = json!({
            "apiVersion": KEEPERS.api_version, "kind": "Keeper",
            "metadata": {"name": format!("k-{number}"), "namespace": namespace},
            "spec": {"children": [config_map(&format!("k-{number}"), "1")], "outside": {"observation": number}},
        });
        client.create(&KEEPERS, &object).await?;
    }
    for number in 0..OBJECTS {
        let name = format!("k-{number}");
        eventually(&format!("{name} is settled"), SOON, || async {
            is_settled(&client.get(&KEEPERS, namespace, &name).await?)
        })
        .await;
    }
    Ok(())
}

/// Each object is let go of once, and little else is asked for.
fn is_no_storm(requests: &Requests) {
    let requests = requests.by_agent("operator-host/");
    let writes = requests.writes();
    assert!(writes.verb("create").is_empty(), "{writes}");
    let finalizers = writes.of("keepers.fixtures.example.com").matching(|record| record.subresource.is_empty());
    assert_eq!(finalizers.matching(|record| record.code == 200).len(), OBJECTS, "{finalizers}");
    assert!(requests.beyond_watches().len() <= OBJECTS * 6, "{} requests:\n{requests}", requests.len());
}

#[tokio::test]
async fn a_namespace_and_a_definition_go_when_their_objects_are_cleaned_up() -> Result<()> {
    let cluster = Cluster::full().await?;
    cluster.apply(KEEPER_CRD).await?;
    let client = cluster.client();
    let mut host = Host::spawn(&cluster.kubeconfig(ADMIN)?, &[&modules::fixture("keeper").await?], &[])?;
    host.wait_ready().await?;

    let namespace = cluster.namespace("leaves").await?;
    keepers(&client, &namespace).await?;
    let mark = cluster.audit().mark().await?;
    client.delete(&NAMESPACES, "", &namespace).await?;
    gone(&client, &NAMESPACES, "", &namespace, SOON).await;
    is_no_storm(&cluster.audit().since(mark).await?.within(&namespace));

    keepers(&client, "default").await?;
    let mark = cluster.audit().mark().await?;
    client.delete(&DEFINITIONS, "", "keepers.fixtures.example.com").await?;
    gone(&client, &DEFINITIONS, "", "keepers.fixtures.example.com", SOON).await;
    is_no_storm(&cluster.audit().since(mark).await?.within("default"));

    // The definition comes back, and with it the work.
    cluster.apply(KEEPER_CRD).await?;
    keepers(&client, "default").await?;
    assert!(!host.log_contains("panicked"), "{}", host.log());
    Ok(())
}
