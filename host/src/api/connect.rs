//! From a kubeconfig, or a pod's service account, to a client.

use super::ApiServer;
use super::connections::Connections;
use super::line::Line;
use crate::lead::Permits;
use anyhow::Context as _;
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::path::Path;

/// Reads the configuration as kubectl does: the named file, else `$KUBECONFIG` or `~/.kube/config`, else the pod's service account. Nothing
/// is sent yet. Connections end with the term that permits are given for.
///
/// # Errors
/// Which file or context is missing or broken.
pub async fn connect(kubeconfig: Option<&Path>, context: Option<&str>, permits: &Permits) -> anyhow::Result<ApiServer> {
    // Err: somebody installed one before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = configuration(kubeconfig, context).await?;
    config.headers.push((USER_AGENT, HeaderValue::from_static(concat!("operator-host/", env!("CARGO_PKG_VERSION")))));
    let line = Line::new(&config, Connections::new(permits))?;
    Ok(ApiServer::new(line, config.cluster_url.to_string()))
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
