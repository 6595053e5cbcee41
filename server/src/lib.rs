//! The Manager: service, stores, metrics.
