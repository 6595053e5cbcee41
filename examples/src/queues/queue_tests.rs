//! Tests of a queue, without any server.
