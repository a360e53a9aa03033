//! A small client for arranging and looking at arbitrary objects, as JSON.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use futures::StreamExt as _;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyDataStream, BodyExt as _};
use kube::client::Body;
use serde_json::{Value, json};

/// A kind of object, as the server's paths name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resource<'a> {
    /// `v1`, `apps/v1`.
    pub api_version: &'a str,
    /// `deployments`.
    pub plural: &'a str,
}

/// ConfigMaps.
pub const CONFIG_MAPS: Resource<'static> = Resource::new("v1", "configmaps");
/// CustomResourceDefinitions.
pub const CRDS: Resource<'static> = Resource::new("apiextensions.k8s.io/v1", "customresourcedefinitions");
/// Deployments.
pub const DEPLOYMENTS: Resource<'static> = Resource::new("apps/v1", "deployments");
/// Events, of the group that new clients write.
pub const EVENTS: Resource<'static> = Resource::new("events.k8s.io/v1", "events");
/// Leases.
pub const LEASES: Resource<'static> = Resource::new("coordination.k8s.io/v1", "leases");
/// Namespaces.
pub const NAMESPACES: Resource<'static> = Resource::new("v1", "namespaces");
/// Nodes.
pub const NODES: Resource<'static> = Resource::new("v1", "nodes");
/// Pods.
pub const PODS: Resource<'static> = Resource::new("v1", "pods");
/// Secrets.
pub const SECRETS: Resource<'static> = Resource::new("v1", "secrets");
/// Services.
pub const SERVICES: Resource<'static> = Resource::new("v1", "services");

impl<'a> Resource<'a> {
    /// A kind by its group and version, and its plural.
    #[must_use]
    pub const fn new(api_version: &'a str, plural: &'a str) -> Self {
        Self { api_version, plural }
    }

    /// The path of one object, or of all when `name` is empty; an empty namespace means cluster-scoped, or all.
    #[must_use]
    pub fn path(&self, namespace: &str, name: &str) -> String {
        let root = if self.api_version.contains('/') { "/apis" } else { "/api" };
        let mut path = format!("{root}/{}", self.api_version);
        if !namespace.is_empty() {
            path.push_str("/namespaces/");
            path.push_str(namespace);
        }
        path.push('/');
        path.push_str(self.plural);
        if !name.is_empty() {
            path.push('/');
            path.push_str(name);
        }
        path
    }

    fn path_of(&self, object: &Value) -> String {
        let metadata = &object["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        self.path(&text("namespace"), &text("name"))
    }
}

/// Why a request did not give an object.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server answered with a failure.
    #[error("{method} {path}: {code} {reason}: {message}")]
    Refused {
        /// The HTTP method.
        method: String,
        /// The path asked.
        path: String,
        /// The HTTP status code.
        code: u16,
        /// The `reason` of the server's Status, such as `NotFound`.
        reason: String,
        /// Its message, or the body's text.
        message: String,
        /// The whole answer.
        body: Box<Value>,
    },
    /// No answer came, or one that is not JSON.
    #[error("{method} {path}: {message}")]
    Broken {
        /// The HTTP method.
        method: String,
        /// The path asked.
        path: String,
        /// What happened.
        message: String,
    },
}

impl ClientError {
    /// The HTTP status code, 0 when there was no answer.
    #[must_use]
    pub const fn code(&self) -> u16 {
        match self {
            Self::Refused { code, .. } => *code,
            Self::Broken { .. } => 0,
        }
    }
}

type Answer<T> = std::result::Result<T, ClientError>;

/// Talks to an API server as one user.
///
/// Its connections belong to the runtime that made them: make one per test.
#[derive(Clone)]
pub struct Client {
    inner: kube::Client,
}

impl Client {
    /// A client for that address; `agent` is the user agent that the audit log will show.
    ///
    /// # Errors
    /// When the address or the certificate can't be used.
    pub fn new(url: &str, ca: Option<&Path>, token: Option<&str>, agent: &str) -> crate::Result<Self> {
        let url = url.parse().with_context(|| format!("{url} is no address"))?;
        let mut config = kube::Config::new(url);
        config.root_cert_file = ca.map(Path::to_owned);
        // Tests see each answer, and count each request.
        config.default_retry = false;
        if !agent.is_empty() {
            let agent = HeaderValue::from_str(agent).context("the user agent is no header value")?;
            config.headers.push((http::header::USER_AGENT, agent));
        }
        if let Some(token) = token {
            let bearer = HeaderValue::from_str(&format!("Bearer {token}"));
            let bearer = bearer.context("the token is no header value")?;
            config.headers.push((http::header::AUTHORIZATION, bearer));
        }
        let inner = kube::Client::try_from(config).context("cannot make a client")?;
        Ok(Self { inner })
    }

    /// The client of the crate `kube` underneath.
    #[must_use]
    pub const fn kube(&self) -> &kube::Client {
        &self.inner
    }

    /// Reads one object.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub async fn get(&self, resource: &Resource<'_>, namespace: &str, name: &str) -> Answer<Value> {
        self.request("GET", &resource.path(namespace, name), "", &Value::Null).await
    }

    /// Reads one object, `None` when there is none.
    ///
    /// # Errors
    /// When the server refuses in another way or does not answer.
    pub async fn find(&self, resource: &Resource<'_>, namespace: &str, name: &str) -> Answer<Option<Value>> {
        match self.get(resource, namespace, name).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.code() == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads all objects of a namespace, or of all namespaces when it is empty. `query` as in a URL, without `?`.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub async fn list(&self, resource: &Resource<'_>, namespace: &str, query: &str) -> Answer<Vec<Value>> {
        let path = format!("{}?{query}", resource.path(namespace, ""));
        let mut list = self.request("GET", &path, "", &Value::Null).await?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }

    /// Creates the object where its metadata says.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub async fn create(&self, resource: &Resource<'_>, object: &Value) -> Answer<Value> {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        self.request("POST", &resource.path(namespace, ""), JSON, object).await
    }

    /// Server-side apply with force, as that field manager.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub async fn apply(&self, resource: &Resource<'_>, manager: &str, object: &Value) -> Answer<Value> {
        let manager = manager.replace('/', "%2F");
        let path = format!("{}?force=true&fieldManager={manager}", resource.path_of(object));
        self.request("PATCH", &path, "application/apply-patch+yaml", object).await
    }

    /// Replaces the object by this one (PUT).
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub async fn replace(&self, resource: &Resource<'_>, object: &Value) -> Answer<Value> {
        self.request("PUT", &resource.path_of(object), JSON, object).await
    }

    /// Applies a JSON merge patch to the object.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub async fn patch(&self, resource: &Resource<'_>, namespace: &str, name: &str, patch: &Value) -> Answer<Value> {
        self.request("PATCH", &resource.path(namespace, name), MERGE, patch).await
    }

    /// Applies a JSON merge patch to a subresource, such as `status` or `scale`.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub async fn patch_subresource(
        &self,
        resource: &Resource<'_>,
        namespace: &str,
        name: &str,
        subresource: &str,
        patch: &Value,
    ) -> Answer<Value> {
        let path = format!("{}/{subresource}", resource.path(namespace, name));
        self.request("PATCH", &path, MERGE, patch).await
    }

    /// Deletes the object in the background.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub async fn delete(&self, resource: &Resource<'_>, namespace: &str, name: &str) -> Answer<Value> {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
        self.request("DELETE", &resource.path(namespace, name), JSON, &options).await
    }

    /// Lets `user` do `verbs` on these resources of all namespaces; `group` is empty for the core group.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub async fn grant(&self, user: &str, group: &str, resources: &[&str], verbs: &[&str]) -> Answer<Grant> {
        let name = format!("{user}-{:08x}", fastrand::u32(..));
        let role = json!({
            "apiVersion": RBAC,
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": [{"apiGroups": [group], "resources": resources, "verbs": verbs}],
        });
        let binding = json!({
            "apiVersion": RBAC,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        });
        self.create(&Resource::new(RBAC, "clusterroles"), &role).await?;
        self.create(&ROLE_BINDINGS, &binding).await?;
        Ok(Grant(name))
    }

    /// Takes back what was granted. The server's authorizer learns of it a moment later, as of a grant.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub async fn revoke(&self, grant: Grant) -> Answer<()> {
        self.delete(&ROLE_BINDINGS, "", &grant.0).await.map(drop)
    }

    /// Starts a watch; `query` as in a URL, without `?` and `watch=true`.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub async fn watch(&self, resource: &Resource<'_>, namespace: &str, query: &str) -> Answer<Watch> {
        let path = format!("{}?watch=true&{query}", resource.path(namespace, ""));
        let response = self.send("GET", &path, "", &Value::Null).await?;
        Ok(Watch { body: response.into_body().into_data_stream(), buffer: Vec::new() })
    }

    /// The text at a path, such as `/readyz?verbose` or `/metrics`.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub async fn text(&self, path: &str) -> Answer<String> {
        let response = self.send("GET", path, "", &Value::Null).await?;
        let bytes = collect("GET", path, response).await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Any request; a body that is `null` is not sent.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub async fn request(&self, method: &str, path: &str, content_type: &str, body: &Value) -> Answer<Value> {
        let response = self.send(method, path, content_type, body).await?;
        let bytes = collect(method, path, response).await?;
        serde_json::from_slice(&bytes).map_err(|error| broken(method, path, &error))
    }

    async fn send(&self, method: &str, path: &str, content_type: &str, body: &Value) -> Answer<Response<Body>> {
        let mut request = Request::builder().method(method).uri(path);
        if !content_type.is_empty() {
            request = request.header(http::header::CONTENT_TYPE, content_type);
        }
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = request.body(Body::from(body)).map_err(|error| broken(method, path, &error))?;
        let response = self.inner.send(request).await.map_err(|error| broken(method, path, &error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let bytes = collect(method, path, response).await?;
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let message = match body["message"].as_str() {
            Some(message) => message.to_owned(),
            None => String::from_utf8_lossy(&bytes).into_owned(),
        };
        Err(ClientError::Refused {
            method: method.to_owned(),
            path: path.to_owned(),
            code: status.as_u16(),
            reason: body["reason"].as_str().unwrap_or_default().to_owned(),
            message,
            body: Box::new(body),
        })
    }
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const ROLE_BINDINGS: Resource<'static> = Resource::new(RBAC, "clusterrolebindings");

/// Rights that a user was given; they stay when this is dropped.
#[derive(Debug)]
pub struct Grant(String);

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// An open watch.
pub struct Watch {
    body: BodyDataStream<Body>,
    buffer: Vec<u8>,
}

impl Watch {
    /// The next event, with `type` and `object`; `None` when the watch has ended or broke.
    ///
    /// # Panics
    /// When nothing comes within the deadline.
    pub async fn next(&mut self, deadline: Duration) -> Option<Value> {
        match tokio::time::timeout(deadline, self.next_event()).await {
            Ok(event) => event,
            Err(_) => panic!("the watch brought nothing and did not end within {deadline:?}"),
        }
    }

    async fn next_event(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return serde_json::from_slice(&line).ok();
            }
            let chunk = self.body.next().await?.ok()?;
            self.buffer.extend_from_slice(&chunk);
        }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

async fn collect(method: &str, path: &str, response: Response<Body>) -> Answer<bytes::Bytes> {
    let body = response.into_body().collect().await;
    Ok(body.map_err(|error| broken(method, path, &error))?.to_bytes())
}

fn broken(method: &str, path: &str, error: &dyn std::error::Error) -> ClientError {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message.push_str(": ");
        message.push_str(&cause.to_string());
        source = cause.source();
    }
    ClientError::Broken { method: method.to_owned(), path: path.to_owned(), message }
}
