//! An admission webhook that a test serves: HTTPS on 127.0.0.1, one answer for each review.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;

use crate::client::Resource;
use crate::cluster::Certificates;

/// Webhooks that say yes or no.
pub const VALIDATING: Resource<'static> =
    Resource::new("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations");
/// Webhooks that change what is written.
pub const MUTATING: Resource<'static> =
    Resource::new("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations");

/// What a webhook says to an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Yes.
    Allow,
    /// No, because of this.
    Deny(String),
    /// Yes, with this JSON patch.
    Patch(Value),
}

/// A running webhook; it stops when dropped.
#[derive(Debug)]
pub struct Webhook {
    url: String,
    ca: String,
    calls: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Webhook {
    /// Serves reviews; `judge` is given the object as it would be written.
    ///
    /// # Errors
    /// When it can't listen, or has no certificate.
    pub async fn serve(
        certificates: &Certificates,
        judge: impl Fn(&Value) -> Verdict + Send + Sync + 'static,
    ) -> crate::Result<Self> {
        let tls = TlsAcceptor::from(Arc::new(tls(certificates)?));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("the webhook can't listen")?;
        let url = format!("https://{}/", listener.local_addr().context("the webhook has no address")?);
        let calls = Arc::new(AtomicUsize::new(0));
        let served = Arc::new(Served { judge: Box::new(judge), calls: Arc::clone(&calls) });
        let accepting = tokio::spawn(accept(listener, tls, served));
        Ok(Self { url, ca: certificates.ca().to_owned(), calls, accepting })
    }

    /// How many reviews it has answered.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// A configuration that asks it about creates and updates of these resources in one namespace.
    #[must_use]
    pub fn configuration(&self, kind: &str, namespace: &str, group: &str, resources: &[&str]) -> Value {
        configuration(kind, &self.url, Some(&self.ca), namespace, group, resources)
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// A configuration of kind `Validating` or `Mutating` for a webhook at that address, which must answer within a second.
#[must_use]
pub fn configuration(
    kind: &str,
    url: &str,
    ca: Option<&str>,
    namespace: &str,
    group: &str,
    resources: &[&str],
) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": format!("{kind}WebhookConfiguration"),
        "metadata": {"name": namespace},
        "webhooks": [{
            "name": "webhook.example.com",
            "clientConfig": {"url": url, "caBundle": ca.map(|ca| BASE64.encode(ca))},
            "rules": [{
                "apiGroups": [group],
                "apiVersions": ["*"],
                "resources": resources,
                "operations": ["CREATE", "UPDATE"],
            }],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "failurePolicy": "Fail",
            // A busy machine may take longer than the second that a dead one needs.
            "timeoutSeconds": if ca.is_some() { 10 } else { 1 },
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }],
    })
}

struct Served {
    judge: Box<dyn Fn(&Value) -> Verdict + Send + Sync>,
    calls: Arc<AtomicUsize>,
}

fn tls(certificates: &Certificates) -> crate::Result<ServerConfig> {
    let (certificate, key) = certificates.server()?;
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).context("the webhook's certificate")?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).context("the webhook's key")?;
    ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .context("TLS versions")?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .context("the webhook's certificate and key")
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, served: Arc<Served>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let (tls, served) = (tls.clone(), Arc::clone(&served));
                connections.spawn(async move {
                    // Who doesn't trust us shows it in the API server's answer.
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let service = service_fn(move |request| answer(request, Arc::clone(&served)));
                    let connection = hyper::server::conn::http1::Builder::new();
                    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn answer(request: Request<Incoming>, served: Arc<Served>) -> hyper::Result<Response<Full<Bytes>>> {
    let body = request.into_body().collect().await?.to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    served.calls.fetch_add(1, Ordering::Relaxed);
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
    match (served.judge)(&review["request"]["object"]) {
        Verdict::Allow => {}
        Verdict::Deny(message) => {
            response["allowed"] = json!(false);
            response["status"] = json!({"code": 403, "message": message});
        }
        Verdict::Patch(patch) => {
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(BASE64.encode(patch.to_string()));
        }
    }
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Ok(Response::new(Full::new(Bytes::from(review.to_string()))))
}
