//! What operators say to a Manager, and the settings they speak of.

use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{Namespace, OwnerName};
use centrifuge_core::manager::AdminCommand;
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::settings::Settings;

use super::words::{self, Words};

/// A time that no script reaches.
pub(crate) const FAR: Duration = Duration::from_secs(3600);

/// What an operator says: `freeze because ...`, `move 00-7f b`, `evict a`, `configure lease=30s`, `configure
/// max-moves=3 from-max-moves=2` if that and otherwise the usual is in force, `configure as ordered prefix=a/` if it is that.
pub(crate) fn admin(verb: &str, words: &mut Words) -> Result<AdminCommand, String> {
    let why: Arc<str> = words.because().into();
    let namespace = namespace(&words.value("in").unwrap_or_else(|| "pool".into()))?;
    let owner = |name: &str| OwnerName::new(name).map_err(|error| error.to_string());
    Ok(match verb {
        "create" => {
            let kind = words.kind()?;
            AdminCommand::Create { namespace, kind, settings: Arc::new(settings(words)?) }
        }
        "configure" => {
            let from = words.value("from-max-moves").map(|moves| format!("max-moves={moves}"));
            let expected = from.map(|from| settings(&mut Words::of(&from))).transpose()?.map(Arc::new);
            let kind = words.flag("as").then(|| words.kind()).transpose()?;
            AdminCommand::Configure { namespace, settings: Arc::new(settings(words)?), expected, kind }
        }
        "remove" => AdminCommand::Remove { namespace },
        "freeze" => AdminCommand::Freeze { namespace, why },
        "unfreeze" => AdminCommand::Unfreeze { namespace, why },
        "move" => {
            let range = words::range(&words.word()?)?;
            let to = words.value("to").map(|to| owner(&to)).transpose()?;
            AdminCommand::Move { namespace, range, to, why }
        }
        "drain" => AdminCommand::Drain { namespace, owner: owner(&words.word()?)?, why },
        "undrain" => AdminCommand::Undrain { namespace, owner: owner(&words.word()?)?, why },
        "release" => AdminCommand::Unquarantine { namespace, range: words::range(&words.word()?)?, why },
        "evict" => AdminCommand::Evict { namespace, owner: owner(&words.word()?)?, why },
        _ => return Err("no such command".into()),
    })
}

/// Settings of which only the unusual are said: equal slices, and nothing on its own within the time of a script.
pub(crate) fn settings(words: &mut Words) -> Result<Settings, String> {
    let usual = Settings { partitioner: PartitionerKind::ConsistentHash, ..Settings::default() };
    let partitioner = match (words.flag("consistent-hash"), words.flag("trim")) {
        (true, _) => PartitionerKind::ConsistentHash,
        (_, true) => PartitionerKind::Trim,
        _ => PartitionerKind::Fixed,
    };
    let count = |number: u64| usize::try_from(number).map_err(|_| "too many".to_owned());
    Ok(Settings {
        lease: words.time("lease", usual.lease)?,
        hold: words.time("hold", usual.hold)?,
        renewal: words.time("renewal", usual.renewal)?,
        answer_allowance: words.time("answer-allowance", usual.answer_allowance)?,
        migration_timeout: words.time("migration-timeout", usual.migration_timeout)?,
        recall_timeout: words.time("recall-timeout", usual.recall_timeout)?,
        min_owners: count(words.number("min-owners", 1)?)?,
        settle: words.time("settle", usual.settle)?,
        max_moves: count(words.number("max-moves", 256)?)?,
        max_owners: count(words.number("max-owners", 4096)?)?,
        virtual_nodes: u32::try_from(words.number("nodes", 64)?).map_err(|_| "too many nodes")?,
        partitioner,
        load_interval: words.time("load-interval", FAR)?,
        heartbeat: words.time("heartbeat", FAR)?,
        log_span: words.time("log-span", usual.log_span)?,
        death_window: words.time("death-window", Duration::ZERO)?,
        quarantine: words.time("quarantine", usual.quarantine)?,
        ..usual
    })
}

pub(crate) fn namespace(name: &str) -> Result<Namespace, String> {
    Namespace::new(name).map_err(|error| error.to_string())
}
