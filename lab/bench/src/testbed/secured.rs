//! The files of a Manager inside TLS, and of clients who may do everything there.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use centrifuge_harness::pki::{Authority, replace};
use centrifuge_net::dial::Security;
use centrifuge_net::tls::ClientTls;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::Result;

const VALID_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// All clients of a measurement come from one address, which gets half of what there is.
const LIMITS: &str = "--max-connections 40000 --max-connections-per-address 20000 --max-streams 40000 \
                      --max-streams-per-address 20000 --watches-per-second 5000";
/// Whoever has the clients' certificate may do everything.
const POLICY: &str = "[[allow]]\nwho = [\"spiffe://bench/client\"]\nnamespaces = [\"*\"]\nowner_names = [\"*\"]\n\
                      may = [\"own\", \"lookup\", \"view\", \"operate\", \"administer\", \"metrics\"]\n";

/// Certificates and a policy; they are deleted when this is dropped.
pub(crate) struct Secured {
    folder: TempDir,
}

/// What clients trust and show, if they talk inside TLS.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ClientFiles(Option<[PathBuf; 3]>);

impl Secured {
    pub(crate) fn new() -> Result<Secured> {
        let secured = Secured { folder: tempfile::tempdir()? };
        let (from, to) = (SystemTime::now() - Duration::from_secs(3_600), SystemTime::now() + VALID_FOR);
        let authority = Authority::new("centrifuge, for measuring")?;
        for (file, names) in
            [("manager", &["127.0.0.1", "localhost"][..]), ("client", &["spiffe://bench/client"])]
        {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let issued = authority.issue(&names, file, from, to)?;
            issued.replace(&secured.path(&format!("{file}.pem")), &secured.path(&format!("{file}.key")))?;
        }
        replace(&secured.path("ca.pem"), authority.pem())?;
        replace(&secured.path("policy.toml"), POLICY)?;
        Ok(secured)
    }

    /// What the Manager is started with.
    pub(super) fn arguments(&self) -> Vec<String> {
        let files = [
            ("--tls-cert", "manager.pem"),
            ("--tls-key", "manager.key"),
            ("--tls-client-ca", "ca.pem"),
            ("--policy", "policy.toml"),
        ];
        let pairs = files.map(|(flag, file)| [flag.to_owned(), self.path(file).display().to_string()]);
        let limits = LIMITS.split(' ').map(str::to_owned);
        pairs.into_iter().flatten().chain(limits).collect()
    }

    pub(super) fn client(&self) -> ClientFiles {
        ClientFiles(Some(["ca.pem", "client.pem", "client.key"].map(|file| self.path(file))))
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }
}

impl ClientFiles {
    pub(crate) fn security(&self) -> Security {
        let tls = self.0.as_ref().map(|[ca, cert, key]| ClientTls::files(ca, cert, key));
        Security { tls, token_file: None }
    }
}
