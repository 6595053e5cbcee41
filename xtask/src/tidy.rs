//! Whether the documents are true to the tree: the map, the decision records, the README's set-up, links, the protocol's numbers.

use crate::lines;
use crate::numbers;
use crate::workspace::{Problem, Result, Workspace, conclude};

const MAP: &str = "ARCHITECTURE.md";
const README: &str = "README.md";
const CI: &str = ".ci/run";
const DECISIONS: &str = "docs/adr";

/// Documents for people, whose lines have a limit. The others quote papers or code at length.
const PROSE: &[&str] =
    &["README.md", MAP, "CONTRIBUTING.md", "docs/protocol.md", "docs/guide/", "docs/operations/"];
const MAX_LINE: usize = 100;
/// The directories at the root of the workspace that documents speak of.
const TREES: &[&str] = &["crates/", "lab/", "examples/", "docs/", "xtask/"];

/// The first names of absolute paths that belong to somebody's machine.
const HOMES: &[&str] = &["work", "root", "home", "Users"];

/// Checks the documents and prints every problem.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let files = workspace.tracked_files();
    let mut problems = map(workspace)?;
    problems.extend(decisions(&workspace.entries(DECISIONS)));
    problems.extend(set_up(workspace)?);
    problems.extend(lines::problems(workspace)?);
    problems.extend(numbers::problems(workspace)?);
    for file in &files {
        // What is not text has no line to complain about.
        if let Ok(text) = workspace.read(file) {
            problems.extend(text_problems(file, &text));
            problems.extend(prose(file, &text, &|path| workspace.exists(path)));
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

/// The map names only what exists, and names every crate.
fn map(workspace: &Workspace) -> Result<Vec<Problem>> {
    let text = workspace.read(MAP)?;
    let named = quoted(&text);
    let packages = workspace.packages()?;
    let mut problems: Vec<Problem> = named
        .iter()
        .filter(|(_, name)| names_nothing(name, &packages, &|path| workspace.exists(path)))
        .map(|(line, name)| Problem::at(MAP, *line, format!("`{name}` does not exist")))
        .collect();
    let is_named = |package: &String| named.iter().any(|(_, name)| name == package);
    let unnamed = packages.iter().filter(|package| !is_named(package));
    problems.extend(unnamed.map(|package| Problem::of(MAP, format!("does not name `{package}`"))));
    for (path, name) in definitions(&text) {
        if !workspace.read(path).is_ok_and(|source| defines(&source, name)) {
            problems.push(Problem::of(MAP, format!("`{path}` does not define `{name}`")));
        }
    }
    Ok(problems)
}

/// What the map says that a file defines: the names between parentheses directly after its path.
fn definitions(text: &str) -> Vec<(&str, &str)> {
    let parts: Vec<&str> = text.split('`').collect();
    let mut found = Vec::new();
    let (mut path, mut listed) = (None, false);
    for pair in parts[..parts.len() - 1].chunks_exact(2) {
        let (before, name) = (pair[0].trim(), pair[1]);
        listed = before == "(" || (listed && before == ",");
        match path.filter(|_| listed) {
            Some(path) => found.push((path, name)),
            None => path = is_path(name).then_some(name),
        }
    }
    found
}

/// Whether a source or a schema defines a function, a type, a constant or the like of this name.
fn defines(source: &str, name: &str) -> bool {
    let kinds = ["fn", "struct", "enum", "trait", "const", "static", "rpc", "message"];
    let is_whole = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    kinds.iter().any(|kind| {
        let definition = format!("{kind} {name}");
        source.match_indices(&definition).any(|(at, _)| is_whole(&source[at + definition.len()..]))
    })
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

/// Lines that are too long outside tables and code, and links to files that are not there.
fn prose(file: &str, text: &str, exists: &dyn Fn(&str) -> bool) -> Vec<Problem> {
    let mut problems = Vec::new();
    if !file.ends_with(".md") || !PROSE.iter().any(|document| file.starts_with(document)) {
        return problems;
    }
    let directory = file.rsplit_once('/').map_or("", |(directory, _)| directory);
    let mut fenced = false;
    for (number, line) in (1..).zip(text.lines()) {
        fenced ^= line.starts_with("```");
        if !fenced && !line.starts_with('|') && line.chars().count() > MAX_LINE {
            problems.push(Problem::at(file, number, format!("longer than {MAX_LINE} characters")));
        }
        let paths = line.split('`').skip(1).step_by(2).filter(|name| names_workspace_path(name));
        for path in paths.filter(|path| !fenced && !exists(path)) {
            problems.push(Problem::at(file, number, format!("`{path}` does not exist")));
        }
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        for target in targets.filter(|target| !fenced && !target.is_empty() && !target.contains("://")) {
            if !exists(&relative(directory, target)) {
                let what = format!("links to `{target}`, which does not exist");
                problems.push(Problem::at(file, number, what));
            }
        }
    }
    problems
}

/// Whether a quoted name is a path from the root of the workspace.
fn names_workspace_path(name: &str) -> bool {
    is_path(name) && TREES.iter().any(|tree| name.starts_with(tree)) && !name.contains("NAME")
}

/// Where a link leads from a directory.
fn relative(directory: &str, target: &str) -> String {
    let mut names: Vec<&str> = directory.split('/').filter(|name| !name.is_empty()).collect();
    for name in target.split('/') {
        match name {
            ".." => drop(names.pop()),
            _ => names.push(name),
        }
    }
    names.join("/")
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
    let what = |expected| format!("records are `NNNN-title.md` without a gap; {expected:04} is next here");
    wrong.map(|(path, expected)| Problem::of(path, what(expected))).collect()
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
        let count = commands.len();
        let what = format!("\"Set up\" has {count} `sh` commands: it has two, each in a block of its own");
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
            let what = format!("`{home}`: a path of one machine; say it relative");
            problems.push(Problem::at(file, index + 1, what));
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
    fn what_stands_in_parentheses_after_a_path_must_be_defined_there() {
        let text =
            "1. `a/b.rs` (`step`, `Role`): `other`, then `c.rs` and\n   (`late`), `a/d.rs`\n   (`last`).";
        assert_eq!(definitions(text), [("a/b.rs", "step"), ("a/b.rs", "Role"), ("a/d.rs", "last")]);
        let source = "pub fn step<T>(t: T) {}\nenum Role {}\nfn stepped() {}";
        assert!(defines(source, "step") && defines(source, "Role"));
        assert!(!defines(source, "stepp") && !defines(source, "T"));
    }

    #[test]
    fn prose_has_short_lines_and_names_what_exists() {
        let long = "word ".repeat(25);
        let text = format!(
            "{long}\n| {long} |\n```\n{long}\n```\n[a](b.md#part) [c](https://d) ![e](gone.svg) `lab/f.rs` `f.rs`\n"
        );
        let lines = |file: &str| prose(file, &text, &|path| path == "docs/guide/b.md").len();
        assert_eq!(lines("docs/guide/a.md"), 3, "a long line, a broken link and a path that is gone");
        assert_eq!(lines("docs/adr/a.md"), 0, "not one of the documents with a limit");
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
