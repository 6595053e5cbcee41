//! What is true and what devices believe: where every device is, and where others think it is.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use centrifuge_examples::shared::stamp::Stamp;
use centrifuge_harness::lock;

use super::device::Belief;

/// Devices write here what they believe, and those who judge them read it. Devices themselves never read it.
#[derive(Debug, Default)]
pub(super) struct Board {
    sheets: Mutex<BTreeMap<String, Sheet>>,
}

/// What is known of one device.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    /// Every address it had, in order; the last is the true one.
    addresses: Vec<Address>,
    /// Since when it is switched on.
    on_since: Option<Instant>,
    pub(super) beliefs: BTreeMap<String, Belief>,
    told: Vec<Told>,
    pub(super) frontend: String,
    pub(super) incarnation: Option<Stamp>,
    pub(super) published_at: Option<Instant>,
    pub(super) polls: u64,
    /// When it last subscribed, and whether that renewed the subscription that it had.
    pub(super) subscribed: Option<(Instant, bool)>,
}

#[derive(Debug)]
struct Address {
    text: String,
    acknowledged: Option<Instant>,
}

/// A device was told that state is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) at: Instant,
    /// Who was told.
    pub(super) device: String,
    /// The pool that lost it.
    pub(super) pool: String,
    /// Of whom it was.
    pub(super) name: String,
}

/// A device that believes an address which is not the last that was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Behind {
    pub(super) device: String,
    pub(super) peer: String,
    pub(super) believes: String,
    /// For how long.
    pub(super) lasts: Duration,
}

impl Board {
    /// A device gets an address, and is switched on or off.
    pub(super) fn is(&self, device: &str, address: &str, is_on: bool) {
        let mut sheets = lock(&self.sheets);
        let sheet = sheets.entry(device.to_owned()).or_default();
        if sheet.addresses.last().is_none_or(|last| last.text != address) {
            sheet.addresses.push(Address { text: address.to_owned(), acknowledged: None });
        }
        sheet.on_since = if is_on { sheet.on_since.or_else(|| Some(Instant::now())) } else { None };
    }

    /// A device's publication of an address was acknowledged.
    pub(super) fn published(&self, device: &str, address: &str) {
        self.change(device, |sheet| {
            sheet.published_at = Some(Instant::now());
            let published = sheet.addresses.iter_mut().rfind(|known| known.text == address);
            if let Some(published) = published {
                published.acknowledged.get_or_insert_with(Instant::now);
            }
        });
    }

    /// A device was told that what `pool` had of `name` is gone.
    pub(super) fn told(&self, device: &str, pool: &str, name: &str) {
        let (device, pool, name) = (device.to_owned(), pool.to_owned(), name.to_owned());
        self.change(&device.clone(), |sheet| {
            sheet.told.push(Told { at: Instant::now(), device, pool, name })
        });
    }

    /// Where a device really is.
    pub(super) fn address(&self, device: &str) -> Option<String> {
        lock(&self.sheets).get(device)?.addresses.last().map(|address| address.text.clone())
    }

    /// Whether a device's true address was acknowledged.
    pub(super) fn is_published(&self, device: &str) -> bool {
        let sheets = lock(&self.sheets);
        let last = sheets.get(device).and_then(|sheet| sheet.addresses.last());
        last.is_some_and(|address| address.acknowledged.is_some())
    }

    /// Whether `device` knows where `peer` really is.
    pub(super) fn knows(&self, device: &str, peer: &str) -> bool {
        self.address(peer).is_some_and(|address| self.belief(device, peer) == Some(Belief::Known(address)))
    }

    /// What `device` believes of `peer`.
    pub(super) fn belief(&self, device: &str, peer: &str) -> Option<Belief> {
        lock(&self.sheets).get(device)?.beliefs.get(peer).cloned()
    }

    /// Whether a device subscribed since then, and if so whether that renewed the subscription that it had.
    pub(super) fn subscribed_since(&self, device: &str, then: Instant) -> Option<bool> {
        let (at, renewed) = lock(&self.sheets).get(device)?.subscribed?;
        (at >= then).then_some(renewed)
    }

    /// Who was told of what since then.
    pub(super) fn told_since(&self, then: Instant) -> Vec<Told> {
        let sheets = lock(&self.sheets);
        sheets.values().flat_map(|sheet| &sheet.told).filter(|told| told.at >= then).cloned().collect()
    }

    /// The devices that are switched on and connected to a frontend.
    pub(super) fn at(&self, frontend: &str) -> Vec<String> {
        let sheets = lock(&self.sheets);
        let here = sheets.iter().filter(|(_, sheet)| sheet.on_since.is_some() && sheet.frontend == frontend);
        here.map(|(name, _)| name.clone()).collect()
    }

    /// Which life of its queue every device reads.
    pub(super) fn incarnations(&self) -> BTreeMap<String, Option<Stamp>> {
        lock(&self.sheets).iter().map(|(name, sheet)| (name.clone(), sheet.incarnation)).collect()
    }

    /// The devices that are switched on and believe an address although a newer one was acknowledged: not yet
    /// wrong, if it is not for long.
    pub(super) fn behind(&self) -> Vec<Behind> {
        let (sheets, now) = (lock(&self.sheets), Instant::now());
        let mut behind = Vec::new();
        for (device, sheet) in sheets.iter() {
            let Some(on_since) = sheet.on_since else { continue };
            for (peer, belief) in &sheet.beliefs {
                let Belief::Known(believes) = belief else { continue };
                let newer = sheets.get(peer).and_then(|peer| peer.acknowledged_after(believes));
                if let Some(newer) = newer {
                    let (device, peer, believes) = (device.clone(), peer.clone(), believes.clone());
                    let lasts = now.saturating_duration_since(newer.max(on_since));
                    behind.push(Behind { device, peer, believes, lasts });
                }
            }
        }
        behind
    }

    /// The devices that are switched on and say that they must ask.
    pub(super) fn unsure(&self) -> Vec<String> {
        let sheets = lock(&self.sheets);
        let unsure = |sheet: &Sheet| sheet.beliefs.values().any(|belief| *belief == Belief::MustPoll);
        let of = sheets.iter().filter(|(_, sheet)| sheet.on_since.is_some() && unsure(sheet));
        of.map(|(name, _)| name.clone()).collect()
    }

    /// What is known of a device.
    pub(super) fn of<T>(&self, device: &str, read: impl FnOnce(&Sheet) -> T) -> Option<T> {
        lock(&self.sheets).get(device).map(read)
    }

    /// Changes what is known of a device.
    pub(super) fn change(&self, device: &str, change: impl FnOnce(&mut Sheet)) {
        if let Some(sheet) = lock(&self.sheets).get_mut(device) {
            change(sheet);
        }
    }
}

impl Sheet {
    /// When the first address after this one was acknowledged.
    fn acknowledged_after(&self, address: &str) -> Option<Instant> {
        let newer = self.addresses.iter().rev().take_while(|known| known.text != address);
        newer.filter_map(|known| known.acknowledged).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn believes(board: &Board, belief: Belief) {
        board.change("work", |sheet| sheet.beliefs = BTreeMap::from([("home".to_owned(), belief)]));
    }

    #[test]
    fn who_believes_less_than_was_acknowledged_is_behind() {
        let board = Board::default();
        board.is("home", "a", true);
        board.is("work", "x", true);
        board.published("home", "a");
        believes(&board, Belief::Known("a".to_owned()));
        assert!(board.behind().is_empty());
        board.is("home", "b", true);
        assert!(board.behind().is_empty(), "nobody was promised anything about b");
        board.published("home", "b");
        assert_eq!(board.behind().len(), 1);
        assert!(!board.knows("work", "home"));
        believes(&board, Belief::MustPoll);
        assert!(board.behind().is_empty(), "it does not claim to know");
        assert_eq!(board.unsure(), ["work"]);
        believes(&board, Belief::Known("b".to_owned()));
        assert!(board.behind().is_empty() && board.knows("work", "home"));
    }

    #[test]
    fn a_device_that_is_off_is_judged_from_when_it_is_on() {
        let board = Board::default();
        board.is("home", "a", true);
        board.is("work", "x", false);
        believes(&board, Belief::Known("a".to_owned()));
        board.is("home", "b", true);
        board.published("home", "b");
        assert!(board.behind().is_empty());
        board.is("work", "x", true);
        assert!(board.behind()[0].lasts < Duration::from_secs(1));
    }
}
