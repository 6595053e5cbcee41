//! The exhaustive check: small worlds of the real machines, in which everything that can happen does.
//!
//! A state is made of the machines themselves, every message ever sent, the store, the applications and the instant.
//! Any message may arrive at any time, in any order, any number of times or never; machines may be woken late;
//! processes die and start again as far as a world's boundary goes. Every state must keep the sentences of protocol §11
//! that such worlds can break, and in every world something worth the effort must happen.

mod app;
mod explain;
mod fates;
mod flease;
mod lookups;
mod models;
mod network;
mod nodes;
mod print;
mod properties;
mod runner;
mod scenario;
mod stage;
mod step;
mod store;
#[cfg(test)]
mod tests;
mod world;

use std::io::IsTerminal;

use centrifuge_core::injected_bug::Bug;
use serde_json::{Value, json};

use crate::campaign::WorldKind;

use app::{Apps, Task, TaskKind, probes_in};
use fates::Fates;
use lookups::Lookups;
use network::{Body, Network, Node, Packet};
use nodes::{Input, ManagerNode, OwnerNode};
use print::{Shared, mix, print, print_without};
use properties::{Breach, Memory};
use runner::{Example, Findings, Until, explore, for_all};
use scenario::{Command, Counted, Expect, PROBES, Scenario, address, manager_id, namespace};
use stage::Stage;
use step::Step;
use store::{Append, Election, Store};
use world::{Action, Slot, State, World};

/// A small world of either kind.
#[derive(Clone)]
enum Small {
    Managers(Box<Scenario>),
    Flease(flease::Scenario),
}

impl Small {
    fn name(&self) -> &'static str {
        match self {
            Small::Managers(scenario) => scenario.name,
            Small::Flease(scenario) => scenario.name,
        }
    }

    /// Whether an injected bug could show here.
    fn can_show(&self, bug: Bug) -> bool {
        let (is_flease, expect) = match self {
            Small::Managers(scenario) => (false, scenario.expect),
            Small::Flease(scenario) => (true, scenario.expect),
        };
        expect == Expect::Clean && is_flease == (WorldKind::of(bug) == WorldKind::Flease)
    }

    fn bug(mut self, bug: Bug) -> Small {
        match &mut self {
            Small::Managers(scenario) => scenario.bug = Some(bug),
            Small::Flease(scenario) => scenario.bug = Some(bug),
        }
        self
    }

    fn explore(self, until: Until) -> Findings {
        match self {
            Small::Managers(scenario) => explore(world::World::new(*scenario), until),
            Small::Flease(scenario) => explore(flease::World::new(scenario), until),
        }
    }
}

fn all() -> impl Iterator<Item = Small> {
    let managers = models::all().into_iter().map(|scenario| Small::Managers(Box::new(scenario)));
    managers.chain(flease::all().into_iter().map(Small::Flease))
}

fn long() -> impl Iterator<Item = Small> {
    models::long().into_iter().map(|scenario| Small::Managers(Box::new(scenario)))
}

/// The models of these names; all of them unless some are named, but for those that take minutes.
fn chosen(names: &[String], with_long: bool) -> impl Iterator<Item = Small> {
    let usual = all().map(|model| (model, true)).chain(long().map(move |model| (model, with_long)));
    let is_chosen = move |(model, is_usual): &(Small, bool)| {
        if names.is_empty() { *is_usual } else { names.iter().any(|name| name == model.name()) }
    };
    usual.filter(is_chosen).map(|(model, _)| model)
}

/// The names of the models.
pub fn names() -> Vec<&'static str> {
    all().chain(long()).map(|model| model.name()).collect()
}

/// The shortest way in which a model shows an injected bug, if it does: the sentence that is broken, and the steps.
pub fn shortest_breach(bug: Bug, model: &str) -> Option<(&'static str, usize)> {
    let model = all().find(|small| small.name() == model && small.can_show(bug))?;
    let example = model.bug(bug).explore(Until::Broken).example?;
    Some((example.sentence, example.steps))
}

/// Exhausts the chosen models, or, with an injected bug, looks for one among them that finds it.
///
/// Fails if a model is not what it should be or is not exhausted; with an injected bug, if no model finds it.
pub fn run(json: bool, bug: Option<Bug>, names: &[String], with_long: bool) -> bool {
    match bug {
        None => check(json, names, with_long),
        Some(bug) => find(json, bug, names),
    }
}

fn check(json: bool, names: &[String], with_long: bool) -> bool {
    let models = chosen(names, with_long).collect();
    let findings = for_all(models, |model| model.explore(Until::Exhausted), |found| progress(json, found));
    let well = findings.iter().all(Findings::as_expected);
    if json {
        println!("{}", json!({ "models": findings.iter().map(as_json).collect::<Vec<_>>() }));
        return well;
    }
    findings.iter().for_each(tell);
    println!("{}", table(&findings));
    println!("{} model is what it should be", if well { "every" } else { "NOT every" });
    well
}

fn find(json: bool, bug: Bug, names: &[String]) -> bool {
    let models = chosen(names, false).filter(|model| model.can_show(bug));
    let planted = models.map(|model| model.bug(bug)).collect();
    let findings = for_all(planted, |model| model.explore(Until::Broken), |found| progress(json, found));
    let shortest =
        findings.iter().filter_map(|found| found.example.as_ref()).min_by_key(|example| example.steps);
    if json {
        println!("{}", plant_json(bug, &findings));
        return shortest.is_some();
    }
    println!("{}: {}", bug.name(), bug.describe());
    for found in &findings {
        let searched = if found.exhausted { "exhausted" } else { "searched" };
        match &found.example {
            Some(Example { sentence, steps, .. }) => {
                println!("  {:<11} finds it: {sentence} is broken in {steps} steps", found.name);
            }
            None => println!("  {:<11} does not show it: {} states {searched}", found.name, found.states),
        }
    }
    match shortest {
        Some(example) => println!("\n{}", example.story),
        None => println!("no model shows it"),
    }
    shortest.is_some()
}

/// Says which model is done, to somebody who watches.
fn progress(json: bool, found: &Findings) {
    if !json && std::io::stderr().is_terminal() {
        eprintln!("{:<11} {:>9} states in {:.1} s", found.name, found.states, found.took.as_secs_f64());
    }
}

/// Tells what a model found, and what it should have met and did not.
fn tell(found: &Findings) {
    if let Some(example) = &found.example {
        println!("{}: {} is broken\n{}", found.name, found.broken.join(" and "), example.story);
    }
    for missing in &found.missing {
        println!("{}: it never happens that {missing}\n", found.name);
    }
}

fn table(findings: &[Findings]) -> String {
    let mut text = format!(
        "{:<11} {:<10} {:>9} {:>8}  {:<14} covers\n",
        "model", "expect", "states", "seconds", "found"
    );
    for found in findings {
        let result = match (found.broken.is_empty(), found.exhausted) {
            (false, _) => format!("breaks {}", found.broken.join(", ")),
            (true, true) => "clean".to_owned(),
            (true, false) => "not exhausted".to_owned(),
        };
        text.push_str(&format!(
            "{:<11} {:<10} {:>9} {:>8.1}  {result:<14} {}\n",
            found.name,
            expectation(found),
            found.states,
            found.took.as_secs_f64(),
            found.covers
        ));
    }
    text
}

fn as_json(found: &Findings) -> Value {
    json!({
        "name": found.name,
        "expect": expectation(found),
        "states": found.states,
        "exhausted": found.exhausted,
        "violations": found.broken.len(),
        "broken": found.broken,
        "never_happens": found.missing,
        "seconds": (found.took.as_secs_f64() * 10.0).round() / 10.0,
    })
}

fn plant_json(bug: Bug, findings: &[Findings]) -> Value {
    let model = |found: &Findings| {
        json!({
            "name": found.name,
            "found": found.example.is_some(),
            "found_as": found.example.as_ref().map(|example| example.sentence),
            "steps": found.example.as_ref().map(|example| example.steps),
            "states": found.states,
            "exhausted": found.exhausted,
        })
    };
    json!({
        "bug": bug.name(),
        "invariant": bug.invariant(),
        "found": findings.iter().any(|found| found.example.is_some()),
        "models": findings.iter().map(model).collect::<Vec<_>>(),
    })
}

fn expectation(found: &Findings) -> &'static str {
    match found.expect {
        Expect::Clean => "clean",
        Expect::Violation => "violation",
    }
}
