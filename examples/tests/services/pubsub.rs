//! Publish-subscribe, in processes.
