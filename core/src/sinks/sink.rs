//! What all sinks have in common: the way from an exchange to an output of kdissect/sinks.

use crate::sinks::facts::{Answered, Constant, Constants, Handle, Known, Unacknowledged};
use crate::sinks::handed::Handed;
use crate::Odd;

/// Exchanges that a sink has taken.
#[derive(Default)]
pub struct Progress {
    pub exchanges: usize,
    /// Those of them that are selected.
    pub rows: usize,
}

/// Makes one kind of output.
pub trait Sink: Send + Sync {
    /// Takes an answered exchange. If anything is odd, that has no effect, and Python takes it. Text goes to `out`,
    /// where it is removed if the exchange is not selected.
    fn feed(
        &mut self,
        exchange: &Answered<'_>,
        shared: &[Option<Constant>],
        out: &mut Vec<u8>,
    ) -> Result<(), Odd>;

    /// As `feed`, for a request that expects no response.
    fn feed_unacknowledged(
        &mut self,
        _exchange: &Unacknowledged<'_>,
        _shared: &[Option<Constant>],
        _out: &mut Vec<u8>,
    ) -> Result<(), Odd> {
        Err(Odd)
    }

    /// What `feed` needs of a connection: the texts that its exchanges share.
    fn shared(&self, _known: &dyn Known) -> Result<Constants, Odd> {
        Ok(Vec::new())
    }

    /// Whether it uses the parts of latencies.
    fn has_parts(&self) -> bool {
        true
    }

    /// Whether Python must take what was made before more is.
    fn is_full(&self) -> bool {
        false
    }

    /// Passes on what belongs to the output that Python takes now.
    fn flush(&mut self, _to: &mut Vec<Handed>) {}

    /// Python takes the next exchange of a connection, or it is no longer here.
    fn leave(&mut self, _info: &Handle) {}

    /// Passes on what is known of connections that have left, or of all.
    fn settle(&mut self, _is_last: bool, _to: &mut Vec<Handed>) {}
}
