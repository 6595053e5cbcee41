//! `centrifuge certs`: certificates and a policy for trying TLS.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use serde_json::json;

use crate::failure::Failure;
use crate::output::Format;

/// Who the certificates are for, in the form of SPIFFE.
const TRUST_DOMAIN: &str = "spiffe://trial";
/// What the CA and the certificates are called, so that nobody takes them for others.
const LABEL: &str = "centrifuge, for trying";

/// How long they are valid.
const VALID_FOR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[derive(Subcommand)]
pub(crate) enum CertsCommand {
    /// Make a private CA, certificates for a Manager, a server, a caller and an operator, and a policy for them.
    /// For trying TLS: the CA's key lies beside the certificates
    Init(InitArgs),
}

#[derive(Args)]
pub(crate) struct InitArgs {
    /// The folder to write into; it is made if it does not exist, and no file in it is overwritten
    #[arg(default_value = "certs")]
    folder: PathBuf,
    /// Host names and addresses by which clients reach the Managers
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "localhost,127.0.0.1,::1")]
    hosts: Vec<String>,
    /// The namespace that the server and the caller belong to
    #[arg(long, default_value = "pool")]
    namespace: String,
    #[command(flatten)]
    format: Format,
}

/// A certificate to be made: its file's name, and whom it is for.
struct Wanted {
    file: &'static str,
    uri: String,
    hosts: Vec<String>,
    purpose: ExtendedKeyUsagePurpose,
}

pub(crate) fn run(command: CertsCommand) -> Result<(), Failure> {
    match command {
        CertsCommand::Init(args) => init(&args),
    }
}

fn init(args: &InitArgs) -> Result<(), Failure> {
    let names = make(&args.folder, &args.hosts, &args.namespace)?;
    let folder = args.folder.display();
    args.format.output().print(&json!({ "folder": args.folder, "files": names }), || {
        format!(
            "wrote {} files to {folder}, for trying: the CA's key is among them\n\n\
             centrifuge manager --tls-cert {folder}/manager.pem --tls-key {folder}/manager.key \\\n    \
             --tls-client-ca {folder}/ca.pem --policy {folder}/policy.toml\n\
             centrifuge status --tls-ca {folder}/ca.pem --tls-cert {folder}/operator.pem --tls-key {folder}/operator.key",
            names.len(),
        )
    });
    Ok(())
}

/// Makes certificates for a Manager at these hosts, for a server, a caller and an operator of a namespace, and a policy for them;
/// gives the names of the files.
pub(crate) fn make(folder: &Path, hosts: &[String], namespace: &str) -> Result<Vec<String>, Failure> {
    let failed = |error: rcgen::Error| Failure::failed(format!("cannot make a certificate: {error}"));
    let mut files: Vec<(String, String, bool)> = Vec::new();
    let key = KeyPair::generate().map_err(failed)?;
    let params = authority();
    let certificate = params.self_signed(&key).map_err(failed)?;
    files.push(("ca.pem".to_owned(), certificate.pem(), false));
    files.push(("ca.key".to_owned(), key.serialize_pem(), true));
    let issuer = Issuer::new(params, key);
    for wanted in wanted(hosts, namespace) {
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params_of(&wanted)?.signed_by(&key, &issuer).map_err(failed)?;
        files.push((format!("{}.pem", wanted.file), certificate.pem(), false));
        files.push((format!("{}.key", wanted.file), key.serialize_pem(), true));
    }
    files.push(("policy.toml".to_owned(), policy(namespace), false));
    write_all(folder, &files)?;
    Ok(files.into_iter().map(|(name, ..)| name).collect())
}

fn wanted(hosts: &[String], namespace: &str) -> Vec<Wanted> {
    let client = |file, path: String| Wanted {
        file,
        uri: format!("{TRUST_DOMAIN}/{path}"),
        hosts: Vec::new(),
        purpose: ExtendedKeyUsagePurpose::ClientAuth,
    };
    vec![
        Wanted {
            file: "manager",
            uri: format!("{TRUST_DOMAIN}/manager"),
            hosts: hosts.to_vec(),
            purpose: ExtendedKeyUsagePurpose::ServerAuth,
        },
        client("server", format!("{namespace}/server/server")),
        client("caller", format!("{namespace}/caller")),
        client("operator", "operator".to_owned()),
    ]
}

fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    limit(&mut params);
    params.distinguished_name.push(DnType::CommonName, LABEL);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn params_of(wanted: &Wanted) -> Result<CertificateParams, Failure> {
    let refuse =
        |name: &str| Failure::usage(format!("--hosts: {name:?} is neither a host name nor an address"));
    let mut params =
        CertificateParams::new(wanted.hosts.clone()).map_err(|_| refuse(&wanted.hosts.join(",")))?;
    limit(&mut params);
    let uri = wanted.uri.clone().try_into().map_err(|_| refuse(&wanted.uri))?;
    params.subject_alt_names.push(SanType::URI(uri));
    params.distinguished_name.push(DnType::CommonName, LABEL);
    params.extended_key_usages = vec![wanted.purpose.clone()];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

/// What is for trying does not live for ever. Clocks of other machines may be an hour behind.
fn limit(params: &mut CertificateParams) {
    let now = SystemTime::now();
    params.not_before = (now - Duration::from_secs(60 * 60)).into();
    params.not_after = (now + VALID_FOR).into();
}

fn policy(namespace: &str) -> String {
    format!(
        r#"# Who may do what in which namespaces. What no rule allows is denied; changes count within a second.

# Servers: the last part of their identity is the beginning of their name.
[[allow]]
who = ["{TRUST_DOMAIN}/{namespace}/server/{{name}}"]
may = ["own"]
namespaces = ["{namespace}"]
owner_names = ["{{name}}", "{{name}}-*"]

# Whoever looks for the owner of a key. Servers do so, too.
[[allow]]
who = ["{TRUST_DOMAIN}/{namespace}/**"]
may = ["lookup"]
namespaces = ["{namespace}"]

[[allow]]
who = ["{TRUST_DOMAIN}/operator"]
may = ["lookup", "view", "operate", "administer", "metrics"]
namespaces = ["*"]
"#
    )
}

/// Writes all files or, if one of them exists, none. Keys are for their owner alone.
fn write_all(folder: &Path, files: &[(String, String, bool)]) -> Result<(), Failure> {
    if let Some((name, ..)) = files.iter().find(|(name, ..)| folder.join(name).exists()) {
        let path = folder.join(name);
        return Err(Failure::failed(format!(
            "{} exists and is not overwritten: choose another folder, or remove it first",
            path.display()
        )));
    }
    let failed = |path: &Path, error| Failure::failed(format!("cannot write {}: {error}", path.display()));
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    for (name, contents, is_secret) in files {
        let path = folder.join(name);
        let mode = if *is_secret { 0o600 } else { 0o644 };
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path)
            .map_err(|error| failed(&path, error))?;
        file.write_all(contents.as_bytes()).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}
