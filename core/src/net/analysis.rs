//! Segments of a connection -> its TCP analysis, as in kdissect/net/analysis.py, which explains it. The names
//! are the same.

use crate::net::packet::{Segment, ACK, FIN, RST, SYN};

const ENDED_BY_FIN: i64 = 2;
const ENDED_BY_RST: i64 = 4;
const FIN_SENT: i64 = 8;
const UNKNOWN: i64 = -1;
const UNSCALED: i64 = -2;
const REORDERED_NS: i64 = 3_000_000;
const COPY_NS: i64 = 1_000_000;
const STALL_NS: i64 = 1_000_000_000;
const SILENCE_NS: i64 = 10_000_000_000;

/// How many of the numbers are about the connection, and how many about each side.
const SHARED: usize = 10;
const OF_SIDE: usize = 17;
const NUMBERS: usize = SHARED + 2 * OF_SIDE + 1;
const SHORTEST_PIECE_NS: i64 = 125_000_000;
const MAX_PIECES: usize = 32;
const ENDLESS_NS: i64 = 1 << 62;
const NUMBER_BYTES: usize = size_of::<i64>();

/// The numbers, in the order of `state`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Side {
    top: i64,
    unacked_ns: i64,
    ack: i64,
    duplicate_acks: i64,
    segments: i64,
    retransmitted: i64,
    spurious: i64,
    zero_ns: i64,
    quiet_ns: i64,
    stalled_ns: i64,
    sent_ns: i64,
    shortest_ns: i64,
    largest: i64,
    passed: i64,
    repeated: i64,
    scale: i64,
    window: i64,
}

impl Side {
    /// A segment of a side that was quiet with a zero window: whether it reads or sends again.
    fn quiet(&mut self, segment: &Segment<'_>, time_ns: i64) {
        let length = segment.payload.len() as i64;
        let ahead = || distance(self.top, segment.sequence) + length;
        let sends = length > 0 && (self.top == UNKNOWN || ahead() > 0);
        let reads = segment.window != 0 && segment.flags & (RST | ACK) == ACK;
        if sends || reads || segment.flags & (SYN | FIN) != 0 {
            let quiet_ns = time_ns.saturating_sub(self.quiet_ns);
            if quiet_ns >= STALL_NS {
                self.stalled_ns = self.stalled_ns.saturating_add(quiet_ns);
            }
            self.quiet_ns = 0;
        }
    }

    /// An acknowledgment of new payload: of so many bytes, one segment may have had all.
    fn pass(&mut self, before: i64, acknowledgment: u32) {
        let passed = if i64::from(acknowledgment) == self.top {
            self.largest
        } else if before == UNKNOWN {
            0
        } else {
            self.largest.min(distance(before >> 16, acknowledgment))
        };
        self.passed = self.passed.max(passed);
    }
}

#[derive(Debug, PartialEq, Eq)]
pub struct Analysis {
    syn_ns: i64,
    connect_ns: i64,
    syns: i64,
    end: i64,
    end_ns: i64,
    latest_ns: i64,
    survived_ns: i64,
    silent_ns: i64,
    tried_ns: i64,
    keepalives: i64,
    sides: [Side; 2],
    retransmitted: Pieces,
    /// Which side is the client.
    client: usize,
}

/// When something happened, and how much of it; see `note_at`.
#[derive(Debug, PartialEq, Eq)]
struct Pieces {
    length_ns: i64,
    pieces: Vec<(i64, i64)>,
}

impl Default for Pieces {
    fn default() -> Self {
        Pieces {
            length_ns: SHORTEST_PIECE_NS,
            pieces: Vec::new(),
        }
    }
}

impl Pieces {
    fn note(&mut self, time_ns: i64, amount: i64) {
        self.add(time_ns, amount);
        while self.pieces.len() > MAX_PIECES {
            self.length_ns = self.length_ns.saturating_mul(2);
            for (start_ns, each) in std::mem::take(&mut self.pieces) {
                self.add(start_ns, each);
            }
        }
    }

    fn add(&mut self, time_ns: i64, amount: i64) {
        let start_ns = time_ns.saturating_sub(time_ns.rem_euclid(self.length_ns));
        match self.pieces.last_mut() {
            Some((last_ns, sum)) if *last_ns == start_ns || self.length_ns >= ENDLESS_NS => {
                *sum = sum.saturating_add(amount);
            }
            _ => self.pieces.push((start_ns, amount)),
        }
    }
}

fn distance(start: i64, end: u32) -> i64 {
    i64::from(end.wrapping_sub(start as u32) as i32)
}

impl Default for Analysis {
    /// For a connection opened by its client, side 0.
    fn default() -> Self {
        let side = || Side {
            top: UNKNOWN,
            ack: UNKNOWN,
            shortest_ns: UNKNOWN,
            scale: UNKNOWN,
            ..Side::default()
        };
        Analysis {
            syn_ns: 0,
            connect_ns: 0,
            syns: 0,
            end: 0,
            end_ns: 0,
            latest_ns: 0,
            survived_ns: 0,
            silent_ns: 0,
            tried_ns: 0,
            keepalives: 0,
            sides: [side(), side()],
            retransmitted: Pieces::default(),
            client: 0,
        }
    }
}

impl Analysis {
    /// The analysis with this `state`; `client`: which side is the client. None if the state has another form.
    pub fn of(state: &[u8], client: usize) -> Option<Self> {
        let pieces = state.len().checked_sub(NUMBERS * NUMBER_BYTES)? / (2 * NUMBER_BYTES);
        if state.len() != (NUMBERS + 2 * pieces) * NUMBER_BYTES || pieces > MAX_PIECES || client > 1 {
            return None;
        }
        let mut numbers = state.chunks_exact(NUMBER_BYTES);
        let mut next = || {
            let bytes = numbers.next().and_then(<[u8]>::first_chunk);
            i64::from_ne_bytes(*bytes.unwrap_or(&[0; NUMBER_BYTES]))
        };
        let [syn_ns, connect_ns, syns, end, end_ns, latest_ns, survived_ns, silent_ns, tried_ns, keepalives] =
            [(); SHARED].map(|()| next());
        let sides = [(); 2].map(|()| Side {
            top: next(),
            unacked_ns: next(),
            ack: next(),
            duplicate_acks: next(),
            segments: next(),
            retransmitted: next(),
            spurious: next(),
            zero_ns: next(),
            quiet_ns: next(),
            stalled_ns: next(),
            sent_ns: next(),
            shortest_ns: next(),
            largest: next(),
            passed: next(),
            repeated: next(),
            scale: next(),
            window: next(),
        });
        let retransmitted = Pieces {
            length_ns: next().max(SHORTEST_PIECE_NS),
            pieces: (0..pieces).map(|_| (next(), next())).collect(),
        };
        Some(Analysis {
            syn_ns,
            connect_ns,
            syns,
            end,
            end_ns,
            latest_ns,
            survived_ns,
            silent_ns,
            tried_ns,
            keepalives,
            sides,
            retransmitted,
            client,
        })
    }

    /// `TcpAnalysis.state`.
    pub fn state(&self) -> Vec<u8> {
        let mut numbers = vec![
            self.syn_ns,
            self.connect_ns,
            self.syns,
            self.end,
            self.end_ns,
            self.latest_ns,
            self.survived_ns,
            self.silent_ns,
            self.tried_ns,
            self.keepalives,
        ];
        for side in &self.sides {
            numbers.extend([
                side.top,
                side.unacked_ns,
                side.ack,
                side.duplicate_acks,
                side.segments,
                side.retransmitted,
                side.spurious,
                side.zero_ns,
                side.quiet_ns,
                side.stalled_ns,
                side.sent_ns,
                side.shortest_ns,
                side.largest,
                side.passed,
                side.repeated,
                side.scale,
                side.window,
            ]);
        }
        numbers.push(self.retransmitted.length_ns);
        numbers.extend(
            self.retransmitted
                .pieces
                .iter()
                .flat_map(|&(start, sum)| [start, sum]),
        );
        numbers.into_iter().flat_map(i64::to_ne_bytes).collect()
    }

    /// Whether the other side has acknowledged all bytes of this one, as far as is known; 0 is the client.
    pub fn is_acknowledged(&self, sender: usize) -> bool {
        let side = sender ^ self.client;
        let (top, ack) = (self.sides[side].top, self.sides[1 - side].ack);
        let has_fin = self.end & FIN_SENT << side != 0;
        top == UNKNOWN || ack == UNKNOWN || distance(ack >> 16, top as u32) <= i64::from(has_fin)
    }

    /// Counts a segment; `sender` is 0 for the client.
    pub fn feed(&mut self, sender: usize, segment: &Segment<'_>, time_ns: i64) {
        let side = sender ^ self.client;
        let &Segment {
            sequence,
            acknowledgment,
            flags,
            window,
            ..
        } = segment;
        let length = segment.payload.len() as u32;
        let silent_ns = time_ns.saturating_sub(self.latest_ns);
        if self.tried_ns != 0 || silent_ns >= SILENCE_NS {
            self.silent(side, time_ns, flags, silent_ns);
        }
        self.latest_ns = time_ns;
        let [one, two] = &mut self.sides;
        let (own, other) = if side == 0 { (one, two) } else { (two, one) };
        if own.quiet_ns != 0 {
            own.quiet(segment, time_ns);
        }
        if flags & (SYN | FIN | RST) != 0 {
            self.control(side, segment, time_ns);
        } else if length > 0 {
            let top = own.top;
            let size = i64::from(length);
            let ahead = if top == UNKNOWN {
                size
            } else {
                distance(top, sequence) + size
            };
            if ahead > 0 {
                own.top = i64::from(sequence.wrapping_add(length));
                own.unacked_ns = time_ns;
                own.segments += 1;
                own.largest = own.largest.max(size);
                if self.end == 0 {
                    own.sent_ns = time_ns;
                }
            } else if length == 1 && ahead == 0 && other.ack >> 16 == top {
                other.ack = UNKNOWN;
                self.keepalives += 1;
            } else {
                self.repeated(side, time_ns, size, ahead == 0);
            }
        } else if distance(own.top, sequence) == -1 {
            other.ack = UNKNOWN;
            self.keepalives += 1;
        }
        if flags & (RST | ACK) != ACK {
            return;
        }
        let [one, two] = &mut self.sides;
        let (own, other) = if side == 0 { (one, two) } else { (two, one) };
        let is_first = flags & SYN == 0 && self.connect_ns == 0 && self.syn_ns != 0 && other.top >= 0;
        if is_first && i64::from(acknowledgment) == other.top {
            self.connect_ns = time_ns.saturating_sub(self.syn_ns).max(1);
        }
        own.spurious += i64::from(segment.is_d_sack());
        if (window == 0) != (own.zero_ns < 0) && flags & (SYN | FIN) == 0 {
            let change_ns = if window == 0 { -time_ns } else { time_ns };
            own.zero_ns = own.zero_ns.saturating_add(change_ns);
        }
        if window == 0 && own.quiet_ns == 0 && flags & (SYN | FIN) == 0 {
            own.quiet_ns = time_ns;
        }
        let latest = i64::from(acknowledgment) << 16 | i64::from(window);
        let before = own.ack;
        if latest == before {
            let is_duplicate =
                length == 0 && window != 0 && flags & (SYN | FIN) == 0 && i64::from(sequence) == own.top;
            own.duplicate_acks += i64::from(is_duplicate);
            return;
        }
        if flags & SYN == 0 {
            own.window = own.window.max(i64::from(window));
        }
        if before == UNKNOWN || distance(before >> 16, acknowledgment) >= 0 {
            own.ack = latest;
            if other.largest > other.passed {
                other.pass(before, acknowledgment);
            }
            if i64::from(acknowledgment) == other.top && other.unacked_ns != 0 {
                let round_trip_ns = time_ns.saturating_sub(other.unacked_ns).max(0);
                if other.shortest_ns == UNKNOWN || round_trip_ns < other.shortest_ns {
                    other.shortest_ns = round_trip_ns;
                }
                other.unacked_ns = 0;
            }
        }
    }

    /// A segment after a silence, or the first ones behind that.
    fn silent(&mut self, side: usize, time_ns: i64, flags: u8, silent_ns: i64) {
        if self.tried_ns == 0 {
            if self.latest_ns > 0 && flags & (SYN | FIN | RST) == 0 {
                self.silent_ns = silent_ns;
                self.tried_ns = if side == 0 { time_ns } else { -time_ns };
            }
        } else if usize::from(self.tried_ns < 0) != side && flags & RST == 0 {
            self.survived_ns = self.survived_ns.max(self.silent_ns);
            self.tried_ns = 0;
        }
    }

    /// Counts a SYN, FIN or RST.
    fn control(&mut self, side: usize, segment: &Segment<'_>, time_ns: i64) {
        let flags = segment.flags;
        let length = segment.payload.len() as u32;
        let after = segment.sequence.wrapping_add(length).wrapping_add(1);
        let own = &mut self.sides[side];
        if flags & (FIN | RST) != 0 {
            if self.end == 0 {
                let how = if flags & RST != 0 {
                    ENDED_BY_RST
                } else {
                    ENDED_BY_FIN
                };
                self.end = side as i64 | how;
                self.end_ns = time_ns;
            }
            if flags & RST == 0 {
                self.end |= FIN_SENT << side;
                if own.top == UNKNOWN || distance(own.top, after) > 0 {
                    own.top = i64::from(after);
                    own.segments += i64::from(length > 0);
                    own.unacked_ns = 0;
                } else {
                    own.retransmitted += 1;
                    self.retransmitted.note(time_ns, 1);
                }
            }
            return;
        }
        if flags & ACK == 0 {
            self.syns += 1;
            if self.syn_ns == 0 {
                self.syn_ns = time_ns;
            }
        } else if own.top != UNKNOWN {
            own.retransmitted += 1;
            self.retransmitted.note(time_ns, 1);
        }
        own.scale = segment.window_scale().map_or(UNSCALED, i64::from);
        own.unacked_ns = if own.top == UNKNOWN { time_ns } else { 0 };
        own.top = i64::from(after);
    }

    /// Payload without new bytes: a retransmission, unless it is out of order or was captured twice.
    fn repeated(&mut self, side: usize, time_ns: i64, length: i64, is_last: bool) {
        let own = &mut self.sides[side];
        if own.unacked_ns != 0 {
            let allowance_ns = match if self.syns == 1 { self.connect_ns } else { 0 } {
                0 if is_last => COPY_NS,
                0 => REORDERED_NS,
                connect_ns => connect_ns,
            };
            if time_ns.saturating_sub(own.unacked_ns) < allowance_ns {
                return;
            }
        }
        own.retransmitted += 1;
        self.retransmitted.note(time_ns, 1);
        own.repeated = length;
        own.unacked_ns = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_come_and_go() {
        let mut analysis = Analysis {
            client: 1,
            end_ns: -7,
            ..Analysis::default()
        };
        analysis.sides[1].zero_ns = 1 << 60;
        analysis.sides[0].stalled_ns = 1 << 40;
        analysis.sides[1].shortest_ns = 0;
        for number in 0..100 {
            analysis.retransmitted.note(number << 30, 1);
        }
        assert!(analysis.retransmitted.pieces.len() <= MAX_PIECES);
        let state = analysis.state();
        assert_eq!(Analysis::of(&state, 1), Some(analysis));
        for odd in [&state[1..], &[&state[..], b"?"].concat()] {
            assert_eq!(Analysis::of(odd, 1), None);
        }
    }
}
