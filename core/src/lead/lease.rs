//! A Lease (`coordination.k8s.io/v1`): what of it decides, and the whole of it to write back.

use super::modules::ModuleVersion;
use crate::names;
use crate::object::ResourceVersion;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// What the spec of a Lease says (client-go `LeaderElectionRecord`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Who holds it; empty: nobody does.
    pub holder: String,
    /// How long the holder may be silent.
    pub duration: Duration,
    /// When this term began, by the holder's clock.
    pub acquired: Option<Timestamp>,
    /// When it was last renewed, by the holder's clock: no more than a hint, and what makes each renewal a change.
    pub renewed: Option<Timestamp>,
    /// How often the holder changed. The server takes no more than 32 bits with a sign.
    pub transitions: i32,
}

/// A Lease as the server showed it.
#[derive(Clone, Debug)]
pub struct Lease {
    record: Record,
    modules: Vec<ModuleVersion>,
    paused: Paused,
    version: ResourceVersion,
    /// All of it: what others wrote into it is written back.
    document: Value,
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMetadata,
    #[serde(default)]
    spec: WireSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMetadata {
    resource_version: String,
    #[serde(default)]
    annotations: Option<WireAnnotations>,
}

#[derive(Deserialize)]
struct WireAnnotations {
    #[serde(rename = "operatorhost.dev/modules")]
    modules: Option<String>,
    #[serde(rename = "operatorhost.dev/paused")]
    paused: Option<String>,
}

/// Which modules are not to work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paused {
    all: bool,
    names: Vec<String>,
}

impl Paused {
    /// Reads [`names::PAUSED_ANNOTATION`]: names with commas in between, `*` for all.
    fn parse(text: &str) -> Self {
        let names: Vec<_> = text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Self { all: names.iter().any(|name| name == "*"), names }
    }

    /// Whether it names this module.
    pub fn contains(&self, module: &str) -> bool {
        self.all || self.names.iter().any(|name| name == module)
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u32>,
    acquire_time: Option<Timestamp>,
    renew_time: Option<Timestamp>,
    lease_transitions: Option<i32>,
}

impl Lease {
    /// Reads one.
    ///
    /// # Errors
    /// What is no Lease.
    pub fn parse(json: &[u8]) -> serde_json::Result<Self> {
        let document: Value = serde_json::from_slice(json)?;
        let Wire { metadata, spec } = Wire::deserialize(&document)?;
        let (modules, paused) = metadata.annotations.map_or((None, None), |found| (found.modules, found.paused));
        let record = Record {
            holder: spec.holder_identity.unwrap_or_default(),
            duration: Duration::from_secs(spec.lease_duration_seconds.unwrap_or_default().into()),
            acquired: spec.acquire_time,
            renewed: spec.renew_time,
            transitions: spec.lease_transitions.unwrap_or_default(),
        };
        Ok(Self {
            record,
            // Somebody else's text there says nothing of modules.
            modules: modules.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
            paused: paused.map(|text| Paused::parse(&text)).unwrap_or_default(),
            version: ResourceVersion::new(&metadata.resource_version),
            document,
        })
    }

    /// What its spec says.
    pub fn record(&self) -> &Record {
        &self.record
    }

    pub(super) fn paused(&self) -> &Paused {
        &self.paused
    }

    pub(super) fn modules(&self) -> &[ModuleVersion] {
        &self.modules
    }

    pub(super) fn version(&self) -> &ResourceVersion {
        &self.version
    }

    /// Body of the PUT that makes it say this. The resourceVersion in it makes the server refuse where the Lease is another by now.
    pub(super) fn replaced(&self, record: &Record, modules: &[ModuleVersion]) -> String {
        let mut document = self.document.clone();
        document["metadata"]["annotations"][names::MODULES_ANNOTATION] = text(modules).into();
        // Fields that this version does not know stay.
        if let Value::Object(fields) = spec(record) {
            fields.into_iter().for_each(|(name, value)| document["spec"][name] = value);
        }
        document.to_string()
    }

    /// Body of the POST that makes a new one.
    pub(super) fn created(namespace: &str, name: &str, record: &Record, modules: &[ModuleVersion]) -> String {
        let annotations = json!({ names::MODULES_ANNOTATION: text(modules) });
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "namespace": namespace, "name": name, "annotations": annotations },
            "spec": spec(record),
        })
        .to_string()
    }
}

fn text(modules: &[ModuleVersion]) -> String {
    // Strings in structs are always JSON.
    serde_json::to_string(modules).unwrap_or_default()
}

fn spec(record: &Record) -> Value {
    json!({
        "holderIdentity": record.holder,
        "leaseDurationSeconds": record.duration.as_secs(),
        "acquireTime": record.acquired.map(micro_time),
        "renewTime": record.renewed.map(micro_time),
        "leaseTransitions": record.transitions,
    })
}

/// As metav1.MicroTime is written.
fn micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}
