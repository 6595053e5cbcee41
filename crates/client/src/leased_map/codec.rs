//! How the entries of a map are written for their way to another server.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

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
        // As deep as it was written: what a client could send must be able to move, with what is wrapped around it.
        let mut reader = serde_json::Deserializer::from_slice(bytes);
        reader.disable_recursion_limit();
        let read = Deserialize::deserialize(&mut reader).and_then(|entry| reader.end().map(|()| entry));
        read.map_err(|error| CodecError(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_is_as_deep_as_a_client_may_send_can_be_wrapped_and_read_again() {
        let deep = "[".repeat(127) + &"]".repeat(127);
        let deep: Value = serde_json::from_str(&deep).expect("as deep as can be");
        let wrapped = vec![vec![vec![deep]]];
        let name = "room-7".to_owned();
        let written = Json.encode(&name, Some(&wrapped)).expect("written");
        let (read_name, read): (String, Option<Vec<Vec<Vec<Value>>>>) = Json.decode(&written).expect("read");
        assert_eq!((read_name, read), (name, Some(wrapped)));
        assert!(Codec::<String, u32>::decode(&Json, b"[\"room-7\",1] and more").is_err());
    }
}
