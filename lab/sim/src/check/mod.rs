//! The exhaustive check: small worlds of the real machines, in which everything that can happen does.
//!
//! A state is made of the machines themselves, every message ever sent, the store, the applications and the instant.
//! Any message may arrive at any time, in any order, any number of times or never; machines may be woken late;
//! processes die and start again as far as a world's boundary goes. Every state must keep the sentences of protocol §11
//! that such worlds can break, and in every world something worth the effort must happen.

mod app;
mod deeds;
mod explain;
mod fates;
mod feed;
mod flease;
mod lookups;
mod memo;
mod models;
mod network;
mod nodes;
mod prelude;
mod print;
mod properties;
mod runner;
mod scenario;
mod stage;
mod step;
mod store;
#[cfg(test)]
mod tests;
mod words;
mod world;

use std::io::IsTerminal;
use std::process::ExitCode;

use centrifuge_core::injected_bug::Bug;
use serde_json::{Value, json};

use crate::campaign::WorldKind;

use runner::{Example, Findings, exhaust, for_all, hunt};
use scenario::{Expect, Scenario};

/// Which of the models, by name; all of them unless some are named.
#[derive(Clone, Copy)]
pub struct Chosen<'a>(pub &'a [String]);

impl Chosen<'_> {
    fn models(self) -> impl Iterator<Item = Small> {
        all().filter(move |model| self.0.is_empty() || self.0.iter().any(|name| name == model.name()))
    }
}

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
            Small::Flease(scenario) => scenario.bug(bug),
        }
        self
    }

    fn exhaust(self) -> Findings {
        match self {
            Small::Managers(scenario) => exhaust(world::World::new(*scenario)),
            Small::Flease(scenario) => exhaust(flease::World::new(scenario)),
        }
    }

    fn hunt(self) -> Findings {
        match self {
            Small::Managers(scenario) => hunt(world::World::new(*scenario)),
            Small::Flease(scenario) => hunt(flease::World::new(scenario)),
        }
    }
}

fn all() -> impl Iterator<Item = Small> {
    let managers = models::all().into_iter().map(|scenario| Small::Managers(Box::new(scenario)));
    managers.chain(flease::all().into_iter().map(Small::Flease))
}

/// The names of the models.
#[must_use]
pub fn names() -> Vec<&'static str> {
    all().map(|model| model.name()).collect()
}

/// The shortest way in which a model shows an injected bug, if it does: the sentence that is broken, and the steps.
#[must_use]
pub fn shortest_breach(bug: Bug, model: &str) -> Option<(&'static str, usize)> {
    let model = all().find(|small| small.name() == model && small.can_show(bug))?;
    let example = model.bug(bug).hunt().example?;
    Some((example.sentence, example.steps))
}

/// Exhausts the chosen models, or, with an injected bug, looks for one among them that finds it.
///
/// Fails if a model is not what it should be or is not exhausted; with an injected bug, if no model finds it.
pub fn run(json: bool, bug: Option<Bug>, chosen: Chosen) -> ExitCode {
    let well = match bug {
        None => check(json, chosen),
        Some(bug) => find(json, bug, chosen),
    };
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn check(json: bool, chosen: Chosen) -> bool {
    let findings = for_all(chosen.models().collect(), Small::exhaust, |found| progress(json, found));
    let well = findings.iter().all(Findings::as_expected);
    if json {
        println!("{}", json!({ "models": findings.iter().map(as_json).collect::<Vec<_>>() }));
        return well;
    }
    findings.iter().for_each(tell);
    println!("{}", table(&findings));
    println!(
        "{}",
        if well { "every model is what it should be" } else { "NOT every model is what it should be" }
    );
    well
}

fn find(json: bool, bug: Bug, chosen: Chosen) -> bool {
    let models = chosen.models().filter(|model| model.can_show(bug));
    let planted = models.map(|model| model.bug(bug)).collect();
    let findings = for_all(planted, Small::hunt, |found| progress(json, found));
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
