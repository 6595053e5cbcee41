//! Sectioned documents, in processes.
