//! From a kubeconfig, or a pod's service account, to a client.

use super::ApiServer;
use super::cause;
use super::connections::Connections;
use super::line::Line;
use crate::lead::Permits;
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
    Ok(ApiServer::new(line, &config.cluster_url))
}

async fn configuration(kubeconfig: Option<&Path>, context: Option<&str>) -> anyhow::Result<Config> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    if let Some(path) = kubeconfig {
        let name = path.display();
        let unreadable = |error| cause::of(format_args!("can't read kubeconfig {name}"), &error);
        let unusable = |error| cause::of(format_args!("kubeconfig {name} is not usable"), &error);
        let file = Kubeconfig::read_from(path).map_err(unreadable)?;
        return Config::from_custom_kubeconfig(file, &options).await.map_err(unusable);
    }
    if let Some(context) = context {
        let unusable = |error| cause::of(format_args!("no usable kubeconfig with --context {context:?}"), &error);
        return Config::from_kubeconfig(&options).await.map_err(unusable);
    }
    let wanted = "no cluster: give --kubeconfig FILE, set KUBECONFIG, have ~/.kube/config, or run in a pod with a service account";
    Config::infer().await.map_err(|error| cause::of(wanted, &error))
}
