//! Mutexes of programs in which a panic of one task is the end of a test, and of nothing else.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, whatever became of who had it last.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
