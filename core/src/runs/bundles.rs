//! Packets -> bundles of those that belong to a shard of the connections, and back: for kdissect/spark/shuffle.py.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::capture::places::{Place, Places};
use crate::guarded;
use crate::net::packet::segment;
use crate::net::shard::shard_of;

/// Clock, number and time of a packet, length on the wire and captured, link type: `_HEAD` in shuffle.py.
const HEAD: usize = 3 * 8 + 3 * 4;

/// Packets of a shard: its number; clock at the first packet and at the last; number of the first; heads; bytes.
type Bundle<T> = (u32, i64, i64, u64, T, T);

/// Bundles; payload bytes by `Segment::ends`; index of the packet at which it ended; the clock.
type Bundled<'a, T> = (Vec<Bundle<T>>, HashMap<&'a [u8], usize>, usize, i64);

type Objects<'py> = (
    Vec<Bundle<Bound<'py, PyBytes>>>,
    Vec<(Bound<'py, PyBytes>, usize)>,
    usize,
    i64,
);

/// Bundles the packets of a block from index `at` on, up to the first whose segment is not to be found by
/// `net/packet.rs`. `clock_ns`: the latest time before. None: Python does it.
#[pyfunction]
pub fn bundle_packets<'py>(
    py: Python<'py>,
    block: (u64, Bound<'py, PyAny>, Bound<'py, PyBytes>, Bound<'py, Places>),
    link_type: u32,
    at: usize,
    clock_ns: i64,
    shards: u32,
) -> Option<Objects<'py>> {
    let (number, _, data, places) = block;
    let (data, places) = (data.as_bytes(), &places.get().places);
    let bundled = guarded(|| Ok(bundle(data, places, number, link_type, at, clock_ns, shards)));
    let (bundles, loads, at, clock_ns) = bundled.ok()?;
    let object = |(shard, begin_ns, end_ns, number, heads, data): Bundle<Vec<u8>>| {
        let [heads, data] = [heads, data].map(|each| PyBytes::new(py, &each));
        (shard, begin_ns, end_ns, number, heads, data)
    };
    let bundles = bundles.into_iter().map(object).collect();
    let loads = loads
        .into_iter()
        .map(|(ends, bytes)| (PyBytes::new(py, ends), bytes));
    Some((bundles, loads.collect(), at, clock_ns))
}

fn bundle<'a>(
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

/// The blocks of a bundle: number of the first packet, link type, and places in the bundle's bytes.
#[pyfunction]
pub fn unbundle_packets(heads: &[u8]) -> Vec<(u64, u32, Places)> {
    let mut blocks: Vec<(u64, u32, Places)> = Vec::new();
    let mut begin = 0;
    for head in heads.chunks_exact(HEAD) {
        let word = |at: usize| u32::from_le_bytes(*head[at..].first_chunk().unwrap_or(&[0; 4]));
        let long = |at: usize| u64::from_le_bytes(*head[at..].first_chunk().unwrap_or(&[0; 8]));
        let (number, time_ns, link_type) = (long(8), long(16) as i64, word(32));
        let end = begin + word(28) as usize;
        if blocks.last().is_none_or(|block| block.1 != link_type) {
            blocks.push((number, link_type, Places::default()));
        }
        if let Some((.., block)) = blocks.last_mut() {
            block.places.push((time_ns, begin, end, word(24)));
            block.numbers.get_or_insert_default().push(number);
        }
        begin = end;
    }
    blocks
}
