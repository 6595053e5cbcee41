//! Whoever leads, what lives goes on, and what does not waits for a full hold.

use std::time::{Duration, Instant};

use centrifuge_core::id::{Generation, Term};
use centrifuge_net::proto::v1;
use tonic::Code;

use crate::clients::{CONTACT, Clients, POOL, Witness};
use crate::managers::{Group, leader, leases, pool, settings, shut_down, stands_by};
use crate::support::{admin, eventually, metric, page, within};

/// Quick enough for a test, slow enough for a machine that does something else.
const LEASE: Duration = Duration::from_secs(4);

/// The number before the first of a term.
fn floor(term: Term) -> u64 {
    Generation::before(term).expect("it fits").0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_costs_no_lease_and_no_state() {
    let began = Instant::now();
    let group = Group::new(3, LEASE);
    let mut managers = group.start_all().await;
    let first = leader(&managers).await;
    for manager in managers.iter().enumerate().filter(|(place, _)| *place != first).map(|(_, other)| other) {
        stands_by(manager, &managers[first]).await;
    }
    let clients = Clients::join(&group.listed(), &managers[first], CONTACT).await;
    assert!(began.elapsed() >= settings().hold, "nobody can know that nobody holds anything");
    let term = managers[first].view().role().term;
    let before = leases(&managers[first]);
    assert!(before.iter().all(|(_, _, generation, since)| since <= generation && *since > floor(term)));

    let (mut peace, witness) = (clients.peace(), Witness::of(&clients.owners));
    let killed = Instant::now();
    managers.remove(first).crash().await;
    let second = leader(&managers).await;
    println!("led again {:?} after the kill", killed.elapsed());
    peace.until_joined().await;
    // Every key is claimed long before a hold has passed: what was granted is renewed as it was.
    let after =
        eventually(async || Some(leases(&managers[second])).filter(|now| now.len() == before.len())).await;
    println!("all claimed {:?} after the kill", killed.elapsed());
    assert_eq!(after, before, "no lease has another number, another owner or newer state");
    clients.at_rest(&managers[second]).await;
    peace.assert_unbroken().await;
    witness.assert_one_owner();
    let http = managers[second].http_addr();
    let claims = metric(http, &format!("centrifuge_claims_total{{namespace=\"{POOL}\"}}")).await;
    assert!(claims >= before.len() as f64, "{claims} claims of {} leases", before.len());
    assert_history_shows_claims(&managers[second]).await;
    shut_down(managers).await;
}

async fn assert_history_shows_claims(manager: &centrifuge_server::RunningManager) {
    let request = v1::HistoryRequest { namespace: Some(POOL.to_owned()), key: None, limit: 10_000 };
    let history = admin(manager.grpc_addr()).await.history(request).await.expect("answered").into_inner();
    let claimed = history.decisions.iter().find(|decision| decision.kind == "claimed").expect("a claim");
    assert_eq!(claimed.reason, "claimed");
    assert!(matches!(claimed.owner.as_deref(), Some("one" | "two")), "{claimed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_claims_waits_for_a_hold_and_is_lost() {
    let group = Group::new(3, LEASE);
    let mut managers = group.start_all().await;
    let first = leader(&managers).await;
    let mut clients = Clients::join(&group.listed(), &managers[first], CONTACT).await;
    let gone = clients.owners.pop().expect("two");
    let kept = clients.owners[0].leases();
    let lost = gone.leases();
    let mut losses = clients.lookups[0].losses();
    // Both die in one moment: nobody can tell the next leader what the Owner had.
    drop(gone);
    let killed = Instant::now();
    managers.remove(first).crash().await;
    let second = leader(&managers).await;
    let rebuilt = managers[second].view().role().term;
    let owner = &clients.owners[0];
    for lease in &lost {
        eventually(async || owner.check_lease_now(lease.range.first()).ok()).await;
    }
    println!("all granted {:?} after the kill", killed.elapsed());
    assert!(killed.elapsed() >= settings().hold, "it was granted while it could be held");
    for lease in &kept {
        assert!(owner.check_lease_continuous(lease.range.first(), lease.generation), "{lease:?} was kept");
    }
    let now = owner.leases();
    for lease in &lost {
        let key = lease.range.first();
        let new = now.iter().find(|new| new.range.contains(key)).expect("held");
        assert!(new.generation.0 > floor(rebuilt) && new.generation > lease.generation);
    }
    // A loss of what is gone, and of nothing else.
    let mut unheard: Vec<_> = lost.iter().map(|lease| lease.range).collect();
    while !unheard.is_empty() {
        let loss = within(losses.next()).await.expect("it runs");
        unheard.retain(|range| !loss.keys.contains_range(*range));
        assert!(!kept.iter().any(|lease| loss.keys.overlaps(lease.range)), "{loss:?}");
    }
    shut_down(managers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_told_to_stop_hands_over_at_once() {
    // Whoever waited for the lease to run out would wait for most of it.
    let lease = Duration::from_secs(12);
    let group = Group::new(3, lease);
    let mut managers = group.start_all().await;
    let first = leader(&managers).await;
    let term = managers[first].view().role().term;
    let stopping = Instant::now();
    managers.remove(first).shutdown().await;
    let second = leader(&managers).await;
    println!("led again {:?} after the word to stop", stopping.elapsed());
    assert!(stopping.elapsed() < lease / 2, "the others waited: {:?}", stopping.elapsed());
    assert!(managers[second].view().role().term > term);
    shut_down(managers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_come_from_the_configuration_and_brakes_work() {
    let group = Group::new(1, LEASE);
    let manager = group.start(1).await;
    within(manager.leads()).await;
    let mut admin = admin(manager.grpc_addr()).await;
    let create = v1::CreateNamespaceRequest { namespace: "other".to_owned(), settings: None, kind: None };
    let refused = admin.create_namespace(create).await.expect_err("refused");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("[namespaces.other]"), "{}", refused.message());
    let delete = v1::DeleteNamespaceRequest { namespace: POOL.to_owned() };
    assert_eq!(admin.delete_namespace(delete).await.expect_err("refused").code(), Code::FailedPrecondition);
    let freeze = v1::FreezeRequest { namespace: POOL.to_owned(), why: "a test".to_owned() };
    admin.freeze(freeze).await.expect("frozen");
    let status = admin.status(v1::StatusRequest {}).await.expect("answered").into_inner();
    assert_eq!((status.store.expect("a store").kind.as_str(), status.election.as_str()), ("none", "flease"));
    assert_eq!(status.managers, [manager.id().to_string()]);
    let request = v1::ListNamespacesRequest { namespace: Some(pool().to_string()) };
    let rebuilding = eventually(async || {
        let mut admin = admin.clone();
        let reply = admin.list_namespaces(request.clone()).await.ok()?.into_inner();
        reply.namespaces.first().and_then(|space| space.rebuilding)
    })
    .await;
    assert_eq!(rebuilding.unclaimed_share, 1.0);
    assert!(Duration::from_millis(rebuilding.ends_in_ms) <= settings().hold);
    let (_, page) = page(manager.http_addr(), "/status").await;
    assert!(page.contains("\"election\":\"flease\"") && page.contains("\"unclaimed_share\":1.0"), "{page}");
    assert!(
        metric(manager.http_addr(), &format!("centrifuge_rebuilding{{namespace=\"{POOL}\"}}")).await > 0.0
    );
    manager.shutdown().await;
}
