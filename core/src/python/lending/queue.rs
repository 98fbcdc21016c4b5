//! Finished exchanges of all connections -> the same in order of completion; and those that wait for names after that.

use std::collections::{BTreeMap, VecDeque};

use pyo3::prelude::*;

use super::Lending;
use crate::exchanges::connection::{Finished, Order};
use crate::python::handle::Object;

/// Exchanges of all connections in order of completion, as in kdissect/exchanges/ordering.py; and those that have
/// left the order and wait for the names of topics, until Python releases them.
#[derive(Default)]
pub(super) struct Queue {
    /// By arrival if they have the same place. In boxes, because a tree moves its values.
    pub(super) exchanges: BTreeMap<(Order, u64), Box<Finished<Object>>>,
    arrivals: u64,
    /// Of their frames.
    pub(super) bytes: usize,
    pub(super) waiting: VecDeque<(Order, Box<Finished<Object>>)>,
}

impl Queue {
    fn push(&mut self, finished: Finished<Object>, order: Order) {
        self.bytes += finished.held();
        self.exchanges.insert((order, self.arrivals), Box::new(finished));
        self.arrivals += 1;
    }

    /// The first, if its place is before this one.
    pub(super) fn first(&self, before: Order) -> Option<&Finished<Object>> {
        let ((order, _), finished) = self.exchanges.first_key_value()?;
        (*order < before).then_some(finished)
    }

    /// Removes the first, if its place is before this one.
    pub(super) fn pop(&mut self, before: Order) -> Option<(Order, Box<Finished<Object>>)> {
        self.first(before)?;
        let ((order, _), finished) = self.exchanges.pop_first()?;
        self.bytes -= finished.held();
        Some((order, finished))
    }
}

impl Lending {
    /// Queues an exchange for `written`.
    pub(super) fn enqueue(&mut self, py: Python<'_>, finished: Finished<Object>, order: Order) {
        let slot = finished.slot;
        _ = self.learn(py, &finished, true);
        self.queue.push(finished, order);
        self.newest_ns = self.newest_ns.max(order.0);
        if let Some(link) = self.links.get_mut(slot).and_then(Option::as_mut) {
            link.queued += 1;
            link.latest = order;
        }
    }

    /// The first exchange of the queue waits, if its place is before this one.
    pub(super) fn hold(&mut self, before: Order) {
        let Some((order, finished)) = self.queue.pop(before) else {
            return;
        };
        if let Some(link) = self.links.get_mut(finished.slot).and_then(Option::as_mut) {
            link.queued -= 1;
            link.waiting += 1;
        }
        self.queue.waiting.push_back((order, finished));
    }
}
