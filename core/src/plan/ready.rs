//! Whether a live child is ready, so that the next wave may be applied: as `kubectl rollout status` and `kubectl wait` see it.

use crate::object::Stored;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Whether the object does what it is there for: rolled out, complete, bound, established; else its `Ready` condition, where it has one;
/// else it is enough that it exists. One that is being deleted is not ready.
pub fn is_ready(object: &Stored) -> bool {
    if object.meta.terminating {
        return false;
    }
    let type_ref = &object.meta.type_ref;
    match (type_ref.group(), type_ref.kind.as_str()) {
        ("apps", "Deployment") => is_current(object) && deployment(&part(object, "spec"), &part(object, "status")),
        ("apps", "StatefulSet") => is_current(object) && stateful_set(&part(object, "spec"), &part(object, "status")),
        ("apps", "DaemonSet") => is_current(object) && daemon_set(&part(object, "status")),
        ("batch", "Job") => condition(object, "Complete") == Some(true),
        ("", "PersistentVolumeClaim") => part::<Phase>(object, "status").phase.as_deref() == Some("Bound"),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => condition(object, "Established") == Some(true),
        _ => condition(object, "Ready").unwrap_or(true),
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    replicas: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    observed_generation: Option<i64>,
    replicas: i64,
    updated_replicas: i64,
    ready_replicas: i64,
    available_replicas: i64,
    desired_number_scheduled: i64,
    updated_number_scheduled: i64,
    number_available: i64,
    current_revision: Option<String>,
    update_revision: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Phase {
    phase: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Conditions {
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    observed_generation: Option<i64>,
}

/// A part of the object; of one that is written in another way nothing is known.
fn part<T: DeserializeOwned + Default>(object: &Stored, field: &str) -> T {
    object.part(&[field]).and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

/// Whether its status is about its present spec.
fn is_current(object: &Stored) -> bool {
    part::<Status>(object, "status").observed_generation >= object.meta.generation
}

/// kubectl's `DeploymentStatusViewer`.
fn deployment(spec: &Spec, status: &Status) -> bool {
    let wanted = spec.replicas.unwrap_or(1);
    status.updated_replicas >= wanted
        && status.replicas <= status.updated_replicas
        && status.available_replicas >= status.updated_replicas
}

/// kubectl's `StatefulSetStatusViewer`, without partitions.
fn stateful_set(spec: &Spec, status: &Status) -> bool {
    status.ready_replicas >= spec.replicas.unwrap_or(1) && status.current_revision == status.update_revision
}

/// kubectl's `DaemonSetStatusViewer`.
fn daemon_set(status: &Status) -> bool {
    status.updated_number_scheduled >= status.desired_number_scheduled
        && status.number_available >= status.desired_number_scheduled
}

/// What a condition of the present generation says; None where there is none of this type.
fn condition(object: &Stored, type_: &str) -> Option<bool> {
    let conditions = part::<Conditions>(object, "status").conditions;
    let condition = conditions.iter().find(|condition| condition.type_ == type_)?;
    let is_current = condition.observed_generation.is_none_or(|observed| Some(observed) >= object.meta.generation);
    Some(is_current && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::TypeRef;
    use crate::object::Decoder;
    use serde_json::{Value, json};

    fn ready(api_version: &str, kind: &str, rest: Value) -> bool {
        let mut object =
            json!({"metadata": {"name": "a", "namespace": "d", "uid": "u", "resourceVersion": "1", "generation": 2}});
        object.as_object_mut().expect("an object").extend(rest.as_object().expect("an object").clone());
        let bytes = object.to_string();
        let decoder = Decoder::new::<&str>([]);
        is_ready(&decoder.decode(bytes.as_bytes(), &TypeRef::new(api_version, kind), None).expect("decodes"))
    }

    #[test]
    fn a_deployment_is_ready_when_its_present_spec_is_rolled_out() {
        let of = |observed: i64, replicas: i64, updated: i64, available: i64| {
            let status = json!({"observedGeneration": observed, "replicas": replicas, "updatedReplicas": updated, "availableReplicas": available});
            ready("apps/v1", "Deployment", json!({"spec": {"replicas": 2}, "status": status}))
        };
        assert!(of(2, 2, 2, 2));
        assert!(!of(1, 2, 2, 2), "its status is about an earlier spec");
        assert!(!of(2, 3, 2, 2), "old pods are left");
        assert!(!of(2, 2, 2, 1), "one is not available");
        assert!(!ready("apps/v1", "Deployment", json!({"spec": {}})), "nobody has looked at it");
        let none = json!({"spec": {"replicas": 0}, "status": {"observedGeneration": 2}});
        assert!(ready("apps/v1", "Deployment", none));
    }

    #[test]
    fn sets_jobs_claims_and_definitions_have_words_of_their_own() {
        let status = |status: Value| json!({"spec": {"replicas": 1}, "status": status});
        let set = |current: &str| {
            status(
                json!({"observedGeneration": 2, "readyReplicas": 1, "currentRevision": current, "updateRevision": "b"}),
            )
        };
        assert!(ready("apps/v1", "StatefulSet", set("b")) && !ready("apps/v1", "StatefulSet", set("a")));
        let daemons = |available: i64| {
            status(
                json!({"observedGeneration": 2, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3, "numberAvailable": available}),
            )
        };
        assert!(ready("apps/v1", "DaemonSet", daemons(3)) && !ready("apps/v1", "DaemonSet", daemons(2)));
        let done = |type_: &str, is: &str| status(json!({"conditions": [{"type": type_, "status": is}]}));
        assert!(ready("batch/v1", "Job", done("Complete", "True")) && !ready("batch/v1", "Job", json!({})));
        assert!(ready("v1", "PersistentVolumeClaim", status(json!({"phase": "Bound"}))));
        assert!(!ready("v1", "PersistentVolumeClaim", status(json!({"phase": "Pending"}))));
        assert!(ready("apiextensions.k8s.io/v1", "CustomResourceDefinition", done("Established", "True")));
    }

    #[test]
    fn others_go_by_their_ready_condition_or_by_being_there() {
        let said = |is: &str, observed: i64| json!({"status": {"conditions": [{"type": "Ready", "status": is, "observedGeneration": observed}]}});
        assert!(ready("example.com/v1", "Database", said("True", 2)));
        assert!(!ready("example.com/v1", "Database", said("False", 2)));
        assert!(!ready("example.com/v1", "Database", said("True", 1)), "about an earlier spec");
        assert!(ready("v1", "ConfigMap", json!({"data": {}})));
    }
}
