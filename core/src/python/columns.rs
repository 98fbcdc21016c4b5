//! The classes `kdissect._core.Columns` and `Batch`: [`columns::Columns`] for kdissect/tables/arrow.py; and
//! `TableLines`, for kdissect/tables/table_files.py.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict, PyList, PyString};

use crate::python::raw::{ArrowArray, ArrowSchema, Bytes};
use crate::sinks::columns::{self, Column, ColumnKind, LaterValue, Values, WaitingColumns};
use crate::sinks::shared::{Droppable, Shared};
use crate::sinks::table_form::TableForm;
use crate::sinks::table_lines::TableLines;
use crate::Odd;

/// From this size on a value is better kept than copied.
const LARGE_BYTES: usize = 1 << 20;

/// The rows of the next batch.
#[pyclass(name = "Columns", module = "kdissect._core")]
pub struct PyColumns(Shared<columns::Columns>);

/// Rows, for one reader of the Arrow C data interface: the first to request them.
#[pyclass(name = "Batch", module = "kdissect._core")]
pub struct PyBatch(Option<(ColumnKind, Column)>);

/// A format string and inner types; see [`ColumnKind`].
#[derive(FromPyObject)]
struct KindForm(String, Vec<(String, KindForm)>);

impl From<KindForm> for ColumnKind {
    fn from(form: KindForm) -> Self {
        let KindForm(format, inner) = form;
        ColumnKind {
            format,
            inner: inner
                .into_iter()
                .map(|(name, form)| (name, form.into()))
                .collect(),
        }
    }
}

impl From<Odd> for PyErr {
    fn from(_: Odd) -> Self {
        PyOverflowError::new_err("a value does not fit its column")
    }
}

#[pymethods]
impl PyColumns {
    #[new]
    fn new(kind: KindForm) -> PyResult<Self> {
        let columns = columns::Columns::new(kind.into());
        columns
            .map(|columns| PyColumns(Shared::new(columns)))
            .ok_or_else(|| PyValueError::new_err("no such format"))
    }

    #[getter]
    fn rows(&self) -> usize {
        self.0.lock().rows
    }

    #[getter]
    fn held(&self) -> usize {
        self.0.lock().held
    }

    /// Adds a row: a value for each column.
    fn feed(&mut self, values: &Bound<'_, PyList>) -> PyResult<()> {
        self.0.lock().row(|columns| {
            let mut cost = 0;
            for (column, value) in columns.iter_mut().zip(values) {
                cost += push(column, &value)?;
            }
            Ok(cost)
        })
    }

    /// Adds the rows from `start` to `stop`, of this size. The values cover more rows, or are one for all rows.
    fn feed_some(
        &mut self,
        values: Vec<Bound<'_, PyList>>,
        start: usize,
        stop: usize,
        size: usize,
    ) -> PyResult<()> {
        let mut all = self.0.lock();
        for row in start..stop {
            all.row(|columns| {
                for (column, values) in columns.iter_mut().zip(&values) {
                    push(column, &values.get_item(if values.len() == 1 { 0 } else { row })?)?;
                }
                Ok::<_, PyErr>(0)
            })?;
        }
        all.held += size;
        Ok(())
    }

    /// Rows of the same kind that wait to be added.
    fn waiting(&self) -> PyResult<PyWaitingColumns> {
        let waiting = WaitingColumns::of(&self.0.lock());
        waiting
            .map(|columns| PyWaitingColumns(Shared::new(columns)))
            .ok_or_else(|| PyValueError::new_err("no such format"))
    }

    /// Returns the rows, and starts the next batch.
    fn take(&mut self) -> PyBatch {
        PyBatch(self.0.lock().take())
    }
}

/// Rows that wait.
#[pyclass(frozen, name = "WaitingColumns", module = "kdissect._core")]
pub struct PyWaitingColumns(Shared<WaitingColumns>);

#[pymethods]
impl PyWaitingColumns {
    /// Adds the first rows to others, with these values in all of them: at most so many, and none after one with
    /// which the others have this number of rows or bytes. Returns how many.
    fn move_to(
        &self,
        to: PyRef<'_, PyColumns>,
        rows: usize,
        full: (usize, usize),
        later: Vec<(String, Option<LaterForm>)>,
    ) -> PyResult<usize> {
        let later: Vec<_> = later
            .iter()
            .filter_map(|(name, value)| {
                let value = match value.as_ref()? {
                    LaterForm::Number(number) => LaterValue::Number(*number),
                    LaterForm::Text(text) => LaterValue::Text(text),
                };
                Some((name.as_str(), value))
            })
            .collect();
        let moved = self.0.lock().move_to(&mut to.0.lock(), rows, full, &later);
        Ok(moved?)
    }
}

#[derive(FromPyObject)]
enum LaterForm {
    Number(i64),
    Text(String),
}

/// Lines of a table.
#[pyclass(frozen, name = "TableLines", module = "kdissect._core")]
pub struct PyTableLines(Shared<TableLines>);

#[pymethods]
impl PyTableLines {
    /// `heads`: the text before each column.
    #[new]
    fn new(heads: Vec<String>) -> Self {
        PyTableLines(Shared::new(TableLines::new(heads)))
    }

    #[getter]
    fn rows(&self) -> usize {
        self.0.lock().size().0
    }

    /// Their bytes.
    #[getter]
    fn held(&self) -> usize {
        self.0.lock().size().1
    }

    /// Adds lines of text.
    fn add(&self, text: &[u8]) {
        self.0.lock().add(text);
    }

    /// Returns the first lines.
    fn take_first<'py>(&self, py: Python<'py>, rows: usize) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.lock().take_first(rows))
    }

    /// Returns lines: at least one, if there is any, and none after the one that exceeds `room` bytes.
    fn take<'py>(&self, py: Python<'py>, room: usize) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.lock().take(room))
    }
}

/// Any of these classes.
impl FromPyObject<'_, '_> for TableForm {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(columns) = object.cast::<PyWaitingColumns>() {
            return Ok(TableForm::Waiting(columns.get().0.clone()));
        }
        match object.cast::<PyColumns>() {
            Ok(columns) => Ok(TableForm::Columns(columns.borrow().0.clone())),
            Err(_) => Ok(TableForm::Lines(object.cast::<PyTableLines>()?.get().0.clone())),
        }
    }
}

#[pymethods]
impl PyBatch {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &mut self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        _ = requested_schema; // the interface allows to ignore it
        let (kind, column) = self
            .0
            .take()
            .ok_or_else(|| PyValueError::new_err("it was taken"))?;
        let schema = PyCapsule::new_with_value(py, ArrowSchema::new("", kind), c"arrow_schema")?;
        Ok((
            schema,
            PyCapsule::new_with_value(py, ArrowArray::new(column), c"arrow_array")?,
        ))
    }
}

/// Appends a value, and returns its cost.
pub fn push(column: &mut Column, value: &Bound<'_, PyAny>) -> PyResult<usize> {
    if value.is_none() {
        return Ok(column.null()?);
    }
    match &mut column.values {
        Values::Bits(_) => Ok(column.bool(value.is_truthy()?)?),
        Values::I16(_) | Values::I32(_) | Values::I64(_) => Ok(column.int(value.extract()?)?),
        Values::Bytes(..) => match value.cast::<PyBytes>() {
            Ok(bytes) if bytes.as_bytes().len() >= LARGE_BYTES => {
                Ok(column.give(Bytes(PyBuffer::get(value)?))?)
            }
            Ok(bytes) => Ok(column.bytes(bytes.as_bytes())?),
            Err(_) => Ok(column.text(value.cast::<PyString>()?.to_str()?)?),
        },
        Values::List(..) => column.list(|element| {
            let mut cost = 0;
            for value in value.try_iter()? {
                cost += push(element, &value?)?;
            }
            Ok(cost)
        }),
        Values::Struct(_) => {
            let object = value.cast::<PyDict>()?;
            column.structure(|fields| {
                let mut cost = 0;
                for (name, field) in fields {
                    cost += match object.get_item(&*name)? {
                        Some(value) => push(field, &value)?,
                        None => field.null()?,
                    };
                }
                Ok(cost)
            })
        }
    }
}
