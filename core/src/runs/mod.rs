//! Packets and rows between processes: shards of the packets, and the order of their rows.

pub mod merge;

#[cfg(feature = "python")]
pub mod bundles;
#[cfg(feature = "python")]
pub mod divided;
