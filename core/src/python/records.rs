//! The class `kdissect._core.Records`: the records of a batch for kdissect/kafka/recordbatch.py. A Python object
//! is made only when it is used.

use std::io::Write;

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyIterator, PyList, PySlice, PyString, PyTuple};

use crate::kafka::records::{read, Bounds, Record, Span};
use crate::sinks::decimal::put;
use crate::sinks::record_lines::{json, plain_text};
use crate::{guarded, Odd};

/// An immutable sequence of `Record`.
#[pyclass(frozen, name = "Records", module = "kdissect._core")]
pub struct PyRecords {
    data: Py<PyBytes>,
    records: Vec<Record>,
    new: Py<PyAny>,
}

/// Reads all records between two positions. None if anything is odd.
///
/// Arguments: what to add to offsets and to timestamps; limits on records, on headers of one record and of all;
/// the function that makes a `Record` from a tuple.
#[pyfunction]
pub fn read_records(
    data: &Bound<'_, PyAny>,
    place: (usize, usize),
    base_offset: i64,
    base_timestamp_ms: i64,
    bounds: (usize, usize, usize),
    new: Py<PyAny>,
) -> Option<PyRecords> {
    let data = data.cast_exact::<PyBytes>().ok()?;
    let bounds = Bounds {
        records: bounds.0,
        headers: bounds.1,
        all_headers: bounds.2,
    };
    let bytes = data.as_bytes();
    let records = guarded(|| read(bytes, place.0..place.1, base_offset, base_timestamp_ms, bounds));
    Some(PyRecords {
        data: data.clone().unbind(),
        records: records.ok()?,
        new,
    })
}

#[pymethods]
impl PyRecords {
    fn __len__(&self) -> usize {
        self.records.len()
    }

    /// A record, or the list of records in a slice.
    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = index.cast::<PySlice>() {
            let indices = slice.indices(self.records.len() as isize)?;
            let place = |place| indices.start + place as isize * indices.step;
            let records = (0..indices.slicelength).filter_map(|each| self.records.get(place(each) as usize));
            return Ok(self.list(py, records)?.into_any());
        }
        let index: isize = index.extract()?;
        let place = if index < 0 {
            index + self.records.len() as isize
        } else {
            index
        };
        let record = self.records.get(place as usize);
        self.object(py, record.ok_or_else(|| PyIndexError::new_err("no such record"))?)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.list(py, self.records.iter())?.try_iter()
    }

    fn __eq__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<bool> {
        self.list(other.py(), self.records.iter())?
            .eq(other.try_iter()?.collect::<PyResult<Vec<_>>>()?)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.list(py, self.records.iter())?.repr()?.to_string())
    }

    /// Number of headers of all records.
    #[getter]
    fn headers(&self) -> usize {
        self.records.iter().map(|record| record.headers.len()).sum()
    }

    /// Of its records; 0 if there are none.
    #[getter]
    fn lowest_offset(&self) -> i64 {
        let offsets = self.records.iter().map(|record| record.offset);
        offsets.min().unwrap_or_default()
    }

    /// Records as JSON lines, see `RecordLines` in kdissect/tables/lines.py.
    ///
    /// Arguments: which records; the text before, between and after the columns that differ; whether the offsets
    /// are known; the timestamp, if all have the same; functions from a second since 1970 to its text, and from the
    /// index of a record to what follows its value's encoding, for records that have `OPTIONAL` columns.
    #[allow(clippy::too_many_arguments)]
    fn json_lines<'py>(
        &self,
        py: Python<'py>,
        first: usize,
        stop: usize,
        between: [PyBackedBytes; 7],
        offsets_known: bool,
        timestamp: Option<PyBackedBytes>,
        second: &Bound<'py, PyAny>,
        tail: &Bound<'py, PyAny>,
    ) -> Option<Bound<'py, PyBytes>> {
        unless_odd(|| {
            let records = self
                .records
                .get(first..stop.min(self.records.len()))
                .unwrap_or_default();
            let mut known = Second::default();
            let around: usize = between.iter().map(|text| text.len()).sum();
            let values = records.iter().flat_map(|record| [&record.key, &record.value]);
            let bytes: usize = values.flatten().map(ExactSizeIterator::len).sum();
            let mut out = Vec::with_capacity(bytes + records.len() * (around + VARYING_BYTES));
            for (index, record) in (first..).zip(records) {
                out.extend_from_slice(&between[0]);
                match offsets_known {
                    true => put(&mut out, record.offset),
                    false => out.extend_from_slice(b"null"),
                }
                out.extend_from_slice(&between[1]);
                match &timestamp {
                    Some(text) => out.extend_from_slice(text),
                    None => known.write(record.timestamp_ms, second, &mut out)?,
                }
                out.extend_from_slice(&between[2]);
                json(self.bytes(py, &record.key), &between[3], &mut out);
                out.extend_from_slice(&between[4]);
                json(self.bytes(py, &record.value), &between[5], &mut out);
                match self.has_more(py, record) {
                    true => out.extend_from_slice(tail.call1((index,))?.cast::<PyBytes>()?.as_bytes()),
                    false => out.extend_from_slice(&between[6]),
                }
            }
            Ok(PyBytes::new(py, &out))
        })
    }

    /// Records as lines of text that are neither cut nor colored, see `RecordTable` in kdissect/text/table.py.
    ///
    /// Arguments: the columns before the offset, each with the gap after it; that gap; the widths of offset and
    /// key; whether the offsets are known; the words after the text, each with the gap before it; a function
    /// from the index of a record to its line, for records with more than plain ASCII.
    #[allow(clippy::too_many_arguments)]
    fn text_lines(
        &self,
        py: Python<'_>,
        before: &str,
        gap: &str,
        widths: (usize, usize),
        offsets_known: bool,
        words: &str,
        line: &Bound<'_, PyAny>,
    ) -> Option<String> {
        unless_odd(|| {
            let mut out = String::new();
            for (index, record) in self.records.iter().enumerate() {
                let key = plain_text(self.bytes(py, &record.key));
                let value = plain_text(self.bytes(py, &record.value));
                let (Some(key), Some(value), false) = (key, value, self.has_more(py, record)) else {
                    out.push_str(line.call1((index,))?.cast::<PyString>()?.to_str()?);
                    continue;
                };
                let offset = match offsets_known {
                    true => record.offset.to_string(),
                    false => "-".to_owned(),
                };
                out.push_str(before);
                push_filled(&offset, widths.0, &mut out);
                out.push_str(gap);
                push_filled(key, widths.1, &mut out);
                out.push_str(gap);
                out.push_str(value.trim_end_matches(' '));
                out.push_str(words);
                out.push('\n');
            }
            Ok(out)
        })
    }
}

/// Buffer space per line besides key and value: offset, timestamp, encodings, a few escapes. More costs time.
const VARYING_BYTES: usize = 128;

/// None after a panic, and after an exception, which Python will raise again.
fn unless_odd<T>(work: impl FnOnce() -> PyResult<T>) -> Option<T> {
    guarded(|| work().map_err(|_| Odd)).ok()
}

impl PyRecords {
    fn bytes<'a>(&'a self, py: Python<'a>, span: &Span) -> Option<&'a [u8]> {
        span.clone().map(|place| &self.data.as_bytes(py)[place])
    }

    /// Whether columns from headers and schemas may have values, as `have_optional` in kdissect/tables/lines.py.
    fn has_more(&self, py: Python<'_>, record: &Record) -> bool {
        let begins_with_zero = |span| {
            self.bytes(py, span)
                .is_some_and(|bytes| bytes.first() == Some(&0))
        };
        !record.headers.is_empty() || begins_with_zero(&record.key) || begins_with_zero(&record.value)
    }

    fn object<'py>(&self, py: Python<'py>, record: &Record) -> PyResult<Bound<'py, PyAny>> {
        let data = self.data.as_bytes(py);
        let bytes = |span: &Span| span.clone().map(|place| PyBytes::new(py, &data[place]));
        let headers = record.headers.iter().map(|(name, value)| {
            let name = PyString::from_bytes(py, &data[name.clone()])?;
            (name, bytes(value)).into_pyobject(py)
        });
        let headers = PyTuple::new(py, headers.collect::<PyResult<Vec<_>>>()?)?;
        let (key, value) = (bytes(&record.key), bytes(&record.value));
        let values = (record.offset, record.timestamp_ms, key, value, headers);
        self.new.bind(py).call1((values,))
    }

    fn list<'py, 'a>(
        &self,
        py: Python<'py>,
        records: impl Iterator<Item = &'a Record>,
    ) -> PyResult<Bound<'py, PyList>> {
        let objects: PyResult<Vec<_>> = records.map(|record| self.object(py, record)).collect();
        PyList::new(py, objects?)
    }
}

/// The text of the latest second, which many timestamps share.
#[derive(Default)]
struct Second(Option<(i64, String)>);

impl Second {
    /// Writes milliseconds as ISO 8601 with microseconds; null if the producer set none.
    fn write(&mut self, time_ms: i64, text: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
        if time_ms == NO_TIMESTAMP {
            out.extend_from_slice(b"null");
            return Ok(());
        }
        let (second, rest) = (time_ms.div_euclid(1000), time_ms.rem_euclid(1000));
        let (_, text) = match self.0.take() {
            Some(known) if known.0 == second => self.0.insert(known),
            _ => self.0.insert((second, text.call1((second,))?.extract()?)),
        };
        write!(out, "\"{text}.{rest:03}000Z\"")?;
        Ok(())
    }
}

const NO_TIMESTAMP: i64 = -1;

fn push_filled(text: &str, width: usize, out: &mut String) {
    out.push_str(text);
    out.extend(std::iter::repeat_n(' ', width.saturating_sub(text.len())));
}
