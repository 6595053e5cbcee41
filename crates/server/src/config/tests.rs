//! Precedence, and errors that name the setting.

use super::*;
use crate::store::EtcdOptions;

fn file(text: &str) -> ConfigArgs {
    toml::from_str(text).expect("the file is understood")
}

fn error(args: ConfigArgs) -> String {
    args.check().expect_err("refused").to_string()
}

#[test]
fn nothing_set_gives_the_defaults() {
    assert_eq!(ConfigArgs::default().resolve().expect("allowed"), Config::default());
}

#[test]
fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
    let flags = ConfigArgs { grpc_listen: Some("127.0.0.1:1".into()), ..ConfigArgs::default() };
    let file = file("grpc_listen = '127.0.0.1:2'\nhttp_listen = '127.0.0.1:3'\n[limits]\nowner_queue = 7");
    let config = flags.over(file).check().expect("allowed");
    assert_eq!(config.grpc_listen.port(), 1);
    assert_eq!(config.http_listen.port(), 3);
    assert_eq!(config.limits.owner_queue, 7);
    assert_eq!(config.limits.lookup_queue, Limits::default().lookup_queue);
}

#[test]
fn beyond_loopback_needs_a_word_and_an_address_to_dial() {
    let open = |insecure, advertise: Option<&str>| ConfigArgs {
        grpc_listen: Some("0.0.0.0:7600".into()),
        insecure,
        advertise: advertise.map(Into::into),
        ..ConfigArgs::default()
    };
    let refused = error(open(None, Some("host:7600")));
    assert!(refused.contains("grpc_listen") && refused.contains("--insecure"), "{refused}");
    let refused = error(open(Some(true), None));
    assert!(refused.contains("advertise"), "{refused}");
    assert!(open(Some(true), Some("host:7600")).check().is_ok());
}

#[test]
fn errors_name_the_setting_and_what_is_allowed() {
    let with = |text: &str| error(file(text));
    assert!(with("grpc_listen = 'here'").contains("grpc_listen: \"here\" is not allowed"));
    assert!(with("log_format = 'xml'").contains("text or json"));
    assert!(with("leader_lease = '10'").contains("leader_lease"));
    assert!(with("campaign_interval = '6s'").contains("at most half of leader_lease"));
    assert!(with("advertise = 'http://host'").contains("advertise"));
    assert!(with("compact_every = 0").contains("compact_every"));
    assert!(
        with("[limits]\nlookup_queue = 0")
            .contains("lookup_queue: \"0\" is not allowed; it must be a number from 1")
    );
}

#[test]
fn a_store_is_a_file_or_an_etcd() {
    let with = |text: &str| file(text).check().expect("allowed").store;
    assert_eq!(with("store = 'file:a.db'"), Backend::File("a.db".into()));
    assert_eq!(with("store = 'a.db'"), Backend::File("a.db".into()));
    let options = EtcdOptions::new(vec!["http://a:1".to_owned(), "http://b:1".to_owned()]);
    let text = "store = 'etcd'\n[etcd]\nendpoints = 'a:1,b:1'";
    assert_eq!(with(text), Backend::Etcd(Box::new(options)));
    let own = with("store = 'etcd:/own/'\n[etcd]\nendpoints = 'a:1'\nprefix = '/other/'");
    assert!(matches!(own, Backend::Etcd(options) if options.prefix == "/own/"));
    assert!(error(file("store = 'file:'")).contains("store"));
    for path in ["/var/lib/store", "./store", "folder/store", "../a:b", "centrifuge.db"] {
        assert_eq!(with(&format!("store = '{path}'")), Backend::File(path.into()));
    }
    assert_eq!(with("store = 'file:etcdd'"), Backend::File("etcdd".into()));
    for unknown in
        ["etcdd", "s3:bucket", "s3://bucket/a.db", "File:a.db", "a:b.db", "sqlite", "nonee", "http://a/b"]
    {
        let refused = error(file(&format!("store = '{unknown}'")));
        assert!(refused.contains(unknown) && refused.contains("file:PATH"), "{refused}");
    }
    assert!(error(file("store = 'etcd'")).contains("etcd_endpoints"));
    assert!(error(file("[etcd]\nendpoints = 'a:1'")).contains("--store etcd"));
}

#[test]
fn a_leader_lease_on_etcd_fits_into_whole_seconds() {
    let config = file("store = 'etcd'\n[etcd]\nendpoints = 'a:1'").check().expect("allowed");
    assert!(config.leader_lease < config.leader_hold() && config.leader_hold() <= Duration::from_secs(5));
    assert!(config.leader_lease + Duration::from_secs(1) > Duration::from_millis(5_500));
}

#[test]
fn a_log_filter_says_how_much_of_what() {
    for allowed in ["info", "WARN", "off", "info,centrifuge_server=debug", "centrifuge_server=trace, warn"] {
        assert!(file(&format!("log_level = '{allowed}'")).check().is_ok(), "{allowed}");
    }
    for refused in ["loud", "loud=", "=info", "info,", "", "info,centrifuge_server", "a=loud"] {
        let words = error(file(&format!("log_level = '{refused}'")));
        assert!(words.contains("log_level") && words.contains("centrifuge_server=debug"), "{words}");
    }
}

#[test]
fn namespaces_of_a_file_are_blamed_on_their_section() {
    let words = error(file("[namespaces.presence]\nlease = '30s'"));
    assert!(words.starts_with("namespaces.presence: ") && words.contains("namespace create"), "{words}");
}

#[test]
fn an_unknown_setting_in_a_file_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("manager.toml");
    std::fs::write(&path, "grpc_lisen = '127.0.0.1:1'").expect("written");
    let args = ConfigArgs { config: Some(path), ..ConfigArgs::default() };
    let error = args.resolve().expect_err("refused").to_string();
    assert!(error.contains("grpc_lisen"), "{error}");
}

#[test]
fn a_missing_file_is_named() {
    let args = ConfigArgs { config: Some("no/such/file.toml".into()), ..ConfigArgs::default() };
    assert!(args.resolve().expect_err("refused").to_string().contains("no/such/file.toml"));
}

#[test]
fn flags_are_parsed_by_name() {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: ConfigArgs,
    }
    let line = <Line as clap::Parser>::parse_from([
        "m",
        "--http-listen",
        "127.0.0.1:9",
        "--insecure",
        "--owner-queue",
        "3",
    ]);
    assert_eq!(line.args.http_listen.as_deref(), Some("127.0.0.1:9"));
    assert_eq!(line.args.insecure, Some(true));
    assert_eq!(line.args.limits.owner_queue, Some(3));
}
