//! The classes `kdissect._core.RowBatch`, for kdissect/runs/worker.py, and `Merge` and `MergedText`, for
//! kdissect/runs/assembling.py: rows of a worker -> those of all workers, in order.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::AsFd;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySlice};

use crate::python::raw::Bytes;
use crate::runs::merge::{self, RowContent, TextRun, OBJECT};

/// Text that is taken at a time.
const TEXT_BYTES: usize = 256 * 1024;
/// Memory that a worker keeps for its next rows.
const KEPT_BYTES: usize = 4 * 1024 * 1024;

/// The next rows of a worker.
#[pyclass(module = "kdissect._core")]
#[derive(Default)]
pub struct RowBatch {
    pub keys: Vec<u8>,
    pub text: Vec<u8>,
}

#[pymethods]
impl RowBatch {
    #[new]
    fn new() -> Self {
        RowBatch::default()
    }

    /// Bytes of the keys, and of the texts.
    #[getter]
    fn sizes(&self) -> (usize, usize) {
        (self.keys.len(), self.text.len())
    }

    /// Adds a row that Python has: its place, completion time and packet, bytes of frames, and connection.
    fn add(&mut self, place: i64, completed_ns: i64, packet: i64, held: i64, connection: i64) {
        let key = merge::key([place, completed_ns, packet, held, connection, OBJECT]);
        self.keys.extend_from_slice(&key);
    }

    /// Moves keys and texts to memory of these sizes.
    fn move_to(&mut self, py: Python<'_>, keys: PyBuffer<u8>, text: PyBuffer<u8>) -> PyResult<()> {
        keys.copy_from_slice(py, &self.keys)?;
        text.copy_from_slice(py, &self.text)?;
        for each in [&mut self.keys, &mut self.text] {
            each.clear();
            each.shrink_to(KEPT_BYTES);
        }
        Ok(())
    }
}

#[pyclass(name = "Merge", module = "kdissect._core")]
pub struct PyMerge(merge::Merge);

/// See `take`.
type Taken = (usize, u64, usize, (usize, MergedText), i64, i64);

#[pymethods]
impl PyMerge {
    /// Arguments: number of processes; `order_rows` and `order_bytes` of the limits.
    #[new]
    fn new(workers: usize, max_rows: usize, max_bytes: i64) -> Self {
        PyMerge(merge::Merge::new(workers, max_rows, max_bytes))
    }

    /// Adds the next rows of a process: `WorkerBatch.lines`, whose memory must not change before they have been taken,
    /// and `Columns.waits`.
    fn add(
        &mut self,
        worker: usize,
        lines: (usize, PyBuffer<u8>),
        waits: Vec<(i64, Option<i64>)>,
    ) -> PyResult<()> {
        let (keys, memory) = lines;
        let waited = self.0.wait(worker, waits);
        let added = waited.and_then(|()| self.0.add(worker, Box::new(Bytes(memory)), keys));
        added.map_err(|_| PyValueError::new_err("rows that do not fit their texts"))
    }

    /// Merges the rows of all processes up to and including a place.
    fn advance(&mut self, until: i64) {
        self.0.advance(until);
    }

    /// The next row that Python has: its process and number, 0, and no texts. Otherwise the next rows of the core: 0,
    /// 0, their number (1 if `single`), how many of them are selected with their texts, and completion time and bytes
    /// of frames of the last row. None: there is no more.
    fn take(&mut self, single: bool) -> Option<Taken> {
        let ready = &mut self.0.ready;
        let (mut runs, mut rows, mut bytes) = (Vec::new(), 0, 0);
        while rows == 0 || (!single && bytes < TEXT_BYTES) {
            let run = match ready.front_mut() {
                Some(RowContent::Object(worker, number)) if rows == 0 => {
                    let object = (*worker, *number, 0, (0, MergedText(runs)), 0, 0);
                    ready.pop_front();
                    return Some(object);
                }
                Some(RowContent::Text(run)) if single && run.rows() > 1 => run.split(),
                Some(RowContent::Text(_)) => match ready.pop_front() {
                    Some(RowContent::Text(run)) => run,
                    _ => break,
                },
                _ => break,
            };
            (rows, bytes) = (rows + run.rows(), bytes + run.text().len());
            runs.push(run);
        }
        let (completed_ns, held) = runs.last().map(TextRun::last)?;
        let shown = runs.iter().map(TextRun::shown).sum();
        Some((0, 0, rows, (shown, MergedText(runs)), completed_ns, held))
    }
}

/// Texts of consecutive rows, in the memory of the workers that wrote them.
#[pyclass(frozen, module = "kdissect._core")]
pub struct MergedText(Vec<TextRun>);

#[pymethods]
impl MergedText {
    /// Copies them.
    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let texts = || self.0.iter().map(TextRun::text);
        PyBytes::new_with(py, texts().map(<[u8]>::len).sum(), |mut out| {
            for text in texts() {
                let (place, rest) = out.split_at_mut(text.len());
                place.copy_from_slice(text);
                out = rest;
            }
            Ok(())
        })
    }

    /// Those of the first rows, up to the end of a slice.
    fn __getitem__(&self, rows: &Bound<'_, PySlice>) -> PyResult<MergedText> {
        let mut left: usize = rows.getattr("stop")?.extract()?;
        let runs = self.0.iter().map(|run| {
            let first = run.first(left);
            left -= first.shown();
            first
        });
        Ok(MergedText(runs.collect()))
    }

    /// Writes them to stdout, without a copy.
    fn write_to_stdout(&self, py: Python<'_>) -> PyResult<()> {
        let mut stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let mut slices: Vec<_> = self.0.iter().map(|run| IoSlice::new(run.text())).collect();
        let mut left = slices.as_mut_slice();
        IoSlice::advance_slices(&mut left, 0); // if all are empty, nothing is left
        while !left.is_empty() {
            match py.detach(|| stdout.write_vectored(left)) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(bytes) => IoSlice::advance_slices(&mut left, bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => py.check_signals()?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
