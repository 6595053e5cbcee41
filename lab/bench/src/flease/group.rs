//! A group of peers, each in a process of its own on loopback, what is measured of it, and what that adds up to.

use std::time::{Duration, Instant};

use centrifuge_harness::Process;
use centrifuge_harness::ports::{free_addresses, numbered};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::peer::{Acquired, Counts, Cycled, Order, PeerPart, Times};
use crate::Result;
use crate::output::{Rate, micros};
use crate::process::{Part, ask, ask_all};

/// Replies on their way have arrived when nothing is sent for this long.
const SETTLE_TIME: Duration = Duration::from_millis(10);
/// What is held is renewed, so that the group is never silent for ever.
const MAX_POLLS: usize = 100;

/// Peers that run; they end when this is dropped.
pub(super) struct Group {
    processes: Vec<Process>,
    pub(super) times: Times,
}

impl Group {
    /// Starts so many peers. They take part after their recovery.
    pub(super) fn start(peers: u16, times: Times) -> Result<Group> {
        let list = numbered(&free_addresses(usize::from(peers))?);
        let key = format!("the secret of measurement {}", std::process::id());
        let part = |me| Part::FleasePeer(PeerPart { peers: list.clone(), me, key: key.clone(), times });
        let processes = (1..=peers).map(|me| part(me).start()).collect::<Result<_, _>>()?;
        Ok(Group { processes, times })
    }

    pub(super) fn len(&self) -> usize {
        self.processes.len()
    }

    /// Waits until all take part.
    pub(super) async fn ready(&mut self) -> Result<()> {
        self.ask_all(|_| Order::Ready).await.map(|_: Vec<()>| ())
    }

    /// Gives every peer an order, by its place, and waits for all answers.
    pub(super) async fn ask_all<A: DeserializeOwned>(
        &mut self,
        order: impl Fn(usize) -> Order,
    ) -> Result<Vec<A>> {
        ask_all(&mut self.processes, order).await
    }

    /// Gives one peer an order.
    pub(super) async fn ask<A: DeserializeOwned>(&mut self, place: usize, order: Order) -> Result<A> {
        ask(&mut self.processes[place], &order).await
    }

    /// What all peers have counted.
    pub(super) async fn count(&mut self) -> Result<Counts> {
        let mut counts = Counts::default();
        self.ask_all(|_| Order::Count).await?.into_iter().for_each(|more| counts.add(more));
        Ok(counts)
    }

    /// The same, once nothing is on its way any more.
    pub(super) async fn count_settled(&mut self) -> Result<Counts> {
        let mut counts = self.count().await?;
        for _ in 0..MAX_POLLS {
            tokio::time::sleep(SETTLE_TIME).await;
            let later = self.count().await?;
            if later.datagrams == counts.datagrams {
                return Ok(later);
            }
            counts = later;
        }
        Ok(counts)
    }
}

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
    pub(super) fn json(&self) -> Value {
        json!({
            "cells": self.cells,
            "lease_ms": self.lease.as_millis() as u64,
            "renewals_per_second": self.rate.per_second().round(),
            "round_us": micros(&self.rate.samples),
            "lost": self.lost,
            "is_limit": self.is_limit,
        })
    }
}

/// What a number of cells costs.
#[derive(Default)]
pub(super) struct Cost {
    pub(super) acquire: Rate,
    pub(super) release: Rate,
    pub(super) sent: Sent,
    pub(super) renewals: Option<Renewals>,
}

/// The peers acquire and release one cell, in turns, for some time. Only the acquisitions' time counts.
pub(super) async fn one_cell(group: &mut Group, time: Duration, cost: &mut Cost) -> Result<()> {
    let until = Instant::now() + time;
    let mut places = (0..group.len()).cycle();
    while let Some(place) = places.next().filter(|_| Instant::now() < until) {
        let cycled: Cycled = group.ask(place, Order::Cycle { times: TURN }).await?;
        for (times, rate) in [(cycled.acquire, &mut cost.acquire), (cycled.release, &mut cost.release)] {
            for took in times {
                rate.note(took);
                rate.time += took;
            }
        }
    }
    Ok(())
}

/// What is sent for an acquisition of one cell.
pub(super) async fn count_one_cell(group: &mut Group, cost: &mut Cost) -> Result<()> {
    for place in (0..group.len()).cycle().take(COUNTED) {
        let before = group.count_settled().await?;
        let _: Acquired = group.ask(place, Order::Acquire { first: 0, count: 1, in_flight: 1 }).await?;
        cost.sent.add(1, &before, &group.count_settled().await?);
        group.ask::<()>(place, Order::Release).await?;
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
) -> Result<()> {
    let until = cost.acquire.time + time;
    while cost.acquire.time < until {
        let before = group.count_settled().await?;
        let count = acquire_all(group, cells, in_flight, &mut cost.acquire).await?;
        cost.sent.add(count, &before, &group.count_settled().await?);
        group.ask_all::<()>(|_| Order::Release).await?;
    }
    Ok(())
}

async fn acquire_all(group: &mut Group, cells: usize, in_flight: usize, rate: &mut Rate) -> Result<u64> {
    let peers = group.len();
    let part = |whole: usize, place: usize| whole * place / peers;
    let order = |place: usize| Order::Acquire {
        first: part(cells, place),
        count: part(cells, place + 1) - part(cells, place),
        in_flight: (part(in_flight, place + 1) - part(in_flight, place)).max(1),
    };
    let (mut count, mut first, mut last) = (0, u64::MAX, 0);
    for acquired in group.ask_all::<Acquired>(order).await? {
        (first, last) = (first.min(acquired.from), last.max(acquired.until));
        count += acquired.times.len() as u64;
        acquired.times.into_iter().for_each(|took| rate.note(took));
    }
    rate.time += Duration::from_nanos(last.saturating_sub(first));
    Ok(count)
}

/// How often each peer had one of the cells that all wanted all the time.
pub(super) async fn shares(group: &mut Group, time: Duration) -> Result<Vec<u64>> {
    let pause = group.times.window();
    group.ask_all(|_| Order::Contend { cells: CONTENDED, time, pause }).await
}

/// Starts peers whose leases have this length, lets them hold some cells, and counts the renewals of some time.
async fn renewals(trial: Trial, lease: Duration) -> Result<Renewals> {
    let Trial { peers, cells, in_flight, time } = trial;
    let mut group = Group::start(peers, Times::of(lease))?;
    group.ready().await?;
    acquire_all(&mut group, cells, in_flight, &mut Rate::default()).await?;
    tokio::time::sleep(lease.mul_f64(RENEWED_BY)).await;
    let before = group.count().await?;
    let since = Instant::now();
    tokio::time::sleep(time.max(lease)).await;
    let after = group.count().await?;
    let mut rate = Rate::default();
    for (took, times) in &after.renewals {
        rate.samples.extend((0..*times).map(|_| *took));
    }
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
    ) -> Result<Renewals> {
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
    ) -> Result<Renewals> {
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
    async fn tried(self, lease: Duration, say: impl Fn(&Renewals)) -> Result<Renewals> {
        let mut renewals = renewals(self, lease).await?;
        say(&renewals);
        if renewals.lost > 0 {
            renewals = self::renewals(self, lease).await?;
            say(&renewals);
        }
        Ok(renewals)
    }
}
