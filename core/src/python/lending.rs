//! The class `kdissect._core.Lending`: a [`Stage`] for kdissect/exchanges/lending.py.

mod paired;

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::panic::{catch_unwind, AssertUnwindSafe};

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::exchanges::connection::{
    request_header, Apis, Bare, BeforeAcks, Connection, Finished, Frame, Header, Limits, Message, Opening,
    Order, Outcome, Packet, Request, Usual, API_VERSIONS, CLIENT,
};
use crate::exchanges::stage::{reversed, Ended, Stage, StageCounts, Verdict};
use crate::exchanges::topic_names::{TopicIds, TopicRefs};
use crate::net::analysis::Analysis;
use crate::net::packet::segment;
use crate::net::shard::Shard;
use crate::python::handle::{answer, Object};
use crate::python::line::{BodiesForm, Names, TopicStructForms};
use crate::python::merge::RowBatch;
use crate::python::opener::keep_interrupt;
use crate::python::places::Places;
use crate::python::plan::{Conditions, Plan, Receivers};
use crate::python::state::{
    direction, BareSegment, ConnectionState, KafkaState, PartialFrame, Place, RecordState, StreamState,
    TcpState, UnreadState,
};
use crate::reasons::Reasons;
use crate::runs::merge::{self, KEY};
use crate::sinks::conditions::{Candidate, Decision};
use crate::sinks::facts::{Answered, Constants, Handle, Known, Unacknowledged};
use crate::sinks::page::Page;
use crate::sinks::sink::Progress;
use crate::{guarded, Odd, Why};

/// Most exchanges made at a time: the garbage collector looks at more of them again and again.
const BATCH: usize = 64;
/// Packets that may bring a connection here are not kept from it for longer.
const RUN: usize = 64;
/// Topic IDs in a run of exchanges that wait for names: each is compared with all.
const RUN_IDS: usize = 256;
/// Sequence numbers that are farther back look as if they were ahead.
const LONG: u32 = 1 << 30;
/// Most exchanges that are queued at a time.
const PAGE: usize = 256;
/// Interfaces known at a time.
const INTERFACES: usize = 65_536;
/// Introductions known at a time, and the longest one.
const INTRODUCTIONS: usize = 1024;
const INTRODUCTION_BYTES: usize = 1024;
/// What is kept at a time of what Python says of a connection's exchanges, and the longest client ID in it.
const MATCHES: usize = 32;
const MATCH_BYTES: usize = 64;
const CORRELATION_ID: std::ops::Range<usize> = 4..8;

/// What is known of a client, by the names of attributes.
const IDENTITY: [&str; 4] = [
    "client_software_name",
    "client_software_version",
    "principal",
    "sasl_mechanism",
];

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

/// What Python says of an API in one version.
struct SharedApi {
    name: Object,
    usual: Usual,
}

/// Where topic IDs are in exchanges of an API in one version.
enum Ids {
    Nowhere,
    /// Python finds them.
    Python,
    /// And the bytes after the correlation ID of a response.
    Here(Box<TopicIds>, Vec<u8>),
}

/// `TopicIdPlan` of kdissect/exchanges/undecoded.py.
#[derive(FromPyObject)]
struct TopicIdPlan<'py> {
    bodies: Option<BodiesForm<'py>>,
    structs: (TopicStructForms, TopicStructForms),
    tags: Vec<u8>,
}

/// APIs by key and version; None: left to Python.
type SharedApis = BTreeMap<(i16, i16), Option<SharedApi>>;

/// What Python says of a request: whether a connection is recognized by it if it is the first; and name and
/// version of the client's software.
type Introduction = (bool, Handle, Handle);

/// What Python says of requests, by their bytes without correlation ID.
#[derive(Default)]
struct Introductions {
    known: HashMap<Box<[u8]>, Introduction>,
}

/// Python's side of a connection that is here.
struct Link {
    side: Holder,
    /// Of the client's segments.
    ends: Box<[u8]>,
    /// Shared by its exchanges, once it is needed.
    info: PyOnceLock<Handle>,
    /// Software name and version, principal, SASL mechanism.
    identity: [Handle; 4],
    /// Software name and version as of the latest exchange; those in the queue may have earlier ones.
    software: [Handle; 2],
    client_id: Option<(Box<[u8]>, Py<PyString>)>,
    /// Texts that its exchanges share, once they are needed.
    shared: Option<Constants>,
    /// Which of its exchanges match, as far as Python was asked.
    matches: Vec<Match>,
    /// Its number in keys, once one needs it.
    number: Option<i64>,
    /// Exchanges in the queue, and the order of the latest one.
    queued: usize,
    latest: Order,
    /// Exchanges that have left the order and wait for names.
    waiting: usize,
    is_released: bool,
}

/// What Python says of exchanges of a kind, API, version and client, as bits.
struct Match {
    is_answered: bool,
    api_key: i16,
    api_version: i16,
    client_id: Option<Box<[u8]>>,
    results: u64,
}

enum Holder {
    /// Its objects, duplex and connection, and which side is the client.
    Lent(Object, Object, usize),
    /// It was opened here: time of the SYN, and its number.
    Opened(i64, u64),
    /// It is not here.
    Python,
}

/// Exchanges of all connections in order of completion, as in kdissect/exchanges/ordering.py; and those that have
/// left the order and wait for the names of topics, until Python releases them.
#[derive(Default)]
struct Queue {
    /// By arrival if they have the same place. In boxes, because a tree moves its values.
    exchanges: BTreeMap<(Order, u64), Box<Finished<Object>>>,
    arrivals: u64,
    /// Of their frames.
    bytes: usize,
    waiting: VecDeque<(Order, Box<Finished<Object>>)>,
}

impl Queue {
    fn push(&mut self, finished: Finished<Object>, order: Order) {
        self.bytes += finished.held();
        self.exchanges.insert((order, self.arrivals), Box::new(finished));
        self.arrivals += 1;
    }

    /// The first, if its place is before this one.
    fn first(&self, before: Order) -> Option<&Finished<Object>> {
        let ((order, _), finished) = self.exchanges.first_key_value()?;
        (*order < before).then_some(finished)
    }

    /// Removes the first, if its place is before this one.
    fn pop(&mut self, before: Order) -> Option<(Order, Box<Finished<Object>>)> {
        self.first(before)?;
        let ((order, _), finished) = self.exchanges.pop_first()?;
        self.bytes -= finished.held();
        Some((order, finished))
    }
}

/// See `run`.
type PyRan<'py> = (Vec<PyStep<'py>>, usize, u8, usize, Vec<Bound<'py, PyBytes>>);

/// See `wait`.
type PyWaits<'py> = (
    usize,
    usize,
    i64,
    Option<(Vec<String>, Vec<(String, String)>)>,
    Option<Bound<'py, PyAny>>,
    Vec<PyPart<'py>>,
);

/// Exchanges that wait, as `wait` returns them: several only if they have no topic IDs.
type PyPart<'py> = (usize, usize, i64, Bound<'py, PyList>);

/// See `written`.
type PyWritten<'py> = (
    Bound<'py, PyBytes>,
    usize,
    usize,
    Option<(Bound<'py, PyTuple>, u64)>,
);

/// A connection whose end here has become final: its number; what is remembered of it, an `Ended` of
/// kdissect/net/connection.py; time of the SYN if it was opened here; and its state if Python has objects of it, or is
/// told of its end.
type PyEnded<'py> = (
    u64,
    (Bound<'py, PyBytes>, i64, (PyNumbers, PyNumbers)),
    Option<i64>,
    Option<ConnectionState>,
);

/// The first and the next sequence number of a stream, whose SYN was captured.
type PyNumbers = Option<(u32, u32)>;

/// See `take_reasons`.
type PyLeft = (&'static str, i16, i16, u64);

/// A packet that completed exchanges, or ended a connection of which that is to be told, or after which connections
/// wait since another time: its index; since when; the exchanges; the connection.
type PyStep<'py> = (usize, Option<i64>, Bound<'py, PyList>, Option<ConnectionState>);

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

/// An outstanding request of Python.
#[derive(FromPyObject)]
struct PythonRequest<'py> {
    correlation_id: i32,
    time_ns: i64,
    first_frame: PythonFrame<'py>,
    anomalies: Bound<'py, PyAny>,
    retransmitted_ns: Option<i64>,
}

/// `Frame` of kdissect/model.py.
#[derive(FromPyObject)]
struct PythonFrame<'py> {
    data: Bound<'py, PyBytes>,
    size: usize,
    packet: u64,
    interface: Bound<'py, PyAny>,
    start_ns: i64,
    end_ns: i64,
}

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

#[pyclass(module = "kdissect._core")]
pub struct Lending {
    stage: Stage<Object>,
    links: Vec<Option<Link>>, // by slot
    interfaces: Vec<Handle>,
    /// By address.
    known_interfaces: HashMap<usize, usize>,
    apis: SharedApis,
    introductions: Introductions,
    /// Those that are not Kafka; the first is none.
    protocols: Vec<String>,
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

/// Functions and classes of Python.
#[derive(FromPyObject)]
struct Callbacks {
    /// What is usual, see lending.py.
    usual: Object,
    /// From a request to its [`Introduction`].
    introduction: Object,
    /// Whether a connection may open between these ends.
    may_open: Object,
    /// From API key and version to whether requests of it are known.
    is_known: Object,
    /// From the first bytes of a side, and whether they are the first of all and the client's, to a protocol.
    refused: Object,
    /// Number of the shard of connections to take, and of shards. None: there is only one.
    shard: Option<(u32, u32)>,
    /// From API key and version to whether exchanges are passed on. None: all are.
    is_needed: Option<Object>,
    /// From ends and time of a SYN, and the connection's number, to what its exchanges share.
    info: Object,
    /// From API key and version to a [`TopicIdPlan`]. None: there are no topic IDs.
    topic_ids: Object,
    exchange: Object,
    frame: Object,
    request_header: Object,
    /// `tuple.__new__`.
    new: Object,
}

struct Asking<'a, 'py> {
    py: Python<'py>,
    apis: &'a mut SharedApis,
    introductions: &'a mut Introductions,
    protocols: &'a mut Vec<String>,
    python: &'a Callbacks,
}

impl PythonFrame<'_> {
    /// As it is here. `interface`: the number of its own.
    fn frame(&self, interface: usize) -> Frame {
        Frame {
            data: self.data.as_bytes().to_vec(),
            size: self.size,
            packet: self.packet,
            interface,
            start_ns: self.start_ns,
            end_ns: self.end_ns,
        }
    }
}

impl Introductions {
    fn of<'py>(&mut self, python: &Callbacks, frame: &Bound<'py, PyBytes>) -> PyResult<Introduction> {
        let py = frame.py();
        let mut key = frame.as_bytes().to_vec();
        let is_kept = key.len() <= INTRODUCTION_BYTES;
        if let Some(id) = key.get_mut(CORRELATION_ID).filter(|_| is_kept) {
            id.fill(0);
            if let Some(known) = self.known.get(&key[..]) {
                return Ok(known.clone());
            }
        }
        let introduction: Introduction = python.introduction.bind(py).call1((frame,))?.extract()?;
        if is_kept {
            if self.known.len() >= INTRODUCTIONS {
                self.known.clear();
            }
            self.known.insert(key.into(), introduction.clone());
        }
        Ok(introduction)
    }
}

impl Ids {
    fn of(py: Python<'_>, python: &Callbacks, api: (i16, i16)) -> Self {
        let plan = || -> PyResult<Option<Ids>> {
            let plan: Option<TopicIdPlan<'_>> = python.topic_ids.bind(py).call1(api)?.extract()?;
            Ok(match plan {
                None => Some(Ids::Nowhere),
                Some(TopicIdPlan {
                    bodies,
                    structs,
                    tags,
                }) => match bodies {
                    Some(bodies) => Some(Ids::Here(
                        Names::default().topic_ids(bodies, structs)?.into(),
                        tags,
                    )),
                    None => None,
                },
            })
        };
        plan().ok().flatten().unwrap_or(Ids::Python)
    }

    /// Odd: Python finds them.
    fn refs(&self, finished: &Finished<Object>, budget: i64) -> Result<TopicRefs, Odd> {
        let (ids, tags, header, request) = match (self, &finished.request.message) {
            (Ids::Nowhere, _) => return Ok(TopicRefs::default()),
            (Ids::Here(ids, tags), Message::Frame(header, request)) => (ids, tags, header, request),
            _ => return Err(Odd),
        };
        let request = request.data.get(header.body_pos..).ok_or(Odd)?;
        let response = match &finished.outcome {
            Outcome::Answered(frame) => Some(frame.response_body(tags)?),
            _ => None,
        };
        guarded(|| ids.refs(request, response, budget))
    }
}

impl Apis for Asking<'_, '_> {
    fn usual(&mut self, api_key: i16, api_version: i16) -> Option<Usual> {
        let (py, python) = (self.py, self.python);
        let api = self.apis.entry((api_key, api_version)).or_insert_with(|| {
            let (name, has_tags, before): (Object, bool, u8) =
                answer(py, &python.usual, (api_key, api_version))?;
            let is_needed = match &python.is_needed {
                Some(is_needed) => answer(py, is_needed, (api_key, api_version))?,
                None => true,
            };
            let before_acks = match before {
                0 => BeforeAcks::Nothing,
                1 => BeforeAcks::Text,
                _ => BeforeAcks::CompactText,
            };
            Some(SharedApi {
                name,
                usual: Usual {
                    has_tags,
                    before_acks,
                    is_needed,
                },
            })
        });
        api.as_ref().map(|api| api.usual)
    }

    fn is_first(&mut self, frame: &[u8]) -> bool {
        let frame = PyBytes::new(self.py, frame);
        let introduction = self.introductions.of(self.python, &frame);
        introduction
            .inspect_err(|error| keep_interrupt(self.py, error))
            .is_ok_and(|(is_first, ..)| is_first)
    }

    fn refused(&mut self, payload: &[u8], begins: bool, ends: &[u8]) -> Option<usize> {
        let [payload, ends] = [payload, ends].map(|each| PyBytes::new(self.py, each));
        let protocol: Option<String> = answer(self.py, &self.python.refused, (payload, begins, ends))?;
        let protocol = protocol?;
        let known = self.protocols.iter().position(|each| *each == protocol);
        known.or_else(|| {
            self.protocols.push(protocol);
            Some(self.protocols.len() - 1)
        })
    }

    fn is_known(&mut self, api_key: i16, api_version: i16) -> bool {
        answer(self.py, &self.python.is_known, (api_key, api_version)).unwrap_or(true)
    }

    fn may_open(&mut self, ends: &[u8]) -> bool {
        let ends = PyBytes::new(self.py, ends);
        answer(self.py, &self.python.may_open, (ends,)).unwrap_or(false)
    }
}

#[pymethods]
impl Lending {
    /// Arguments: limits; functions and classes; and the kinds of exchanges: answered, unacknowledged, unanswered.
    #[new]
    fn new(limits: StageLimits, python: Callbacks, kinds: (Object, Object, Object)) -> Self {
        let mut stage = Stage::new(Limits {
            frame_bytes: limits.frame_bytes,
            pending_requests: limits.pending_requests,
            pending_bytes: limits.pending_bytes,
            pending_age_ns: limits.pending_age_ns,
            connection_idle_ns: limits.connection_idle_ns,
            reorder_window_ns: limits.reorder_window_ns,
            reach: limits.reach,
        });
        stage.shard = python.shard.map(|(number, of)| Shard { number, of });
        stage.brokers = python.is_needed.as_ref().map(|_| HashSet::new());
        Lending {
            stage,
            links: Vec::new(),
            interfaces: Vec::new(),
            known_interfaces: HashMap::new(),
            apis: BTreeMap::new(),
            introductions: Introductions::default(),
            protocols: vec![String::new(), "TLS".to_owned()], // the second is `TLS`
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
        let max_exchanges = max_exchanges.min(usize::try_from(room.0).unwrap_or(0));
        let max_bytes = usize::try_from(room.1).unwrap_or(0);
        let (mut exchanges, mut bytes, mut completed_ns) = (0, 0, i64::MIN);
        let mut ids: Vec<String> = Vec::new();
        let mut parts: Vec<PyPart<'py>> = Vec::new();
        while let Some(finished) = self.queue.first(before) {
            let (size, time_ns) = (finished.held(), finished.order().0);
            let of_api = match &finished.request.message {
                Message::Frame(header, _) => self
                    .topic_ids
                    .entry((header.api_key, header.api_version))
                    .or_insert_with_key(|api| Ids::of(py, &self.python, *api)),
                Message::Object(_) => &Ids::Python,
            };
            let refs = of_api.refs(finished, budget);
            let may_join =
                |refs: &TopicRefs| refs.learned.is_empty() && ids.len() + refs.ids.len() <= RUN_IDS;
            let is_alone = !refs.as_ref().is_ok_and(may_join)
                || exchanges >= max_exchanges
                || bytes + size > max_bytes
                || time_ns < completed_ns;
            if is_alone && exchanges > 0 {
                break;
            }
            let copied = refs.is_err().then(|| copy(py, finished));
            self.hold(before);
            (exchanges, bytes, completed_ns) = (exchanges + 1, bytes + size, time_ns);
            if is_alone {
                let copied = match copied {
                    Some(copied) => Some(self.finish(py, copied)?.get_item(2)?),
                    None => None,
                };
                let refs = refs.ok().map(|refs| (refs.ids, refs.learned));
                return Ok(Some((exchanges, bytes, completed_ns, refs, copied, Vec::new())));
            }
            let own = refs.map(|refs| refs.ids).unwrap_or_default();
            for id in &own {
                if !ids.contains(id) {
                    ids.push(id.clone());
                }
            }
            match parts.last_mut() {
                Some((count, of_part, until_ns, before)) if own.is_empty() && before.is_empty() => {
                    (*count, *of_part, *until_ns) = (*count + 1, *of_part + size, time_ns);
                }
                _ => parts.push((1, size, time_ns, PyList::new(py, own)?)),
            }
        }
        if parts.len() == 1 {
            parts.clear();
        }
        let refs = (!ids.is_empty()).then_some((ids, Vec::new()));
        Ok((exchanges > 0).then_some((exchanges, bytes, completed_ns, refs, None, parts)))
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

    /// What happened since the last call to connections that were opened here, by name.
    fn take_counts(&mut self) -> Vec<(Cow<'static, str>, u64)> {
        let StageCounts {
            connections,
            segments_after_close,
            repeated_segments,
            retransmitted_bytes,
            closed_end,
            closed_fin,
            closed_reset,
            kafka,
            refused,
            no_server_hello,
        } = std::mem::take(&mut self.stage.counts);
        let counts = [
            ("connections", connections),
            ("segments_after_close", segments_after_close),
            ("repeated_segments", repeated_segments),
            ("retransmitted_bytes", retransmitted_bytes),
            ("closed_end", closed_end),
            ("closed_fin", closed_fin),
            ("closed_reset", closed_reset),
            ("connections: Kafka", kafka),
            ("TLS connections without a ServerHello", no_server_hello),
        ];
        let refused = refused.into_iter().map(|(protocol, count)| {
            (
                Cow::Owned(format!("connections: {}", self.protocols[protocol])),
                count,
            )
        });
        let counts = counts.into_iter().filter(|(_, count)| *count > 0);
        counts
            .map(|(name, count)| (Cow::Borrowed(name), count))
            .chain(refused)
            .collect()
    }

    /// Why packets went to Python, and why exchanges that were complete here did, with API key and version; and how
    /// many since the last call.
    fn take_reasons(&mut self) -> (Vec<(&'static str, u64)>, Vec<PyLeft>) {
        let packets = self.stage.reasons.take();
        let left = self.left.take();
        (
            packets.map(|((why, ()), count)| (why.text(), count)).collect(),
            left.map(|((why, (api_key, api_version)), count)| (why.text(), api_key, api_version, count))
                .collect(),
        )
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

    /// The capture has ended. Ends the connections that were opened here of which nothing is left to tell: their
    /// numbers and ends, and the times of their SYNs.
    fn close<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<(u64, Bound<'py, PyBytes>, i64)>> {
        let mut all = Vec::new();
        for (slot, ordinal, ends, syn_ns) in self.stage.close() {
            self.let_go(py, slot)?;
            all.push((ordinal, PyBytes::new(py, &ends), syn_ns));
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

impl Lending {
    /// Takes what the sink has made since the last time. Python gets all that its next exchange depends on.
    fn take_page<'py>(&mut self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>, Progress)> {
        let Some(page) = self.page.as_mut() else {
            return Ok((PyBytes::new(py, b""), Progress::default()));
        };
        let (handed, progress) = page.take();
        let text = PyBytes::new(py, &page.text);
        page.text.clear();
        self.receivers.give(py, handed)?;
        self.give_back(py)?;
        Ok((text, progress))
    }

    /// Gives back what connections remember that are no longer here, as far as conditions depend on it.
    fn give_back(&mut self, py: Python<'_>) -> PyResult<()> {
        self.conditions
            .as_mut()
            .map_or(Ok(()), |conditions| conditions.give_back(py))
    }

    /// The number that stands for an interface. None: there are too many, until all connections have gone.
    fn interface(&mut self, interface: &Bound<'_, PyAny>) -> Option<usize> {
        let address = interface.as_ptr() as usize;
        if let Some(&known) = self.known_interfaces.get(&address) {
            return Some(known);
        }
        if self.interfaces.len() >= INTERFACES {
            if self.links.iter().any(Option::is_some) {
                return None;
            }
            self.interfaces.clear();
            self.known_interfaces.clear();
        }
        self.known_interfaces.insert(address, self.interfaces.len());
        self.interfaces.push(Handle::of(interface.clone()));
        Some(self.interfaces.len() - 1)
    }

    /// An outstanding request from Python, as if it had come here, if it is usual.
    fn request(&mut self, py: Python<'_>, exchange: Object) -> PyResult<Request<Object>> {
        let request: PythonRequest<'_> = exchange.extract(py)?;
        let (frame, data) = (&request.first_frame, request.first_frame.data.as_bytes());
        let mut usual = None;
        if request.retransmitted_ns.is_none() && !request.anomalies.is_truthy()? {
            if let Some(interface) = self.interface(&frame.interface) {
                let mut asking = Asking {
                    py,
                    apis: &mut self.apis,
                    introductions: &mut self.introductions,
                    protocols: &mut self.protocols,
                    python: &self.python,
                };
                if let Ok((header, true)) = request_header(data, &mut asking) {
                    usual = Some(Message::Frame(header, frame.frame(interface)));
                }
            }
        }
        Ok(Request {
            correlation_id: request.correlation_id,
            time_ns: request.time_ns,
            bytes: data.len(),
            message: usual.unwrap_or(Message::Object(exchange)),
            retransmitted_ns: None,
        })
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
            let mut asking = Asking {
                py,
                apis: &mut self.apis,
                introductions: &mut self.introductions,
                protocols: &mut self.protocols,
                python: &self.python,
            };
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

    /// Queues an exchange for `written`.
    fn enqueue(&mut self, py: Python<'_>, finished: Finished<Object>, order: Order) {
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
    fn hold(&mut self, before: Order) {
        let Some((order, finished)) = self.queue.pop(before) else {
            return;
        };
        if let Some(link) = self.links.get_mut(finished.slot).and_then(Option::as_mut) {
            link.queued -= 1;
            link.waiting += 1;
        }
        self.queue.waiting.push_back((order, finished));
    }

    /// Keeps Python's side of a connection that has come here.
    fn link(
        &mut self,
        py: Python<'_>,
        slot: usize,
        side: Holder,
        ends: Box<[u8]>,
        info: Option<Handle>,
        identity: [Handle; 4],
    ) {
        if self.links.len() <= slot {
            self.links.resize_with(slot + 1, || None);
        }
        let shared = PyOnceLock::new();
        if let Some(info) = info {
            _ = shared.set(py, info); // it is empty
        }
        self.links[slot] = Some(Link {
            side,
            ends,
            info: shared,
            software: [0, 1].map(|index| identity[index].clone()),
            identity,
            client_id: None,
            shared: None,
            matches: Vec::new(),
            number: None,
            queued: 0,
            latest: (0, 0),
            waiting: 0,
            is_released: false,
        });
    }

    /// The number of a connection in keys: its ID and the lowest bits of its ordinal, as in
    /// kdissect/runs/worker.py.
    fn number(&mut self, py: Python<'_>, slot: usize) -> PyResult<i64> {
        let Some(link) = self.links.get_mut(slot).and_then(Option::as_mut) else {
            return Ok(0);
        };
        if let Some(number) = link.number {
            return Ok(number);
        }
        let (id, ordinal): (String, i64) = link.info(py, &self.python)?.bind(py).getattr("key")?.extract()?;
        let number = i64::from_str_radix(&id, 16)? << 15 | ordinal & 0x7FFF;
        link.number = Some(number);
        Ok(number)
    }

    /// Exchanges the texts of a batch and of the page, which then adds to that of the batch, or no longer does.
    fn swap_text(&mut self, batch: &mut Option<PyRefMut<'_, RowBatch>>) {
        if let (Some(page), Some(batch)) = (&mut self.page, batch) {
            std::mem::swap(&mut page.text, &mut batch.text);
        }
    }

    /// See `written`.
    fn write_queued<'py>(
        &mut self,
        py: Python<'py>,
        before: Option<Order>,
        (max_exchanges, max_rows): (usize, usize),
        writes: bool,
        batch: &mut Option<PyRefMut<'_, RowBatch>>,
    ) -> PyResult<Option<(Bound<'py, PyTuple>, u64)>> {
        self.dismiss(py);
        self.pass_on(py, false)?;
        for _ in 0..max_exchanges {
            let conditions = self.conditions.as_ref();
            if self.page.as_ref().is_none_or(|page| page.is_full(max_rows))
                || conditions.is_some_and(Conditions::must_give_back)
            {
                break;
            }
            let next = match before {
                Some(before) => self.queue.pop(before),
                None => self.queue.waiting.pop_front(),
            };
            let Some((order, finished)) = next else {
                break;
            };
            let slot = finished.slot;
            let mut is_written = false;
            if writes {
                self.learn(py, &finished, false)?;
                let start = self.page.as_ref().map_or(0, |page| page.text.len());
                let written = self.write(py, &finished);
                is_written = written.is_ok();
                if let Err(odd) = written {
                    self.left.note(odd, finished.request.api());
                }
                if let (true, Some(shift), Some(batch)) = (is_written, self.shift, &mut *batch) {
                    let size = self.page.as_ref().map_or(0, |page| page.text.len()) - start;
                    let packet = i64::try_from(finished.order().1).unwrap_or(i64::MAX);
                    let place = packet.saturating_add(shift).saturating_mul(2);
                    let key = key(&finished, place, self.number(py, slot)?, size);
                    batch.keys.extend_from_slice(&key);
                }
            }
            if !writes {
                self.left.note(Why::Nameless.odd(), finished.request.api());
            }
            let mut odd = None;
            if !is_written {
                self.leave(py, slot);
                if let Some(link) = self.links.get_mut(slot).and_then(Option::as_mut) {
                    link.shared = None; // it may name the cluster
                }
                odd = Some((self.finish(py, *finished)?, order.1));
            }
            if let Some(link) = self.links.get_mut(slot).and_then(Option::as_mut) {
                match before {
                    Some(_) => link.queued -= 1,
                    None => link.waiting -= 1,
                }
            }
            self.forget(py, slot);
            if odd.is_some() {
                return Ok(odd);
            }
        }
        Ok(None)
    }

    /// Writes the line of an exchange.
    fn write(&mut self, py: Python<'_>, finished: &Finished<Object>) -> Result<(), Odd> {
        let Message::Frame(header, request) = &finished.request.message else {
            return Err(Why::Lent.odd());
        };
        match finished.outcome {
            Outcome::Answered(_) => (),
            Outcome::Unacknowledged if self.shift.is_none() => (), // otherwise its key has another place
            Outcome::Unanswered(..) if self.shift.is_none() && self.conditions.is_none() => (),
            _ => return Err(Why::Outcome.odd()),
        }
        let page = self.page.as_mut().ok_or(Odd)?;
        let conditions = self.conditions.as_ref();
        let splits = conditions.is_some_and(|conditions| conditions.criteria.splitters.is_some());
        if finished.request.retransmitted_ns.is_some() && (splits || page.has_parts()) {
            return Err(Why::Retransmitted.odd());
        }
        let link = self
            .links
            .get_mut(finished.slot)
            .and_then(Option::as_mut)
            .ok_or(Odd)?;
        let python = &self.python;
        let response = match &finished.outcome {
            Outcome::Answered(response) => Some(response),
            _ => None,
        };
        let mut decision = Decision {
            is_selected: true,
            ..Decision::default()
        };
        if let Some(conditions) = &mut self.conditions {
            let of_client = link.of_client(py, python, conditions, header, (request, response.is_some()));
            let candidate = Candidate {
                number: finished.number,
                header,
                request,
                response,
                completed_ns: finished.order().0,
                of_client: of_client.map_err(|_| Odd)?,
                info: match &conditions.criteria.splitters {
                    Some(_) => Some(link.info(py, python).map_err(|_| Odd)?),
                    None => None,
                },
            };
            conditions.note_time(conditions.criteria.time_ns(&candidate));
            decision = conditions.criteria.decide(&candidate)?;
        }
        let Decision {
            is_selected,
            leaves_errors,
            ..
        } = decision;
        let parts = decision.split.as_ref().map(|(parts, _)| *parts);
        let shared = link.shared.take();
        let known = &KnownLink {
            py,
            link,
            python,
            is_same: Cell::new(true),
        };
        let shared = match shared {
            Some(shared) => shared,
            None => page.shared(known)?,
        };
        let interface = self.interfaces.get(request.interface).ok_or(Odd)?;
        let written = if let Some(response) = response {
            let answered = Answered {
                known,
                interface,
                number: finished.number,
                header,
                request,
                response,
                is_selected,
                leaves_errors,
                parts,
            };
            page.add(&answered, &shared)
        } else {
            let unacknowledged = Unacknowledged {
                known,
                interface,
                number: finished.number,
                header,
                request,
                completed_ns: finished.order().0,
                ended: match finished.outcome {
                    Outcome::Unanswered(_, fin) => Some(fin),
                    _ => None,
                },
                is_selected,
            };
            page.add_unacknowledged(&unacknowledged, &shared)
        };
        let is_same = known.is_same.get();
        link.shared = Some(shared).filter(|_| is_same);
        if let (Ok(()), Some(conditions)) = (written, &mut self.conditions) {
            conditions.note(py, link.info.get(py), decision);
        }
        written
    }

    /// Learns from a finished ApiVersions exchange which software the client is: as it `is_queued`, or is taken.
    fn learn(&mut self, py: Python<'_>, finished: &Finished<Object>, is_queued: bool) -> PyResult<()> {
        let Message::Frame(header, frame) = &finished.request.message else {
            return Ok(());
        };
        if header.api_key != API_VERSIONS {
            return Ok(());
        }
        let (_, name, version_sent) = self
            .introductions
            .of(&self.python, &PyBytes::new(py, &frame.data))?;
        if let Some(link) = self.links.get_mut(finished.slot).and_then(Option::as_mut) {
            let [software, version, ..] = &mut link.identity;
            let known = if is_queued {
                link.software.each_mut()
            } else {
                [software, version]
            };
            for (known, new) in known.into_iter().zip([name, version_sent]) {
                if !new.bind(py).is_none() {
                    *known = new;
                    link.shared = None;
                    link.matches.clear();
                }
            }
        }
        Ok(())
    }

    /// See `lend`.
    fn lent(&mut self, py: Python<'_>, state: ConnectionState) -> PyResult<()> {
        let missing = || PyKeyError::new_err(state.ordinal);
        let duplex = state.duplex.ok_or_else(missing)?;
        let tcp = state.tcp;
        if let Some(unread) = state.unread {
            return self.lent_unread(py, state.ordinal, duplex, tcp, &unread);
        }
        let kafka = state.kafka.ok_or_else(missing)?;
        let pairing = kafka.pairing;
        let of_client = |name| Ok::<_, PyErr>(Handle::of(kafka.info.bind(py).getattr(name)?));
        let [software, version, principal, mechanism] = IDENTITY.map(of_client);
        let connection = duplex.getattr(py, "connection")?;
        let may_end = tcp.streams.0.first.is_some() && tcp.streams.1.first.is_some();
        let waiting = pairing.waiting.into_iter().map(|each| self.request(py, each));
        let waiting = waiting.collect::<PyResult<VecDeque<_>>>()?;
        let (client_records, broker_records) = state.records.unzip();
        let client = direction(py, tcp.streams.0, kafka.partial.0, client_records)?;
        let broker = direction(py, tcp.streams.1, kafka.partial.1, broker_records)?;
        let analysis = tcp.analysis.and_then(|state| Analysis::of(&state, tcp.client));
        let here = Connection {
            opening: may_end.then_some(Opening {
                handshake: None,
                reset: None,
                due_ns: None,
                idle_ns: i64::MAX, // Python looks after that
            }),
            directions: [client, broker],
            now_ns: tcp.now_ns,
            last_ns: kafka.last_ns,
            is_answered: kafka.is_answered,
            completed: pairing.completed,
            first_id: pairing.first_id,
            last_id: pairing.last_id,
            steady: pairing.steady,
            bytes: waiting.iter().map(|each| each.bytes).sum(),
            waiting,
            unacknowledged: pairing.unacknowledged.into(),
            taken: 0,
            has_retransmissions: false,
            analysis: analysis.map(Box::new),
            unread: None,
        };
        let ends = [tcp.ends.clone(), reversed(&tcp.ends)].map(Box::from);
        let slot = self.stage.admit(here, state.ordinal, ends);
        let identity = [software?, version?, principal?, mechanism?];
        let side = Holder::Lent(duplex, connection, tcp.client);
        let info = Handle::of(kafka.info.into_bound(py));
        self.link(py, slot, side, tcp.ends.into(), Some(info), identity);
        Ok(())
    }

    /// Takes a connection whose bytes are not read; the first side stands for its client.
    fn lent_unread(
        &mut self,
        py: Python<'_>,
        ordinal: u64,
        duplex: Object,
        tcp: TcpState,
        unread: &UnreadState,
    ) -> PyResult<()> {
        let connection = duplex.getattr(py, "connection")?;
        let one = direction(py, tcp.streams.0, PartialFrame::default(), None)?;
        let two = direction(py, tcp.streams.1, PartialFrame::default(), None)?;
        let analysis = tcp.analysis.and_then(|state| Analysis::of(&state, tcp.client));
        let mut here = Connection::unread([one, two], unread.unread());
        here.now_ns = tcp.now_ns;
        here.last_ns = unread.last_ns;
        here.analysis = analysis.map(Box::new);
        let ends = [tcp.ends.clone(), reversed(&tcp.ends)].map(Box::from);
        let slot = self.stage.admit(here, ordinal, ends);
        let identity = [(); 4].map(|()| Handle::of(py.None().into_bound(py)));
        let side = Holder::Lent(duplex, connection, tcp.client);
        self.link(py, slot, side, tcp.ends.into(), None, identity);
        Ok(())
    }

    /// See `recall`.
    fn recalled(&mut self, py: Python<'_>, ordinal: u64) -> PyResult<ConnectionState> {
        let missing = || PyKeyError::new_err(ordinal);
        let slot = self.stage.slot(ordinal).ok_or_else(missing)?;
        let connection = self.stage.release(slot).ok_or_else(missing)?;
        let link = self.links.get_mut(slot).and_then(Option::take);
        let mut link = link.ok_or_else(missing)?;
        let tcp = self.tcp_state(py, &link, &connection, true);
        let records = connection.directions.each_ref().map(|each| {
            each.records.as_ref().map(|records| RecordState {
                opener: None,
                buffer: records.buffer.clone(),
                recent: records.recent.iter().copied().collect(),
            })
        });
        let [client_records, broker_records] = records;
        let (taken, is_kafka) = (connection.taken, connection.first_id.is_some());
        let unread = self.unread_state(&connection, None);
        let kafka = is_kafka.then(|| self.kafka_state(py, &mut link, connection));
        let kafka = kafka.transpose()?;
        if let Some(KafkaState { info, .. }) = &kafka {
            let software = if self.page.is_some() {
                &link.software[..]
            } else {
                &link.identity[..2]
            };
            for (name, known) in IDENTITY.iter().zip(software) {
                info.setattr(py, *name, known)?;
            }
        }
        let state = ConnectionState {
            ordinal,
            duplex: link.duplex(py),
            tcp,
            kafka,
            records: client_records.zip(broker_records),
            taken,
            latest: (link.queued > 0).then_some(link.latest),
            unread,
        };
        link.is_released = true;
        self.links[slot] = Some(link);
        self.forget(py, slot);
        Ok(state)
    }

    /// A connection that has ended here; without its messages, unless its end is to be reported.
    fn state_at_end(
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

    /// `info`: that of a connection whose end is reported.
    fn unread_state(&self, connection: &Connection<Object>, info: Option<Object>) -> Option<UnreadState> {
        let unread = connection.unread.as_ref()?;
        let protocol = unread.protocol.map(|number| self.protocols[number].clone());
        Some(UnreadState::of(unread, connection.last_ns, protocol, info))
    }

    /// `goes_on`: with the segments after the SYN, which Python processes again.
    fn tcp_state(
        &self,
        py: Python<'_>,
        link: &Link,
        connection: &Connection<Object>,
        goes_on: bool,
    ) -> TcpState {
        let bare = |sender: usize, bare: &Bare| BareSegment {
            sender,
            packet: bare.packet.number,
            time_ns: bare.packet.time_ns,
            interface: self.interfaces[bare.packet.interface].object(py),
            sequence: bare.sequence,
            acknowledgment: bare.acknowledgment,
            flags: bare.flags,
        };
        let opening = connection.opening.as_ref();
        let mut segments = Vec::new();
        if let Some((syn, syn_ack)) = opening.and_then(|opening| opening.handshake.as_ref()) {
            segments.push(bare(CLIENT, syn));
            segments.extend(
                syn_ack
                    .as_ref()
                    .filter(|_| goes_on)
                    .map(|each| bare(1 - CLIENT, each)),
            );
        }
        let reset = opening.and_then(|opening| opening.reset.as_ref());
        segments.extend(reset.filter(|_| goes_on).map(|(_, side, each)| bare(*side, each)));
        let stream = |side: usize| {
            let each = &connection.directions[side];
            StreamState {
                first: connection.has_syn(side).then_some(each.first),
                next: each.next,
                acknowledged: each.acknowledged,
                fin_ns: each.fin_ns,
                doubted: each.doubted,
                repeated_bytes: each.repeated_bytes,
                seen: !each.is_missing,
            }
        };
        let analysis = connection.analysis.as_ref();
        TcpState {
            client: link.client(),
            ends: link.ends.to_vec(),
            streams: (stream(CLIENT), stream(1 - CLIENT)),
            now_ns: connection.now_ns,
            analysis: analysis.map(|analysis| analysis.state()),
            segments,
            reset_ns: reset.map(|(first_ns, ..)| *first_ns),
            due_ns: opening.and_then(|opening| opening.due_ns),
            idle_ns: opening
                .map(|opening| opening.idle_ns)
                .filter(|_| link.is_opened_here()),
        }
    }

    fn kafka_state(
        &self,
        py: Python<'_>,
        link: &mut Link,
        mut connection: Connection<Object>,
    ) -> PyResult<KafkaState> {
        let waiting = std::mem::take(&mut connection.waiting).into_iter();
        let waiting = waiting.map(|request| match request.message {
            Message::Object(exchange) => Ok(exchange),
            Message::Frame(header, frame) => {
                let exchange = self.outstanding(py, link, header, frame)?;
                note_retransmission(&exchange, request.retransmitted_ns)?;
                Ok(exchange.unbind())
            }
        });
        let waiting = waiting.collect::<PyResult<_>>()?;
        let [client, broker] = connection.directions.each_mut().map(|each| PartialFrame {
            prefix: std::mem::take(&mut each.prefix),
            data: std::mem::take(&mut each.data),
            size: each.size,
            start_ns: each.start_ns,
            skipped: each.skipped,
            latest: each.latest.map(|packet| Place {
                packet: packet.number,
                time_ns: packet.time_ns,
                interface: self.interfaces[packet.interface].object(py),
            }),
        });
        let info = link.info(py, &self.python)?.object(py);
        Ok(KafkaState::of(info, &connection, waiting, (client, broker)))
    }

    /// Python takes the next exchange of a connection, or it is no longer here.
    fn leave(&mut self, py: Python<'_>, slot: usize) {
        if let (Some(page), Some(Some(link))) = (&mut self.page, self.links.get(slot)) {
            if let Some(info) = link.info.get(py) {
                page.leave(info);
                if let Some(conditions) = &mut self.conditions {
                    conditions.leave(info);
                }
            }
        }
    }

    /// A connection has ended.
    fn let_go(&mut self, py: Python<'_>, slot: usize) -> PyResult<()> {
        if let Some(link) = self.links.get_mut(slot).and_then(Option::as_mut) {
            link.is_released = true;
            if link.queued + link.waiting > 0 {
                link.info(py, &self.python)?; // later it would get the ID of the next one
            }
        }
        self.forget(py, slot);
        Ok(())
    }

    /// Forgets a connection that was given back, once nothing of it is queued.
    fn forget(&mut self, py: Python<'_>, slot: usize) {
        let is_gone = |link: &Link| link.is_released && link.queued + link.waiting == 0;
        if self.links.get(slot).and_then(Option::as_ref).is_some_and(is_gone) {
            self.leave(py, slot);
            self.links[slot] = None;
            self.stage.reuse(slot);
        }
    }

    /// The event of an exchange: its connection, if that has an object; a side, which says nothing; and the
    /// exchange.
    fn finish<'py>(&mut self, py: Python<'py>, finished: Finished<Object>) -> PyResult<Bound<'py, PyTuple>> {
        self.learn(py, &finished, false)?;
        let Finished {
            slot,
            number,
            request,
            outcome,
        } = finished;
        let mut link = self.links[slot].take().ok_or_else(|| PyKeyError::new_err(slot))?;
        let info = link.info(py, &self.python)?.bind(py).clone();
        let (answered, unacknowledged, unanswered) = &self.kinds;
        let (kind, completed_ns, response, end) = match outcome {
            Outcome::Answered(frame) => (answered, frame.end_ns, self.frame(py, frame)?, None),
            Outcome::Unacknowledged => (unacknowledged, request.time_ns, py.None().into_bound(py), None),
            Outcome::Unanswered(time_ns, fin) => (unanswered, time_ns, py.None().into_bound(py), Some(fin)),
        };
        let exchange = match request.message {
            Message::Object(exchange) => {
                let exchange = exchange.into_bound(py);
                exchange.setattr("response_frame", response)?;
                exchange.setattr("number", number)?;
                exchange.setattr("kind", kind)?;
                exchange.setattr("completed_ns", completed_ns)?;
                for (name, value) in IDENTITY.into_iter().zip(&link.identity) {
                    exchange.setattr(name, value)?;
                }
                exchange
            }
            Message::Frame(header, frame) => {
                let client_id = link.client_id(py, &header, &frame);
                let frame = self.frame(py, frame)?;
                let [software, version, principal, mechanism] = &link.identity;
                let head = self.request_header(py, &header, &client_id)?;
                let exchange = self.python.exchange.bind(py).call1(PyTuple::new(
                    py,
                    [
                        info,
                        number.into_pyobject(py)?.into_any(),
                        kind.bind(py).clone(),
                        frame,
                        response,
                        header.api_key.into_pyobject(py)?.into_any(),
                        header.api_version.into_pyobject(py)?.into_any(),
                        header.correlation_id.into_pyobject(py)?.into_any(),
                        client_id,
                        self.api_name(py, &header),
                        completed_ns.into_pyobject(py)?.into_any(),
                        software.bind(py).clone(),
                        version.bind(py).clone(),
                        principal.bind(py).clone(),
                        mechanism.bind(py).clone(),
                        head,
                    ],
                )?)?;
                note_retransmission(&exchange, request.retransmitted_ns)?;
                exchange
            }
        };
        if let Some(fin) = end {
            exchange.setattr("ended", true)?;
            if let Some((time_ns, is_client)) = fin {
                exchange.setattr("ended_ns", time_ns)?;
                exchange.setattr("closed_by_client", is_client)?;
            }
        }
        let connection = match &link.side {
            Holder::Lent(_, connection, _) => Some(connection.clone_ref(py)),
            Holder::Opened(..) | Holder::Python => None,
        };
        let pair = (connection, 0, exchange).into_pyobject(py);
        self.links[slot] = Some(link);
        pair
    }

    /// An exchange whose response has not come.
    fn outstanding<'py>(
        &self,
        py: Python<'py>,
        link: &mut Link,
        header: Header,
        frame: Frame,
    ) -> PyResult<Bound<'py, PyAny>> {
        let client_id = link.client_id(py, &header, &frame);
        let exchange = self.python.exchange.bind(py).call1((
            link.info(py, &self.python)?,
            0,
            "",
            self.frame(py, frame)?,
            py.None(),
            header.api_key,
            header.api_version,
            header.correlation_id,
            &client_id,
            self.api_name(py, &header),
        ))?;
        exchange.setattr("request_header", self.request_header(py, &header, &client_id)?)?;
        Ok(exchange)
    }

    fn api_name<'py>(&self, py: Python<'py>, header: &Header) -> Bound<'py, PyAny> {
        match self.apis.get(&(header.api_key, header.api_version)) {
            Some(Some(api)) => api.name.bind(py).clone(),
            _ => py.None().into_bound(py),
        }
    }

    fn request_header<'py>(
        &self,
        py: Python<'py>,
        header: &Header,
        client_id: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Header {
            api_key,
            api_version,
            correlation_id,
            body_pos,
            ..
        } = *header;
        let values = (api_key, api_version, correlation_id, client_id, body_pos);
        self.python
            .new
            .bind(py)
            .call1((&self.python.request_header, values))
    }

    fn frame<'py>(&self, py: Python<'py>, frame: Frame) -> PyResult<Bound<'py, PyAny>> {
        let Frame {
            data,
            size,
            packet,
            interface,
            start_ns,
            end_ns,
        } = frame;
        let bytes = PyBytes::new(py, &data);
        let values = (bytes, size, packet, &self.interfaces[interface], start_ns, end_ns);
        self.python.new.bind(py).call1((&self.python.frame, values))
    }
}

/// A connection for [`Page`].
struct KnownLink<'a, 'py> {
    py: Python<'py>,
    link: &'a Link,
    python: &'a Callbacks,
    /// Whether what its exchanges share is as before.
    is_same: Cell<bool>,
}

impl Known for KnownLink<'_, '_> {
    fn info(&self) -> Result<&Handle, Odd> {
        self.link.info(self.py, self.python).map_err(|_| Odd)
    }

    fn ends(&self) -> Option<&[u8]> {
        self.link.is_opened_here().then_some(&self.link.ends)
    }

    fn identity(&self) -> &[Handle; 4] {
        &self.link.identity
    }

    fn renew(&self) {
        self.is_same.set(false);
    }
}

impl Link {
    fn is_opened_here(&self) -> bool {
        matches!(self.side, Holder::Opened(..))
    }

    /// Which side of the connection is the client.
    fn client(&self) -> usize {
        match self.side {
            Holder::Lent(.., client) => client,
            Holder::Opened(..) | Holder::Python => 0,
        }
    }

    /// The object of a connection that was lent.
    fn duplex(&self, py: Python<'_>) -> Option<Object> {
        match &self.side {
            Holder::Lent(duplex, ..) => Some(duplex.clone_ref(py)),
            Holder::Opened(..) | Holder::Python => None,
        }
    }

    /// What its exchanges share.
    fn info(&self, py: Python<'_>, python: &Callbacks) -> PyResult<&Handle> {
        self.info.get_or_try_init(py, || match &self.side {
            Holder::Opened(time_ns, ordinal) => {
                let values = (PyBytes::new(py, &self.ends), *time_ns, *ordinal);
                Ok(Handle::of(python.info.bind(py).call1(values)?))
            }
            _ => Err(PyKeyError::new_err(())), // it came with the connection
        })
    }

    /// What Python says of exchanges of this kind, API, version and client. It is asked once for each.
    fn of_client(
        &mut self,
        py: Python<'_>,
        python: &Callbacks,
        conditions: &Conditions,
        header: &Header,
        (request, is_answered): (&Frame, bool),
    ) -> PyResult<u64> {
        let client_id = header.raw_client_id(request);
        let is_known = |known: &&Match| {
            (known.is_answered, known.api_key, known.api_version)
                == (is_answered, header.api_key, header.api_version)
                && known.client_id.as_deref() == client_id
        };
        if let Some(known) = self.matches.iter().find(is_known) {
            return Ok(known.results);
        }
        let text = self.client_id(py, header, request);
        let identity = self.identity.each_ref();
        let info = self.info(py, python)?;
        let arguments = (
            info,
            identity,
            is_answered,
            header.api_key,
            header.api_version,
            text,
        );
        let results = conditions.of_client.bind(py).call1(arguments)?.extract()?;
        if client_id.is_none_or(|id| id.len() <= MATCH_BYTES) {
            if self.matches.len() >= MATCHES {
                self.matches.clear();
            }
            self.matches.push(Match {
                is_answered,
                api_key: header.api_key,
                api_version: header.api_version,
                client_id: client_id.map(Box::from),
                results,
            });
        }
        Ok(results)
    }

    fn client_id<'py>(&mut self, py: Python<'py>, header: &Header, frame: &Frame) -> Bound<'py, PyAny> {
        let Some(bytes) = header.raw_client_id(frame) else {
            return py.None().into_bound(py);
        };
        if let Some((_, text)) = self.client_id.as_ref().filter(|(known, _)| **known == *bytes) {
            return text.bind(py).clone().into_any();
        }
        let text = PyString::new(py, &String::from_utf8_lossy(bytes)); // it is known to be UTF-8
        self.client_id = Some((bytes.into(), text.clone().unbind()));
        text.into_any()
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

fn note_retransmission(exchange: &Bound<'_, PyAny>, retransmitted_ns: Option<i64>) -> PyResult<()> {
    match retransmitted_ns {
        Some(time_ns) => exchange.setattr("retransmitted_ns", time_ns),
        None => Ok(()),
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

/// The same exchange, of which Python gets an object that it does not keep.
fn copy(py: Python<'_>, finished: &Finished<Object>) -> Finished<Object> {
    let message = match &finished.request.message {
        Message::Frame(header, frame) => Message::Frame(header.clone(), frame.clone()),
        Message::Object(exchange) => Message::Object(exchange.clone_ref(py)),
    };
    Finished {
        slot: finished.slot,
        number: finished.number,
        request: Request {
            message,
            ..finished.request
        },
        outcome: finished.outcome.clone(),
    }
}

/// The key of a line, see runs/merge.rs.
fn key(finished: &Finished<Object>, place: i64, connection: i64, size: usize) -> [u8; KEY] {
    let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let (end_ns, packet) = finished.order();
    let packet = i64::try_from(packet).unwrap_or(i64::MAX);
    let held = number(finished.held());
    merge::key([place, end_ns, packet, held, connection, number(size)])
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

const _: () = assert!(CLIENT == 0); // the order of `ends`, `streams` and `partial`
