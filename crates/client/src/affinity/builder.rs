//! How an Owner in affinity mode is described and joins its pool.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use centrifuge_core::id::SessionId;

use super::{AffinityChange, AffinityMigration, AffinityOwner};
use crate::keys::{Hashed, KeyOrder};
use crate::owner::{BoxError, JoinError, OwnerBuilder};

/// Describes an Owner in affinity mode before it joins. Only the url must be given. An [`OwnerBuilder`](crate::owner::OwnerBuilder) says
/// more of each choice.
pub struct AffinityOwnerBuilder<K: KeyOrder = Hashed> {
    builder: OwnerBuilder<K>,
}

/// The choices that are the same in both modes.
macro_rules! same {
    ($($(#[doc = $text:literal])+ $name:ident($($argument:ident: $type:ty)?);)+) => {$(
        $(#[doc = $text])+
        #[must_use]
        pub fn $name(self $(, $argument: $type)?) -> AffinityOwnerBuilder<K> {
            AffinityOwnerBuilder { builder: self.builder.$name($($argument)?) }
        }
    )+};
}

impl<K: KeyOrder> AffinityOwnerBuilder<K> {
    pub(super) fn new(builder: OwnerBuilder<K>) -> AffinityOwnerBuilder<K> {
        AffinityOwnerBuilder { builder: builder.affinity() }
    }

    same! {
        /// The name that restarts share; the url unless set.
        name(name: &str);
        /// Where callers reach the server.
        url(url: &str);
        /// The application knows that the previous process of this name is gone.
        takes_over_previous(knows: bool);
        /// How much this server can carry, in percent of the usual.
        weight(percent: u32);
        /// What load is counted in; requests, unless set.
        load_dimension(name: &str);
        /// Ties the leases to signs of life of the application.
        heartbeat(limit: Duration);
        /// How long [`AffinityOwnerBuilder::join`] looks for a leader; 30 s unless set.
        join_timeout(timeout: Duration);
        /// While another process has the name, waits for it to be gone instead of failing.
        wait_for_name();
        /// Writes everything that the Owner's machine is fed to this file.
        record(file: impl Into<PathBuf>);
    }

    /// Asked a few times in every heartbeat's limit; `true` is a sign of life.
    #[must_use]
    pub fn probe<F, R>(self, probe: F) -> AffinityOwnerBuilder<K>
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = bool> + Send + 'static,
    {
        AffinityOwnerBuilder { builder: self.builder.probe(probe) }
    }

    /// Called with every change, one after the other, on a task of its own.
    #[must_use]
    pub fn on_ownership_change<F, R>(self, callback: F) -> AffinityOwnerBuilder<K>
    where
        F: Fn(AffinityChange) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let builder = self.builder.on_ownership_change(move |change| {
            let called = AffinityChange::of(change).map(&callback);
            async move {
                if let Some(called) = called {
                    called.await;
                }
            }
        });
        AffinityOwnerBuilder { builder }
    }

    /// The application moves state: called for every range that should go to another Owner, on a task of its own.
    #[must_use]
    pub fn on_migrate_out<F, R>(self, callback: F) -> AffinityOwnerBuilder<K>
    where
        F: Fn(AffinityMigration) -> R + Send + Sync + 'static,
        R: Future<Output = Result<SessionId, BoxError>> + Send + 'static,
    {
        let builder = self.builder.on_migrate_out(move |out| callback(AffinityMigration::new(out)));
        AffinityOwnerBuilder { builder }
    }

    /// Joins the pool. Ranges come soon after: see [`AffinityOwner::changes`].
    pub async fn join(self) -> Result<AffinityOwner<K>, JoinError> {
        self.builder.join().await.map(AffinityOwner::new)
    }
}
