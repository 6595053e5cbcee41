//! What is checked of the small worlds of Flease: that each broken reading of the paper is found in one of them.

use centrifuge_core::injected_bug::Bug;

use crate::check::runner::{Findings, Until, explore};

use super::{World, all};

fn planted(name: &str, bug: Bug) -> Findings {
    let mut model = all().into_iter().find(|model| model.name == name).expect("a model of that name");
    model.bug = Some(bug);
    explore(World::new(model), Until::Broken)
}

fn assert_found(name: &str, bug: Bug) {
    let found = planted(name, bug);
    assert_eq!(found.broken, [bug.invariant()], "{name} with {}", bug.name());
    let story = found.example.expect("a way to break it").story;
    assert!(story.contains("is broken"), "{story}");
}

#[test]
fn clocks_that_are_apart_are_found_to_break_f1() {
    let model = all().into_iter().find(|model| model.name == "f-apart").expect("the control");
    let found = explore(World::new(model), Until::Exhausted);
    assert!(found.as_expected(), "{:?} {:?}", found.broken, found.missing);
}

#[test]
fn a_quick_break_is_found() {
    assert_found("f-quorum", Bug::FleaseAcksCountedTwice);
}
