//! The keys of a store, and the requests that are made of them.

use super::proto::rpc;
use super::proto::rpc::compare::{CompareResult, CompareTarget, TargetUnion};
use super::proto::rpc::request_op::Request;
use super::proto::rpc::response_op::Response;

/// What the keys of a store are called, after its prefix.
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Keys {
        Keys { prefix: prefix.to_owned() }
    }

    fn named(&self, name: &str) -> Vec<u8> {
        format!("{}{name}", self.prefix).into_bytes()
    }

    /// Who leads; goes away with the leader's etcd lease. Its revision is what fences every write.
    pub(super) fn leader(&self) -> Vec<u8> {
        self.named("leader")
    }

    /// The highest term; a store without it is not there.
    pub(super) fn standing(&self) -> Vec<u8> {
        self.named("standing")
    }

    /// There while a store is being made of a backup or of another store.
    pub(super) fn creating(&self) -> Vec<u8> {
        self.named("creating")
    }

    /// The index of the last batch.
    pub(super) fn head(&self) -> Vec<u8> {
        self.named("head")
    }

    /// Where the latest snapshot is.
    pub(super) fn snapshot(&self) -> Vec<u8> {
        self.named("snapshot")
    }

    /// The batch at an index.
    pub(super) fn log(&self, index: u64) -> Vec<u8> {
        self.named(&format!("log/{}", number(index)))
    }

    /// The first key behind the log.
    pub(super) fn log_end(&self) -> Vec<u8> {
        self.named("log0")
    }

    /// The index of a key of the log.
    pub(super) fn log_index(&self, key: &[u8]) -> Option<u64> {
        let name = key.strip_prefix(self.named("log/").as_slice())?;
        read_number(name)
    }

    /// The parts of batches at indexes below this one come before this key.
    pub(super) fn parts_before(&self, index: u64) -> Vec<u8> {
        self.named(&format!("parts/{}", number(index)))
    }

    /// The first key of all parts of batches.
    pub(super) fn parts(&self) -> Vec<u8> {
        self.named("parts/")
    }

    /// The first key of all parts of snapshots.
    pub(super) fn snapshots(&self) -> Vec<u8> {
        self.named("snapshot/")
    }

    /// The first key behind all parts of snapshots.
    pub(super) fn snapshots_end(&self) -> Vec<u8> {
        self.named("snapshot0")
    }

    /// The first key of a folder.
    pub(super) fn folder(&self, folder: &str) -> Vec<u8> {
        self.named(folder)
    }

    /// The first key behind a folder, whose name ends with a slash.
    pub(super) fn folder_end(&self, folder: &str) -> Vec<u8> {
        let mut end = self.named(folder);
        end.pop();
        end.push(b'0');
        end
    }

    /// One part in a folder.
    pub(super) fn part(&self, folder: &str, part: usize) -> Vec<u8> {
        self.named(&format!("{folder}{part:06}"))
    }

    /// The key of a Manager that runs.
    pub(super) fn manager(&self, manager: &str) -> Vec<u8> {
        self.named(&format!("managers/{manager}"))
    }

    /// The first key of all Managers.
    pub(super) fn managers(&self) -> Vec<u8> {
        self.named("managers/")
    }

    /// The first key behind all Managers.
    pub(super) fn managers_end(&self) -> Vec<u8> {
        self.named("managers0")
    }

    /// The first key of the store.
    pub(super) fn first(&self) -> Vec<u8> {
        self.named("")
    }

    /// The first key behind the store.
    pub(super) fn end(&self) -> Vec<u8> {
        let mut end = self.prefix.clone().into_bytes();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        end
    }
}

/// A folder for the parts of a batch: sorted by index, unlike any other try's.
pub(super) fn parts_folder(index: u64, term: u64, nonce: u64) -> String {
    format!("parts/{}/{term}-{nonce:016x}/", number(index))
}

/// A folder for the parts of a snapshot, unlike any other.
pub(super) fn snapshot_folder(index: u64, term: u64, nonce: u64) -> String {
    format!("snapshot/{}-{term}-{nonce:016x}/", number(index))
}

/// A number whose text sorts like it.
pub(super) fn number(number: u64) -> String {
    format!("{number:020}")
}

/// The number that was written so.
pub(super) fn read_number(text: &[u8]) -> Option<u64> {
    if text.len() != 20 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Whether the last write of a key was at a revision; 0: whether there is no such key.
pub(super) fn written_at(key: Vec<u8>, revision: i64) -> rpc::Compare {
    compare(key, CompareTarget::Mod, TargetUnion::ModRevision(revision))
}

/// Whether a key has a value.
pub(super) fn has_value(key: Vec<u8>, value: Vec<u8>) -> rpc::Compare {
    compare(key, CompareTarget::Value, TargetUnion::Value(value))
}

fn compare(key: Vec<u8>, target: CompareTarget, value: TargetUnion) -> rpc::Compare {
    rpc::Compare {
        result: CompareResult::Equal.into(),
        target: target.into(),
        key,
        target_union: Some(value),
    }
}

pub(super) fn put(key: Vec<u8>, value: Vec<u8>) -> rpc::RequestOp {
    put_with(key, value, 0)
}

pub(super) fn put_with(key: Vec<u8>, value: Vec<u8>, lease: i64) -> rpc::RequestOp {
    rpc::RequestOp { request: Some(Request::RequestPut(rpc::PutRequest { key, value, lease })) }
}

pub(super) fn delete(key: Vec<u8>, range_end: Vec<u8>) -> rpc::RequestOp {
    let delete = rpc::DeleteRangeRequest { key, range_end };
    rpc::RequestOp { request: Some(Request::RequestDeleteRange(delete)) }
}

pub(super) fn get(range: rpc::RangeRequest) -> rpc::RequestOp {
    rpc::RequestOp { request: Some(Request::RequestRange(range)) }
}

/// One key.
pub(super) fn one(key: Vec<u8>) -> rpc::RangeRequest {
    rpc::RangeRequest { key, ..Default::default() }
}

/// The first keys from one on, in order.
pub(super) fn from(key: Vec<u8>, range_end: Vec<u8>, limit: i64) -> rpc::RangeRequest {
    rpc::RangeRequest { key, range_end, limit, ..Default::default() }
}

/// What the ranges of a transaction found, in their order.
pub(super) fn found(responses: Vec<rpc::ResponseOp>) -> impl Iterator<Item = rpc::RangeResponse> {
    responses.into_iter().filter_map(|response| match response.response {
        Some(Response::ResponseRange(range)) => Some(range),
        _ => None,
    })
}

/// The revision at which an answer was given.
pub(super) fn revision(header: Option<&rpc::ResponseHeader>) -> i64 {
    header.map_or(0, |header| header.revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_sort_like_their_keys() {
        let keys = Keys::new("/a/");
        let all = [0, 1, 9, 10, 99, 100, u64::MAX - 1, u64::MAX];
        for pair in all.windows(2) {
            assert!(keys.log(pair[0]) < keys.log(pair[1]));
            assert!(keys.parts_before(pair[0]) < keys.parts_before(pair[1]));
        }
        for index in all {
            assert_eq!(keys.log_index(&keys.log(index)), Some(index));
            assert!(keys.log(index) < keys.log_end());
        }
        assert_eq!(keys.log_index(b"/a/log/12"), None);
    }

    #[test]
    fn every_key_is_under_the_prefix() {
        let keys = Keys::new("/a/");
        for key in [keys.leader(), keys.log(u64::MAX), keys.managers_end(), keys.part("snapshot/x/", 1)] {
            assert!(keys.first() <= key && key < keys.end());
        }
        assert_eq!(keys.end(), b"/a0");
    }

    #[test]
    fn a_folder_ends_behind_its_parts() {
        let keys = Keys::new("/a/");
        let folder = snapshot_folder(7, 3, 9);
        assert!(keys.folder(&folder) < keys.part(&folder, 0));
        assert!(keys.part(&folder, 999_999) < keys.folder_end(&folder));
        assert!(keys.folder_end(&folder) < keys.snapshots_end());
    }
}
