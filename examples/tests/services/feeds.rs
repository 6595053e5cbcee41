//! Feeds, in processes.
