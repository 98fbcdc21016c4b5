//! The class `kdissect._core.Merge`: a [`Merge`] for kdissect/parallel/assembling.py.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::merge::{self, Content};

/// Text that is taken at a time.
const TEXT_BYTES: usize = 256 * 1024;

#[pyclass(module = "kdissect._core")]
pub struct Merge(merge::Merge);

/// See `take`.
type Taken<'py> = (usize, u64, usize, Bound<'py, PyBytes>, i64, i64);

#[pymethods]
impl Merge {
    /// Arguments: number of processes; `order_rows` and `order_bytes` of the limits.
    #[new]
    fn new(workers: usize, most_rows: usize, most_bytes: i64) -> Self {
        Merge(merge::Merge::new(workers, most_rows, most_bytes))
    }

    /// Adds the next rows of a process: keys and texts of `WorkerBatch.lines`, and `Columns.waits`.
    fn add(
        &mut self,
        worker: usize,
        keys: &[u8],
        text: &[u8],
        waits: Vec<(i64, Option<i64>)>,
    ) -> PyResult<()> {
        let added = self.0.add(worker, keys, text, waits);
        added.map_err(|_| PyValueError::new_err("rows that do not fit their texts"))
    }

    /// Merges the rows of all processes up to and including a place.
    fn advance(&mut self, until: i64) {
        self.0.advance(until);
    }

    /// The next row that Python has: its process and number, 0, and nothing. Otherwise the next text: 0, 0, its
    /// number of rows (1 if `single`), the text, and completion time and bytes of frames of the last row. None:
    /// there is no more.
    fn take<'py>(&mut self, py: Python<'py>, single: bool) -> Option<Taken<'py>> {
        let first = self.0.ready.front()?;
        if let Content::Object(number) = first.content {
            let worker = first.worker;
            self.0.ready.pop_front();
            return Some((worker, number, 0, PyBytes::new(py, b""), 0, 0));
        }
        let mut all = Vec::new();
        let (mut rows, mut completed_ns, mut held) = (0, 0, 0);
        while let Some(row) = self.0.ready.front() {
            let Content::Text(text, begin, end) = &row.content else {
                break;
            };
            if rows > 0 && (single || all.len() >= TEXT_BYTES) {
                break;
            }
            all.extend_from_slice(text.get(*begin..*end).unwrap_or_default());
            (rows, completed_ns, held) = (rows + 1, row.completed_ns, row.held);
            self.0.ready.pop_front();
        }
        Some((0, 0, rows, PyBytes::new(py, &all), completed_ns, held))
    }
}
