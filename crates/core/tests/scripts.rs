//! The protocol as scripts: `crates/core/testdata/{owner,manager,lookup,flease}/*.txt` is fed to the real machines, and what they do
//! is compared with what stands there. With `REWRITE=1` the traces are written anew, to be read as a diff.
//!
//! A script has prose in lines that begin with `#`, and blocks of commands, `----`, and the trace up to an empty line.
//! - A command may begin with an instant (`at 15s`, or `after 0.1s` from the last); a machine that wants to be woken
//!   before then has to be, unless the command says `unwoken`. What is not said of a message is as it should be there:
//!   the next number, everything heard and applied.
//! - `00-7f` are the keys whose first byte is in that range; `o1`, `m1`, `n1`, `g1` stand for sessions, Managers,
//!   conversations and change logs.
//! - A trace has the actions, messages with `->` before their receiver, then what is held and counted if it has changed,
//!   and the next wake if it has: `soon` if it was drawn at random. A time or key with `~` is rounded or cut.

#[path = "scripts/format.rs"]
mod format;
#[path = "scripts/mod.rs"]
mod stages;

use std::fs;
use std::path::{Path, PathBuf};

use format::Script;
use stages::flease::FleaseStage;
use stages::lookup::LookupStage;
use stages::manager::ManagerStage;
use stages::owner::OwnerStage;
use stages::trace::Stage;

#[test]
fn owner_scripts() {
    play_all("owner", || Box::new(OwnerStage::default()));
}

#[test]
fn manager_scripts() {
    play_all("manager", || Box::new(ManagerStage::default()));
}

#[test]
fn lookup_scripts() {
    play_all("lookup", || Box::new(LookupStage::default()));
}

#[test]
fn flease_scripts() {
    play_all("flease", || Box::new(FleaseStage::default()));
}

fn play_all(directory: &str, stage: impl Fn() -> Box<dyn Stage>) {
    let files = scripts(directory);
    assert!(!files.is_empty(), "there are no scripts in {directory}");
    let failures: Vec<String> = files.iter().flat_map(|file| play(file, stage().as_mut())).collect();
    assert!(failures.is_empty(), "{}\n(REWRITE=1 writes the traces anew)", failures.join("\n"));
}

/// Plays one script; says where it went otherwise, or writes how it went.
fn play(file: &Path, stage: &mut dyn Stage) -> Vec<String> {
    let text = fs::read_to_string(file).expect("a script can be read");
    let opening: String = text.lines().take_while(|line| line.starts_with('#')).collect();
    if !["protocol §", "Centrifuge §", "PRS §", "Flease §"].iter().any(|source| opening.contains(source))
    {
        return vec![format!("{}: opens with what it specifies, and where that stands", file.display())];
    }
    let played = Script::parse(&text).and_then(|script| script.play(stage).map(|played| (script, played)));
    let differences = match played {
        Err(error) => vec![error],
        Ok((_, played)) if std::env::var_os("REWRITE").is_some_and(|value| value == "1") => {
            fs::write(file, played.to_string()).expect("a script can be written");
            Vec::new()
        }
        Ok((script, played)) => script.differences(&played),
    };
    differences.into_iter().map(|difference| format!("{}:{difference}", file.display())).collect()
}

fn scripts(directory: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(directory);
    let entries = fs::read_dir(&directory).expect("the scripts are beside the tests");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    files
}
