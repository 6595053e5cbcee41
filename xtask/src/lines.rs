//! How many lines each application of `examples` has, and how many of them concern distribution: the guide's table.

use crate::source::code_only;
use crate::workspace::{Problem, Result, Workspace};

/// The page with the table.
const PAGE: &str = "docs/guide/applications.md";
const SOURCE: &str = "examples";

/// The applications: module, what the table calls it, its consistency, and what PRS table 1 says of its like.
const APPLICATIONS: &[(&str, &str, &str, &str)] = &[
    ("documents", "sectioned documents", "strong", "5,788"),
    ("pubsub", "publish-subscribe", "strong", "4,164"),
    ("queues", "queues", "strong", "5,695"),
    ("feeds", "feed processor", "weak", "5,019"),
    ("presence", "presence", "strong", ""),
    ("replicated", "replicated store", "strong", ""),
    ("tasks", "periodic tasks", "strong", ""),
    ("cache", "cache over a database", "strong", ""),
];

/// What all of them share.
const SHARED: &[&str] = &["shared/member.rs", "shared/call.rs", "shared/frontend.rs", "shared/http.rs"];

/// Tests its own application, and is no part of it.
const TESTS: &str = "tests";

/// A line concerns distribution if a part of a name on it is one of these.
const WORDS: &str = "caller centrifuge claim claims contact fence fences generation granted incarnation key lease leased \
    leases lookup lookups loss losses lost manager managers member misdirected owned owner owners \
    ownership pool pools quorum recheck replica replicas republish revoked route session sweep";

/// Lines of code, and those of them that concern distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    all: usize,
    distributed: usize,
}

/// Prints the table.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    table(workspace)?.iter().for_each(|row| println!("{row}"));
    Ok(())
}

/// Whether the guide's table is the one that is counted.
pub(crate) fn problems(workspace: &Workspace) -> Result<Vec<Problem>> {
    let page = workspace.read(PAGE)?;
    let rows = table(workspace)?;
    let missing = rows.iter().filter(|row| !page.lines().any(|line| line == row.as_str()));
    Ok(missing
        .map(|row| Problem::of(PAGE, format!("does not have this row of `cargo xtask lines`: {row}")))
        .collect())
}

fn table(workspace: &Workspace) -> Result<Vec<String>> {
    let mut rows = Vec::new();
    for (module, name, consistency, papers) in APPLICATIONS {
        let Count { all, distributed } = count_files(workspace, &files_of(workspace, module))?;
        let share = distributed * 100 / all.max(1);
        rows.push(format!("| {name} | {consistency} | {all} | {distributed} ({share} %) | {papers} |"));
    }
    let shared: Vec<String> = SHARED.iter().map(|file| format!("{SOURCE}/{file}")).collect();
    let Count { all, .. } = count_files(workspace, &shared)?;
    rows.push(format!("| what they share | | {all} | all | |"));
    Ok(rows)
}

/// The files of an application's module, without its tests.
fn files_of(workspace: &Workspace, module: &str) -> Vec<String> {
    let mut files = workspace.rust_files_under(&format!("{SOURCE}/{module}"));
    files.extend(Some(format!("{SOURCE}/{module}.rs")).filter(|file| workspace.exists(file)));
    files.retain(|file| !file.split(['/', '.']).any(|part| part == TESTS));
    files
}

fn count_files(workspace: &Workspace, files: &[String]) -> Result<Count> {
    let mut sum = Count::default();
    for file in files {
        let Count { all, distributed } = count(&workspace.read(file)?);
        sum = Count { all: sum.all + all, distributed: sum.distributed + distributed };
    }
    Ok(sum)
}

/// Counts code: no comments, no blank lines, no tests.
fn count(source: &str) -> Count {
    let tests = source.find("#[cfg(test)]\nmod tests").unwrap_or(source.len());
    let code = code_only(&source[..tests]);
    // What was a text alone on its line is code, though only its commas are left.
    let lines = code.lines().zip(source.lines());
    let lines = lines.filter(|(line, text)| !line.trim().is_empty() || text.trim().starts_with('"'));
    lines.fold(Count::default(), |sum, (line, _)| Count {
        all: sum.all + 1,
        distributed: sum.distributed + usize::from(concerns_distribution(line)),
    })
}

fn concerns_distribution(line: &str) -> bool {
    let names = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty());
    names.flat_map(parts).any(|part| WORDS.split(' ').any(|word| word == part))
}

/// The parts of a name: `LeasedMap` and `leased_map` have two.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for c in name.chars() {
        if c == '_' || c.is_uppercase() {
            parts.push(String::new());
        }
        if c != '_' {
            let last = parts.last_mut().expect("there is one from the beginning");
            last.extend(c.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_parts() {
        assert_eq!(parts("LeasedMap"), ["leased", "map"]);
        assert_eq!(parts("check_lease_now"), ["check", "lease", "now"]);
        assert_eq!(parts("x"), ["x"]);
    }

    #[test]
    fn comments_and_tests_are_not_counted_and_texts_do_not_speak_of_leases() {
        let source = "//! Of leases.\n\nlet owner = 1; // an owner\nlet a = \"lease\";\n    \"a lease\",\n\n#[cfg(test)]\nmod tests { }\n";
        assert_eq!(count(source), Count { all: 3, distributed: 1 });
    }
}
