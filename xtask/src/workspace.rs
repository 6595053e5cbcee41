//! The workspace on disk: where it is, which files and crates it has, and what was found wrong in it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a developer command returns; the error is a sentence for the person who ran it.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// The workspace's root directory. Every path given to it or returned by it is relative, with `/` between names.
pub(crate) struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// Finds the root: the parent of this crate if cargo says where it is, or else the nearest directory upwards
    /// that has a `Cargo.lock`.
    pub(crate) fn find() -> Result<Workspace> {
        if let Some(crate_directory) = std::env::var_os("CARGO_MANIFEST_DIR")
            && let Some(root) = Path::new(&crate_directory).parent()
        {
            return Ok(Workspace { root: root.to_path_buf() });
        }
        let here = std::env::current_dir().map_err(|error| format!("no current directory: {error}"))?;
        here.ancestors()
            .find(|directory| directory.join("Cargo.lock").is_file())
            .map(|root| Workspace { root: root.to_path_buf() })
            .ok_or_else(|| "run this inside the workspace".to_owned())
    }

    /// A cargo command that runs at the root.
    pub(crate) fn cargo<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.current_dir(&self.root).args(arguments);
        command
    }

    /// What a cargo command prints.
    pub(crate) fn cargo_output<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<String> {
        output_of(self.cargo(arguments))
    }

    /// Runs a cargo command, which must succeed.
    pub(crate) fn run_cargo<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<()> {
        let mut command = self.cargo(arguments);
        let status = command.status().map_err(|error| format!("cannot run {command:?}: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
    }

    fn metadata(&self) -> Result<serde_json::Value> {
        let text = self.cargo_output(["metadata", "--no-deps", "--format-version", "1"])?;
        serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))
    }

    /// Where cargo puts what it builds.
    pub(crate) fn target_directory(&self) -> Result<PathBuf> {
        let metadata = self.metadata()?;
        metadata["target_directory"]
            .as_str()
            .map(PathBuf::from)
            .ok_or("cargo names no target directory".into())
    }

    /// The names of the workspace's packages, sorted.
    pub(crate) fn packages(&self) -> Result<Vec<String>> {
        let metadata = self.metadata()?;
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let mut names: Vec<String> =
            packages.filter_map(|package| package["name"].as_str()).map(str::to_owned).collect();
        names.sort();
        Ok(names)
    }

    /// Whether there is something at `path`.
    pub(crate) fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// Where `path` is on this machine.
    pub(crate) fn locate(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// The text of the file at `path`.
    pub(crate) fn read(&self, path: &str) -> Result<String> {
        fs::read_to_string(self.root.join(path)).map_err(|error| format!("cannot read {path}: {error}"))
    }

    /// The files and directories directly in `directory`, sorted, directories with a `/` at the end; none if it is
    /// missing.
    pub(crate) fn entries(&self, directory: &str) -> Vec<String> {
        let prefix = if directory.is_empty() { String::new() } else { format!("{directory}/") };
        let entry = |entry: fs::DirEntry| {
            let slash = if entry.path().is_dir() { "/" } else { "" };
            format!("{prefix}{}{slash}", entry.file_name().to_string_lossy())
        };
        let entries = fs::read_dir(self.root.join(directory)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(entry).collect();
        names.sort();
        names
    }

    /// Every file under `directory`, at any depth, sorted. Passes over what cargo and git keep for themselves.
    pub(crate) fn files_under(&self, directory: &str) -> Vec<String> {
        let inner = |entry: String| match entry.strip_suffix('/') {
            Some("target" | ".git") => Vec::new(),
            Some(inner) => self.files_under(inner),
            None => vec![entry],
        };
        self.entries(directory).into_iter().flat_map(inner).collect()
    }

    /// The Rust files under `directory`, at any depth, sorted.
    pub(crate) fn rust_files_under(&self, directory: &str) -> Vec<String> {
        let mut files = self.files_under(directory);
        files.retain(|file| file.ends_with(".rs"));
        files
    }

    /// The files that git tracks or would track; without git, every file.
    pub(crate) fn tracked_files(&self) -> Vec<String> {
        let mut git = Command::new("git");
        git.current_dir(&self.root).args(["ls-files", "--cached", "--others", "--exclude-standard"]);
        match output_of(git) {
            Ok(listing) => listing.lines().map(str::to_owned).filter(|file| self.exists(file)).collect(),
            Err(_) => self.files_under(""),
        }
    }
}

pub(crate) fn output_of(mut command: Command) -> Result<String> {
    let output = command.output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{command:?}: {error}"))
}

/// Lets a command take the place of this process. Comes back only if that cannot be done.
#[cfg(unix)]
pub(crate) fn replace_process(mut command: Command) -> Result<()> {
    use std::os::unix::process::CommandExt;
    let error = command.exec();
    Err(format!("cannot run {command:?}: {error}"))
}

#[cfg(not(unix))]
pub(crate) fn replace_process(command: Command) -> Result<()> {
    Err(format!("{command:?} needs a Unix system: it starts and stops processes"))
}

/// Something wrong at a place in the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The file it is in.
    pub(crate) file: String,
    /// The line, counted from 1, if there is one to point at.
    pub(crate) line: Option<usize>,
    /// What is wrong, and what to do about it.
    pub(crate) what: String,
}

impl Problem {
    /// A problem of a whole file.
    pub(crate) fn of(file: &str, what: impl Into<String>) -> Problem {
        Problem { file: file.to_owned(), line: None, what: what.into() }
    }

    /// A problem at a line.
    pub(crate) fn at(file: &str, line: usize, what: impl Into<String>) -> Problem {
        Problem { file: file.to_owned(), line: Some(line), what: what.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.what),
            None => write!(f, "{}: {}", self.file, self.what),
        }
    }
}

/// Prints the problems, one a line, and fails if there is one.
pub(crate) fn conclude(check: &str, problems: &[Problem]) -> Result<()> {
    for problem in problems {
        eprintln!("{problem}");
    }
    match problems.len() {
        0 => Ok(()),
        1 => Err(format!("{check}: 1 problem")),
        several => Err(format!("{check}: {several} problems")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_reads_as_file_line_what() {
        assert_eq!(
            Problem::at("crates/core/src/a.rs", 7, "wrong").to_string(),
            "crates/core/src/a.rs:7: wrong"
        );
        assert_eq!(Problem::of("README.md", "missing").to_string(), "README.md: missing");
    }

    #[test]
    fn this_workspace_is_found_with_its_packages_and_files() {
        let workspace = Workspace::find().expect("tests run inside the workspace");
        let packages = workspace.packages().expect("cargo metadata works");
        assert!(packages.iter().any(|name| name == "xtask"), "{packages:?}");
        assert!(workspace.rust_files_under("xtask").contains(&"xtask/src/main.rs".to_owned()));
        assert!(workspace.entries("").contains(&"xtask/".to_owned()));
    }
}
