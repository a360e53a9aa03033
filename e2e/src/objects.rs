//! Objects that tests make, and what tests read in them.

use serde_json::{Value, json};

use crate::client::Resource;

/// WebApps.
pub const WEB_APPS: Resource<'static> = Resource::new("webapp.example.com/v1", "webapps");
/// Probes, of the fixture that does what its objects say.
pub const PROBES: Resource<'static> = Resource::new("fixtures.example.com/v1", "probes");

/// The definition of WebApps, YAML.
pub const WEB_APP_CRD: &str = include_str!("../../crds/webapp/webapps.yaml");
/// The definition of Probes, JSON.
pub const PROBE_CRD: &str = include_str!("../../guest-fixtures/crds/probes.json");

/// Askers, of the fixture that asks for related objects.
pub const ASKERS: Resource<'static> = Resource::new("fixtures.example.com/v1", "askers");
/// The definition of Askers, JSON.
pub const ASKER_CRD: &str = include_str!("../../guest-fixtures/crds/askers.json");

/// Keepers, of the fixture that has hooks for an object's end.
pub const KEEPERS: Resource<'static> = Resource::new("fixtures.example.com/v1", "keepers");
/// The definition of Keepers, JSON.
pub const KEEPER_CRD: &str = include_str!("../../guest-fixtures/crds/keepers.json");

/// Explorers, of the fixture that works outside the cluster.
pub const EXPLORERS: Resource<'static> = Resource::new("fixtures.example.com/v1", "explorers");
/// The definition of Explorers, JSON.
pub const EXPLORER_CRD: &str = include_str!("../../guest-fixtures/crds/explorers.json");

/// Widgets, a child type that the fixture `probe` can do without.
pub const WIDGETS: Resource<'static> = Resource::new("example.com/v1", "widgets");
/// The definition of Widgets, JSON.
pub const WIDGET_CRD: &str = include_str!("../../guest-fixtures/crds/widgets.json");

/// A WebApp with two replicas.
#[must_use]
pub fn web_app(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": WEB_APPS.api_version,
        "kind": "WebApp",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"image": "example.test/web:1", "replicas": 2, "port": 8080},
    })
}

/// A WebApp of this image.
#[must_use]
pub fn web_app_of(namespace: &str, name: &str, image: &str) -> Value {
    let mut object = web_app(namespace, name);
    object["spec"]["image"] = json!(image);
    object
}

/// A Probe with this spec.
#[must_use]
pub fn probe(namespace: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": PROBES.api_version,
        "kind": "Probe",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    })
}

/// The spec of a Probe that wants these objects.
#[must_use]
pub fn wanting(objects: &[Value]) -> Value {
    let children: Vec<Value> = objects.iter().map(|object| json!({"object": object})).collect();
    json!({"children": children})
}

/// A ConfigMap as a child.
#[must_use]
pub fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": value}})
}

/// The condition of this type; `null` when there is none.
#[must_use]
pub fn condition<'a>(object: &'a Value, type_: &str) -> &'a Value {
    const NONE: &Value = &Value::Null;
    let conditions = object["status"]["conditions"].as_array();
    conditions.and_then(|conditions| conditions.iter().find(|condition| condition["type"] == type_)).unwrap_or(NONE)
}

/// Whether the object's condition `Reconciled` is True for its present generation; what it says instead.
///
/// # Errors
/// While it isn't.
pub fn is_settled(object: &Value) -> crate::Result<()> {
    let reconciled = condition(object, "Reconciled");
    let observed = &reconciled["observedGeneration"];
    let current = observed.is_null() || *observed == object["metadata"]["generation"];
    anyhow::ensure!(reconciled["status"] == "True" && current, "{}", object["status"]);
    Ok(())
}
