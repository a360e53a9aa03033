//! TLS to servers that are not the cluster's.

use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls_platform_verifier::BuilderVerifierExt as _;
use std::sync::Arc;

/// Trusts what the system trusts, or what `SSL_CERT_FILE` names.
///
/// # Errors
/// The system's certificates can't be read.
pub(crate) fn trusting_the_system() -> Result<ClientConfig, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    Ok(builder.with_safe_default_protocol_versions()?.with_platform_verifier()?.with_no_client_auth())
}
