//! Peers in one process: each test is a scenario, and all scenarios run at once, because they do little but wait.

mod scenarios;

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::{LazyLock, Mutex};

use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use self::scenarios::{EPSILON, builder, free_peers};
use super::*;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));
static RUNNING: LazyLock<Mutex<BTreeMap<&str, JoinHandle<()>>>> = LazyLock::new(|| Mutex::new(start()));

/// Waits for a scenario, and panics as it did.
fn finish(name: &str) {
    let scenario = RUNNING.lock().expect("no panic").remove(name).expect("it was started");
    if let Err(error) = RUNTIME.block_on(scenario) {
        resume_unwind(error.into_panic());
    }
}

macro_rules! scenarios {
    ($($name:ident,)+) => {
        fn start() -> BTreeMap<&'static str, JoinHandle<()>> {
            [$((stringify!($name), RUNTIME.spawn(scenarios::$name()))),+].into()
        }

        $(
            #[test]
            fn $name() {
                finish(stringify!($name));
            }
        )+
    };
}

scenarios! {
    one_holds_and_the_others_are_told,
    tasks_of_one_process_take_turns,
    a_dead_holders_cell_is_free_after_its_lease,
    without_a_majority_a_lease_runs_out_and_is_not_taken_again,
    a_peer_whose_clock_is_apart_steps_down_and_says_so,
    a_clock_within_epsilon_is_welcome,
    a_peer_with_another_secret_is_refused,
    a_secret_is_rotated_at_one_peer_after_the_other_and_the_holder_keeps_its_lease,
    a_cell_among_some_needs_only_those,
    no_two_hold_at_once_and_epochs_rise,
    a_peer_that_stops_gives_everything_back,
    a_wish_that_is_taken_back_leaves_nothing_behind,
}

#[tokio::test]
async fn what_cannot_work_is_refused_with_what_to_do() {
    let peers = free_peers(3);
    let refusals = [
        (Flease::builder(peers.clone(), 1), "key_file()"),
        (builder(&peers, 1).key("short"), "at least 16"),
        (builder(&peers, 1).key("one secret of these tests\none secret of these tests"), "line 2"),
        (builder(&peers, 1).key_file("no such file"), "no such file: cannot be read"),
        (builder(&peers, 9), "add it there"),
        (builder(&peers, 1).lease(EPSILON), "lengthen lease"),
        (builder(&peers, 1).bind("127.0.0.1:99999"), "choose another address"),
    ];
    for (builder, words) in refusals {
        let error = builder.start().await.expect_err(words).to_string();
        assert!(error.contains(words), "{words:?} in {error}");
    }
}
