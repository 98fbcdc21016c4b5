//! Values in a body -> the objects that Python's decoder makes of them.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyList, PyString};

use crate::kafka::tree::{Name, Value};
use crate::Odd;

/// Names of the fields kept from a body.
pub type Kept = HashMap<Name, Py<PyString>>;

/// A value as built by Python's decoder, with only these fields of structs.
pub fn projected<'py>(py: Python<'py>, value: &Value<'_>, kept: &Kept) -> Result<Bound<'py, PyAny>, Odd> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Value::Int(number) => number.into_pyobject(py).map_err(|_| Odd)?.into_any(),
        Value::Float(_) | Value::Embedded(_) | Value::Records(_) => return Err(Odd),
        Value::Text(text) => PyString::new(py, text).into_any(),
        Value::Uuid(id) => PyString::new(py, std::str::from_utf8(id).map_err(|_| Odd)?).into_any(),
        Value::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        Value::List(values) => {
            let values = values.iter().map(|each| projected(py, each, kept));
            let values = values.collect::<Result<Vec<_>, Odd>>()?;
            PyList::new(py, values).map_err(|_| Odd)?.into_any()
        }
        Value::Struct(fields) => {
            let object = PyDict::new(py);
            for (name, value) in fields {
                if let Some(key) = kept.get(name) {
                    let value = projected(py, value, kept)?;
                    object.set_item(key, value).map_err(|_| Odd)?;
                }
            }
            object.into_any()
        }
    })
}
