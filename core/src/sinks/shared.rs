//! The rows of a table that the core has made, until Python takes them.

use std::sync::{Arc, Mutex, MutexGuard};

/// Rows, of which the last ones can be dropped.
pub trait Droppable {
    /// Number of rows, and their size in bytes.
    fn size(&self) -> (usize, usize);

    /// Drops all but the first rows, which have this size in bytes; also an incomplete one.
    fn truncate(&mut self, rows: usize, held: usize);
}

/// Rows that Python takes, and to which it may add some.
pub struct Shared<T>(Arc<Mutex<T>>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared(self.0.clone())
    }
}

impl<T: Droppable> Shared<T> {
    pub fn new(rows: T) -> Self {
        Shared(Arc::new(Mutex::new(rows)))
    }

    /// A row that a panic left incomplete is dropped.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(|poisoned| {
            self.0.clear_poison();
            let mut all = poisoned.into_inner();
            let (rows, held) = all.size();
            all.truncate(rows, held);
            all
        })
    }
}
