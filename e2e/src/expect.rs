//! Waiting for what a user sees.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Client, ClientError, DEPLOYMENTS, EVENTS, Resource};
use crate::objects::{PROBES, condition, is_settled};
use crate::stage::{Probes, Stage};
use crate::wait::eventually;

/// How long what a user sees may take on a busy machine.
pub const SOON: Duration = Duration::from_secs(60);

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

/// Touches a primary that something is in the way of until the event that says so tells of a repetition.
pub async fn trouble_repeats(client: &Client, resource: &Resource<'_>, namespace: &str, name: &str) {
    eventually(&format!("the trouble of {name} is told to repeat"), SOON, || async {
        let touched = json!({"metadata": {"labels": {"touched": format!("{:08x}", fastrand::u32(..))}}});
        client.patch(resource, namespace, name, &touched).await?;
        let events = client.list(&EVENTS, namespace, "").await?;
        let is_it = |event: &&Value| event["regarding"]["name"] == name && event["type"] == "Warning";
        let count = events.iter().find(is_it).map(|event| event["series"]["count"].clone());
        anyhow::ensure!(count.as_ref().and_then(Value::as_u64).is_some_and(|count| count > 1), "{count:?}");
        Ok(())
    })
    .await;
}

/// The events about an object, by their reason.
///
/// # Errors
/// When the server refuses or does not answer.
pub async fn events(client: &Client, namespace: &str, name: &str, reason: &str) -> Result<Vec<Value>, ClientError> {
    let mut events = client.list(&EVENTS, namespace, "").await?;
    events.retain(|event| event["regarding"]["name"] == name && event["reason"] == reason);
    Ok(events)
}

/// Waits for the one event of this reason about an object.
///
/// # Panics
/// At the deadline, with the events that there were instead.
pub async fn event(client: &Client, namespace: &str, name: &str, reason: &str) -> Value {
    eventually(&format!("{name} has an event {reason}"), SOON, || async {
        let mut found = events(client, namespace, name, reason).await?;
        anyhow::ensure!(found.len() == 1, "{found:?}");
        Ok(found.remove(0))
    })
    .await
}

/// Waits until an object is gone.
///
/// # Panics
/// At the deadline, with the object.
pub async fn gone(client: &Client, resource: &Resource<'_>, namespace: &str, name: &str, deadline: Duration) {
    eventually(&format!("{} {name} is gone", resource.plural), deadline, || async {
        match client.find(resource, namespace, name).await? {
            None => Ok(()),
            Some(object) => Err(anyhow::anyhow!("{object}")),
        }
    })
    .await;
}

impl Stage {
    /// Waits until the host has settled the present generation of a primary, and gives it.
    pub async fn settled(&self, resource: &Resource<'_>, name: &str) -> Value {
        eventually(&format!("{name} is settled"), SOON, || async {
            let object = self.get(resource, name).await?;
            is_settled(&object).map(|()| object)
        })
        .await
    }

    /// Waits until an object is as told, and returns it.
    ///
    /// # Panics
    /// At the deadline, with the object as it is.
    pub async fn object(&self, resource: &Resource<'_>, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        eventually(what, SOON, || async {
            let object = self.client.get(resource, &self.namespace, name).await?;
            if is(&object) { Ok(object) } else { Err(anyhow::anyhow!("{object}")) }
        })
        .await
    }

    /// Waits until an object is gone.
    ///
    /// # Panics
    /// At the deadline, with the object.
    pub async fn gone(&self, resource: &Resource<'_>, name: &str) {
        gone(&self.client, resource, &self.namespace, name, SOON).await;
    }
}

impl Probes {
    /// Waits until the Probe's `Reconciled` condition is of its generation and has this reason; returns its message.
    ///
    /// # Panics
    /// At the deadline, with the condition that it had instead.
    pub async fn reconciled(&self, name: &str, reason: &str) -> String {
        let condition = reconciled(&self.client, &PROBES, &self.namespace, name, reason, SOON).await;
        condition["message"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the Probe's children are as it wants them.
    ///
    /// # Panics
    /// At the deadline, with the status.
    pub async fn settles(&self, name: &str) {
        self.reconciled(name, "Settled").await;
    }

    /// Waits until the Probe's `Reconciled` condition is False; returns its reason and its message.
    ///
    /// # Panics
    /// At the deadline, with the status.
    pub async fn refused(&self, name: &str) -> (String, String) {
        eventually(&format!("{name} is refused"), SOON, || async {
            let probe = self.get(&PROBES, name).await?;
            let condition = condition(&probe, "Reconciled");
            let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
            match condition["status"] == "False" {
                true => Ok((text("reason"), text("message"))),
                false => Err(anyhow::anyhow!("{}", probe["status"])),
            }
        })
        .await
    }
}
