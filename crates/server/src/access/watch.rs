//! Looks at the files of TLS, of the policy and of shared secrets every second, and ends what is not allowed any more.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use centrifuge_net::secrets::KeyFile;
use centrifuge_net::tls::FileContents;
use tokio::sync::watch;
use tracing::{info, warn};

use super::{FileError, Identity, Policy, Proof, Tokens};
use crate::config::Config;
use crate::shared::Shared;

/// How often files are looked at, and how long the status of a stream that is ended has to reach its peer before the connection ends.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How early an operator is warned of a certificate that runs out.
const WARN_BEFORE: Duration = Duration::from_secs(14 * 24 * 60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A file of rules or keys, and what was in it.
#[derive(Debug)]
struct WatchedFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl WatchedFile {
    /// Reads a file for the first time; gives its text, too.
    fn open(path: PathBuf) -> Result<(WatchedFile, String), FileError> {
        let mut file = WatchedFile { path, bytes: Vec::new() };
        let text = file.read()?.unwrap_or_default();
        Ok((file, text))
    }

    /// The text, if it has changed.
    fn read(&mut self) -> Result<Option<String>, FileError> {
        let refuse = |problem| FileError { file: self.path.clone(), line: None, problem };
        let read = FileContents::read(&self.path).map_err(|error| refuse(error.problem))?;
        if read.bytes == self.bytes {
            return Ok(None);
        }
        self.bytes.clone_from(&read.bytes);
        String::from_utf8(read.bytes).map(Some).map_err(|_| refuse("is not UTF-8 text".to_owned()))
    }
}

/// What is watched.
pub(crate) struct Watched {
    shared: Arc<Shared>,
    policy: Option<WatchedFile>,
    token_keys: Option<WatchedFile>,
    peer_key: Option<KeyFile>,
}

impl Watched {
    /// Reads the policy and the keys of tokens for the first time, and puts them in force.
    pub(crate) fn open(
        config: &Config,
        peer_key: Option<KeyFile>,
        shared: Arc<Shared>,
    ) -> Result<Watched, FileError> {
        let mut watched = Watched { shared, policy: None, token_keys: None, peer_key };
        if let Some(path) = &config.policy {
            let (file, text) = WatchedFile::open(path.clone())?;
            watched.shared.authority.obey(Arc::new(Policy::parse(path, &text)?));
            watched.policy = Some(file);
        }
        if let Some(settings) = &config.tokens {
            let (file, text) = WatchedFile::open(settings.keys.clone())?;
            watched.shared.authority.believe(Arc::new(Tokens::parse(settings.clone(), &text)?));
            watched.token_keys = Some(file);
        }
        Ok(watched)
    }

    /// Watches until told to stop.
    pub(crate) async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let mut ending: Vec<Arc<Identity>> = Vec::new();
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
                _ = stopped.wait_for(|stopped| *stopped) => return,
            }
            ending.drain(..).for_each(|identity| identity.end());
            // The files are small, and a thread of its own would have to be waited for.
            self.look_at_certificates();
            self.look_at_policy();
            self.look_at_token_keys();
            self.look_at_peer_key();
            ending = self.end_what_is_over();
        }
    }

    fn look_at_certificates(&self) {
        let Some(tls) = &self.shared.tls else { return };
        match tls.reload() {
            Ok(false) => {}
            Ok(true) => {
                info!("new TLS files are in use");
                self.revoke(|proof| matches!(proof, Proof::Certificate(chain) if !tls.accepts(chain)));
            }
            Err(error) => self.keep("tls", &error),
        }
        let left = tls.expires_at().duration_since(SystemTime::now()).unwrap_or_default();
        let days = left.as_secs() / DAY.as_secs();
        self.shared.metrics.tls_days_to_expiry.set(i64::try_from(days).unwrap_or(i64::MAX));
        if left < WARN_BEFORE
            && let Some(suppressed) = self.shared.quiet.admit("certificate-expires")
        {
            warn!(days, suppressed, "the Manager's certificate runs out soon: put a new one in its place");
        }
    }

    fn look_at_policy(&mut self) {
        let Some(file) = &mut self.policy else { return };
        let policy =
            file.read().and_then(|text| text.map(|text| Policy::parse(&file.path, &text)).transpose());
        match policy {
            Ok(None) => {}
            Ok(Some(policy)) => {
                info!(file = %file.path.display(), "a new policy is in force");
                self.shared.authority.obey(Arc::new(policy));
            }
            Err(error) => self.keep("policy", &error),
        }
    }

    fn look_at_token_keys(&mut self) {
        let (Some(file), Some(known)) = (&mut self.token_keys, self.shared.authority.tokens()) else {
            return;
        };
        let parse = |text: String| Tokens::parse(known.settings().clone(), &text);
        match file.read().and_then(|text| text.map(parse).transpose()) {
            Ok(None) => {}
            Ok(Some(tokens)) => {
                info!(file = %file.path.display(), "new keys of tokens are in use");
                let tokens = Arc::new(tokens);
                self.shared.authority.believe(Arc::clone(&tokens));
                self.revoke(|proof| matches!(proof, Proof::Token(key) if !tokens.has(key)));
            }
            Err(error) => self.keep("token_keys", &error),
        }
    }

    fn look_at_peer_key(&mut self) {
        let Some(file) = &mut self.peer_key else { return };
        match file.look() {
            Ok(false) => {}
            Ok(true) => file.log_change(),
            Err(error) => {
                self.shared.metrics.reloads_refused.with(["peer_key"]).inc();
                // The file says each once: no second mistake is left out because it follows soon.
                warn!(%error, "changed secrets cannot be used: those before stay in force");
            }
        }
    }

    /// Identities that are proven in this way do not count any more.
    fn revoke(&self, is_void: impl Fn(&Proof) -> bool) {
        let identities = self.shared.authority.identities();
        identities.iter().filter(|who| is_void(who.proof())).for_each(|who| who.revoke());
    }

    fn keep(&self, kind: &'static str, error: &dyn std::fmt::Display) {
        self.shared.metrics.reloads_refused.with([kind]).inc();
        if let Some(suppressed) = self.shared.quiet.admit(kind) {
            warn!(%error, suppressed, "a changed file cannot be used: what it had before stays in force");
        }
    }

    /// Ends streams that are not allowed any more; gives the identities whose connections have to end.
    fn end_what_is_over(&self) -> Vec<Arc<Identity>> {
        let (shared, now) = (&self.shared, SystemTime::now());
        for (stream, who, access, denial) in shared.authority.outlawed() {
            let status = shared.deny(who.as_deref(), &"an open stream", &access, denial);
            shared.authority.forget(stream);
            shared.owners.end(stream, Some(status.clone()));
            shared.lookups.end(stream, Some(status));
        }
        shared.authority.identities().into_iter().filter(|who| who.flaw(now).is_some()).collect()
    }
}
