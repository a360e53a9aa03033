//! What tests wait for, and small objects that they make.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Client, ClientError, DEPLOYMENTS, Resource};
use crate::objects::{condition, web_app};
use crate::wait::eventually;

/// Widgets, a child type that the fixture `probe` can do without.
pub const WIDGETS: Resource<'static> = Resource::new("example.com/v1", "widgets");
/// The definition of Widgets, JSON.
pub const WIDGET_CRD: &str = include_str!("../../guest-fixtures/crds/widgets.json");

/// A WebApp of this image.
#[must_use]
pub fn web_app_of(namespace: &str, name: &str, image: &str) -> Value {
    let mut object = web_app(namespace, name);
    object["spec"]["image"] = json!(image);
    object
}

/// A ConfigMap as a child.
#[must_use]
pub fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": value}})
}

/// The image of a Deployment's first container.
///
/// # Errors
/// When the server refuses or does not answer.
pub async fn image(client: &Client, namespace: &str, name: &str) -> Result<String, ClientError> {
    let deployment = client.get(&DEPLOYMENTS, namespace, name).await?;
    let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
    Ok(image.as_str().unwrap_or_default().to_owned())
}

/// Waits until a Deployment has that image.
///
/// # Panics
/// At the deadline, with the image that it had instead.
pub async fn runs(client: &Client, namespace: &str, name: &str, wanted: &str, deadline: Duration) {
    eventually(&format!("{name} runs {wanted}"), deadline, || async {
        match image(client, namespace, name).await {
            Ok(image) if image == wanted => Ok(()),
            Ok(image) => Err(image),
            Err(error) => Err(error.to_string()),
        }
    })
    .await;
}

/// Waits until the condition `Reconciled` of the object's present generation has this reason, and returns the condition.
///
/// # Panics
/// At the deadline, with the condition that it had instead.
pub async fn reconciled(
    client: &Client,
    resource: &Resource<'_>,
    namespace: &str,
    name: &str,
    reason: &str,
    deadline: Duration,
) -> Value {
    eventually(&format!("{name} is Reconciled: {reason}"), deadline, || async {
        let object = client.get(resource, namespace, name).await.map_err(|error| error.to_string())?;
        let condition = condition(&object, "Reconciled");
        let is_current = condition["observedGeneration"] == object["metadata"]["generation"];
        if is_current && condition["reason"] == reason { Ok(condition.clone()) } else { Err(condition.to_string()) }
    })
    .await
}
