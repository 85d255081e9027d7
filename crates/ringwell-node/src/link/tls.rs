//! TLS for links over TCP: each side presents a certificate that contains its node's name and is
//! signed by the cluster's certificate authority. Only TLS 1.3 is used, because both sides are
//! Ringwell nodes.
//!
//! The certificate files are read again when they change. A connection is closed when the other
//! node's certificate is no longer valid.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use ringwell_config::TlsFiles;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, Error, InconsistentKeys, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::certificates::{Stamps, Watched};

/// The settings for both sides of a node's links, as read after the last change of the certificate
/// files. Clones share them.
#[derive(Clone)]
pub(crate) struct Tls {
    sides: Arc<RwLock<Sides>>,
    _watched: Arc<Watched>,
}

/// The settings for accepting and opening connections, read from the files at the same time.
#[derive(Clone)]
struct Sides {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

/// The reason why a certificate cannot be used.
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

    /// Builds the error for a file of certificates or keys.
    pub(crate) fn of_pem(path: &Path, error: &pem::Error) -> Self {
        match error {
            pem::Error::Io(error) => Self::new(path, format_args!("cannot be read: {error}")),
            error => Self::new(path, error),
        }
    }

    /// Builds the error for a certificate and its key.
    pub(crate) fn of_pair(certificate: &Path, key: &Path, error: &Error) -> Self {
        if !matches!(error, Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) {
            return Self::new(certificate, error);
        }
        let certificate = certificate.display();
        let reason = format!(
            "the key does not match the certificate {certificate}: use the key that belongs to the \
             certificate, or replace both files"
        );
        Self::new(key, reason)
    }
}

impl Tls {
    /// Reads the certificates of `node`. `nodes` contains the names of all nodes.
    ///
    /// # Errors
    /// The [`TlsError`] names the file.
    pub(crate) fn load<'a>(
        files: &TlsFiles,
        node: &str,
        mut nodes: impl Iterator<Item = &'a str>,
    ) -> Result<Self, TlsError> {
        let certificate = files.certificate(node);
        if let Some(name) = nodes.find(|name| ServerName::try_from(*name).is_err()) {
            let reason = format!(
                "the node name {name:?} cannot be used in a certificate: choose another node name"
            );
            return Err(TlsError::new(&certificate, reason));
        }
        let paths = [files.authority().to_owned(), certificate.clone(), files.key(node)];
        let stamps = Stamps::of(paths);
        let (sides, chain) = Sides::load(files, node)?;
        if let Err(error) = sides.check(&chain) {
            tracing::warn!(
                certificate = %certificate.display(),
                error,
                "other nodes will refuse this node's certificate"
            );
        }
        let sides = Arc::new(RwLock::new(sides));
        let (files, node, shared) = (files.clone(), node.to_owned(), Arc::downgrade(&sides));
        let changed = move || {
            let Some(sides) = shared.upgrade() else { return };
            read_again(&files, &node, &sides);
        };
        let watched = Watched::begin(stamps, changed);
        let watched = watched.map_err(|error| TlsError::new(&certificate, error))?;
        Ok(Self { sides, _watched: Arc::new(watched) })
    }

    fn sides(&self) -> Sides {
        self.sides.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the acceptor for the next connection from another node.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.sides().acceptor
    }

    /// Returns the connector for the next connection to another node.
    pub(crate) fn connector(&self) -> TlsConnector {
        self.sides().connector
    }

    /// Whether another node that presented this certificate would be accepted now.
    pub(crate) fn accepts(&self, chain: &[CertificateDer<'_>]) -> bool {
        self.sides().check(chain).is_ok()
    }
}

/// Reads the files again. If only some of the files have been replaced so far, the new certificates
/// may not match the old authority. Certificates that other nodes would refuse are therefore not
/// used.
fn read_again(files: &TlsFiles, node: &str, shared: &RwLock<Sides>) {
    let read = Sides::load(files, node).map_err(|error| error.to_string());
    let read = read.and_then(|(sides, chain)| sides.check(&chain).map(|()| sides));
    match read {
        Ok(sides) => {
            *shared.write().unwrap_or_else(PoisonError::into_inner) = sides;
            tracing::info!("the certificates of links were reloaded");
        }
        Err(error) => {
            tracing::error!(
                error,
                "cannot reload the certificates of links: the previous ones stay in use"
            );
        }
    }
}

impl Sides {
    /// Reads the files, and also returns this node's own certificates.
    fn load(
        files: &TlsFiles,
        node: &str,
    ) -> Result<(Self, Vec<CertificateDer<'static>>), TlsError> {
        let (authority, certificate, key) =
            (files.authority(), files.certificate(node), files.key(node));
        let mut roots = RootCertStore::empty();
        for root in certificates(authority)? {
            roots.add(root).map_err(|error| TlsError::new(authority, error))?;
        }
        let roots = Arc::new(roots);
        let chain = certificates(&certificate)?;
        let private = PrivateKeyDer::from_pem_file(&key);
        let private = private.map_err(|error| TlsError::of_pem(&key, &error))?;
        let provider = Arc::new(ring::default_provider());
        let unfit = |error: &dyn std::fmt::Display| TlsError::new(&certificate, error);
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .build()
                .map_err(|error| TlsError::new(authority, error))?;
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| unfit(&error))?
            .with_client_cert_verifier(Arc::clone(&verifier))
            .with_single_cert(chain.clone(), private.clone_key())
            .map_err(|error| TlsError::of_pair(&certificate, &key, &error))?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| unfit(&error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain.clone(), private)
            .map_err(|error| unfit(&error))?;
        let sides = Self {
            acceptor: TlsAcceptor::from(Arc::new(server)),
            connector: TlsConnector::from(Arc::new(client)),
            verifier,
        };
        Ok((sides, chain))
    }

    /// Checks that a node's certificate belongs to the cluster and is valid now.
    ///
    /// # Errors
    /// The reason for the refusal, as text.
    fn check(&self, chain: &[CertificateDer<'_>]) -> Result<(), String> {
        let (own, others) = chain.split_first().ok_or("the other node sent no certificate")?;
        let checked = self.verifier.verify_client_cert(own, others, UnixTime::now());
        checked.map(drop).map_err(|error| error.to_string())
    }
}

/// Reads all certificates in a file.
///
/// # Errors
/// The [`TlsError`] names the file.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path);
    let read = read.map_err(|error| TlsError::of_pem(path, &error))?;
    let all: Result<Vec<_>, _> = read.collect();
    let all = all.map_err(|error| TlsError::of_pem(path, &error))?;
    if all.is_empty() { Err(TlsError::new(path, "contains no certificate")) } else { Ok(all) }
}
