//! etcd is restarted node by node, its own leader among them.

use crate::clients::{CONTACT, Clients, POOL, Witness, listed};
use crate::etcd_support::Etcd;
use crate::load::Load;
use crate::managers::{create, leader, leases, long_leases, shut_down, start_two};

/// The term of etcd's own leader.
fn raft_term(etcd: &Etcd) -> u64 {
    let status = etcd.control(&["endpoint", "status", "-w", "fields"]);
    let terms = status.lines().filter_map(|line| line.strip_prefix("\"RaftTerm\" : ")?.parse().ok());
    terms.max().expect("a term")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_is_restarted_node_by_node_costs_nothing() {
    let etcd = Etcd::start(3);
    let options = etcd.options();
    let managers = start_two(&options, &options).await;
    create(&managers[0], POOL, long_leases()).await;
    let clients = Clients::join(&listed(&managers), &managers[0], CONTACT).await;
    let (mut peace, witness) = (clients.peace(), Witness::of(&clients.owners));
    let (before, term) = (leases(&managers[0], POOL), raft_term(&etcd));
    let load = Load::start(&managers);
    for node in 0..3 {
        load.goes_on(10).await;
        etcd.kill(node);
        load.goes_on(10).await;
        etcd.restart(node);
        etcd.wait_for(node);
    }
    load.goes_on(10).await;
    assert!(raft_term(&etcd) > term, "etcd's leader was among them");
    let leader = leader(&managers).await;
    assert_eq!(leases(leader, POOL), before, "no lease has another number");
    peace.assert_unbroken().await;
    witness.assert_one_owner();
    load.end(&options).await;
    shut_down(managers).await;
}
