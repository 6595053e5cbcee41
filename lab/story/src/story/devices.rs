//! The devices of a story: pairs of a home PC and a work PC, which follow each other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use centrifuge_harness::{Rng, lock};
use tokio::sync::watch;

use super::board::Board;
use super::datacenter::Frontends;
use super::device::{Circumstances, Device};
use super::{Bug, Times};

/// How many people have a PC at home and one at work.
pub(super) const PEOPLE: usize = 8;
/// Who they may be. The seed decides, and with the names of their devices where the state of these is.
const ALL_PEOPLE: [&str; 26] = [
    "ada", "ben", "cleo", "dan", "eva", "finn", "gina", "hugo", "ines", "jan", "kim", "leo", "mia", "nils",
    "olga", "paul", "quin", "rosa", "sven", "tara", "udo", "vera", "walt", "xena", "yuri", "zoe",
];
/// How long it takes, at least and at most, until the next home PC gets a new address.
const ADDRESS_CHANGE_INTERVAL: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(900)];

/// All devices, and the circumstances that each is put into.
pub(super) struct Devices {
    names: Vec<String>,
    circumstances: BTreeMap<String, watch::Sender<Circumstances>>,
    board: Arc<Board>,
    addresses: AtomicU64,
    /// The home PC that keeps its address for now.
    resting: Mutex<Option<String>>,
}

/// The other device of a person.
pub(super) fn peer(name: &str) -> String {
    match name.rsplit_once('-') {
        Some((person, "home")) => format!("{person}-work"),
        Some((person, _)) => format!("{person}-home"),
        None => String::new(),
    }
}

/// Whether a device is a home PC.
pub(super) fn is_home(name: &str) -> bool {
    name.ends_with("-home")
}

impl Devices {
    /// Switches every device on.
    pub(super) fn start(
        board: &Arc<Board>,
        frontends: &Frontends,
        rng: &mut Rng,
        times: Times,
        bug: Option<Bug>,
    ) -> Arc<Devices> {
        let mut circumstances = BTreeMap::new();
        let people = rng.shuffle(ALL_PEOPLE.to_vec()).into_iter().take(PEOPLE);
        let names: Vec<String> =
            people.flat_map(|person| ["home", "work"].map(|place| format!("{person}-{place}"))).collect();
        for name in &names {
            let (sender, felt) =
                watch::channel(Circumstances { address: String::new(), is_on: false, renewals: 0 });
            let connection = (frontends.clone(), rng.fork());
            let device = Device::new(name, &[peer(name)], felt, connection, Arc::clone(board), times);
            tokio::spawn(device.bug(bug).live());
            circumstances.insert(name.clone(), sender);
        }
        let devices = Arc::new(Devices {
            names,
            circumstances,
            board: Arc::clone(board),
            addresses: AtomicU64::new(0),
            resting: Mutex::default(),
        });
        for name in &devices.names {
            devices.moves(name);
            devices.switch(name, true);
        }
        devices
    }

    /// Every device's name.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// A device gets a new address.
    pub(super) fn moves(&self, name: &str) -> String {
        let number = self.addresses.fetch_add(1, Ordering::Relaxed);
        let address = format!("10.0.{}.{}", number / 256, number % 256);
        self.becomes(name, |now| now.address.clone_from(&address));
        address
    }

    /// A device is switched on or off.
    pub(super) fn switch(&self, name: &str, is_on: bool) {
        self.becomes(name, |now| now.is_on = is_on);
    }

    /// Every device renews its subscriptions, long before it would have to.
    pub(super) fn renew(&self) {
        for name in &self.names {
            self.becomes(name, |now| now.renewals += 1);
        }
    }

    /// How many addresses there were.
    pub(super) fn changes(&self) -> u64 {
        self.addresses.load(Ordering::Relaxed)
    }

    fn becomes(&self, name: &str, change: impl FnOnce(&mut Circumstances)) {
        let Some(device) = self.circumstances.get(name) else { return };
        device.send_modify(|now| {
            change(now);
            self.board.is(name, &now.address, now.is_on);
        });
    }

    /// From now on this home PC gets no new address by itself, and any other does: whoever believes something
    /// wrong about it is not put right by the next change.
    pub(super) fn rests(&self, home: Option<&str>) {
        *lock(&self.resting) = home.map(str::to_owned);
    }

    fn is_resting(&self, home: &str) -> bool {
        lock(&self.resting).as_deref() == Some(home)
    }

    /// Home PCs get new addresses now and then, for as long as the story goes on.
    pub(super) async fn restless(self: Arc<Devices>, mut rng: Rng) {
        let homes: Vec<String> = self.names.iter().filter(|name| is_home(name)).cloned().collect();
        loop {
            tokio::time::sleep(rng.between(ADDRESS_CHANGE_INTERVAL[0], ADDRESS_CHANGE_INTERVAL[1])).await;
            if let Some(home) = rng.pick(homes.iter().collect()).filter(|home| !self.is_resting(home)) {
                self.moves(home);
            }
        }
    }
}
