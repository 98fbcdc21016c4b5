//! The module `kdissect._core`: what Python sees of the core.

use std::panic;
use std::sync::Once;

use pyo3::prelude::*;

pub mod columns;
pub mod decoder;
pub mod line;
pub mod merge;
pub mod offload;
pub mod raw;
pub mod records;
pub mod row;

/// Incremented whenever kdissect/native.py and this module must change together.
const INTERFACE: u32 = 29;

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

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    report_panics();
    module.add("INTERFACE", INTERFACE)?;
    module.add_class::<decoder::Decoder>()?;
    module.add_class::<offload::Offload>()?;
    module.add_class::<columns::Columns>()?;
    module.add_class::<line::Line>()?;
    module.add_class::<row::Row>()?;
    module.add_class::<crate::capture::places::Places>()?;
    module.add_class::<merge::Merge>()?;
    module.add_class::<merge::RowBatch>()?;
    module.add_class::<merge::MergedText>()?;
    module.add_class::<records::Records>()?;
    module.add_function(wrap_pyfunction!(records::read_records, module)?)?;
    module.add_function(wrap_pyfunction!(crate::runs::bundles::bundle_packets, module)?)?;
    module.add_function(wrap_pyfunction!(crate::runs::bundles::unbundle_packets, module)?)?;
    module.add_function(wrap_pyfunction!(crate::runs::divided::divide_packets, module)?)?;
    module.add_function(wrap_pyfunction!(crate::runs::divided::packets_of_shard, module)?)?;
    module.add_function(wrap_pyfunction!(crate::capture::places::payloads, module)?)?;
    module.add_function(wrap_pyfunction!(crate::capture::places::pcap_places, module)?)?;
    module.add_function(wrap_pyfunction!(crate::capture::places::pcapng_places, module)?)?;
    module.add_function(wrap_pyfunction!(crate::capture::ring::encode_slots, module)?)?;
    module.add_function(wrap_pyfunction!(crate::capture::places::pcapng_skip, module)?)
}
