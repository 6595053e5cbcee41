//! The secret that Managers share is replaced while they run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use centrifuge_core::id::Generation;
use centrifuge_core::message::{HeldLease, LeaseOrder, ManagerToOwner};
use centrifuge_net::secrets::Secrets;
use centrifuge_server::RunningManager;
use centrifuge_server::store::{PeerKey, PeerOptions};
use tempfile::TempDir;

use crate::claims::{Claimant, codes, refused, warranted};
use crate::clients::{CONTACT, Clients, Witness};
use crate::managers::{Group, leader, leases, shut_down, stands_by};
use crate::support::{eventually, metric, within};

/// Quick enough for a test, slow enough for a machine that does something else.
const LEASE: Duration = Duration::from_secs(4);
const OLD: &str = "what the Managers knew before";
const NEW: &str = "what the Managers know from now on";

/// What is in the files after each step of a rotation, and before the first.
fn steps() -> [String; 4] {
    [OLD.to_owned(), format!("{OLD}\n{NEW}\n"), format!("# since today\n{NEW}\n{OLD}\n"), format!("{NEW}\n")]
}

/// Managers with a file each, so that they take a step at different moments.
struct Rotation {
    group: Group,
    folder: TempDir,
    managers: Vec<RunningManager>,
    /// What each has in force.
    keys: BTreeMap<u16, PeerKey>,
}

impl Rotation {
    async fn start(number: u16, text: &str) -> Rotation {
        let (group, folder) = (Group::new(number, LEASE), tempfile::tempdir().expect("a folder"));
        let mut rotation = Rotation { group, folder, managers: Vec::new(), keys: BTreeMap::new() };
        for me in 1..=number {
            rotation.write(me, text);
            rotation.start_one(me).await;
        }
        rotation
    }

    fn file(&self, me: u16) -> PathBuf {
        self.folder.path().join(me.to_string())
    }

    /// Puts a new file in the place of the old one.
    fn write(&self, me: u16, text: &str) {
        let beside = self.file(me).with_extension("new");
        std::fs::write(&beside, text).expect("written");
        std::fs::rename(&beside, self.file(me)).expect("renamed");
    }

    async fn start_one(&mut self, me: u16) {
        let key = PeerKey::open(&self.file(me)).expect("secrets");
        self.keys.insert(me, key.clone());
        let options = PeerOptions { key, ..self.group.options(me) };
        self.managers.push(self.group.start_with(options).await);
    }

    /// Changes a Manager's file, and waits until what it says is in force.
    async fn take(&self, me: u16, text: &str) {
        self.write(me, text);
        let expected = Secrets::parse(text.as_bytes()).expect("secrets");
        eventually(async || (*self.keys[&me].ring().secrets() == expected).then_some(())).await;
    }

    /// The number of the leader.
    async fn leader(&self) -> u16 {
        let id = self.managers[leader(&self.managers).await].id().to_string();
        (1..).find(|me| self.group.options(*me).own_address() == id).expect("a peer")
    }

    fn followers(&self, leader: u16) -> impl Iterator<Item = u16> {
        let all: Vec<u16> = self.keys.keys().copied().filter(|me| *me != leader).collect();
        all.into_iter()
    }

    /// The leader goes on for longer than it could among Managers that do not understand it.
    async fn leads_on(&self) {
        let manager = &self.managers[leader(&self.managers).await];
        let (term, since) = (manager.view().role().term, Instant::now());
        eventually(async || (since.elapsed() > LEASE * 3 / 2).then_some(())).await;
        let role = manager.view().role();
        assert!(role.is_leading() && role.term == term, "the others did not understand it: {role:?}");
    }

    /// Has another Manager lead, and starts the one that led again with what is then in its file.
    async fn replace_leader(&mut self, text: &str, clients: &Clients) {
        let (me, mut peace) = (self.leader().await, clients.peace());
        let place = leader(&self.managers).await;
        let before = leases(&self.managers[place]);
        self.managers.remove(place).crash().await;
        let next = leader(&self.managers).await;
        peace.until_joined().await;
        clients.at_rest(&self.managers[next]).await;
        assert_eq!(leases(&self.managers[next]), before, "no lease has another number, owner or newer state");
        peace.assert_unbroken().await;
        let wrong = "centrifuge_rejected_input_total{kind=\"warrant-code\"}";
        assert_eq!(metric(self.managers[next].http_addr(), wrong).await, 0.0, "every warrant was accepted");
        self.write(me, text);
        self.start_one(me).await;
        let again = self.managers.last().expect("it was started");
        stands_by(again, &self.managers[next]).await;
        eventually(async || again.view().role().is_ready().then_some(())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_secret_costs_no_lease_whoever_leads_at_which_step() {
    let [before, added, first, dropped] = steps();
    let mut rotation = Rotation::start(3, &before).await;
    let leading = leader(&rotation.managers).await;
    let clients = Clients::join(&rotation.group.listed(), &rotation.managers[leading], CONTACT).await;
    let (mut peace, witness) = (clients.peace(), Witness::of(&clients.owners));

    // The new secret is accepted, by one Manager after the other.
    let leading = rotation.leader().await;
    for me in rotation.followers(leading).chain([leading]) {
        rotation.take(me, &added).await;
    }
    rotation.replace_leader(&added, &clients).await;

    // It signs, but not at the leader yet: the next one is shown nothing but codes by the old secret.
    let leading = rotation.leader().await;
    for me in rotation.followers(leading) {
        rotation.take(me, &first).await;
    }
    rotation.leads_on().await;
    rotation.replace_leader(&first, &clients).await;

    // The old one goes, at the leader last. All leases have codes by the new one, since their leader signs with it.
    let leading = rotation.leader().await;
    for me in rotation.followers(leading) {
        rotation.take(me, &dropped).await;
    }
    rotation.replace_leader(&dropped, &clients).await;

    let expected = Secrets::parse(NEW.as_bytes()).expect("a secret");
    assert!(rotation.keys.values().all(|key| *key.ring().secrets() == expected));
    peace.assert_unbroken().await;
    witness.assert_one_owner();
    shut_down(rotation.managers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_secret_counts_until_it_is_dropped_and_a_broken_file_changes_nothing() {
    let [_, _, first, dropped] = steps();
    let rotation = Rotation::start(1, &first).await;
    let manager = &rotation.managers[0];
    within(manager.leads()).await;
    let (at, http) = (manager.grpc_addr(), manager.http_addr());

    // What the old secret signed is believed, and signed anew by the new one.
    let mut holder = Claimant::greet(at, 1).await;
    holder.claim(warranted(OLD.as_bytes(), holder.session, 1_000)).await;
    let ManagerToOwner::Assign(assign) = holder.answer().await else { panic!("no leases") };
    let LeaseOrder { range, generation, state_since, warrant, .. } =
        assign.orders.first().expect("its lease").clone();
    assert_eq!(generation, Generation(1_000));
    let shown =
        holder.report(HeldLease { range, generation, state_since, warrant: warrant.as_deref().copied() });
    assert_eq!(codes(NEW.as_bytes()).check(&mut shown.clone()), 0);
    assert_eq!(codes(OLD.as_bytes()).check(&mut shown.clone()), 1);

    // Then it is worth nothing.
    rotation.take(1, &dropped).await;
    let late = Claimant::greet(at, 2).await;
    late.claim(warranted(OLD.as_bytes(), late.session, 1_001)).await;
    refused(manager, "no-warrant", 1.0).await;
    let outbid = Claimant::greet(at, 3).await;
    outbid.claim(warranted(NEW.as_bytes(), outbid.session, 999)).await;
    refused(manager, "outbid", 1.0).await;

    // A file that cannot be used, and one that leaves out a step, are counted once, and what was there before stays.
    let refusals = "centrifuge_reloads_refused_total{file=\"peer_key\"}";
    for (times, text) in [(1.0, "short\n"), (2.0, OLD)] {
        rotation.write(1, text);
        eventually(async || (metric(http, refusals).await >= times).then_some(())).await;
        assert_eq!(*rotation.keys[&1].ring().secrets(), Secrets::parse(NEW.as_bytes()).expect("a secret"));
    }
    rotation.take(1, &format!("{NEW}\n{OLD}\n")).await;
    assert_eq!(metric(http, refusals).await, 2.0);
    shut_down(rotation.managers).await;
}
