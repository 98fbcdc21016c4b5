//! Packets -> segments, and what they say of a connection: the common case of kdissect/net/.

pub mod analysis;
pub mod packet;
pub mod shard;
