//! Backups that a running Manager takes of its store on etcd.

use std::path::Path;
use std::time::Duration;

use centrifuge_core::id::{Generation, Namespace};
use centrifuge_core::manager_state::ManagerState;
use centrifuge_net::convert::leader_named;
use centrifuge_server::RunningManager;
use centrifuge_server::store::EtcdOptions;
use centrifuge_server::store::backup::{BackupSummary, RestoreOptions, restore, write_received};
use tokio::task::spawn_blocking;
use tonic::Code;

use crate::clients::POOL;
use crate::etcd_support::{Etcd, backend};
use crate::load::Load;
use crate::managers::{create, leases, long_leases, shut_down, start, start_two};
use crate::support::{TestOwner, take_backup, within};

/// A backup of what the leader commits to, written to a file after all its parts were checked.
async fn backed_up(leader: &RunningManager, out: &Path) -> BackupSummary {
    let bytes = take_backup(leader.grpc_addr()).await.expect("a backup");
    write_received(&bytes, out).expect("whole and new")
}

async fn restored(from: &Path, to: &EtcdOptions) {
    let (from, to) = (from.to_owned(), backend(to));
    let options = RestoreOptions { leases_have_ended: true, ..RestoreOptions::default() };
    spawn_blocking(move || restore(&from, &to, options)).await.expect("no panic").expect("restored");
}

fn last_generation(group: &ManagerState) -> Generation {
    group.namespaces[&Namespace::new(POOL).expect("a label")].last_generation
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_on_etcd_is_backed_up_while_it_commits_and_restored_elsewhere() {
    let (etcd, folder) = (Etcd::shared(), tempfile::tempdir().expect("a folder"));
    let options = etcd.options();
    let managers = start_two(&options, &options).await;
    create(&managers[0], POOL, long_leases()).await;
    let mut owner = TestOwner::start(managers[0].grpc_addr(), POOL, "alpha");
    owner.until(|seen| seen.holds_everything()).await;
    let (before, generation) = {
        let group = managers[0].view().group().expect("it leads");
        (leases(&managers[0], POOL), last_generation(&group))
    };

    let load = Load::start(&managers[..1]);
    let mut last = None;
    for number in 0..3 {
        load.goes_on(2).await;
        let committed = managers[0].view().group().expect("it leads").namespaces.len();
        let made = backed_up(&managers[0], &folder.path().join(format!("backup-{number}"))).await;
        assert!(made.namespaces >= committed, "what was answered before is in it: {made:?} of {committed}");
        assert!(Some(made.index) > last, "commits go on between backups: {made:?} after {last:?}");
        last = Some(made.index);
    }
    load.end(&options).await;
    let final_backup = folder.path().join("final");
    let made = backed_up(&managers[0], &final_backup).await;
    assert_eq!(leases(&managers[0], POOL), before, "no backup costs a lease");
    assert_eq!(owner.seen.borrow().revoked, 0);
    shut_down(managers).await;

    let elsewhere = etcd.options();
    restored(&final_backup, &elsewhere).await;
    let manager = start(&elsewhere).await;
    within(manager.leads()).await;
    let group = manager.view().group().expect("it leads");
    assert_eq!(group.namespaces.len(), made.namespaces);
    assert_eq!(leases(&manager, POOL), before, "the table is the same");
    assert!(last_generation(&group) > generation, "no generation comes again");
    manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_takes_no_backup_and_names_the_leader() {
    let etcd = Etcd::shared();
    let options = etcd.options();
    let managers = start_two(&options, &options).await;
    create(&managers[0], POOL, long_leases()).await;
    let status = take_backup(managers[1].grpc_addr()).await.expect_err("refused");
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert_eq!(leader_named(&status), Some(managers[0].id()), "{status}");
    assert!(status.message().contains("does not lead: ask"), "{status}");
    shut_down(managers).await;
}

/// How long an operator waits at most for a backup of an etcd that does not answer: etcd's clients give a request up before.
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_an_etcd_that_is_silent_fails_in_time_and_works_again_afterwards() {
    let etcd = Etcd::start(1);
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(&etcd.options()).await;
    within(manager.leads()).await;
    create(&manager, POOL, long_leases()).await;
    etcd.pause_all();
    let refused = tokio::time::timeout(GIVEN_UP_WITHIN, take_backup(manager.grpc_addr())).await;
    etcd.resume_all();
    let status = refused.expect("in time").expect_err("nothing can be read");
    assert!(matches!(status.code(), Code::Unavailable | Code::FailedPrecondition), "{status}");
    assert!(status.message().contains("etcd") || status.message().contains("does not lead"), "{status}");
    within(manager.leads()).await;
    backed_up(&manager, &folder.path().join("backup")).await;
    manager.shutdown().await;
}
