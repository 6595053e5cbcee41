//! Performs what a Lookup's machine decides.

use std::sync::Arc;

use centrifuge_core::id::ManagerId;
use centrifuge_core::lookup::{LookupAction, LookupMachine};
use centrifuge_core::message::LookupRequest;
use centrifuge_core::time::Instant;
use centrifuge_net::driver::Host;

use super::Shared;
use super::news::Loss;
use crate::keys::KeySpace;

/// Asks Managers without waiting; what cannot be asked is not answered, and the machine's timers deal with it.
pub(super) trait Links: Send {
    /// Opens a watch.
    fn ask(&mut self, manager: &ManagerId, request: LookupRequest);
}

/// The Lookup's host. Readers see a table before anyone is told of it: who republishes after a loss finds the owner.
pub(super) struct LookupHost<L> {
    shared: Arc<Shared>,
    links: L,
    actions: Vec<LookupAction>,
}

impl<L: Links> LookupHost<L> {
    pub(super) fn new(shared: Arc<Shared>, links: L) -> LookupHost<L> {
        LookupHost { shared, links, actions: Vec::new() }
    }

    fn act(&mut self, action: LookupAction) {
        match action {
            LookupAction::ToManager { to, request } => self.links.ask(&to, request),
            LookupAction::TableChanged(position) => {
                self.shared.status.send_modify(|status| {
                    status.position = Some(position);
                    status.is_unknown = false;
                });
            }
            LookupAction::Loss { keys, why } => {
                // Without readers nobody wants to know.
                let _ = self.shared.losses.send(Loss { keys, why });
            }
            LookupAction::Contact(is_in_contact) => {
                self.shared.status.send_modify(|status| status.is_in_contact = is_in_contact);
            }
            LookupAction::UnknownNamespace => {
                self.shared.status.send_modify(|status| status.is_unknown = true);
            }
            LookupAction::TableGone => self.shared.status.send_modify(|status| status.position = None),
            LookupAction::Refused(why) => {
                self.shared.status.send_modify(|status| status.refused = Some(why));
            }
        }
    }
}

impl<L: Links> Host<LookupMachine> for LookupHost<L> {
    fn perform(&mut self, action: LookupAction) {
        self.actions.push(action);
    }

    fn stepped(&mut self, _: Instant, machine: &LookupMachine) {
        let is_new =
            |action: &LookupAction| matches!(action, LookupAction::TableChanged(_) | LookupAction::TableGone);
        if self.actions.iter().any(is_new) {
            match machine.table() {
                Some(table) => {
                    let space = KeySpace::of(machine.kind());
                    self.shared.hot.publish_ordered(table.iter(), space);
                }
                None => self.shared.hot.clear(),
            }
        }
        for action in std::mem::take(&mut self.actions) {
            self.act(action);
        }
        let (learning, seeks_leader) = (machine.awaits_learning(), machine.seeks_leader());
        self.shared.status.send_if_modified(|status| {
            let before = (status.learning, status.seeks_leader);
            (status.learning, status.seeks_leader) = (learning, seeks_leader);
            before != (learning, seeks_leader)
        });
    }
}
