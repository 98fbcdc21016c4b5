//! The packets of a shard for kdissect/runs/broadcast.py.

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::guarded;
use crate::python::places::Places;
use crate::python::raw::Bytes;
use crate::runs::divided::{divide, own};

/// See [`divide`]. None: not possible, so all workers get the block.
#[pyfunction]
pub fn divide_packets<'py>(
    data: &Bound<'py, PyBytes>,
    places: &Bound<'py, Places>,
    link_type: u32,
    shards: u32,
    from: usize,
) -> Option<Bound<'py, PyBytes>> {
    let places = &places.get().places;
    let divided = guarded(|| Ok(divide(data.as_bytes(), places, link_type, shards, from)));
    let records = divided.ok().flatten()?;
    Some(PyBytes::new(data.py(), &records))
}

/// A block's packets whose shard is this one or unknown: their bytes, and their places in these. `number`: of the
/// block's first packet.
#[pyfunction]
pub fn packets_of_shard(
    py: Python<'_>,
    data: PyBuffer<u8>,
    records: PyBuffer<u8>,
    number: u64,
    shard: u32,
) -> PyResult<(Bound<'_, PyBytes>, Places)> {
    let (data, records) = (Bytes(data), Bytes(records));
    let (own, whole, size) = own(records.as_ref(), number, shard);
    let (mut places, mut numbers) = (Vec::with_capacity(own.len()), Vec::with_capacity(own.len()));
    let bytes = PyBytes::new_with(py, size, |mut out| {
        let mut at = 0;
        for (number, (time_ns, begin, end, length)) in own {
            let packet = data.as_ref().get(begin..end).unwrap_or_default();
            let (place, rest) = out.split_at_mut(packet.len());
            place.copy_from_slice(packet);
            out = rest;
            places.push((time_ns, at, at + packet.len(), length));
            numbers.push(number);
            at += packet.len();
        }
        Ok(())
    })?;
    let places = Places {
        places,
        numbers: Some(numbers),
        whole,
        ..Places::default()
    };
    Ok((bytes, places))
}
