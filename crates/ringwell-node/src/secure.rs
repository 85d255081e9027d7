//! TLS for clients: the certificate from `[tls]`, which is reloaded when its files change.
//!
//! All shards share one certificate in memory. A handshake uses the certificate that is loaded, and
//! requests never read files.

use std::sync::{Arc, PoisonError, RwLock};

use ringwell_config::ClientTls;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::ServerCertVerifier as _;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{CertificateError, Error, RootCertStore, ServerConfig};

use crate::ServeError;
use crate::certificates::{Stamps, Watched};
use crate::link::tls::{TlsError, certificates};

/// The TLS settings for clients, which all shards share. The files of the certificate and its key
/// are watched as long as this value exists.
pub(crate) struct Secure {
    pub(crate) acceptor: TlsAcceptor,
    _watched: Watched,
}

impl std::fmt::Debug for Secure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secure")
    }
}

/// The certificate that the next handshake presents.
#[derive(Debug)]
struct Shown(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Secure {
    /// Reads the certificate, and watches its files from then on.
    ///
    /// # Errors
    /// The [`ServeError`] names the file that cannot be used.
    pub(crate) fn begin(files: &ClientTls) -> Result<Self, ServeError> {
        let seen = Stamps::of([files.certificate.clone(), files.key.clone()]);
        let shown = Arc::new(Shown(RwLock::new(Arc::new(load(files)?))));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| TlsError::new(&files.certificate, error))?
            .with_no_client_auth();
        let resolver: Arc<dyn ResolvesServerCert> = Arc::clone(&shown) as _;
        let mut config = config.with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let files = files.clone();
        let changed = move || match load(&files) {
            Ok(certificate) => {
                let mut shown = shown.0.write().unwrap_or_else(PoisonError::into_inner);
                *shown = Arc::new(certificate);
                tracing::info!("the certificate for clients was reloaded");
                if let Some(warning) = warn_of_validity(&files) {
                    tracing::warn!("{warning}");
                }
            }
            // Perhaps only one of the two files, the certificate and the key, has been replaced so
            // far.
            Err(error) => tracing::error!(
                %error,
                "cannot reload the certificate for clients: the previous one stays in use"
            ),
        };
        let watched = Watched::begin(seen, changed).map_err(ServeError::Thread)?;
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), _watched: watched })
    }
}

/// Checks that the certificate can be used.
///
/// # Errors
/// The [`ServeError`] names the file that cannot be used.
pub(crate) fn check(files: &ClientTls) -> Result<(), ServeError> {
    load(files)?;
    Ok(())
}

/// Returns a warning if the certificate is not valid at present, because clients would then refuse
/// it.
#[must_use]
pub fn warn_of_validity(files: &ClientTls) -> Option<String> {
    let chain = certificates(&files.certificate).ok()?;
    let (own, others) = chain.split_first()?;
    // Trusts any signer, because only the period of validity is checked.
    let mut roots = RootCertStore::empty();
    roots.add(chain.last()?.clone()).ok()?;
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
    let name = ServerName::try_from("ringwell.invalid").ok()?;
    let now = UnixTime::now();
    let error = verifier.build().ok()?.verify_server_cert(own, others, &name, &[], now).err()?;
    let Error::InvalidCertificate(error) = error else { return None };
    let what = match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "has expired, so clients refuse it: replace the certificate"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet, so clients refuse it: replace the certificate. If this machine's \
             clock is wrong, correct the clock instead"
        }
        _ => return None,
    };
    let path = files.certificate.display();
    Some(format!("tls.certificate: {path} {what}"))
}

/// Reads a certificate and its key.
fn load(files: &ClientTls) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key);
    let key = key.map_err(|error| TlsError::of_pem(&files.key, &error))?;
    CertifiedKey::from_der(chain, key, &ring::default_provider())
        .map_err(|error| TlsError::of_pair(&files.certificate, &files.key, &error))
}
