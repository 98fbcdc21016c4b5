//! The class `kdissect._core.Merge`: a [`Merge`] for kdissect/parallel/assembling.py.

use pyo3::buffer::PyBuffer;
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
    fn new(workers: usize, max_rows: usize, max_bytes: i64) -> Self {
        Merge(merge::Merge::new(workers, max_rows, max_bytes))
    }

    /// Adds the next rows of a process: `WorkerBatch.lines`, which are copied, and `Columns.waits`.
    fn add(
        &mut self,
        py: Python<'_>,
        worker: usize,
        lines: Vec<(PyBuffer<u8>, PyBuffer<u8>)>,
        waits: Vec<(i64, Option<i64>)>,
    ) -> PyResult<()> {
        let refused = |_| PyValueError::new_err("rows that do not fit their texts");
        self.0.wait(worker, waits).map_err(refused)?;
        for (keys, text) in lines {
            let added = self.0.add(worker, keys.to_vec(py)?, text.to_vec(py)?);
            added.map_err(refused)?;
        }
        Ok(())
    }

    /// Merges the rows of all processes up to and including a place.
    fn advance(&mut self, until: i64) {
        self.0.advance(until);
    }

    /// The next row that Python has: its process and number, 0, and nothing. Otherwise the next text: 0, 0, its
    /// number of rows (1 if `single`), the text, and completion time and bytes of frames of the last row. None:
    /// there is no more.
    fn take<'py>(&mut self, py: Python<'py>, single: bool) -> PyResult<Option<Taken<'py>>> {
        let ready = &mut self.0.ready;
        let (mut runs, mut rows, mut bytes, mut last) = (Vec::new(), 0, 0, (0, 0));
        while rows == 0 || (!single && bytes < TEXT_BYTES) {
            let run = match ready.front_mut() {
                Some(Content::Object(worker, number)) if rows == 0 => {
                    let object = (*worker, *number, 0, PyBytes::new(py, b""), 0, 0);
                    ready.pop_front();
                    return Ok(Some(object));
                }
                Some(Content::Text(run)) if single && run.rows() > 1 => run.split(),
                Some(Content::Text(_)) => match ready.pop_front() {
                    Some(Content::Text(run)) => run,
                    _ => break,
                },
                _ => break,
            };
            (rows, bytes, last) = (rows + run.rows(), bytes + run.text().len(), run.last());
            runs.push(run);
        }
        if rows == 0 {
            return Ok(None);
        }
        let text = PyBytes::new_with(py, bytes, |mut out| {
            for run in &runs {
                let (place, rest) = out.split_at_mut(run.text().len());
                place.copy_from_slice(run.text());
                out = rest;
            }
            Ok(())
        })?;
        Ok(Some((0, 0, rows, text, last.0, last.1)))
    }
}
