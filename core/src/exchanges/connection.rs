//! One connection, as long as it is on the fast path: its segments -> frames -> paired exchanges.
//!
//! The common case of kdissect/net/connection.py, kafka/framing.py and exchanges/pairing.py. A segment is checked
//! completely before it has any effect: its place in the stream, the header of each request that it completes, and
//! that each response answers the oldest request. If anything is odd, the connection stays as it was and goes back
//! to Python, which processes that segment.
//!
//! A connection is lent by Python, or opened here by its SYN ([`Opening`]). The latter may also end here if no
//! request is outstanding; see also net/duplex.py.

use std::collections::VecDeque;
use std::ops::Range;

use crate::kafka::tree::{Bodies, Decoded};
use crate::net::analysis::Analysis;
use crate::net::packet::{Segment, ACK, CONTROL, FIN, RST, SYN};
use crate::tls::records::Records;
use crate::{Odd, Why};

pub const CLIENT: usize = 0;

const SIZE_BYTES: usize = 4;
const CORRELATION_ID_BYTES: usize = 4;
const PRODUCE: i16 = 0;
pub const API_VERSIONS: i16 = 18;
/// The first bytes of an ApiVersions response of any version.
const UNSUPPORTED_VERSION: i16 = 35;
/// Overhead of an outstanding request, as in pairing.py.
const EXCHANGE_COST: usize = 1024;
/// As in pairing.py.
const UNACKNOWLEDGED_KEPT: usize = 16;
/// As in pairing.py: bytes repeated within this time were captured twice.
const COPY_NS: i64 = 1_000_000;
const FIRST_ALLOCATION: usize = 64 * 1024; // the size field may be wrong
/// Longer names are left to Python, which shortens what it keeps of them: kdissect/names.py.
pub const NAME_BYTES: usize = 1024;

/// Bytes kept of a frame that is not needed: `SHED_BYTES` of framing.py.
const KEPT_BYTES: usize = 512;

/// The limits of kdissect/limits.py that apply here.
#[derive(Debug, Clone)]
pub struct Limits {
    pub frame_bytes: usize,
    pub pending_requests: usize,
    pub pending_bytes: usize,
    pub pending_age_ns: i64,
    pub connection_idle_ns: i64,
    pub reorder_window_ns: i64,
    /// Maximum distance of a RST from the next byte.
    pub reach: u32,
}

/// What the core needs to know about requests of an API version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usual {
    /// Whether the header ends with tagged fields.
    pub has_tags: bool,
    /// For Produce: the type of the field before `acks`.
    pub before_acks: BeforeAcks,
    /// Whether more is needed of its exchanges than that they were completed.
    pub is_needed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeforeAcks {
    Nothing,
    Text,
    CompactText,
}

/// What is on the fast path. None: requests of this API version are left to Python.
pub trait Apis {
    fn usual(&mut self, api_key: i16, api_version: i16) -> Option<Usual>;

    /// Whether a connection whose client first sends this frame is recognized at once.
    fn is_first(&mut self, frame: &[u8]) -> bool;

    /// Whether a SYN between these ends opens a connection, as far as Python knows.
    fn may_open(&mut self, ends: &[u8]) -> bool;

    /// What a connection is taken for at once because of the first bytes of a side: the number of a protocol that
    /// is not Kafka, or 0 if they decide nothing. `begins`: whether they are the first of all, and the client's.
    /// `ends`: of the segment.
    /// None: Python decides.
    fn refused(&mut self, payload: &[u8], begins: bool, ends: &[u8]) -> Option<usize>;

    /// Whether requests of this API version are known.
    fn is_known(&mut self, api_key: i16, api_version: i16) -> bool;
}

/// What decides whether a frame is on the fast path.
pub struct Rules<'a, A> {
    pub limits: &'a Limits,
    pub apis: &'a mut A,
    /// All segments up to this time have been delivered.
    pub ticked_ns: i64,
    /// Whether exchanges completed by the end of a connection can be queued.
    pub is_queued: bool,
    /// Whether some exchanges are not needed.
    pub skims: bool,
}

/// The packet that carries a segment.
#[derive(Debug, Clone, Copy)]
pub struct Packet {
    pub number: u64,
    pub time_ns: i64,
    /// Identifies an interface.
    pub interface: usize,
}

/// A complete frame, as in kdissect/model.py. One that is not needed may have its first bytes only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub data: Vec<u8>,
    pub size: usize,
    pub packet: u64,
    pub interface: usize,
    pub start_ns: i64,
    pub end_ns: i64,
}

impl Frame {
    /// `_transfer_us` of kdissect/model.py.
    pub fn transfer_us(&self) -> Option<i64> {
        let us = self.end_ns.checked_sub(self.start_ns)?.div_euclid(1000);
        (us >= 0).then_some(us)
    }

    /// The body of a response. `tags`: the bytes after the correlation ID.
    pub fn response_body(&self, tags: &[u8]) -> Result<&[u8], Odd> {
        let rest = self.data.get(CORRELATION_ID_BYTES..).ok_or(Odd)?;
        rest.strip_prefix(tags).ok_or(Odd)
    }

    /// From the end of a request to the start of this response. Odd: no number holds it.
    pub fn latency_ns(&self, request: &Frame) -> Result<i64, Odd> {
        self.start_ns.checked_sub(request.end_ns).ok_or(Odd)
    }

    /// `Exchange.total_us` of this response and its request.
    pub fn total_us(&self, request: &Frame) -> Option<i64> {
        let latency_us = self.latency_ns(request).ok()?.div_euclid(1000);
        let total_us = request.transfer_us()?.checked_add(latency_us)?;
        let total_us = total_us.checked_add(self.transfer_us()?);
        total_us.filter(|_| latency_us >= 0)
    }
}

/// A request header: kdissect/kafka/headers.py. Positions are those in the frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub api_key: i16,
    pub api_version: i16,
    pub correlation_id: i32,
    pub client_id: Option<Range<usize>>,
    pub body_pos: usize,
    /// See [`Usual`].
    pub is_needed: bool,
}

impl Header {
    /// The bytes of the client ID in the frame.
    pub fn raw_client_id<'a>(&self, frame: &'a Frame) -> Option<&'a [u8]> {
        frame.data.get(self.client_id.clone()?)
    }

    /// Whether the broker does not support this version of ApiVersions, and responds in version 0 (KIP-511).
    pub fn is_rejected(&self, response: &Frame) -> bool {
        let body = response.data.get(CORRELATION_ID_BYTES..);
        let error = UNSUPPORTED_VERSION.to_be_bytes();
        self.api_key == API_VERSIONS && body.is_some_and(|body| body.starts_with(&error))
    }

    /// Adds the response to a decoded request. `tags`: as for `response_body`. Of one that `is_rejected`, only the
    /// error: clients need no more, and some brokers send no more.
    pub fn add_response<'a>(
        &self,
        bodies: &Bodies,
        decoded: &mut Decoded<'a>,
        (response, tags): (&'a Frame, &[u8]),
        budget: i64,
    ) -> Result<(), Odd> {
        match self.is_rejected(response) {
            true => bodies.add_rejection(decoded, UNSUPPORTED_VERSION.into()),
            false => bodies.add_response(decoded, response.response_body(tags)?, budget),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Message<X> {
    Frame(Header, Frame),
    /// Python's object for a request that was outstanding when Python lent the connection.
    Object(X),
}

/// An outstanding request.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<X> {
    pub correlation_id: i32,
    pub time_ns: i64,
    /// Kept of its frame.
    pub bytes: usize,
    pub message: Message<X>,
    /// When it was retransmitted.
    pub retransmitted_ns: Option<i64>,
}

impl<X> Request<X> {
    /// API key and version; -1 if Python has read it.
    pub fn api(&self) -> (i16, i16) {
        match &self.message {
            Message::Frame(header, _) => (header.api_key, header.api_version),
            Message::Object(_) => (-1, -1),
        }
    }

    /// See [`Usual`].
    fn is_needed(&self) -> bool {
        !matches!(self.message, Message::Frame(Header { is_needed: false, .. }, _))
    }

    /// Whether its response has an API that is not Kafka's: Python learns the vendor from it.
    fn names_vendor(&self, response: &[u8]) -> bool {
        matches!(self.message, Message::Frame(Header { api_key: API_VERSIONS, api_version, is_needed: true, .. }, _)
            if advertises_vendor(response, api_version))
    }

    /// Bytes of its frame in the stream.
    fn wire_bytes(&self) -> usize {
        SIZE_BYTES
            + match &self.message {
                Message::Frame(_, frame) => frame.size,
                Message::Object(_) => self.bytes,
            }
    }
}

/// The outcome of a request.
#[derive(Debug, Clone)]
pub enum Outcome {
    Answered(Frame),
    /// No response: Produce with acks=0.
    Unacknowledged,
    /// The connection ended at this time; of the first FIN, if any, the time and whether it was the client's.
    Unanswered(i64, Option<(i64, bool)>),
}

/// A request and its outcome.
#[derive(Debug)]
pub struct Finished<X> {
    /// Identifies the connection.
    pub slot: usize,
    /// Number within the connection.
    pub number: u64,
    pub request: Request<X>,
    pub outcome: Outcome,
}

/// Place in the order of completion: time and packet, see `order` in kdissect/model.py.
pub type Order = (i64, u64);

impl<X> Finished<X> {
    pub fn order(&self) -> Order {
        let sent = match &self.request.message {
            Message::Frame(_, frame) => frame.packet,
            Message::Object(_) => 0, // answered
        };
        match &self.outcome {
            Outcome::Answered(response) => (response.end_ns, response.packet),
            Outcome::Unacknowledged => (self.request.time_ns, sent),
            Outcome::Unanswered(time_ns, _) => (*time_ns, sent),
        }
    }

    /// Bytes of the frames.
    pub fn held(&self) -> usize {
        let response = match &self.outcome {
            Outcome::Answered(response) => response.data.len(),
            _ => 0,
        };
        self.request.bytes + response
    }
}

/// One direction: the stream and the incomplete frame.
#[derive(Debug, Default)]
pub struct Direction {
    /// Sequence number of the first byte, if the connection may end in the core.
    pub first: u32,
    /// Sequence number of the next byte.
    pub next: u32,
    /// The latest acknowledgment of it in a segment without payload.
    pub acknowledged: Option<u32>,
    /// The first bytes of a size field.
    pub prefix: Vec<u8>,
    /// Bytes so far of a frame of `size` bytes; `size` is 0 between frames.
    pub data: Vec<u8>,
    pub size: usize,
    /// Bytes after those, which are not needed.
    pub skipped: usize,
    /// The latest packet with payload; None until there is one here.
    pub latest: Option<Packet>,
    /// Time of the first byte of the size field.
    pub start_ns: i64,
    /// Time of the FIN, whose sequence number precedes `next`.
    pub fin_ns: Option<i64>,
    /// As in kdissect/net/stream.py: whether the other side may report that a retransmission was spurious.
    pub doubted: bool,
    /// Whether no packet of it was captured.
    pub is_missing: bool,
    /// Bytes repeated since Python lent the connection.
    pub repeated_bytes: u64,
    /// None if not encrypted.
    pub records: Option<Records>,
}

impl Direction {
    fn is_at_boundary(&self) -> bool {
        self.size == 0 && self.prefix.is_empty()
    }

    /// Bytes of the frame that are still to come.
    fn missing(&self) -> usize {
        self.size - self.data.len() - self.skipped
    }
}

/// A segment without payload, for Python to process again.
#[derive(Debug, Clone, Copy)]
pub struct Bare {
    pub packet: Packet,
    pub sequence: u32,
    pub acknowledgment: u32,
    pub flags: u8,
}

impl Bare {
    pub fn new(segment: &Segment<'_>, packet: Packet) -> Self {
        Bare {
            packet,
            sequence: segment.sequence,
            acknowledgment: segment.acknowledgment,
            flags: segment.flags,
        }
    }
}

/// State of a connection whose beginning was captured, so that it may end in the core.
#[derive(Debug)]
pub struct Opening {
    /// The client's SYN, and the SYN-ACK. None if Python processed them.
    pub handshake: Option<(Bare, Option<Bare>)>,
    /// Time of the first RST; side and segment of the latest one.
    pub reset: Option<(i64, usize, Bare)>,
    /// Deadline: for a SYN-ACK, or after the end for segments that are late in the capture.
    pub due_ns: Option<i64>,
    /// The earliest time at which it is idle.
    pub idle_ns: i64,
}

/// The kind of a segment.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// The next in order, as most are.
    Next,
    /// The SYN-ACK.
    Opened,
    /// The second FIN: now both sides have sent one.
    Finished,
    /// Anything after both FINs.
    AfterClose,
    /// The first RST.
    Reset,
    /// Another one, or a FIN again.
    Repeated,
    /// Only repeated bytes.
    Retransmitted,
}

/// A connection whose bytes are not read: `UnreadState` of kdissect/exchanges/kafka_connection.py.
#[derive(Debug)]
pub struct Unread {
    /// By side, whether any of its bytes were captured.
    pub seen: [bool; 2],
    /// By side, of which messages the head is looked for.
    pub heads: [u8; 2],
    /// Bytes of both sides so far, and until which of them no head is looked for.
    pub bytes: u64,
    pub pause_bytes: u64,
    /// By side, bytes that came here.
    pub skipped: [u64; 2],
    /// The number of the protocol if the connection was opened here; then no head is looked for.
    pub protocol: Option<usize>,
    /// By side, the segment with its hello, for Python to read; empty: none yet.
    pub hellos: [Vec<u8>; 2],
}

/// The number of TLS.
pub const TLS: usize = 1;
/// A longer segment with a hello is left to Python.
pub const HELLO_BYTES: usize = 2048;

const REQUEST_HEAD: u8 = 1;
const RESPONSE_HEAD: u8 = 2;
const LARGEST_SIZE: i32 = (1 << 27) - 1;
const LONGEST_CLIENT_ID: i16 = 255;

impl Unread {
    /// Takes a payload of a side, unless Python must look at it.
    fn pass_over(&mut self, side: usize, segment: &Segment<'_>, apis: &mut impl Apis) -> Result<(), Odd> {
        let (heads, payload) = (self.heads[side], segment.payload);
        let is_looked_at = heads != 0
            && self.bytes >= self.pause_bytes
            && (heads & REQUEST_HEAD != 0 && can_begin_request(payload, apis)
                || heads & RESPONSE_HEAD != 0 && can_begin_response(payload));
        if is_looked_at || (!self.seen[side] && self.protocol.is_none()) {
            return Err(Why::Head.odd());
        }
        if !self.seen[side] {
            let protocol = apis
                .refused(payload, false, segment.ends)
                .ok_or_else(|| Why::Unrecognized.odd())?;
            let is_tls = protocol == TLS;
            if is_tls != (self.protocol == Some(TLS)) || is_tls && payload.len() > HELLO_BYTES {
                return Err(Why::Unrecognized.odd());
            }
            if is_tls {
                self.hellos[side] = payload.to_vec();
            }
            self.protocol = self.protocol.filter(|_| protocol == 0).or(Some(protocol));
            self.seen[side] = true;
        }
        self.bytes += payload.len() as u64;
        self.skipped[side] += payload.len() as u64;
        Ok(())
    }
}

/// As in kdissect/kafka/recognition.py.
fn can_begin_request(payload: &[u8], apis: &mut impl Apis) -> bool {
    let Some(&[a, b, c, d, key, key2, version, version2, e, f, g, h, length, length2]) =
        payload.first_chunk()
    else {
        return false;
    };
    (8..=LARGEST_SIZE).contains(&i32::from_be_bytes([a, b, c, d]))
        && i32::from_be_bytes([e, f, g, h]) >= 0
        && (-1..=LONGEST_CLIENT_ID).contains(&i16::from_be_bytes([length, length2]))
        && apis.is_known(
            i16::from_be_bytes([key, key2]),
            i16::from_be_bytes([version, version2]),
        )
}

/// As in kdissect/kafka/recognition.py.
fn can_begin_response(payload: &[u8]) -> bool {
    payload
        .first_chunk()
        .is_some_and(|&[a, b, c, d, id, ..]: &[u8; 8]| {
            (4..=LARGEST_SIZE).contains(&i32::from_be_bytes([a, b, c, d])) && id < 0x80
        })
}

#[derive(Debug)]
pub struct Connection<X> {
    /// None if it was lent by Python, and ends there.
    pub opening: Option<Opening>,
    pub directions: [Direction; 2],
    /// Time of the latest segment, and of the latest one with payload.
    pub now_ns: i64,
    pub last_ns: i64,
    /// Whether the broker sent payload.
    pub is_answered: bool,
    /// Number of exchanges so far.
    pub completed: u64,
    /// Correlation ID of the first request; None until then.
    pub first_id: Option<i32>,
    /// Correlation ID of the last request, and how many in a row increased by one.
    pub last_id: Option<i32>,
    pub steady: u64,
    pub waiting: VecDeque<Request<X>>,
    /// The latest requests with acks=0: correlation ID, API key and version.
    pub unacknowledged: VecDeque<(i32, i16, i16)>,
    /// Frame bytes of the outstanding requests.
    pub bytes: usize,
    /// Segments since Python lent the connection.
    pub taken: u64,
    /// Whether requests were retransmitted since the latest response.
    pub has_retransmissions: bool,
    /// None if connections are not analyzed.
    pub analysis: Option<Box<Analysis>>,
    /// None if its bytes are read.
    pub unread: Option<Box<Unread>>,
}

/// A frame that a segment completes. Its bytes are `range` of the payload, or the buffered ones and the beginning
/// of the payload.
struct Complete {
    /// The header of a request, and whether a response is expected.
    header: Option<(Header, bool)>,
    range: Option<Range<usize>>,
    start_ns: i64,
}

/// What follows the last frame that a segment completes.
#[derive(Clone, Copy)]
enum Remainder {
    Nothing,
    /// From here on, the payload is the beginning of a size field.
    Prefix(usize),
    /// From here on: a frame of this size, whose size field began at this time.
    Frame(usize, usize, i64),
}

/// The effects of a segment. The caller keeps it, to reuse it.
#[derive(Default)]
pub struct SegmentPlan {
    frames: Vec<Complete>,
    bytes: usize,
}

impl<X> Connection<X> {
    /// Bytes held, including overhead, as `KafkaConnection.held` counts them.
    pub fn held(&self) -> usize {
        let partial: usize = self.directions.iter().map(|each| each.data.len()).sum();
        partial + self.bytes + EXCHANGE_COST * self.waiting.len()
    }

    /// The connection that a SYN opens.
    pub fn open(segment: &Segment<'_>, packet: Packet, limits: &Limits) -> Self {
        let mut directions = [Direction::default(), Direction::default()];
        directions[CLIENT].first = segment.sequence.wrapping_add(1);
        directions[CLIENT].next = directions[CLIENT].first;
        let opening = Opening {
            handshake: Some((Bare::new(segment, packet), None)),
            reset: None,
            due_ns: Some(packet.time_ns.saturating_add(limits.reorder_window_ns)),
            idle_ns: packet.time_ns.saturating_add(limits.connection_idle_ns),
        };
        Connection {
            opening: Some(opening),
            now_ns: packet.time_ns,
            taken: 1,
            ..Connection::new(directions)
        }
    }

    /// A connection of Python whose bytes are not read.
    pub fn unread(directions: [Direction; 2], unread: Unread) -> Self {
        Connection {
            unread: Some(Box::new(unread)),
            ..Connection::new(directions)
        }
    }

    fn new(directions: [Direction; 2]) -> Self {
        Connection {
            opening: None,
            directions,
            now_ns: 0,
            last_ns: 0,
            is_answered: false,
            completed: 0,
            first_id: None,
            last_id: None,
            steady: 0,
            waiting: VecDeque::new(),
            unacknowledged: VecDeque::new(),
            bytes: 0,
            taken: 0,
            has_retransmissions: false,
            analysis: None,
            unread: None,
        }
    }

    /// When both sides had sent a FIN.
    pub fn finished_ns(&self) -> Option<i64> {
        let [one, two] = self.directions.each_ref().map(|each| each.fin_ns);
        Some(one?.max(two?))
    }

    /// Whether both sides have sent a FIN.
    pub fn is_finished(&self) -> bool {
        self.directions.iter().all(|each| each.fin_ns.is_some())
    }

    /// Whether only the SYN was captured, and an RST if it was refused.
    pub fn is_half_open(&self) -> bool {
        self.opening
            .as_ref()
            .is_some_and(|opening| matches!(opening.handshake, Some((_, None))))
    }

    /// Whether the SYN of a side was captured, if the connection may end here.
    pub fn has_syn(&self, side: usize) -> bool {
        self.opening.is_some() && (side == CLIENT || !self.is_half_open())
    }

    /// When its end became final.
    pub fn ended_ns(&self) -> i64 {
        let due_ns = self.opening.as_ref().and_then(|opening| opening.due_ns);
        due_ns.map_or(self.now_ns, |due_ns| due_ns.max(self.now_ns))
    }

    /// Time of the SYN, if the connection was opened here, is open, and nothing of it is outstanding but its end.
    pub fn syn_ns_if_idle(&self) -> Option<i64> {
        let opening = self.opening.as_ref()?;
        let (syn, _) = opening.handshake.as_ref()?;
        let is_idle = opening.due_ns.is_none()
            && opening.reset.is_none()
            && self.first_id.is_some()
            && self.unread.is_none()
            && self.waiting.is_empty()
            && self
                .directions
                .iter()
                .all(|each| each.is_at_boundary() && each.fin_ns.is_none());
        is_idle.then_some(syn.packet.time_ns)
    }

    /// When it began to wait, as in duplex.py.
    pub fn waiting_since_ns(&self) -> Option<i64> {
        let opening = self.opening.as_ref()?;
        match &opening.handshake {
            Some((syn, None)) => Some(syn.packet.time_ns),
            _ if opening.reset.is_some() => opening.due_ns,
            _ => None,
        }
    }

    /// Whether nothing but outstanding requests would be left to report if it ends here.
    fn is_settled(&self) -> bool {
        self.directions.iter().all(Direction::is_at_boundary)
            && self.opening.is_some()
            && (self.is_answered || self.first_id.is_none())
    }

    /// Whether the outstanding requests can be completed as unanswered here, after everything completed before, and
    /// the broker's host has acknowledged them.
    fn can_abandon(&self, time_ns: i64, side: usize, segment: &Segment<'_>) -> bool {
        let is_frame = |request: &Request<X>| matches!(request.message, Message::Frame(..));
        let is_acknowledged = |analysis: &Analysis| analysis.is_acknowledged(CLIENT);
        let acknowledges = || {
            side != CLIENT
                && segment.flags & ACK != 0
                && segment.acknowledgment == self.directions[CLIENT].next
        };
        self.waiting.is_empty()
            || (time_ns > self.last_ns
                && self.waiting.iter().all(is_frame)
                && (self.analysis.as_deref().is_none_or(is_acknowledged) || acknowledges()))
    }

    /// Completes the outstanding requests as unanswered: the connection has ended with a FIN.
    pub fn abandon(&mut self, time_ns: i64, done: &mut impl FnMut(u64, Request<X>, Outcome)) {
        let fins = [CLIENT, 1 - CLIENT].map(|side| Some((self.directions[side].fin_ns?, side == CLIENT)));
        let fin = fins.into_iter().flatten().min_by_key(|&(time_ns, _)| time_ns);
        self.bytes = 0;
        for request in std::mem::take(&mut self.waiting) {
            self.completed += 1;
            if request.is_needed() {
                done(self.completed, request, Outcome::Unanswered(time_ns, fin));
            }
        }
    }

    /// Processes the next segment of a direction; `done` gets the exchanges that it completes.
    pub fn feed(
        &mut self,
        side: usize,
        segment: &Segment<'_>,
        packet: Packet,
        rules: &mut Rules<'_, impl Apis>,
        plan: &mut SegmentPlan,
        done: impl FnMut(u64, Request<X>, Outcome),
    ) -> Result<Effect, Odd> {
        let doubted = self.directions[1 - side].doubted;
        if self.directions[side].is_missing {
            return Err(Why::OneWay.odd());
        }
        if doubted && (segment.is_d_sack() || packet.time_ns < rules.ticked_ns) {
            return Err(Why::Repeated.odd());
        }
        let is_usual = segment.flags & CONTROL == ACK;
        let effect = match self.opening.as_mut() {
            Some(opening) if !is_usual || opening.due_ns.is_some() => {
                if packet.time_ns < rules.ticked_ns || opening.due_ns.is_some_and(|due| packet.time_ns >= due)
                {
                    return Err(Why::Time.odd());
                }
                self.control(side, segment, packet, rules, plan, done)?
            }
            _ if is_usual
                && !segment.payload.is_empty()
                && segment.sequence != self.directions[side].next =>
            {
                self.repeat(side, segment, packet, rules)?;
                Effect::Retransmitted
            }
            _ if is_usual => {
                self.feed_next(side, segment, packet, rules, plan, done)?;
                Effect::Next
            }
            _ => return Err(Why::End.odd()),
        };
        if doubted && !segment.payload.is_empty() {
            self.directions[1 - side].doubted = false;
        }
        self.now_ns = self.now_ns.max(packet.time_ns);
        self.taken += 1;
        match &mut self.analysis {
            Some(analysis) if effect != Effect::AfterClose => analysis.feed(side, segment, packet.time_ns),
            _ => {}
        }
        Ok(effect)
    }

    /// Processes a segment with only repeated bytes: nothing but outstanding requests can have been retransmitted.
    fn repeat(
        &mut self,
        side: usize,
        segment: &Segment<'_>,
        packet: Packet,
        rules: &Rules<'_, impl Apis>,
    ) -> Result<(), Odd> {
        let direction = &self.directions[side];
        let length = i32::try_from(segment.payload.len()).map_err(|_| Odd)?;
        let back = direction.next.wrapping_sub(segment.sequence) as i32;
        let elapsed = packet.time_ns.checked_sub(self.now_ns).ok_or(Odd)?;
        let ahead = segment
            .acknowledgment
            .wrapping_sub(self.directions[1 - side].next) as i32;
        let is_plain =
            |each: &Request<X>| matches!(each.message, Message::Frame(..)) && each.retransmitted_ns.is_none();
        if back <= 0 {
            return Err(Why::Order.odd());
        }
        if length < 2 // perhaps a probe
            || back < length
            || ahead > 0
            || packet.time_ns < rules.ticked_ns
            || !(0..=rules.limits.connection_idle_ns).contains(&elapsed)
            || direction.fin_ns.is_some()
            || direction.records.is_some()
            || !direction.is_at_boundary()
            || !self.waiting.iter().all(is_plain)
        {
            return Err(Why::Repeated.odd());
        }
        self.directions[side].repeated_bytes += segment.payload.len() as u64;
        let end = segment.sequence.wrapping_add(segment.payload.len() as u32);
        let is_needed = |acknowledged| end.wrapping_sub(acknowledged) as i32 > 0;
        if !self.directions[side].acknowledged.is_none_or(is_needed) {
            return Ok(());
        }
        self.directions[side].doubted = true;
        if side == CLIENT {
            self.has_retransmissions = true;
            let mut back = i64::from(back);
            for request in self.waiting.iter_mut().rev() {
                if back <= 0 {
                    break;
                }
                if packet.time_ns - request.time_ns > COPY_NS {
                    request.retransmitted_ns = Some(packet.time_ns);
                }
                back -= request.wire_bytes() as i64;
            }
        }
        Ok(())
    }

    /// Processes a segment that opens or ends a connection, or follows its end.
    fn control(
        &mut self,
        side: usize,
        segment: &Segment<'_>,
        packet: Packet,
        rules: &mut Rules<'_, impl Apis>,
        plan: &mut SegmentPlan,
        mut done: impl FnMut(u64, Request<X>, Outcome),
    ) -> Result<Effect, Odd> {
        let elapsed = packet
            .time_ns
            .checked_sub(self.now_ns)
            .ok_or_else(|| Why::End.odd())?;
        let window_ns = rules.limits.reorder_window_ns;
        let due_ns = packet.time_ns.saturating_add(window_ns);
        let (is_half_open, is_finished) = (self.is_half_open(), self.is_finished());
        let is_settled = self.is_settled();
        let can_abandon = self.can_abandon(packet.time_ns, side, segment);
        let has_fin = self.directions.iter().any(|each| each.fin_ns.is_some());
        let may_reset = self.waiting.is_empty() || (rules.is_queued && has_fin && can_abandon);
        let opening = self.opening.as_mut().ok_or_else(|| Why::End.odd())?;
        if is_finished {
            let is_usual =
                segment.flags & SYN == 0 && (-window_ns..=rules.limits.connection_idle_ns).contains(&elapsed);
            return if is_usual {
                Ok(Effect::AfterClose)
            } else {
                Err(Why::End.odd())
            };
        }
        if !(0..=rules.limits.connection_idle_ns).contains(&elapsed) {
            return Err(Why::End.odd());
        }
        match segment.flags & CONTROL {
            flags if is_half_open && flags & !ACK != RST => {
                if side == CLIENT
                    || flags != SYN | ACK
                    || opening.reset.is_some()
                    || !segment.payload.is_empty()
                    || segment.acknowledgment != self.directions[CLIENT].next
                {
                    return Err(Why::End.odd());
                }
                if let Some((_, syn_ack)) = &mut opening.handshake {
                    *syn_ack = Some(Bare::new(segment, packet));
                }
                opening.due_ns = None;
                self.directions[CLIENT].acknowledged = Some(segment.acknowledgment);
                self.directions[side].first = segment.sequence.wrapping_add(1);
                self.directions[side].next = self.directions[side].first;
                Ok(Effect::Opened)
            }
            flags if flags & !ACK == RST && segment.payload.is_empty() => {
                let distance = segment.sequence.wrapping_sub(self.directions[side].next) as i32;
                let is_near = is_half_open || distance.unsigned_abs() <= rules.limits.reach;
                if !is_near || !is_settled || !may_reset {
                    return Err(Why::End.odd());
                }
                let bare = Bare::new(segment, packet);
                let is_first = opening.reset.is_none();
                let (first_ns, ..) = *opening.reset.get_or_insert((packet.time_ns, side, bare));
                opening.reset = Some((first_ns, side, bare));
                if !is_first {
                    return Ok(Effect::Repeated);
                }
                opening.due_ns = Some(due_ns);
                Ok(Effect::Reset)
            }
            flags
                if flags == FIN | ACK
                    && opening.due_ns.is_none()
                    && self.directions[side].fin_ns.is_some()
                    && segment.payload.is_empty()
                    && segment.sequence.wrapping_add(1) == self.directions[side].next =>
            {
                let other = &mut self.directions[1 - side];
                if (other.next.wrapping_sub(segment.acknowledgment) as i32) < 0 {
                    return Err(Why::End.odd());
                }
                other.acknowledged = Some(segment.acknowledgment);
                Ok(Effect::Repeated)
            }
            flags if flags == FIN | ACK && opening.due_ns.is_none() => {
                let is_last = self.directions[1 - side].fin_ns.is_some();
                if self.directions[side].fin_ns.is_some()
                    || (is_last && !(is_settled && can_abandon && segment.payload.is_empty()))
                {
                    return Err(Why::End.odd());
                }
                self.feed_next(side, segment, packet, rules, plan, &mut done)?;
                let direction = &mut self.directions[side];
                direction.next = direction.next.wrapping_add(1);
                direction.fin_ns = Some(packet.time_ns);
                if !is_last {
                    return Ok(Effect::Next);
                }
                self.abandon(packet.time_ns, &mut done);
                self.opening.as_mut().ok_or_else(|| Why::End.odd())?.due_ns = Some(due_ns);
                Ok(Effect::Finished)
            }
            _ => Err(Why::End.odd()),
        }
    }

    /// Processes payload and acknowledgment of the next segment of a direction.
    fn feed_next(
        &mut self,
        side: usize,
        segment: &Segment<'_>,
        packet: Packet,
        rules: &mut Rules<'_, impl Apis>,
        plan: &mut SegmentPlan,
        mut done: impl FnMut(u64, Request<X>, Outcome),
    ) -> Result<(), Odd> {
        let other = &self.directions[1 - side];
        let is_ahead = (other.next.wrapping_sub(segment.acknowledgment) as i32) < 0;
        let moves = is_ahead && other.is_missing;
        let elapsed = packet.time_ns.checked_sub(self.now_ns).ok_or(Odd)?;
        if !(0..=rules.limits.connection_idle_ns).contains(&elapsed) {
            return Err(Why::Time.odd());
        }
        if is_ahead && !moves {
            return Err(Why::Acknowledgment.odd());
        }
        if segment.sequence != self.directions[side].next || segment.flags & (CONTROL & !FIN) != ACK {
            return Err(Why::Order.odd());
        }
        if segment.payload.is_empty() {
            let other = &mut self.directions[1 - side];
            other.acknowledged = Some(segment.acknowledgment);
            if moves {
                other.next = segment.acknowledgment;
            }
            return Ok(());
        }
        if self.directions[side].fin_ns.is_some() {
            return Err(Why::End.odd());
        }
        if self.unread.is_none() && !self.is_recognized(side, segment.payload, rules) {
            self.refuse(side, segment, rules)?;
        }
        if let Some(unread) = &mut self.unread {
            unread.pass_over(side, segment, rules.apis)?;
            if moves {
                self.directions[1 - side].next = segment.acknowledgment;
            }
            let direction = &mut self.directions[side];
            direction.next = direction.next.wrapping_add(segment.payload.len() as u32);
            self.last_ns = self.last_ns.max(packet.time_ns);
            return Ok(());
        }
        let before = (self.directions[side].data.len(), self.directions[side].skipped);
        let records = self.directions[side].records.as_mut();
        let opened = records.map(|records| records.open(segment.payload)).transpose()?;
        let payload = opened.as_deref().unwrap_or(segment.payload);
        let rest = match self.plan(side, payload, packet.time_ns, rules, plan) {
            Ok(rest) => rest,
            Err(odd) => {
                let direction = &mut self.directions[side];
                direction.data.truncate(before.0);
                direction.skipped = before.1;
                direction.records.as_mut().map(Records::undo);
                return Err(odd);
            }
        };
        self.apply(side, payload, packet, rules, plan, rest, &mut done);
        let direction = &mut self.directions[side];
        direction.next = direction.next.wrapping_add(segment.payload.len() as u32);
        if let Some(records) = &mut direction.records {
            records.keep(segment.payload);
        }
        if !payload.is_empty() {
            direction.latest = Some(packet);
            self.last_ns = self.last_ns.max(packet.time_ns); // the clock may have been set back
        }
        self.first_id = self.first_id.or(self.last_id);
        self.is_answered |= side != CLIENT;
        Ok(())
    }

    /// Whether a connection opened here is known to be Kafka: from its first payload on, which is one request. The
    /// broker's payload must not look like another protocol.
    fn is_recognized(&self, side: usize, payload: &[u8], rules: &mut Rules<'_, impl Apis>) -> bool {
        if self.opening.is_none() {
            return true;
        }
        match (side, self.first_id) {
            (CLIENT, None) => payload.split_first_chunk().is_some_and(|(size, frame)| {
                u32::from_be_bytes(*size) as usize == frame.len() && rules.apis.is_first(frame)
            }),
            (_, None) => false,
            (CLIENT, _) => true,
            _ => self.is_answered || payload[0] == 0,
        }
    }

    /// Does not read a connection that was opened here if its first payload shows that it is not Kafka.
    fn refuse(
        &mut self,
        side: usize,
        segment: &Segment<'_>,
        rules: &mut Rules<'_, impl Apis>,
    ) -> Result<(), Odd> {
        let is_opened_here = |opening: &Opening| opening.handshake.is_some();
        if self.first_id.is_some()
            || !self.opening.as_ref().is_some_and(is_opened_here)
            || !self.directions.iter().all(Direction::is_at_boundary)
        {
            return Err(Why::Unrecognized.odd());
        }
        let protocol = rules
            .apis
            .refused(segment.payload, side == CLIENT, segment.ends)
            .ok_or_else(|| Why::Unrecognized.odd())?;
        let is_tls = protocol == TLS;
        if protocol == 0 || is_tls && (side != CLIENT || segment.payload.len() > HELLO_BYTES) {
            return Err(Why::Unrecognized.odd());
        }
        let hello = if is_tls {
            segment.payload.to_vec()
        } else {
            Vec::new()
        };
        self.unread = Some(Box::new(Unread {
            seen: [side == CLIENT, side != CLIENT],
            heads: [0; 2],
            bytes: 0,
            pause_bytes: 0,
            skipped: [0; 2],
            protocol: Some(protocol),
            hellos: [hello, Vec::new()],
        }));
        Ok(())
    }

    /// Checks the frames that a payload completes. Its only effect is to add bytes to the incomplete frame.
    fn plan(
        &mut self,
        side: usize,
        payload: &[u8],
        time_ns: i64,
        rules: &mut Rules<'_, impl Apis>,
        plan: &mut SegmentPlan,
    ) -> Result<Remainder, Odd> {
        plan.frames.clear();
        plan.bytes = 0;
        let mut pos = 0;
        let mut prefix: Vec<u8> = Vec::new();
        let mut start_ns = time_ns;
        let direction = &self.directions[side];
        if direction.size > 0 {
            pos = payload.len().min(direction.missing());
            self.extend(side, &payload[..pos], rules);
            let direction = &self.directions[side];
            if direction.missing() > 0 {
                return Ok(Remainder::Nothing);
            }
            let header = self.check(side, &direction.data, time_ns, rules, plan)?;
            plan.frames.push(Complete {
                header,
                range: None,
                start_ns: direction.start_ns,
            });
            plan.bytes += direction.data.len();
        } else if !direction.prefix.is_empty() {
            prefix.clone_from(&direction.prefix);
            start_ns = direction.start_ns;
        }
        while pos < payload.len() {
            let missing = SIZE_BYTES - prefix.len();
            if payload.len() - pos < missing {
                return Ok(Remainder::Prefix(pos));
            }
            prefix.extend_from_slice(&payload[pos..pos + missing]);
            pos += missing;
            let size = i32::from_be_bytes(prefix[..].try_into().map_err(|_| Odd)?);
            let size = usize::try_from(size).map_err(|_| Why::Size.odd())?;
            if size == 0 || size > rules.limits.frame_bytes {
                return Err(Why::Size.odd());
            }
            if payload.len() - pos < size {
                return Ok(Remainder::Frame(pos, size, start_ns));
            }
            let range = pos..pos + size;
            let header = self.check(side, &payload[range.clone()], time_ns, rules, plan)?;
            plan.frames.push(Complete {
                header,
                range: Some(range),
                start_ns,
            });
            plan.bytes += size;
            pos += size;
            prefix.clear();
            start_ns = time_ns;
        }
        Ok(Remainder::Nothing)
    }

    /// Adds bytes to the frame that has begun. Of one that is not needed, only the first are kept.
    fn extend(&mut self, side: usize, piece: &[u8], rules: &mut Rules<'_, impl Apis>) {
        let direction = &mut self.directions[side];
        let mut rest = piece;
        if rules.skims && direction.skipped == 0 && direction.data.len() <= KEPT_BYTES {
            let (first, more) = piece.split_at(piece.len().min(KEPT_BYTES - direction.data.len()));
            direction.data.extend_from_slice(first);
            rest = more;
            if !rest.is_empty() && !self.is_needed(side, rules) {
                self.directions[side].skipped = rest.len();
                return;
            }
        }
        let direction = &mut self.directions[side];
        if direction.skipped > 0 {
            direction.skipped += rest.len();
        } else {
            direction.data.extend_from_slice(rest);
        }
    }

    /// Whether the frame that has begun is needed, or may be: see [`Usual`]. Those before it are complete.
    fn is_needed(&self, side: usize, rules: &mut Rules<'_, impl Apis>) -> bool {
        let data = &self.directions[side].data;
        if side == CLIENT {
            return request_header(data, rules.apis).map_or(true, |(header, _)| header.is_needed);
        }
        let answers = |request: &&Request<X>| data.starts_with(&request.correlation_id.to_be_bytes());
        self.waiting
            .front()
            .filter(answers)
            .is_none_or(Request::is_needed)
    }

    /// Checks one frame, after those already planned: a request's header, or a response's correlation ID.
    fn check(
        &self,
        side: usize,
        data: &[u8],
        time_ns: i64,
        rules: &mut Rules<'_, impl Apis>,
        plan: &SegmentPlan,
    ) -> Result<Option<(Header, bool)>, Odd> {
        if side != CLIENT {
            let bytes = data.first_chunk::<CORRELATION_ID_BYTES>().ok_or(Odd)?;
            let request = self
                .waiting
                .get(plan.frames.len())
                .ok_or_else(|| Why::Response.odd())?;
            let answers = request.correlation_id == i32::from_be_bytes(*bytes);
            return if answers && !request.names_vendor(data) {
                Ok(None)
            } else {
                Err(Why::Response.odd())
            };
        }
        let (header, expects_response) = request_header(data, rules.apis)?;
        let id = header.correlation_id;
        let planned = plan.frames.last().and_then(|each| each.header.as_ref());
        let planned = planned.map(|each| each.0.correlation_id);
        let last_id = planned.or(self.last_id);
        // Outstanding requests have rising IDs, so none has this ID.
        let newest = planned.or(self.waiting.back().map(|each| each.correlation_id));
        if last_id == Some(id) || newest.is_some_and(|newest| id <= newest) {
            return Err(Why::Id.odd());
        }
        let limits = rules.limits;
        if self.waiting.len() + plan.frames.len() >= limits.pending_requests
            || self.bytes + plan.bytes + data.len() > limits.pending_bytes
            || self
                .waiting
                .front()
                .is_some_and(|oldest| time_ns - oldest.time_ns > limits.pending_age_ns)
        {
            return Err(Why::Limit.odd());
        }
        Ok(Some((header, expects_response)))
    }

    #[allow(clippy::too_many_arguments)]
    fn apply(
        &mut self,
        side: usize,
        payload: &[u8],
        packet: Packet,
        rules: &mut Rules<'_, impl Apis>,
        plan: &mut SegmentPlan,
        rest: Remainder,
        done: &mut impl FnMut(u64, Request<X>, Outcome),
    ) {
        for Complete {
            header,
            range,
            start_ns,
        } in plan.frames.drain(..)
        {
            let answered = if header.is_none() {
                self.waiting.pop_front()
            } else {
                None
            };
            let max = match (&header, &answered) {
                (Some((header, _)), _) if !header.is_needed => KEPT_BYTES,
                (_, Some(request)) if !request.is_needed() => 0,
                _ => usize::MAX,
            };
            let direction = &mut self.directions[side];
            let (data, size) = match range {
                Some(range) => {
                    let size = range.len();
                    (payload[range][..size.min(max)].to_vec(), size)
                }
                None => {
                    direction.skipped = 0;
                    (
                        std::mem::take(&mut direction.data),
                        std::mem::take(&mut direction.size),
                    )
                }
            };
            direction.prefix.clear();
            let Packet {
                number,
                time_ns,
                interface,
            } = packet;
            let frame = Frame {
                data,
                size,
                packet: number,
                interface,
                start_ns,
                end_ns: time_ns,
            };
            if let Some((header, expects_response)) = header {
                self.send(header, frame, expects_response, done);
            } else if let Some(request) = answered {
                self.bytes -= request.bytes;
                self.has_retransmissions = false;
                self.completed += 1;
                if request.is_needed() {
                    done(self.completed, request, Outcome::Answered(frame));
                }
            }
        }
        let direction = &mut self.directions[side];
        match rest {
            Remainder::Nothing => {}
            Remainder::Prefix(from) => {
                if direction.prefix.is_empty() {
                    direction.start_ns = packet.time_ns;
                }
                direction.prefix.extend_from_slice(&payload[from..]);
            }
            Remainder::Frame(from, size, start_ns) => {
                direction.prefix.clear();
                direction.size = size;
                direction.start_ns = start_ns;
                let kept = if rules.skims { KEPT_BYTES } else { FIRST_ALLOCATION };
                direction.data.reserve(size.min(kept));
                self.extend(side, &payload[from..], rules);
            }
        }
    }

    fn send(
        &mut self,
        header: Header,
        frame: Frame,
        expects_response: bool,
        done: &mut impl FnMut(u64, Request<X>, Outcome),
    ) {
        let correlation_id = header.correlation_id;
        if let Some(last_id) = self.last_id {
            self.steady = if last_id.checked_add(1) == Some(correlation_id) {
                self.steady + 1
            } else {
                0
            };
        }
        self.last_id = Some(correlation_id);
        let api = (correlation_id, header.api_key, header.api_version);
        let request = Request {
            correlation_id,
            time_ns: frame.end_ns,
            bytes: frame.data.len(),
            message: Message::Frame(header, frame),
            retransmitted_ns: None,
        };
        if expects_response {
            self.bytes += request.bytes;
            self.waiting.push_back(request);
            return;
        }
        if self.unacknowledged.len() >= UNACKNOWLEDGED_KEPT {
            self.unacknowledged.pop_front();
        }
        self.unacknowledged.push_back(api);
        self.completed += 1;
        if request.is_needed() {
            done(self.completed, request, Outcome::Unacknowledged);
        }
    }
}

/// Reads a fast-path request header. Also returns whether a response is expected: not for Produce with acks=0.
pub fn request_header(data: &[u8], apis: &mut impl Apis) -> Result<(Header, bool), Odd> {
    let fixed: &[u8; 10] = data.first_chunk().ok_or(Odd)?;
    let api_key = i16::from_be_bytes([fixed[0], fixed[1]]);
    let api_version = i16::from_be_bytes([fixed[2], fixed[3]]);
    let correlation_id = i32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
    let usual = apis.usual(api_key, api_version).ok_or_else(|| Why::Api.odd())?;
    let mut end = fixed.len();
    let client_id = match i16::from_be_bytes([fixed[8], fixed[9]]) {
        -1 => None,
        size => {
            let begin = end;
            end += usize::try_from(size).map_err(|_| Odd)?;
            if end - begin > NAME_BYTES {
                return Err(Odd);
            }
            std::str::from_utf8(data.get(begin..end).ok_or(Odd)?).map_err(|_| Odd)?;
            Some(begin..end)
        }
    };
    if usual.has_tags {
        if data.get(end) != Some(&0) {
            return Err(Odd);
        }
        end += 1;
    }
    let expects_response = api_key != PRODUCE || acks(&data[end..], usual.before_acks)? != 0;
    let header = Header {
        api_key,
        api_version,
        correlation_id,
        client_id,
        body_pos: end,
        is_needed: usual.is_needed,
    };
    Ok((header, expects_response))
}

/// Whether an ApiVersions response has an API key that Kafka does not use, or a layout that is not the usual one.
pub fn advertises_vendor(response: &[u8], api_version: i16) -> bool {
    // After the error code, each API: its key, its first and last version, and from version 3 on tags.
    let body = &response[response.len().min(CORRELATION_ID_BYTES + 2)..];
    let (count_bytes, width) = match body.first() {
        _ if api_version < 3 => (4, 6),
        Some(0x80..) => (2, 7),
        _ => (1, 7),
    };
    let (count, apis) = body.split_at(body.len().min(count_bytes));
    let count = match *count {
        [one] => usize::from(one).saturating_sub(1),
        [one, two] => (usize::from(one & 0x7f) + (usize::from(two) << 7)).saturating_sub(1),
        [.., high, low] => usize::from(u16::from_be_bytes([high, low])),
        [] => 0,
    };
    apis.chunks_exact(width)
        .take(count)
        .any(|api| api[0] != 0 || api.get(6).is_some_and(|tags| *tags != 0))
}

/// The field `acks` of a Produce body.
fn acks(body: &[u8], before: BeforeAcks) -> Result<i16, Odd> {
    let (begin, end) = match before {
        BeforeAcks::Nothing => (0, 0),
        BeforeAcks::Text => {
            let size: &[u8; 2] = body.first_chunk().ok_or(Odd)?;
            (
                2,
                2 + usize::try_from(i16::from_be_bytes(*size).max(0)).map_err(|_| Odd)?,
            )
        }
        BeforeAcks::CompactText => match body.first().ok_or(Odd)? {
            0 => (1, 1),
            size @ 1..=127 => (1, usize::from(*size)), // one more than its bytes, and so is their position
            _ => return Err(Odd),
        },
    };
    std::str::from_utf8(body.get(begin..end).ok_or(Odd)?).map_err(|_| Odd)?;
    match body.get(end..end + 2) {
        Some(&[high, low]) => Ok(i16::from_be_bytes([high, low])),
        _ => Err(Odd),
    }
}
