//! One connection, as long as everything on it is usual: its segments -> frames -> paired exchanges.
//!
//! This is the usual path through kdissect/net/connection.py, kafka/framing.py and exchanges/pairing.py. A
//! segment is checked as a whole before it has any effect: its place in the stream, the header of each
//! request that it completes, and that each response answers the oldest request. If anything is odd, the
//! connection is as it was before, and goes back to Python, which takes that segment.
//!
//! A connection is lent by Python, or opened here by its SYN ([`Opening`]). The end of the latter is usual if
//! nothing is outstanding; see also net/duplex.py.

use std::collections::VecDeque;
use std::ops::Range;

use crate::packet::{Segment, ACK, CONTROL, FIN, RST, SYN};
use crate::tls::Records;
use crate::Odd;

pub const CLIENT: usize = 0;

const SIZE_BYTES: usize = 4;
const CORRELATION_ID_BYTES: usize = 4;
const PRODUCE: i16 = 0;
/// Overhead of an outstanding request, as in pairing.py.
const EXCHANGE_COST: usize = 1024;
const FIRST_ALLOCATION: usize = 64 * 1024; // a size field is only a claim

/// Those of kdissect/limits.py that matter here.
#[derive(Debug, Clone)]
pub struct Limits {
    pub frame_bytes: usize,
    pub pending_requests: usize,
    pub pending_bytes: usize,
    pub pending_age_ns: i64,
    pub connection_idle_ns: i64,
    pub reorder_window_ns: i64,
    /// The farthest from the next byte that a RST may be.
    pub reach: u32,
}

/// What must be known about the requests of an API in one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usual {
    /// Whether the header ends with tagged fields.
    pub has_tags: bool,
    /// Of Produce: the form of the field before `acks`.
    pub before_acks: BeforeAcks,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeforeAcks {
    Nothing,
    Text,
    CompactText,
}

/// Says what is usual. None: requests of this API and version are left to Python.
pub trait Apis {
    fn usual(&mut self, api_key: i16, api_version: i16) -> Option<Usual>;

    /// Whether a connection whose client first sends this frame is recognized at once.
    fn is_first(&mut self, frame: &[u8]) -> bool;

    /// Whether a SYN between these ends opens a connection, as far as Python knows.
    fn may_open(&mut self, ends: &[u8]) -> bool;
}

/// What decides whether a frame is usual.
pub struct Rules<'a, A> {
    pub limits: &'a Limits,
    pub apis: &'a mut A,
    /// All segments up to this time have been delivered.
    pub ticked_ns: i64,
}

/// The packet that carries a segment.
#[derive(Debug, Clone, Copy)]
pub struct Packet {
    pub number: u64,
    pub time_ns: i64,
    /// Stands for an interface.
    pub interface: usize,
}

/// A complete frame, as in kdissect/model.py.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    pub data: Vec<u8>,
    pub packet: u64,
    pub interface: usize,
    pub start_ns: i64,
    pub end_ns: i64,
}

/// A request header: kdissect/kafka/headers.py. Positions are those in the frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub api_key: i16,
    pub api_version: i16,
    pub correlation_id: i32,
    pub client_id: Option<Range<usize>>,
    pub body_pos: usize,
}

impl Header {
    /// The bytes of the client ID in the frame.
    pub fn raw_client_id<'a>(&self, frame: &'a Frame) -> Option<&'a [u8]> {
        frame.data.get(self.client_id.clone()?)
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Message<X> {
    Frame(Header, Frame),
    /// Python's object for a request that was outstanding when the connection came from there.
    Object(X),
}

/// An outstanding request.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<X> {
    pub correlation_id: i32,
    pub time_ns: i64,
    pub bytes: usize,
    pub message: Message<X>,
}

/// A request and its response.
#[derive(Debug)]
pub struct Finished<X> {
    /// Stands for the connection.
    pub slot: usize,
    /// Number within the connection.
    pub number: u64,
    pub request: Request<X>,
    pub response: Frame,
}

/// One direction: the stream, and the frame of which only a part has arrived.
#[derive(Debug, Default)]
pub struct Direction {
    /// Sequence number of the next byte.
    pub next: u32,
    /// Latest acknowledgment of it in a segment without payload.
    pub acknowledged: Option<u32>,
    /// The first bytes of a size field.
    pub prefix: Vec<u8>,
    /// Bytes of a frame of `size` bytes; `size` is 0 between two frames.
    pub data: Vec<u8>,
    pub size: usize,
    /// Time of the first byte of the size field.
    pub start_ns: i64,
    /// Time of the FIN, which is the byte before `next`.
    pub fin_ns: Option<i64>,
    /// None: it is not encrypted.
    pub records: Option<Records>,
}

impl Direction {
    fn is_at_boundary(&self) -> bool {
        self.size == 0 && self.prefix.is_empty()
    }
}

/// A segment without payload, for Python to take again.
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

/// What is known of a connection that was opened here. Its client has sent the SYN.
#[derive(Debug)]
pub struct Opening {
    pub syn: Bare,
    pub syn_ack: Option<Bare>,
    /// Correlation ID of the first request; None before it.
    pub first_id: Option<i32>,
    /// Whether the broker sent payload.
    pub is_answered: bool,
    /// Time of the first RST, side and segment of the latest one.
    pub reset: Option<(i64, usize, Bare)>,
    /// Until when it waits: for a SYN-ACK, or after its end for segments that are late in the capture.
    pub due_ns: Option<i64>,
    /// When it becomes idle, at the earliest.
    pub idle_ns: i64,
}

/// What a segment was.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// The next one, as most are.
    Next,
    /// The SYN-ACK.
    Opened,
    /// The FIN that was missing.
    Finished,
    /// After that.
    AfterClose,
    /// The first RST.
    Reset,
    /// Another one.
    Repeated,
}

#[derive(Debug)]
pub struct Connection<X> {
    /// None: it was lent by Python.
    pub opening: Option<Opening>,
    pub directions: [Direction; 2],
    /// Latest time of a segment, and of one with payload.
    pub now_ns: i64,
    pub last_ns: i64,
    /// Exchanges so far.
    pub completed: u64,
    /// Correlation ID of the last request, and how many in a row were one more than the one before.
    pub last_id: Option<i32>,
    pub steady: u64,
    pub waiting: VecDeque<Request<X>>,
    /// Frame bytes of the outstanding requests.
    pub bytes: usize,
    /// Segments since it came from Python.
    pub taken: u64,
}

/// A frame that a segment completes. Its bytes are `range` of the payload, or those held with the beginning
/// of the payload.
struct Complete {
    header: Option<Header>,
    range: Option<Range<usize>>,
    start_ns: i64,
}

/// What follows the last frame that a segment completes.
#[derive(Clone, Copy)]
enum Rest {
    Nothing,
    /// The payload from here on is the beginning of a size field.
    Prefix(usize),
    /// From here on: a frame of this size, whose size field began at this time.
    Frame(usize, usize, i64),
}

/// What a segment does. Kept by the caller, to be used again.
#[derive(Default)]
pub struct Plan {
    frames: Vec<Complete>,
    bytes: usize,
}

impl<X> Connection<X> {
    /// Bytes held, including overhead.
    pub fn held(&self) -> usize {
        let in_record = |each: &Direction| each.records.as_ref().map_or(0, |records| records.buffer.len());
        let partial: usize = self
            .directions
            .iter()
            .map(|each| each.data.len() + in_record(each))
            .sum();
        partial + self.bytes + EXCHANGE_COST * self.waiting.len()
    }

    /// The connection that a SYN opens.
    pub fn open(segment: &Segment<'_>, packet: Packet, limits: &Limits) -> Self {
        let mut directions = [Direction::default(), Direction::default()];
        directions[CLIENT].next = segment.sequence.wrapping_add(1);
        Connection {
            opening: Some(Opening {
                syn: Bare::new(segment, packet),
                syn_ack: None,
                first_id: None,
                is_answered: false,
                reset: None,
                due_ns: Some(packet.time_ns.saturating_add(limits.reorder_window_ns)),
                idle_ns: packet.time_ns.saturating_add(limits.connection_idle_ns),
            }),
            directions,
            now_ns: packet.time_ns,
            last_ns: 0,
            completed: 0,
            last_id: None,
            steady: 0,
            waiting: VecDeque::new(),
            bytes: 0,
            taken: 1,
        }
    }

    /// Whether both sides have sent a FIN.
    pub fn is_finished(&self) -> bool {
        self.directions.iter().all(|each| each.fin_ns.is_some())
    }

    /// Whether only the SYN was captured.
    pub fn is_half_open(&self) -> bool {
        self.opening
            .as_ref()
            .is_some_and(|opening| opening.syn_ack.is_none())
    }

    /// Since when it waits, as in duplex.py.
    pub fn waiting_since_ns(&self) -> Option<i64> {
        let opening = self.opening.as_ref()?;
        if opening.syn_ack.is_none() {
            Some(opening.syn.packet.time_ns)
        } else if opening.reset.is_some() {
            opening.due_ns
        } else {
            None
        }
    }

    /// Whether nothing is left to say of it if it ends here.
    fn is_settled(&self) -> bool {
        let is_answered = |opening: &Opening| opening.is_answered || opening.first_id.is_none();
        self.waiting.is_empty()
            && self.directions.iter().all(Direction::is_at_boundary)
            && self.opening.as_ref().is_some_and(is_answered)
    }

    /// Takes the next segment of a direction; `done` gets the exchanges that it completes.
    pub fn feed(
        &mut self,
        side: usize,
        segment: &Segment<'_>,
        packet: Packet,
        rules: &mut Rules<'_, impl Apis>,
        plan: &mut Plan,
        done: impl FnMut(u64, Request<X>, Frame),
    ) -> Result<Effect, Odd> {
        let is_usual = segment.flags & CONTROL == ACK;
        let effect = match self.opening.as_mut() {
            Some(opening) if !is_usual || opening.due_ns.is_some() => {
                if packet.time_ns < rules.ticked_ns || opening.due_ns.is_some_and(|due| packet.time_ns >= due)
                {
                    return Err(Odd);
                }
                self.control(side, segment, packet, rules, plan, done)?
            }
            _ if is_usual => {
                self.feed_next(side, segment, packet, rules, plan, done)?;
                Effect::Next
            }
            _ => return Err(Odd),
        };
        self.now_ns = self.now_ns.max(packet.time_ns);
        self.taken += 1;
        Ok(effect)
    }

    /// Takes a segment that opens or ends a connection, or comes after its end.
    fn control(
        &mut self,
        side: usize,
        segment: &Segment<'_>,
        packet: Packet,
        rules: &mut Rules<'_, impl Apis>,
        plan: &mut Plan,
        done: impl FnMut(u64, Request<X>, Frame),
    ) -> Result<Effect, Odd> {
        let elapsed = packet.time_ns.checked_sub(self.now_ns).ok_or(Odd)?;
        let window_ns = rules.limits.reorder_window_ns;
        let due_ns = packet.time_ns.saturating_add(window_ns);
        let (is_finished, is_settled) = (self.is_finished(), self.is_settled());
        let opening = self.opening.as_mut().ok_or(Odd)?;
        if is_finished {
            let is_usual = segment.flags & SYN == 0 && elapsed >= -window_ns;
            return if is_usual {
                Ok(Effect::AfterClose)
            } else {
                Err(Odd)
            };
        }
        if !(0..=rules.limits.connection_idle_ns).contains(&elapsed) {
            return Err(Odd);
        }
        match segment.flags & CONTROL {
            flags if opening.syn_ack.is_none() => {
                if side == CLIENT
                    || flags != SYN | ACK
                    || !segment.payload.is_empty()
                    || segment.acknowledgment != self.directions[CLIENT].next
                {
                    return Err(Odd);
                }
                opening.syn_ack = Some(Bare::new(segment, packet));
                opening.due_ns = None;
                self.directions[CLIENT].acknowledged = Some(segment.acknowledgment);
                self.directions[side].next = segment.sequence.wrapping_add(1);
                Ok(Effect::Opened)
            }
            flags if flags & !ACK == RST && segment.payload.is_empty() => {
                let distance = segment.sequence.wrapping_sub(self.directions[side].next) as i32;
                if distance.unsigned_abs() > rules.limits.reach || !is_settled {
                    return Err(Odd);
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
            flags if flags == FIN | ACK && opening.due_ns.is_none() => {
                let is_last = self.directions[1 - side].fin_ns.is_some();
                if self.directions[side].fin_ns.is_some()
                    || (is_last && !(is_settled && segment.payload.is_empty()))
                {
                    return Err(Odd);
                }
                self.feed_next(side, segment, packet, rules, plan, done)?;
                let direction = &mut self.directions[side];
                direction.next = direction.next.wrapping_add(1);
                direction.fin_ns = Some(packet.time_ns);
                if !is_last {
                    return Ok(Effect::Next);
                }
                self.opening.as_mut().ok_or(Odd)?.due_ns = Some(due_ns);
                Ok(Effect::Finished)
            }
            _ => Err(Odd),
        }
    }

    /// Takes payload and acknowledgment of the next segment of a direction.
    fn feed_next(
        &mut self,
        side: usize,
        segment: &Segment<'_>,
        packet: Packet,
        rules: &mut Rules<'_, impl Apis>,
        plan: &mut Plan,
        mut done: impl FnMut(u64, Request<X>, Frame),
    ) -> Result<(), Odd> {
        let other_next = self.directions[1 - side].next;
        let elapsed = packet.time_ns.checked_sub(self.now_ns).ok_or(Odd)?;
        if segment.sequence != self.directions[side].next
            || segment.flags & (CONTROL & !FIN) != ACK
            || !(0..=rules.limits.connection_idle_ns).contains(&elapsed)
            || (other_next.wrapping_sub(segment.acknowledgment) as i32) < 0
        {
            return Err(Odd);
        }
        if segment.payload.is_empty() {
            self.directions[1 - side].acknowledged = Some(segment.acknowledgment);
            return Ok(());
        }
        if self.directions[side].fin_ns.is_some() || !self.is_recognized(side, segment.payload, rules) {
            return Err(Odd);
        }
        let before = self.directions[side].data.len();
        let records = self.directions[side].records.as_mut();
        let opened = records.map(|records| records.open(segment.payload)).transpose()?;
        let payload = opened.as_deref().unwrap_or(segment.payload);
        let rest = match self.plan(side, payload, packet.time_ns, rules, plan) {
            Ok(rest) => rest,
            Err(Odd) => {
                let direction = &mut self.directions[side];
                direction.data.truncate(before);
                direction.records.as_mut().map(Records::undo);
                return Err(Odd);
            }
        };
        self.carry_out(side, payload, packet, plan, rest, &mut done);
        let direction = &mut self.directions[side];
        direction.next = direction.next.wrapping_add(segment.payload.len() as u32);
        if let Some(records) = &mut direction.records {
            records.keep(segment.payload);
        }
        if !payload.is_empty() {
            self.last_ns = packet.time_ns;
        }
        if let Some(opening) = self.opening.as_mut() {
            opening.first_id = opening.first_id.or(self.last_id);
            opening.is_answered |= side != CLIENT;
        }
        Ok(())
    }

    /// Whether a connection that was opened here is known to be Kafka: from its first payload on, which is one
    /// request. The broker's must not look like another protocol.
    fn is_recognized(&self, side: usize, payload: &[u8], rules: &mut Rules<'_, impl Apis>) -> bool {
        let Some(opening) = self.opening.as_ref() else {
            return true;
        };
        match (side, opening.first_id) {
            (CLIENT, None) => payload.split_first_chunk().is_some_and(|(size, frame)| {
                u32::from_be_bytes(*size) as usize == frame.len() && rules.apis.is_first(frame)
            }),
            (_, None) => false,
            (CLIENT, _) => true,
            _ => opening.is_answered || payload[0] == 0,
        }
    }

    /// Checks the frames that a payload completes. Its only effect is that bytes of the frame that has begun
    /// are added to it.
    fn plan(
        &mut self,
        side: usize,
        payload: &[u8],
        time_ns: i64,
        rules: &mut Rules<'_, impl Apis>,
        plan: &mut Plan,
    ) -> Result<Rest, Odd> {
        plan.frames.clear();
        plan.bytes = 0;
        let mut pos = 0;
        let mut prefix: Vec<u8> = Vec::new();
        let mut start_ns = time_ns;
        let direction = &mut self.directions[side];
        if direction.size > 0 {
            pos = payload.len().min(direction.size - direction.data.len());
            direction.data.extend_from_slice(&payload[..pos]);
            if direction.data.len() < direction.size {
                return Ok(Rest::Nothing);
            }
            let start_ns = direction.start_ns;
            let header = self.check(side, &self.directions[side].data, time_ns, rules, plan)?;
            plan.frames.push(Complete {
                header,
                range: None,
                start_ns,
            });
            plan.bytes += self.directions[side].size;
        } else if !direction.prefix.is_empty() {
            prefix.clone_from(&direction.prefix);
            start_ns = direction.start_ns;
        }
        while pos < payload.len() {
            let missing = SIZE_BYTES - prefix.len();
            if payload.len() - pos < missing {
                return Ok(Rest::Prefix(pos));
            }
            prefix.extend_from_slice(&payload[pos..pos + missing]);
            pos += missing;
            let size = i32::from_be_bytes(prefix[..].try_into().map_err(|_| Odd)?);
            let size = usize::try_from(size).map_err(|_| Odd)?;
            if size == 0 || size > rules.limits.frame_bytes {
                return Err(Odd);
            }
            if payload.len() - pos < size {
                return Ok(Rest::Frame(pos, size, start_ns));
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
        Ok(Rest::Nothing)
    }

    /// Checks one frame, after those that are planned: a request's header, or a response's correlation ID.
    fn check(
        &self,
        side: usize,
        data: &[u8],
        time_ns: i64,
        rules: &mut Rules<'_, impl Apis>,
        plan: &Plan,
    ) -> Result<Option<Header>, Odd> {
        if side != CLIENT {
            let bytes = data.first_chunk::<CORRELATION_ID_BYTES>().ok_or(Odd)?;
            let request = self.waiting.get(plan.frames.len()).ok_or(Odd)?;
            let answers = request.correlation_id == i32::from_be_bytes(*bytes);
            return if answers { Ok(None) } else { Err(Odd) };
        }
        let header = request_header(data, rules.apis)?;
        let id = header.correlation_id;
        let planned = plan.frames.last().and_then(|each| each.header.as_ref());
        let last_id = planned.map(|each| each.correlation_id).or(self.last_id);
        // Outstanding requests have rising IDs, so none has this one.
        let newest = planned
            .map(|each| each.correlation_id)
            .or(self.waiting.back().map(|each| each.correlation_id));
        if last_id == Some(id) || newest.is_some_and(|newest| id <= newest) {
            return Err(Odd);
        }
        let limits = rules.limits;
        if self.waiting.len() + plan.frames.len() >= limits.pending_requests
            || self.bytes + plan.bytes + data.len() > limits.pending_bytes
            || self
                .waiting
                .front()
                .is_some_and(|oldest| time_ns - oldest.time_ns > limits.pending_age_ns)
        {
            return Err(Odd);
        }
        Ok(Some(header))
    }

    fn carry_out(
        &mut self,
        side: usize,
        payload: &[u8],
        packet: Packet,
        plan: &mut Plan,
        rest: Rest,
        done: &mut impl FnMut(u64, Request<X>, Frame),
    ) {
        for Complete {
            header,
            range,
            start_ns,
        } in plan.frames.drain(..)
        {
            let direction = &mut self.directions[side];
            let data = match range {
                Some(range) => payload[range].to_vec(),
                None => {
                    direction.size = 0;
                    std::mem::take(&mut direction.data)
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
                packet: number,
                interface,
                start_ns,
                end_ns: time_ns,
            };
            if let Some(header) = header {
                self.wait(header, frame);
            } else if let Some(request) = self.waiting.pop_front() {
                self.bytes -= request.bytes;
                self.completed += 1;
                done(self.completed, request, frame);
            }
        }
        let direction = &mut self.directions[side];
        match rest {
            Rest::Nothing => {}
            Rest::Prefix(from) => {
                if direction.prefix.is_empty() {
                    direction.start_ns = packet.time_ns;
                }
                direction.prefix.extend_from_slice(&payload[from..]);
            }
            Rest::Frame(from, size, start_ns) => {
                direction.prefix.clear();
                direction.size = size;
                direction.start_ns = start_ns;
                direction.data.reserve(size.min(FIRST_ALLOCATION));
                direction.data.extend_from_slice(&payload[from..]);
            }
        }
    }

    fn wait(&mut self, header: Header, frame: Frame) {
        let correlation_id = header.correlation_id;
        if let Some(last_id) = self.last_id {
            self.steady = if last_id.checked_add(1) == Some(correlation_id) {
                self.steady + 1
            } else {
                0
            };
        }
        self.last_id = Some(correlation_id);
        self.bytes += frame.data.len();
        self.waiting.push_back(Request {
            correlation_id,
            time_ns: frame.end_ns,
            bytes: frame.data.len(),
            message: Message::Frame(header, frame),
        });
    }
}

/// Reads a usual request header. Produce with acks 0, which gets no response, is odd.
pub fn request_header(data: &[u8], apis: &mut impl Apis) -> Result<Header, Odd> {
    let fixed: &[u8; 10] = data.first_chunk().ok_or(Odd)?;
    let api_key = i16::from_be_bytes([fixed[0], fixed[1]]);
    let api_version = i16::from_be_bytes([fixed[2], fixed[3]]);
    let correlation_id = i32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
    let usual = apis.usual(api_key, api_version).ok_or(Odd)?;
    let mut end = fixed.len();
    let client_id = match i16::from_be_bytes([fixed[8], fixed[9]]) {
        -1 => None,
        size => {
            let begin = end;
            end += usize::try_from(size).map_err(|_| Odd)?;
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
    if api_key == PRODUCE && acks(&data[end..], usual.before_acks)? == 0 {
        return Err(Odd);
    }
    Ok(Header {
        api_key,
        api_version,
        correlation_id,
        client_id,
        body_pos: end,
    })
}

/// The field `acks` of a Produce body.
fn acks(body: &[u8], before: BeforeAcks) -> Result<i16, Odd> {
    let pos = match before {
        BeforeAcks::Nothing => 0,
        BeforeAcks::Text => {
            let size: &[u8; 2] = body.first_chunk().ok_or(Odd)?;
            2 + usize::try_from(i16::from_be_bytes(*size).max(0)).map_err(|_| Odd)?
        }
        BeforeAcks::CompactText => match body.first().ok_or(Odd)? {
            0 => 1,
            size @ 1..=127 => usize::from(*size), // one more than its bytes, as is their position
            _ => return Err(Odd),
        },
    };
    match body.get(pos..pos + 2) {
        Some(&[high, low]) => Ok(i16::from_be_bytes([high, low])),
        _ => Err(Odd),
    }
}
