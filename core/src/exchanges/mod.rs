//! Segments -> exchanges, and what is in them: the common case of kdissect/exchanges/.

pub mod connection;
pub mod content;
pub mod fetch_sessions;
pub mod guarded;
pub mod latency;
pub mod memory;
pub mod nodes;
pub mod stage;
pub mod topic_names;
pub mod touched;
pub mod usage;
pub mod values;
