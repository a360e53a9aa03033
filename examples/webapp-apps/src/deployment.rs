//! The Deployment of a WebApp: what it should be, and what it is.

use operator_guest::live::Live;
use operator_guest::{Child, Failure, OnPrune};
use serde::Deserialize;
use serde_json::json;

use crate::WebAppSpec;

/// What the label `app` can carry.
const LONGEST: usize = 63;

/// Its name, if the WebApp's own fits into a label.
pub(crate) fn name(primary: &str) -> Result<String, Failure> {
    if primary.len() <= LONGEST {
        return Ok(format!("{primary}-deployment"));
    }
    Err(Failure::terminal(
        "InvalidName",
        format!(
            "metadata.name: {primary:?} can't be the value of a label: it must be at most {LONGEST} characters; make the \
             WebApp under another name"
        ),
    ))
}

pub(crate) fn wanted(name: &str, primary: &str, spec: &WebAppSpec) -> Child {
    let labels = json!({ "app": primary, "managed-by": "webapp-operator" });
    Child::new(json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name, "labels": labels },
        "spec": {
            "replicas": spec.replicas,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "containers": [{
                        "name": "app",
                        "image": spec.image,
                        "ports": [{ "containerPort": spec.port }],
                    }],
                },
            },
        },
    }))
    .on_prune(OnPrune::Orphan)
}

/// A live Deployment, as far as telling whether it was made of a spec takes.
#[derive(Deserialize)]
pub(crate) struct Applied<'a> {
    #[serde(borrow)]
    spec: AppliedSpec<'a>,
}

#[derive(Deserialize)]
struct AppliedSpec<'a> {
    replicas: i32,
    #[serde(borrow)]
    template: Template<'a>,
}

#[derive(Deserialize)]
struct Template<'a> {
    #[serde(borrow)]
    spec: Pod<'a>,
}

#[derive(Deserialize)]
struct Pod<'a> {
    #[serde(borrow)]
    containers: Vec<Container<'a>>,
}

#[derive(Deserialize)]
struct Container<'a> {
    image: &'a str,
    #[serde(default)]
    ports: Vec<Port>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Port {
    container_port: i32,
}

impl<'a> Live<'a> for Applied<'a> {
    const API_VERSION: &'static str = "apps/v1";
    const KIND: &'static str = "Deployment";
}

impl Applied<'_> {
    pub(crate) fn is_of(&self, spec: &WebAppSpec) -> bool {
        let has_port = |container: &Container| container.ports.iter().any(|port| port.container_port == spec.port);
        let runs = |container: &Container| container.image == spec.image && has_port(container);
        self.spec.replicas == spec.replicas && self.spec.template.spec.containers.iter().any(runs)
    }
}
