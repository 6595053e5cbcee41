//! A Manager and one Owner, as pure machines on virtual time, over a real store.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{Generation, ManagerId, Namespace, OwnerName, Term};
use centrifuge_core::machine::{Machine, Output};
use centrifuge_core::manager::{
    AdminCommand, ManagerAction, ManagerConfig, ManagerEvent, ManagerMachine, RoleName, StoreCommand,
    StreamId,
};
use centrifuge_core::owner::{OwnerAction, OwnerConfig, OwnerEvent, OwnerMachine};
use centrifuge_core::random::Random;
use centrifuge_core::settings::Settings;
use centrifuge_core::time::Instant;
use centrifuge_server::store::{Answer, Command};

use super::Client;

const MANAGER: &str = "manager";

/// What there is to do.
enum Due {
    Manager(ManagerEvent),
    Owner(OwnerEvent),
}

/// The two machines, the store, and what happened.
pub struct World {
    store: Client,
    now: Instant,
    manager: ManagerMachine,
    manager_wake: Option<Instant>,
    owner: OwnerMachine,
    owner_wake: Option<Instant>,
    due: VecDeque<Due>,
    /// The generations that the Owner was granted.
    pub granted: Vec<Generation>,
    /// The latest term that the Manager led.
    pub term: Option<Term>,
}

impl World {
    /// Starts both machines. The Owner's name decides who it is.
    pub fn start(store: Client, namespace: &Namespace, owner: &str) -> World {
        let seed = owner.bytes().fold(7, |seed, byte| seed * 31 + u64::from(byte));
        let manager = ManagerConfig::new(ManagerId::from(MANAGER));
        let owner = OwnerConfig {
            namespace: namespace.clone(),
            name: OwnerName::new(owner).expect("a name"),
            url: "http://owner".into(),
            managers: Arc::from([ManagerId::from(MANAGER)]),
            takes_over_previous: false,
            weight: 100,
            load_dimension: Default::default(),
            migrates: false,
            credential: None,
            expects: Default::default(),
        };
        let mut world = World {
            store,
            now: Instant(1_000_000_000),
            manager: ManagerMachine::new(manager, Random::from_number(seed)),
            manager_wake: None,
            owner: OwnerMachine::new(owner, Random::from_number(seed + 1)),
            owner_wake: None,
            due: VecDeque::new(),
            granted: Vec::new(),
            term: None,
        };
        world.due.push_back(Due::Manager(ManagerEvent::Start));
        world.due.push_back(Due::Owner(OwnerEvent::Start));
        world
    }

    /// An operator creates the namespace.
    pub fn create(&mut self, namespace: &Namespace) {
        self.run_until(|world| world.term.is_some());
        let command = AdminCommand::Create {
            kind: Default::default(),
            namespace: namespace.clone(),
            settings: Arc::new(Settings::default()),
        };
        self.due.push_back(Due::Manager(ManagerEvent::Admin { request: 1, command }));
    }

    /// Lets things happen until they have happened, for an hour at most.
    pub fn run_until(&mut self, happened: impl Fn(&World) -> bool) {
        let end = self.now + Duration::from_secs(3600);
        while !happened(self) {
            assert!(self.now < end, "it has not happened within an hour");
            match self.due.pop_front() {
                Some(Due::Manager(event)) => {
                    let output = self.manager.on_event(self.now, event);
                    self.after_manager(output);
                }
                Some(Due::Owner(event)) => {
                    let output = self.owner.on_event(self.now, event);
                    self.after_owner(output);
                }
                None => self.wait(),
            }
        }
    }

    /// Ends the Manager as a crash would, and gives the store back.
    pub fn stop(self) -> Client {
        self.store
    }

    fn wait(&mut self) {
        let next = [self.manager_wake, self.owner_wake].into_iter().flatten().min();
        self.now = self.now.max(next.expect("somebody wants to be woken"));
        if self.manager_wake.is_some_and(|at| at <= self.now) {
            let output = self.manager.on_wake(self.now);
            self.after_manager(output);
        }
        if self.owner_wake.is_some_and(|at| at <= self.now) {
            let output = self.owner.on_wake(self.now);
            self.after_owner(output);
        }
    }

    fn after_manager(&mut self, output: Output<ManagerAction>) {
        self.manager_wake = output.wake;
        for action in output.actions {
            match action {
                ManagerAction::ToOwner { message, .. } => {
                    let from = ManagerId::from(MANAGER);
                    self.due.push_back(Due::Owner(OwnerEvent::FromManager { from, message }));
                }
                ManagerAction::Election(command) => self.ask(command),
                ManagerAction::Store(command @ StoreCommand::Compact { .. }) => self.store.send(command),
                ManagerAction::Store(command) => self.ask(command),
                ManagerAction::AdminReply { result, .. } => assert_eq!(result, Ok(())),
                ManagerAction::RoleChanged(RoleName::Leader { term }) => self.term = Some(term),
                _ => {}
            }
        }
    }

    fn after_owner(&mut self, output: Output<OwnerAction>) {
        self.owner_wake = output.wake;
        for action in output.actions {
            match action {
                OwnerAction::ToManager { message, .. } => {
                    self.due.push_back(Due::Manager(ManagerEvent::FromOwner { from: StreamId(1), message }));
                }
                OwnerAction::Granted(grants) => {
                    self.granted.extend(grants.iter().map(|grant| grant.generation));
                }
                _ => {}
            }
        }
    }

    fn ask(&mut self, command: impl Into<Command>) {
        self.store.send(command);
        self.due.push_back(Due::Manager(match self.store.answer() {
            Answer::Election(event) => ManagerEvent::Election(event),
            Answer::Store(event) => ManagerEvent::Store(event),
            Answer::Followed(_) => unreachable!("the client leaves these out"),
        }));
    }
}
