//! Packets and rows between processes: shards of the packets, and the order of their rows.

pub mod merge;

pub mod bundles;
pub mod divided;
