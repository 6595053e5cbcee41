//! Presence, in processes.
