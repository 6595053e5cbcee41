//! try
mod support;
use support::*;
#[test]
fn centrifuge_2_3_an_owner_reports_every_15_seconds() {
    let mut cluster = Cluster::new();
    let a = cluster.owner("a");
    let since = cluster.now;
    cluster.run_for(secs(300));
    println!("{:?}", cluster.sent_by(a, since).map(|e| e.sent_at).collect::<Vec<_>>());
    let b = cluster.owner("b");
    cluster.run_for(secs(1));
    println!("{}", cluster.table().len());
    cluster.crash(b);
    cluster.run_for(secs(100));
    println!("{}", cluster.table().len());
    println!("{:?}", cluster.keys_of(a));
}
