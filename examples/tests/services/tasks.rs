//! Periodic tasks, in processes.
