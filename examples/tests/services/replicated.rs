//! A replicated store, in processes.
