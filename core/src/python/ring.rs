//! The packets in slots of a ring, for kdissect/capture/ring.py.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::capture::ring::{encode, SlotForm};

/// See [`encode`].
#[pyfunction]
pub fn encode_slots<'py>(
    py: Python<'py>,
    slots: &[u8],
    slot_bytes: usize,
    received: Vec<PyBackedBytes>,
    form: SlotForm,
) -> (Bound<'py, PyBytes>, usize) {
    let (blocks, count) = encode(slots, slot_bytes, &received, &form);
    (PyBytes::new(py, &blocks), count)
}
