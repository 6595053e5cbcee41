//! Managers without a store have nothing to back up, and say so.

use std::time::Duration;

use centrifuge_net::convert::leader_named;
use tonic::Code;

use crate::managers::{Group, leader, shut_down, stands_by};
use crate::support::take_backup;

/// Quick enough for a test, slow enough for a machine that does something else.
const LEASE: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread")]
async fn every_manager_without_a_store_says_that_there_is_nothing_to_back_up() {
    let group = Group::new(3, LEASE);
    // One alone never leads: it must not send the operator in search of a leader that could not do it either.
    let mut managers = vec![group.start(1).await];
    refuses(&managers[0]).await;
    managers.push(group.start(2).await);
    let leading = leader(&managers).await;
    stands_by(&managers[1 - leading], &managers[leading]).await;
    for manager in &managers {
        refuses(manager).await;
    }
    shut_down(managers).await;
}

async fn refuses(manager: &centrifuge_server::RunningManager) {
    let status = take_backup(manager.grpc_addr()).await.expect_err("nothing is stored");
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert_eq!(leader_named(&status), None, "{status}");
    for words in ["--store none", "there is no store to back up", "copy of their configuration"] {
        assert!(status.message().contains(words), "{status}");
    }
}
