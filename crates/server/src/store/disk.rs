//! The store's file: who may have it, what it begins with, and the space inside it in which the database lives.
//!
//! The first page is ours: it says what the file is before any database code sees it, and holds the witness, the number
//! of transactions that the file has surely seen. A database that has fewer went back in time.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::backends::InMemoryBackend;
use redb::{Database, DatabaseError, StorageBackend};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::error::StoreError;

const MAGIC: &[u8; 16] = b"centrifuge-store";
/// How the file is laid out. What is in it has a format of its own.
const LAYOUT: u32 = 1;
/// Where the database begins.
const HEAD: u64 = 4096;
/// Where the two witnesses are; they are written in turn, so that one is always whole.
const WITNESS: [u64; 2] = [512, 1024];
const CHUNK: usize = 1 << 20;
const CACHE: usize = 32 << 20;

/// A store's file that this process has to itself, until it is dropped.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) path: PathBuf,
    file: Arc<File>,
    #[cfg(test)]
    pub(super) trouble: Arc<tests::Trouble>,
}

impl Disk {
    /// Takes an existing store's file, for this process alone.
    pub(super) fn open(path: &Path) -> Result<Disk, StoreError> {
        let file =
            OpenOptions::new().read(true).write(true).open(path).map_err(StoreError::io(path, "open"))?;
        Disk::checked(path, file, File::try_lock)
    }

    /// Opens an existing store's file to read it, beside others that read and nobody who writes.
    pub(super) fn open_to_read(path: &Path) -> Result<Disk, StoreError> {
        let file = File::open(path).map_err(StoreError::io(path, "open"))?;
        Disk::checked(path, file, File::try_lock_shared)
    }

    fn checked(
        path: &Path,
        file: File,
        lock: fn(&File) -> Result<(), TryLockError>,
    ) -> Result<Disk, StoreError> {
        lock(&file).map_err(|error| match error {
            TryLockError::WouldBlock => StoreError::Locked { file: path.to_owned() },
            TryLockError::Error(error) => StoreError::io(path, "lock")(error),
        })?;
        let disk = Disk::new(path, file);
        disk.check_head()?;
        Ok(disk)
    }

    fn new(path: &Path, file: File) -> Disk {
        Disk {
            path: path.to_owned(),
            file: Arc::new(file),
            #[cfg(test)]
            trouble: Arc::default(),
        }
    }

    /// Makes a new store's file. It gets its name only when it is complete and on the disk: whatever has the name is a
    /// whole store. A file that has the name already stays.
    pub(super) fn create(
        path: &Path,
        fill: impl FnOnce(&Database) -> Result<u64, StoreError>,
    ) -> Result<Disk, StoreError> {
        let temporary = Temporary::beside(path);
        let made = OpenOptions::new().read(true).write(true).create_new(true).open(&temporary.0);
        let disk = Disk::new(path, made.map_err(StoreError::io(path, "create"))?);
        disk.file.lock().map_err(StoreError::io(path, "lock"))?;
        disk.write_head().map_err(StoreError::io(path, "write"))?;
        let commits = fill(&disk.database()?)?;
        disk.witness(commits).map_err(StoreError::io(path, "write"))?;
        disk.file.sync_all().map_err(StoreError::io(path, "write"))?;
        temporary.publish(path)?;
        Ok(disk)
    }

    /// The database inside the file. Whatever needs a repair is refused: after an unclean end none does, because every
    /// transaction leaves the file whole.
    pub(super) fn database(&self) -> Result<Database, StoreError> {
        let inside = Inside {
            file: Arc::clone(&self.file),
            #[cfg(test)]
            trouble: Arc::clone(&self.trouble),
        };
        self.database_in(inside)
    }

    /// The database in a copy of the file in memory, after every checksum of the database has been compared. The file
    /// is only read, so that a damaged one stays as it is.
    pub(super) fn verified_copy(&self) -> Result<Database, StoreError> {
        let mut database = self.database_in(self.copy().map_err(StoreError::io(&self.path, "read"))?)?;
        match database.check_integrity() {
            Ok(true) => Ok(database),
            Ok(false) => Err(StoreError::damaged(&self.path, "its pages contradict each other")),
            Err(error) => Err(self.refused(error)),
        }
    }

    fn database_in(&self, backend: impl StorageBackend) -> Result<Database, StoreError> {
        Database::builder()
            .set_cache_size(CACHE)
            .set_repair_callback(redb::RepairSession::abort)
            .create_with_backend(backend)
            .map_err(|error| self.refused(error))
    }

    fn refused(&self, error: DatabaseError) -> StoreError {
        match error {
            DatabaseError::RepairAborted => {
                StoreError::damaged(&self.path, "its last transaction is not whole")
            }
            error => StoreError::redb(&self.path, error),
        }
    }

    fn copy(&self) -> io::Result<InMemoryBackend> {
        let copy = InMemoryBackend::new();
        copy.set_len(self.file.metadata()?.len().saturating_sub(HEAD))?;
        self.for_each_chunk(HEAD, |offset, bytes| copy.write(offset - HEAD, bytes))?;
        Ok(copy)
    }

    /// Writes every byte of the file again and waits until all are on the disk.
    ///
    /// After a failed write, what can be read back may be in memory only, and the system may never try again to write
    /// it. Written again, it is on the disk or the failure shows.
    pub(super) fn rewrite(&self) -> io::Result<()> {
        self.check_trouble()?;
        self.for_each_chunk(0, |offset, bytes| self.file.write_all_at(bytes, offset))?;
        self.file.sync_all()
    }

    fn for_each_chunk(&self, from: u64, mut see: impl FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
        let end = self.file.metadata()?.len();
        let mut bytes = vec![0; CHUNK];
        let mut offset = from;
        while offset < end {
            let length = CHUNK.min(usize::try_from(end - offset).unwrap_or(CHUNK));
            self.file.read_exact_at(&mut bytes[..length], offset)?;
            see(offset, &bytes[..length])?;
            offset += length as u64;
        }
        Ok(())
    }

    /// Waits until everything that was written is on the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.check_trouble()?;
        self.file.sync_all()
    }

    fn write_head(&self) -> io::Result<()> {
        let mut head = vec![0; HEAD as usize];
        head[..16].copy_from_slice(MAGIC);
        head[16..20].copy_from_slice(&LAYOUT.to_le_bytes());
        let checksum = xxh3_64(&head[..20]);
        head[24..32].copy_from_slice(&checksum.to_le_bytes());
        self.file.write_all_at(&head, 0)
    }

    fn check_head(&self) -> Result<(), StoreError> {
        let path = &self.path;
        let length = self.file.metadata().map_err(StoreError::io(path, "read"))?.len();
        let foreign = |found| StoreError::Foreign { file: path.clone(), expected: "store", found };
        if length == 0 {
            return Err(foreign("it is empty"));
        }
        let mut head = [0; 32];
        let readable = head.len().min(usize::try_from(length).unwrap_or(head.len()));
        self.file.read_exact_at(&mut head[..readable], 0).map_err(StoreError::io(path, "read"))?;
        if head[..16] != *MAGIC {
            return Err(foreign("it does not begin like one, or its first bytes are damaged"));
        }
        if length <= HEAD {
            return Err(StoreError::damaged(path, "it is cut off"));
        }
        if xxh3_64(&head[..20]).to_le_bytes() != head[24..32] {
            return Err(StoreError::damaged(path, "the checksum of its first bytes does not match"));
        }
        match u32::from_le_bytes(head[16..20].try_into().expect("four bytes")) {
            LAYOUT => Ok(()),
            found => Err(StoreError::Newer { file: path.clone(), found }),
        }
    }

    /// Notes that this many transactions are on the disk. Not waited for: it may be too low after a power failure, and
    /// is never too high.
    pub(super) fn witness(&self, commits: u64) -> io::Result<()> {
        self.check_trouble()?;
        let slot = (commits % 2) as usize;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&commits.to_le_bytes());
        bytes[8..].copy_from_slice(&witness_checksum(slot, commits).to_le_bytes());
        self.file.write_all_at(&bytes, WITNESS[slot])
    }

    /// How many transactions the file has surely seen.
    pub(super) fn witnessed(&self) -> Result<u64, StoreError> {
        let mut latest = None;
        for (slot, at) in WITNESS.into_iter().enumerate() {
            let mut bytes = [0; 16];
            self.file.read_exact_at(&mut bytes, at).map_err(StoreError::io(&self.path, "read"))?;
            let (commits, checksum) = bytes.split_at(8);
            let commits = u64::from_le_bytes(commits.try_into().expect("eight bytes"));
            if witness_checksum(slot, commits).to_le_bytes() == checksum {
                latest = latest.max(Some(commits));
            }
        }
        latest.ok_or_else(|| StoreError::damaged(&self.path, "its count of transactions is unreadable"))
    }

    fn check_trouble(&self) -> io::Result<()> {
        #[cfg(test)]
        self.trouble.check()?;
        Ok(())
    }
}

fn witness_checksum(slot: usize, commits: u64) -> u64 {
    xxh3_64_with_seed(&commits.to_le_bytes(), slot as u64 + 1)
}

/// A file that is not complete yet; it goes away unless it is published.
pub(super) struct Temporary(pub(super) PathBuf);

impl Temporary {
    /// A file name that no other process and no other thread uses, in the folder of `path`.
    pub(super) fn beside(path: &Path) -> Temporary {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".creating-{}-{number}", std::process::id()));
        // What a process of the same number left behind when it was killed.
        let _ = fs::remove_file(&name);
        Temporary(name.into())
    }

    /// Gives the file its name, unless the name is taken. A link fails where a renaming would replace.
    pub(super) fn publish(self, path: &Path) -> Result<(), StoreError> {
        fs::hard_link(&self.0, path).map_err(StoreError::io(path, "create"))?;
        drop(self);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(StoreError::io(folder, "write"))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The part of the file in which the database lives.
#[derive(Debug)]
struct Inside {
    file: Arc<File>,
    #[cfg(test)]
    trouble: Arc<tests::Trouble>,
}

impl Inside {
    fn check_trouble(&self) -> io::Result<()> {
        #[cfg(test)]
        self.trouble.check()?;
        Ok(())
    }
}

impl StorageBackend for Inside {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len().saturating_sub(HEAD))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, HEAD + offset)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.check_trouble()?;
        self.file.set_len(HEAD + length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check_trouble()?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check_trouble()?;
        self.file.write_all_at(data, HEAD + offset)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// Makes the disk fail after so many more operations that change it.
    #[derive(Debug)]
    pub(crate) struct Trouble(AtomicU64, AtomicBool);

    impl Default for Trouble {
        fn default() -> Trouble {
            Trouble(AtomicU64::new(u64::MAX), AtomicBool::new(false))
        }
    }

    impl Trouble {
        pub(crate) fn after(&self, operations: u64) {
            self.0.store(operations, Ordering::SeqCst);
        }

        /// From now on it fails because it is full.
        pub(crate) fn for_lack_of_room(&self) {
            self.1.store(true, Ordering::SeqCst);
        }

        fn error(&self) -> io::Error {
            match self.1.load(Ordering::SeqCst) {
                true => io::Error::from(io::ErrorKind::StorageFull),
                false => io::Error::other("the disk fails on purpose"),
            }
        }

        pub(super) fn check(&self) -> io::Result<()> {
            let left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                Some(if left == u64::MAX { left } else { left.saturating_sub(1) })
            });
            if left == Ok(0) { Err(self.error()) } else { Ok(()) }
        }
    }
}
