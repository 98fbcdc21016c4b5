//! Bundles of packets for kdissect/spark/shuffle.py.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::guarded;
use crate::python::places::Places;
use crate::runs::bundles::{bundle, Bundle, HEAD};

type PyBundles<'py> = (
    Vec<Bundle<Bound<'py, PyBytes>>>,
    Vec<(Bound<'py, PyBytes>, usize)>,
    usize,
    i64,
);

/// See [`bundle`]. None: Python does it.
#[pyfunction]
pub fn bundle_packets<'py>(
    py: Python<'py>,
    block: (u64, Bound<'py, PyAny>, Bound<'py, PyBytes>, Bound<'py, Places>),
    link_type: u32,
    at: usize,
    clock_ns: i64,
    shards: u32,
) -> Option<PyBundles<'py>> {
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
