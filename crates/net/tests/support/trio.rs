//! A Manager, an Owner and a Lookup that talk to each other without a network, each recorded.

#[allow(dead_code, unreachable_pub)]
#[path = "../../../core/tests/support/store.rs"]
mod store;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{ManagerId, Namespace, OwnerName};
use centrifuge_core::lookup::{LookupAction, LookupConfig, LookupEvent, LookupMachine};
use centrifuge_core::machine::Output;
use centrifuge_core::manager::{
    AdminCommand, ManagerAction, ManagerConfig, ManagerEvent, ManagerMachine, StoreCommand, StreamId,
};
use centrifuge_core::owner::{OwnerAction, OwnerConfig, OwnerEvent, OwnerMachine};
use centrifuge_core::recording::Recordable;
use centrifuge_core::settings::Settings;
use centrifuge_core::time::Instant;
use centrifuge_net::driver::Tee;
use centrifuge_net::record::Recorder;

use store::Store;

const OWNER: StreamId = StreamId(1);
const LOOKUP: StreamId = StreamId(2);

/// A machine with its recording, and how many steps it took.
pub(crate) struct Recorded<M: Recordable> {
    pub(crate) machine: M,
    recorder: Recorder<M>,
    wake: Option<Instant>,
    pub(crate) steps: u64,
}

impl<M: Recordable<Config: Clone>> Recorded<M> {
    fn new(file: &Path, config: M::Config, seed: u8) -> Recorded<M> {
        let recorder = Recorder::create(file, &config, [seed; 32]).expect("a new file");
        Recorded { machine: M::build(config, [seed; 32]), recorder, wake: None, steps: 0 }
    }
}

impl<M: Recordable<Event: Clone>> Recorded<M> {
    fn feed(&mut self, now: Instant, event: Option<M::Event>) -> Vec<M::Action> {
        let shown = event.clone();
        let output: Output<M::Action> = match event {
            Some(event) => self.machine.on_event(now, event),
            None => self.machine.on_wake(now),
        };
        self.recorder.step(now, shown.as_ref(), &output);
        self.wake = output.wake;
        self.steps += 1;
        output.actions
    }
}

enum Delivery {
    Manager(ManagerEvent),
    Owner(OwnerEvent),
    Lookup(LookupEvent),
}

/// The three, their store, and what is on the way.
pub(crate) struct Trio {
    pub(crate) manager: Recorded<ManagerMachine>,
    pub(crate) owner: Recorded<OwnerMachine>,
    pub(crate) lookup: Recorded<LookupMachine>,
    id: ManagerId,
    store: Store,
    leader_hold: Duration,
    now: Instant,
    queue: VecDeque<Delivery>,
}

impl Trio {
    /// All three at their start; the recordings are `manager`, `owner` and `lookup` in the folder.
    pub(crate) fn new(folder: &Path) -> Trio {
        let id = ManagerId::from("manager:7600");
        let namespace = Namespace::new("chat").expect("a label");
        let managers: Arc<[ManagerId]> = Arc::from([id.clone()]);
        let owner = OwnerConfig {
            namespace: namespace.clone(),
            name: OwnerName::new("owner-1").expect("a name"),
            url: "http://owner-1".into(),
            managers: Arc::clone(&managers),
            takes_over_previous: false,
            weight: 100,
            load_dimension: Default::default(),
            migrates: true,
            credential: None,
            expects: Default::default(),
        };
        let mut trio = Trio {
            manager: Recorded::new(&folder.join("manager"), ManagerConfig::new(id.clone()), 1),
            owner: Recorded::new(&folder.join("owner"), owner, 2),
            lookup: Recorded::new(&folder.join("lookup"), LookupConfig::new(namespace.clone(), managers), 3),
            id,
            store: Store::default(),
            leader_hold: ManagerConfig::new("any".into()).leader_hold,
            now: Instant(1_000_000_007),
            queue: VecDeque::new(),
        };
        trio.queue.push_back(Delivery::Manager(ManagerEvent::Start));
        trio.deliver();
        let settings = Arc::new(Settings::default());
        let command = AdminCommand::Create { kind: Default::default(), namespace, settings };
        trio.queue.push_back(Delivery::Manager(ManagerEvent::Admin { request: 1, command }));
        trio.queue.push_back(Delivery::Owner(OwnerEvent::Start));
        trio.queue.push_back(Delivery::Lookup(LookupEvent::Start));
        trio.deliver();
        trio
    }

    /// Lets time pass.
    pub(crate) fn run_for(&mut self, length: Duration) {
        let end = self.now + length;
        let next =
            |trio: &Trio| [trio.manager.wake, trio.owner.wake, trio.lookup.wake].into_iter().flatten().min();
        while let Some(wake) = next(self).filter(|wake| *wake <= end) {
            self.now = self.now.max(wake);
            self.wake_all();
        }
        self.now = end;
    }

    /// The Manager's clock jumps, so that it loads what is stored and leads anew.
    pub(crate) fn lead_anew(&mut self) {
        self.queue.push_back(Delivery::Manager(ManagerEvent::ClockJumped));
        self.deliver();
        self.run_for(Duration::from_secs(30));
    }

    fn wake_all(&mut self) {
        let now = self.now;
        let due = |wake: Option<Instant>| wake.is_some_and(|wake| wake <= now);
        if due(self.manager.wake) {
            let actions = self.manager.feed(now, None);
            self.perform_manager(actions);
        }
        if due(self.owner.wake) {
            let actions = self.owner.feed(now, None);
            self.perform_owner(actions);
        }
        if due(self.lookup.wake) {
            let actions = self.lookup.feed(now, None);
            self.perform_lookup(actions);
        }
        self.deliver();
    }

    fn deliver(&mut self) {
        while let Some(delivery) = self.queue.pop_front() {
            self.now = self.now + Duration::from_micros(333);
            match delivery {
                Delivery::Manager(event) => {
                    let actions = self.manager.feed(self.now, Some(event));
                    self.perform_manager(actions);
                }
                Delivery::Owner(event) => {
                    let actions = self.owner.feed(self.now, Some(event));
                    self.perform_owner(actions);
                }
                Delivery::Lookup(event) => {
                    let actions = self.lookup.feed(self.now, Some(event));
                    self.perform_lookup(actions);
                }
            }
        }
    }

    fn perform_manager(&mut self, actions: Vec<ManagerAction>) {
        let from = || self.id.clone();
        for action in actions {
            let delivery = match action {
                ManagerAction::ToOwner { to: OWNER, message } => {
                    Delivery::Owner(OwnerEvent::FromManager { from: from(), message })
                }
                ManagerAction::ToLookup { to: LOOKUP, message } => {
                    Delivery::Lookup(LookupEvent::FromManager { from: from(), message })
                }
                ManagerAction::Store(StoreCommand::Compact { .. }) => continue,
                request @ (ManagerAction::Election(_) | ManagerAction::Store(_)) => {
                    let Some(answer) = self.store.answer(self.now, &self.id, self.leader_hold, request)
                    else {
                        continue;
                    };
                    Delivery::Manager(answer)
                }
                _ => continue,
            };
            self.queue.push_back(delivery);
        }
    }

    fn perform_owner(&mut self, actions: Vec<OwnerAction>) {
        for action in actions {
            if let OwnerAction::ToManager { message, .. } = action {
                self.queue.push_back(Delivery::Manager(ManagerEvent::FromOwner { from: OWNER, message }));
            }
        }
    }

    fn perform_lookup(&mut self, actions: Vec<LookupAction>) {
        for action in actions {
            if let LookupAction::ToManager { request, .. } = action {
                self.queue.push_back(Delivery::Manager(ManagerEvent::FromLookup { from: LOOKUP, request }));
            }
        }
    }
}
