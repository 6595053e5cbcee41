//! What can be wrong with a store, in words that say what to do.

use std::io;
use std::path::{Path, PathBuf};

use centrifuge_core::id::NameError;

use super::{FORMAT, OLDEST};

/// Why a store or a backup cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file is not there.
    #[error("{} does not exist: check the path", file.display())]
    Missing {
        /// Which file.
        file: PathBuf,
    },
    /// The file is there and must not be replaced.
    #[error("{} exists and is never overwritten: name another file, or move this one away", file.display())]
    Exists {
        /// Which file.
        file: PathBuf,
    },
    /// Another process has the file.
    #[error(
        "{} is in use by another process, most likely a running Manager: stop that Manager first, or give this one \
         a store file of its own. To back it up, ask that Manager: `centrifuge store backup --managers ADDRESS FILE`",
        file.display()
    )]
    Locked {
        /// Which file.
        file: PathBuf,
    },
    /// The file is something else.
    #[error(
        "{} is not a Centrifuge {expected}: {found}. Nothing was changed; check the path",
        file.display()
    )]
    Foreign {
        /// Which file.
        file: PathBuf,
        /// What it should be.
        expected: &'static str,
        /// What is seen instead.
        found: &'static str,
    },
    /// The file was written by a version that is too new, or too old.
    #[error(
        "{} has format {found} and this version reads formats {OLDEST} to {FORMAT}: run the version that wrote it. Nothing \
         was changed",
        file.display()
    )]
    Newer {
        /// Which file.
        file: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The file is not as it was written.
    #[error(
        "{} is damaged: {what}. Nothing was changed and nothing is repaired. Keep it for inspection, check the disk, \
         and restore the latest backup into a new file with `centrifuge store restore`",
        file.display()
    )]
    Damaged {
        /// Which file.
        file: PathBuf,
        /// What is seen.
        what: String,
    },
    /// The operating system refused.
    #[error("cannot {doing} {}: {source}", file.display())]
    Io {
        /// Which file.
        file: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// The operating system refused what the database in the file wanted.
    #[error("the database in {} cannot be used: {source}. Check the disk and its free space", file.display())]
    Database {
        /// Which file.
        file: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A write failed and the store has not recovered from it yet.
    #[error("{} had a failed write ({what}): check the disk and its free space; the store tries again by itself",
        file.display())]
    Broken {
        /// Which file.
        file: PathBuf,
        /// What failed.
        what: String,
    },
    /// The name of a store says no backend that exists.
    #[error("`{name}` names no store: write file:PATH, etcd with --etcd-endpoints, or none with --peers")]
    UnknownBackend {
        /// What was given.
        name: String,
    },
    /// A setting of etcd cannot be used.
    #[error("{setting}: {what}")]
    EtcdSettings {
        /// The setting.
        setting: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// etcd did not do what it was asked.
    #[error(
        "the store under {prefix} cannot be used: {why}. Check the endpoints, and that etcd runs and has a leader"
    )]
    Etcd {
        /// The beginning of the store's keys.
        prefix: String,
        /// What etcd said.
        why: String,
    },
    /// etcd does not let us do what a store needs.
    #[error(
        "the store under {prefix} cannot be used: {why}. Check the user, its password, and that it may read and \
         write keys with this prefix"
    )]
    EtcdRefused {
        /// The beginning of the store's keys.
        prefix: String,
        /// What etcd said.
        why: String,
    },
    /// There is no store in etcd.
    #[error("there is no store under {prefix}: check the prefix and the endpoints")]
    EtcdMissing {
        /// The beginning of the store's keys.
        prefix: String,
    },
    /// There are keys in etcd that must not be replaced.
    #[error(
        "there are keys under {prefix} and they are never overwritten: name another prefix, or delete them with \
         etcdctl"
    )]
    EtcdExists {
        /// The beginning of the store's keys.
        prefix: String,
    },
    /// The creation of a store in etcd began and was never finished.
    #[error(
        "the store under {prefix} is not complete: a restore or a migration is under way or was broken off. Wait for \
         it, or delete the keys with etcdctl and begin anew"
    )]
    EtcdUnfinished {
        /// The beginning of the store's keys.
        prefix: String,
    },
    /// A Manager leads the store.
    #[error("the store under {prefix} is in use: {leader} leads. Stop every Manager first")]
    EtcdLed {
        /// The beginning of the store's keys.
        prefix: String,
        /// Who leads.
        leader: String,
    },
    /// A version that is too new, or too old, wrote what is in etcd.
    #[error(
        "the store under {prefix} has format {found} and this version reads formats {OLDEST} to {FORMAT}: run the version \
         that wrote it. Nothing was changed"
    )]
    EtcdNewer {
        /// The beginning of the store's keys.
        prefix: String,
        /// Its format.
        found: u32,
    },
    /// What is in etcd is not as it was written.
    #[error(
        "the store under {prefix} is damaged: {what}. Nothing was changed and nothing is repaired. Keep it for \
         inspection, and restore the latest backup under a new prefix with `centrifuge store restore`"
    )]
    EtcdDamaged {
        /// The beginning of the store's keys.
        prefix: String,
        /// What is seen.
        what: String,
    },
    /// The operating system gives no thread.
    #[error("cannot start a thread for the store: {why}")]
    Thread {
        /// What the operating system said.
        why: io::Error,
    },
    /// What Managers without a store share cannot be used.
    #[error("the Managers cannot choose a leader by Flease: {what}")]
    Peers {
        /// What is wrong.
        what: String,
    },
    /// The other Managers cannot be heard.
    #[error(
        "flease_listen: cannot listen for datagrams on {address}: {why}; is another Manager running there?"
    )]
    Datagrams {
        /// The address.
        address: String,
        /// What the system says.
        why: String,
    },
    /// There is no store.
    #[error(
        "Managers with --store none keep nothing: there is no store to back up, restore or migrate. Keep a copy of \
         their configuration, which has the namespaces; the Owners have the leases"
    )]
    NoStore,
    /// The store has ended.
    #[error("the store has ended with its Manager: ask a Manager that runs")]
    Stopped,
}

impl StoreError {
    /// For `map_err`: an error of the operating system, with the file and what was tried.
    pub(super) fn io(file: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> StoreError {
        let file = file.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::NotFound if doing == "open" => StoreError::Missing { file },
            io::ErrorKind::NotFound if doing == "create" => match missing_folder(&file) {
                Some(folder) => StoreError::Missing { file: folder },
                None => StoreError::Io { file, doing, source },
            },
            io::ErrorKind::AlreadyExists => StoreError::Exists { file },
            _ => StoreError::Io { file, doing, source },
        }
    }

    /// The file is not as it was written.
    pub(super) fn damaged(file: &Path, what: impl ToString) -> StoreError {
        StoreError::Damaged { file: file.to_owned(), what: what.to_string() }
    }
}

/// The folder of a file, if it is not there. Some systems' own folders take no files, and call that the same.
fn missing_folder(file: &Path) -> Option<PathBuf> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty())?;
    (!folder.exists()).then(|| folder.to_owned())
}

/// Why stored bytes say nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The content does not have the checksum that it was stored with.
    #[error("its checksum does not match")]
    Checksum,
    /// The content has a later format.
    #[error("it has format {0}, which this version does not know")]
    Format(u32),
    /// The bytes are no message.
    #[error("it cannot be parsed: {0}")]
    Message(#[from] prost::DecodeError),
    /// A field that must be there is not.
    #[error("the field `{0}` is missing")]
    Missing(&'static str),
    /// A choice has a number that this version does not know.
    #[error("the field `{field}` has the unknown value {value}")]
    UnknownChoice {
        /// The field.
        field: &'static str,
        /// Its value.
        value: i32,
    },
    /// A name is none.
    #[error("the field `{field}` is no name: {why}")]
    Name {
        /// The field.
        field: &'static str,
        /// Why.
        why: NameError,
    },
    /// A range ends before it begins.
    #[error("the range in `{0}` ends before it begins")]
    EmptyRange(&'static str),
    /// A number is out of bounds.
    #[error("the field `{0}` is out of bounds")]
    OutOfBounds(&'static str),
    /// The lease table does not cover every key once.
    #[error("the table of namespace `{0}` has a hole or an overlap")]
    TableNotWhole(String),
    /// A namespace or a session is there twice.
    #[error("the field `{0}` has the same entry twice")]
    Twice(&'static str),
    /// It stands at another place than it says.
    #[error("it belongs at index {says} and stands at {stands}")]
    Misplaced {
        /// Where it says it belongs.
        says: u64,
        /// Where it stands.
        stands: u64,
    },
}
