//! A block of packets -> steps: the exchanges that a packet completes, and the connection that it ends.
//!
//! Also why the packet after them is not taken, and of packets that belong to no connection here, the ends from which
//! one may come.

use std::panic::{catch_unwind, AssertUnwindSafe};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::link::Holder;
use super::Lending;
use crate::exchanges::connection::Packet;
use crate::exchanges::stage::{Stage, Verdict};
use crate::net::packet::segment;
use crate::python::handle::Object;
use crate::python::places::Places;
use crate::python::state::ConnectionState;
use crate::sinks::facts::Handle;

/// Most exchanges made at a time: the garbage collector looks at more of them again and again.
const BATCH: usize = 64;
/// Packets that may bring a connection here are not kept from it for longer.
const RUN: usize = 64;
/// Most exchanges that are queued at a time.
const PAGE: usize = 256;

/// Why `run` stopped: the block has ended or the batch is full, ...
const TAKEN: u8 = 0;
/// ... a run of packets belongs to no connection here, ...
const FOREIGN: u8 = 1;
/// ... a packet is not usual, ...
const ODD: u8 = 2;
/// ... there are too many interfaces, ...
const FULL: u8 = 3;
/// ... or there was a panic.
const BROKEN: u8 = 4;

/// See `run`.
pub(super) type PyRan<'py> = (Vec<PyStep<'py>>, usize, u8, usize, Vec<Bound<'py, PyBytes>>);

/// A packet that completed exchanges, or ended a connection of which that is to be told, or after which connections
/// wait since another time: its index; since when; the exchanges; the connection.
type PyStep<'py> = (usize, Option<i64>, Bound<'py, PyList>, Option<ConnectionState>);

/// A block of packets: number of the first, a number for their interface, and where each is in the buffer.
struct Block<'a, 'py> {
    number: u64,
    interface: usize,
    link_type: u32,
    data: &'a [u8],
    places: At<'a, 'py>,
}

/// Where the packets of a block are.
enum At<'a, 'py> {
    Here(&'a Places),
    List(&'a Bound<'py, PyList>),
}

impl Lending {
    /// See `run`.
    pub(super) fn run_block<'py>(
        &mut self,
        py: Python<'py>,
        block: (u64, Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>),
        link_type: u32,
        at: usize,
        room: (usize, usize, i64),
        opening: (usize, u64),
    ) -> PyResult<PyRan<'py>> {
        let (number, interface, data, places) = block;
        let (max_queued, max_bytes, newest_ns) = room;
        let room = (max_queued, max_bytes);
        self.at = at;
        self.newest_ns = self.newest_ns.max(newest_ns);
        (self.stage.room, self.stage.latest) = opening;
        let Ok(data) = data.cast_exact::<PyBytes>() else {
            return Ok((Vec::new(), at, ODD, at + 1, Vec::new()));
        };
        let places = if let Ok(places) = places.cast::<Places>() {
            At::Here(places.get())
        } else if let Ok(places) = places.cast::<PyList>() {
            At::List(places)
        } else {
            return Ok((Vec::new(), at, ODD, at + 1, Vec::new()));
        };
        let Some(interface) = self.interface(&interface) else {
            return Ok((Vec::new(), at, FULL, at, Vec::new()));
        };
        let block = Block {
            number,
            interface,
            link_type,
            data: data.as_bytes(),
            places,
        };
        let taking = || self.take(py, &block, room);
        let reason = catch_unwind(AssertUnwindSafe(taking)).unwrap_or(BROKEN);
        let taken = self.at;
        let mut next = taken;
        let mut candidates = Vec::new();
        if reason == ODD {
            next += 1;
        } else if reason == FOREIGN {
            (next, candidates) = foreign(&self.stage, &block, taken);
        }
        let candidates = candidates
            .into_iter()
            .map(|ends| PyBytes::new(py, ends))
            .collect();
        let mut steps = Vec::new();
        let mut finished = std::mem::take(&mut self.stage.finished).into_iter();
        let mut before = 0;
        for (index, waiting_since_ns, until, closed) in std::mem::take(&mut self.steps) {
            let done = PyList::empty(py);
            for each in finished.by_ref().take(until - before) {
                done.append(self.finish(py, each)?)?;
            }
            before = until;
            let closed = match closed.and_then(|slot| Some((slot, self.stage.connection(slot)?))) {
                Some((slot, (ordinal, connection))) => {
                    Some(self.state_at_end(py, slot, ordinal, connection, true)?)
                }
                None => None,
            };
            steps.push((index, waiting_since_ns, done, closed));
        }
        Ok((steps, taken, reason, next, candidates))
    }

    /// Takes packets from `self.at` on; says why it stops there.
    fn take(&mut self, py: Python<'_>, block: &Block<'_, '_>, room: (usize, usize)) -> u8 {
        let (max_queued, max_bytes) = room;
        let mut is_new = false; // whether anything may have to come before what follows
        let max_queued = max_queued.min(self.queue.exchanges.len() + PAGE);
        while self.at < block.len() {
            let Some((time_ns, bytes)) = block.packet(self.at) else {
                return ODD;
            };
            if is_new && time_ns < self.newest_ns {
                return TAKEN;
            }
            let number = block.number(self.at);
            let packet = Packet {
                number,
                time_ns,
                interface: block.interface,
            };
            let mut asking = self.answers.asking(py, &self.python);
            let waited = self.stage.waiting_since_ns();
            match self.stage.feed(block.link_type, bytes, packet, &mut asking) {
                Verdict::Taken => {}
                Verdict::Elsewhere => {
                    self.at += 1;
                    continue;
                }
                Verdict::Opened(slot) => {
                    if let Ok(segment) = segment(block.link_type, bytes) {
                        let side = Holder::Opened(time_ns, self.stage.latest);
                        let identity = [(); 4].map(|()| Handle::of(py.None().into_bound(py)));
                        self.link(py, slot, side, segment.ends.into(), None, identity);
                    }
                }
                Verdict::Foreign(_) => return FOREIGN,
                Verdict::Odd => return ODD,
            }
            self.at += 1;
            let waits = self.stage.waiting_since_ns();
            let closed = self.stage.closed.take();
            is_new |= waits != waited;
            if self.page.is_some() {
                let mut all = std::mem::take(&mut self.stage.finished);
                for finished in all.drain(..) {
                    let order = match self.shift {
                        None => finished.order(),
                        Some(_) => (0, number),
                    };
                    self.enqueue(py, finished, order);
                    is_new = true;
                }
                self.stage.finished = all; // empty, to be filled again
                if closed.is_some() || (self.shift.is_some() && waits != waited) {
                    self.steps.push((self.at - 1, waits, 0, closed));
                }
                if closed.is_some() && self.shift.is_none() {
                    return TAKEN; // what was completed before comes first
                }
                if self.queue.exchanges.len() > max_queued || self.queue.bytes > max_bytes {
                    return TAKEN;
                }
            } else {
                let until = self.stage.finished.len();
                let before = self.steps.last().map_or(0, |step| step.2);
                let is_waited_for = waits != waited && self.python.is_needed.is_none(); // the order matters
                if is_waited_for || until > before || closed.is_some() {
                    self.steps.push((self.at - 1, waits, until, closed));
                }
            }
            if self.stage.finished.len() >= BATCH || self.steps.len() >= BATCH {
                return TAKEN;
            }
        }
        TAKEN
    }
}

impl<'a> Block<'a, '_> {
    fn len(&self) -> usize {
        match self.places {
            At::Here(places) => places.places.len(),
            At::List(places) => places.len(),
        }
    }

    fn number(&self, index: usize) -> u64 {
        match self.places {
            At::Here(places) => places.number(self.number, index),
            At::List(_) => self.number + index as u64,
        }
    }

    /// Time and bytes of a packet.
    #[inline(always)]
    fn packet(&self, index: usize) -> Option<(i64, &'a [u8])> {
        let (time_ns, begin, end) = match self.places {
            At::Here(places) => {
                let &(time_ns, begin, end, _) = places.places.get(index)?;
                (time_ns, begin, end)
            }
            At::List(places) => {
                let (time_ns, begin, end, _): (i64, usize, usize, Bound<'_, PyAny>) =
                    places.get_item(index).ok()?.extract().ok()?;
                (time_ns, begin, end)
            }
        };
        Some((time_ns, self.data.get(begin..end)?))
    }
}

/// The index after a run of packets from `start` on that belong to no connection here, and the ends among them
/// from which one may come.
fn foreign<'a>(stage: &Stage<Object>, block: &Block<'a, '_>, start: usize) -> (usize, Vec<&'a [u8]>) {
    let mut candidates: Vec<&[u8]> = Vec::new();
    let mut last: &[u8] = &[];
    let mut next = start;
    while next < block.len() && (candidates.is_empty() || next - start < RUN) {
        let Some((_, bytes)) = block.packet(next) else {
            break;
        };
        let verdict = if next == start {
            stage.is_foreign_first(block.link_type, bytes)
        } else {
            stage.is_foreign(block.link_type, bytes)
        };
        match verdict {
            Verdict::Foreign(None) => {}
            Verdict::Foreign(Some(ends)) => {
                if ends != last && !candidates.contains(&ends) {
                    candidates.push(ends);
                }
                last = ends;
            }
            _ => break,
        }
        next += 1;
    }
    (next, candidates)
}
