//! TLS of links over TCP: each side presents a certificate in its node's name, signed by the
//! cluster's authority. TLS 1.3 only, because both sides are Ringwell nodes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringwell_directory::TlsFiles;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Both sides of a node's links.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) connector: TlsConnector,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

/// Certificates that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct TlsError {
    path: PathBuf,
    reason: String,
}

impl TlsError {
    pub(crate) fn new(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self { path: path.to_owned(), reason: reason.to_string() }
    }
}

impl Tls {
    /// Reads the certificates of `node`; `nodes` are the names of all.
    ///
    /// # Errors
    /// [`TlsError`] names the file.
    pub(crate) fn load<'a>(
        files: &TlsFiles,
        node: &str,
        mut nodes: impl Iterator<Item = &'a str>,
    ) -> Result<Self, TlsError> {
        let (authority, certificate, key) =
            (files.authority(), files.certificate(node), files.key(node));
        if let Some(name) = nodes.find(|name| ServerName::try_from(*name).is_err()) {
            let reason = format!("no certificate can be in the name {name:?}: choose another");
            return Err(TlsError::new(&certificate, reason));
        }
        let mut roots = RootCertStore::empty();
        for root in certificates(authority)? {
            roots.add(root).map_err(|error| TlsError::new(authority, error))?;
        }
        let roots = Arc::new(roots);
        let chain = certificates(&certificate)?;
        let private = PrivateKeyDer::from_pem_file(&key);
        let private = private.map_err(|error| TlsError::new(&key, error))?;
        let provider = Arc::new(ring::default_provider());
        let unfit = |error: &dyn std::fmt::Display| TlsError::new(&certificate, error);
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .build()
                .map_err(|error| TlsError::new(authority, error))?;
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| unfit(&error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), private.clone_key())
            .map_err(|error| unfit(&error))?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| unfit(&error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, private)
            .map_err(|error| unfit(&error))?;
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(server)),
            connector: TlsConnector::from(Arc::new(client)),
        })
    }
}

/// All certificates of a file.
///
/// # Errors
/// [`TlsError`] names the file.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| TlsError::new(path, error))?;
    let all: Result<Vec<_>, _> = read.collect();
    let all = all.map_err(|error| TlsError::new(path, error))?;
    if all.is_empty() { Err(TlsError::new(path, "has no certificate")) } else { Ok(all) }
}
