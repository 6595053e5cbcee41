mod store_support;
use centrifuge_server::store;
use store_support::*;
#[test]
fn measure() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s");
    let mut c = Client::open(|a| store::open(&file, a));
    let t = c.campaign();
    let all: Vec<_> = (1..=3000).map(|i| batch_of(t, i)).collect();
    let s = std::time::Instant::now();
    for (i, b) in (1..).zip(&all) { c.appended(t, i, b); }
    println!("3000 appends {:?}", s.elapsed());
    c.close();
    println!("len {}", std::fs::metadata(&file).unwrap().len());
    let s = std::time::Instant::now();
    let c = Client::open(|a| store::open(&file, a));
    println!("open {:?}", s.elapsed());
    c.close();
}
