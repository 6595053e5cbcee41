//! Where a Manager's settings come from, and what it says of those that it refuses.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{binary, free_address, refusal, run_to_end, start, until};

/// A Manager that is told of its settings in every way there is.
struct Configured {
    directory: TempDir,
    command: Command,
}

impl Configured {
    /// With this text in its configuration file.
    fn new(text: &str) -> Configured {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("manager.toml");
        fs::write(&file, text).expect("written");
        let mut command = binary();
        command.current_dir(directory.path()).args(["manager", "--http-listen", "127.0.0.1:0", "--config"]);
        command.arg(file);
        Configured { directory, command }
    }

    /// gRPC and HTTP on the same port.
    fn one_port() -> Configured {
        let mut configured = Configured::new("grpc_listen = \"127.0.0.1:7777\"\n");
        let mut command = binary();
        command.args(["manager", "--http-listen", "127.0.0.1:7777", "--config"]).arg(configured.file());
        configured.command = command;
        configured
    }

    fn env(mut self, name: &str, value: &str) -> Configured {
        self.command.env(name, value);
        self
    }

    fn flag(mut self, name: &str, value: &str) -> Configured {
        self.command.args([name, value]);
        self
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("manager.toml")
    }

    /// The name under which it serves at `address`.
    fn name_at(self, address: &str) -> String {
        let Configured { directory, command } = self;
        let manager = start(command);
        let mut name = None;
        until("the Manager serves", || {
            let (status, text) = run_to_end(&["status", "--managers", address, "--output", "json"]);
            if status.success() {
                let text: Value = serde_json::from_str(&text).expect("JSON");
                name = text["managers"][0]["manager"].as_str().map(str::to_owned);
            }
            name.is_some()
        });
        drop((manager, directory));
        name.expect("it was waited for")
    }
}

#[test]
fn flags_come_before_the_environment_and_that_before_the_file() {
    let address = free_address();
    let file = || Configured::new(&format!("grpc_listen = {address:?}\nadvertise = \"from-file:1\"\n"));
    assert_eq!(file().name_at(&address), "from-file:1");
    let environment = || file().env("CENTRIFUGE_ADVERTISE", "from-environment:1");
    assert_eq!(environment().name_at(&address), "from-environment:1");
    let flag = environment().flag("--advertise", "from-flag:1");
    assert_eq!(flag.name_at(&address), "from-flag:1");
    // What only the environment says holds beside what only the file says.
    let elsewhere = free_address();
    let mixed = file().env("CENTRIFUGE_GRPC_LISTEN", &elsewhere);
    assert_eq!(mixed.name_at(&elsewhere), "from-file:1");
}

#[test]
fn a_wrong_setting_is_named_with_its_source() {
    let file = "leader_lease = \"1 minute\"\n";
    let from_file = Configured::new(file);
    let name = from_file.file().display().to_string();
    let cases = [
        (from_file, ["leader_lease", "1 minute", name.as_str()]),
        (
            Configured::new(file).env("CENTRIFUGE_LEADER_LEASE", "5"),
            ["leader_lease", "\"5\"", "CENTRIFUGE_LEADER_LEASE"],
        ),
        (
            Configured::new(file).env("CENTRIFUGE_LEADER_LEASE", "5").flag("--leader-lease", "0s"),
            ["leader_lease", "\"0s\"", "--leader-lease"],
        ),
        (
            Configured::new("").env("CENTRIFUGE_MAX_STREAMS", "many"),
            ["max-streams", "many", "CENTRIFUGE_MAX_STREAMS"],
        ),
        (Configured::new("").flag("--grpc-listen", "0.0.0.0:7600"), ["grpc_listen", "0.0.0.0", "--insecure"]),
        (Configured::new("[limits]\nmax_streams = 0\n"), ["max_streams", "0", "manager.toml"]),
        (Configured::new("leader_leese = \"1s\"\n"), ["leader_leese", "line 1", "manager.toml"]),
        (Configured::new("").flag("--log-level", "=loud"), ["log_level", "loud", "--log-level"]),
        (Configured::new("").flag("--log-level", "loud="), ["log_level", "loud=", "--log-level"]),
        (
            Configured::new("[namespaces.presence]\nlease = \"30s\"\n"),
            ["namespaces.presence", "centrifuge namespace create", "(set in "],
        ),
        (Configured::new("").flag("--store", "etcdd"), ["store", "etcdd", "file:PATH"]),
        (Configured::new("").flag("--store", "s3:bucket"), ["store", "s3:bucket", "--store)"]),
        (
            Configured::one_port(),
            ["http_listen 127.0.0.1:7777 (set by --http-listen)", "manager.toml", "name one port"],
        ),
    ];
    for (mut configured, words) in cases {
        let (code, message) = refusal(&mut configured.command);
        assert_eq!(code, 2, "{message}");
        for word in words {
            assert!(message.contains(word), "{word:?} in {message}");
        }
    }
}
