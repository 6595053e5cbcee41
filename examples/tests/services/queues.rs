//! Message queues, in processes.
