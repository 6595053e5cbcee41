//! The protocol as scripts: `core/testdata/{owner,manager,lookup}/*.txt` is fed to the real machines, and what they do
//! is compared with what stands there. With `REWRITE=1` the traces are written anew, to be read as a diff.

#[path = "scripts/format.rs"]
mod format;
#[path = "scripts/lookup.rs"]
mod lookup;
#[path = "scripts/manager.rs"]
mod manager;
#[path = "scripts/manager_trace.rs"]
mod manager_trace;
#[path = "scripts/owner.rs"]
mod owner;
#[path = "scripts/trace.rs"]
mod trace;
#[path = "scripts/words.rs"]
mod words;

use std::fs;
use std::path::{Path, PathBuf};

use format::{Script, Stage};

#[test]
fn owner_scripts() {
    play_all("owner", || Box::new(owner::OwnerStage::default()));
}

#[test]
fn manager_scripts() {
    play_all("manager", || Box::new(manager::ManagerStage::default()));
}

#[test]
fn lookup_scripts() {
    play_all("lookup", || Box::new(lookup::LookupStage::default()));
}

/// A script is a specification: it opens with what it specifies, and says where that was decided.
#[test]
fn every_script_opens_with_prose_and_cites() {
    for file in ["owner", "manager", "lookup"].into_iter().flat_map(scripts) {
        let text = fs::read_to_string(&file).expect("a script can be read");
        let opening: String = text.lines().take_while(|line| line.starts_with('#')).collect();
        let cites = ["DESIGN §", "Centrifuge §", "PRS §"].iter().any(|source| opening.contains(source));
        assert!(cites, "{} does not open with what it specifies and where that stands", file.display());
    }
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
