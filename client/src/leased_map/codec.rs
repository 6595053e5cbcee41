//! How the entries of a map are written for their way to another server.

use centrifuge_core::key::Key;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Something that names a thing, and so has a place in the key space.
pub trait LeasedKey {
    /// Its place: the same in every process and every language that shares the pool.
    fn key(&self) -> Key;
}

impl LeasedKey for String {
    fn key(&self) -> Key {
        Key::of(self.as_bytes())
    }
}

impl LeasedKey for Vec<u8> {
    fn key(&self) -> Key {
        Key::of(self)
    }
}

impl LeasedKey for u64 {
    fn key(&self) -> Key {
        Key::of(&self.to_le_bytes())
    }
}

/// Writes and reads entries. `None` as a value says that the entry was removed.
pub trait Codec<K, V>: Send + Sync {
    /// Writes an entry.
    fn encode(&self, name: &K, value: Option<&V>) -> Result<Vec<u8>, CodecError>;

    /// Reads an entry.
    fn decode(&self, bytes: &[u8]) -> Result<(K, Option<V>), CodecError>;
}

/// An entry that cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[error("an entry cannot be written or read ({0}): check that both servers run the same version of its type")]
pub struct CodecError(pub String);

/// Entries as JSON.
#[derive(Clone, Copy, Debug, Default)]
pub struct Json;

impl<K, V> Codec<K, V> for Json
where
    K: Serialize + DeserializeOwned,
    V: Serialize + DeserializeOwned,
{
    fn encode(&self, name: &K, value: Option<&V>) -> Result<Vec<u8>, CodecError> {
        serde_json::to_vec(&(name, value)).map_err(|error| CodecError(error.to_string()))
    }

    fn decode(&self, bytes: &[u8]) -> Result<(K, Option<V>), CodecError> {
        serde_json::from_slice(bytes).map_err(|error| CodecError(error.to_string()))
    }
}
