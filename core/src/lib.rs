//! The native core of kdissect. The Python code is the specification; this makes the common case fast.
//!
//! Everything here either returns exactly what Python would, or stops without side effects ([`Odd`]). Python then
//! decodes the same bytes and reports what is wrong with them.

#![deny(unsafe_code)]

pub mod capture;
pub mod exchanges;
pub mod kafka;
pub mod net;
pub mod reasons;
pub mod runs;
pub mod sinks;
pub mod tls;

#[cfg(feature = "python")]
mod python;

#[cfg(test)]
mod fuzzing;

pub use reasons::Why;

use std::panic::{catch_unwind, AssertUnwindSafe};

/// Not on the fast path (docs/core.md): Python processes the same bytes, and finds out what is wrong with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Odd;

/// Runs `work`. A panic in it counts as odd: a bug in the core costs speed, not the run.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, Odd>) -> Result<T, Odd> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(Why::Bug.odd()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_odd() {
        let nothing: [u8; 0] = [];
        let index = std::hint::black_box(3);
        assert_eq!(guarded(|| Ok(nothing[index])), Err(Why::Bug.odd()));
        assert_eq!(guarded(|| Ok(7)), Ok(7));
    }
}
