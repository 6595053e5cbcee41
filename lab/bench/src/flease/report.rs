//! What was measured, for scripts and for people.

use serde_json::{Value, json};

use super::FleaseBenchArgs;
use super::etcd::NODES;
use super::group::Cost;
use crate::output::{Rate, micros, table_of};

/// What a group of peers costs.
#[derive(Default)]
pub(super) struct GroupCost {
    pub(super) peers: u16,
    pub(super) one: Cost,
    pub(super) many: Cost,
    /// How often each peer had a cell that all wanted.
    pub(super) had: Vec<u64>,
}

impl GroupCost {
    fn json(&self) -> Value {
        let all: u64 = self.had.iter().sum();
        let share = |had: &u64| round(*had as f64 / all.max(1) as f64, 1e3);
        json!({
            "peers": self.peers,
            "one_cell": self.one.json(),
            "many_cells": self.many.json(),
            "contended_acquisitions": all,
            "shares": self.had.iter().map(share).collect::<Vec<_>>(),
        })
    }
}

/// What etcd costs.
#[derive(Default)]
pub(super) struct EtcdCost {
    pub(super) version: String,
    pub(super) one: Rate,
    pub(super) many: Rate,
    pub(super) keep_one: Rate,
    pub(super) keep_many: Rate,
}

impl EtcdCost {
    fn json(&self) -> Value {
        json!({
            "nodes": NODES,
            "version": self.version,
            "one_in_flight": self.one.json("acquisitions"),
            "many_in_flight": self.many.json("acquisitions"),
            "keep_alives_one_in_flight": self.keep_one.json("keep_alives"),
            "keep_alives_many_in_flight": self.keep_many.json("keep_alives"),
        })
    }
}

impl Cost {
    fn json(&self) -> Value {
        let mut value = self.acquire.json("acquisitions");
        if self.release.count > 0 {
            value["release_us"] = micros(&self.release.samples);
        }
        let each = |sent: u64| round(sent as f64 / self.sent.acquisitions.max(1) as f64, 1e2);
        value["datagrams_per_acquisition"] = each(self.sent.datagrams).into();
        value["bytes_per_acquisition"] = each(self.sent.bytes).into();
        value["messages_per_acquisition"] = each(self.sent.messages).into();
        if let Some(renewals) = &self.renewals {
            value["renewals"] = renewals.json();
        }
        value
    }
}

pub(super) fn json(args: &FleaseBenchArgs, groups: &[GroupCost], etcd: &EtcdCost) -> Value {
    json!({
        "cells": args.cells,
        "in_flight": args.in_flight,
        "lease_ms": args.lease.as_millis() as u64,
        "flease": groups.iter().map(GroupCost::json).collect::<Vec<_>>(),
        "etcd": etcd.json(),
        "flease_to_etcd": groups.iter().map(|group| ratios(group, etcd)).collect::<Vec<_>>(),
    })
}

fn ratios(group: &GroupCost, etcd: &EtcdCost) -> Value {
    let ratio = |ours: f64, theirs: f64| round(ours / theirs.max(f64::MIN_POSITIVE), 1e2);
    let rates = |ours: &Rate, theirs: &Rate| ratio(ours.per_second(), theirs.per_second());
    let (ours, theirs) = (&group.one.acquire, &etcd.one);
    let times = |percent| {
        let at = |rate: &Rate| rate.samples.percentile(percent).as_secs_f64();
        ratio(at(ours), at(theirs))
    };
    let renewals =
        group.many.renewals.as_ref().map_or(0.0, |renewals| rates(&renewals.rate, &etcd.keep_many));
    json!({
        "peers": group.peers,
        "acquisitions_per_second_one_in_flight": rates(ours, theirs),
        "acquisitions_per_second_many_in_flight": rates(&group.many.acquire, &etcd.many),
        "latency_p50_one_in_flight": times(50.0),
        "latency_p99_one_in_flight": times(99.0),
        "renewals_per_second_many_in_flight": renewals,
    })
}

pub(super) fn words(report: &Value) -> String {
    let (etcd, many) = (&report["etcd"], format!("{} at a time", report["in_flight"]));
    let (mut acquisitions, mut renewals, mut shares, mut ratios) = (vec![], vec![], vec![], vec![]);
    for (group, ratio) in list(&report["flease"]).iter().zip(list(&report["flease_to_etcd"])) {
        let (who, one, all) = (format!("{} peers", group["peers"]), &group["one_cell"], &group["many_cells"]);
        acquisitions.push(named(one, &who, "one cell"));
        acquisitions.push(named(all, &who, &format!("{} cells, {many}", report["cells"])));
        renewals.extend([one, all].map(|cost| named(&cost["renewals"], &who, &what(&cost["renewals"]))));
        shares.push(format!(
            "shares of {who} in {} acquisitions that all wanted: {}",
            group["contended_acquisitions"], group["shares"]
        ));
        ratios.push(format!(
            "{who} to etcd: {} times the acquisitions a second one at a time, {} times with {many}, {} times the renewals",
            ratio["acquisitions_per_second_one_in_flight"],
            ratio["acquisitions_per_second_many_in_flight"],
            ratio["renewals_per_second_many_in_flight"],
        ));
    }
    let who = format!("etcd {}, {NODES} nodes", etcd["version"].as_str().unwrap_or_default());
    for (flight, what) in [("one_in_flight", "one at a time"), ("many_in_flight", &many)] {
        acquisitions.push(named(&etcd[flight], &who, what));
        let kept = &etcd[format!("keep_alives_{flight}")];
        let kept =
            json!({ "renewals_per_second": kept["keep_alives_per_second"], "round_us": kept["latency_us"] });
        renewals.push(named(&kept, &who, what));
    }
    let acquisitions = table_of(&ACQUISITIONS, &acquisitions);
    let renewals = table_of(&RENEWALS, &renewals);
    format!("{acquisitions}\n\n{renewals}\n\n{}\n\n{}", shares.join("\n"), ratios.join("\n"))
}

const ACQUISITIONS: [(&str, &str); 9] = [
    ("acquisitions", "/who"),
    ("", "/what"),
    ("a second", "/acquisitions_per_second"),
    ("p50 us", "/latency_us/p50"),
    ("p99 us", "/latency_us/p99"),
    ("max us", "/latency_us/max"),
    ("datagrams", "/datagrams_per_acquisition"),
    ("bytes", "/bytes_per_acquisition"),
    ("messages", "/messages_per_acquisition"),
];

const RENEWALS: [(&str, &str); 6] = [
    ("renewals", "/who"),
    ("", "/what"),
    ("a second", "/renewals_per_second"),
    ("p50 us", "/round_us/p50"),
    ("p99 us", "/round_us/p99"),
    ("max us", "/round_us/max"),
];

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A row of a table: what something costs whom.
fn named(cost: &Value, who: &str, what: &str) -> Value {
    let mut row = cost.clone();
    row["who"] = who.into();
    row["what"] = what.into();
    row
}

/// Of what renewals were.
pub(super) fn what(renewals: &Value) -> String {
    let cells = match renewals["cells"].as_u64() {
        Some(1) => "one cell".to_owned(),
        _ => format!("{} cells", renewals["cells"]),
    };
    let lost = if renewals["lost"].as_u64() > Some(0) { ", some lost" } else { "" };
    format!("{cells}, leases of {} ms{lost}", renewals["lease_ms"])
}

fn round(number: f64, parts: f64) -> f64 {
    (number * parts).round() / parts
}
