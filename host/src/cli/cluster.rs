//! Which cluster, and which part of it: the same flags for every command that talks to one.

use super::units;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub(super) struct ClusterArgs {
    /// Path of a kubeconfig file [default: $KUBECONFIG, ~/.kube/config, or the pod's service account]
    #[arg(long, env = "OPERATOR_KUBECONFIG", value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current-context]
    #[arg(long, env = "OPERATOR_CONTEXT", value_name = "NAME")]
    pub(super) context: Option<String>,
    /// Namespace to work in. May be given several times [default: all]
    #[arg(
        short,
        long = "namespace",
        env = "OPERATOR_NAMESPACE",
        value_name = "NAME",
        value_delimiter = ',',
        value_parser = units::namespace
    )]
    pub(super) namespaces: Vec<String>,
    /// Tells the children of this installation from those of another in the same cluster
    #[arg(long, env = "OPERATOR_INSTALLATION_ID", value_name = "ID", default_value = "default", value_parser = installation_id)]
    pub(super) installation_id: String,
}

/// A label value that is not empty (apimachinery `validation.IsValidLabelValue`).
fn installation_id(text: &str) -> Result<String, String> {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    if bytes.len() <= 63 && edge(bytes.first()) && edge(bytes.last()) && bytes.iter().copied().all(inner) {
        Ok(text.to_owned())
    } else {
        Err("expected a label value: at most 63 letters, digits, '-', '_' or '.', a letter or digit at each end".into())
    }
}
