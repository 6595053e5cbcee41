//! How a join ends: in the pool, or with an error that says what to do.

use std::time::Duration;

use centrifuge_core::id::NameError;
use centrifuge_core::message::RefusedReason;
use centrifuge_core::namespace_kind::{KeyKind, Mode};
use centrifuge_net::record::RecordError;

use super::{Owner, Status};
use crate::keys::KeyOrder;
use crate::managers::ManagersError;

/// Why an Owner could not join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The namespace is no label.
    #[error("the namespace {0:?} is refused: {1}")]
    Namespace(String, NameError),
    /// The name is no name.
    #[error("the Owner's name {0:?} is refused: {1}")]
    Name(String, NameError),
    /// The dimension of its load is no name.
    #[error("the load dimension {0:?} is refused: {1}")]
    LoadDimension(String, NameError),
    /// Callers could not find the Owner.
    #[error("the Owner has no url: say where callers reach it, with url()")]
    NoUrl,
    /// The url has a character that no Manager takes.
    #[error(
        "the Owner's url {0:?} is refused: it has a control character, or one that changes the direction of text"
    )]
    Url(String),
    /// State would be moved in two ways.
    #[error(
        "the state is moved in two ways: give state(), on_migrate_out() and migrations() only one call in all; several maps need an on_migrate_out of your own"
    )]
    MovesTwice,
    /// A sign of life is asked for that nobody waits for.
    #[error("a probe is given and no heartbeat: say with heartbeat() how long the application may be silent")]
    ProbeWithoutHeartbeat,
    /// No application gives signs of life that often.
    #[error("a heartbeat's limit of nothing would give every lease up at once: make it some seconds")]
    ZeroHeartbeat,
    /// The Managers are not known.
    #[error(transparent)]
    Managers(#[from] ManagersError),
    /// The operating system gave no random bits, which the session's identity needs.
    #[error("the operating system gave no randomness: {0}")]
    Randomness(String),
    /// Another process of that name was heard of within the hold.
    #[error(
        "another process named {0} is or was just alive: wait until its hold has run out, choose another name, or say takes_over_previous if it is known to be gone"
    )]
    NameInUse(String),
    /// There is no such namespace.
    #[error("there is no namespace {0}: create it with `centrifuge namespace create {0}`")]
    UnknownNamespace(String),
    /// An operator evicted this process.
    #[error("an operator evicted this process: start a new one when it is welcome again")]
    Evicted,
    /// The namespace is full.
    #[error("the namespace has as many Owners as it may have: raise max_owners or stop one")]
    TooManyOwners,
    /// The namespace makes keys in the other way.
    #[error(
        "the namespace {namespace} does not have {} keys, which this Owner is built for: name another namespace, or build it {}",
        built_for.as_str(),
        if *built_for == KeyKind::Ordered { "with Owner::builder" } else { "with Owner::ordered" }
    )]
    WrongKeys {
        /// The namespace.
        namespace: String,
        /// How the Owner makes keys.
        built_for: KeyKind,
    },
    /// The namespace is of the other mode.
    #[error(
        "the namespace {namespace} does not have {} leases, which this Owner is built for: name another namespace, or use {}",
        built_for.as_str(),
        if *built_for == Mode::Affinity { "Owner" } else { "AffinityOwner" }
    )]
    WrongMode {
        /// The namespace.
        namespace: String,
        /// What the Owner takes leases for.
        built_for: Mode,
    },
    /// Nobody answered who leads.
    #[error(
        "no leading Manager answered within {within:?}: check that one runs at one of {managers} and that it can be reached{problem}"
    )]
    NoLeader {
        /// Whom it asked.
        managers: String,
        /// How long it waited.
        within: Duration,
        /// What went wrong last, in words that end a sentence; empty if nothing is known.
        problem: String,
    },
    /// The recording cannot begin.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The driver ended.
    #[error("the Owner's task ended while it joined: see the log")]
    Stopped,
}

impl<K: KeyOrder> Owner<K> {
    /// Waits until a leader has committed that the Owner is a member, or for a refusal that waiting does not mend.
    pub(super) async fn joined(&self, waits_for_name: bool) -> Result<(), JoinError> {
        let is_final = |why| match why {
            RefusedReason::StaleTerm => false,
            RefusedReason::NameInUse => !waits_for_name,
            RefusedReason::UnknownNamespace
            | RefusedReason::Evicted
            | RefusedReason::TooManyOwners
            | RefusedReason::WrongKeys
            | RefusedReason::WrongMode => true,
        };
        let mut status = self.inner.shared.status.subscribe();
        let decided = |status: &Status| {
            status.is_joined || status.left.is_some() || status.refused.is_some_and(is_final)
        };
        let status = status.wait_for(decided).await.map_err(|_| JoinError::Stopped)?;
        match (status.is_joined, status.refused) {
            (true, _) => Ok(()),
            (false, Some(why)) => Err(self.refused(why)),
            (false, None) => Err(JoinError::Stopped),
        }
    }

    pub(super) fn not_joined_within(&self, within: Duration, managers: String, problem: String) -> JoinError {
        let refused = self.inner.shared.status.borrow().refused;
        match refused.filter(|why| *why != RefusedReason::StaleTerm) {
            Some(why) => self.refused(why),
            None => JoinError::NoLeader { managers, within, problem },
        }
    }

    fn refused(&self, why: RefusedReason) -> JoinError {
        match why {
            RefusedReason::NameInUse => JoinError::NameInUse(self.inner.name.to_string()),
            RefusedReason::UnknownNamespace => JoinError::UnknownNamespace(self.inner.namespace.to_string()),
            RefusedReason::Evicted => JoinError::Evicted,
            RefusedReason::TooManyOwners => JoinError::TooManyOwners,
            RefusedReason::StaleTerm => JoinError::Stopped,
            RefusedReason::WrongKeys => JoinError::WrongKeys {
                namespace: self.inner.namespace.to_string(),
                built_for: self.inner.expects.keys,
            },
            RefusedReason::WrongMode => JoinError::WrongMode {
                namespace: self.inner.namespace.to_string(),
                built_for: self.inner.expects.mode,
            },
        }
    }
}
