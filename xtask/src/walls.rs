//! The walls: what `core` and `sim` must not depend on, and what the source of `core` must not mention.

use std::collections::BTreeSet;

use crate::source::find_mentions;
use crate::workspace::{Problem, Result, Workspace, conclude};

/// `core` has fewer direct dependencies than this.
const CORE_DIRECT_DEPENDENCIES_BELOW: usize = 10;

const CORE: &str = "centrifuge-core";
const SIM: &str = "centrifuge-sim";

/// Features that make something wrong, who has each or may enable it, and why nobody else.
const WRONG: &[(&str, &[&str], &str)] = &[
    (
        "clock-rate",
        &["crates/net/Cargo.toml", "lab/chaos/Cargo.toml"],
        "only chaos is built with clocks that can be made wrong",
    ),
    (
        "injected-bugs",
        &["crates/core/Cargo.toml", "lab/sim/Cargo.toml", "crates/server/Cargo.toml", "lab/chaos/Cargo.toml"],
        "only sim and chaos are built with injected bugs",
    ),
];

/// Something that must not be there, and the reason.
#[derive(Clone, Copy)]
struct Ban {
    what: &'static str,
    why: &'static str,
}

/// Reasons, and what each of them bans.
type Bans = &'static [(&'static str, &'static [&'static str])];

const CHANCE: &str =
    "core draws no randomness of the operating system: use the seeded generator it was given";

/// What the code of `crates/core/src` must not mention.
const BANNED_MENTIONS: Bans = &[
    ("core reads no clock: take `now` as an argument", &["std::time::Instant", "SystemTime"]),
    ("core does no I/O: return an action", &["std::net", "std::fs", "std::io", "std::process"]),
    (
        "core never waits and starts nothing: return an action",
        &["std::thread", "thread_local!", "async", ".await"],
    ),
    ("core reads nothing from its surroundings: take it as an argument", &["std::env"]),
    (
        "its order differs from run to run: use a BTreeMap, a BTreeSet or a sorted Vec",
        &["HashMap", "HashSet", "RandomState"],
    ),
    (CHANCE, &["thread_rng", "OsRng", "from_os_rng", "from_entropy"]),
    (
        "core prints and logs nothing: give a reason in an action",
        &["print!", "println!", "eprint!", "eprintln!", "dbg!"],
    ),
];

/// What `core` must not link, at any depth.
const BANNED_IN_CORE: Bans = &[
    ("core never awaits", &["tokio"]),
    ("core does no I/O", &["mio", "socket2"]),
    (CHANCE, &["getrandom", "rand"]),
];

/// What `sim` must not link, at any depth.
const BANNED_IN_SIM: Bans = &[("the simulator is the only scheduler of a simulated world", &["tokio"])];

fn each(bans: Bans) -> Vec<Ban> {
    bans.iter().flat_map(|(why, banned)| banned.iter().map(|what| Ban { what, why })).collect()
}

/// Checks the walls and prints every breach.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let files = workspace.rust_files_under("crates/core/src");
    let mut problems = Vec::new();
    for file in &files {
        problems.extend(mentions_in(file, &workspace.read(file)?));
    }
    problems.extend(core_dependencies(workspace)?);
    problems.extend(sim_dependencies(workspace)?);
    for file in workspace.tracked_files().iter().filter(|file| file.ends_with("Cargo.toml")) {
        problems.extend(wrong_in(file, &workspace.read(file)?));
    }
    conclude("walls", &problems)?;
    println!("walls: {} files of core and the dependencies of core and sim are clean", files.len());
    Ok(())
}

/// The features that are mentioned where they must not be.
fn wrong_in(manifest: &str, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (feature, _, why) in WRONG.iter().filter(|(_, manifests, _)| !manifests.contains(&manifest)) {
        let quoted = format!("\"{feature}\"");
        let is_mentioned = |line: &str| line.contains(&quoted) || line.starts_with(&format!("{feature} ="));
        let lines = text.lines().zip(1..).filter(|(line, _)| is_mentioned(line));
        problems
            .extend(lines.map(|(_, number)| Problem::at(manifest, number, format!("`{feature}`: {why}"))));
    }
    problems
}

/// The banned mentions in one source file.
fn mentions_in(file: &str, source: &str) -> Vec<Problem> {
    let bans = each(BANNED_MENTIONS);
    let patterns: Vec<&str> = bans.iter().map(|ban| ban.what).collect();
    let found = find_mentions(source, &patterns).into_iter().map(|(line, index)| (line, bans[index]));
    // Which bug is injected is a matter of the thread that drives the machines; nobody asks without the feature.
    let is_allowed = |ban: Ban| file == "crates/core/src/injected_bug.rs" && ban.what == "thread_local!";
    found.filter(|(_, ban)| !is_allowed(*ban)).map(|(line, ban)| breach(file, line, ban)).collect()
}

fn breach(file: &str, line: usize, ban: Ban) -> Problem {
    Problem::at(file, line, format!("`{}`: {}", ban.what, ban.why))
}

fn core_dependencies(workspace: &Workspace) -> Result<Vec<Problem>> {
    let manifest = Manifest::read(workspace, "crates/core/Cargo.toml")?;
    let linked = tree(workspace, CORE, &["-e", "normal"])?;
    let direct = tree(workspace, CORE, &["-e", "normal", "--depth", "1"])?;
    let mut problems = manifest.banned(&linked, BANNED_IN_CORE);
    problems.extend(manifest.foreign(&linked, &workspace.packages()?, &[]));
    problems.extend(manifest.too_many(direct.len()));
    Ok(problems)
}

fn sim_dependencies(workspace: &Workspace) -> Result<Vec<Problem>> {
    let manifest = Manifest::read(workspace, "lab/sim/Cargo.toml")?;
    let linked = tree(workspace, SIM, &["-e", "normal,build,dev"])?;
    let mut problems = manifest.banned(&linked, BANNED_IN_SIM);
    problems.extend(manifest.foreign(&linked, &workspace.packages()?, &[CORE]));
    Ok(problems)
}

/// The names of the packages that `package` pulls in, itself left out.
fn tree(workspace: &Workspace, package: &str, options: &[&str]) -> Result<BTreeSet<String>> {
    let arguments = ["tree", "-p", package, "--prefix", "none"].into_iter().chain(options.iter().copied());
    let mut names = package_names(&workspace.cargo_output(arguments)?);
    names.remove(package);
    Ok(names)
}

/// The first word of every line of `cargo tree --prefix none` that names a package.
fn package_names(listing: &str) -> BTreeSet<String> {
    let words = listing.lines().filter_map(|line| line.split_whitespace().next());
    words.filter(|word| !word.starts_with('[')).map(str::to_owned).collect()
}

/// A crate's manifest, to point at the line that let something in.
struct Manifest {
    path: &'static str,
    text: String,
}

impl Manifest {
    fn read(workspace: &Workspace, path: &'static str) -> Result<Manifest> {
        Ok(Manifest { path, text: workspace.read(path)? })
    }

    /// The line that names the dependency, or the line where the dependencies begin.
    fn line_of(&self, dependency: &str) -> usize {
        let names =
            |line: &str| line.strip_prefix(dependency).is_some_and(|rest| rest.starts_with(['.', ' ', '=']));
        self.text.lines().position(names).map_or_else(|| self.line_of_dependencies(), |index| index + 1)
    }

    fn line_of_dependencies(&self) -> usize {
        self.text.lines().position(|line| line == "[dependencies]").map_or(1, |index| index + 1)
    }

    fn banned(&self, linked: &BTreeSet<String>, bans: Bans) -> Vec<Problem> {
        let hits = each(bans).into_iter().filter(|ban| linked.contains(ban.what));
        hits.map(|ban| breach(self.path, self.line_of(ban.what), ban)).collect()
    }

    /// Packages of this workspace that must not be among the linked ones.
    fn foreign(&self, linked: &BTreeSet<String>, packages: &[String], allowed: &[&str]) -> Vec<Problem> {
        let ours = packages.iter().filter(|name| linked.contains(*name) && !allowed.contains(&name.as_str()));
        let why = match allowed {
            [] => "it depends on no other crate of the workspace".to_owned(),
            names => format!("of the workspace it depends on {} alone", names.join(" and ")),
        };
        ours.map(|name| Problem::at(self.path, self.line_of(name), format!("`{name}`: {why}"))).collect()
    }

    fn too_many(&self, direct: usize) -> Option<Problem> {
        let limit = CORE_DIRECT_DEPENDENCIES_BELOW;
        (direct >= limit).then(|| {
            let what = format!("{direct} direct dependencies: core stays below {limit}");
            Problem::at(self.path, self.line_of_dependencies(), what)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let text = "[package]\nname = \"x\"\n\n[dependencies]\nrand.workspace = true\ntokio-util = \"1\"\n";
        Manifest { path: "crates/core/Cargo.toml", text: text.to_owned() }
    }

    fn names(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn what_can_be_wrong_on_purpose_is_for_chaos_alone() {
        let text = "[dependencies]\ncentrifuge-net = { workspace = true, features = [\"clock-rate\"] }\n";
        assert_eq!(wrong_in("crates/cli/Cargo.toml", text).len(), 1);
        assert_eq!(wrong_in("lab/chaos/Cargo.toml", text), []);
        let text = "[features]\ninjected-bugs = [\"centrifuge-core/injected-bugs\"]\n";
        assert_eq!(wrong_in("crates/cli/Cargo.toml", text).len(), 1);
        assert_eq!(wrong_in("crates/server/Cargo.toml", text), []);
    }

    #[test]
    fn every_ban_is_found_where_it_is_broken() {
        for ban in each(BANNED_MENTIONS) {
            let source = format!("//! About {0}.\n\nfn f() {{\n    let x = {0};\n}}\n", ban.what);
            let found = mentions_in("crates/core/src/broken.rs", &source);
            let expected = format!("crates/core/src/broken.rs:4: `{}`: {}", ban.what, ban.why);
            assert!(found.iter().any(|problem| problem.to_string() == expected), "{}: {found:?}", ban.what);
            assert!(found.iter().all(|problem| problem.line == Some(4)), "{found:?}");
        }
    }

    #[test]
    fn clean_source_gives_no_breach() {
        let source = "//! No HashMap.\nuse crate::time::Instant;\nuse std::time::Duration;\n\
                      // std::fs\nconst A: &str = \"println!\";\n";
        assert_eq!(mentions_in("crates/core/src/clean.rs", source), []);
    }

    #[test]
    fn packages_are_read_from_the_tree() {
        let listing =
            "centrifuge-core v0.1.0 (somewhere)\nrand_chacha v0.9.0\n[dev-dependencies]\nproptest v1 (*)\n";
        assert_eq!(package_names(listing), names(&["centrifuge-core", "rand_chacha", "proptest"]));
    }

    #[test]
    fn a_banned_package_is_reported_at_the_line_that_lets_it_in() {
        let found = manifest().banned(&names(&["rand", "tokio"]), BANNED_IN_CORE);
        let lines: Vec<_> = found.iter().map(|problem| problem.line).collect();
        assert_eq!(lines, [Some(4), Some(5)], "tokio is indirect, rand has its own line: {found:?}");
    }

    #[test]
    fn a_crate_of_the_workspace_is_foreign_unless_allowed() {
        let packages = ["centrifuge-core".to_owned(), "xtask".to_owned()];
        let linked = names(&["centrifuge-core", "xtask", "clap"]);
        assert_eq!(manifest().foreign(&linked, &packages, &["centrifuge-core"]).len(), 1);
        assert_eq!(manifest().foreign(&linked, &packages, &[]).len(), 2);
    }

    #[test]
    fn ten_direct_dependencies_are_too_many() {
        assert!(manifest().too_many(9).is_none());
        assert!(manifest().too_many(10).is_some());
    }
}
