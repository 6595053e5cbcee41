//! Every measurement at a tiny size: all of it is measured, and no process is left behind.

mod commit;
mod flease;
mod isolation;
mod joins;
mod manager;
mod measured;
