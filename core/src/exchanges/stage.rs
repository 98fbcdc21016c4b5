//! Packets -> finished exchanges, on the connections that are here.
//!
//! A connection opens here, or comes from Python once everything on it is usual. It goes to Python before the
//! first segment that is not ([`Stage::release`]).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::exchanges::connection::{
    Apis, Connection, Effect, Finished, Limits, Packet, Rules, SegmentPlan, CLIENT,
};
use crate::net::analysis::Analysis;
use crate::net::packet::{segment, Segment, CONTROL, SYN};
use crate::net::shard::Shard;
use crate::reasons::Reasons;
use crate::Why;

/// Times that are farther from 1970 are left to Python, as in kdissect/exchanges/lending.py.
const MAX_NS: u64 = 1 << 62;
/// Most ends that are known to be no business of this stage.
const FOREIGN_ENDS: usize = 65_536;

/// What became of a packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// It had its effect.
    Taken,
    /// Another process takes it.
    Elsewhere,
    /// It opened a connection, in this slot.
    Opened(usize),
    /// It belongs to no connection that is here. The ends, if it has payload, after which one may come, unless it
    /// is known that none will.
    Foreign(Option<&'a [u8]>),
    /// Python takes it; whether it belongs to a connection that is here may not be known.
    Odd,
}

/// What happened to connections that were opened here, as in net/connection.py.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StageCounts {
    pub connections: u64,
    pub segments_after_close: u64,
    pub repeated_segments: u64,
    pub retransmitted_bytes: u64,
    pub closed_end: u64,
    pub closed_fin: u64,
    pub closed_reset: u64,
    /// Of those that have ended.
    pub kafka: u64,
    /// The same of other protocols, by number.
    pub refused: BTreeMap<usize, u64>,
    /// Of those of TLS, without a ServerHello.
    pub no_server_hello: u64,
}

/// A connection that has ended here. Its slot stays empty until `reuse`.
pub struct Ended<X> {
    pub slot: usize,
    pub ordinal: u64,
    pub connection: Connection<X>,
    /// Whether the caller is told of its end now.
    pub is_reported: bool,
}

/// A connection opened here that was open when the capture ended.
pub struct Closed {
    pub slot: usize,
    pub ordinal: u64,
    pub ends: Box<[u8]>,
    /// Time of its SYN.
    pub syn_ns: i64,
}

pub struct Stage<X> {
    limits: Limits,
    flows: HashMap<Box<[u8]>, (usize, usize)>, // ends -> slot and side
    ordinals: HashMap<u64, usize>,             // -> slot
    waits: BTreeSet<(i64, usize)>,             // since when which slot waits
    idle: BTreeSet<(i64, u64, usize)>,         // when it is idle at the earliest, ordinal, slot
    deadlines: BTreeSet<(i64, u64, usize)>,    // when, ordinal, slot
    foreign: HashSet<Box<[u8]>>,
    slots: Vec<Option<Entry<X>>>,
    free: Vec<usize>,
    touched: Vec<usize>,
    clock: u64,
    plan: SegmentPlan,
    /// Memory of all connections here.
    pub held: usize,
    /// Exchanges since the caller took them.
    pub finished: Vec<Finished<X>>,
    /// Connections that may be opened here until the next call of `take_touched`.
    pub room: usize,
    /// The connections to take; other processes dissect the others. None: there are none.
    pub shard: Option<Shard>,
    /// Number of the latest connection of all.
    pub latest: u64,
    /// All segments up to this time have been delivered.
    pub ticked_ns: i64,
    /// Since the caller took them.
    pub counts: StageCounts,
    /// Whether the caller queues exchanges that `end_next` completes.
    pub is_queued: bool,
    /// Whether connections are analyzed: then the caller is told of the end of each.
    pub analyzes: bool,
    /// Address and port of each broker of which the caller was told, if some exchanges are not needed: then it is
    /// told of the end of one connection to each.
    pub brokers: Option<HashSet<Box<[u8]>>>,
    /// The slot of the Kafka connection that the latest packet has ended, if the caller is told of that.
    pub closed: Option<usize>,
    /// Why packets were odd.
    pub reasons: Reasons<()>,
}

struct Entry<X> {
    connection: Connection<X>,
    ordinal: u64,
    ends: [Box<[u8]>; 2],
    used: u64,
    is_touched: bool,
}

impl<X> Stage<X> {
    pub fn new(limits: Limits) -> Self {
        Stage {
            limits,
            flows: HashMap::new(),
            ordinals: HashMap::new(),
            waits: BTreeSet::new(),
            idle: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            foreign: HashSet::new(),
            slots: Vec::new(),
            free: Vec::new(),
            touched: Vec::new(),
            clock: 0,
            plan: SegmentPlan::default(),
            held: 0,
            finished: Vec::new(),
            room: 0,
            shard: None,
            latest: 0,
            ticked_ns: i64::MIN,
            counts: StageCounts::default(),
            is_queued: false,
            analyzes: false,
            brokers: None,
            closed: None,
            reasons: Reasons::default(),
        }
    }

    /// Takes a connection and its number. `ends`: of the segments of either side, the client's first. Returns
    /// its slot.
    pub fn admit(&mut self, connection: Connection<X>, ordinal: u64, ends: [Box<[u8]>; 2]) -> usize {
        self.held += connection.held();
        let slot = self.reserve();
        for (side, each) in ends.iter().enumerate() {
            self.flows.insert(each.clone(), (slot, side));
        }
        self.ordinals.insert(ordinal, slot);
        if let Some(opening) = &connection.opening {
            self.waits
                .extend(connection.waiting_since_ns().map(|time_ns| (time_ns, slot)));
            self.deadlines
                .extend(opening.due_ns.map(|due_ns| (due_ns, ordinal, slot)));
            self.idle.insert((opening.idle_ns, ordinal, slot));
        }
        self.slots[slot] = Some(Entry {
            connection,
            ordinal,
            ends,
            used: self.clock,
            is_touched: false,
        });
        slot
    }

    /// A slot that stays empty until `reuse`.
    pub fn reserve(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        })
    }

    /// The slot of a connection with this number.
    pub fn slot(&self, ordinal: u64) -> Option<usize> {
        self.ordinals.get(&ordinal).copied()
    }

    /// The number of the connection between these ends.
    pub fn ordinal(&self, ends: &[u8]) -> Option<u64> {
        let (slot, _) = self.flows.get(ends)?;
        self.slots[*slot].as_ref().map(|entry| entry.ordinal)
    }

    /// The numbers of all connections here.
    pub fn all(&self) -> Vec<u64> {
        let mut all: Vec<_> = self.ordinals.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// The number of the connection in a slot, and the connection.
    pub fn connection(&self, slot: usize) -> Option<(u64, &Connection<X>)> {
        let entry = self.slots.get(slot)?.as_ref()?;
        Some((entry.ordinal, &entry.connection))
    }

    /// Gives a connection back. Its slot stays empty until `reuse`.
    pub fn release(&mut self, slot: usize) -> Option<Connection<X>> {
        let entry = self.slots.get_mut(slot)?.take()?;
        for each in &entry.ends {
            self.flows.remove(each);
        }
        self.ordinals.remove(&entry.ordinal);
        if let Some(opening) = &entry.connection.opening {
            if let Some(time_ns) = entry.connection.waiting_since_ns() {
                self.waits.remove(&(time_ns, slot));
            }
            if let Some(due_ns) = opening.due_ns {
                self.deadlines.remove(&(due_ns, entry.ordinal, slot));
            }
            self.idle.remove(&(opening.idle_ns, entry.ordinal, slot));
        }
        if entry.is_touched {
            self.touched.retain(|&each| each != slot);
        }
        self.held = self.held.saturating_sub(entry.connection.held());
        Some(entry.connection)
    }

    /// The earliest time since when a connection that was opened here waits.
    pub fn waiting_since_ns(&self) -> Option<i64> {
        self.waits.first().map(|each| each.0)
    }

    /// Connections opened here that Python must take before this time: those that are unanswered and overdue, and
    /// idle ones.
    pub fn overdue(&mut self, time_ns: i64) -> Vec<u64> {
        let mut overdue: Vec<_> = self
            .deadlines
            .iter()
            .take_while(|(due_ns, ..)| *due_ns <= time_ns)
            .filter(|(_, _, slot)| self.is_unanswered(*slot))
            .map(|(_, ordinal, _)| *ordinal)
            .collect();
        while let Some(&(due_ns, ordinal, slot)) = self.idle.first() {
            if due_ns >= time_ns {
                break;
            }
            self.idle.pop_first();
            let Some(entry) = self.slots[slot].as_mut() else {
                continue;
            };
            let idle_ns = entry
                .connection
                .now_ns
                .saturating_add(self.limits.connection_idle_ns);
            if idle_ns < time_ns {
                overdue.push(ordinal);
            } else if let Some(opening) = entry.connection.opening.as_mut() {
                opening.idle_ns = idle_ns;
                self.idle.insert((idle_ns, ordinal, slot));
            }
        }
        overdue.sort_unstable();
        overdue.dedup();
        overdue
    }

    /// The next connection here whose end has become final before this deadline and number. The outstanding
    /// requests are added to `finished`.
    pub fn end_next(&mut self, before: (i64, u64)) -> Option<Ended<X>> {
        let &(due_ns, ordinal, slot) = self.deadlines.first()?;
        if (due_ns, ordinal) >= before || self.is_unanswered(slot) {
            return None;
        }
        let ends = self.slots[slot].as_ref()?.ends[0].clone();
        let mut connection = self.release(slot)?;
        let time_ns = due_ns.max(connection.now_ns);
        let finished = &mut self.finished;
        connection.abandon(time_ns, &mut |number, request, outcome| {
            finished.push(Finished {
                slot,
                number,
                request,
                outcome,
            });
        });
        let opening = connection.opening.as_ref()?;
        let is_reset = opening.reset.is_some();
        let is_reported = is_reset && self.is_reported(&connection, &ends);
        self.counts.closed_reset += u64::from(is_reset);
        Some(Ended {
            slot,
            ordinal,
            connection,
            is_reported,
        })
    }

    /// The capture has ended. Ends the connections opened here of which nothing is left to tell.
    pub fn close(&mut self) -> Vec<Closed> {
        let mut closed = Vec::new();
        for slot in 0..self.slots.len() {
            let Some(entry) = &self.slots[slot] else {
                continue;
            };
            let Some(syn_ns) = entry.connection.syn_ns_if_idle() else {
                continue;
            };
            let (ordinal, [ends, _]) = (entry.ordinal, entry.ends.clone());
            if !self.reports(slot) {
                self.release(slot);
                self.counts.closed_end += 1;
                closed.push(Closed {
                    slot,
                    ordinal,
                    ends,
                    syn_ns,
                });
            }
        }
        closed
    }

    /// Whether the caller is told of the end of the connection in a slot; see `is_reported`.
    fn reports(&mut self, slot: usize) -> bool {
        let Some(entry) = self.slots[slot].take() else {
            return false;
        };
        let is_reported = self.is_reported(&entry.connection, &entry.ends[CLIENT]);
        self.slots[slot] = Some(entry);
        is_reported
    }

    /// Whether the caller is told of the end of a connection. If not, it is counted, unless no payload has come.
    fn is_reported(&mut self, connection: &Connection<X>, ends: &[u8]) -> bool {
        let protocol = connection.unread.as_ref().and_then(|unread| unread.protocol);
        if let Some(protocol) = protocol {
            if !self.analyzes {
                *self.counts.refused.entry(protocol).or_default() += 1;
                let hellos = connection.unread.as_ref().map(|unread| &unread.hellos);
                let is_alone = hellos.is_some_and(|[client, server]| !client.is_empty() && server.is_empty());
                self.counts.no_server_hello += u64::from(is_alone);
            }
            return self.analyzes;
        }
        let is_kafka = connection.first_id.is_some();
        let is_reported = is_kafka && self.reports_end(ends);
        self.counts.kafka += u64::from(is_kafka && !is_reported);
        is_reported
    }

    /// Whether the caller is told of the end of a Kafka connection, whose client has these ends.
    fn reports_end(&mut self, ends: &[u8]) -> bool {
        let Some(brokers) = &mut self.brokers else {
            return self.analyzes;
        };
        let broker = broker_of(ends);
        if brokers.contains(&broker[..]) {
            return false;
        }
        if brokers.len() >= FOREIGN_ENDS {
            brokers.clear();
        }
        brokers.insert(broker.into())
    }

    /// Another connection may get this slot, which is empty.
    pub fn reuse(&mut self, slot: usize) {
        self.free.push(slot);
    }

    /// No connection between these ends will come here.
    pub fn ignore(&mut self, ends: Box<[u8]>) {
        if self.foreign.len() >= FOREIGN_ENDS {
            self.foreign.clear();
        }
        self.foreign.insert(ends);
    }

    /// The next connection between these ends may come here.
    pub fn readmit(&mut self, ends: &[u8]) {
        self.foreign.remove(ends);
    }

    /// Slots, numbers and clocks of the connections with segments since the last call, least recently used
    /// first.
    pub fn take_touched(&mut self) -> Vec<(usize, u64, i64)> {
        let slots = &mut self.slots;
        let mut touched: Vec<(u64, usize, u64, i64)> = Vec::with_capacity(self.touched.len());
        for slot in self.touched.drain(..) {
            if let Some(entry) = slots[slot].as_mut() {
                entry.is_touched = false;
                touched.push((entry.used, slot, entry.ordinal, entry.connection.now_ns));
            }
        }
        touched.sort_unstable();
        touched
            .into_iter()
            .map(|(_, slot, ordinal, now_ns)| (slot, ordinal, now_ns))
            .collect()
    }

    /// Whether the SYN of the connection in this slot was neither accepted nor refused.
    fn is_unanswered(&self, slot: usize) -> bool {
        let opening = self.slots[slot]
            .as_ref()
            .and_then(|entry| entry.connection.opening.as_ref());
        opening.is_some_and(|opening| matches!(opening.handshake, Some((_, None))) && opening.reset.is_none())
    }

    /// As [`Connection::is_half_open`] of the connection in this slot.
    pub fn is_half_open(&self, slot: usize) -> bool {
        let entry = self.slots.get(slot).and_then(Option::as_ref);
        entry.is_some_and(|entry| entry.connection.is_half_open())
    }

    /// What a packet is, without any effect. One that may open a connection here is odd.
    pub fn is_foreign<'a>(&self, link_type: u32, bytes: &'a [u8]) -> Verdict<'a> {
        match segment(link_type, bytes) {
            Ok(segment)
                if !self.flows.contains_key(segment.ends)
                    && !self.is_elsewhere(segment.ends)
                    && !self.may_open(&segment) =>
            {
                self.foreign(&segment)
            }
            _ => Verdict::Odd,
        }
    }

    /// As `is_foreign`, for a packet that opens no connection here.
    pub fn is_foreign_first<'a>(&self, link_type: u32, bytes: &'a [u8]) -> Verdict<'a> {
        segment(link_type, bytes).map_or(Verdict::Odd, |segment| self.foreign(&segment))
    }

    /// Whether another process dissects the packets between these ends.
    fn is_elsewhere(&self, ends: &[u8]) -> bool {
        self.shard.is_some_and(|shard| !shard.owns(ends))
    }

    /// Whether a segment may open a connection here: not one whose ends are the same.
    fn may_open(&self, segment: &Segment<'_>) -> bool {
        self.room > 0
            && segment.flags & CONTROL == SYN
            && segment.payload.is_empty()
            && segment.ends != reversed(segment.ends)
    }

    /// Opens a connection by its SYN.
    fn open(&mut self, segment: &Segment<'_>, packet: Packet) -> usize {
        let mut connection = Connection::open(segment, packet, &self.limits);
        if self.analyzes {
            let mut analysis = Box::<Analysis>::default();
            analysis.feed(CLIENT, segment, packet.time_ns);
            connection.analysis = Some(analysis);
        }
        self.room -= 1;
        self.latest += 1;
        self.counts.connections += 1;
        let ends = [segment.ends.into(), reversed(segment.ends).into()];
        let slot = self.admit(connection, self.latest, ends);
        self.touch(slot);
        slot
    }

    fn touch(&mut self, slot: usize) {
        if let Some(entry) = self.slots[slot].as_mut() {
            self.clock += 1;
            entry.used = self.clock;
            if !entry.is_touched {
                entry.is_touched = true;
                self.touched.push(slot);
            }
        }
    }

    fn foreign<'a>(&self, segment: &Segment<'a>) -> Verdict<'a> {
        let may_come = !segment.payload.is_empty() && !self.foreign.contains(segment.ends);
        Verdict::Foreign(may_come.then_some(segment.ends))
    }

    /// Takes a packet if everything about it is usual; otherwise it has no effect.
    pub fn feed<'a>(
        &mut self,
        link_type: u32,
        bytes: &'a [u8],
        packet: Packet,
        apis: &mut impl Apis,
    ) -> Verdict<'a> {
        let Ok(segment) = segment(link_type, bytes) else {
            self.reasons.note(Why::Headers.odd(), ());
            return Verdict::Odd;
        };
        if packet.time_ns.unsigned_abs() >= MAX_NS {
            self.reasons.note(Why::Time.odd(), ());
            return Verdict::Odd;
        }
        if self.is_elsewhere(segment.ends) {
            return Verdict::Elsewhere;
        }
        let Some(&(slot, side)) = self.flows.get(segment.ends) else {
            if self.may_open(&segment) && packet.time_ns >= self.ticked_ns && apis.may_open(segment.ends) {
                return Verdict::Opened(self.open(&segment, packet));
            }
            return self.foreign(&segment);
        };
        let Some(entry) = self.slots[slot].as_mut() else {
            return Verdict::Odd;
        };
        let finished = &mut self.finished;
        let done = |number, request, outcome| {
            finished.push(Finished {
                slot,
                number,
                request,
                outcome,
            })
        };
        let before = entry.connection.held();
        let waited = entry.connection.waiting_since_ns();
        let was_due_ns = entry
            .connection
            .opening
            .as_ref()
            .and_then(|opening| opening.due_ns);
        let mut rules = Rules {
            limits: &self.limits,
            apis,
            ticked_ns: self.ticked_ns,
            is_queued: self.is_queued,
            skims: self.brokers.is_some(),
        };
        let plan = &mut self.plan;
        let effect = match entry
            .connection
            .feed(side, &segment, packet, &mut rules, plan, done)
        {
            Ok(effect) => effect,
            Err(odd) => {
                self.reasons.note(odd, ());
                return Verdict::Odd;
            }
        };
        self.held = self.held.saturating_sub(before) + entry.connection.held();
        match effect {
            Effect::Next => {}
            Effect::Retransmitted => {
                self.counts.repeated_segments += 1;
                self.counts.retransmitted_bytes += segment.payload.len() as u64;
            }
            _ => self.note(slot, effect, waited, was_due_ns),
        }
        self.touch(slot);
        Verdict::Taken
    }

    /// Notes what has changed on a connection that was opened here, which waited since a time, and had a deadline.
    fn note(&mut self, slot: usize, effect: Effect, waited: Option<i64>, was_due_ns: Option<i64>) {
        if effect == Effect::Finished {
            self.note_finished(slot);
        }
        let Some(entry) = self.slots[slot].as_ref() else {
            return;
        };
        let Some(opening) = entry.connection.opening.as_ref() else {
            return;
        };
        let key = |due_ns| (due_ns, entry.ordinal, slot);
        match effect {
            Effect::AfterClose => self.counts.segments_after_close += 1,
            Effect::Repeated => self.counts.repeated_segments += 1,
            _ => {}
        }
        if opening.due_ns != was_due_ns {
            if let Some(due_ns) = was_due_ns {
                self.deadlines.remove(&key(due_ns));
            }
            self.deadlines.extend(opening.due_ns.map(key));
        }
        let waits = entry.connection.waiting_since_ns();
        if let Some(time_ns) = waited {
            self.waits.remove(&(time_ns, slot));
        }
        self.waits.extend(waits.map(|time_ns| (time_ns, slot)));
    }

    /// Notes the FIN that was missing.
    fn note_finished(&mut self, slot: usize) {
        self.counts.closed_fin += 1;
        let entry = self.slots[slot].as_ref();
        if entry.is_some_and(|entry| entry.connection.opening.is_some()) && self.reports(slot) {
            self.closed = Some(slot);
        }
    }
}

/// `Segment::ends` of the other direction.
pub fn reversed(ends: &[u8]) -> Vec<u8> {
    let address = ends.len().saturating_sub(4) / 2;
    let (addresses, ports) = ends.split_at(2 * address);
    [
        &addresses[address..],
        &addresses[..address],
        &ports[2..],
        &ports[..2],
    ]
    .concat()
}

/// Address and port of the second of two ends.
fn broker_of(ends: &[u8]) -> Vec<u8> {
    let address = ends.len().saturating_sub(4) / 2;
    [&ends[address..2 * address], &ends[2 * address + 2..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchanges::connection::{BeforeAcks, Direction, Message, Outcome, Unread, Usual};
    use crate::exchanges::connection::{HELLO_BYTES, TLS};
    use crate::fuzzing::rounds;
    use crate::net::packet::tests::tcp_over_ipv4;
    use std::collections::VecDeque;

    const RAW: u32 = 101;
    const BROKER: usize = 1;

    struct Known;

    impl Apis for Known {
        fn usual(&mut self, api_key: i16, _: i16) -> Option<Usual> {
            (api_key < 99).then_some(Usual {
                has_tags: false,
                before_acks: BeforeAcks::Text,
                is_needed: api_key != 4,
            })
        }

        fn is_first(&mut self, frame: &[u8]) -> bool {
            frame.starts_with(&[0, 3])
        }

        fn may_open(&mut self, _: &[u8]) -> bool {
            true
        }

        fn refused(&mut self, payload: &[u8], _: bool, _: &[u8]) -> Option<usize> {
            match payload {
                [0x16, ..] => Some(TLS),
                _ => payload.starts_with(b"SSH-").then_some(2),
            }
        }

        fn is_known(&mut self, api_key: i16, api_version: i16) -> bool {
            (0..9).contains(&api_key) && (0..9).contains(&api_version)
        }
    }

    /// A stage with one connection, whose streams begin at 100 (the client's) and 200.
    struct Talk {
        stage: Stage<()>,
        next: [u32; 2],
        packets: u64,
    }

    impl Talk {
        fn new() -> Self {
            let mut stage = Stage::new(Limits {
                frame_bytes: 1000,
                pending_requests: 3,
                pending_bytes: 1000,
                pending_age_ns: 1000,
                connection_idle_ns: 100,
                reorder_window_ns: 20,
                reach: 1000,
            });
            let connection = Connection {
                opening: None,
                directions: [100, 200].map(|next| Direction {
                    next,
                    ..Direction::default()
                }),
                now_ns: 0,
                last_ns: 0,
                is_answered: true,
                completed: 5,
                first_id: Some(0),
                last_id: Some(6),
                steady: 2,
                waiting: VecDeque::new(),
                unacknowledged: VecDeque::new(),
                bytes: 0,
                taken: 0,
                has_retransmissions: false,
                analysis: None,
                unread: None,
            };
            let ends = [0, 1].map(|side| {
                let packet = tcp_over_ipv4(side, 0, 0, 0, b"");
                Box::from(segment(RAW, &packet).unwrap().ends)
            });
            assert_eq!(stage.admit(connection, 1, ends), 0);
            Talk {
                stage,
                next: [100, 200],
                packets: 0,
            }
        }

        fn send(&mut self, side: usize, payload: &[u8]) -> bool {
            let bytes = tcp_over_ipv4(side, self.next[side], self.next[1 - side], 0x18, payload);
            self.packets += 1;
            let packet = Packet {
                number: self.packets,
                time_ns: self.packets as i64,
                interface: 0,
            };
            let is_taken = self.stage.feed(RAW, &bytes, packet, &mut Known) == Verdict::Taken;
            if is_taken {
                self.next[side] += payload.len() as u32;
            }
            is_taken
        }

        fn state(&self) -> String {
            format!("{:?}", self.stage.slots[0].as_ref().unwrap().connection)
        }
    }

    fn frame(data: &[u8]) -> Vec<u8> {
        [&(data.len() as u32).to_be_bytes()[..], data].concat()
    }

    fn request(api_key: u8, correlation_id: u8, body: &[u8]) -> Vec<u8> {
        frame(&[&[0, api_key, 0, 3, 0, 0, 0, correlation_id, 0, 1, b'c'], body].concat())
    }

    fn response(correlation_id: u8) -> Vec<u8> {
        frame(&[0, 0, 0, correlation_id, 9, 9])
    }

    #[test]
    fn pairs_frames_however_they_are_cut() {
        let requests = [request(3, 7, b"ab"), request(0, 8, &[0xFF, 0xFF, 0xFF, 0xFF])].concat();
        let responses = [response(7), response(8)].concat();
        for size in 1..requests.len() {
            let mut talk = Talk::new();
            for piece in requests.chunks(size) {
                assert!(talk.send(CLIENT, piece), "{size}");
            }
            for piece in responses.chunks(size) {
                assert!(talk.send(BROKER, piece), "{size}");
            }
            assert!(talk.send(CLIENT, b""));
            let done = &talk.stage.finished;
            assert_eq!(done.iter().map(|each| each.number).collect::<Vec<_>>(), [6, 7]);
            let Outcome::Answered(response) = &done[1].outcome else {
                panic!()
            };
            assert_eq!(response.data, [0, 0, 0, 8, 9, 9]);
            let Message::Frame(header, frame) = &done[0].request.message else {
                panic!()
            };
            assert_eq!(
                (header.api_key, header.correlation_id, header.body_pos),
                (3, 7, 11)
            );
            assert_eq!(&frame.data[header.body_pos..], b"ab");
            assert_eq!((frame.start_ns, talk.stage.held), (1, 0));
        }
    }

    #[test]
    fn responses_that_advertise_apis_of_vendors_are_odd() {
        let kafka = [0, 3, 0, 0, 0, 9, 0];
        let vendor = [1, 0xF5, 0, 0, 0, 0, 0]; // 501
        let tagged = [0, 3, 0, 0, 0, 9, 1];
        let begin = [0, 0, 0, 7, 0, 0];
        for (apis, is_taken) in [
            (&[[1].as_slice()][..], true),
            (&[&[3], &kafka, &kafka], true),
            (&[&[3], &kafka, &vendor], false),
            (&[&[2], &kafka, &vendor], true), // behind the last one
            (&[&[3], &kafka, &tagged], false),
            (&[&[0x83, 0], &kafka, &vendor], false),
            (&[&[0x80, 0]], true),
            (&[&[3], &kafka, &vendor[..5]], true), // cut
            (&[&[]], true),
        ] {
            let answer = [&[begin.as_slice()], apis].concat().concat();
            let mut talk = Talk::new();
            assert!(talk.send(CLIENT, &request(18, 7, b"")));
            assert_eq!(talk.send(BROKER, &frame(&answer)), is_taken, "{answer:?}");
            let mut other = Talk::new();
            assert!(other.send(CLIENT, &request(3, 7, b"")));
            assert!(other.send(BROKER, &frame(&answer)));
        }
        for (number, is_odd) in [(0, false), (1, true)] {
            let apis = [
                begin.as_slice(),
                &[0, 0, 0, 2],
                &kafka[..6],
                &[number, 1, 0, 0, 0, 0],
            ]
            .concat();
            assert_eq!(crate::exchanges::connection::advertises_vendor(&apis, 2), is_odd);
        }
    }

    #[test]
    fn what_is_not_needed_is_skipped() {
        let large = [9; 600];
        let requests = [request(4, 7, &large), request(3, 8, b""), request(4, 9, b"")].concat();
        let answer = [&[0, 0, 0, 7][..], &large].concat();
        let responses = [frame(&answer), response(8), response(9)].concat();
        for size in [1, 500, 512, 513, 2000] {
            let mut talk = Talk::new();
            talk.stage.brokers = Some(HashSet::new());
            for (side, bytes) in [(CLIENT, &requests), (BROKER, &responses)] {
                for piece in bytes.chunks(size) {
                    assert!(talk.send(side, piece), "{size}");
                    let (_, connection) = talk.stage.connection(0).unwrap();
                    let kept = connection.directions.each_ref().map(|each| each.data.len());
                    assert!(kept[0].max(kept[1]) <= 512, "{size}");
                    assert!(connection.bytes <= 512 + 2 * 11, "{size}");
                }
            }
            let done = &talk.stage.finished;
            assert_eq!(done.iter().map(|each| each.number).collect::<Vec<_>>(), [7]);
            assert_eq!((done[0].request.correlation_id, talk.stage.held), (8, 0));
        }
    }

    #[test]
    fn what_is_odd_in_a_skipped_frame_has_no_effect() {
        let sent = request(4, 7, &[9; 600]);
        let mut talk = Talk::new();
        talk.stage.brokers = Some(HashSet::new());
        assert!(talk.send(CLIENT, &sent[..560]));
        let before = talk.state();
        assert!(!talk.send(CLIENT, &[&sent[560..], &request(99, 9, b"")].concat()));
        assert_eq!(talk.state(), before);
        assert!(talk.send(CLIENT, &sent[560..]));
    }

    #[test]
    fn the_end_of_one_connection_to_each_broker_is_reported() {
        let mut stage = empty_stage();
        let one = [[10, 0, 0, 1], [10, 0, 0, 2]].concat();
        assert!(!stage.reports_end(&[&one[..], &[1, 2, 3, 4]].concat()));
        stage.brokers = Some(HashSet::new());
        for (ports, is_reported) in [([1, 2, 3, 4], true), ([5, 6, 3, 4], false), ([1, 2, 3, 5], true)] {
            assert_eq!(stage.reports_end(&[&one[..], &ports].concat()), is_reported);
        }
    }

    #[test]
    fn what_is_odd_has_no_effect() {
        for odd in [
            request(3, 6, b""),                                   // the ID of the one before
            [request(3, 9, b""), request(3, 8, b"")].concat(),    // IDs that fall
            request(99, 9, b""),                                  // not usual
            request(0, 9, &[0, 1, 0xFF, 0, 0]),                   // not UTF-8 before the acks
            frame(b"short"),                                      // no header
            vec![0xFF, 0, 0, 0],                                  // no size
            [request(3, 9, b""), vec![0, 1, 0, 0]].concat(),      // too large a size
            [7, 8, 9, 10].map(|id| request(3, id, b"")).concat(), // too many
        ] {
            let mut talk = Talk::new();
            assert!(talk.send(CLIENT, &request(3, 7, b"")[..6]));
            let before = talk.state();
            let rest = [&request(3, 7, b"")[6..], &odd].concat();
            assert!(!talk.send(CLIENT, &rest));
            assert_eq!(talk.state(), before);
        }
        for odd in [
            response(8),
            frame(&[0, 0, 7]),
            [response(7), response(7)].concat(),
        ] {
            let mut talk = Talk::new();
            assert!(talk.send(CLIENT, &request(3, 7, b"")));
            let before = talk.state();
            assert!(!talk.send(BROKER, &odd));
            assert_eq!(talk.state(), before);
        }
    }

    #[test]
    fn segments_out_of_place_are_odd() {
        let request = request(3, 7, b"");
        for (sequence, acknowledgment, flags, time_ns) in [
            (99, 200, 0x18, 1),
            (101, 200, 0x18, 1),
            (100, 201, 0x18, 1),
            (100, 200, 0x19, 1),
            (100, 200, 0x1A, 1),
            (100, 200, 0x14, 1),
            (100, 200, 0x08, 1),
            (100, 200, 0x18, -1),
            (100, 200, 0x18, 101),
        ] {
            let mut talk = Talk::new();
            let bytes = tcp_over_ipv4(CLIENT, sequence, acknowledgment, flags, &request);
            let packet = Packet {
                number: 1,
                time_ns,
                interface: 0,
            };
            assert_eq!(talk.stage.feed(RAW, &bytes, packet, &mut Known), Verdict::Odd);
        }
    }

    type Sent<'a> = (usize, u8, &'a [u8]);

    /// Feeds the segments of a new connection (side, flags, payload), one each nanosecond.
    fn whole(stage: &mut Stage<()>, segments: &[Sent<'_>]) -> Vec<bool> {
        let mut next = [700, 900];
        let mut taken = Vec::new();
        for (number, &(side, flags, payload)) in (1..).zip(segments) {
            let bytes = tcp_over_ipv4(side, next[side], next[1 - side], flags, payload);
            let packet = Packet {
                number,
                time_ns: number as i64,
                interface: 0,
            };
            let verdict = stage.feed(RAW, &bytes, packet, &mut Known);
            taken.push(matches!(verdict, Verdict::Taken | Verdict::Opened(_)));
            next[side] += payload.len() as u32 + u32::from(flags & 1) + u32::from(flags >> 1 & 1);
        }
        taken
    }

    fn empty_stage() -> Stage<()> {
        let mut stage = Talk::new().stage;
        stage.release(0);
        stage.reuse(0);
        (stage.room, stage.latest) = (1, 41);
        stage
    }

    #[test]
    fn connections_open_and_end_here() {
        let (request, response) = (request(3, 7, b""), response(7));
        let mut stage = empty_stage();
        let usual: [Sent<'_>; 9] = [
            (0, 0x02, b""),
            (1, 0x12, b""),
            (0, 0x10, b""),
            (0, 0x18, &request),
            (1, 0x18, &response),
            (0, 0x11, b""),
            (1, 0x11, b""),
            (0, 0x10, b""),
            (0, 0x14, b""),
        ];
        assert_eq!(whole(&mut stage, &usual), [true; 9]);
        assert_eq!(
            (stage.finished.len(), stage.room, stage.ordinal(&[])),
            (1, 0, None)
        );
        let counts = StageCounts {
            connections: 1,
            segments_after_close: 2,
            closed_fin: 1,
            kafka: 1,
            ..StageCounts::default()
        };
        assert_eq!(stage.counts, counts);
        assert!(stage.end_next((27, 42)).is_none());
        let ended = stage.end_next((27, 43)).unwrap();
        let client = &ended.connection.directions[CLIENT];
        assert_eq!((ended.slot, ended.ordinal), (0, 42));
        assert_eq!((client.first, client.next), (701, 702 + request.len() as u32));
        assert_eq!((stage.all(), stage.waiting_since_ns()), (vec![], None));
    }

    #[test]
    fn what_gets_no_response() {
        let without = request(0, 8, &[0xFF, 0xFF, 0, 0]);
        let requests = [&request(3, 7, b"")[..], &without, &request(3, 9, b"")].concat();
        let mut stage = empty_stage();
        let usual: [Sent<'_>; 7] = [
            (0, 0x02, b""),
            (1, 0x12, b""),
            (0, 0x18, &request(3, 6, b"")),
            (1, 0x18, &response(6)),
            (0, 0x18, &requests),
            (1, 0x11, b""),
            (0, 0x11, b""),
        ];
        assert_eq!(whole(&mut stage, &usual), [true; 7]);
        let done = stage
            .finished
            .iter()
            .map(|each| (each.number, each.request.correlation_id, each.order()));
        assert_eq!(
            done.collect::<Vec<_>>(),
            [(1, 6, (4, 4)), (2, 8, (5, 5)), (3, 7, (7, 5)), (4, 9, (7, 5))]
        );
        assert!(matches!(stage.finished[1].outcome, Outcome::Unacknowledged));
        assert!(matches!(
            stage.finished[3].outcome,
            Outcome::Unanswered(7, Some((6, false)))
        ));
        assert_eq!((stage.held, stage.counts.closed_fin), (0, 1));
    }

    #[test]
    fn resets_end_connections() {
        let segments: [Sent<'_>; 4] = [(0, 0x02, b""), (1, 0x12, b""), (1, 0x14, b""), (0, 0x04, b"")];
        let mut stage = empty_stage();
        assert_eq!(whole(&mut stage, &segments[..1]), [true]);
        assert_eq!(stage.waiting_since_ns(), Some(1));
        assert_eq!((stage.overdue(20), stage.overdue(21)), (vec![], vec![42]));
        let mut stage = empty_stage();
        assert_eq!(whole(&mut stage, &segments), [true; 4]);
        assert_eq!(
            (stage.waiting_since_ns(), stage.counts.repeated_segments),
            (Some(23), 1)
        );
        assert!(stage.end_next((i64::MAX, 0)).is_some());
        assert_eq!((stage.counts.closed_reset, stage.counts.kafka), (1, 0));
    }

    #[test]
    fn refused_connections_end_here() {
        let segments: [Sent<'_>; 4] = [(0, 0x02, b""), (1, 0x14, b""), (1, 0x14, b""), (1, 0x12, b"")];
        let mut stage = empty_stage();
        assert_eq!(whole(&mut stage, &segments), [true, true, true, false]);
        assert_eq!(
            (stage.waiting_since_ns(), stage.counts.repeated_segments),
            (Some(1), 1)
        );
        assert!(stage.overdue(21).is_empty());
        assert!(stage.end_next((22, 42)).is_none());
        let ended = stage.end_next((22, 43)).unwrap();
        assert!(ended.connection.is_half_open());
        assert_eq!(
            (stage.counts.closed_reset, stage.all(), stage.deadlines.len()),
            (1, vec![], 0)
        );
    }

    #[test]
    fn open_connections_end_with_the_capture() {
        let request = request(3, 7, b"");
        let response = response(7);
        let segments: [Sent<'_>; 5] = [
            (0, 0x02, b""),
            (1, 0x12, b""),
            (0, 0x18, &request),
            (1, 0x18, &response),
            (1, 0x18, &response[..3]),
        ];
        for (count, is_idle) in [(1, false), (2, false), (3, false), (4, true), (5, false)] {
            let mut stage = empty_stage();
            whole(&mut stage, &segments[..count]);
            let closed = stage.close();
            assert_eq!(closed.len(), usize::from(is_idle), "after {count} segments");
            assert_eq!(stage.all().is_empty(), is_idle);
            assert_eq!(
                (stage.counts.closed_end, stage.counts.kafka),
                (u64::from(is_idle), u64::from(is_idle))
            );
            assert_eq!(stage.held > 0, count == 3, "only an outstanding request is held");
        }
        let mut stage = empty_stage();
        stage.analyzes = true;
        whole(&mut stage, &segments[..4]);
        assert!(stage.close().is_empty());
    }

    #[test]
    fn what_comes_again_is_counted() {
        let requests = request(3, 7, b"");
        let mut stage = empty_stage();
        let segments: [Sent<'_>; 3] = [(0, 0x02, b""), (1, 0x12, b""), (0, 0x18, &requests)];
        assert_eq!(whole(&mut stage, &segments), [true; 3]);
        let mut feed = |number: u64, side, sequence, flags, payload| {
            let bytes = tcp_over_ipv4(side, sequence, [901, 701][side], flags, payload);
            let packet = Packet {
                number,
                time_ns: number as i64,
                interface: 0,
            };
            stage.feed(RAW, &bytes, packet, &mut Known) == Verdict::Taken
        };
        assert!(feed(4, CLIENT, 701, 0x18, &requests[..]));
        assert!(feed(5, CLIENT, 701, 0x18, &requests[..5]));
        assert!(!feed(6, CLIENT, 702, 0x18, &requests[..])); // with a byte that is new
        assert!(!feed(6, CLIENT, 701, 0x18, &requests[..1])); // like a probe
        assert!(feed(6, CLIENT, 701 + requests.len() as u32, 0x11, b""));
        assert!(feed(7, CLIENT, 701 + requests.len() as u32, 0x11, b""));
        assert!(!feed(8, CLIENT, 701, 0x18, &requests[..]));
        let counts = &stage.counts;
        assert_eq!(
            (counts.repeated_segments, counts.retransmitted_bytes),
            (3, requests.len() as u64 + 5)
        );
        assert!(stage.slots[0].as_ref().unwrap().connection.directions[CLIENT].doubted);
    }

    #[test]
    fn packets_of_other_processes_have_no_effect() {
        let bytes = tcp_over_ipv4(CLIENT, 1, 1, 0x18, b"x");
        let ends = segment(RAW, &bytes).unwrap().ends;
        let mut stage = empty_stage();
        let shards = [0, 1].map(|number| Shard { number, of: 2 });
        let [ours, other] = if shards[0].owns(ends) { [0, 1] } else { [1, 0] };
        for (shard, verdict) in [
            (None, Verdict::Foreign(Some(ends))),
            (Some(shards[ours]), Verdict::Foreign(Some(ends))),
            (Some(shards[other]), Verdict::Elsewhere),
        ] {
            stage.shard = shard;
            let packet = Packet {
                number: 1,
                time_ns: 1,
                interface: 0,
            };
            assert_eq!(stage.feed(RAW, &bytes, packet, &mut Known), verdict);
        }
        assert_eq!(stage.is_foreign(RAW, &bytes), Verdict::Odd); // not to be taken by Python either
    }

    #[test]
    fn a_connection_to_itself_is_left_to_python() {
        let mut bytes = tcp_over_ipv4(CLIENT, 1, 0, SYN, b"");
        for (from, to) in [(12..16, 16), (20..22, 22)] {
            bytes.copy_within(from, to);
        }
        let packet = Packet {
            number: 1,
            time_ns: 1,
            interface: 0,
        };
        let mut stage = empty_stage();
        let verdict = stage.feed(RAW, &bytes, packet, &mut Known);
        assert_eq!((verdict, stage.room), (Verdict::Foreign(None), 1));
    }

    #[test]
    fn the_clock_may_be_set_back() {
        let mut talk = Talk::new();
        talk.stage.slots[0].as_mut().unwrap().connection.last_ns = 50;
        assert!(talk.send(CLIENT, &request(3, 7, b"")));
        assert_eq!(talk.stage.connection(0).unwrap().1.last_ns, 50);
    }

    #[test]
    fn odd_openings_and_ends_are_left_to_python() {
        let request = request(3, 7, b"");
        let usual: [Sent<'_>; 4] = [
            (0, 0x02, b""),
            (1, 0x12, b""),
            (0, 0x18, &request),
            (1, 0x11, b""),
        ];
        let odd: [(usize, Sent<'_>); 8] = [
            (1, (0, 0x02, b"")),
            (1, (1, 0x02, b"")),
            (1, (1, 0x14, b"x")),
            (1, (1, 0x12, b"x")),
            (2, (1, 0x18, b"x")),
            (2, (0, 0x18, b"GET /")),
            (3, (0, 0x14, b"")), // a request is outstanding
            (4, (0, 0x11, b"")),
        ];
        for (count, each) in odd {
            let segments = [&usual[..count], &[each]].concat();
            let taken = whole(&mut empty_stage(), &segments);
            assert_eq!(taken, [vec![true; count], vec![false]].concat());
        }
    }

    /// Ends that are the same, equal times and clocks that are set back, long names, and bytes that are held.
    #[test]
    fn no_hostile_segments_panic() {
        let mut completed = 0;
        rounds("segments", 300, |random| {
            let mut stage = empty_stage();
            stage.analyzes = random.below(2) == 0;
            let (mut time_ns, mut next, mut ids) = (1_000_i64, [[0_u32; 2]; 4], [[0_u8; 2]; 4]);
            for number in 1..200 {
                stage.room = random.below(9);
                let port = random.below(4);
                let is_odd = random.below(10) == 0;
                let (side, flags) = match next[port] {
                    [0, _] if !is_odd => (CLIENT, 0x02),
                    [_, 0] if !is_odd => (BROKER, 0x12),
                    _ if !is_odd => (random.below(2), 0x18),
                    _ => (random.below(2), [0x02, 0x12, 0x10, 0x11, 0x14][random.below(5)]),
                };
                time_ns += [0, 0, 1, 1, 1, 30, -25, -1000][random.below(if is_odd { 8 } else { 5 })];
                let name = vec![b'n'; [1, 1, 30, 900, 40_000][random.below(if is_odd { 5 } else { 3 })]];
                let id = ids[port][side] + 1;
                let head = [
                    &[0, 3, 0, 3, 0, 0, 0, id][..],
                    &(name.len() as u16).to_be_bytes(),
                    &name,
                ];
                let mut payload = match (flags, side) {
                    (0x02 | 0x12, _) => Vec::new(),
                    (_, CLIENT) => frame(&head.concat()),
                    _ => response(id),
                };
                if is_odd {
                    payload.truncate(random.below(payload.len() + 1));
                }
                let payload = &payload[..];
                let (sent, answered) = (next[port][side], next[port][1 - side]);
                let mut bytes = tcp_over_ipv4(side, sent, answered, flags, payload);
                bytes[20 + 2 * side + 1] = port as u8;
                if random.below(20) == 0 {
                    bytes.copy_within(12..16, 16); // to itself
                    bytes.copy_within(20..22, 22);
                }
                let packet = Packet {
                    number,
                    time_ns,
                    interface: 0,
                };
                if matches!(
                    stage.feed(RAW, &bytes, packet, &mut Known),
                    Verdict::Taken | Verdict::Opened(_)
                ) {
                    let moved = payload.len() as u32 + u32::from(flags & 1) + u32::from(flags >> 1 & 1);
                    next[port][side] = sent.wrapping_add(moved);
                    if !payload.is_empty() {
                        ids[port][side] = id % 100;
                    }
                } else if random.below(8) == 0 {
                    (next[port], ids[port]) = ([0; 2], [0; 2]);
                }
                match random.below(40) {
                    0 => drop(stage.overdue(time_ns)),
                    1 => while stage.end_next((time_ns, u64::MAX)).is_some() {},
                    2 => drop(stage.take_touched()),
                    3 => drop(stage.release(random.below(4))),
                    _ => {}
                }
                completed += std::mem::take(&mut stage.finished).len();
                let all = stage.slots.iter().flatten();
                assert_eq!(stage.held, all.map(|each| each.connection.held()).sum::<usize>());
            }
        });
        assert!(completed > 100);
    }

    #[test]
    fn what_is_not_kafka_is_not_read() {
        let mut stage = empty_stage();
        let segments: [Sent<'_>; 7] = [
            (0, 0x02, b""),
            (1, 0x12, b""),
            (1, 0x18, b"SSH-2.0-x"),
            (0, 0x18, b"SSH-2.0-y"),
            (0, 0x18, &request(3, 7, b"")),
            (0, 0x11, b""),
            (1, 0x11, b""),
        ];
        assert_eq!(whole(&mut stage, &segments), [true; 7]);
        assert_eq!((stage.held, stage.finished.len()), (0, 0));
        assert_eq!((stage.counts.kafka, stage.counts.refused.get(&2)), (0, Some(&1)));
        let ended = stage.end_next((i64::MAX, 0)).unwrap();
        let unread = ended.connection.unread.unwrap();
        assert_eq!(
            (unread.bytes, unread.seen),
            (18 + request(3, 7, b"").len() as u64, [true; 2])
        );
    }

    #[test]
    fn hellos_are_kept() {
        let mut stage = empty_stage();
        let segments: [Sent<'_>; 7] = [
            (0, 0x02, b""),
            (1, 0x12, b""),
            (0, 0x18, b"\x16client"),
            (1, 0x18, b"\x16server"),
            (1, 0x18, b"\x17data"),
            (0, 0x11, b""),
            (1, 0x11, b""),
        ];
        assert_eq!(whole(&mut stage, &segments), [true; 7]);
        assert_eq!(
            (stage.counts.refused.get(&TLS), stage.counts.no_server_hello),
            (Some(&1), 0)
        );
        let unread = stage.end_next((i64::MAX, 0)).unwrap().connection.unread.unwrap();
        assert_eq!(unread.hellos, [b"\x16client", b"\x16server"]);
        for answer in [&b"SSH-2.0-x"[..], &[0x16; HELLO_BYTES + 1]] {
            let mut stage = empty_stage();
            let segments: [Sent<'_>; 4] = [
                (0, 0x02, b""),
                (1, 0x12, b""),
                (0, 0x18, b"\x16client"),
                (1, 0x18, answer),
            ];
            assert_eq!(whole(&mut stage, &segments), [true, true, true, false]);
        }
        let mut stage = empty_stage();
        let segments: [Sent<'_>; 3] = [(0, 0x02, b""), (1, 0x12, b""), (1, 0x18, b"\x16server")];
        assert_eq!(
            whole(&mut stage, &segments),
            [true, true, false],
            "the server begins"
        );
    }

    #[test]
    fn python_looks_at_what_may_begin_like_a_message() {
        let mut talk = Talk::new();
        let connection = &mut talk.stage.slots[0].as_mut().unwrap().connection;
        connection.unread = Some(Box::new(Unread {
            seen: [true, false],
            heads: [1, 2],
            bytes: 50,
            pause_bytes: 100,
            skipped: [0; 2],
            protocol: None,
            hellos: Default::default(),
        }));
        connection.directions[BROKER].is_missing = true;
        let head = request(3, 7, &[0; 9]);
        assert!(talk.send(CLIENT, &head)); // too early
        talk.next[BROKER] += 1000; // acknowledges what is missing
        assert!(talk.send(CLIENT, &[b'x'; 60]));
        assert!(!talk.send(CLIENT, &head)); // Python knows this one
        assert!(talk.send(CLIENT, &head[..13]));
        assert!(talk.send(CLIENT, &request(99, 7, &[0; 9])));
        assert!(!talk.send(BROKER, &response(7))); // it was missing
        talk.stage.slots[0].as_mut().unwrap().connection.directions[BROKER].is_missing = false;
        assert!(!talk.send(BROKER, &response(7)));
    }

    #[test]
    fn connections_come_and_go() {
        let mut talk = Talk::new();
        assert!(talk.send(CLIENT, &request(3, 7, b"")));
        assert_eq!(talk.stage.take_touched(), [(0, 1, 1)]);
        assert_eq!(talk.stage.take_touched(), []);
        let connection = talk.stage.release(0).unwrap();
        assert_eq!(
            (connection.last_id, connection.steady, connection.taken),
            (Some(7), 3, 1)
        );
        assert_eq!((talk.stage.held, talk.stage.release(0).is_none()), (0, true));
        let bytes = tcp_over_ipv4(CLIENT, 0, 0, 0x10, b"");
        assert_eq!(talk.stage.is_foreign(RAW, &bytes), Verdict::Foreign(None));
        let bytes = tcp_over_ipv4(CLIENT, 0, 0, 0x10, b"a");
        let ends = segment(RAW, &bytes).unwrap().ends;
        assert_eq!(talk.stage.is_foreign(RAW, &bytes), Verdict::Foreign(Some(ends)));
        talk.stage.ignore(ends.into());
        assert_eq!(talk.stage.is_foreign(RAW, &bytes), Verdict::Foreign(None));
        talk.stage.readmit(ends);
        assert_eq!(talk.stage.is_foreign(RAW, &bytes), Verdict::Foreign(Some(ends)));
    }
}
