//! The walls: what `core` and `sim` must not depend on, and what the source of `core` must not mention.

use std::collections::BTreeSet;

use crate::source::find_mentions;
use crate::workspace::{Problem, Result, Workspace, conclude};

/// `core` has fewer direct dependencies than this.
const CORE_DIRECT_DEPENDENCIES_BELOW: usize = 10;

const CORE: &str = "centrifuge-core";
const SIM: &str = "centrifuge-sim";

/// A feature that makes something wrong, who has it or may enable it, and why nobody else.
struct Wrong {
    feature: &'static str,
    manifests: &'static [&'static str],
    why: &'static str,
}

const WRONG: &[Wrong] = &[
    Wrong {
        feature: "clock-rate",
        manifests: &["crates/net/Cargo.toml", "lab/chaos/Cargo.toml"],
        why: "only chaos is built with clocks that can be made wrong",
    },
    Wrong {
        feature: "injected-bugs",
        manifests: &[
            "crates/core/Cargo.toml",
            "lab/sim/Cargo.toml",
            "crates/server/Cargo.toml",
            "lab/chaos/Cargo.toml",
        ],
        why: "only sim and chaos are built with injected bugs",
    },
];

/// Something that must not be there, and the reason.
struct Ban {
    what: &'static str,
    why: &'static str,
}

const CLOCK: &str = "core reads no clock: take `now` as an argument";
const IO: &str = "core does no I/O: return an action";
const THREADS: &str = "core never waits and starts nothing: return an action";
const AMBIENT: &str = "core reads nothing from its surroundings: take it as an argument";
const ORDER: &str = "its order differs from run to run: use a BTreeMap, a BTreeSet or a sorted Vec";
const CHANCE: &str =
    "core draws no randomness of the operating system: use the seeded generator it was given";
const SILENT: &str = "core prints and logs nothing: give a reason in an action";

/// What the code of `crates/core/src` must not mention.
const BANNED_MENTIONS: &[Ban] = &[
    Ban { what: "std::time::Instant", why: CLOCK },
    Ban { what: "SystemTime", why: CLOCK },
    Ban { what: "std::net", why: IO },
    Ban { what: "std::fs", why: IO },
    Ban { what: "std::io", why: IO },
    Ban { what: "std::process", why: IO },
    Ban { what: "std::thread", why: THREADS },
    Ban { what: "thread_local!", why: THREADS },
    Ban { what: "async", why: THREADS },
    Ban { what: ".await", why: THREADS },
    Ban { what: "std::env", why: AMBIENT },
    Ban { what: "HashMap", why: ORDER },
    Ban { what: "HashSet", why: ORDER },
    Ban { what: "RandomState", why: ORDER },
    Ban { what: "thread_rng", why: CHANCE },
    Ban { what: "OsRng", why: CHANCE },
    Ban { what: "from_os_rng", why: CHANCE },
    Ban { what: "from_entropy", why: CHANCE },
    Ban { what: "print!", why: SILENT },
    Ban { what: "println!", why: SILENT },
    Ban { what: "eprint!", why: SILENT },
    Ban { what: "eprintln!", why: SILENT },
    Ban { what: "dbg!", why: SILENT },
];

/// What `core` must not link, at any depth.
const BANNED_IN_CORE: &[Ban] = &[
    Ban { what: "tokio", why: "core never awaits" },
    Ban { what: "mio", why: "core does no I/O" },
    Ban { what: "socket2", why: "core does no I/O" },
    Ban { what: "getrandom", why: CHANCE },
    Ban { what: "rand", why: CHANCE },
];

/// What `sim` must not link, at any depth.
const BANNED_IN_SIM: &[Ban] =
    &[Ban { what: "tokio", why: "the simulator is the only scheduler of a simulated world" }];

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
    for Wrong { feature, why, .. } in WRONG.iter().filter(|wrong| !wrong.manifests.contains(&manifest)) {
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
    let patterns: Vec<&str> = BANNED_MENTIONS.iter().map(|ban| ban.what).collect();
    let found = find_mentions(source, &patterns).into_iter();
    // Which bug is injected is a matter of the thread that drives the machines; nobody asks without the feature.
    let is_allowed =
        |index: usize| file == "crates/core/src/injected_bug.rs" && patterns[index] == "thread_local!";
    let found = found.filter(|(_, index)| !is_allowed(*index));
    found.map(|(line, index)| breach(file, line, &BANNED_MENTIONS[index])).collect()
}

fn breach(file: &str, line: usize, ban: &Ban) -> Problem {
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

    fn banned(&self, linked: &BTreeSet<String>, bans: &[Ban]) -> Vec<Problem> {
        let hits = bans.iter().filter(|ban| linked.contains(ban.what));
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
        for ban in BANNED_MENTIONS {
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
