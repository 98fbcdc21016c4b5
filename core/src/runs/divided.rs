//! Packets of a block -> the shards that they belong to -> those of one shard: for kdissect/runs/broadcast.py.

use crate::capture::places::Place;
use crate::net::packet::segment;
use crate::net::shard::shard_of;

/// Time of a packet; start, end, and length on the wire; shard.
const RECORD: usize = 8 + 4 * 4;
/// Of packets whose segment is not to be found by `net/packet.rs`.
const ALL: u32 = u32::MAX;

/// A record of each packet, with positions counted from `from`. None: not possible.
pub fn divide(data: &[u8], places: &[Place], link_type: u32, shards: u32, from: usize) -> Option<Vec<u8>> {
    let mut records = Vec::with_capacity(places.len().saturating_mul(RECORD));
    for &(time_ns, begin, end, length) in places {
        let packet = data.get(begin..end)?;
        let shard = segment(link_type, packet).map_or(ALL, |segment| shard_of(segment.ends, shards));
        records.extend_from_slice(&time_ns.to_ne_bytes());
        let at = |place: usize| u32::try_from(place.checked_sub(from)?).ok();
        for word in [at(begin)?, at(end)?, length, shard] {
            records.extend_from_slice(&u32::to_ne_bytes(word));
        }
    }
    Some(records)
}

/// Packets with their numbers; `Places::whole`; and the packets' size in bytes.
pub type Own = (Vec<(u64, Place)>, Option<(usize, i64, i64)>, usize);

/// The packets whose shard is this one or unknown.
pub fn own(records: &[u8], number: u64, shard: u32) -> Own {
    let (mut own, mut size) = (Vec::new(), 0);
    let mut whole: Option<(usize, i64, i64)> = None;
    for (record, number) in records.chunks_exact(RECORD).zip(number..) {
        let (time, words) = record.split_at(8);
        let time_ns = i64::from_ne_bytes(*time.first_chunk().unwrap_or(&[0; 8]));
        let word = |at: usize| u32::from_ne_bytes(*words[4 * at..].first_chunk().unwrap_or(&[0; 4]));
        let (packets, earliest_ns, latest_ns) = whole.unwrap_or((0, time_ns, time_ns));
        whole = Some((packets + 1, earliest_ns.min(time_ns), latest_ns.max(time_ns)));
        if [shard, ALL].contains(&word(3)) {
            let (begin, end) = (word(0) as usize, word(1) as usize);
            size += end.saturating_sub(begin);
            own.push((number, (time_ns, begin, end, word(2))));
        }
    }
    (own, whole, size)
}
