//! What all sinks have in common: the way from an exchange to an output of kdissect/sinks.

use pyo3::prelude::*;

use crate::sinks::facts::{Answered, Constant, Known, Unacknowledged};
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
        py: Python<'_>,
        exchange: &Answered<'_>,
        shared: &[Option<Constant>],
        out: &mut Vec<u8>,
    ) -> Result<(), Odd>;

    /// As `feed`, for a request that expects no response.
    fn feed_unacknowledged(
        &mut self,
        _py: Python<'_>,
        _exchange: &Unacknowledged<'_>,
        _shared: &[Option<Constant>],
        _out: &mut Vec<u8>,
    ) -> Result<(), Odd> {
        Err(Odd)
    }

    /// What `feed` needs of a connection: the texts that its exchanges share.
    fn shared(&self, _py: Python<'_>, _known: &dyn Known) -> PyResult<Vec<Option<Constant>>> {
        Ok(Vec::new())
    }

    /// Whether it uses the parts of latencies.
    fn has_parts(&self) -> bool {
        true
    }

    /// Whether Python must take what was made before more is.
    fn is_full(&self, _py: Python<'_>) -> bool {
        false
    }

    /// Passes on what belongs to the output that Python takes now.
    fn flush(&mut self, _py: Python<'_>) -> PyResult<()> {
        Ok(())
    }

    /// Python takes the next exchange of a connection, or it is no longer here.
    fn leave(&mut self, _info: &Bound<'_, PyAny>) {}

    /// Passes on what is known of connections that have left, or of all.
    fn settle(&mut self, _py: Python<'_>, _is_last: bool) -> PyResult<()> {
        Ok(())
    }
}
