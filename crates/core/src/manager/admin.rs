//! What operators want: checked, committed with their reason, and only then answered.

use std::sync::Arc;

use crate::id::{Generation, Namespace, OwnerName, SessionId};
use crate::manager_state::NamespaceState;
use crate::namespace_kind::NamespaceKind;
use crate::record::{Change, Reason, Record, SessionInfo};
use crate::settings::Settings;

use super::Context;
use super::decide::Plan;
use super::event::{AdminCommand, AdminError};
use super::leader::Leader;

impl Leader {
    /// Operators wait until nothing is under way.
    pub(super) fn on_admin(&mut self, request: u64, command: AdminCommand, _context: &mut Context<'_>) {
        self.admin.push((request, command));
    }

    pub(super) fn decide_admin(&mut self, plan: &mut Plan, context: &mut Context<'_>) {
        for (request, command) in std::mem::take(&mut self.admin) {
            match self.admin_change(&command, context) {
                Ok((namespace, change, reason)) => {
                    self.draft.apply_change(&namespace, &change);
                    if let Some(runtime) = self.runtimes.get_mut(&namespace) {
                        runtime.dirty = true;
                        runtime.placement.members_changed = true;
                        if matches!(change, Change::Configured { .. }) {
                            // The settings that are replaced have promised holds of their own until this commits.
                            runtime.holds.settles_at = None;
                        }
                    }
                    plan.records.push(Record::Namespace { namespace, change, reason });
                    plan.in_flight.replies.push((request, Ok(())));
                }
                Err(error) => {
                    context.push(super::ManagerAction::AdminReply { request, result: Err(error) });
                }
            }
        }
    }

    fn admin_change(
        &self,
        command: &AdminCommand,
        context: &mut Context<'_>,
    ) -> Result<(Namespace, Change, Reason), AdminError> {
        let asked = |why: &Arc<str>| Reason::Operator(Arc::clone(why));
        if context.config.diskless.is_some() && changes_namespaces(command) {
            return Err(AdminError::Diskless);
        }
        Ok(match command {
            AdminCommand::Create { namespace, kind, settings } => {
                match self.draft.namespaces.get(namespace) {
                    Some(stored) if stored.kind == *kind => return Err(AdminError::NamespaceExists),
                    Some(stored) => {
                        return Err(AdminError::ExistsAsAnotherKind { kind: stored.kind.clone() });
                    }
                    None => {}
                }
                // The draft has what was decided in this round already: however many ask at once, they are counted one by one.
                if let Some(at_most) = context.config.max_namespaces
                    && self.draft.namespaces.len() >= at_most
                {
                    return Err(AdminError::TooManyNamespaces { at_most });
                }
                let settings = checked(settings, kind, context)?;
                let (kind, log, floor) = (kind.clone(), context.random.nonce(), Generation::ZERO);
                (namespace.clone(), Change::Created { kind, settings, log, floor }, asked(&"created".into()))
            }
            AdminCommand::Configure { namespace, settings, expected, kind } => {
                let stored = self.draft_of(namespace)?;
                if kind.as_ref().is_some_and(|kind| *kind != stored.kind) {
                    return Err(AdminError::KindIsFixed { kind: stored.kind.clone() });
                }
                if expected.as_ref().is_some_and(|expected| *expected != stored.settings) {
                    return Err(AdminError::SettingsChanged);
                }
                let settings = checked(settings, &stored.kind, context)?;
                (namespace.clone(), Change::Configured { settings }, asked(&"configured".into()))
            }
            AdminCommand::Remove { namespace } => {
                let stored = self.draft_of(namespace)?;
                if stored.table.iter().any(|(_, entry)| entry.owner.is_some()) || !stored.sessions.is_empty()
                {
                    return Err(AdminError::NamespaceInUse);
                }
                (namespace.clone(), Change::Removed, asked(&"removed".into()))
            }
            AdminCommand::Freeze { namespace, why } => {
                self.draft_of(namespace)?;
                (namespace.clone(), Change::Frozen, asked(why))
            }
            AdminCommand::Unfreeze { namespace, why } => {
                self.draft_of(namespace)?;
                (namespace.clone(), Change::Unfrozen, asked(why))
            }
            AdminCommand::Move { namespace, range, to, why } => {
                let stored = self.draft_of(namespace)?;
                if let Some(name) = to {
                    find(stored, name)?;
                }
                (namespace.clone(), Change::Pinned { range: *range, to: to.clone() }, asked(why))
            }
            AdminCommand::Drain { namespace, owner, why } => {
                let (session, info) = find(self.draft_of(namespace)?, owner)?;
                let info = SessionInfo { drain_ordered: true, ..info };
                (namespace.clone(), Change::SessionChanged { session, info }, asked(why))
            }
            AdminCommand::Undrain { namespace, owner, why } => {
                let (session, info) = find(self.draft_of(namespace)?, owner)?;
                if info.drain_requested && !info.drain_ordered {
                    return Err(AdminError::DrainsItself);
                }
                let info = SessionInfo { drain_ordered: false, ..info };
                (namespace.clone(), Change::SessionChanged { session, info }, asked(why))
            }
            AdminCommand::Unquarantine { namespace, range, why } => {
                let stored = self.draft_of(namespace)?;
                if !stored.quarantines.iter().any(|known| known.range.overlaps(*range)) {
                    return Err(AdminError::NotQuarantined);
                }
                (namespace.clone(), Change::Unquarantined { range: *range }, asked(why))
            }
            AdminCommand::Evict { namespace, owner, why } => {
                let (session, info) = find(self.draft_of(namespace)?, owner)?;
                let info = SessionInfo { evicted: true, ..info };
                (namespace.clone(), Change::SessionChanged { session, info }, asked(why))
            }
        })
    }

    fn draft_of(&self, namespace: &Namespace) -> Result<&NamespaceState, AdminError> {
        self.draft.namespaces.get(namespace).ok_or(AdminError::NoSuchNamespace)
    }
}

fn checked(
    settings: &Arc<Settings>,
    kind: &NamespaceKind,
    context: &Context<'_>,
) -> Result<Arc<Settings>, AdminError> {
    let checked = kind.check(settings, context.config.drift);
    checked.map(|()| Arc::clone(settings)).map_err(AdminError::Settings)
}

/// Whether a command would be forgotten with the term, though its sender counts on it.
fn changes_namespaces(command: &AdminCommand) -> bool {
    matches!(
        command,
        AdminCommand::Create { .. } | AdminCommand::Configure { .. } | AdminCommand::Remove { .. }
    )
}

fn find(stored: &NamespaceState, owner: &OwnerName) -> Result<(SessionId, SessionInfo), AdminError> {
    let session = stored.session_named(owner).ok_or(AdminError::NoSuchOwner)?;
    let info = stored.sessions.get(&session).ok_or(AdminError::NoSuchOwner)?;
    Ok((session, info.clone()))
}
