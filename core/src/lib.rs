//! The native core of kdissect. The Python code is the specification; this makes the common case fast.
//!
//! Everything here either returns exactly what Python would, or stops without side effects ([`Odd`]). Python then
//! decodes the same bytes and reports what is wrong with them.

#![deny(unsafe_code)]

pub mod analysis;
pub mod body;
pub mod columns;
pub mod connection;
pub mod decimal;
pub mod line;
pub mod merge;
pub mod packet;
pub mod quantiles;
pub mod record_lines;
pub mod records;
pub mod row;
pub mod samples;
pub mod sessions;
mod shard;
pub mod stage;
pub mod tls;
pub mod touched;
pub mod tree;
pub mod usage;
pub mod wire;

#[cfg(feature = "python")]
mod bundles;
#[cfg(feature = "python")]
mod columns_class;
#[cfg(feature = "python")]
mod connection_log;
#[cfg(feature = "python")]
mod counts;
#[cfg(feature = "python")]
mod divided;
#[cfg(feature = "python")]
mod latency;
#[cfg(feature = "python")]
mod line_class;
#[cfg(feature = "python")]
mod merge_class;
#[cfg(feature = "python")]
mod offload;
#[cfg(feature = "python")]
mod page;
#[cfg(feature = "python")]
mod places;
#[cfg(feature = "python")]
mod python;
#[cfg(feature = "python")]
mod raw;
#[cfg(feature = "python")]
mod records_class;
#[cfg(feature = "python")]
mod ring;
#[cfg(feature = "python")]
mod row_class;
#[cfg(feature = "python")]
mod rows;
#[cfg(feature = "python")]
mod table_rows;

#[cfg(test)]
mod fuzzing;

use std::panic::{catch_unwind, AssertUnwindSafe};

/// Not on the fast path (docs/core.md): Python processes the same bytes, and finds out why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Odd;

/// Runs `work`. A panic in it counts as odd: a bug in the core costs speed, not the run.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, Odd>) -> Result<T, Odd> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Odd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_odd() {
        let nothing: [u8; 0] = [];
        let index = std::hint::black_box(3);
        assert_eq!(guarded(|| Ok(nothing[index])), Err(Odd));
        assert_eq!(guarded(|| Ok(7)), Ok(7));
    }
}
