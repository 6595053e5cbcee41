//! The pure protocol logic of Centrifuge: machines that decide, and never wait, read a clock or touch a socket.

pub mod change_log;
mod conversation;
pub mod election;
pub mod fence;
pub mod flease;
pub mod id;
pub mod injected_bug;
pub mod key;
pub mod key_interval;
pub mod label;
pub mod load;
pub mod lookup;
pub mod machine;
pub mod manager;
pub mod manager_state;
pub mod message;
pub mod namespace_kind;
pub mod owner;
pub mod partition;
pub mod random;
pub mod range_map;
pub mod range_set;
pub mod record;
#[cfg(feature = "serde")]
pub mod recording;
mod round_trip;
pub mod settings;
pub mod table;
pub mod text;
pub mod time;
mod timers;
pub mod trim;
