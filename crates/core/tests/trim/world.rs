//! A small pool whose load is known key by key; it checks every decision and then does what it says.

use std::collections::BTreeMap;
use std::time::Duration;

use centrifuge_core::id::{Generation, Nonce, OwnerName, SessionId};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::RangeLoad;
use centrifuge_core::time::Instant;
use centrifuge_core::trim::{
    self, Bucket, TrimDecision, TrimInput, TrimMemory, TrimMove, TrimOwner, TrimRange, TrimReason,
    TrimReport, TrimRun, TrimSettings,
};

/// How often Owners report and how long a move takes, in seconds.
pub(crate) const RENEWAL: u64 = 15;

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

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// A load that varies by chance as a count of requests does.
    fn varied(&mut self, load: u64) -> u64 {
        // The sum of twelve uniform numbers is close to a normal one with standard deviation 1.
        let normal: i64 = (0..12).map(|_| self.below(1_001) as i64 - 500).sum();
        let sigma = (load * 1_000 / RENEWAL).isqrt() as i64;
        load.saturating_add_signed(sigma * normal / 1_000)
    }
}

#[derive(Clone)]
pub(crate) struct Owner {
    pub(crate) session: SessionId,
    pub(crate) name: OwnerName,
    pub(crate) weight: u32,
    pub(crate) is_eligible: bool,
    pub(crate) report: Option<(Instant, Vec<RangeLoad>)>,
}

#[derive(Clone, Copy)]
pub(crate) struct Lease {
    pub(crate) range: KeyRange,
    pub(crate) owner: Option<SessionId>,
    pub(crate) holder: Option<SessionId>,
    pub(crate) is_pinned: bool,
    pub(crate) moved_at: Option<u64>,
    pub(crate) state_since: u64,
}

pub(crate) struct World {
    pub(crate) random: Random,
    /// In key order, in requests per 1,000 s.
    pub(crate) keys: Vec<(Key, u64)>,
    pub(crate) owners: Vec<Owner>,
    pub(crate) table: Vec<Lease>,
    pub(crate) memory: TrimMemory,
    pub(crate) settings: TrimSettings,
    /// In seconds.
    pub(crate) now: u64,
    pub(crate) may_move: bool,
    pub(crate) is_new: bool,
    pub(crate) membership_changed: bool,
    /// Whether reports vary by chance.
    pub(crate) is_noisy: bool,
    /// What each bucket has paid, in parts per billion of the key space.
    paid: BTreeMap<Bucket, u64>,
    began_at: Option<u64>,
}

pub(crate) fn owner(number: u64, weight: u32) -> Owner {
    Owner {
        session: SessionId(Nonce(u128::from(number))),
        name: OwnerName::new(&format!("owner-{number:04}")).expect("a name"),
        weight,
        is_eligible: true,
        report: None,
    }
}

pub(crate) fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

impl World {
    /// A pool that has nothing yet. The load of the keys falls with their rank, as Zipf's law says.
    pub(crate) fn new(seed: u64, weights: &[u32], keys: u64) -> World {
        let mut random = Random(seed);
        let load_of_rank = |rank: u64| 400_000_000 / (rank + 20);
        let mut keys: Vec<(Key, u64)> =
            (1..=keys).map(|rank| (Key(random.next()), load_of_rank(rank))).collect();
        keys.sort_unstable();
        let all = Lease {
            range: KeyRange::ALL,
            owner: None,
            holder: None,
            is_pinned: false,
            moved_at: None,
            state_since: 1,
        };
        World {
            random,
            keys,
            owners: weights.iter().zip(1..).map(|(weight, number)| owner(number, *weight)).collect(),
            table: vec![all],
            memory: TrimMemory::default(),
            settings: TrimSettings::default(),
            now: 0,
            may_move: true,
            is_new: false,
            membership_changed: true,
            is_noisy: true,
            paid: BTreeMap::new(),
            began_at: None,
        }
    }

    /// A pool of equal Owners that has run for a while.
    pub(crate) fn settled(seed: u64, owners: usize) -> World {
        let mut world = World::new(seed, &vec![100; owners], 2_000);
        world.run(60);
        world
    }

    /// Plays so many intervals, and returns all moves.
    pub(crate) fn run(&mut self, intervals: u64) -> Vec<TrimMove> {
        (0..intervals).flat_map(|_| self.interval().moves).collect()
    }

    /// Plays one interval: moves end, Owners report, Trim decides.
    pub(crate) fn interval(&mut self) -> TrimDecision {
        self.now += RENEWAL;
        self.end_moves();
        self.report();
        self.decide()
    }

    pub(crate) fn end_moves(&mut self) {
        for lease in &mut self.table {
            if lease.moved_at.is_some_and(|at| at <= self.now) {
                (lease.holder, lease.moved_at) = (lease.owner, None);
            }
        }
    }

    pub(crate) fn report(&mut self) {
        for place in 0..self.owners.len() {
            let session = self.owners[place].session;
            let held = self.table.iter().filter(|lease| lease.holder == Some(session));
            let held: Vec<KeyRange> = held.map(|lease| lease.range).collect();
            let loads = held.into_iter().map(|range| self.range_load(range)).collect();
            self.owners[place].report = Some((at(self.now), loads));
        }
    }

    fn range_load(&mut self, range: KeyRange) -> RangeLoad {
        let keys = self.keys_in(range);
        let heavy = keys.iter().copied().max_by_key(|(_, load)| *load).into_iter().collect();
        let load = keys.iter().map(|(_, load)| load).sum();
        let load = if self.is_noisy { self.random.varied(load) } else { load };
        RangeLoad { range, load, heavy, quantiles: Vec::new() }
    }

    fn keys_in(&self, range: KeyRange) -> &[(Key, u64)] {
        let first = self.keys.partition_point(|(key, _)| *key < range.first());
        let end = self.keys.partition_point(|(key, _)| *key <= range.last());
        &self.keys[first..end]
    }

    /// Hands the input of a decision to `ask`.
    pub(crate) fn with_input<T>(&self, ask: impl FnOnce(&TrimInput<'_>) -> T) -> T {
        let owners: Vec<TrimOwner<'_>> = self.owners.iter().map(as_trim_owner).collect();
        let ranges: Vec<TrimRange> = self.table.iter().map(as_trim_range).collect();
        ask(&TrimInput {
            now: at(self.now),
            owners: &owners,
            ranges: &ranges,
            settings: &self.settings,
            may_move: self.may_move,
            is_new: self.is_new,
            moves_under_way: self.table.iter().filter(|lease| lease.moved_at.is_some()).count(),
            membership_changed: self.membership_changed,
        })
    }

    /// Lets Trim decide, checks the decision, and begins what it says.
    pub(crate) fn decide(&mut self) -> TrimDecision {
        let mut memory = self.memory.clone();
        let decision = self.with_input(|input| trim::decide(&mut memory, input));
        self.check_division(&decision, &memory);
        self.memory = memory;
        self.membership_changed = false;
        self.check(&decision);
        let before = self.table.len();
        decision.moves.iter().for_each(|m| self.begin_move(m));
        decision.merges.iter().for_each(|keys| self.merge(*keys));
        self.check_table(before);
        decision
    }

    /// The same input has the same result, however the work is divided.
    fn check_division(&self, decision: &TrimDecision, memory: &TrimMemory) {
        for work in [0, 100, 5_000] {
            let mut other = self.memory.clone();
            let divided = self.with_input(|input| {
                let mut run = TrimRun::begin(&other, input);
                loop {
                    if let Some(decision) = run.advance(&mut other, work) {
                        break decision;
                    }
                }
            });
            assert_eq!((&divided, &other), (decision, memory), "slices of {work}");
        }
    }

    /// What holds for every decision.
    fn check(&mut self, decision: &TrimDecision) {
        let mut keys: Vec<KeyRange> =
            decision.moves.iter().map(|m| m.range).chain(decision.merges.clone()).collect();
        keys.sort_unstable();
        assert!(keys.windows(2).all(|pair| pair[0].last() < pair[1].first()), "no key is in two changes");
        decision.moves.iter().for_each(|m| self.check_move(m));
        let begun = decision.moves.iter().filter(|m| m.from.is_some()).count();
        let under_way = self.table.iter().filter(|lease| lease.moved_at.is_some()).count();
        assert!(begun <= 256 && (begun == 0 || begun + under_way <= self.settings.max_moves));
        assert!(self.memory.len() <= self.table.len() + self.owners.len(), "memory is bounded");
        self.check_budget(decision);
    }

    fn check_move(&self, m: &TrimMove) {
        let lease = self.table.iter().find(|lease| lease.range.contains_range(m.range));
        let lease = lease.expect("a move is of one range of the table");
        assert!(!lease.is_pinned && lease.moved_at.is_none(), "{m:?} touches what is fixed");
        assert_eq!(lease.owner, m.from);
        assert_ne!(m.from, Some(m.to));
        let to = self.owners.iter().find(|owner| owner.session == m.to).expect("a member");
        assert!(to.is_eligible && to.weight > 0, "{m:?} goes to an Owner that may not have keys");
        assert!(m.from.is_none() || self.may_move, "frozen");
        let is_free = matches!(m.reason, TrimReason::Unowned | TrimReason::Draining | TrimReason::FeedNew);
        assert_eq!(is_free, m.bucket == Bucket::Free);
    }

    /// No bucket has ever paid more than time has brought.
    fn check_budget(&mut self, decision: &TrimDecision) {
        let elapsed = self.now - *self.began_at.get_or_insert(self.now);
        for m in &decision.moves {
            *self.paid.entry(m.bucket).or_default() += m.key_share_ppb;
        }
        let credit = if self.is_new { 1_000_000_000 } else { 0 };
        for (bucket, hourly) in [(Bucket::Calm, 300_000_000), (Bucket::Relief, 1_000_000_000)] {
            let earned = hourly * elapsed / 3_600 * u64::from(self.settings.churn_percent) / 100;
            let paid = self.paid.get(&bucket).copied().unwrap_or(0);
            assert!(paid <= earned + credit, "{bucket:?} paid {paid} of {earned}");
        }
    }

    fn idle_ranges(&self) -> usize {
        let has_load =
            |range: KeyRange| self.keys.iter().any(|(key, load)| *load > 0 && range.contains(*key));
        self.table.iter().filter(|lease| !has_load(lease.range)).count()
    }

    /// The table covers every key, and grows only up to its limit.
    fn check_table(&self, before: usize) {
        let mut next = Some(Key::MIN);
        for lease in &self.table {
            assert_eq!(Some(lease.range.first()), next, "the table covers every key once");
            next = lease.range.last().next();
        }
        assert_eq!(next, None);
        let eligible = self.owners.iter().filter(|owner| owner.is_eligible && owner.weight > 0).count();
        let most = self.settings.max_ranges_per_owner as usize * eligible;
        // Ranges without load leave some for those that have load.
        let most = most.max((self.idle_ranges() + 4 * eligible).min(2 * most));
        assert!(self.table.len() <= most.max(before), "{before} ranges grew to {}", self.table.len());
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
        let (one, other) = (self.table[place], self.table[place + 1]);
        assert_eq!((one.range.first(), other.range.last()), (keys.first(), keys.last()));
        assert_eq!((one.holder, one.state_since), (other.holder, other.state_since));
        self.table[place].range = keys;
        self.table.remove(place + 1);
    }

    /// Takes an Owner away at once, with its leases.
    pub(crate) fn crash(&mut self, place: usize) {
        let session = Some(self.owners.remove(place).session);
        for lease in &mut self.table {
            if lease.holder == session {
                (lease.owner, lease.holder, lease.moved_at) = (None, None, None);
            } else if lease.owner == session {
                (lease.owner, lease.moved_at) = (lease.holder, None);
            }
        }
        self.membership_changed = true;
    }

    pub(crate) fn add(&mut self, owner: Owner) {
        self.owners.push(owner);
        self.membership_changed = true;
    }

    /// The true load of an Owner.
    pub(crate) fn load_of(&self, session: SessionId) -> u64 {
        let held = self.table.iter().filter(|lease| lease.holder == Some(session));
        held.flat_map(|lease| self.keys_in(lease.range)).map(|(_, load)| load).sum()
    }

    /// The highest true load relative to an even share by weight, in permille.
    pub(crate) fn peak(&self) -> u64 {
        let total: u64 = self.keys.iter().map(|(_, load)| load).sum();
        let weight: u64 = self.owners.iter().filter(|o| o.is_eligible).map(|o| u64::from(o.weight)).sum();
        let ratio =
            |owner: &Owner| self.load_of(owner.session) * 1_000 * weight / total / u64::from(owner.weight);
        self.owners.iter().filter(|owner| owner.is_eligible).map(ratio).max().unwrap_or(0)
    }
}

fn as_trim_owner(owner: &Owner) -> TrimOwner<'_> {
    let report = owner.report.as_ref();
    TrimOwner {
        session: owner.session,
        name: &owner.name,
        weight: owner.weight,
        is_eligible: owner.is_eligible,
        report: report.map(|(at, loads)| TrimReport { at: *at, loads, span: Duration::ZERO }),
    }
}

fn as_trim_range(lease: &Lease) -> TrimRange {
    TrimRange {
        range: lease.range,
        owner: lease.owner,
        holder: lease.holder,
        is_fixed: lease.is_pinned || lease.moved_at.is_some(),
        state_since: Generation(lease.state_since),
    }
}
