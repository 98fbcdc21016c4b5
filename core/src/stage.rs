//! Packets -> finished exchanges, on the connections that are here.
//!
//! A connection comes here from Python once everything on it is usual, and goes back before the first segment
//! that is not ([`Stage::release`]).

use std::collections::{HashMap, HashSet};

use crate::connection::{Apis, Connection, Finished, Limits, Packet, Plan, Rules};
use crate::packet::{segment, Segment};

/// Most ends that are known to be no business of this stage.
const FOREIGN_ENDS: usize = 65_536;

/// What became of a packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// It had its effect.
    Taken,
    /// It belongs to no connection that is here. The ends, if it has payload, after which one may come, unless it
    /// is known that none will.
    Foreign(Option<&'a [u8]>),
    /// Python takes it; whether it belongs to a connection that is here may not be known.
    Odd,
}

pub struct Stage<X> {
    limits: Limits,
    flows: HashMap<Box<[u8]>, (usize, usize)>, // ends -> slot and side
    foreign: HashSet<Box<[u8]>>,
    slots: Vec<Option<Entry<X>>>,
    free: Vec<usize>,
    touched: Vec<usize>,
    clock: u64,
    plan: Plan,
    /// Memory of all connections here.
    pub held: usize,
    /// Exchanges since the caller took them.
    pub finished: Vec<Finished<X>>,
}

struct Entry<X> {
    connection: Connection<X>,
    ends: [Box<[u8]>; 2],
    used: u64,
    is_touched: bool,
}

impl<X> Stage<X> {
    pub fn new(limits: Limits) -> Self {
        Stage {
            limits,
            flows: HashMap::new(),
            foreign: HashSet::new(),
            slots: Vec::new(),
            free: Vec::new(),
            touched: Vec::new(),
            clock: 0,
            plan: Plan::default(),
            held: 0,
            finished: Vec::new(),
        }
    }

    /// Takes a connection. `ends`: of the segments of either side, the client's first. Returns its slot.
    pub fn admit(&mut self, connection: Connection<X>, ends: [Box<[u8]>; 2]) -> usize {
        self.held += connection.held();
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        for (side, each) in ends.iter().enumerate() {
            self.flows.insert(each.clone(), (slot, side));
        }
        self.slots[slot] = Some(Entry {
            connection,
            ends,
            used: self.clock,
            is_touched: false,
        });
        slot
    }

    /// Gives a connection back. Its slot stays empty until `reuse`.
    pub fn release(&mut self, slot: usize) -> Option<Connection<X>> {
        let entry = self.slots.get_mut(slot)?.take()?;
        for each in &entry.ends {
            self.flows.remove(each);
        }
        self.touched.retain(|&each| each != slot);
        self.held = self.held.saturating_sub(entry.connection.held());
        Some(entry.connection)
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
    pub fn heed(&mut self, ends: &[u8]) {
        self.foreign.remove(ends);
    }

    /// Slots and clocks of the connections with segments since the last call, least recently used first.
    pub fn take_touched(&mut self) -> Vec<(usize, i64)> {
        let slots = &mut self.slots;
        let mut touched: Vec<(u64, usize, i64)> = Vec::with_capacity(self.touched.len());
        for slot in self.touched.drain(..) {
            if let Some(entry) = slots[slot].as_mut() {
                entry.is_touched = false;
                touched.push((entry.used, slot, entry.connection.now_ns));
            }
        }
        touched.sort_unstable();
        touched
            .into_iter()
            .map(|(_, slot, now_ns)| (slot, now_ns))
            .collect()
    }

    /// What a packet is, without any effect.
    pub fn is_foreign<'a>(&self, link_type: u32, bytes: &'a [u8]) -> Verdict<'a> {
        match segment(link_type, bytes) {
            Ok(segment) if !self.flows.contains_key(segment.ends) => self.foreign(&segment),
            _ => Verdict::Odd,
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
            return Verdict::Odd;
        };
        let Some(&(slot, side)) = self.flows.get(segment.ends) else {
            return self.foreign(&segment);
        };
        let Some(entry) = self.slots[slot].as_mut() else {
            return Verdict::Odd;
        };
        let finished = &mut self.finished;
        let done = |number, request, response| {
            finished.push(Finished {
                slot,
                number,
                request,
                response,
            })
        };
        let before = entry.connection.held();
        let mut rules = Rules {
            limits: &self.limits,
            apis,
        };
        let plan = &mut self.plan;
        if entry
            .connection
            .feed(side, &segment, packet, &mut rules, plan, done)
            .is_err()
        {
            return Verdict::Odd;
        }
        self.held = self.held.saturating_sub(before) + entry.connection.held();
        self.clock += 1;
        entry.used = self.clock;
        if !entry.is_touched {
            entry.is_touched = true;
            self.touched.push(slot);
        }
        Verdict::Taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::{BeforeAcks, Direction, Message, Usual, CLIENT};
    use crate::packet::tests::tcp_over_ipv4;
    use std::collections::VecDeque;

    const RAW: u32 = 101;
    const BROKER: usize = 1;

    struct Known;

    impl Apis for Known {
        fn usual(&mut self, api_key: i16, _: i16) -> Option<Usual> {
            (api_key < 99).then_some(Usual {
                has_tags: false,
                before_acks: BeforeAcks::Text,
            })
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
            });
            let connection = Connection {
                directions: [100, 200].map(|next| Direction {
                    next,
                    ..Direction::default()
                }),
                now_ns: 0,
                last_ns: 0,
                completed: 5,
                last_id: Some(6),
                steady: 2,
                waiting: VecDeque::new(),
                bytes: 0,
                taken: 0,
            };
            let ends = [0, 1].map(|side| {
                let packet = tcp_over_ipv4(side, 0, 0, 0, b"");
                Box::from(segment(RAW, &packet).unwrap().ends)
            });
            assert_eq!(stage.admit(connection, ends), 0);
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
            assert_eq!(done[1].response.data, [0, 0, 0, 8, 9, 9]);
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
    fn what_is_odd_has_no_effect() {
        for odd in [
            request(3, 6, b""),                                   // the ID of the one before
            [request(3, 9, b""), request(3, 8, b"")].concat(),    // IDs that fall
            request(99, 9, b""),                                  // not usual
            request(0, 9, &[0xFF, 0xFF, 0, 0]),                   // acks 0
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

    #[test]
    fn connections_come_and_go() {
        let mut talk = Talk::new();
        assert!(talk.send(CLIENT, &request(3, 7, b"")));
        assert_eq!(talk.stage.take_touched(), [(0, 1)]);
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
        talk.stage.heed(ends);
        assert_eq!(talk.stage.is_foreign(RAW, &bytes), Verdict::Foreign(Some(ends)));
    }
}
