//! The guide's code is code: each page is compiled or is a program that is, and the first service does what its
//! page says.

mod cluster;

use std::collections::BTreeSet;
use std::process::Stdio;

use centrifuge::Key;
use centrifuge_examples::Failure;
use centrifuge_examples::shared::call::CallerArgs;
use centrifuge_harness::managers::until;
use centrifuge_harness::process::command;
use centrifuge_harness::signals::Signal;
use centrifuge_harness::wait::{POLL_INTERVAL, TIMEOUT, poll, within};
use centrifuge_harness::{Cluster, Process};

use crate::cluster::cluster;

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide");
/// What a caller says of a loss.
const LOST: &str = "the visits of home were lost";

/// The blocks of code of a page, each with the word after its fence.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in page.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(kind), None) => open = Some((kind.to_owned(), String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some((_, text))) => *text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    blocks
}

fn is_rust(kind: &str) -> bool {
    kind.is_empty() || kind.split(',').next() == Some("rust")
}

#[test]
fn every_page_with_code_is_compiled() {
    let compiled = include_str!("../lib.rs");
    let mut pages = BTreeSet::new();
    for entry in std::fs::read_dir(GUIDE).expect("the guide") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let page = std::fs::read_to_string(&path).expect("a text");
        if blocks(&page).iter().any(|(kind, _)| is_rust(kind)) {
            pages.insert(name);
        }
    }
    // The first service is a program, which the next test compares with its page.
    assert!(pages.remove("first-service.md") && pages.len() > 5, "{pages:?}");
    for page in pages {
        assert!(compiled.contains(&format!("docs/guide/{page}")), "{page} is missing in examples/lib.rs");
    }
}

/// A client keeps connections and takes long to make: whoever copies the guide makes one, and not one for each request.
#[test]
fn no_page_makes_a_client_for_each_request() {
    for entry in std::fs::read_dir(GUIDE).expect("the guide") {
        let path = entry.expect("an entry").path();
        let page = std::fs::read_to_string(&path).expect("a text");
        for line in page.lines().filter(|line| line.contains("Client::new()")) {
            let is_used_at_once = line.split("Client::new()").any(|rest| rest.starts_with('.'));
            assert!(!is_used_at_once, "{}: {line}", path.display());
        }
    }
}

#[test]
fn the_first_service_is_the_program_of_its_page() {
    let page = std::fs::read_to_string(format!("{GUIDE}/first-service.md")).expect("the page");
    let parts: Vec<String> =
        blocks(&page).into_iter().filter(|(kind, _)| is_rust(kind)).map(|(_, text)| text).collect();
    assert_eq!(parts.join("\n"), include_str!("../visits.rs"));
}

/// A process of the first service, and what it prints.
struct Part(Process);

impl Part {
    fn start(cluster: &Cluster, words: &[&str]) -> Result<Part, Failure> {
        let mut command = command(env!("CARGO_BIN_EXE_visits"));
        command.args(words).env("CENTRIFUGE_MANAGERS", cluster.managers()).stdout(Stdio::piped());
        Ok(Part(Process::start(&mut command)?))
    }

    async fn line(&mut self) -> Result<String, Failure> {
        Ok(within(self.0.next_line()).await?)
    }

    /// Reads the visits up to one of this number, which must follow each other.
    async fn visits(&mut self, from: u64, to: u64) -> Result<(), Failure> {
        for number in from..=to {
            assert_eq!(self.line().await?, format!("visit {number} of home"));
        }
        Ok(())
    }

    /// Ctrl-C.
    fn interrupt(&self) -> Result<(), Failure> {
        Ok(self.0.signal(Signal::INT)?)
    }

    async fn ended(mut self) -> Result<(), Failure> {
        let ended = poll(POLL_INTERVAL, TIMEOUT, async || self.0.ended().transpose()).await;
        let ended = ended.ok_or("it does not stop")??;
        assert!(ended.success(), "{ended}");
        Ok(())
    }
}

#[tokio::test]
async fn the_first_service_does_what_its_page_says() -> Result<(), Failure> {
    let cluster = cluster(&["visits"]).await?;
    let mut first = Part::start(&cluster, &["server", "0"])?;
    assert!(first.line().await?.starts_with("serving at http://127.0.0.1:"));
    cluster.at_rest("visits", 1).await?;
    let mut caller = Part::start(&cluster, &["visit", "home"])?;
    caller.visits(1, 3).await?;
    // Ctrl-C: the counter moves, and no visit is lost.
    let mut second = Part::start(&cluster, &["server", "0"])?;
    second.line().await?;
    cluster.at_rest("visits", 2).await?;
    first.interrupt()?;
    first.ended().await?;
    caller.visits(4, 12).await?;
    // kill -9: another server begins anew, and the caller is told.
    let mut third = Part::start(&cluster, &["server", "0"])?;
    let third_url = third.line().await?;
    cluster.at_rest("visits", 2).await?;
    let lookup = cluster.caller::<CallerArgs>()?.lookup("visits").await?;
    let owner = lookup.lookup(Key::of(b"home"))?.url().to_owned();
    let (dying, living) = if third_url.contains(&owner) { (third, second) } else { (second, third) };
    drop(dying);
    let mut told = Vec::new();
    while !(told.contains(&LOST.to_owned()) && told.contains(&"visit 1 of home".to_owned())) {
        told.push(caller.line().await?);
    }
    let lost = told.iter().filter(|line| *line == LOST).count();
    assert_eq!(lost, 1, "{told:?}");
    // The last server has nobody to move to, and goes on answering while it waits for somebody.
    living.interrupt()?;
    let is_draining = async || Ok(cluster.owners("visits").await?.iter().any(|owner| owner.draining));
    until("it drains", is_draining).await?;
    // One may have been on its way; a second was asked for after the word to stop.
    for _ in 0..2 {
        let visited = caller.line().await?;
        assert!(visited.starts_with("visit "), "{visited}");
    }
    Ok(())
}
