//! The Manager's side of TLS: what it shows, and whose certificates it believes.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use centrifuge_net::tls::{
    FileContents, HTTP_2, TlsError, provider, read_certificate, read_pair, read_revocations, read_roots,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;

/// Where the files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain that the Manager shows.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Who vouches for clients; `None`: no client proves who it is.
    pub client_ca: Option<PathBuf>,
    /// Which of their certificates do not count any more.
    pub crl: Option<PathBuf>,
}

/// The files as they were last read.
#[derive(Debug)]
pub(crate) struct ServerTls {
    files: TlsFiles,
    loaded: RwLock<Loaded>,
}

#[derive(Clone, Debug)]
struct Loaded {
    contents: Vec<FileContents>,
    grpc: Arc<ServerConfig>,
    http: Arc<ServerConfig>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    expires_at: SystemTime,
}

impl ServerTls {
    /// Reads the files for the first time.
    pub(crate) fn open(files: TlsFiles) -> Result<ServerTls, TlsError> {
        let loaded = RwLock::new(load(&files, read(&files)?)?);
        Ok(ServerTls { files, loaded })
    }

    /// Reads files that have changed; says whether any has. What cannot be used leaves everything as it was.
    pub(crate) fn reload(&self) -> Result<bool, TlsError> {
        let contents = read(&self.files)?;
        if contents == self.loaded().contents {
            return Ok(false);
        }
        let loaded = load(&self.files, contents)?;
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = loaded;
        Ok(true)
    }

    /// How gRPC connections are made now.
    pub(crate) fn grpc(&self) -> Arc<ServerConfig> {
        self.loaded().grpc
    }

    /// How HTTP connections are made now.
    pub(crate) fn http(&self) -> Arc<ServerConfig> {
        self.loaded().http
    }

    /// When the Manager's own certificate runs out.
    pub(crate) fn expires_at(&self) -> SystemTime {
        self.loaded().expires_at
    }

    /// Whether a client's certificate counts now.
    pub(crate) fn accepts(&self, chain: &[CertificateDer<'static>]) -> bool {
        match (self.loaded().clients, chain) {
            (Some(clients), [shown, others @ ..]) => {
                clients.verify_client_cert(shown, others, UnixTime::now()).is_ok()
            }
            _ => false,
        }
    }

    fn loaded(&self) -> Loaded {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn read(files: &TlsFiles) -> Result<Vec<FileContents>, TlsError> {
    let paths = [Some(&files.cert), Some(&files.key), files.client_ca.as_ref(), files.crl.as_ref()];
    paths.into_iter().flatten().map(|path| FileContents::read(path)).collect()
}

fn load(files: &TlsFiles, contents: Vec<FileContents>) -> Result<Loaded, TlsError> {
    let of = |path: &PathBuf| contents.iter().find(|file| file.path == *path);
    let (Some(cert), Some(key)) = (of(&files.cert), of(&files.key)) else {
        return Err(TlsError::new(&files.cert, "was not read"));
    };
    let pair = read_pair(cert, key, SystemTime::now())?;
    let shown = read_certificate(&pair.cert[0]).map_err(|why| TlsError::new(&files.cert, why))?;
    let clients = match files.client_ca.as_ref().and_then(of) {
        Some(ca) => Some(verifier(ca, files.crl.as_ref().and_then(of))?),
        None => None,
    };
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new(&files.cert, error.to_string()))?;
    let builder = match &clients {
        Some(clients) => builder.with_client_cert_verifier(Arc::clone(clients)),
        None => builder.with_no_client_auth(),
    };
    let mut grpc = builder.with_cert_resolver(Arc::new(Shown(pair)));
    // No session is taken up again: every connection proves anew who is there, by what counts now.
    grpc.session_storage = Arc::new(NoServerSessionStorage {});
    grpc.send_tls13_tickets = 0;
    let mut http = grpc.clone();
    grpc.alpn_protocols = vec![HTTP_2.to_vec()];
    http.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Loaded { contents, grpc: Arc::new(grpc), http: Arc::new(http), clients, expires_at: shown.not_after })
}

/// Who shows no certificate is let in as nobody: what a policy then denies is denied in words.
fn verifier(ca: &FileContents, crl: Option<&FileContents>) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(read_roots(ca)?), provider())
        .allow_unauthenticated();
    if let Some(crl) = crl {
        builder = builder.with_crls(read_revocations(crl)?).allow_unknown_revocation_status();
    }
    builder.build().map_err(|error| {
        let file = crl.unwrap_or(ca);
        TlsError::new(&file.path, format!("cannot be used to check clients' certificates: {error}"))
    })
}

/// Shows one certificate, whatever name a client asks for.
#[derive(Debug)]
struct Shown(Arc<CertifiedKey>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}
