//! What a connection remembers of its exchanges: kdissect/exchanges/memory.py.

use crate::exchanges::fetch_sessions::Sessions;
use crate::exchanges::latency::{Pace, Watermarks};

/// The memory of a connection, before its next exchange.
pub struct ConnectionMemory {
    pub pace: Pace,
    /// None: they are left to Python.
    pub watermarks: Option<Watermarks>,
    pub sessions: Sessions,
    /// Whether any latency was split with it.
    pub has_split: bool,
}
