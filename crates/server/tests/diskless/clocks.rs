//! Terms come from the Managers' clock: what happens when it was ahead and was set back, and how it goes on (ADR 17).

use std::time::Duration;

use centrifuge::Owner;
use centrifuge::owner::Change;
use centrifuge_core::id::{Generation, Term};
use centrifuge_core::message::RefusedReason;
use centrifuge_server::RunningManager;
use centrifuge_server::config::read_duration;

use crate::clients::{CONTACT, Clients, POOL, Witness};
use crate::managers::{Group, leader, leases, shut_down, stands_by};
use crate::support::{eventually, metric, within};

const LEASE: Duration = Duration::from_secs(4);
const HOUR: Duration = Duration::from_secs(3_600);
const MINUTE: Duration = Duration::from_secs(60);

/// A group whose machines' clocks are two hours ahead: to a Manager that is the same as a clock that it runs ahead itself.
fn two_hours_ahead() -> Group {
    let mut group = Group::new(3, LEASE);
    group.ahead = HOUR * 2;
    group
}

async fn crash(managers: Vec<RunningManager>) {
    for manager in managers {
        manager.crash().await;
    }
}

/// What the operator is told.
async fn problem(manager: &RunningManager, word: &str) -> String {
    eventually(async || manager.view().store().problem.filter(|problem| problem.contains(word))).await
}

/// How far ahead the operator is told to run the Managers' clock.
fn setting(told: &str) -> Duration {
    let (_, value) = told.split_once("--flease-clock-ahead ").expect("the setting is named");
    read_duration(value).expect("it can be given as it stands")
}

fn first_of(term: Term) -> u64 {
    Generation::before(term).expect("it fits").0
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_refuse_managers_whose_clocks_were_set_back_and_the_operator_is_told() {
    let mut group = two_hours_ahead();
    let managers = group.start_all().await;
    let first = leader(&managers).await;
    let clients = Clients::join(&group.listed(), &managers[first], CONTACT).await;
    let (ahead, before) = (managers[first].view().role().term, leases(&managers[first]));
    let mut changes: Vec<_> = clients.owners.iter().map(Owner::changes).collect();

    // The clocks are set right, and all Managers are restarted.
    crash(managers).await;
    group.ahead = Duration::ZERO;
    let managers = group.start_all().await;
    let second = leader(&managers).await;
    assert!(managers[second].view().role().term < ahead, "terms come from the clock");
    for changes in &mut changes {
        let refused = Change::Refused(RefusedReason::StaleTerm);
        while within(changes.next()).await.expect("it runs") != refused {}
    }
    let refused = "centrifuge_messages_skipped_total{why=\"stale-term\"}";
    eventually(async || (metric(managers[second].http_addr(), refused).await >= 1.0).then_some(())).await;
    let told = problem(&managers[second], "set back").await;
    let ahead_by = setting(&told);
    assert!(ahead_by > HOUR && ahead_by <= HOUR * 2, "{told}");
    assert!(metric(managers[second].http_addr(), "centrifuge_store_healthy").await < 1.0);

    // Leases run out, and whoever comes new gets numbers that every fence refuses: an operator must act.
    let new = Owner::builder(group.listed(), POOL).name("three").url("http://three");
    let new = within(new.join()).await.expect("joined");
    let low = eventually(async || new.leases().first().map(|lease| lease.generation)).await;
    assert!(low.0 < first_of(ahead) && before.iter().all(|(_, _, generation, _)| low.0 < *generation));
    eventually(async || clients.owners.iter().all(|owner| owner.leases().is_empty()).then_some(())).await;
    drop(new);

    // The Managers' clock is set ahead by what was told, and the same clients go on with higher numbers than ever.
    crash(managers).await;
    group.ahead = ahead_by;
    let managers = group.start_all().await;
    let third = leader(&managers).await;
    clients.at_rest(&managers[third]).await;
    let highest = before.iter().map(|(_, _, generation, _)| *generation).max();
    let after = leases(&managers[third]);
    assert!(after.iter().all(|(_, _, generation, _)| Some(*generation) > highest));
    assert_eq!(managers[third].view().store().problem, None);
    shut_down(managers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn managers_that_run_ahead_after_their_clocks_were_set_back_cost_no_lease() {
    let mut group = two_hours_ahead();
    let managers = group.start_all().await;
    let first = leader(&managers).await;
    let clients = Clients::join(&group.listed(), &managers[first], CONTACT).await;
    let (term, before) = (managers[first].view().role().term, leases(&managers[first]));
    let (mut peace, witness) = (clients.peace(), Witness::of(&clients.owners));

    crash(managers).await;
    group.ahead = HOUR * 2 + MINUTE;
    let mut managers = group.start_all().await;
    let second = leader(&managers).await;
    assert!(managers[second].view().role().term > term);
    peace.until_joined().await;
    clients.at_rest(&managers[second]).await;
    assert_eq!(leases(&managers[second]), before);
    peace.assert_unbroken().await;
    witness.assert_one_owner();

    // A Manager that was forgotten is apart from the others, says so, and takes no part.
    let leading = managers.swap_remove(second);
    let number = (1..=3).find(|peer| group.options(*peer).own_address() == managers[0].id().to_string());
    managers.swap_remove(0).crash().await;
    group.ahead = Duration::ZERO;
    let forgotten = group.start(number.expect("a peer")).await;
    problem(&forgotten, "apart").await;
    assert!(leading.view().role().is_leading() && !forgotten.view().role().is_ready());
    stands_by(&managers[0], &leading).await;
    managers.extend([leading, forgotten]);
    shut_down(managers).await;
}
