//! Which Managers to ask: a list, or a file that is read again when it changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::ManagerId;
use centrifuge_net::dial::Dialer;
use centrifuge_net::tls::TlsError;

/// What a client trusts and shows: files, which are read again when they change.
pub use centrifuge_net::tls::ClientTls as Tls;

/// What secures connections: files, which are read again when they change.
pub use centrifuge_net::dial::Security;

/// How often a file is looked at.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The Managers of a group, leader and standbys, each as `host:port`.
///
/// ```
/// use centrifuge::Managers;
///
/// let listed = Managers::list(["manager-1:7600", "manager-2:7600"])?;
/// let watched = Managers::file("/etc/centrifuge/managers"); // one a line, read again when it changes
/// assert!(Managers::list(["http://manager-1:7600"]).is_err(), "an address has no scheme");
/// # Ok::<(), centrifuge::ManagersError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Managers {
    source: Source,
    security: Box<Security>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    List(Arc<[ManagerId]>),
    File(PathBuf),
}

/// Why a list of Managers is no use.
#[derive(Debug, thiserror::Error)]
pub enum ManagersError {
    /// The list has no entry.
    #[error("no Manager is listed: name at least one, as host:port")]
    Empty,
    /// An entry is not an address.
    #[error("{0:?} is no address of a Manager: write host:port, for example manager-1:7600")]
    Address(String),
    /// The file cannot be read.
    #[error("cannot read the list of Managers in {path}: {source}; write one host:port a line")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file that secures connections cannot be used.
    #[error("{0}")]
    Tls(#[from] TlsError),
}

impl Managers {
    /// A list that stays as it is.
    pub fn list<T: AsRef<str>>(addresses: impl IntoIterator<Item = T>) -> Result<Managers, ManagersError> {
        let addresses: Vec<T> = addresses.into_iter().collect();
        let source = Source::List(parse(addresses.iter().map(AsRef::as_ref))?);
        Ok(Managers { source, security: Box::default() })
    }

    /// A file with one address a line; what follows a `#` is for people. It is looked at every second, and a change that
    /// cannot be read leaves the list as it was.
    #[must_use]
    pub fn file(path: impl AsRef<Path>) -> Managers {
        Managers { source: Source::File(path.as_ref().to_owned()), security: Box::default() }
    }

    /// Talks to them inside TLS. The files are read again whenever a connection is made: a new certificate needs no restart.
    ///
    /// ```
    /// use centrifuge::{Managers, Tls};
    ///
    /// let tls = Tls::files("ca.pem", "server.pem", "server.key");
    /// let managers = Managers::list(["manager-1:7600"])?.tls(tls);
    /// # Ok::<(), centrifuge::ManagersError>(())
    /// ```
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Managers {
        self.security.tls = Some(tls);
        self
    }

    /// Proves with the token in a file who asks, such as one that Kubernetes projects into a pod. It is sent only inside TLS or on
    /// this machine, and read again for every request: a new one needs no restart.
    ///
    /// ```
    /// use centrifuge::{Managers, Tls};
    ///
    /// let managers = Managers::list(["manager-1:7600"])?
    ///     .tls(Tls::trusting("ca.pem"))
    ///     .token_file("/var/run/secrets/tokens/centrifuge");
    /// # Ok::<(), centrifuge::ManagersError>(())
    /// ```
    #[must_use]
    pub fn token_file(mut self, path: impl AsRef<Path>) -> Managers {
        self.security.token_file = Some(path.as_ref().to_owned());
        self
    }

    /// How connections to them are secured.
    #[must_use]
    pub fn security(&self) -> &Security {
        &self.security
    }

    /// Makes connections to them. Fails if the files that secure them cannot be used.
    pub(crate) fn dialer(&self) -> Result<Dialer, ManagersError> {
        self.security.check()?;
        Ok(Dialer::secured(self.security().clone()))
    }

    /// The list as it is now.
    pub fn read(&self) -> Result<Arc<[ManagerId]>, ManagersError> {
        match &self.source {
            Source::List(list) => Ok(Arc::clone(list)),
            Source::File(path) => read_file(path),
        }
    }

    /// Calls `changed` with every list that differs from the one before; `false` ends the watch.
    pub(crate) async fn watch<F>(
        self,
        mut known: Arc<[ManagerId]>,
        mut changed: impl FnMut(Arc<[ManagerId]>) -> F,
    ) where
        F: Future<Output = bool>,
    {
        let Source::File(path) = self.source else { return };
        let mut is_readable = true;
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let path = path.clone();
            let read = tokio::task::spawn_blocking(move || read_file(&path)).await;
            match read {
                Ok(Ok(list)) => {
                    is_readable = true;
                    if list != known {
                        known = Arc::clone(&list);
                        if !changed(list).await {
                            return;
                        }
                    }
                }
                Ok(Err(error)) => {
                    if is_readable {
                        tracing::warn!(%error, "the list of Managers stays as it was");
                    }
                    is_readable = false;
                }
                Err(_) => return,
            }
        }
    }
}

/// What went wrong last, in words that end a sentence.
pub(crate) fn last_problem(dialer: &Dialer) -> String {
    dialer.problem().map_or_else(String::new, |problem| format!("; the last problem was at {problem}"))
}

/// The list as people read it.
pub(crate) fn names(list: &[ManagerId]) -> String {
    list.iter().map(ManagerId::as_str).collect::<Vec<_>>().join(", ")
}

fn read_file(path: &Path) -> Result<Arc<[ManagerId]>, ManagersError> {
    let unreadable = |source| ManagersError::Unreadable { path: path.to_owned(), source };
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    parse(lines.filter(|line| !line.is_empty()))
}

fn parse<'a>(addresses: impl Iterator<Item = &'a str>) -> Result<Arc<[ManagerId]>, ManagersError> {
    let list: Result<Vec<ManagerId>, ManagersError> = addresses.map(address).collect();
    let list = list?;
    if list.is_empty() { Err(ManagersError::Empty) } else { Ok(list.into()) }
}

fn address(text: &str) -> Result<ManagerId, ManagersError> {
    let is_address = text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains(['/', ' ']) && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if is_address { Ok(ManagerId::from(text)) } else { Err(ManagersError::Address(text.to_owned())) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tokio::sync::mpsc;

    use super::*;

    #[test]
    fn addresses_are_checked() {
        let list = Managers::list(["a:7600", "[::1]:7601"]).expect("addresses");
        assert_eq!(list.read().expect("a list").len(), 2);
        for wrong in ["", "a", "a:", ":7600", "http://a:7600", "a:0", "a:70000"] {
            assert!(matches!(Managers::list([wrong]), Err(ManagersError::Address(_))), "{wrong}");
        }
        assert!(matches!(Managers::list::<&str>([]), Err(ManagersError::Empty)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_file_is_read_again_and_a_broken_one_is_not() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        writeln!(file, "# the first group\na:1 # leads\n\nb:2").expect("written");
        let managers = Managers::file(file.path());
        let known = managers.read().expect("a list");
        assert_eq!(known.iter().map(ManagerId::as_str).collect::<Vec<_>>(), ["a:1", "b:2"]);
        let (told, mut lists) = mpsc::unbounded_channel();
        let watch = tokio::spawn(managers.watch(known, move |list| {
            let told = told.clone();
            async move { told.send(list).is_ok() }
        }));
        std::fs::write(file.path(), "nonsense").expect("written");
        tokio::time::sleep(POLL_INTERVAL * 3).await;
        std::fs::write(file.path(), "c:3").expect("written");
        let list = lists.recv().await.expect("a list");
        assert_eq!(list.iter().map(ManagerId::as_str).collect::<Vec<_>>(), ["c:3"]);
        watch.abort();
    }
}
