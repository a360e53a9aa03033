//! The way to the API server: connections, credentials and headers, as tower layers around hyper's client.

use super::cause;
use super::connections::Connections;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Builder;
use hyper_util::client::legacy::connect::HttpConnector;
use kube::Config;
use kube::client::ConfigExt as _;
use kube::client::middleware::{AuthLayer, BaseUriLayer, ExtraHeadersLayer};
use std::time::Duration;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceBuilder};

/// How long a connection may take to stand.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends requests; its clones share their connections.
pub(super) type Client = BoxCloneSyncService<Request<Full<Bytes>>, Response<Incoming>, BoxError>;

/// What all clients of one server share.
pub(super) struct Line {
    connector: HttpsConnector<HttpConnector>,
    base_uri: BaseUriLayer,
    auth: Option<AuthLayer>,
    headers: ExtraHeadersLayer,
    connections: Connections,
}

impl Line {
    pub(super) fn new(config: &Config, connections: Connections) -> anyhow::Result<Self> {
        let url = &config.cluster_url;
        anyhow::ensure!(
            config.proxy_url.is_none(),
            "the configuration for {url} names a proxy, which the host does not speak to; remove proxy-url, or run the host where the \
             server can be reached"
        );
        if let Some(command) = config.auth_info.exec.as_ref().and_then(|exec| exec.command.as_ref()) {
            // It may wait for a person.
            tracing::info!(command, "asking the kubeconfig's credential plugin");
        }
        let unusable = |error| cause::of(format_args!("can't use the configuration for {url}"), &error);
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        Ok(Self {
            connector: config.rustls_https_connector_with_connector(http).map_err(unusable)?,
            base_uri: config.base_uri_layer(),
            auth: config.auth_layer().map_err(unusable)?,
            headers: config.extra_headers_layer().map_err(unusable)?,
            connections,
        })
    }

    /// A client with connections of its own, which live on the tokio runtime that sends by them; credentials are shared with the others.
    pub(super) fn client(&self) -> Client {
        let hyper = Builder::new(self.connections.clone()).build::<_, Full<Bytes>>(self.connector.clone());
        let service = ServiceBuilder::new()
            .layer(&self.base_uri)
            .option_layer(self.auth.as_ref())
            .layer(&self.headers)
            .map_err(BoxError::from)
            .service(hyper);
        BoxCloneSyncService::new(service)
    }
}
