//! The condition `Ready`: what `kubectl rollout status` would say of the Deployment.

use operator_guest::Condition;
use operator_guest::live::Deployment;

pub(crate) fn condition(deployment: Option<&Deployment>, wanted: i32, url: &str) -> Condition {
    let Some(deployment) = deployment.filter(|live| live.metadata.deletion_timestamp.is_none()) else {
        return rolling_out(0, wanted);
    };
    let status = &deployment.status;
    if status.observed_generation < deployment.metadata.generation || deployment.spec.replicas != wanted {
        // The numbers are about another spec.
        return rolling_out(0, wanted);
    }
    // Old pods that are left may still answer with the old page.
    if status.updated_replicas < wanted || status.replicas > status.updated_replicas {
        return rolling_out(status.updated_replicas, wanted);
    }
    let ready = status.ready_replicas;
    if ready < wanted {
        return Condition::is_false("Ready", "PodsNotReady", format!("{ready}/{wanted} pods ready"));
    }
    Condition::is_true("Ready", "Available", format!("{ready}/{wanted} pods ready at {url}"))
}

fn rolling_out(updated: i32, wanted: i32) -> Condition {
    Condition::is_false("Ready", "RollingOut", format!("{updated}/{wanted} pods run the current template"))
}
