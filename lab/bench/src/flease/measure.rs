//! What is measured of a group of peers, and what it adds up to.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::group::Group;
use super::order::{Answer, Counts, Order, Times};
use crate::Failure;

/// How often a peer acquires the one cell before it is the next one's turn.
const TURN: usize = 10;
/// How many acquisitions of the one cell are counted out in datagrams.
const COUNTED: usize = 30;
/// Every lease is renewed by then: at half of its length, and a sixteenth earlier at most.
const RENEWED_BY: f64 = 0.6;
/// How many cells all peers want at the same time.
const CONTENDED: usize = 100;
/// Cells are renewed under shorter and shorter leases, each this part of the one before, until some are lost.
const SHORTER: f64 = 0.7;
/// No shorter ones: on a machine that does much at once they would say more of that than of the peers.
pub(super) const SHORTEST: Duration = Duration::from_millis(100);

/// How often something was done, how long that took in sum, and each time.
pub(super) struct Rate {
    pub(super) count: u64,
    pub(super) time: Duration,
    nanos: Histogram<u64>,
}

impl Rate {
    pub(super) fn new() -> Result<Rate, Failure> {
        let nanos = Histogram::new(3)?;
        Ok(Rate { count: 0, time: Duration::ZERO, nanos })
    }

    pub(super) fn note(&mut self, took: Duration) {
        self.note_nanos(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), 1);
    }

    fn note_nanos(&mut self, nanos: u64, times: u64) {
        self.count += times;
        // It grows with its values: nothing that is measured here is too large for it.
        let _ = self.nanos.record_n(nanos, times);
    }

    pub(super) fn per_second(&self) -> f64 {
        self.count as f64 / self.time.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// In microseconds.
    pub(super) fn at(&self, quantile: f64) -> f64 {
        self.nanos.value_at_quantile(quantile) as f64 / 1e3
    }
}

/// What was sent for some acquisitions.
#[derive(Default)]
pub(super) struct Sent {
    pub(super) acquisitions: u64,
    pub(super) datagrams: u64,
    pub(super) bytes: u64,
    pub(super) messages: u64,
}

impl Sent {
    fn add(&mut self, acquisitions: u64, before: &Counts, after: &Counts) {
        self.acquisitions += acquisitions;
        self.datagrams += after.datagrams - before.datagrams;
        self.bytes += after.bytes - before.bytes;
        self.messages += after.messages - before.messages;
    }
}

/// Renewals under one length of leases.
pub(super) struct Renewals {
    pub(super) lease: Duration,
    pub(super) cells: usize,
    pub(super) rate: Rate,
    pub(super) lost: u64,
    /// Whether leases that are shorter were lost: there is no more to be had.
    pub(super) is_limit: bool,
}

impl Renewals {
    /// Of what they were.
    pub(super) fn what(&self) -> String {
        let cells = if self.cells == 1 { "one cell".to_owned() } else { format!("{} cells", self.cells) };
        let lost = if self.lost > 0 { ", some lost" } else { "" };
        format!("{cells}, leases of {} ms{lost}", self.lease.as_millis())
    }
}

/// What a number of cells costs.
pub(super) struct Cost {
    pub(super) acquire: Rate,
    pub(super) release: Rate,
    pub(super) sent: Sent,
    pub(super) renewals: Option<Renewals>,
}

impl Cost {
    pub(super) fn new() -> Result<Cost, Failure> {
        Ok(Cost { acquire: Rate::new()?, release: Rate::new()?, sent: Sent::default(), renewals: None })
    }
}

/// The peers acquire and release one cell, in turns, for some time. Only the acquisitions' time counts.
pub(super) async fn one_cell(group: &mut Group, time: Duration, cost: &mut Cost) -> Result<(), Failure> {
    let until = Instant::now() + time;
    let mut places = (0..group.len()).cycle();
    while let Some(place) = places.next().filter(|_| Instant::now() < until) {
        if let Answer::Cycled { acquire, release } =
            group.order_one(place, &Order::Cycle { times: TURN }).await?
        {
            for (nanos, rate) in [(acquire, &mut cost.acquire), (release, &mut cost.release)] {
                for nanos in nanos {
                    rate.note_nanos(nanos, 1);
                    rate.time += Duration::from_nanos(nanos);
                }
            }
        }
    }
    Ok(())
}

/// What is sent for an acquisition of one cell.
pub(super) async fn count_one_cell(group: &mut Group, cost: &mut Cost) -> Result<(), Failure> {
    for place in (0..group.len()).cycle().take(COUNTED) {
        let before = group.count_settled().await?;
        group.order_one(place, &Order::Acquire { first: 0, count: 1, in_flight: 1 }).await?;
        cost.sent.add(1, &before, &group.count_settled().await?);
        group.order_one(place, &Order::Release).await?;
    }
    Ok(())
}

/// All cells are acquired, each peer its share, and given back, again and again until the acquisitions took some time.
pub(super) async fn many_cells(
    group: &mut Group,
    cells: usize,
    in_flight: usize,
    time: Duration,
    cost: &mut Cost,
) -> Result<(), Failure> {
    let until = cost.acquire.time + time;
    while cost.acquire.time < until {
        let before = group.count_settled().await?;
        let count = acquire_all(group, cells, in_flight, &mut cost.acquire).await?;
        cost.sent.add(count, &before, &group.count_settled().await?);
        group.order(|_| Order::Release).await?;
    }
    Ok(())
}

async fn acquire_all(
    group: &mut Group,
    cells: usize,
    in_flight: usize,
    rate: &mut Rate,
) -> Result<u64, Failure> {
    let peers = group.len();
    let part = |whole: usize, place: usize| whole * place / peers;
    let order = |place: usize| Order::Acquire {
        first: part(cells, place),
        count: part(cells, place + 1) - part(cells, place),
        in_flight: (part(in_flight, place + 1) - part(in_flight, place)).max(1),
    };
    let (mut count, mut first, mut last) = (0, u64::MAX, 0);
    for answer in group.order(order).await? {
        if let Answer::Acquired { nanos, from, until } = answer {
            (first, last) = (first.min(from), last.max(until));
            count += nanos.len() as u64;
            nanos.into_iter().for_each(|nanos| rate.note_nanos(nanos, 1));
        }
    }
    rate.time += Duration::from_nanos(last.saturating_sub(first));
    Ok(count)
}

/// How often each peer had one of the cells that all wanted all the time.
pub(super) async fn shares(group: &mut Group, time: Duration) -> Result<Vec<u64>, Failure> {
    let pause = group.times().window();
    let answers = group.order(|_| Order::Contend { cells: CONTENDED, time, pause }).await?;
    let had = |answer| if let Answer::Contended { had } = answer { had } else { 0 };
    Ok(answers.into_iter().map(had).collect())
}

/// Starts peers whose leases have this length, lets them hold some cells, and counts the renewals of some time.
async fn renewals(trial: Trial, lease: Duration) -> Result<Renewals, Failure> {
    let Trial { peers, cells, in_flight, time } = trial;
    let mut group = Group::start(peers, Times::of(lease)).await?;
    group.ready().await?;
    acquire_all(&mut group, cells, in_flight, &mut Rate::new()?).await?;
    tokio::time::sleep(lease.mul_f64(RENEWED_BY)).await;
    let before = group.count().await?;
    let since = Instant::now();
    tokio::time::sleep(time.max(lease)).await;
    let after = group.count().await?;
    let mut rate = Rate::new()?;
    after.renewals.iter().for_each(|(nanos, times)| rate.note_nanos(*nanos, *times));
    (rate.count, rate.time) = (after.renewed - before.renewed, since.elapsed());
    Ok(Renewals { lease, cells, rate, lost: after.lost, is_limit: false })
}

/// What is tried to find out how many renewals peers sustain.
#[derive(Clone, Copy)]
pub(super) struct Trial {
    pub(super) peers: u16,
    pub(super) cells: usize,
    pub(super) in_flight: usize,
    pub(super) time: Duration,
}

impl Trial {
    /// The shortest leases from `first` on under which no cell is lost, each length twice the one before; else the
    /// longest.
    pub(super) async fn kept(
        self,
        first: Duration,
        longest: Duration,
        say: impl Fn(&Renewals),
    ) -> Result<Renewals, Failure> {
        let mut renewals = self.tried(first, &say).await?;
        while renewals.lost > 0 && renewals.lease * 2 <= longest {
            let longer = self.tried(renewals.lease * 2, &say).await?;
            renewals = Renewals { is_limit: true, ..longer };
        }
        Ok(renewals)
    }

    /// The same, but goes on from `first` to shorter leases as long as no cell is lost.
    pub(super) async fn most(
        self,
        first: Duration,
        longest: Duration,
        say: impl Fn(&Renewals),
    ) -> Result<Renewals, Failure> {
        let mut best = self.kept(first, longest, &say).await?;
        while best.lost == 0 && !best.is_limit && best.lease.mul_f64(SHORTER) >= SHORTEST {
            let shorter = self.tried(best.lease.mul_f64(SHORTER), &say).await?;
            match shorter.lost {
                0 => best = shorter,
                _ => best.is_limit = true,
            }
        }
        Ok(best)
    }

    /// Tries again if cells are lost: something else may have been in the way once.
    async fn tried(self, lease: Duration, say: impl Fn(&Renewals)) -> Result<Renewals, Failure> {
        let mut renewals = renewals(self, lease).await?;
        say(&renewals);
        if renewals.lost > 0 {
            renewals = self::renewals(self, lease).await?;
            say(&renewals);
        }
        Ok(renewals)
    }
}
