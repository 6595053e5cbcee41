//! One decision, in slices that a Manager can take between renewals.

use crate::injected_bug::{Bug, injected};
use crate::trim::plan::Plan;
use crate::trim::preparation::Preparation;
use crate::trim::{TrimDecision, TrimInput, TrimMemory};

/// A decision that is being made. It has copied all that it needs of its input.
///
/// It promises the same result however its work is divided. The memory changes in two steps: when all reports are read,
/// and when the decision is made. A run that is given up has spent nothing. Only one run of a memory may be under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TrimRun {
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// Reports and table are read.
    Preparing(Box<Preparation>),
    /// Moves are chosen.
    Planning(Box<Plan>),
}

impl TrimRun {
    /// Copies the table and the new reports, which is the part of the work that cannot be divided.
    #[must_use]
    pub fn begin(memory: &TrimMemory, input: &TrimInput<'_>) -> TrimRun {
        TrimRun { stage: Stage::Preparing(Box::new(Preparation::new(memory, input))) }
    }

    /// Works on the decision, and returns it when it is made; `memory` is the one that the run began with.
    ///
    /// Stops at the first step after `work` units. A unit is one Owner, range or part of a range looked at, which takes
    /// some 5 to 50 ns. A step takes at most about 2,000 units plus one for each Owner, but for one step after all
    /// reports are read, which passes over the whole table.
    pub fn advance(&mut self, memory: &mut TrimMemory, work: u64) -> Option<TrimDecision> {
        let mut done = 0_u64;
        loop {
            done = done.saturating_add(match &mut self.stage {
                Stage::Planning(plan) if plan.is_done() => return Some(finish(plan, memory)),
                Stage::Planning(plan) => plan.step(),
                Stage::Preparing(preparation) => match preparation.read_some(memory) {
                    Some(work) => work,
                    None => self.begin_planning(memory),
                },
            });
            if done >= work {
                return None;
            }
        }
    }

    fn begin_planning(&mut self, memory: &mut TrimMemory) -> u64 {
        let Stage::Preparing(preparation) = &mut self.stage else { return 0 };
        let mut plan = preparation.plan(memory);
        let (peak, floor) = plan.board.peak_and_floor_of_share();
        let summary = &mut plan.decision.summary;
        (summary.peak_of_share, summary.floor_of_share) = (peak, floor);
        let work = plan.board.pieces.len() as u64;
        self.stage = Stage::Planning(Box::new(plan));
        work
    }
}

/// Returns the decision, with what operators want to know of the state that results.
fn finish(plan: &mut Plan, memory: &mut TrimMemory) -> TrimDecision {
    let before = memory.budget.clone();
    let mut decision = plan.finish(memory);
    if injected(Bug::BudgetNotCharged) {
        memory.budget = before;
    }
    decision.hot_keys = plan.hot_keys();
    decision.summary.loads_known = plan.loads_are_known;
    decision.summary.most_ranges =
        plan.board.owners.iter().map(|owner| owner.pieces.len()).max().unwrap_or(0);
    decision
}
