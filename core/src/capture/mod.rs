//! Bytes of a capture -> where its packets are: the common case of kdissect/capture/.

pub mod places;
pub mod ring;
