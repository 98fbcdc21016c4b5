//! Bytes of a capture -> where its packets are: the common case of kdissect/capture/.

#[cfg(feature = "python")]
pub mod places;
#[cfg(feature = "python")]
pub mod ring;
