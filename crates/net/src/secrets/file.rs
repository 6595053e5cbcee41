//! A file with secrets that is looked at again and again.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tracing::{info, warn};

use super::{KeyRing, Secrets};

/// How often a file is looked at.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Why a file's secrets cannot be used. It never says what they are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {problem}", file = file.display())]
pub struct KeyFileError {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it, in which line, and what to do.
    pub problem: String,
}

/// What was found: the bytes, or why they could not be read.
type Contents = Result<Vec<u8>, String>;

/// A file with secrets, and the ring that follows it.
///
/// A file that is changed in place can be seen half written, with a secret cut short that would then sign. So what is
/// new counts once two looks in a row have found the same.
pub struct KeyFile {
    path: PathBuf,
    ring: KeyRing,
    /// What the last look found.
    seen: Option<Contents>,
    /// What was put in force or refused last.
    judged: Option<Contents>,
}

impl KeyFile {
    /// Reads a file for the first time.
    pub fn open(path: impl Into<PathBuf>) -> Result<KeyFile, KeyFileError> {
        let path = path.into();
        let contents = read(&path);
        let ring = KeyRing::new(parse(&path, &contents)?);
        Ok(KeyFile { path, ring, seen: Some(contents.clone()), judged: Some(contents) })
    }

    /// A file that a ring shall follow, not read yet.
    #[must_use]
    pub fn for_ring(path: PathBuf, ring: KeyRing) -> KeyFile {
        KeyFile { path, ring, seen: None, judged: None }
    }

    /// The ring that follows it.
    #[must_use]
    pub fn ring(&self) -> &KeyRing {
        &self.ring
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Looks at the file, and says whether its secrets are now in force and were not before. What cannot be used is
    /// said once, and changes nothing.
    pub fn look(&mut self) -> Result<bool, KeyFileError> {
        let found = Some(read(&self.path));
        let is_settled = self.seen == found;
        self.seen.clone_from(&found);
        if !is_settled || self.judged == found {
            return Ok(false);
        }
        self.judged = found;
        let Some(contents) = &self.judged else { return Ok(false) };
        let secrets = parse(&self.path, contents)?;
        self.ring.change(secrets).map_err(|error| refuse(&self.path, error.to_string()))
    }

    /// Looks every second, for as long as it is polled, and logs what it finds.
    pub async fn watch(mut self) {
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            // Not where the application's tasks run: nobody knows what file system this is.
            let looking = spawn_blocking(move || {
                let found = self.look();
                (self, found)
            });
            let Ok((file, found)) = looking.await else { return };
            self = file;
            match found {
                Ok(true) => self.log_change(),
                Ok(false) => {}
                Err(error) => warn!(%error, "changed secrets cannot be used: those before stay in force"),
            }
        }
    }

    /// Says that its secrets are in force.
    pub fn log_change(&self) {
        let accepted = self.ring.secrets().accepted();
        info!(file = %self.path.display(), accepted, "new secrets are in use: the first in the file signs");
    }
}

fn read(path: &Path) -> Contents {
    std::fs::read(path).map_err(|error| format!("cannot be read: {error}"))
}

fn parse(path: &Path, contents: &Contents) -> Result<Secrets, KeyFileError> {
    let bytes = contents.as_ref().map_err(|problem| refuse(path, problem.clone()))?;
    Secrets::parse(bytes).map_err(|error| refuse(path, error.to_string()))
}

fn refuse(path: &Path, problem: String) -> KeyFileError {
    KeyFileError { file: path.to_owned(), problem }
}

impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyFile({})", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "the first secret of these tests\n";
    const B: &str = "the second secret of these tests\n";

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new(text: &str) -> Folder {
            let folder = Folder(tempfile::tempdir().expect("a folder"));
            folder.write(text);
            folder
        }

        fn path(&self) -> PathBuf {
            self.0.path().join("key")
        }

        fn write(&self, text: &str) {
            std::fs::write(self.path(), text).expect("written");
        }
    }

    fn secrets(text: &str) -> Secrets {
        Secrets::parse(text.as_bytes()).expect("secrets")
    }

    #[test]
    fn what_is_new_counts_when_two_looks_find_the_same() {
        let folder = Folder::new(A);
        let mut file = KeyFile::open(folder.path()).expect("a file");
        let ring = file.ring().clone();
        assert_eq!(file.look(), Ok(false));
        // Half of what is being written would be a secret of its own.
        folder.write(&format!("{A}{}", &B[..20]));
        assert_eq!(file.look(), Ok(false));
        folder.write(&format!("{A}{B}"));
        assert_eq!((file.look(), ring.secrets().accepted()), (Ok(false), 1));
        assert_eq!((file.look(), &*ring.secrets()), (Ok(true), &secrets(&format!("{A}{B}"))));
        assert_eq!(file.look(), Ok(false));
    }

    #[test]
    fn what_cannot_be_used_is_said_once_and_changes_nothing() {
        let folder = Folder::new(A);
        let mut file = KeyFile::open(folder.path()).expect("a file");
        let broken =
            [("", "no secret"), ("# nothing\n", "no secret"), ("short\n", "line 1"), (B, "put it second")];
        for (text, words) in broken {
            folder.write(text);
            assert_eq!(file.look(), Ok(false));
            let error = file.look().expect_err(words).to_string();
            assert!(error.contains(words) && error.contains("key: "), "{words:?} in {error}");
            assert!(!error.contains(B.trim()) && !error.contains("short"), "{error}");
            assert_eq!(file.look(), Ok(false), "it is said once");
            assert_eq!(*file.ring().secrets(), secrets(A));
        }
        std::fs::remove_file(folder.path()).expect("removed");
        assert_eq!(file.look(), Ok(false), "it may be on its way");
        assert!(file.look().expect_err("gone").to_string().contains("cannot be read"));
        assert_eq!(file.look(), Ok(false));
        // As it was before: nothing is new.
        folder.write(A);
        assert_eq!((file.look(), file.look()), (Ok(false), Ok(false)));
        folder.write(&format!("{A}{B}"));
        assert_eq!((file.look(), file.look()), (Ok(false), Ok(true)));
    }

    #[test]
    fn a_ring_follows_a_file_that_has_changed_since_it_was_read() {
        let folder = Folder::new(A);
        let ring = KeyFile::open(folder.path()).expect("a file").ring().clone();
        folder.write(&format!("{A}{B}"));
        let mut file = KeyFile::for_ring(folder.path(), ring.clone());
        assert_eq!((file.look(), file.look()), (Ok(false), Ok(true)));
        assert_eq!(ring.secrets().accepted(), 2);
    }

    #[test]
    fn a_file_that_is_no_use_is_refused_by_its_name() {
        let folder = Folder::new("short");
        let error = KeyFile::open(folder.path()).expect_err("short").to_string();
        assert!(error.contains("key: line 1: the secret has 5 bytes"), "{error}");
        let absent = KeyFile::open(folder.path().with_extension("absent")).expect_err("absent").to_string();
        assert!(absent.contains("key.absent: cannot be read"), "{absent}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watched_file_is_looked_at_every_second() {
        let folder = Folder::new(A);
        let file = KeyFile::open(folder.path()).expect("a file");
        let ring = file.ring().clone();
        let watching = tokio::spawn(file.watch());
        folder.write(&format!("{A}{B}"));
        let taken = async {
            while ring.secrets().accepted() == 1 {
                tokio::time::sleep(POLL_INTERVAL / 4).await;
            }
        };
        tokio::time::timeout(POLL_INTERVAL * 60, taken).await.expect("it is taken");
        watching.abort();
    }
}
