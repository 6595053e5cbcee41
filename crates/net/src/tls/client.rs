//! A client's side: whom it trusts, and what it shows of itself.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustls::client::ResolvesClientCert;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{FileContents, HTTP_2, TlsError, provider, read_pair, read_roots};

/// The files of a client. They are read again whenever a connection is made, so that a new certificate needs no restart; while a
/// changed file is broken, what it had before counts. Clones share what was read.
#[derive(Clone, Debug)]
pub struct ClientTls {
    ca: PathBuf,
    identity: Option<(PathBuf, PathBuf)>,
    read: Arc<Mutex<Option<Read>>>,
}

impl PartialEq for ClientTls {
    fn eq(&self, other: &ClientTls) -> bool {
        (&self.ca, &self.identity) == (&other.ca, &other.identity)
    }
}

impl Eq for ClientTls {}

/// What was read last.
#[derive(Clone, Debug)]
struct Read {
    files: Vec<FileContents>,
    config: Arc<ClientConfig>,
}

impl ClientTls {
    /// Trusts whoever a certificate in the file `ca` vouches for, and shows the certificate chain in the second file, with the key
    /// in the third.
    #[must_use]
    pub fn files(ca: impl AsRef<Path>, certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> ClientTls {
        ClientTls::trusting(ca).showing(certificate, key)
    }

    /// Trusts whoever a certificate in the file `ca` vouches for, and shows nothing.
    #[must_use]
    pub fn trusting(ca: impl AsRef<Path>) -> ClientTls {
        ClientTls { ca: ca.as_ref().to_owned(), identity: None, read: Arc::default() }
    }

    /// Shows this certificate chain, with this key.
    #[must_use]
    pub fn showing(self, certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> ClientTls {
        let identity = Some((certificate.as_ref().to_owned(), key.as_ref().to_owned()));
        ClientTls { identity, read: Arc::default(), ..self }
    }

    /// Whether the files can be used; says which cannot, and why.
    pub fn check(&self) -> Result<(), TlsError> {
        self.config().map(|_| ())
    }

    /// How connections are made by what the files contain now.
    pub fn config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let result = self.contents().and_then(|files| match &*read {
            Some(known) if known.files == files => Ok(Arc::clone(&known.config)),
            _ => {
                let config = Arc::new(config(&files)?);
                *read = Some(Read { files, config: Arc::clone(&config) });
                Ok(config)
            }
        });
        match (&*read, result) {
            (Some(known), Err(error)) => {
                tracing::warn!(%error, "the files of TLS cannot be used: what they had before counts");
                Ok(Arc::clone(&known.config))
            }
            (_, result) => result,
        }
    }

    fn contents(&self) -> Result<Vec<FileContents>, TlsError> {
        let identity = self.identity.iter().flat_map(|(certificate, key)| [certificate, key]);
        std::iter::once(&self.ca).chain(identity).map(|path| FileContents::read(path)).collect()
    }

    /// Makes a connection to `host:port` that speaks HTTP/2 inside TLS.
    pub async fn connect(&self, host: &str, port: u16) -> io::Result<TlsStream<TcpStream>> {
        let config = self.config().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(bare.to_owned())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("{host} is no host name")))?;
        let stream = TcpStream::connect((bare, port)).await?;
        stream.set_nodelay(true)?;
        TlsConnector::from(config).connect(name, stream).await.map_err(|error| self.explain(host, &error))
    }

    /// Whether it has a certificate to show.
    #[must_use]
    pub fn shows_itself(&self) -> bool {
        self.identity.is_some()
    }

    /// Why no connection came about, in words that say what to do.
    fn explain(&self, host: &str, error: &io::Error) -> io::Error {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        let words = match cause {
            Some(rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            )) => format!("its certificate is of no authority in {}", self.ca.display()),
            Some(rustls::Error::InvalidCertificate(CertificateError::NotValidForName))
            | Some(rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. })) => {
                format!("its certificate is not for {host}: dial it by a name that it has")
            }
            Some(rustls::Error::InvalidMessage(_)) => "it does not speak TLS".to_owned(),
            None if error.kind() == io::ErrorKind::ConnectionReset => {
                format!("it hung up at the beginning of TLS, which it may not speak: {error}")
            }
            _ => error.to_string(),
        };
        io::Error::new(error.kind(), words)
    }
}

fn config(files: &[FileContents]) -> Result<ClientConfig, TlsError> {
    let (ca, identity) = files.split_first().expect("there is a file of those who are trusted");
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new(&ca.path, error.to_string()))?
        .with_root_certificates(read_roots(ca)?);
    let mut config = match identity {
        [certificate, key] => {
            let pair = read_pair(certificate, key, SystemTime::now())?;
            builder.with_client_cert_resolver(Arc::new(Shown(pair)))
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![HTTP_2.to_vec()];
    Ok(config)
}

/// Shows one certificate, whatever it is asked for: a Manager that does not accept it says so.
#[derive(Debug)]
struct Shown(Arc<CertifiedKey>);

impl ResolvesClientCert for Shown {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}
