//! The module `kdissect._core`: what Python sees of the core.

use std::panic;
use std::sync::Once;

use pyo3::prelude::*;

use crate::sinks::quantiles::{Distribution, Quantiles};

pub mod bundles;
pub mod columns;
pub mod decoder;
pub mod divided;
pub mod handle;
pub mod lending;
pub mod line;
pub mod merge;
pub mod opener;
pub mod places;
pub mod plan;
pub mod projected;
pub mod raw;
pub mod records;
pub mod ring;
pub mod row;
pub mod state;

/// Incremented whenever kdissect/core.py and this module must change together.
const INTERFACE: u32 = 63;

/// Reports the first panic on one line, without its message, which might quote the capture.
fn report_panics() {
    panic::set_hook(Box::new(|panic| {
        static FIRST: Once = Once::new();
        FIRST.call_once(|| {
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            eprintln!("kdissect: a bug in the native core ({place}); Python continues, more slowly");
        });
    }));
}

/// Counts numbers: for the test that Python does so too.
#[pyfunction]
fn quantiles(numbers: Vec<i64>) -> Distribution {
    let mut all = Quantiles::default();
    numbers.into_iter().for_each(|number| all.add(number));
    all.counted()
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    report_panics();
    module.add("INTERFACE", INTERFACE)?;
    module.add_class::<decoder::Decoder>()?;
    module.add_class::<lending::Lending>()?;
    module.add_class::<columns::PyColumns>()?;
    module.add_class::<columns::PyBatch>()?;
    module.add_class::<columns::PyTableLines>()?;
    module.add_class::<columns::PyWaitingColumns>()?;
    module.add_class::<line::PyLine>()?;
    module.add_class::<row::PyRow>()?;
    module.add_class::<places::Places>()?;
    module.add_class::<merge::PyMerge>()?;
    module.add_class::<merge::RowBatch>()?;
    module.add_class::<merge::MergedText>()?;
    module.add_class::<records::PyRecords>()?;
    module.add_function(wrap_pyfunction!(quantiles, module)?)?;
    module.add_function(wrap_pyfunction!(records::read_records, module)?)?;
    module.add_function(wrap_pyfunction!(bundles::bundle_packets, module)?)?;
    module.add_function(wrap_pyfunction!(bundles::unbundle_packets, module)?)?;
    module.add_function(wrap_pyfunction!(divided::divide_packets, module)?)?;
    module.add_function(wrap_pyfunction!(divided::packets_of_shard, module)?)?;
    module.add_function(wrap_pyfunction!(places::payloads, module)?)?;
    module.add_function(wrap_pyfunction!(places::pcap_places, module)?)?;
    module.add_function(wrap_pyfunction!(places::pcapng_places, module)?)?;
    module.add_function(wrap_pyfunction!(ring::encode_slots, module)?)?;
    module.add_function(wrap_pyfunction!(places::pcapng_skip, module)?)
}
