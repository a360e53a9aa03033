//! The URL of a watch, and what an error means for it.

use crate::api::ApiError;
use crate::api::discovery::Resource;
use crate::api::escape::escape;
use operator_core::names::INSTALLATION_LABEL;
use operator_core::reflector::{Fault, Request};
use operator_core::table::Scope;

/// The label selector of a watch in a table of a selection, or of a type.
pub(super) fn labels(selection: Option<&str>, scope: &Scope, installation: &str) -> Option<String> {
    let children = || scope.selected.then(|| format!("{INSTALLATION_LABEL}={installation}"));
    selection.map(str::to_owned).or_else(children)
}

/// Path and query of a request for the objects that a scope and a label selector select.
pub(super) fn path(resource: &Resource, scope: &Scope, labels: Option<&str>, request: &Request) -> String {
    let mut path = resource.collection(scope.namespace.as_deref());
    let label = labels.map(str::to_owned);
    let field = scope.name.as_ref().map(|name| format!("metadata.name={name}"));
    let selectors = label.map(|label| ("labelSelector", label)).into_iter();
    let selectors = selectors.chain(field.map(|field| ("fieldSelector", field)));
    for (number, (name, value)) in request.parameters().into_iter().chain(selectors).enumerate() {
        path.push(if number == 0 { '?' } else { '&' });
        path.push_str(name);
        path.push('=');
        path.push_str(&escape(&value));
    }
    path
}

/// What an error means for the watch.
pub(super) fn fault(error: &ApiError) -> Fault {
    match error {
        ApiError::Answer(answer) => Fault::answer(answer),
        ApiError::Transport { message, .. } => Fault::lost(message),
        ApiError::TooLarge { .. } | ApiError::NotLeading(_) => Fault::unintelligible(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use operator_core::contract::{ObjectName, TypeRef};

    #[test]
    fn selectors_and_tokens_are_escaped() {
        let resource = Resource {
            type_ref: TypeRef::new("apps/v1", "Deployment"),
            plural: "deployments".into(),
            namespaced: true,
            status: true,
        };
        let page = Request::List { not_older_than: None, limit: Some(500), page: Some("a+b/c=".into()) };
        let scope = Scope { namespace: Some("shop".into()), name: None, selected: true };
        assert_eq!(
            path(&resource, &scope, labels(None, &scope, "blue").as_deref(), &page),
            "/apis/apps/v1/namespaces/shop/deployments?limit=500&continue=a%2Bb%2Fc%3D\
             &labelSelector=operatorhost.dev%2Finstallation%3Dblue"
        );
        let whole = Request::List { not_older_than: None, limit: None, page: None };
        assert_eq!(
            path(&resource, &Scope::single(&ObjectName::new(None, "x")), None, &whole),
            "/apis/apps/v1/deployments?fieldSelector=metadata.name%3Dx"
        );
        let selection = labels(Some("app in (api,web)"), &Scope::default(), "blue");
        assert_eq!(
            path(&resource, &Scope::default(), selection.as_deref(), &whole),
            "/apis/apps/v1/deployments?labelSelector=app%20in%20%28api%2Cweb%29"
        );
    }
}
