//! Operators: what they ask for, and how a Manager refuses it.

use std::sync::Arc;

use centrifuge_core::id::{ManagerId, Namespace, OwnerName};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::manager::{AdminCommand, AdminError};
use centrifuge_core::namespace_kind::NamespaceKind;
use centrifuge_core::settings::Settings;
use tonic::{Code, Status};

use super::error::{ConvertError, Converted, Problem, refuse};
use super::field::*;
use super::kind::{read_kind, read_kind_over};
use super::settings::read_settings;
use crate::limits;
use crate::proto::v1;

/// The metadata key in which a Manager that does not lead names the one that does.
const LEADER_KEY: &str = "centrifuge-leader";

impl TryFrom<v1::CreateNamespaceRequest> for AdminCommand {
    type Error = ConvertError;

    fn try_from(wire: v1::CreateNamespaceRequest) -> Converted<AdminCommand> {
        let namespace = read_namespace("namespace", &wire.namespace)?;
        let kind = read_kind(wire.kind)?;
        let usual = Settings::default();
        let settings = read_optional("settings", wire.settings, |wire| read_settings(&wire, &usual))?;
        Ok(AdminCommand::Create { namespace, kind, settings: Arc::new(settings.unwrap_or(usual)) })
    }
}

/// The command of a request to configure, given what the namespace is and the settings in force. They are what it was made from, and the command is refused if
/// others are in force by then. If there is no such namespace the rest is taken from the defaults: the Manager refuses the command
/// anyway, and says why.
pub fn configure_command(
    wire: v1::ConfigureNamespaceRequest,
    in_force: impl FnOnce(&Namespace) -> Option<(NamespaceKind, Arc<Settings>)>,
) -> Result<AdminCommand, ConvertError> {
    let namespace = read_namespace("namespace", &wire.namespace)?;
    let (known, base) = in_force(&namespace).unwrap_or_default();
    let kind = wire.kind.map(|kind| read_kind_over(Some(kind), &known)).transpose()?;
    let settings = read_required("settings", wire.settings, |wire| read_settings(&wire, &base))?;
    let expected = read_optional("expected", wire.expected, |wire| read_settings(&wire, &base))?;
    let expected = expected.map_or(base, Arc::new);
    Ok(AdminCommand::Configure { namespace, settings: Arc::new(settings), expected: Some(expected), kind })
}

/// The commands whose fields are those of their requests, each read by the function named.
macro_rules! commands {
    ($($request:ident => $command:ident { $($field:ident: $read:ident),* },)+) => {$(
        impl TryFrom<v1::$request> for AdminCommand {
            type Error = ConvertError;

            fn try_from(wire: v1::$request) -> Converted<AdminCommand> {
                let namespace = read_namespace("namespace", &wire.namespace)?;
                Ok(AdminCommand::$command { namespace, $($field: $read(wire.$field)?),* })
            }
        }
    )+};
}

commands! {
    DeleteNamespaceRequest => Remove {},
    FreezeRequest => Freeze { why: read_why },
    UnfreezeRequest => Unfreeze { why: read_why },
    MoveRequest => Move { range: read_moved_range, to: read_destination, why: read_why },
    DrainRequest => Drain { owner: read_owner, why: read_why },
    UndrainRequest => Undrain { owner: read_owner, why: read_why },
    EvictRequest => Evict { owner: read_owner, why: read_why },
    ReleaseQuarantineRequest => Unquarantine { range: read_moved_range, why: read_why },
}

fn read_why(wire: String) -> Converted<Arc<str>> {
    read_text("why", &wire, limits::WORDS_LEN).map(Arc::from)
}

fn read_owner(wire: String) -> Converted<OwnerName> {
    read_owner_name("owner", &wire)
}

fn read_moved_range(wire: Option<v1::KeyRange>) -> Converted<KeyRange> {
    read_required("range", wire, KeyRange::try_from)
}

fn read_destination(wire: Option<String>) -> Converted<Option<OwnerName>> {
    wire.map(|to| read_owner_name("to", &to)).transpose()
}

/// Which leases an operator wants to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseQuery {
    /// Of this pool.
    pub namespace: Namespace,
    /// Only those that share a key with this range.
    pub range: Option<KeyRange>,
    /// Only those of this Owner.
    pub owner: Option<OwnerName>,
}

impl TryFrom<v1::ListLeasesRequest> for LeaseQuery {
    type Error = ConvertError;

    fn try_from(wire: v1::ListLeasesRequest) -> Converted<LeaseQuery> {
        Ok(LeaseQuery {
            namespace: read_namespace("namespace", &wire.namespace)?,
            range: read_optional("range", wire.range, KeyRange::try_from)?,
            owner: wire.owner.map(|owner| read_owner_name("owner", &owner)).transpose()?,
        })
    }
}

/// Which decisions an operator wants to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Only those about this namespace.
    pub namespace: Option<Namespace>,
    /// Only those about ranges with this key.
    pub key: Option<Key>,
    /// At most so many, the latest ones.
    pub limit: usize,
}

impl HistoryQuery {
    /// Whether a decision is among those wanted.
    #[must_use]
    pub fn wants(&self, decision: &v1::Decision) -> bool {
        let about_namespace = |wanted: &Namespace| decision.namespace.as_deref() == Some(wanted.as_str());
        let about_key = |wanted: Key| {
            decision.range.is_some_and(|range| range.first <= wanted.0 && wanted.0 <= range.last)
        };
        self.namespace.as_ref().is_none_or(about_namespace) && self.key.is_none_or(about_key)
    }
}

impl TryFrom<v1::HistoryRequest> for HistoryQuery {
    type Error = ConvertError;

    fn try_from(wire: v1::HistoryRequest) -> Converted<HistoryQuery> {
        let limit = match wire.limit as usize {
            0 => limits::HISTORY_DEFAULT,
            limit if limit <= limits::HISTORY_MOST => limit,
            _ => {
                let at_most = limits::HISTORY_MOST as u64;
                return refuse("limit", Problem::TooHigh { value: wire.limit.into(), at_most });
            }
        };
        let namespace = wire.namespace.map(|name| read_namespace("namespace", &name)).transpose()?;
        Ok(HistoryQuery { namespace, key: wire.key.map(Key), limit })
    }
}

/// Which namespace a command is about, and which Owner, if it names one.
#[must_use]
pub fn named(command: &AdminCommand) -> (&Namespace, Option<&OwnerName>) {
    match command {
        AdminCommand::Create { namespace, .. }
        | AdminCommand::Configure { namespace, .. }
        | AdminCommand::Remove { namespace }
        | AdminCommand::Freeze { namespace, .. }
        | AdminCommand::Unfreeze { namespace, .. }
        | AdminCommand::Unquarantine { namespace, .. } => (namespace, None),
        AdminCommand::Move { namespace, to, .. } => (namespace, to.as_ref()),
        AdminCommand::Drain { namespace, owner, .. }
        | AdminCommand::Undrain { namespace, owner, .. }
        | AdminCommand::Evict { namespace, owner, .. } => (namespace, Some(owner)),
    }
}

/// The status with which a Manager refuses an operator who asked about a namespace and, perhaps, an Owner of it.
#[must_use]
pub fn admin_status(error: &AdminError, (namespace, owner): (&Namespace, Option<&OwnerName>)) -> Status {
    match error {
        AdminError::NotLeader(leader) => not_leader_status(leader.as_ref()),
        AdminError::Unknown => Status::unavailable(
            "the Manager stopped leading before the outcome was known: look whether it was done, and ask again if not",
        ),
        AdminError::NamespaceExists => {
            Status::already_exists(format!("there is a namespace `{namespace}` already"))
        }
        AdminError::ExistsAsAnotherKind { kind } => Status::failed_precondition(format!(
            "there is a namespace `{namespace}` already, of another kind: {kind}; that cannot be changed: create one of another name, or \
             delete this one first"
        )),
        AdminError::KindIsFixed { kind } => Status::failed_precondition(format!(
            "`{namespace}` has {kind}, and keeps them for as long as it exists: create another namespace"
        )),
        AdminError::TooManyNamespaces { at_most } => Status::resource_exhausted(format!(
            "there are {at_most} namespaces already: delete one, or raise max_namespaces"
        )),
        AdminError::NoSuchNamespace => Status::not_found(format!(
            "there is no namespace `{namespace}`: create it, or list those that exist"
        )),
        AdminError::NamespaceInUse => Status::failed_precondition(format!(
            "the namespace `{namespace}` has Owners: stop, drain or evict them first, and wait until they are gone"
        )),
        AdminError::NoSuchOwner => {
            let owner = owner.map_or_else(String::new, |owner| format!(" `{owner}`"));
            Status::not_found(format!("there is no Owner{owner} in `{namespace}`: list those that exist"))
        }
        AdminError::DrainsItself => {
            let owner = owner.map_or_else(|| "the Owner".to_owned(), |owner| format!("`{owner}`"));
            Status::failed_precondition(format!(
                "{owner} asked to be emptied itself, as a process does that is about to stop; no operator drains it: \
                 let it stop, or tell its application to stay"
            ))
        }
        AdminError::NotQuarantined => Status::not_found(format!(
            "none of these keys of `{namespace}` is in quarantine: list those that are"
        )),
        AdminError::Settings(error) => Status::invalid_argument(format!("settings: {error}")),
        AdminError::SettingsChanged => Status::aborted(
            "the settings are not those that the change was made from: read them again, and decide anew",
        ),
        AdminError::Diskless => Status::failed_precondition(format!(
            "these Managers have no store and would forget it: name `{namespace}` and its settings in the configuration of every \
             Manager ([namespaces.{namespace}], or --namespace), and restart them one after the other"
        )),
    }
}

/// The status with which a Manager that does not lead answers an operator.
#[must_use]
pub fn not_leader_status(leader: Option<&ManagerId>) -> Status {
    let Some(leader) = leader else {
        return Status::failed_precondition(
            "this Manager does not lead, and does not know who does: ask another",
        );
    };
    let mut status =
        Status::failed_precondition(format!("this Manager does not lead: ask {leader}, which does"));
    if let Ok(value) = leader.as_str().parse() {
        status.metadata_mut().insert(LEADER_KEY, value);
    }
    status
}

/// The leader that a Manager which does not lead named.
#[must_use]
pub fn leader_named(status: &Status) -> Option<ManagerId> {
    if status.code() != Code::FailedPrecondition {
        return None;
    }
    let value = status.metadata().get(LEADER_KEY)?.to_str().ok()?;
    read_manager(LEADER_KEY, value).ok()
}
