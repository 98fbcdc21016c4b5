//! Packets -> bundles of those that belong to a shard of the connections, and back: for kdissect/spark/shuffle.py.

use std::collections::HashMap;

use crate::capture::places::Place;
use crate::net::packet::segment;
use crate::net::shard::shard_of;

/// Clock, number and time of a packet, length on the wire and captured, link type: `_HEAD` in shuffle.py.
pub const HEAD: usize = 3 * 8 + 3 * 4;

/// Packets of a shard: its number; clock at the first packet and at the last; number of the first; heads; bytes.
pub type Bundle<T> = (u32, i64, i64, u64, T, T);

/// Bundles; payload bytes by `Segment::ends`; index of the packet at which it ended; the clock.
pub type Bundled<'a, T> = (Vec<Bundle<T>>, HashMap<&'a [u8], usize>, usize, i64);

/// Bundles the packets of a block from index `at` on, up to the first whose segment is not to be found by
/// `net/packet.rs`. `clock_ns`: the latest time before.
pub fn bundle<'a>(
    data: &'a [u8],
    places: &[Place],
    number: u64,
    link_type: u32,
    mut at: usize,
    mut clock_ns: i64,
    shards: u32,
) -> Bundled<'a, Vec<u8>> {
    let (mut bundles, mut by_shard) = (Vec::<Bundle<Vec<u8>>>::new(), HashMap::new());
    let mut loads: HashMap<&[u8], usize> = HashMap::new();
    while let Some(&(time_ns, begin, end, length)) = places.get(at) {
        let Some(packet) = data.get(begin..end) else { break };
        let Ok(segment) = segment(link_type, packet) else {
            break;
        };
        *loads.entry(segment.ends).or_default() += segment.payload.len();
        clock_ns = clock_ns.max(time_ns);
        let number = number + at as u64;
        let shard = shard_of(segment.ends, shards);
        let index = *by_shard.entry(shard).or_insert_with(|| {
            bundles.push((shard, clock_ns, clock_ns, number, Vec::new(), Vec::new()));
            bundles.len() - 1
        });
        let (_, _, end_ns, _, heads, bytes) = &mut bundles[index];
        *end_ns = clock_ns;
        for long in [clock_ns as u64, number, time_ns as u64] {
            heads.extend_from_slice(&long.to_le_bytes());
        }
        for word in [length, packet.len() as u32, link_type] {
            heads.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(packet);
        at += 1;
    }
    (bundles, loads, at, clock_ns)
}
