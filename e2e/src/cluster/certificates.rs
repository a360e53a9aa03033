//! A certificate authority per cluster, and what it signs.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

use crate::folder::Folder;

/// The authority of a cluster; signs servers on 127.0.0.1.
#[derive(Debug)]
pub struct Certificates {
    issuer: Issuer<'static, KeyPair>,
    ca: String,
    ca_file: PathBuf,
    pub(super) server_certificate: PathBuf,
    pub(super) server_key: PathBuf,
    pub(super) account_key: PathBuf,
    pub(super) account_public_key: PathBuf,
}

impl Certificates {
    pub(super) fn make(folder: &Folder) -> crate::Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "operator-e2e");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().context("no key for the certificate authority")?;
        let ca = params.self_signed(&key).context("no certificate authority")?.pem();
        let issuer = Issuer::new(params, key);
        let (certificate, key) = sign(&issuer)?;
        let accounts = KeyPair::generate().context("no key for service accounts")?;
        Ok(Self {
            ca_file: folder.write("ca.crt", &ca)?,
            server_certificate: folder.write("apiserver.crt", certificate)?,
            server_key: folder.write("apiserver.key", key)?,
            account_key: folder.write("accounts.key", accounts.serialize_pem())?,
            account_public_key: folder.write("accounts.pub", accounts.public_key_pem())?,
            issuer,
            ca,
        })
    }

    /// The authority's own certificate, PEM: `caBundle` of a webhook once it is in base64.
    #[must_use]
    pub fn ca(&self) -> &str {
        &self.ca
    }

    pub(super) fn ca_file(&self) -> &Path {
        &self.ca_file
    }

    /// A new certificate and its key, both PEM, for a server on 127.0.0.1 or localhost.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn server(&self) -> crate::Result<(String, String)> {
        sign(&self.issuer)
    }
}

fn sign(issuer: &Issuer<'_, KeyPair>) -> crate::Result<(String, String)> {
    let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned);
    let mut params = CertificateParams::new(names).context("names of a server's certificate")?;
    params.distinguished_name.push(DnType::CommonName, "127.0.0.1");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().context("no key for a server")?;
    let certificate = params.signed_by(&key, issuer).context("no certificate for a server")?;
    Ok((certificate.pem(), key.serialize_pem()))
}
