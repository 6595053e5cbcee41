//! What was measured, for scripts and for people.

use std::time::Duration;

use serde_json::{Value, json};

use super::etcd::NODES;
use super::measure::{Cost, Rate};
use crate::Failure;
use crate::output::table;

/// What a group of peers costs.
pub(super) struct GroupCost {
    pub(super) peers: u16,
    pub(super) one: Cost,
    pub(super) many: Cost,
    /// How often each peer had a cell that all wanted.
    pub(super) had: Vec<u64>,
}

impl GroupCost {
    pub(super) fn new(peers: u16) -> Result<GroupCost, Failure> {
        Ok(GroupCost { peers, one: Cost::new()?, many: Cost::new()?, had: vec![0; usize::from(peers)] })
    }

    fn shares(&self) -> Vec<f64> {
        let all = self.had.iter().sum::<u64>().max(1) as f64;
        self.had.iter().map(|had| round(*had as f64 / all, 1e3)).collect()
    }

    fn json(&self) -> Value {
        json!({
            "peers": self.peers,
            "one_cell": cost(&self.one),
            "many_cells": cost(&self.many),
            "contended_acquisitions": self.had.iter().sum::<u64>(),
            "shares": self.shares(),
        })
    }
}

/// What etcd costs.
pub(super) struct EtcdCost {
    version: String,
    pub(super) one: Rate,
    pub(super) many: Rate,
    pub(super) keep_one: Rate,
    pub(super) keep_many: Rate,
}

impl EtcdCost {
    pub(super) fn new(version: &str) -> Result<EtcdCost, Failure> {
        Ok(EtcdCost {
            version: version.to_owned(),
            one: Rate::new()?,
            many: Rate::new()?,
            keep_one: Rate::new()?,
            keep_many: Rate::new()?,
        })
    }

    fn json(&self) -> Value {
        json!({
            "nodes": NODES,
            "version": self.version,
            "one_in_flight": acquisitions(&self.one),
            "many_in_flight": acquisitions(&self.many),
            "keep_alives_one_in_flight": keep_alives(&self.keep_one),
            "keep_alives_many_in_flight": keep_alives(&self.keep_many),
        })
    }
}

fn times(rate: &Rate) -> Value {
    let at = |quantile| round(rate.at(quantile), 1.0);
    json!({ "p50": at(0.5), "p99": at(0.99), "max": at(1.0) })
}

fn acquisitions(rate: &Rate) -> Value {
    json!({
        "acquisitions": rate.count,
        "acquisitions_per_second": rate.per_second().round(),
        "latency_us": times(rate),
    })
}

fn keep_alives(rate: &Rate) -> Value {
    json!({
        "keep_alives": rate.count,
        "keep_alives_per_second": rate.per_second().round(),
        "latency_us": times(rate),
    })
}

fn cost(cost: &Cost) -> Value {
    let mut value = acquisitions(&cost.acquire);
    if cost.release.count > 0 {
        value["release_us"] = times(&cost.release);
    }
    let each = |sent: u64| round(sent as f64 / cost.sent.acquisitions.max(1) as f64, 1e2);
    value["datagrams_per_acquisition"] = each(cost.sent.datagrams).into();
    value["bytes_per_acquisition"] = each(cost.sent.bytes).into();
    value["messages_per_acquisition"] = each(cost.sent.messages).into();
    if let Some(renewals) = &cost.renewals {
        value["renewals"] = json!({
            "cells": renewals.cells,
            "lease_ms": renewals.lease.as_millis() as u64,
            "renewals_per_second": renewals.rate.per_second().round(),
            "round_us": times(&renewals.rate),
            "lost": renewals.lost,
            "is_limit": renewals.is_limit,
        });
    }
    value
}

/// All that was measured.
pub(super) struct Report {
    pub(super) cells: u32,
    pub(super) in_flight: u16,
    pub(super) lease: Duration,
    pub(super) groups: Vec<GroupCost>,
    pub(super) etcd: EtcdCost,
}

impl Report {
    pub(super) fn json(&self) -> Value {
        json!({
            "cells": self.cells,
            "in_flight": self.in_flight,
            "lease_ms": self.lease.as_millis() as u64,
            "flease": self.groups.iter().map(GroupCost::json).collect::<Vec<_>>(),
            "etcd": self.etcd.json(),
            "flease_to_etcd": self.groups.iter().map(|group| self.ratios(group)).collect::<Vec<_>>(),
        })
    }

    fn ratios(&self, group: &GroupCost) -> Value {
        let ratio = |ours: f64, theirs: f64| round(ours / theirs.max(f64::MIN_POSITIVE), 1e2);
        let (etcd, many) = (&self.etcd, &group.many.acquire);
        let renewals = group.many.renewals.as_ref().map_or(0.0, |renewals| renewals.rate.per_second());
        json!({
            "peers": group.peers,
            "acquisitions_per_second_one_in_flight":
                ratio(group.one.acquire.per_second(), etcd.one.per_second()),
            "acquisitions_per_second_many_in_flight": ratio(many.per_second(), etcd.many.per_second()),
            "latency_p50_one_in_flight": ratio(group.one.acquire.at(0.5), etcd.one.at(0.5)),
            "latency_p99_one_in_flight": ratio(group.one.acquire.at(0.99), etcd.one.at(0.99)),
            "renewals_per_second_many_in_flight": ratio(renewals, etcd.keep_many.per_second()),
        })
    }

    pub(super) fn words(&self) -> String {
        let etcd = &self.etcd;
        let many = format!("{} at a time", self.in_flight);
        let mut rows = Vec::new();
        for group in &self.groups {
            let who = format!("{} peers", group.peers);
            rows.push(acquisition_row(&who, "one cell", &group.one.acquire, Some(&group.one)));
            let cells = format!("{} cells, {many}", self.cells);
            rows.push(acquisition_row(&who, &cells, &group.many.acquire, Some(&group.many)));
        }
        let who = format!("etcd {}, {NODES} nodes", etcd.version);
        rows.push(acquisition_row(&who, "one at a time", &etcd.one, None));
        rows.push(acquisition_row(&who, &many, &etcd.many, None));
        let head =
            ["acquisitions", "", "a second", "p50 us", "p99 us", "max us", "datagrams", "bytes", "messages"];
        let acquisitions = table(&head, rows);

        let mut rows = Vec::new();
        for group in &self.groups {
            for renewals in [&group.one.renewals, &group.many.renewals].into_iter().flatten() {
                rows.push(rate_row(&format!("{} peers", group.peers), &renewals.what(), &renewals.rate));
            }
        }
        rows.push(rate_row(&who, "one at a time", &etcd.keep_one));
        rows.push(rate_row(&who, &many, &etcd.keep_many));
        let renewals = table(&["renewals", "", "a second", "p50 us", "p99 us", "max us"], rows);

        let shares: Vec<String> = self.groups.iter().map(shares_in_words).collect();
        let ratios: Vec<String> = self.groups.iter().map(|group| self.ratios_in_words(group)).collect();
        format!("{acquisitions}\n\n{renewals}\n\n{}\n\n{}", shares.join("\n"), ratios.join("\n"))
    }

    fn ratios_in_words(&self, group: &GroupCost) -> String {
        let ratios = self.ratios(group);
        format!(
            "{} peers to etcd: {} times the acquisitions a second one at a time, {} times with {} at a time, {} times the renewals",
            group.peers,
            ratios["acquisitions_per_second_one_in_flight"],
            ratios["acquisitions_per_second_many_in_flight"],
            self.in_flight,
            ratios["renewals_per_second_many_in_flight"],
        )
    }
}

fn shares_in_words(group: &GroupCost) -> String {
    let shares: Vec<String> = group.shares().iter().map(|share| format!("{:.1} %", share * 100.0)).collect();
    let all: u64 = group.had.iter().sum();
    format!("shares of {} peers in {all} acquisitions that all wanted: {}", group.peers, shares.join(", "))
}

fn rate_row(who: &str, what: &str, rate: &Rate) -> Vec<String> {
    let number = |number: f64| format!("{number:.0}");
    let mut row = vec![who.to_owned(), what.to_owned(), number(rate.per_second())];
    row.extend([0.5, 0.99, 1.0].map(|quantile| number(rate.at(quantile))));
    row
}

fn acquisition_row(who: &str, what: &str, rate: &Rate, cost: Option<&Cost>) -> Vec<String> {
    let mut row = rate_row(who, what, rate);
    let sent = cost.map(|cost| &cost.sent);
    let each = |of: Option<u64>| match (of, sent) {
        (Some(count), Some(sent)) => format!("{:.2}", count as f64 / sent.acquisitions.max(1) as f64),
        _ => "-".to_owned(),
    };
    row.push(each(sent.map(|sent| sent.datagrams)));
    row.push(each(sent.map(|sent| sent.bytes)));
    row.push(each(sent.map(|sent| sent.messages)));
    row
}

fn round(number: f64, parts: f64) -> f64 {
    (number * parts).round() / parts
}
