//! Connections that have ended here -> what Python remembers of them, and the state of those that it reports.

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::link::Holder;
use super::Lending;
use crate::exchanges::connection::{Connection, CLIENT};
use crate::exchanges::stage::Ended;
use crate::python::handle::Object;
use crate::python::state::{ConnectionState, KafkaState, PartialFrame};

/// Sequence numbers that are farther back look as if they were ahead.
const LONG: u32 = 1 << 30;

/// A connection whose end here has become final: its number; what is remembered of it, an `Ended` of
/// kdissect/net/connection.py; time of the SYN if it was opened here; and its state if Python has objects of it, or is
/// told of its end.
pub(super) type PyEnded<'py> = (
    u64,
    (Bound<'py, PyBytes>, i64, (PyNumbers, PyNumbers)),
    Option<i64>,
    Option<ConnectionState>,
);

/// The first and the next sequence number of a stream, whose SYN was captured.
type PyNumbers = Option<(u32, u32)>;

impl Lending {
    /// See `ended`.
    pub(super) fn ended_before<'py>(
        &mut self,
        py: Python<'py>,
        before: (i64, u64),
    ) -> PyResult<Vec<PyEnded<'py>>> {
        let mut all = Vec::new();
        while let Some(ended) = self.stage.end_next(before) {
            for finished in std::mem::take(&mut self.stage.finished) {
                let order = finished.order();
                self.enqueue(py, finished, order);
            }
            let Ended {
                slot,
                ordinal,
                connection,
                is_reported,
            } = ended;
            let link = self.links.get(slot).and_then(Option::as_ref);
            let link = link.ok_or_else(|| PyKeyError::new_err(slot))?;
            let syn_ns = match link.side {
                Holder::Opened(time_ns, _) => Some(time_ns),
                _ => None,
            };
            let is_passed_on =
                is_reported || syn_ns.is_none() || (self.stage.analyzes && connection.is_half_open());
            let numbers = |side| numbers(&connection, side);
            let remembered = (
                PyBytes::new(py, &link.ends),
                connection.ended_ns(),
                (numbers(CLIENT), numbers(1 - CLIENT)),
            );
            let state = match is_passed_on {
                true => Some(self.state_at_end(py, slot, ordinal, &connection, is_reported)?),
                false => None,
            };
            self.let_go(py, slot)?;
            all.push((ordinal, remembered, syn_ns, state));
        }
        Ok(all)
    }

    /// A connection that has ended here; without its messages, unless its end is to be reported.
    pub(super) fn state_at_end(
        &self,
        py: Python<'_>,
        slot: usize,
        ordinal: u64,
        connection: &Connection<Object>,
        is_reported: bool,
    ) -> PyResult<ConnectionState> {
        let link = self.links.get(slot).and_then(Option::as_ref);
        let link = link.ok_or_else(|| PyKeyError::new_err(slot))?;
        let is_unread = connection.unread.is_some();
        let kafka = || {
            let partial = (PartialFrame::default(), PartialFrame::default()); // it ended between two frames
            let info = link.info(py, &self.python)?.object(py);
            Ok::<_, PyErr>(KafkaState::of(info, connection, Vec::new(), partial))
        };
        Ok(ConnectionState {
            ordinal,
            duplex: link.duplex(py),
            tcp: self.tcp_state(py, link, connection, false),
            kafka: (is_reported && !is_unread).then(kafka).transpose()?,
            records: None,
            taken: connection.taken,
            latest: None,
            unread: if is_reported && is_unread {
                self.unread_state(connection, Some(link.info(py, &self.python)?.object(py)))
            } else {
                None
            },
        })
    }
}

/// `_numbers` of kdissect/net/connection.py.
fn numbers(connection: &Connection<Object>, side: usize) -> PyNumbers {
    let each = &connection.directions[side];
    let is_long = each.next.wrapping_sub(each.first) > i32::MAX as u32;
    let first = if is_long {
        each.next.wrapping_sub(LONG)
    } else {
        each.first
    };
    connection.has_syn(side).then_some((first, each.next))
}
