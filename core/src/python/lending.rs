//! The class `kdissect._core.Lending`: a [`Stage`] for kdissect/exchanges/lending.py.
//!
//! block     packets -> the exchanges that they complete, and the connections that they end
//! asking    what the stage asks -> what Python answers
//! link      a connection here -> what Python knows of it
//! handover  the state of a connection that Python lends -> a connection here, and back
//! ended     connections that have ended -> what Python remembers of them
//! queue     finished exchanges -> the same in order of completion
//! waiting   the next of them -> those that wait for the names of topics, and the IDs
//! writing   those whose turn it is -> what the sink makes of them
//! paired    exchanges that Python has paired -> what the sink makes of them
//! objects   exchanges, frames and interfaces here -> the objects of Python, and back
//! counts    what was counted here -> the same by name

mod asking;
mod block;
mod counts;
mod ended;
mod handover;
mod link;
mod objects;
mod paired;
mod queue;
mod waiting;
mod writing;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::panic::{catch_unwind, AssertUnwindSafe};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use asking::{Answers, Callbacks, Introductions};
use block::PyRan;
use counts::PyLeft;
use ended::PyEnded;
use link::{Holder, Link};
use queue::Queue;
use waiting::{Ids, PyWaits};

use crate::exchanges::connection::{Limits, Order};
use crate::exchanges::stage::Stage;
use crate::net::shard::Shard;
use crate::python::handle::Object;
use crate::python::merge::RowBatch;
use crate::python::plan::{Conditions, Plan, Receivers};
use crate::python::state::ConnectionState;
use crate::reasons::Reasons;
use crate::sinks::facts::Handle;
use crate::sinks::page::Page;
use crate::sinks::sink::Progress;
use crate::Odd;

/// See `written`.
type PyWritten<'py> = (
    Bound<'py, PyBytes>,
    usize,
    usize,
    Option<(Bound<'py, PyTuple>, u64)>,
);

/// `StageLimits` of kdissect/exchanges/lending.py.
#[derive(FromPyObject)]
struct StageLimits {
    frame_bytes: usize,
    pending_requests: usize,
    pending_bytes: usize,
    pending_age_ns: i64,
    connection_idle_ns: i64,
    reorder_window_ns: i64,
    reach: u32,
}

impl From<StageLimits> for Limits {
    fn from(limits: StageLimits) -> Self {
        Limits {
            frame_bytes: limits.frame_bytes,
            pending_requests: limits.pending_requests,
            pending_bytes: limits.pending_bytes,
            pending_age_ns: limits.pending_age_ns,
            connection_idle_ns: limits.connection_idle_ns,
            reorder_window_ns: limits.reorder_window_ns,
            reach: limits.reach,
        }
    }
}

#[pyclass(module = "kdissect._core")]
pub struct Lending {
    stage: Stage<Object>,
    links: Vec<Option<Link>>, // by slot
    interfaces: Vec<Handle>,
    /// By address.
    known_interfaces: HashMap<usize, usize>,
    answers: Answers,
    python: Callbacks,
    /// Those of exchanges: answered, unacknowledged and unanswered.
    kinds: (Object, Object, Object),
    page: Option<Page>,
    receivers: Receivers,
    /// Which exchanges are selected. None: all are.
    conditions: Option<Conditions>,
    batch: Option<Py<RowBatch>>,
    /// In a process that dissects a shard: what to add to the number of a packet to get half its place.
    shift: Option<i64>,
    queue: Queue,
    /// The slot of a connection that is not here, but an exchange of which was finished just now.
    guest: Option<usize>,
    /// By API key and version.
    topic_ids: BTreeMap<(i16, i16), Ids>,
    /// The latest time in the queue so far.
    newest_ns: i64,
    at: usize,
    /// Index of a packet, since when connections wait after it, exchanges completed until then, and the slot of
    /// the connection that it has ended.
    steps: Vec<(usize, Option<i64>, usize, Option<usize>)>,
    /// Why exchanges that were queued are left, by API key and version.
    left: Reasons<(i16, i16)>,
}

#[pymethods]
impl Lending {
    /// Arguments: limits; functions and classes; and the kinds of exchanges: answered, unacknowledged, unanswered.
    #[new]
    fn new(limits: StageLimits, python: Callbacks, kinds: (Object, Object, Object)) -> Self {
        let mut stage = Stage::new(limits.into());
        stage.shard = python.shard.map(|(number, of)| Shard { number, of });
        stage.brokers = python.is_needed.as_ref().map(|_| HashSet::new());
        Lending {
            stage,
            links: Vec::new(),
            interfaces: Vec::new(),
            known_interfaces: HashMap::new(),
            answers: Answers {
                apis: BTreeMap::new(),
                introductions: Introductions::default(),
                protocols: vec![String::new(), "TLS".to_owned()], // the second is `TLS`
            },
            python,
            kinds,
            page: None,
            receivers: Receivers::default(),
            conditions: None,
            batch: None,
            shift: None,
            queue: Queue::default(),
            guest: None,
            topic_ids: BTreeMap::new(),
            newest_ns: i64::MIN,
            at: 0,
            steps: Vec::new(),
            left: Reasons::default(),
        }
    }

    /// Shows the garbage collector the functions here, through which a dissection refers to itself. It clears such
    /// a cycle elsewhere. All else that is held here is data, which refers to no dissection.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.python.introduction)?;
        visit.call(&self.python.may_open)?;
        visit.call(&self.python.refused)?;
        visit.call(&self.python.info)
    }

    /// From now on connections are analyzed, and `run` and `ended` tell of the end of each.
    fn analyze(&mut self) {
        self.stage.analyzes = true;
    }

    /// From now on `run` queues exchanges for `written`. With a `batch`, they are those of a shard, and another
    /// process puts them in order: they are queued in the order of their packets, `run` returns a step wherever
    /// connections wait since another time, and `written` adds the lines to the batch.
    fn follow(&mut self, plan: Plan, batch: Option<Py<RowBatch>>) {
        let mut page = Page::new(plan.sink);
        if batch.is_some() {
            page.max_bytes = usize::MAX; // all lines of a block come at once
        }
        self.page = Some(page);
        self.receivers = plan.receivers;
        self.conditions = plan.conditions;
        self.stage.is_queued = batch.is_none();
        self.shift = batch.is_some().then_some(0);
        self.batch = batch;
    }

    /// What to add to the number of a packet to get half its place.
    #[setter]
    fn set_shift(&mut self, shift: i64) {
        self.shift = Some(shift);
    }

    /// Number of exchanges in the queue, and bytes of their frames.
    #[getter]
    fn queued(&self) -> (usize, usize) {
        (self.queue.exchanges.len(), self.queue.bytes)
    }

    /// The first place in the queue; None if it is empty.
    #[getter]
    fn first(&self) -> Option<Order> {
        let (place, _) = self.queue.exchanges.first_key_value()?;
        Some(place.0)
    }

    /// Takes at most so many exchanges from the queue, whose place is before this one, or of those that wait if
    /// there is none, and no more after so many rows. Returns the text that it has made of them, if they are not those
    /// of a shard, the number of exchanges, and how many of them have rows; and the next exchange, after its connection,
    /// and the packet of its order, if it is not usual, or not to be taken at all (without `writes`). There may be more,
    /// unless both are missing.
    fn written<'py>(
        &mut self,
        py: Python<'py>,
        before: Option<Order>,
        max_exchanges: usize,
        max_rows: usize,
        writes: bool,
    ) -> PyResult<PyWritten<'py>> {
        let batch = self.batch.as_ref().map(|batch| batch.clone_ref(py));
        let mut batch = batch.as_ref().map(|batch| batch.borrow_mut(py));
        self.swap_text(&mut batch);
        let odd = self.write_queued(py, before, (max_exchanges, max_rows), writes, &mut batch);
        self.swap_text(&mut batch);
        let (text, Progress { exchanges, rows }) = self.take_page(py)?;
        Ok((text, exchanges, rows, odd?))
    }

    /// Finishes an exchange that Python has paired, and whose turn it is. Returns the text that it has made of it, if
    /// it is not one of a shard, and whether it is selected. None: it is left to Python, as it is without `writes`.
    /// `place`: of one of a shard.
    fn finish_paired<'py>(
        &mut self,
        exchange: &Bound<'py, PyAny>,
        place: Option<i64>,
        writes: bool,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, usize)>> {
        let py = exchange.py();
        let slot = self.guest_slot(exchange)?;
        self.pass_on(py, false)?;
        let batch = self.batch.as_ref().map(|batch| batch.clone_ref(py));
        let mut batch = batch.as_ref().map(|batch| batch.borrow_mut(py));
        self.swap_text(&mut batch);
        let key = match writes {
            true => self.write_paired(exchange, slot, place),
            false => Err(Odd),
        };
        self.swap_text(&mut batch);
        if key.is_err() {
            self.dismiss(py);
        }
        if let (Some(batch), Ok(Some(key))) = (&mut batch, &key) {
            batch.keys.extend_from_slice(key);
        }
        let (text, Progress { rows, .. }) = self.take_page(py)?;
        Ok(key.is_ok().then_some((text, rows)))
    }

    /// Lets the next exchanges of the queue, whose place is before this one, wait behind others until Python releases
    /// them (`written`): as many as keep within `room`, which is how many they are, and bytes of their frames, as long
    /// as they reveal no names and time does not go back; otherwise one. `budget`: memory for its bodies.
    /// Returns the number, the bytes, the latest completion; the topic IDs in them, and of one those with their names,
    /// or a copy, in which Python finds them; and if several have IDs, the parts.
    fn wait<'py>(
        &mut self,
        py: Python<'py>,
        before: Order,
        max_exchanges: usize,
        room: (i64, i64),
        budget: i64,
    ) -> PyResult<Option<PyWaits<'py>>> {
        self.wait_for_names(py, before, max_exchanges, room, budget)
    }

    /// Passes on what was counted of connections that are no longer here, or of all.
    fn pass_on(&mut self, py: Python<'_>, is_last: bool) -> PyResult<()> {
        if let Some(conditions) = self.conditions.as_mut().filter(|_| is_last) {
            conditions.pass_on(py)?;
        }
        let handed = self.page.as_mut().map(|page| page.settle(is_last));
        self.receivers.give(py, handed.unwrap_or_default())?;
        self.give_back(py)
    }

    /// Bytes held, including overhead.
    #[getter]
    fn held(&self) -> usize {
        self.stage.held
    }

    /// Takes the packets of a block from index `at` on, until the queue exceeds `room`: exchanges, and bytes of their
    /// frames; after them, the latest time of an exchange that Python has held.
    /// `opening`: how many connections may be opened until the next call of `take_touched`, and the number of
    /// the latest one. Returns the steps, without those of exchanges that are queued; the index of the first
    /// packet not taken; why that is so; the index after the packets to which that applies; and ends of
    /// connections that may come here after those.
    fn run<'py>(
        &mut self,
        py: Python<'py>,
        block: (u64, Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>),
        link_type: u32,
        at: usize,
        room: (usize, usize, i64),
        opening: (usize, u64),
    ) -> PyResult<PyRan<'py>> {
        self.run_block(py, block, link_type, at, room, opening)
    }

    /// What happened since the last call to connections that were opened here, by name.
    fn take_counts(&mut self) -> Vec<(Cow<'static, str>, u64)> {
        self.counts_by_name()
    }

    /// Why packets went to Python, and why exchanges that were complete here did, with API key and version; and how
    /// many since the last call.
    fn take_reasons(&mut self) -> (Vec<(&'static str, u64)>, Vec<PyLeft>) {
        self.reasons_by_name()
    }

    /// Since when connections that were opened here wait.
    #[getter]
    fn waiting_since_ns(&self) -> Option<i64> {
        self.stage.waiting_since_ns()
    }

    /// All segments up to this time have been delivered. Returns the connections opened here that Python must
    /// take.
    fn tick(&mut self, time_ns: i64) -> Vec<u64> {
        self.stage.ticked_ns = self.stage.ticked_ns.max(time_ns);
        self.stage.overdue(time_ns)
    }

    /// Connections whose end here has become final before this deadline and number.
    fn ended<'py>(&mut self, py: Python<'py>, before: (i64, u64)) -> PyResult<Vec<PyEnded<'py>>> {
        self.ended_before(py, before)
    }

    /// The capture has ended. Ends the connections that were opened here of which nothing is left to tell: their
    /// numbers and ends, and the times of their SYNs.
    fn close<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<(u64, Bound<'py, PyBytes>, i64)>> {
        let mut all = Vec::new();
        for closed in self.stage.close() {
            self.let_go(py, closed.slot)?;
            all.push((closed.ordinal, PyBytes::new(py, &closed.ends), closed.syn_ns));
        }
        Ok(all)
    }

    /// The numbers of all connections here.
    #[getter]
    fn all(&self) -> Vec<u64> {
        self.stage.all()
    }

    /// The number of the connection between these ends, if it is here.
    fn ordinal(&self, ends: &[u8]) -> Option<u64> {
        self.stage.ordinal(ends)
    }

    /// Whether the connection with this number is here.
    fn has(&self, ordinal: u64) -> bool {
        self.stage.slot(ordinal).is_some()
    }

    /// Takes a connection. Returns whether that succeeded: not if there was a panic.
    fn lend(&mut self, py: Python<'_>, state: ConnectionState) -> PyResult<bool> {
        match catch_unwind(AssertUnwindSafe(|| self.lent(py, state))) {
            Ok(lent) => lent.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    /// Gives a connection back. None: there was a panic, and it is gone.
    fn recall(&mut self, py: Python<'_>, ordinal: u64) -> PyResult<Option<ConnectionState>> {
        match catch_unwind(AssertUnwindSafe(|| self.recalled(py, ordinal))) {
            Ok(recalled) => recalled.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// No connection between these ends will come here, until `readmit`.
    fn ignore(&mut self, ends: Vec<u8>) {
        self.stage.ignore(ends.into());
    }

    fn readmit(&mut self, ends: &[u8]) {
        self.stage.readmit(ends);
    }

    /// The connections with segments since the last call: their numbers; the objects of those that are lent, with
    /// their clocks; and whether they are half open. Least recently used first.
    fn take_touched<'py>(&mut self, py: Python<'py>) -> Vec<(u64, Option<Bound<'py, PyAny>>, i64, bool)> {
        let touched = self.stage.take_touched().into_iter();
        touched
            .map(|(slot, ordinal, now_ns)| {
                let duplex = match self.links.get(slot).and_then(Option::as_ref) {
                    Some(Link {
                        side: Holder::Lent(duplex, ..),
                        ..
                    }) => Some(duplex.bind(py).clone()),
                    _ => None,
                };
                (ordinal, duplex, now_ns, self.stage.is_half_open(slot))
            })
            .collect()
    }
}
