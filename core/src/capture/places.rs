//! Bytes of a capture -> where its packets are: the loops of kdissect/capture/pcap.py and pcapng.py.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// As in `Clock` of an interface in pcapng.py, `plain_below`, `tick_ns` and `kind`.
pub type InterfaceClock = (u32, i64, usize);

/// Time, start and end in the buffer, and length on the wire.
pub type Place = (i64, usize, usize, u32);

const SECOND_NS: i64 = 1_000_000_000;
const ENHANCED_PACKET: u32 = 6;
/// Bytes of an enhanced packet block before and after its packet, without options.
const ENHANCED_BYTES: (usize, usize) = (28, 4);
/// Read at a time by `pcapng_skip`; large packets are not read completely.
const SKIP_BYTES: usize = 16 * 1024;

/// Reads four bytes.
fn word(data: &[u8], pos: usize, is_little: bool) -> Option<u32> {
    let bytes = *data.get(pos..)?.first_chunk()?;
    Some(if is_little {
        u32::from_le_bytes(bytes)
    } else {
        u32::from_be_bytes(bytes)
    })
}

/// Steps over the packets of a pcap file, see `pcap.py`. Returns their places, where the next one begins, how
/// many bytes it needs, and how many captured bytes it declares.
pub fn pcap(
    data: &[u8],
    pos: usize,
    is_little: bool,
    tick_ns: i64,
    header: usize,
    limit: usize,
) -> (Vec<Place>, usize, usize, usize) {
    let mut places = Vec::new();
    let mut at = pos;
    while data.len() >= header && at <= data.len() - header {
        let field = |number: usize| word(data, at + 4 * number, is_little);
        let (Some(seconds), Some(ticks), Some(captured), Some(length)) =
            (field(0), field(1), field(2), field(3))
        else {
            break;
        };
        let begin = at + header;
        let end = begin + captured as usize;
        if end > data.len() || captured as usize > limit {
            return (places, at, end - at, captured as usize);
        }
        places.push((
            i64::from(seconds) * SECOND_NS + i64::from(ticks) * tick_ns,
            begin,
            end,
            length,
        ));
        at = end;
    }
    (places, at, header, 0)
}

/// The fields of `connection.USUAL`; `T`: the ends.
pub type Pattern<T> = (u32, u16, u32, T, u32, u32, u16);

/// Payloads of the packets after the first one of a run, joined, and their number: see `connection.payloads`.
pub fn run(
    data: &[u8],
    places: &[Place],
    (at, start, end): (usize, usize, usize),
    (kind, total, carries, ends, mut sequence, acknowledgment, control): Pattern<&[u8]>,
    mut now_ns: i64,
    until_ns: i64,
) -> (Vec<u8>, usize) {
    let mut joined = Vec::with_capacity(
        places
            .len()
            .saturating_mul(end.saturating_sub(start))
            .min(data.len()),
    );
    for (count, &(time_ns, begin, stop, _)) in places.iter().enumerate() {
        let packet = data.get(begin..stop).unwrap_or_default();
        let (Some(payload), Some(header)) = (packet.get(start..end), packet.get(at..)) else {
            return (joined, count);
        };
        let is_next = (now_ns..until_ns).contains(&time_ns)
            && header.get(12..16) == Some(&kind.to_be_bytes())
            && header.get(16..18) == Some(&total.to_be_bytes())
            && header.get(20..24) == Some(&carries.to_be_bytes())
            && header.get(26..38) == Some(ends)
            && header.get(38..42) == Some(&sequence.to_be_bytes())
            && header.get(42..46) == Some(&acknowledgment.to_be_bytes())
            && header.get(46..48) == Some(&control.to_be_bytes());
        if !is_next {
            return (joined, count);
        }
        joined.extend_from_slice(payload);
        sequence = sequence.wrapping_add(payload.len() as u32);
        now_ns = time_ns;
    }
    (joined, places.len())
}

/// Steps over the enhanced packet blocks of interfaces of one kind, see `pcapng.py`. Returns their places, their
/// interfaces, and where the first block begins that is not one of them, not whole, or not usual.
pub fn pcapng(
    data: &[u8],
    pos: usize,
    is_little: bool,
    clock_of: &dyn Fn(u32) -> Option<InterfaceClock>,
    limit: usize,
) -> (Vec<Place>, Vec<u32>, usize) {
    let (before, after) = ENHANCED_BYTES;
    let (mut places, mut interfaces) = (Vec::new(), Vec::new());
    let mut clocks: HashMap<u32, InterfaceClock> = HashMap::new();
    let mut latest: Option<(u32, InterfaceClock)> = None;
    let mut at = pos;
    while let Some(block) = data.get(at..).filter(|rest| rest.len() >= before + after) {
        let field = |number: usize| word(block, 4 * number, is_little).unwrap_or_default();
        let (total, interface, captured) = (field(1) as usize, field(2), field(5) as usize);
        if field(0) != ENHANCED_PACKET {
            break;
        }
        let clock = match latest {
            Some((known, clock)) if known == interface => clock,
            _ => {
                let known = clocks.get(&interface).copied().or_else(|| clock_of(interface));
                let Some(clock) = known.filter(|each| latest.is_none_or(|(_, one)| one.2 == each.2)) else {
                    break;
                };
                clocks.insert(interface, clock);
                latest = Some((interface, clock));
                clock
            }
        };
        let (plain_below, tick_ns, _) = clock;
        let ticks = i64::from(field(3)) << 32 | i64::from(field(4));
        let is_usual = field(3) < plain_below
            && captured.saturating_add(before + after) <= total
            && captured <= limit
            && total <= block.len()
            && word(block, total - after, is_little) == Some(field(1));
        let Some(time_ns) = ticks.checked_mul(tick_ns).filter(|_| is_usual) else {
            break;
        };
        places.push((time_ns, at + before, at + before + captured, field(6)));
        interfaces.push(interface);
        at += total;
    }
    (places, interfaces, at)
}

/// Steps over the enhanced packet blocks of a file, of which only the lengths are read. Returns where the first
/// block begins that is not one of them, or not whole.
pub fn pcapng_skip(path: &Path, pos: u64, is_little: bool) -> io::Result<u64> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut file = BufReader::with_capacity(SKIP_BYTES, file);
    file.seek(SeekFrom::Start(pos))?;
    let min_bytes = ENHANCED_BYTES.0 + ENHANCED_BYTES.1;
    let (mut at, mut head) = (pos, [0; 8]);
    while size.saturating_sub(at) >= min_bytes as u64 {
        file.read_exact(&mut head)?;
        let total = word(&head, 4, is_little).unwrap_or_default();
        let is_usual = word(&head, 0, is_little) == Some(ENHANCED_PACKET) && total as usize >= min_bytes;
        if !is_usual || u64::from(total) > size - at {
            break;
        }
        at += u64::from(total);
        file.seek_relative(i64::from(total) - head.len() as i64)?;
    }
    Ok(at)
}
