//! Whether the documents are true to the tree: the map, the decision records, the README's set-up, the paths.

use std::collections::BTreeSet;

use crate::lines;
use crate::workspace::{Problem, Result, Workspace, conclude};

const MAP: &str = "ARCHITECTURE.md";
const README: &str = "README.md";
const CI: &str = ".ci/run";
const DECISIONS: &str = "docs/adr";

/// Every file and module directly in these directories stands in the map.
const MAPPED_DIRECTORIES: &[&str] = &[
    "crates/core/src",
    "crates/net/src",
    "crates/client/src",
    "crates/server/src",
    "crates/cli/src",
    "lab/harness/src",
    "lab/bench/src",
    "lab/sim/src",
    "lab/chaos/src",
    "lab/story/src",
    "examples",
];

/// The first names of absolute paths that belong to somebody's machine.
const HOMES: &[&str] = &["work", "root", "home", "Users"];

/// Checks the documents and prints every problem.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let files = workspace.tracked_files();
    let mut problems = map(workspace)?;
    problems.extend(decisions(&workspace.entries(DECISIONS)));
    problems.extend(set_up(workspace)?);
    problems.extend(lines::problems(workspace)?);
    for file in &files {
        // What is not text has no line to complain about.
        if let Ok(text) = workspace.read(file) {
            problems.extend(text_problems(file, &text));
        }
    }
    conclude("tidy", &problems)?;
    println!("tidy: {} files, the map, the decision records and the README are in order", files.len());
    Ok(())
}

fn text_problems(file: &str, text: &str) -> Vec<Problem> {
    let mut problems = absolute_paths(file, text);
    if file.ends_with(".rs") && !text.starts_with("//! ") {
        problems.push(Problem::at(file, 1, "a source file opens with `//! ` and one sentence"));
    }
    problems
}

/// The map names only what exists, and names every crate and every module.
fn map(workspace: &Workspace) -> Result<Vec<Problem>> {
    let named = quoted(&workspace.read(MAP)?);
    let packages = workspace.packages()?;
    let mut problems: Vec<Problem> = named
        .iter()
        .filter(|(_, name)| names_nothing(name, &packages, &|path| workspace.exists(path)))
        .map(|(line, name)| Problem::at(MAP, *line, format!("`{name}` does not exist")))
        .collect();
    let names: BTreeSet<&str> = named.iter().map(|(_, name)| name.trim_end_matches('/')).collect();
    let entries = MAPPED_DIRECTORIES.iter().flat_map(|directory| workspace.entries(directory));
    let modules =
        entries.filter(|entry| !entry.ends_with('/') || !workspace.rust_files_under(entry).is_empty());
    let unnamed = packages.into_iter().chain(modules).filter(|name| !is_named(name, &names));
    problems.extend(unnamed.map(|name| Problem::of(MAP, format!("does not name `{name}`"))));
    Ok(problems)
}

/// Whether the map names a crate, file or directory; a directory also by the file of its module.
fn is_named(name: &str, names: &BTreeSet<&str>) -> bool {
    let Some(directory) = name.strip_suffix('/') else {
        return names.contains(name);
    };
    let files = ["", ".rs", "/mod.rs"].map(|ending| format!("{directory}{ending}"));
    files.iter().any(|file| names.contains(file.as_str()))
}

/// Whether a quoted name is a crate or a path, and not there.
fn names_nothing(name: &str, packages: &[String], exists: &dyn Fn(&str) -> bool) -> bool {
    if name.starts_with("centrifuge-") {
        return !packages.iter().any(|package| package == name);
    }
    is_path(name) && !exists(name)
}

fn is_path(name: &str) -> bool {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    let extensions = [".rs", ".md", ".toml", ".txt", ".lock", "/"];
    plain && extensions.iter().any(|extension| name.ends_with(extension))
}

/// What stands between backticks outside fenced blocks, with its line.
fn quoted(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let parts = line.split('`').skip(1).step_by(2);
            found.extend(parts.map(|part| (index + 1, part.to_owned())));
        }
    }
    found
}

/// The decision records are numbered from 1 without a gap.
fn decisions(entries: &[String]) -> Vec<Problem> {
    let numbered = entries.iter().zip(1..);
    let wrong = numbered.filter(|(path, expected)| decision_number(path) != Some(*expected));
    wrong
        .map(|(path, expected)| {
            Problem::of(
                path,
                format!("records are `NNNN-title.md` without a gap; {expected:04} is next here"),
            )
        })
        .collect()
}

fn decision_number(path: &str) -> Option<usize> {
    let name = path.rsplit('/').next()?;
    let (number, title) = name.strip_suffix(".md")?.split_once('-')?;
    (number.len() == 4 && !title.is_empty()).then(|| number.parse().ok())?
}

/// The README has two set-up commands, and CI runs the second.
fn set_up(workspace: &Workspace) -> Result<Vec<Problem>> {
    let commands = set_up_commands(&workspace.read(README)?);
    let [_, tests] = &commands[..] else {
        let what = format!(
            "\"Set up\" has {} `sh` commands: it has two, each in a block of its own",
            commands.len()
        );
        return Ok(vec![Problem::of(README, what)]);
    };
    let mut problems: Vec<Problem> = ci_calls(&workspace.read(CI)?, tests).into_iter().collect();
    problems.extend(not_executable(workspace));
    Ok(problems)
}

/// The commands under the heading "Set up"; a block of several lines counts as that many commands.
fn set_up_commands(readme: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut in_section = false;
    let mut in_block = false;
    for line in readme.lines() {
        if line.starts_with("```") {
            in_block = in_section && line == "```sh";
        } else if in_block {
            commands.push(line.to_owned());
        } else if line.starts_with('#') {
            in_section = line.trim_start_matches('#').trim() == "Set up";
        }
    }
    commands.retain(|command| !command.trim().is_empty());
    commands
}

/// Beside changing to the root, CI's script does nothing but run the test command.
fn ci_calls(script: &str, command: &str) -> Option<Problem> {
    let lines = script.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let work: Vec<&str> =
        lines.filter(|line| !line.starts_with("set ") && !line.starts_with("cd ")).collect();
    (work != [format!("exec {command}")]).then(|| {
        Problem::of(CI, format!("runs {work:?}: it runs `exec {command}`, as the README says, and no more"))
    })
}

#[cfg(unix)]
fn not_executable(workspace: &Workspace) -> Option<Problem> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(workspace.locate(CI)).ok()?.permissions().mode();
    (mode & 0o111 == 0).then(|| Problem::of(CI, "is not executable"))
}

#[cfg(not(unix))]
fn not_executable(_workspace: &Workspace) -> Option<Problem> {
    None
}

/// Paths that exist on one machine only.
fn absolute_paths(file: &str, text: &str) -> Vec<Problem> {
    let homes: Vec<String> = HOMES.iter().map(|name| format!("/{name}/")).collect();
    let mut problems = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for home in homes.iter().filter(|home| has_absolute(line, home)) {
            problems.push(Problem::at(
                file,
                index + 1,
                format!("`{home}`: a path of one machine; say it relative"),
            ));
        }
    }
    problems
}

fn has_absolute(line: &str, home: &str) -> bool {
    let inside_a_path = |c: char| c.is_alphanumeric() || "_-.~*/}".contains(c);
    line.match_indices(home).any(|(start, _)| !line[..start].ends_with(inside_a_path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_is_read_between_backticks_outside_blocks() {
        let text = "See `crates/core/src/key.rs` and `core`.\n```\n`not this`\n```\n`lab/sim/`\n";
        let found = quoted(text);
        assert_eq!(found[0], (1, "crates/core/src/key.rs".to_owned()));
        assert_eq!(found.last(), Some(&(5, "lab/sim/".to_owned())));
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn a_name_in_the_map_must_exist() {
        let packages = ["centrifuge-core".to_owned()];
        let exists = |path: &str| path == "crates/core/src/key.rs";
        let nothing = |name: &str| names_nothing(name, &packages, &exists);
        assert!(!nothing("centrifuge-core") && nothing("centrifuge-net"));
        assert!(!nothing("crates/core/src/key.rs") && nothing("crates/core/src/gone.rs") && nothing("gone/"));
        assert!(!nothing("Machine::on_event") && !nothing("cargo xtask ci"), "neither crate nor path");
    }

    #[test]
    fn a_directory_is_named_with_or_without_its_slash_or_by_its_module() {
        let names = BTreeSet::from([
            "crates/core/src/owner",
            "crates/core/src/manager/mod.rs",
            "crates/core/src/load.rs",
        ]);
        assert!(is_named("crates/core/src/owner/", &names) && is_named("crates/core/src/manager/", &names));
        assert!(is_named("crates/core/src/load/", &names) && is_named("crates/core/src/load.rs", &names));
        assert!(!is_named("crates/core/src/manager.rs", &names));
        assert!(!is_named("crates/core/src/lookup/", &names));
    }

    #[test]
    fn decisions_have_no_gap() {
        let entries =
            |names: &[&str]| names.iter().map(|name| format!("docs/adr/{name}")).collect::<Vec<_>>();
        assert_eq!(decisions(&entries(&["0001-a.md", "0002-b.md"])), []);
        assert_eq!(decisions(&entries(&["0001-a.md", "0003-c.md"])).len(), 1);
        assert_eq!(decisions(&entries(&["0001-a.md", "0001-b.md"])).len(), 1);
        assert_eq!(decisions(&entries(&["notes.md"])).len(), 1);
    }

    #[test]
    fn set_up_commands_are_those_of_their_section() {
        let readme = "# X\n## Set up\nRun:\n```sh\ncargo run\n```\n\n```sh\ncargo xtask ci\n```\n## More\n```sh\nother\n```\n";
        assert_eq!(set_up_commands(readme), ["cargo run", "cargo xtask ci"]);
        assert_eq!(set_up_commands("## Set up\n```sh\na\nb\nc\n```\n").len(), 3);
    }

    #[test]
    fn a_comment_in_a_block_is_no_heading() {
        assert_eq!(set_up_commands("## Set up\n```sh\n# why\n```\n```sh\na\n```\n"), ["# why", "a"]);
    }

    #[test]
    fn ci_runs_the_test_command_and_no_more() {
        let script = "#!/usr/bin/env bash\n# why\nset -euo pipefail\ncd \"$(dirname \"$0\")/..\"\nexec cargo xtask ci\n";
        assert_eq!(ci_calls(script, "cargo xtask ci"), None);
        assert!(ci_calls(script, "cargo test").is_some());
        assert!(ci_calls(&format!("cargo fetch\n{script}"), "cargo xtask ci").is_some());
    }

    #[test]
    fn a_path_of_one_machine_is_found() {
        let planted = format!("see {}x/y", ["", "home", ""].join("/"));
        assert_eq!(absolute_paths("a.md", &planted).len(), 1);
        let relative =
            format!("see net{}x and https://host{}y", ["", "work", ""].join("/"), ["", "home", ""].join("/"));
        assert_eq!(absolute_paths("a.md", &relative), []);
    }

    #[test]
    fn a_source_file_opens_with_its_sentence() {
        assert_eq!(text_problems("a.rs", "use x;\n").len(), 1);
        assert_eq!(text_problems("a.rs", "//! What it is.\n"), []);
        assert_eq!(text_problems("a.md", "use x;\n"), []);
    }
}
