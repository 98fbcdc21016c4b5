//! Bytes -> bodies and records: the common case of kdissect/kafka/.

pub mod body;
pub mod entries;
pub mod messages;
pub mod records;
pub mod tree;
pub mod wire;
