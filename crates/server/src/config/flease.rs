//! Managers without a store: who they are, what they share, and what is refused.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use centrifuge_core::election::ElectionConfigError;
use centrifuge_core::settings::Drift;
use centrifuge_net::flease::Peers;
use serde::Deserialize;

use super::text::{duration, merge};
use super::{ConfigError, refuse};
use crate::store::{PeerKey, PeerOptions};

/// How often a standby tries to lead, at most: while it knows a leader, trying sends no message.
const CAMPAIGN_INTERVAL: Duration = Duration::from_secs(1);

/// Settings of Managers without a store as a user can set them; in a file under `[flease]`, without `flease_` and `peer_key`
/// as `key`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FleaseArgs {
    /// With --store none: all Managers including this one, as number=host:port, separated by commas. The address serves
    /// clients (TCP) and the other Managers (UDP). The same at all Managers
    #[arg(long, env = "CENTRIFUGE_PEERS", value_name = "PEERS")]
    pub peers: Option<String>,
    /// With --store none: the number of this Manager in --peers
    #[arg(long, env = "CENTRIFUGE_PEER_ID", value_name = "NUMBER")]
    pub peer_id: Option<u16>,
    /// With --store none: a file with the secret that all Managers share, at least 16 bytes; reloaded when it changes.
    /// A second line can have another secret that is accepted, too: the first one signs. Blank lines and lines that
    /// begin with # are ignored
    #[arg(long, env = "CENTRIFUGE_PEER_KEY_FILE", value_name = "FILE")]
    #[serde(rename = "key_file")]
    pub peer_key_file: Option<PathBuf>,
    /// With --store none: address to listen on for the other Managers (UDP) [default: the gRPC address and port]
    #[arg(long, env = "CENTRIFUGE_FLEASE_LISTEN", value_name = "ADDRESS:PORT")]
    #[serde(rename = "listen")]
    pub flease_listen: Option<String>,
    /// With --store none: how long the others wait for a silent leader; the same at all Managers [default: 5s]
    #[arg(long, env = "CENTRIFUGE_FLEASE_LEASE", value_name = "DURATION")]
    #[serde(rename = "lease")]
    pub flease_lease: Option<String>,
    /// With --store none: largest difference between two Managers' clocks; the same at all Managers [default: 250ms]
    #[arg(long, env = "CENTRIFUGE_FLEASE_EPSILON", value_name = "DURATION")]
    #[serde(rename = "epsilon")]
    pub flease_epsilon: Option<String>,
    /// With --store none: how long two round trips between Managers may take; the same at all Managers [default: 1s]
    #[arg(long, env = "CENTRIFUGE_FLEASE_ROUND", value_name = "DURATION")]
    #[serde(rename = "round")]
    pub flease_round: Option<String>,
    /// With --store none: how far the Managers' clock runs ahead of the machines' clocks. Use it after clocks that were
    /// ahead were set back, when clients refuse the Managers as stale; the same at all Managers [default: not at all]
    #[arg(long, env = "CENTRIFUGE_FLEASE_CLOCK_AHEAD", value_name = "DURATION")]
    #[serde(rename = "clock_ahead")]
    pub flease_clock_ahead: Option<String>,
}

impl FleaseArgs {
    /// These settings, and where there is none, those of `file`.
    pub(super) fn over(mut self, file: FleaseArgs) -> FleaseArgs {
        merge!(self, file; peers, peer_id, peer_key_file, flease_listen, flease_lease, flease_epsilon, flease_round,
            flease_clock_ahead);
        self
    }

    /// Checks what Managers without a store share.
    pub(super) fn check(self) -> Result<PeerOptions, ConfigError> {
        let peers = peers(self.peers)?;
        let me = own_number(self.peer_id, &peers)?;
        let options = PeerOptions {
            listen: self.flease_listen.map(listen).transpose()?,
            lease: duration("flease_lease", self.flease_lease, PeerOptions::LEASE)?,
            epsilon: duration("flease_epsilon", self.flease_epsilon, PeerOptions::EPSILON)?,
            round: duration("flease_round", self.flease_round, PeerOptions::ROUND)?,
            clock_ahead: clock_ahead(self.flease_clock_ahead)?,
            ..PeerOptions::new(peers, me, key(self.peer_key_file.as_deref())?)
        };
        check_times(&options)?;
        Ok(options)
    }

    /// Refuses settings of Managers without a store where there is one.
    pub(super) fn check_unused(&self) -> Result<(), ConfigError> {
        let path = |path: &PathBuf| path.display().to_string();
        let set = [
            ("peers", self.peers.clone()),
            ("peer_id", self.peer_id.map(|id| id.to_string())),
            ("peer_key_file", self.peer_key_file.as_ref().map(path)),
            ("flease_listen", self.flease_listen.clone()),
            ("flease_lease", self.flease_lease.clone()),
            ("flease_epsilon", self.flease_epsilon.clone()),
            ("flease_round", self.flease_round.clone()),
            ("flease_clock_ahead", self.flease_clock_ahead.clone()),
        ];
        match set.into_iter().find_map(|(setting, value)| Some((setting, value?))) {
            Some((setting, value)) => {
                Err(refuse(setting, value, "left out, unless store is none (--store none)"))
            }
            None => Ok(()),
        }
    }
}

/// The longest leader lease that these times allow, and how often a standby then tries to lead.
pub(super) fn leader_times(options: &PeerOptions) -> (Duration, Duration) {
    let leader_lease = options.election().leader_lease(Drift::default());
    (leader_lease, CAMPAIGN_INTERVAL.min(leader_lease / 4))
}

fn peers(text: Option<String>) -> Result<Peers, ConfigError> {
    let text = text.unwrap_or_default();
    text.parse().map_err(|error| {
        let allowed = format!("all Managers, this one too, as 1=10.0.0.1:7600,2=10.0.0.2:7600: {error}");
        refuse("peers", text, &allowed)
    })
}

fn own_number(number: Option<u16>, peers: &Peers) -> Result<u16, ConfigError> {
    let listed: Vec<String> = peers.iter().map(|(peer, _)| peer.to_string()).collect();
    let allowed = format!("the number of this Manager among peers: one of {}", listed.join(", "));
    match number {
        Some(number) if peers.address(number).is_some() => Ok(number),
        Some(number) => Err(refuse("peer_id", number.to_string(), &allowed)),
        None => Err(refuse("peer_id", "", &allowed)),
    }
}

fn key(path: Option<&Path>) -> Result<PeerKey, ConfigError> {
    let Some(path) = path else {
        let allowed = "a file with the secret that all Managers share: make one with `head -c 32 /dev/urandom | base64`";
        return Err(refuse("peer_key_file", "", allowed));
    };
    let refused = |why: String| refuse("peer_key_file", path.display().to_string(), &why);
    PeerKey::open(path).map_err(|error| refused(format!("a file with one or two secrets: {}", error.problem)))
}

fn listen(text: String) -> Result<SocketAddr, ConfigError> {
    text.parse().map_err(|_| {
        refuse("flease_listen", text, "an IP address and a port, as 127.0.0.1:7600 or [::1]:7600")
    })
}

fn clock_ahead(text: Option<String>) -> Result<Duration, ConfigError> {
    let ahead = duration("flease_clock_ahead", text, Duration::ZERO)?;
    if ahead > PeerOptions::MAX_CLOCK_AHEAD {
        return Err(refuse("flease_clock_ahead", format!("{ahead:?}"), "at most ten years"));
    }
    Ok(ahead)
}

fn check_times(options: &PeerOptions) -> Result<(), ConfigError> {
    let refused = |why: ElectionConfigError| {
        let value = format!("{:?}", options.lease);
        let times = format!("flease_epsilon {:?}, flease_round {:?}", options.epsilon, options.round);
        refuse("flease_lease", value, &format!("one that goes with {times}: {why}"))
    };
    options.election().check().map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::super::{Config, ConfigArgs};
    use super::*;
    use crate::store::Backend;

    const THREE: &str = "1=127.0.0.1:7600,2=127.0.0.2:7600,3=127.0.0.3:7600";

    /// What three Managers share, in a file, beside a secret of its own.
    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Folder {
            let folder = Folder(tempfile::tempdir().expect("a folder"));
            std::fs::write(folder.key(), "sixteen letters and more\n").expect("written");
            folder
        }

        fn key(&self) -> PathBuf {
            self.0.path().join("key")
        }

        fn args(&self) -> ConfigArgs {
            let flease = FleaseArgs {
                peers: Some(THREE.to_owned()),
                peer_id: Some(2),
                peer_key_file: Some(self.key()),
                ..FleaseArgs::default()
            };
            let namespace = vec!["presence".to_owned()];
            ConfigArgs { store: Some("none".into()), namespace, flease, ..ConfigArgs::default() }
        }

        /// The words of the refusal of changed settings.
        fn refused(&self, change: impl FnOnce(&mut ConfigArgs), words: &[&str]) {
            let mut args = self.args();
            change(&mut args);
            refused(args, words);
        }
    }

    fn refused(args: ConfigArgs, words: &[&str]) {
        let error = args.resolve().expect_err("refused").to_string();
        for word in words {
            assert!(error.contains(word), "{word:?} in {error}");
        }
    }

    fn options(config: &Config) -> &PeerOptions {
        match &config.store {
            Backend::None(options) => options,
            other => panic!("a store: {other}"),
        }
    }

    #[test]
    fn three_managers_need_their_addresses_a_secret_and_a_namespace() {
        let folder = Folder::new();
        let config = folder.args().resolve().expect("allowed");
        assert_eq!(config.grpc_listen.to_string(), "127.0.0.2:7600", "clients are served where peers says");
        assert_eq!(config.advertise.as_deref(), Some("127.0.0.2:7600"));
        let options = options(&config);
        assert_eq!((options.me, options.listen), (2, None));
        // The leader lease ends before Flease lets another in, whatever the clocks do.
        assert!(config.leader_hold() <= options.lease - options.epsilon);
        assert!(config.leader_lease > Duration::from_secs(4));
        assert_eq!(config.namespaces.len(), 1);
        let flease = ConfigArgs { election: Some("flease".to_owned()), ..folder.args() };
        assert!(flease.resolve().is_ok(), "saying it is allowed");
    }

    #[test]
    fn what_is_missing_is_named() {
        let folder = Folder::new();
        folder.refused(|args| args.flease.peers = None, &["peers", "1=10.0.0.1:7600"]);
        folder.refused(|args| args.flease.peers = Some("127.0.0.1:1".into()), &["peers", "number=host:port"]);
        folder.refused(|args| args.flease.peer_id = None, &["peer_id", "1, 2, 3"]);
        folder.refused(|args| args.flease.peer_id = Some(4), &["peer_id", "\"4\""]);
        folder.refused(|args| args.flease.peer_key_file = None, &["peer_key_file", "/dev/urandom"]);
        let absent = folder.0.path().join("absent");
        folder.refused(
            |args| args.flease.peer_key_file = Some(absent),
            &["peer_key_file", "absent", "cannot be read"],
        );
        std::fs::write(folder.0.path().join("short"), "short\n").expect("written");
        let short = folder.0.path().join("short");
        folder.refused(|args| args.flease.peer_key_file = Some(short), &["peer_key_file", "5 bytes", "16"]);
        let three = folder.0.path().join("three");
        std::fs::write(&three, "sixteen letters 1\n\nsixteen letters 2\nsixteen letters 3\n")
            .expect("written");
        folder.refused(|args| args.flease.peer_key_file = Some(three), &["three", "line 4", "at most two"]);
        folder.refused(|args| args.namespace.clear(), &["--namespace NAME", "[namespaces.NAME]"]);
        let named =
            |args: &mut ConfigArgs| args.flease.peers = Some("2=manager-2:7600,3=manager-3:7600".into());
        folder.refused(named, &["grpc_listen", "manager-2:7600", "name"]);
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let folder = Folder::new();
        folder.refused(|args| args.election = Some("etcd".into()), &["election", "flease", "store is none"]);
        folder.refused(|args| args.advertise = Some("other:7600".into()), &["advertise", "127.0.0.2:7600"]);
        folder.refused(|args| args.leader_lease = Some("10s".into()), &["leader_lease", "flease_lease"]);
        folder.refused(|args| args.etcd.etcd_endpoints = Some("a:1".into()), &["etcd_endpoints"]);
        folder.refused(
            |args| args.flease.flease_lease = Some("1s".into()),
            &["flease_lease", "epsilon", "round"],
        );
        folder.refused(|args| args.flease.flease_listen = Some("here".into()), &["flease_listen"]);
        folder.refused(
            |args| args.flease.flease_clock_ahead = Some("99999h".into()),
            &["flease_clock_ahead", "ten years"],
        );
        // Nothing of it without it.
        let stored = |change: fn(&mut ConfigArgs)| {
            let mut args = ConfigArgs::default();
            change(&mut args);
            args
        };
        refused(stored(|args| args.election = Some("flease".into())), &["election", "--store none"]);
        refused(stored(|args| args.flease.peers = Some(THREE.into())), &["peers", "--store none"]);
        refused(stored(|args| args.flease.peer_id = Some(1)), &["peer_id", "--store none"]);
        refused(
            stored(|args| args.flease.flease_round = Some("1s".into())),
            &["flease_round", "--store none"],
        );
        refused(
            stored(|args| args.namespace = vec!["a".into()]),
            &["namespace", "centrifuge namespace create"],
        );
    }

    #[test]
    fn a_file_has_tables_for_peers_and_namespaces() {
        let folder = Folder::new();
        let text = format!(
            "store = 'none'\nelection = 'flease'\n[flease]\npeers = '{THREE}'\npeer_id = 1\nkey_file = '{}'\n\
             listen = '127.0.0.1:7700'\nlease = '8s'\nepsilon = '100ms'\nround = '2s'\nclock_ahead = '26h'\n\
             [namespaces.presence]\nlease = '30s'\nhold = '35s'\nrenewal = '5s'\npartitioner = 'fixed'\n[namespaces.rooms]",
            folder.key().display()
        );
        let path = folder.0.path().join("manager.toml");
        std::fs::write(&path, text).expect("written");
        let flags = ConfigArgs {
            config: Some(path),
            namespace: vec!["presence".into(), "more".into()],
            ..ConfigArgs::default()
        };
        let config = flags.resolve().expect("allowed");
        let options = options(&config);
        assert_eq!(options.listen, Some(SocketAddr::from(([127, 0, 0, 1], 7700))));
        let times = [options.lease, options.epsilon, options.round];
        assert_eq!(times, [8_000, 100, 2_000].map(Duration::from_millis));
        assert_eq!(options.clock_ahead, Duration::from_secs(26 * 3_600));
        let names: Vec<String> = config.namespaces.keys().map(ToString::to_string).collect();
        assert_eq!(names, ["more", "presence", "rooms"]);
        let leases: Vec<u64> =
            config.namespaces.values().map(|space| space.settings.lease.as_secs()).collect();
        assert_eq!(leases, [60, 30, 60], "a flag adds a namespace and changes none");
    }

    #[test]
    fn a_namespace_that_cannot_be_is_refused_by_name_and_setting() {
        use super::super::namespaces::{self, NamespaceArgs};
        use std::collections::BTreeMap;
        let checked = |text: &str| namespaces::check(toml::from_str(text).expect("understood"), &[]);
        let error = |text: &str| checked(text).expect_err("refused").to_string();
        assert!(error("[presence]\nlease = '60'").contains("namespaces.presence: lease"));
        assert!(error("[presence]\nlease = '70s'").contains("hold must exceed lease"));
        assert!(error("[presence]\npartitioner = 'mine'").contains("partitioner"));
        assert!(error("[Presence]").contains("namespaces.Presence"));
        let unknown = error("[presence]\npartitioner = 'roulette'");
        assert!(unknown.contains("roulette") && unknown.contains("trim"), "{unknown}");
        let unequal = error("[presence]\npartitioner = 'trim'\nimbalance = 1000");
        assert!(unequal.contains("imbalance must be at least 1010"), "{unequal}");
        let negative = toml::from_str::<BTreeMap<String, NamespaceArgs>>("[presence]\nchurn_budget = -1");
        let negative = negative.expect_err("refused").to_string();
        assert!(negative.contains("churn_budget") && negative.contains("-1"), "{negative}");
        assert!(error("[presence]\nvirtual_nodes = 100000").contains("virtual_nodes"));
        assert!(error("[feeds]\nmode = 'shared'").contains("namespaces.feeds: mode"));
        assert!(error("[feeds]\nmode = 'affinity'\nhold = '70s'").contains("hold must not be set"));
        let declared = checked("[feeds]\nmode = 'affinity'\nlease = '70s'\n[presence]").expect("they can be");
        let modes: Vec<&str> = declared.values().map(|space| space.kind.mode.as_str()).collect();
        assert_eq!(modes, ["affinity", "exclusive"]);
        assert!(error("[users]\nkeys = 'sorted'").contains("keys: \"sorted\" is neither hashed nor ordered"));
        assert!(error("[users]\nkey_prefix = 'user/'").contains("set keys = \"ordered\" too"));
        assert!(error("[users]\nkeys = 'ordered'\nkey_prefix = '\\q'").contains("key_prefix"));
        let hash = "[users]\nkeys = 'ordered'\npartitioner = 'consistent-hash'";
        assert!(error(hash).contains("use trim"));
    }

    #[test]
    fn a_file_says_what_a_namespace_is() {
        let text = "[users]\nkeys = 'ordered'\nkey_prefix = 'user/\\xff'\n[rooms]";
        let spaces = super::super::namespaces::check(toml::from_str(text).expect("understood"), &[]);
        let spaces = spaces.expect("allowed");
        let kinds: Vec<String> = spaces.values().map(|space| space.kind.to_string()).collect();
        let ordered = r"ordered keys after 'user/\xff', exclusive leases";
        assert_eq!(kinds, ["hashed keys, exclusive leases", ordered]);
        let partitioners: Vec<_> = spaces.values().map(|space| space.settings.partitioner.as_str()).collect();
        assert_eq!(partitioners, ["consistent-hash", "trim"]);
    }
}
