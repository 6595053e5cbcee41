//! A register on three servers with one master at a time: what the Flease paper was made for.
//!
//! Three processes keep copies of a register. Whoever holds the cell `master` writes, and sends every write to the others with the
//! epoch of its lease; a copy refuses an epoch lower than the highest it has seen. There is no other service and no disk. This
//! program starts them, writes through whoever is the master, kills one master and stops another in the middle of a write, and
//! fails if there ever were two masters at once or a write of a former one got through. It takes about twenty seconds:
//!
//! ```sh
//! cargo run -p centrifuge --example flease_primary_backup
//! ```

mod server;
mod servers;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use self::servers::{Master, Servers};

/// What can go wrong with the story.
type Outcome<T> = Result<T, Box<dyn Error>>;

/// A dead master's lease runs out after this. Short, so that the story is; ten seconds are the default.
const LEASE: Duration = Duration::from_secs(3);
/// How far the clocks of two servers may differ. Here all three have the same clock.
const EPSILON: Duration = Duration::from_millis(300);
/// How long a vote may take.
const ROUND: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.split_first() {
        None => story(),
        Some((word, rest)) if word == "server" => server::run(rest),
        Some((word, _)) => Err(format!("{word:?} is no part of this story: run it without arguments").into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn story() -> Outcome<()> {
    let mut servers = Servers::start()?;
    println!(
        "Three servers start. Each waits until nothing that it may have voted for before still matters."
    );
    let first = servers.master_above(None)?;
    println!("Server {} is the master, under epoch {}.", first.server, first.epoch);
    let (writer, copies) = servers.write("one")?;
    println!("A client writes \"one\" through server {}: {copies} of 3 have it.", writer.server);

    let victim = servers.master_above(None)?;
    servers.kill(victim.server)?;
    println!("\nServer {} is killed.", victim.server);
    let second = servers.master_above(Some(&victim))?;
    println!(
        "When its lease has run out, server {} is the master, under epoch {}.",
        second.server, second.epoch
    );
    let (_, copies) = servers.write("two")?;
    println!("A client writes \"two\": {copies} of 3 have it, which is a majority.");
    servers.restart(victim.server)?;
    println!("Server {} starts again. It remembers nothing, and takes no part for a while.", victim.server);

    let late = stop_in_the_middle_of_a_write(&mut servers)?;
    println!(
        "\nServer {} looks at its lease, which is valid, and stops before it has written \"late\".",
        late.server
    );
    let third = servers.master_above(Some(&late))?;
    println!("Server {} is the master, under epoch {}.", third.server, third.epoch);
    let (writer, copies) = servers.write("three")?;
    println!("A client writes \"three\" through server {}: {copies} of 3 have it.", writer.server);
    servers.go_on(late.server)?;
    let (taken, refused) = servers.end_of_late_write()?;
    println!(
        "Server {} goes on, and sends \"late\" under its old epoch: {refused} refuse it, {taken} take it.",
        late.server
    );
    if (taken, refused) != (0, 2) {
        return Err("both others should have refused the late write".into());
    }

    servers.write("four")?;
    println!("\nA client writes \"four\".");
    judge(&servers)
}

/// Finds a master that passes its check, and stops it before it writes.
fn stop_in_the_middle_of_a_write(servers: &mut Servers) -> Outcome<Master> {
    let late = servers.begin_late_write("late")?;
    servers.stop(late.server)?;
    Ok(late)
}

/// Fails unless the story kept its promises.
fn judge(servers: &Servers) -> Outcome<()> {
    let copies = servers.copies()?;
    let wrong = copies.iter().find(|(_, value)| value == "late");
    if let Some((server, _)) = wrong {
        return Err(format!("server {server} has the late write of a former master").into());
    }
    let latest = copies.iter().filter(|(_, value)| value == "four").count();
    if latest < 2 {
        return Err(format!("only {latest} of 3 have the latest write: {copies:?}").into());
    }
    let masters = servers.masters_one_after_the_other()?;
    println!(
        "{masters} masters, one after the other, never two at a time; {latest} of 3 have \"four\", nobody has \"late\"."
    );
    Ok(())
}
