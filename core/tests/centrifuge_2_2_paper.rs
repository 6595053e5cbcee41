//! try
mod support;
use support::*;
use centrifuge_core::owner::*;
use std::time::Instant as I;
#[test]
fn frag() {
    let mut cluster = Cluster::new();
    let t = I::now();
    let mut owners: Vec<Node> = (0..10).map(|n| cluster.owner(&format!("o{n}"))).collect();
    cluster.run_for(secs(1));
    println!("10 owners: {} {:?}", cluster.table().len(), t.elapsed());
    for round in 0..10 {
        // rolling replacement with new names, clean drains
        let t = I::now();
        for k in 0..owners.len() {
            let fresh = cluster.owner(&format!("r{round}-{k}"));
            cluster.run_for(secs(5));
            let old = owners[k];
            cluster.tell(old, OwnerEvent::Drain);
            cluster.run_for(secs(5));
            cluster.tell(old, OwnerEvent::Leave);
            cluster.run_for(secs(5));
            owners[k] = fresh;
        }
        println!("round {round}: {} sessions {} {:?}", cluster.table().len(), cluster.stored().sessions.len(), t.elapsed());
    }
}
