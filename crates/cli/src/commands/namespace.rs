//! `centrifuge namespace`.

use std::time::Duration;

use centrifuge_core::load::LoadPolicyKind;
use centrifuge_core::namespace_kind::{KeyKind, KeyPrefix, Mode};
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::settings::Settings;
use centrifuge_net::proto::v1;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use crate::At;
use crate::admin::Admin;
use crate::failure::Failure;
use crate::output::table_or;
use crate::trim;
use crate::words::{self, milliseconds, show_ms, show_range, show_share};

#[derive(Subcommand)]
pub(crate) enum NamespaceCommand {
    /// Create a namespace
    Create(SettingsArgs),
    /// Change settings of a namespace; the others stay as they are
    Configure(SettingsArgs),
    /// List the namespaces
    List(At),
    /// Show one namespace with its settings
    Show(NameArgs),
    /// Delete a namespace that has no Owners
    Delete(NameArgs),
}

#[derive(Args)]
pub(crate) struct NameArgs {
    /// The namespace
    namespace: String,
    #[command(flatten)]
    at: At,
}

#[derive(Args)]
pub(crate) struct SettingsArgs {
    /// The namespace: lower-case letters, digits and hyphens
    namespace: String,
    /// How long an Owner may rely on a lease after its last answered report [default: 60s]
    #[arg(long, value_parser = words::duration)]
    lease: Option<Duration>,
    /// How long the Manager keeps a silent Owner's leases from others [default: 65s]
    #[arg(long, value_parser = words::duration)]
    hold: Option<Duration>,
    /// How often Owners report [default: 15s]
    #[arg(long, value_parser = words::duration)]
    renewal: Option<Duration>,
    /// How long the Manager may take to answer a report [default: 10s]
    #[arg(long, value_parser = words::duration)]
    answer_allowance: Option<Duration>,
    /// How long a migration may take before it becomes a plain recall [default: 60s]
    #[arg(long, value_parser = words::duration)]
    migration_timeout: Option<Duration>,
    /// How long a plain recall may take before the lease is left to run out [default: 10s]
    #[arg(long, value_parser = words::duration)]
    recall_timeout: Option<Duration>,
    /// With fewer Owners than this, unowned ranges wait for the settle time [default: 1]
    #[arg(long)]
    min_owners: Option<u32>,
    /// How long unowned ranges wait while there are fewer than --min-owners Owners [default: 10s]
    #[arg(long, value_parser = words::duration)]
    settle: Option<Duration>,
    /// How many ranges may move at once [default: 256]
    #[arg(long)]
    max_moves: Option<u32>,
    /// How many Owners may join [default: 4096]
    #[arg(long)]
    max_owners: Option<u32>,
    /// The virtual nodes of an Owner that joins [default: 64]
    #[arg(long)]
    virtual_nodes: Option<u32>,
    /// How keys are divided among the Owners
    #[arg(long, value_enum)]
    partitioner: Option<PartitionerName>,
    /// How virtual nodes follow the load
    #[arg(long, value_enum)]
    load_policy: Option<LoadPolicyName>,
    /// With --partitioner trim: how much it may move to balance load, in percent of what is usual; 0 balances no load at all
    /// [default: 100]
    #[arg(long, value_name = "PERCENT")]
    churn_budget: Option<u32>,
    /// With --partitioner trim: how many ranges an Owner has on average at most [default: 64]
    #[arg(long)]
    max_ranges_per_owner: Option<u32>,
    /// With --partitioner trim: how much more than its share an Owner may have before it acts at once, in thousandths of the share
    /// [default: 1050]
    #[arg(long, value_name = "THOUSANDTHS")]
    imbalance: Option<u32>,
    /// An Owner that dies within this time of getting a range counts against the range; 0s quarantines nothing [default: 30s]
    #[arg(long, value_parser = words::duration)]
    death_window: Option<Duration>,
    /// How long a range is granted to nobody after Owners that got it died, one after the other [default: 1h]
    #[arg(long, value_parser = words::duration)]
    quarantine: Option<Duration>,
    #[command(flatten)]
    kind: KindArgs,
    #[command(flatten)]
    at: At,
}

/// What a namespace is, for as long as it exists.
#[derive(Args)]
struct KindArgs {
    /// How application keys become keys, for as long as the namespace exists
    #[arg(long, value_enum)]
    keys: Option<KeysName>,
    /// With --keys ordered: what all application keys begin with, which is left out of the order; with escapes, as '\xff' [default: nothing]
    #[arg(long, value_name = "PREFIX")]
    key_prefix: Option<KeyPrefix>,
    /// What leases promise, for as long as the namespace exists
    #[arg(long, value_enum)]
    mode: Option<ModeName>,
}

#[derive(Clone, Copy, ValueEnum)]
enum KeysName {
    /// By a hash: any keys spread evenly; the default.
    Hashed,
    /// By their first eight bytes after the prefix: neighbours stay together.
    Ordered,
}

#[derive(Clone, Copy, ValueEnum)]
enum ModeName {
    /// A key has at most one owner at any time; the default.
    Exclusive,
    /// A key has a preferred owner, and for short times perhaps two: no fencing.
    Affinity,
}

impl KindArgs {
    /// What is said of the kind; `None` if nothing is.
    fn kind(&self) -> Option<v1::NamespaceKind> {
        let keys = self.keys.map(|name| match name {
            KeysName::Hashed => v1::KeyKind::Hashed as i32,
            KeysName::Ordered => v1::KeyKind::Ordered as i32,
        });
        let mode = self.mode.map(|name| match name {
            ModeName::Exclusive => v1::Mode::Exclusive as i32,
            ModeName::Affinity => v1::Mode::Affinity as i32,
        });
        let key_prefix = self.key_prefix.as_ref().map(|prefix| prefix.as_bytes().to_vec().into());
        let kind = v1::NamespaceKind { keys, key_prefix, mode };
        (kind != v1::NamespaceKind::default()).then_some(kind)
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum PartitionerName {
    /// The table that stands, changed by as much as load asks for; splits what is hot, and has no virtual nodes; the default.
    Trim,
    /// Consistent hashing with virtual nodes, as in the papers.
    ConsistentHash,
    /// Equal slices in the order of names, for tests and static pools.
    Fixed,
}

#[derive(Clone, Copy, ValueEnum)]
enum LoadPolicyName {
    /// An Owner more than 10 % off its share gives or gets a virtual node; the default.
    TenPercent,
    /// Load has no influence.
    Off,
}

impl SettingsArgs {
    fn settings(&self) -> v1::Settings {
        let partitioner = self.partitioner.map(|name| match name {
            PartitionerName::ConsistentHash => v1::Partitioner::ConsistentHash as i32,
            PartitionerName::Trim => v1::Partitioner::Trim as i32,
            PartitionerName::Fixed => v1::Partitioner::Fixed as i32,
        });
        let load_policy = self.load_policy.map(|name| match name {
            LoadPolicyName::TenPercent => v1::LoadPolicy::TenPercent as i32,
            LoadPolicyName::Off => v1::LoadPolicy::Off as i32,
        });
        v1::Settings {
            lease_ms: self.lease.map(milliseconds),
            hold_ms: self.hold.map(milliseconds),
            renewal_ms: self.renewal.map(milliseconds),
            answer_allowance_ms: self.answer_allowance.map(milliseconds),
            migration_timeout_ms: self.migration_timeout.map(milliseconds),
            recall_timeout_ms: self.recall_timeout.map(milliseconds),
            min_owners: self.min_owners,
            settle_ms: self.settle.map(milliseconds),
            max_moves: self.max_moves,
            max_owners: self.max_owners,
            virtual_nodes: self.virtual_nodes,
            partitioner,
            load_policy,
            churn_budget: self.churn_budget,
            max_ranges_per_owner: self.max_ranges_per_owner,
            imbalance: self.imbalance,
            death_window_ms: self.death_window.map(milliseconds),
            quarantine_ms: self.quarantine.map(milliseconds),
            ..v1::Settings::default()
        }
    }

    /// The settings as the user wrote them, for an error that concerns several of them.
    fn given(&self) -> String {
        let time = |length: Option<Duration>| length.map(|length| show_ms(milliseconds(length)));
        let count = |count: Option<u32>| count.map(|count| count.to_string());
        let all = [
            ("lease", time(self.lease)),
            ("hold", time(self.hold)),
            ("renewal", time(self.renewal)),
            ("answer-allowance", time(self.answer_allowance)),
            ("migration-timeout", time(self.migration_timeout)),
            ("recall-timeout", time(self.recall_timeout)),
            ("min-owners", count(self.min_owners)),
            ("settle", time(self.settle)),
            ("max-moves", count(self.max_moves)),
            ("max-owners", count(self.max_owners)),
            ("virtual-nodes", count(self.virtual_nodes)),
            ("churn-budget", count(self.churn_budget)),
            ("max-ranges-per-owner", count(self.max_ranges_per_owner)),
            ("imbalance", count(self.imbalance)),
            ("death-window", time(self.death_window)),
            ("quarantine", time(self.quarantine)),
        ];
        let given: Vec<String> =
            all.into_iter().filter_map(|(name, value)| Some(format!("--{name} {}", value?))).collect();
        given.join(" ")
    }
}

/// A refusal of settings, with those that were given and where the others are from.
fn refused(failure: Failure, args: &SettingsArgs, others: &str) -> Failure {
    let given = args.given();
    if failure.is_usage() && !given.is_empty() {
        Failure::usage(format!("{failure} (set by {given}; {others})"))
    } else {
        failure
    }
}

pub(crate) async fn run(command: NamespaceCommand) -> Result<(), Failure> {
    match command {
        NamespaceCommand::Create(args) => create(args).await,
        NamespaceCommand::Configure(args) => configure(args).await,
        NamespaceCommand::List(at) => list(at).await,
        NamespaceCommand::Show(args) => show(args).await,
        NamespaceCommand::Delete(args) => delete(args).await,
    }
}

async fn create(args: SettingsArgs) -> Result<(), Failure> {
    let (namespace, kind) = (args.namespace.clone(), args.kind.kind());
    let request = v1::CreateNamespaceRequest { namespace, settings: Some(args.settings()), kind };
    Admin::new(&args.at.managers()?)
        .ask(async |mut admin| admin.create_namespace(request.clone()).await)
        .await
        .map_err(|failure| refused(failure, &args, "the others have the defaults that --help shows"))?;
    args.at
        .format
        .output()
        .print(&json!({ "created": args.namespace }), || format!("created {}", args.namespace));
    Ok(())
}

async fn configure(args: SettingsArgs) -> Result<(), Failure> {
    let settings = args.settings();
    let kind = args.kind.kind();
    if settings == v1::Settings::default() && kind.is_none() {
        return Err(Failure::usage("nothing to change: name a setting, such as --lease 30s"));
    }
    let request = v1::ConfigureNamespaceRequest {
        namespace: args.namespace.clone(),
        settings: Some(settings),
        expected: None,
        kind,
    };
    Admin::new(&args.at.managers()?)
        .ask(async |mut admin| admin.configure_namespace(request.clone()).await)
        .await
        .map_err(|failure| {
            refused(failure, &args, "the others stay as `centrifuge namespace show` shows them")
        })?;
    args.at
        .format
        .output()
        .print(&json!({ "configured": args.namespace }), || format!("configured {}", args.namespace));
    Ok(())
}

async fn delete(args: NameArgs) -> Result<(), Failure> {
    let request = v1::DeleteNamespaceRequest { namespace: args.namespace.clone() };
    Admin::new(&args.at.managers()?)
        .ask(async |mut admin| admin.delete_namespace(request.clone()).await)
        .await?;
    args.at
        .format
        .output()
        .print(&json!({ "deleted": args.namespace }), || format!("deleted {}", args.namespace));
    Ok(())
}

async fn fetch(at: &At, namespace: Option<String>) -> Result<Vec<v1::NamespaceStatus>, Failure> {
    let request = v1::ListNamespacesRequest { namespace };
    let reply = Admin::new(&at.managers()?)
        .ask(async |mut admin| admin.list_namespaces(request.clone()).await)
        .await?;
    Ok(reply.namespaces)
}

async fn list(at: At) -> Result<(), Failure> {
    let namespaces = fetch(&at, None).await?;
    let json = json!({ "namespaces": namespaces.iter().map(object).collect::<Vec<_>>() });
    let head = [
        "namespace",
        "keys",
        "mode",
        "owners",
        "ranges",
        "free",
        "moving",
        "quarantined",
        "last lease",
        "state",
    ];
    let nothing = "there are no namespaces: create one with `centrifuge namespace create NAME`";
    at.format.output().print(&json, || table_or(nothing, &head, namespaces.iter().map(row)));
    Ok(())
}

async fn show(args: NameArgs) -> Result<(), Failure> {
    let namespaces = fetch(&args.at, Some(args.namespace.clone())).await?;
    let found = namespaces
        .first()
        .ok_or_else(|| Failure::not_found(format!("there is no namespace `{}`", args.namespace)))?;
    args.at.format.output().print(&object(found), || describe(found));
    Ok(())
}

fn row(space: &v1::NamespaceStatus) -> Vec<String> {
    vec![
        space.name.clone(),
        show_keys(space),
        mode(space).to_owned(),
        space.owners.to_string(),
        space.ranges.to_string(),
        space.unowned_ranges.to_string(),
        space.moving_ranges.to_string(),
        space.quarantined_ranges.to_string(),
        space.last_generation.to_string(),
        state(space),
    ]
}

fn describe(space: &v1::NamespaceStatus) -> String {
    let settings = space.settings.unwrap_or_default();
    let time = |ms: Option<u64>| ms.map_or_else(String::new, show_ms);
    let number = |number: Option<u32>| number.map_or_else(String::new, |number| number.to_string());
    let mut rows = vec![
        ("namespace", space.name.clone()),
        ("keys", show_keys(space)),
        ("mode", mode(space).to_owned()),
        ("state", describe_state(space)),
        ("owners", space.owners.to_string()),
        ("ranges", ranges(space)),
        ("last lease", space.last_generation.to_string()),
        ("lease", time(settings.lease_ms)),
        hold(space),
        ("renewal", time(settings.renewal_ms)),
        ("answer allowance", time(settings.answer_allowance_ms)),
        ("migration timeout", time(settings.migration_timeout_ms)),
        ("recall timeout", time(settings.recall_timeout_ms)),
        ("min owners", number(settings.min_owners)),
        ("settle", time(settings.settle_ms)),
        ("max moves", number(settings.max_moves)),
        ("max owners", number(settings.max_owners)),
        ("virtual nodes", number(settings.virtual_nodes)),
        ("partitioner", partitioner(&settings).to_owned()),
        ("load policy", load_policy(&settings).to_owned()),
        ("death window", time(settings.death_window_ms)),
        ("quarantine", time(settings.quarantine_ms)),
    ];
    if settings.partitioner() == v1::Partitioner::Trim {
        rows.push(("churn budget", format!("{} %", number(settings.churn_budget))));
        rows.push(("max ranges/owner", number(settings.max_ranges_per_owner)));
        rows.push(("imbalance", format!("{} thousandths of a share", number(settings.imbalance))));
    }
    rows.extend(space.trim.iter().flat_map(trim::describe));
    rows.extend(
        space.pins.iter().map(|pin| ("pinned", format!("{} to {}", show_range(pin.range), pin.owner))),
    );
    let lines = rows.iter().map(|(name, value)| format!("{name:<18} {value}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The kind of its keys; a Manager of a version that knows of no kinds says none.
fn keys(space: &v1::NamespaceStatus) -> KeyKind {
    let said = space.kind.as_ref().and_then(|kind| KeyKind::try_from(kind.keys()).ok());
    said.unwrap_or_default()
}

/// The prefix of ordered keys, with escapes.
fn key_prefix(space: &v1::NamespaceStatus) -> Option<String> {
    let prefix = space.kind.as_ref().and_then(|kind| kind.key_prefix.as_ref());
    prefix.map(|bytes| bytes.escape_ascii().to_string())
}

fn show_keys(space: &v1::NamespaceStatus) -> String {
    let kind = keys(space).as_str();
    match key_prefix(space).filter(|prefix| !prefix.is_empty()) {
        Some(prefix) => format!("{kind} after '{prefix}'"),
        None => kind.to_owned(),
    }
}

fn mode(space: &v1::NamespaceStatus) -> &'static str {
    let said = space.kind.as_ref().and_then(|kind| Mode::try_from(kind.mode()).ok());
    said.unwrap_or_default().as_str()
}

fn is_affinity(space: &v1::NamespaceStatus) -> bool {
    mode(space) == Mode::Affinity.as_str()
}

/// After how long an Owner counts as silent in affinity mode.
fn silence_ms(settings: &v1::Settings) -> Option<u64> {
    let [renewal, answer_allowance] =
        [settings.renewal_ms?, settings.answer_allowance_ms?].map(Duration::from_millis);
    Some(milliseconds(Settings { renewal, answer_allowance, ..Settings::default() }.silence()))
}

/// How long a silent Owner's leases are kept from others.
fn hold(space: &v1::NamespaceStatus) -> (&'static str, String) {
    let settings = space.settings.unwrap_or_default();
    match is_affinity(space) {
        true => ("silence", silence_ms(&settings).map_or_else(String::new, show_ms)),
        false => ("hold", settings.hold_ms.map_or_else(String::new, show_ms)),
    }
}

fn ranges(space: &v1::NamespaceStatus) -> String {
    let v1::NamespaceStatus { ranges, unowned_ranges, moving_ranges, quarantined_ranges, .. } = space;
    let quarantined = match quarantined_ranges {
        0 => String::new(),
        number => format!(", {number} in quarantine (see `centrifuge quarantine list`)"),
    };
    format!("{ranges}, {unowned_ranges} free, {moving_ranges} moving{quarantined}")
}

fn state(space: &v1::NamespaceStatus) -> String {
    match &space.rebuilding {
        Some(rebuilding) => format!("rebuilding, {} unclaimed", show_share(rebuilding.unclaimed_share)),
        None if space.frozen => "frozen".to_owned(),
        None => "live".to_owned(),
    }
}

fn describe_state(space: &v1::NamespaceStatus) -> String {
    match &space.rebuilding {
        Some(rebuilding) => {
            let share = show_share(rebuilding.unclaimed_share);
            let seconds = rebuilding.ends_in_ms.div_ceil(1_000);
            format!(
                "rebuilding: the leader learns the table from the Owners; {share} of the keys are unclaimed, and are granted in {seconds} s"
            )
        }
        None if space.frozen => "frozen: no range moves".to_owned(),
        None => "live".to_owned(),
    }
}

fn partitioner(settings: &v1::Settings) -> &'static str {
    PartitionerKind::try_from(settings.partitioner()).map_or("", |kind| kind.as_str())
}

fn load_policy(settings: &v1::Settings) -> &'static str {
    LoadPolicyKind::try_from(settings.load_policy()).map_or("", |kind| kind.as_str())
}

fn object(space: &v1::NamespaceStatus) -> Value {
    let settings = space.settings.unwrap_or_default();
    json!({
        "name": space.name,
        "keys": keys(space).as_str(),
        "key_prefix": key_prefix(space),
        "mode": mode(space),
        "frozen": space.frozen,
        "rebuilding": space.rebuilding.map(|rebuilding| json!({
            "unclaimed_share": rebuilding.unclaimed_share,
            "ends_in_ms": rebuilding.ends_in_ms,
        })),
        "owners": space.owners,
        "ranges": space.ranges,
        "unowned_ranges": space.unowned_ranges,
        "moving_ranges": space.moving_ranges,
        "quarantined_ranges": space.quarantined_ranges,
        "last_generation": space.last_generation,
        "lsn": space.lsn,
        "trim": space.trim.as_ref().map(trim::object),
        "pins": space.pins.iter()
            .map(|pin| json!({ "range": show_range(pin.range), "owner": pin.owner }))
            .collect::<Vec<_>>(),
        "settings": {
            "lease_ms": settings.lease_ms,
            "hold_ms": settings.hold_ms.filter(|_| !is_affinity(space)),
            "silence_ms": silence_ms(&settings).filter(|_| is_affinity(space)),
            "renewal_ms": settings.renewal_ms,
            "answer_allowance_ms": settings.answer_allowance_ms,
            "migration_timeout_ms": settings.migration_timeout_ms,
            "recall_timeout_ms": settings.recall_timeout_ms,
            "min_owners": settings.min_owners,
            "settle_ms": settings.settle_ms,
            "max_moves": settings.max_moves,
            "max_owners": settings.max_owners,
            "virtual_nodes": settings.virtual_nodes,
            "partitioner": partitioner(&settings),
            "load_policy": load_policy(&settings),
            "load_interval_ms": settings.load_interval_ms,
            "max_load_changes": settings.max_load_changes,
            "log_span_ms": settings.log_span_ms,
            "heartbeat_ms": settings.heartbeat_ms,
            "churn_budget": settings.churn_budget,
            "max_ranges_per_owner": settings.max_ranges_per_owner,
            "imbalance": settings.imbalance,
            "death_window_ms": settings.death_window_ms,
            "quarantine_ms": settings.quarantine_ms,
        },
    })
}
