//! The pure protocol logic of Centrifuge: machines that decide, and never wait, read a clock or touch a socket.

pub mod id;
pub mod key;
pub mod machine;
pub mod time;
