//! What an account may do, and what it did: rights as RBAC knows them.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::audit::Requests;
use crate::client::{Client, Resource};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// A verb on a resource: `patch`, `webapps.webapp.example.com/status`.
pub type Right = (String, String);

/// Everything that the roles allow which are bound to service accounts of this namespace.
///
/// # Errors
/// When the server does not answer.
///
/// # Panics
/// When there are none.
pub async fn granted(client: &Client, namespace: &str) -> crate::Result<BTreeSet<Right>> {
    let mut rights = BTreeSet::new();
    for bindings in ["clusterrolebindings", "rolebindings"] {
        for binding in client.list(&Resource::new(RBAC, bindings), "", "").await? {
            let subjects = binding["subjects"].as_array().into_iter().flatten();
            let ours = |subject: &&Value| subject["kind"] == "ServiceAccount" && subject["namespace"] == namespace;
            if subjects.filter(ours).count() > 0 {
                rights.extend(rights_of(&role(client, &binding).await?));
            }
        }
    }
    assert!(!rights.is_empty(), "nothing is bound to the accounts of {namespace}");
    Ok(rights)
}

/// What requests asked for, those left out that are about no resource.
#[must_use]
pub fn used_by(requests: &Requests) -> BTreeSet<Right> {
    let of_resources = requests.iter().filter(|record| !record.resource.is_empty());
    let right = |record: &crate::audit::Record| {
        let sub = if record.subresource.is_empty() { "" } else { "/" };
        (record.verb.clone(), format!("{}{sub}{}", record.resource, record.subresource))
    };
    of_resources.map(right).collect()
}

async fn role(client: &Client, binding: &Value) -> crate::Result<Value> {
    let name = binding["roleRef"]["name"].as_str().unwrap_or_default();
    Ok(match binding["roleRef"]["kind"].as_str() {
        Some("Role") => {
            let namespace = binding["metadata"]["namespace"].as_str().unwrap_or_default();
            client.get(&Resource::new(RBAC, "roles"), namespace, name).await?
        }
        _ => client.get(&Resource::new(RBAC, "clusterroles"), "", name).await?,
    })
}

fn rights_of(role: &Value) -> BTreeSet<Right> {
    let rules = role["rules"].as_array().into_iter().flatten();
    let rights = rules.flat_map(|rule| {
        let verbs = texts(&rule["verbs"]);
        resources(rule)
            .into_iter()
            .flat_map(move |resource| verbs.clone().into_iter().map(move |verb| (verb, resource.clone())))
    });
    rights.collect()
}

/// The resources of a rule with their groups: `deployments.apps`, `webapps.webapp.example.com/status`.
///
/// # Panics
/// At a wildcard.
#[must_use]
pub fn resources(rule: &Value) -> Vec<String> {
    let groups = texts(&rule["apiGroups"]);
    assert!(!rule.to_string().contains('*'), "a wildcard: {rule}");
    let of_group = |resource: String| {
        let (resource, subresource) = match resource.split_once('/') {
            Some((resource, subresource)) => (resource, format!("/{subresource}")),
            None => (resource.as_str(), String::new()),
        };
        let dotted = |group: &String| if group.is_empty() { String::new() } else { format!(".{group}") };
        groups.iter().map(|group| format!("{resource}{}{subresource}", dotted(group))).collect::<Vec<_>>()
    };
    texts(&rule["resources"]).into_iter().flat_map(of_group).collect()
}

/// The texts of a list.
#[must_use]
pub fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
