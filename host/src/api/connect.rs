//! From a kubeconfig, or a pod's service account, to a client.

use super::ApiServer;
use super::connections::Connections;
use crate::lead::Permits;
use anyhow::Context as _;
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::Config;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::path::Path;
use std::time::Duration;

/// How long a connection may take to stand.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads the configuration as kubectl does: the named file, else `$KUBECONFIG` or `~/.kube/config`, else the pod's service account. Nothing
/// is sent yet. Connections end with the term that permits are given for.
///
/// # Errors
/// Which file or context is missing or broken.
pub async fn connect(kubeconfig: Option<&Path>, context: Option<&str>, permits: &Permits) -> anyhow::Result<ApiServer> {
    // Err: somebody installed one before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = configuration(kubeconfig, context).await?;
    // A retry here would hide an answer from the one table that decides about it.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.headers.push((USER_AGENT, HeaderValue::from_static(concat!("operator-host/", env!("CARGO_PKG_VERSION")))));
    let url = config.cluster_url.to_string();
    let client = ClientBuilder::try_from((config, Connections::new(permits)));
    let client = client.with_context(|| format!("can't use the configuration for {url}"))?.build();
    Ok(ApiServer::new(client, url))
}

async fn configuration(kubeconfig: Option<&Path>, context: Option<&str>) -> anyhow::Result<Config> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    if let Some(path) = kubeconfig {
        let file = Kubeconfig::read_from(path).with_context(|| format!("can't read kubeconfig {}", path.display()))?;
        return Config::from_custom_kubeconfig(file, &options)
            .await
            .with_context(|| format!("kubeconfig {} is not usable", path.display()));
    }
    if context.is_some() {
        return Config::from_kubeconfig(&options).await.context("no usable kubeconfig with this --context");
    }
    Config::infer()
        .await
        .context("no cluster: give --kubeconfig FILE, set KUBECONFIG, have ~/.kube/config, or run in a pod with a service account")
}
