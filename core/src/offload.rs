//! The class `kdissect._core.Offload`: a [`Stage`] for kdissect/offload.py.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::panic::{catch_unwind, AssertUnwindSafe};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::connection::{
    request_header, Apis, BeforeAcks, Connection, Direction, Finished, Frame, Header, Limits, Message,
    Packet, Request, Usual, CLIENT,
};
use crate::page::{Answered, Form, Page};
use crate::places::Places;
use crate::stage::{Stage, Verdict};
use crate::Odd;

/// Most exchanges made at a time: the garbage collector looks at more of them again and again.
const BATCH: usize = 64;
/// Packets that may bring a connection here are not kept from it for longer.
const RUN: usize = 64;
/// Most exchanges that are queued at a time.
const PAGE: usize = 256;
/// Interfaces known at a time.
const INTERFACES: usize = 256;

/// Why `run` stopped: the block has ended or the batch is full, ...
const TAKEN: u8 = 0;
/// ... a run of packets belongs to no connection here, ...
const FOREIGN: u8 = 1;
/// ... a packet is not usual, ...
const ODD: u8 = 2;
/// ... there is no room left, ...
const FULL: u8 = 3;
/// ... or there was a panic.
const BROKEN: u8 = 4;

type Object = Py<PyAny>;

/// What Python says of an API in one version.
struct Api {
    name: Object,
    usual: Usual,
}

/// APIs by key and version; None: left to Python.
type KnownApis = HashMap<(i16, i16), Option<Api>>;

/// Python's side of a connection that is here.
struct Link {
    duplex: Object,
    connection: Object,
    info: Object,
    /// Software name and version, principal, SASL mechanism.
    identity: [Object; 4],
    client_id: Option<(Box<[u8]>, Py<PyString>)>,
    /// The cells of its ends, once they are needed.
    cells: Option<String>,
    /// Exchanges in the queue, and the order of the latest one.
    queued: usize,
    latest: Order,
    is_released: bool,
}

/// Place in the order of completion: time and packet of the response.
type Order = (i64, u64);

/// Exchanges of all connections in order of completion, as in kdissect/exchanges/ordering.py.
#[derive(Default)]
struct Queue {
    exchanges: BTreeMap<(Order, u64), Finished<Object>>, // by arrival if they have the same place
    arrivals: u64,
    /// Of their frames.
    bytes: usize,
}

impl Queue {
    fn push(&mut self, finished: Finished<Object>) -> Order {
        let order = (finished.response.end_ns, finished.response.packet);
        self.bytes += held(&finished);
        self.exchanges.insert((order, self.arrivals), finished);
        self.arrivals += 1;
        order
    }

    /// The first, if its place is before this one.
    fn pop(&mut self, before: Order) -> Option<Finished<Object>> {
        let entry = self.exchanges.first_entry()?;
        if entry.key().0 >= before {
            return None;
        }
        let finished = entry.remove();
        self.bytes -= held(&finished);
        Some(finished)
    }
}

/// Bytes of both frames.
fn held(finished: &Finished<Object>) -> usize {
    finished.request.bytes + finished.response.data.len()
}

/// Prefix of a size field, bytes and size of a frame, time of its first byte.
type Partial<'py> = (Vec<u8>, Bound<'py, PyBytes>, usize, i64);

/// See `run`.
type Ran<'py> = (Bound<'py, PyList>, usize, u8, usize, Vec<Bound<'py, PyBytes>>);

/// See `release`.
type Released<'py> = (
    Vec<(u32, Option<u32>)>,
    (i64, i64),
    (u64, Option<i32>, u64, Vec<Bound<'py, PyAny>>),
    Vec<Partial<'py>>,
    u64,
    Option<Order>,
);

/// Outstanding requests: correlation ID, time, bytes, exchange, and its frame if there is no more to know of it.
type Waiting<'py> = Vec<(i32, i64, usize, Object, Option<PythonFrame<'py>>)>;

/// `Frame` of kdissect/model.py.
type PythonFrame<'py> = (Bound<'py, PyBytes>, usize, u64, Bound<'py, PyAny>, i64, i64);

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
pub struct Offload {
    stage: Stage<Object>,
    links: Vec<Option<Link>>, // by slot
    interfaces: Vec<Object>,
    apis: KnownApis,
    usual: Object,
    exchange: Object,
    frame: Object,
    header: Object,
    new: Object,
    answered: Object,
    page: Option<Page>,
    queue: Queue,
    at: usize,
}

struct Asking<'a, 'py> {
    apis: &'a mut KnownApis,
    usual: &'a Bound<'py, PyAny>,
}

impl Apis for Asking<'_, '_> {
    fn usual(&mut self, api_key: i16, api_version: i16) -> Option<Usual> {
        let api = self.apis.entry((api_key, api_version)).or_insert_with(|| {
            let said = self.usual.call1((api_key, api_version)).ok()?;
            let (name, has_tags, before): (Object, bool, u8) = said.extract().ok()?;
            let before_acks = match before {
                0 => BeforeAcks::Nothing,
                1 => BeforeAcks::Text,
                _ => BeforeAcks::CompactText,
            };
            Some(Api {
                name,
                usual: Usual {
                    has_tags,
                    before_acks,
                },
            })
        });
        api.as_ref().map(|api| api.usual)
    }
}

#[pymethods]
impl Offload {
    /// Arguments: `frame_bytes`, `pending_requests`, `pending_bytes`, `pending_age_ns` and
    /// `connection_idle_ns` of the limits; the function that says what is usual, see offload.py; the classes
    /// `Exchange`, `Frame` and `RequestHeader`; `tuple.__new__`; and the kind of an answered exchange.
    #[new]
    fn new(
        limits: (usize, usize, usize, i64, i64),
        usual: Object,
        classes: (Object, Object, Object, Object),
        answered: Object,
    ) -> Self {
        let (frame_bytes, pending_requests, pending_bytes, pending_age_ns, connection_idle_ns) = limits;
        let (exchange, frame, header, new) = classes;
        Offload {
            stage: Stage::new(Limits {
                frame_bytes,
                pending_requests,
                pending_bytes,
                pending_age_ns,
                connection_idle_ns,
            }),
            links: Vec::new(),
            interfaces: Vec::new(),
            apis: HashMap::new(),
            usual,
            exchange,
            frame,
            header,
            new,
            answered,
            page: None,
            queue: Queue::default(),
            at: 0,
        }
    }

    /// From now on `run` queues exchanges for `written`.
    fn write_lines(&mut self, form: Form) {
        self.page = Some(Page::new(form));
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

    /// Takes at most so many exchanges from the queue, whose place is before this one. Returns the lines that it
    /// has written of them, and their number; and the next exchange, after its connection, if it is not usual,
    /// or not to be written at all (without `writes`). There may be more, unless both are missing.
    fn written<'py>(
        &mut self,
        py: Python<'py>,
        before: Order,
        most: usize,
        writes: bool,
    ) -> PyResult<(String, usize, Option<Bound<'py, PyTuple>>)> {
        let mut odd = None;
        for _ in 0..most {
            let Some(page) = self.page.as_mut().filter(|page| !page.is_full()) else {
                break;
            };
            let Some(finished) = self.queue.pop(before) else {
                break;
            };
            let slot = finished.slot;
            let is_written = writes && write(py, page, &mut self.links, &finished).is_ok();
            if !is_written {
                odd = Some(self.finish(py, finished)?);
            }
            if let Some(link) = self.links.get_mut(slot).and_then(Option::as_mut) {
                link.queued -= 1;
            }
            self.forget(slot);
            if !is_written {
                break;
            }
        }
        let (text, rows) = self.page.as_mut().map(Page::take).unwrap_or_default();
        Ok((text, rows, odd))
    }

    /// Bytes held, including overhead.
    #[getter]
    fn held(&self) -> usize {
        self.stage.held
    }

    /// Takes the packets of a block from index `at` on, until what is held exceeds `room`: memory, exchanges in
    /// the queue, and bytes of their frames. Returns the exchanges that they complete, each after its
    /// connection, unless they are queued; the index of the first packet not taken; why that is so; the index
    /// after the packets to which that applies; and ends of connections that may come here after those.
    fn run<'py>(
        &mut self,
        py: Python<'py>,
        block: (u64, Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>),
        link_type: u32,
        at: usize,
        room: (usize, usize, usize),
    ) -> PyResult<Ran<'py>> {
        let (number, interface, data, places) = block;
        self.at = at;
        let Ok(data) = data.cast_exact::<PyBytes>() else {
            return Ok((PyList::empty(py), at, ODD, at + 1, Vec::new()));
        };
        let places = if let Ok(places) = places.cast::<Places>() {
            At::Here(places.get())
        } else if let Ok(places) = places.cast::<PyList>() {
            At::List(places)
        } else {
            return Ok((PyList::empty(py), at, ODD, at + 1, Vec::new()));
        };
        let Some(interface) = self.interface(&interface) else {
            return Ok((PyList::empty(py), at, FULL, at, Vec::new()));
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
        let done = PyList::empty(py);
        for finished in std::mem::take(&mut self.stage.finished) {
            done.append(self.finish(py, finished)?)?;
        }
        Ok((done, taken, reason, next, candidates))
    }

    /// Takes a connection, see [`Link`] and [`Connection`]. Returns its slot. None: there was a panic.
    fn admit(
        &mut self,
        py: Python<'_>,
        link: (Object, Object, Object, [Object; 4]),
        ends: (Vec<u8>, Vec<u8>),
        streams: [(u32, Option<u32>, Partial<'_>); 2],
        clocks: (i64, i64),
        pairing: (u64, Option<i32>, u64, Waiting<'_>),
    ) -> Option<usize> {
        let (duplex, connection, info, identity) = link;
        let admitting = || {
            let (completed, last_id, steady, waiting) = pairing;
            let waiting: VecDeque<_> = waiting.into_iter().map(|each| self.request(py, each)).collect();
            let directions = streams.map(|(next, acknowledged, part)| {
                let (prefix, data, size, start_ns) = part;
                Direction {
                    next,
                    acknowledged,
                    prefix,
                    data: data.as_bytes().to_vec(),
                    size,
                    start_ns,
                }
            });
            let connection_here = Connection {
                directions,
                now_ns: clocks.0,
                last_ns: clocks.1,
                completed,
                last_id,
                steady,
                bytes: waiting.iter().map(|each| each.bytes).sum(),
                waiting,
                taken: 0,
            };
            let slot = self.stage.admit(connection_here, [ends.0.into(), ends.1.into()]);
            if self.links.len() <= slot {
                self.links.resize_with(slot + 1, || None);
            }
            self.links[slot] = Some(Link {
                duplex,
                connection,
                info,
                identity,
                client_id: None,
                cells: None,
                queued: 0,
                latest: (0, 0),
                is_released: false,
            });
            slot
        };
        catch_unwind(AssertUnwindSafe(admitting)).ok()
    }

    /// Gives a connection back: what `admit` took, in another order; how many segments were taken; and the place
    /// of its latest exchange in the queue, if there is any. None: there was a panic, and it is gone.
    fn release<'py>(&mut self, py: Python<'py>, slot: usize) -> PyResult<Option<Released<'py>>> {
        match catch_unwind(AssertUnwindSafe(|| self.released(py, slot))) {
            Ok(released) => released.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// No connection between these ends will come here, until `heed`.
    fn ignore(&mut self, ends: Vec<u8>) {
        self.stage.ignore(ends.into());
    }

    fn heed(&mut self, ends: &[u8]) {
        self.stage.heed(ends);
    }

    /// The connections with segments since the last call and their clocks, least recently used first.
    fn take_touched<'py>(&mut self, py: Python<'py>) -> Vec<(Bound<'py, PyAny>, i64)> {
        let links = &self.links;
        let duplex =
            |(slot, now_ns): (usize, i64)| Some((links.get(slot)?.as_ref()?.duplex.bind(py).clone(), now_ns));
        self.stage.take_touched().into_iter().filter_map(duplex).collect()
    }
}

impl Offload {
    /// The number that stands for an interface. None: there are too many, until all connections have gone.
    fn interface(&mut self, interface: &Bound<'_, PyAny>) -> Option<usize> {
        if let Some(known) = self.interfaces.iter().position(|each| each.is(interface)) {
            return Some(known);
        }
        if self.interfaces.len() >= INTERFACES {
            if self.links.iter().any(Option::is_some) {
                return None;
            }
            self.interfaces.clear();
        }
        self.interfaces.push(interface.clone().unbind());
        Some(self.interfaces.len() - 1)
    }

    /// An outstanding request from Python, as if it had come here, if it is usual.
    fn request(
        &mut self,
        py: Python<'_>,
        (correlation_id, time_ns, bytes, exchange, frame): (i32, i64, usize, Object, Option<PythonFrame<'_>>),
    ) -> Request<Object> {
        let usual = frame.and_then(|(data, _, packet, interface, start_ns, end_ns)| {
            let interface = self.interface(&interface)?;
            let mut asking = Asking {
                apis: &mut self.apis,
                usual: self.usual.bind(py),
            };
            let header = request_header(data.as_bytes(), &mut asking).ok()?;
            let frame = Frame {
                data: data.as_bytes().to_vec(),
                packet,
                interface,
                start_ns,
                end_ns,
            };
            Some(Message::Frame(header, frame))
        });
        Request {
            correlation_id,
            time_ns,
            bytes,
            message: usual.unwrap_or(Message::Object(exchange)),
        }
    }

    /// Takes packets from `self.at` on; says why it stops there.
    fn take(&mut self, py: Python<'_>, block: &Block<'_, '_>, room: (usize, usize, usize)) -> u8 {
        let (most_held, most_queued, most_bytes) = room;
        let mut newest_ns = i64::MIN; // of those that are queued here
        let most_queued = most_queued.min(self.queue.exchanges.len() + PAGE);
        let mut asking = Asking {
            apis: &mut self.apis,
            usual: self.usual.bind(py),
        };
        while self.at < block.len() {
            let Some((time_ns, bytes)) = block.packet(self.at) else {
                return ODD;
            };
            if time_ns < newest_ns {
                return TAKEN; // what is queued may have to come first
            }
            let packet = Packet {
                number: block.number + self.at as u64,
                time_ns,
                interface: block.interface,
            };
            match self.stage.feed(block.link_type, bytes, packet, &mut asking) {
                Verdict::Taken => self.at += 1,
                Verdict::Foreign(_) => return FOREIGN,
                Verdict::Odd => return ODD,
            }
            if self.page.is_some() {
                for finished in self.stage.finished.drain(..) {
                    let slot = finished.slot;
                    let order = self.queue.push(finished);
                    newest_ns = order.0;
                    if let Some(link) = self.links.get_mut(slot).and_then(Option::as_mut) {
                        link.queued += 1;
                        link.latest = order;
                    }
                }
                if self.queue.exchanges.len() > most_queued || self.queue.bytes > most_bytes {
                    return TAKEN;
                }
            }
            if self.stage.held > most_held {
                return FULL;
            }
            if self.stage.finished.len() >= BATCH {
                return TAKEN;
            }
        }
        TAKEN
    }

    /// See `release`.
    fn released<'py>(&mut self, py: Python<'py>, slot: usize) -> PyResult<Released<'py>> {
        let missing = || pyo3::exceptions::PyKeyError::new_err(slot);
        let connection = self.stage.release(slot).ok_or_else(missing)?;
        let mut link = self
            .links
            .get_mut(slot)
            .and_then(Option::take)
            .ok_or_else(missing)?;
        let latest = (link.queued > 0).then_some(link.latest);
        let waiting = connection
            .waiting
            .into_iter()
            .map(|request| match request.message {
                Message::Object(exchange) => Ok(exchange.into_bound(py)),
                Message::Frame(header, frame) => self.outstanding(py, &mut link, header, frame),
            })
            .collect::<PyResult<_>>()?;
        link.is_released = true;
        self.links[slot] = Some(link);
        self.forget(slot);
        Ok((
            connection
                .directions
                .iter()
                .map(|each| (each.next, each.acknowledged))
                .collect(),
            (connection.now_ns, connection.last_ns),
            (
                connection.completed,
                connection.last_id,
                connection.steady,
                waiting,
            ),
            connection
                .directions
                .into_iter()
                .map(|each| {
                    (
                        each.prefix,
                        PyBytes::new(py, &each.data),
                        each.size,
                        each.start_ns,
                    )
                })
                .collect(),
            connection.taken,
            latest,
        ))
    }

    /// Forgets a connection that was given back, once nothing of it is queued.
    fn forget(&mut self, slot: usize) {
        let is_gone = |link: &Link| link.is_released && link.queued == 0;
        if self.links.get(slot).and_then(Option::as_ref).is_some_and(is_gone) {
            self.links[slot] = None;
            self.stage.reuse(slot);
        }
    }

    /// The connection and the exchange of a pair.
    fn finish<'py>(&mut self, py: Python<'py>, finished: Finished<Object>) -> PyResult<Bound<'py, PyTuple>> {
        let Finished {
            slot,
            number,
            request,
            response,
        } = finished;
        let mut link = self.links[slot]
            .take()
            .ok_or_else(|| pyo3::exceptions::PyKeyError::new_err(slot))?;
        let completed_ns = response.end_ns;
        let response = self.frame(py, response)?;
        let exchange = match request.message {
            Message::Object(exchange) => {
                let exchange = exchange.into_bound(py);
                exchange.setattr("response_frame", response)?;
                exchange.setattr("number", number)?;
                exchange.setattr("kind", &self.answered)?;
                exchange.setattr("completed_ns", completed_ns)?;
                let names = [
                    "client_software_name",
                    "client_software_version",
                    "principal",
                    "sasl_mechanism",
                ];
                for (name, value) in names.into_iter().zip(&link.identity) {
                    exchange.setattr(name, value)?;
                }
                exchange
            }
            Message::Frame(header, frame) => {
                let client_id = link.client_id(py, &header, &frame);
                let frame = self.frame(py, frame)?;
                let [software, version, principal, mechanism] = &link.identity;
                let head = self.request_header(py, &header, &client_id)?;
                self.exchange.bind(py).call1(PyTuple::new(
                    py,
                    [
                        link.info.bind(py).clone(),
                        number.into_pyobject(py)?.into_any(),
                        self.answered.bind(py).clone(),
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
                )?)?
            }
        };
        let pair = (link.connection.bind(py), exchange).into_pyobject(py);
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
        let exchange = self.exchange.bind(py).call1((
            &link.info,
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
        self.new.bind(py).call1((&self.header, values))
    }

    fn frame<'py>(&self, py: Python<'py>, frame: Frame) -> PyResult<Bound<'py, PyAny>> {
        let Frame {
            data,
            packet,
            interface,
            start_ns,
            end_ns,
        } = frame;
        let bytes = PyBytes::new(py, &data);
        let values = (
            bytes,
            data.len(),
            packet,
            &self.interfaces[interface],
            start_ns,
            end_ns,
        );
        self.new.bind(py).call1((&self.frame, values))
    }
}

impl Link {
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
            At::Here(places) => places.0.len(),
            At::List(places) => places.len(),
        }
    }

    /// Time and bytes of a packet.
    fn packet(&self, index: usize) -> Option<(i64, &'a [u8])> {
        let (time_ns, begin, end) = match self.places {
            At::Here(places) => {
                let &(time_ns, begin, end, _) = places.0.get(index)?;
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

/// Writes the line of an exchange.
fn write(
    py: Python<'_>,
    page: &mut Page,
    links: &mut [Option<Link>],
    finished: &Finished<Object>,
) -> Result<(), Odd> {
    let Message::Frame(header, request) = &finished.request.message else {
        return Err(Odd);
    };
    let link = links.get_mut(finished.slot).and_then(Option::as_mut).ok_or(Odd)?;
    if link.cells.is_none() {
        link.cells = page.ends(link.info.bind(py)).ok();
    }
    let answered = Answered {
        ends: link.cells.as_ref().ok_or(Odd)?,
        header,
        request,
        response: &finished.response,
    };
    page.add(py, &answered)
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
        match stage.is_foreign(block.link_type, bytes) {
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
