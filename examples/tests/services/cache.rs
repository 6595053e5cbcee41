//! A cache over a database, in processes.
