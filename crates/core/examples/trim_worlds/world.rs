//! A pool under a load that is known key by key, of which Trim sees only what Owners would report.

use std::time::Duration;

use centrifuge_core::id::{Generation, Nonce, OwnerName, SessionId};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::RangeLoad;
use centrifuge_core::time::Instant;
use centrifuge_core::trim::{
    self, TrimDecision, TrimInput, TrimMemory, TrimMove, TrimOwner, TrimRange, TrimReport, TrimSettings,
};

/// How often Owners report and how long a move takes, in seconds.
pub(crate) const RENEWAL: u64 = 15;
/// The weights of Owners, in turn.
const WEIGHTS: [u32; 4] = [50, 100, 100, 200];
/// Keys of at least this part of an Owner's load are reported.
const HEAVY: f64 = 0.003;

/// A small deterministic generator (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A count of independent requests, of which `mean` are expected.
    fn poisson(&mut self, mean: f64) -> f64 {
        if mean > 40.0 {
            let normal =
                (-2.0 * (1.0 - self.unit()).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos();
            return (mean + normal * mean.sqrt()).round().max(0.0);
        }
        let (limit, mut product, mut count) = ((-mean).exp(), self.unit(), 0.0);
        while product > limit {
            product *= self.unit();
            count += 1.0;
        }
        count
    }
}

pub(crate) struct Owner {
    pub(crate) session: SessionId,
    name: OwnerName,
    pub(crate) weight: u32,
    pub(crate) is_draining: bool,
    reported_at: Instant,
    loads: Vec<RangeLoad>,
}

/// One range of the table, and when its move ends.
#[derive(Clone, Copy)]
pub(crate) struct Lease {
    pub(crate) range: KeyRange,
    owner: Option<SessionId>,
    holder: Option<SessionId>,
    moved_at: Option<u64>,
    state_since: u64,
}

pub(crate) struct World {
    pub(crate) random: Random,
    /// Positions in key order.
    pub(crate) keys: Vec<u64>,
    /// What each key has, without what passes.
    pub(crate) base: Vec<f64>,
    /// What each key has now.
    pub(crate) rates: Vec<f64>,
    sums: Vec<f64>,
    heavy: Vec<usize>,
    pub(crate) owners: Vec<Owner>,
    pub(crate) table: Vec<Lease>,
    memory: TrimMemory,
    pub(crate) settings: TrimSettings,
    /// In seconds.
    pub(crate) now: u64,
    requests_per_owner: f64,
    total: f64,
    next_session: u64,
    next_state: u64,
    pub(crate) membership_changed: bool,
    pub(crate) is_detailed: bool,
}

impl World {
    pub(crate) fn new(seed: u64, owners: usize, keys: usize, requests_per_owner: f64) -> World {
        let mut random = Random(seed);
        let mut positions: Vec<u64> = (0..keys).map(|_| random.next()).collect();
        positions.sort_unstable();
        let mut base: Vec<f64> = (1..=keys).map(|rank| (rank as f64).powf(-0.99)).collect();
        (1..keys).rev().for_each(|place| base.swap(place, random.below(place + 1)));
        let all = Lease { range: KeyRange::ALL, owner: None, holder: None, moved_at: None, state_since: 1 };
        let mut world = World {
            random,
            keys: positions,
            rates: base.clone(),
            base,
            sums: Vec::new(),
            heavy: Vec::new(),
            owners: Vec::new(),
            table: vec![all],
            memory: TrimMemory::default(),
            settings: TrimSettings::default(),
            now: 0,
            requests_per_owner,
            total: 0.0,
            next_session: 1,
            next_state: 2,
            membership_changed: true,
            is_detailed: false,
        };
        (0..owners).for_each(|_| world.join());
        world
    }

    pub(crate) fn join(&mut self) {
        let number = self.next_session;
        self.next_session += 1;
        let name = OwnerName::new(&format!("owner-{number:05}")).expect("a name");
        self.owners.push(Owner {
            session: SessionId(Nonce(u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))),
            name,
            weight: WEIGHTS[number as usize % WEIGHTS.len()],
            is_draining: false,
            reported_at: Instant::ZERO,
            loads: Vec::new(),
        });
        self.membership_changed = true;
    }

    pub(crate) fn drain(&mut self) {
        let victim = self.random.below(self.owners.len());
        self.owners[victim].is_draining = true;
        self.membership_changed = true;
    }

    pub(crate) fn crash(&mut self) {
        let victim = self.random.below(self.owners.len());
        let session = Some(self.owners.remove(victim).session);
        self.next_state += 1;
        for lease in &mut self.table {
            if lease.holder == session {
                (lease.owner, lease.holder, lease.moved_at) = (None, None, None);
                lease.state_since = self.next_state;
            } else if lease.owner == session {
                (lease.owner, lease.moved_at) = (lease.holder, None);
            }
        }
        self.membership_changed = true;
    }

    /// Takes the rates as they are now; `scale` is the total load relative to the usual.
    pub(crate) fn set_load(&mut self, scale: f64) {
        let weight: u32 = self.owners.iter().map(|owner| owner.weight).sum();
        let sum: f64 = self.rates.iter().sum();
        let usual = f64::from(weight) / 100.0 * self.requests_per_owner;
        let factor = usual * scale / sum;
        let least = usual * scale * HEAVY * 0.3 / self.owners.len() as f64;
        self.sums.clear();
        self.sums.push(0.0);
        self.heavy.clear();
        let mut before = 0.0;
        for (place, rate) in self.rates.iter_mut().enumerate() {
            *rate *= factor;
            before += *rate;
            self.sums.push(before);
            if *rate > least {
                self.heavy.push(place);
            }
        }
        self.total = before;
    }

    fn rate_of(&self, range: KeyRange) -> f64 {
        let first = self.keys.partition_point(|key| *key < range.first().0);
        let end = self.keys.partition_point(|key| *key <= range.last().0);
        self.sums[end] - self.sums[first]
    }

    fn heavy_in(&self, range: KeyRange) -> impl Iterator<Item = usize> + '_ {
        let first = self.heavy.partition_point(|place| self.keys[*place] < range.first().0);
        let end = self.heavy.partition_point(|place| self.keys[*place] <= range.last().0);
        self.heavy[first..end].iter().copied()
    }

    /// Ends the moves that are due, and lets Owners go that are drained.
    pub(crate) fn end_moves(&mut self) {
        for lease in &mut self.table {
            if lease.moved_at.is_some_and(|at| at <= self.now) {
                (lease.holder, lease.moved_at) = (lease.owner, None);
            }
        }
        let has = |session| {
            self.table.iter().any(|lease| lease.holder == Some(session) || lease.owner == Some(session))
        };
        self.owners.retain(|owner| !owner.is_draining || has(owner.session));
    }

    /// Every Owner reports the requests of the last interval.
    pub(crate) fn report(&mut self) {
        let mut owners = std::mem::take(&mut self.owners);
        for owner in &mut owners {
            let held: Vec<KeyRange> = self.held_by(owner.session).collect();
            let load: f64 = held.iter().map(|range| self.rate_of(*range)).sum();
            owner.loads = held.iter().map(|range| self.reported(*range, load * HEAVY)).collect();
            owner.reported_at = at(self.now);
        }
        self.owners = owners;
    }

    fn held_by(&self, session: SessionId) -> impl Iterator<Item = KeyRange> + '_ {
        self.table.iter().filter(move |lease| lease.holder == Some(session)).map(|lease| lease.range)
    }

    fn reported(&mut self, range: KeyRange, least: f64) -> RangeLoad {
        let places: Vec<usize> = self.heavy_in(range).filter(|place| self.rates[*place] >= least).collect();
        let mut rest = self.rate_of(range);
        let mut heavy = Vec::new();
        let mut load = 0;
        for place in places {
            let rate = self.rates[place];
            rest -= rate;
            let counted = self.counted(rate);
            load += counted;
            heavy.push((Key(self.keys[place]), counted));
        }
        load += self.counted(rest.max(0.0));
        range_load(range, load, heavy)
    }

    /// A count of one interval, in requests per 1,000 s.
    fn counted(&mut self, rate: f64) -> u64 {
        (self.random.poisson(rate * RENEWAL as f64) * 1_000.0 / RENEWAL as f64) as u64
    }

    /// Lets Trim decide, and does what it says. Returns the moves with the part of all load that each moves.
    pub(crate) fn decide(&mut self) -> Vec<(TrimMove, f64)> {
        let decision = self.ask();
        self.membership_changed = false;
        let moves: Vec<_> =
            decision.moves.into_iter().map(|m| (self.rate_of(m.range) / self.total, m)).collect();
        let moves: Vec<_> = moves.into_iter().map(|(part, m)| (m, part)).collect();
        moves.iter().for_each(|(m, _)| self.begin_move(m));
        decision.merges.iter().for_each(|keys| self.merge(*keys));
        moves
    }

    fn ask(&mut self) -> TrimDecision {
        let report = |owner: &Owner| (owner.reported_at > Instant::ZERO).then_some(owner.reported_at);
        let owner = |owner| TrimOwner {
            session: Owner::session(owner),
            name: &owner.name,
            weight: owner.weight,
            is_eligible: !owner.is_draining,
            report: report(owner).map(|at| TrimReport { at, loads: &owner.loads }),
        };
        let range = |lease: &Lease| TrimRange {
            range: lease.range,
            owner: lease.owner,
            holder: lease.holder,
            is_fixed: lease.moved_at.is_some(),
            state_since: Generation(lease.state_since),
        };
        let owners: Vec<TrimOwner<'_>> = self.owners.iter().map(owner).collect();
        let ranges: Vec<TrimRange> = self.table.iter().map(range).collect();
        let input = TrimInput {
            now: at(self.now),
            owners: &owners,
            ranges: &ranges,
            settings: &self.settings,
            may_move: true,
            is_new: self.now == 0,
            moves_under_way: self.table.iter().filter(|lease| lease.moved_at.is_some()).count(),
            membership_changed: self.membership_changed,
        };
        let decision = trim::decide(&mut self.memory, &input);
        if self.is_detailed {
            println!("  {} s: {:?} {:?}", self.now, decision.summary, decision.skipped);
        }
        decision
    }

    fn begin_move(&mut self, m: &TrimMove) {
        let place = self.table.partition_point(|lease| lease.range.last() < m.range.first());
        let lease = self.table[place];
        let (below, above) = lease.range.difference(m.range);
        let (holder, moved_at) = match lease.holder {
            Some(holder) => (Some(holder), Some(self.now + RENEWAL)),
            None => (Some(m.to), None),
        };
        let moved = Lease { range: m.range, owner: Some(m.to), holder, moved_at, ..lease };
        let rest = |range| Lease { range, ..lease };
        let parts = below.map(rest).into_iter().chain([moved]).chain(above.map(rest));
        self.table.splice(place..=place, parts);
    }

    fn merge(&mut self, keys: KeyRange) {
        let place = self.table.partition_point(|lease| lease.range.last() < keys.first());
        assert_eq!(self.table[place + 1].range.last(), keys.last(), "a merge is of two ranges");
        self.table[place].range = keys;
        self.table.remove(place + 1);
    }

    /// The highest ratio of true load to the best possible goal.
    pub(crate) fn peak(&self) -> f64 {
        let level = self.ideal_level();
        let eligible = self.owners.iter().filter(|owner| !owner.is_draining);
        eligible.map(|owner| self.ratio(owner, level)).fold(0.0, f64::max)
    }

    /// The Owner with that ratio, and what it has.
    pub(crate) fn peak_owner(&self) -> String {
        let level = self.ideal_level();
        let ratio = |owner: &&Owner| self.ratio(owner, level);
        let eligible = self.owners.iter().filter(|owner| !owner.is_draining);
        let Some(owner) = eligible.max_by(|one, other| ratio(one).total_cmp(&ratio(other))) else {
            return String::new();
        };
        let (load, largest) = self.load_and_largest_key(owner);
        let share = level * f64::from(owner.weight);
        format!("{}: load {load:.0}, share {share:.0}, largest key {largest:.0}", owner.name)
    }

    fn ratio(&self, owner: &Owner, level: f64) -> f64 {
        let (load, largest) = self.load_and_largest_key(owner);
        load / largest.max(level * f64::from(owner.weight))
    }

    fn load_and_largest_key(&self, owner: &Owner) -> (f64, f64) {
        let (mut load, mut largest) = (0.0, 0.0_f64);
        for range in self.held_by(owner.session) {
            load += self.rate_of(range);
            largest = self.heavy_in(range).map(|place| self.rates[place]).fold(largest, f64::max);
        }
        (load, largest)
    }

    /// The level if large keys were alone on the largest Owners and the rest were even.
    fn ideal_level(&self) -> f64 {
        let mut weights: Vec<f64> = self
            .owners
            .iter()
            .filter(|owner| !owner.is_draining)
            .map(|owner| f64::from(owner.weight))
            .collect();
        weights.sort_by(|one, other| other.total_cmp(one));
        let mut rates: Vec<f64> = self.heavy.iter().map(|place| self.rates[*place]).collect();
        rates.sort_by(|one, other| other.total_cmp(one));
        let (mut load, mut weight) = (self.total, weights.iter().sum::<f64>());
        for (rate, largest) in rates.iter().zip(&weights) {
            if *rate <= load / weight * largest {
                break;
            }
            load -= rate;
            weight -= largest;
        }
        load / weight
    }

    pub(crate) fn ranges_per_owner(&self) -> f64 {
        self.table.len() as f64 / self.owners.len() as f64
    }
}

impl Owner {
    fn session(owner: &Owner) -> SessionId {
        owner.session
    }
}

pub(crate) fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

/// The report of one range. Heavy keys are in key order.
fn range_load(range: KeyRange, load: u64, heavy: Vec<(Key, u64)>) -> RangeLoad {
    RangeLoad { range, load, heavy }
}
