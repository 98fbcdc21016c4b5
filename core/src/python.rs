//! The module `kdissect._core`.

use std::panic;
use std::sync::Once;

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyList, PyString, PyTuple};

use crate::body::{Build, Decoding, Field, Kind, Struct};
use crate::wire::{uuid_text, Reader};
use crate::{guarded, Odd};

/// Raised by one whenever kdissect/native.py and this module must change together.
const INTERFACE: u32 = 22;

type Name = Py<PyString>;

/// A layout that decodes bodies as the function does that decoder.py generates from it.
#[pyclass(frozen, module = "kdissect._core")]
struct Decoder {
    shape: Struct<Name>,
    charges_text: bool,
    records: Py<PyAny>,
    python: Py<PyAny>,
}

#[pymethods]
impl Decoder {
    /// Arguments: a struct, see [`structure`]; whether text is charged to the budget; the class `RecordData`;
    /// and the decoder to call with the same arguments where this one gives up.
    #[new]
    fn new(
        shape: &Bound<'_, PyTuple>,
        charges_text: bool,
        records: Py<PyAny>,
        python: Py<PyAny>,
    ) -> PyResult<Self> {
        Ok(Decoder {
            shape: structure(shape, &interned)?,
            charges_text,
            records,
            python,
        })
    }

    fn decode<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        pos: &Bound<'py, PyAny>,
        budget: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match guarded(|| self.try_decode(py, data, pos, budget)) {
            Ok(decoded) => Ok(decoded),
            Err(Odd) => self.python.bind(py).call1((data, pos, budget)),
        }
    }
}

impl Decoder {
    /// The body and its end. The budget is charged only on success.
    fn try_decode<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        pos: &Bound<'py, PyAny>,
        budget: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyAny>, Odd> {
        let data = data.cast_exact::<PyBytes>().map_err(|_| Odd)?;
        let left = budget.getattr(intern!(py, "left")).map_err(odd)?;
        let left: i64 = left.extract().map_err(odd)?;
        let builder = Objects {
            py,
            data,
            records: self.records.bind(py),
        };
        let mut decoding = Decoding {
            reader: Reader::new(data.as_bytes(), pos.extract().map_err(odd)?),
            builder: &builder,
            budget: left,
            flexible: self.shape.tag_bytes.is_some(),
            charges_text: self.charges_text,
        };
        let body = decoding.structure(&self.shape)?;
        let (end, after) = (decoding.reader.pos(), decoding.budget);
        let decoded = (body, end).into_pyobject(py).map_err(odd)?.into_any();
        if after != left {
            budget.setattr(intern!(py, "left"), after).map_err(odd)?;
        }
        Ok(decoded)
    }
}

type ToName<'a, N> = dyn Fn(&Bound<'_, PyAny>) -> PyResult<N> + 'a;

fn interned(name: &Bound<'_, PyAny>) -> PyResult<Name> {
    Ok(PyString::intern(name.py(), name.cast::<PyString>()?.to_str()?).unbind())
}

/// Whatever Python has against an object, it says once more when it makes the object itself.
fn odd(_: PyErr) -> Odd {
    Odd
}

/// Makes Python objects.
struct Objects<'a, 'py> {
    py: Python<'py>,
    data: &'a Bound<'py, PyBytes>,
    records: &'a Bound<'py, PyAny>,
}

impl<'a, 'py> Build<'a> for Objects<'a, 'py> {
    type Name = Name;
    type Value = Bound<'py, PyAny>;
    type Struct = Bound<'py, PyDict>;

    fn null(&self) -> Self::Value {
        self.py.None().into_bound(self.py)
    }

    fn bool(&self, value: bool) -> Self::Value {
        PyBool::new(self.py, value).to_owned().into_any()
    }

    fn int(&self, value: i64) -> Result<Self::Value, Odd> {
        match value.into_pyobject(self.py) {
            Ok(number) => Ok(number.into_any()),
            Err(_) => Err(Odd),
        }
    }

    fn float(&self, value: f64) -> Self::Value {
        PyFloat::new(self.py, value).into_any()
    }

    fn text(&self, value: &'a str) -> Self::Value {
        PyString::new(self.py, value).into_any()
    }

    fn uuid(&self, raw: [u8; 16]) -> Result<Self::Value, Odd> {
        let text = uuid_text(raw);
        Ok(PyString::new(self.py, std::str::from_utf8(&text).map_err(|_| Odd)?).into_any())
    }

    fn bytes(&self, value: &'a [u8]) -> Self::Value {
        PyBytes::new(self.py, value).into_any()
    }

    fn records(&self, start: usize, end: usize) -> Result<Self::Value, Odd> {
        self.records.call1((self.data, start, end)).map_err(odd)
    }

    fn list(&self, values: Vec<Self::Value>) -> Result<Self::Value, Odd> {
        Ok(PyList::new(self.py, values).map_err(odd)?.into_any())
    }

    fn begin(&self, _: &Struct<Self::Name>) -> Self::Struct {
        PyDict::new(self.py)
    }

    fn set(&self, object: &mut Self::Struct, name: &Name, value: Self::Value) -> Result<(), Odd> {
        object.set_item(name.bind(self.py), value).map_err(odd)
    }

    fn set_unknown(&self, object: &mut Self::Struct, tags: Vec<(u64, &'a [u8])>) -> Result<(), Odd> {
        let unknown = PyDict::new(self.py);
        for (tag, value) in tags {
            unknown.set_item(tag, self.bytes(value)).map_err(odd)?;
        }
        object.set_item(intern!(self.py, "_tags"), unknown).map_err(odd)
    }

    fn end(&self, object: Self::Struct) -> Self::Value {
        object.into_any()
    }
}

/// Reads a struct from the tuples of kdissect/kafka/compiler.py: positional fields, tagged fields, and in
/// flexible versions the memory of a tag.
///
/// `name` makes a field's name from what is there in its place.
pub fn structure<N>(shape: &Bound<'_, PyTuple>, name: &ToName<'_, N>) -> PyResult<Struct<N>> {
    let (positional, tagged, tag_bytes): (Vec<Bound<'_, PyTuple>>, Vec<Bound<'_, PyTuple>>, Option<i64>) =
        shape.extract()?;
    Ok(Struct {
        positional: positional
            .iter()
            .map(|each| field(each, name))
            .collect::<PyResult<_>>()?,
        tagged: tagged
            .iter()
            .map(|each| field(each, name))
            .collect::<PyResult<_>>()?,
        tag_bytes,
        skipped_bytes: None,
    })
}

/// Reads a field: name; type, or a tuple for a struct; of an array the memory of an element; whether it is
/// nullable; of a tagged field the tag.
fn field<N>(field: &Bound<'_, PyTuple>, to_name: &ToName<'_, N>) -> PyResult<Field<N>> {
    let (name, kind, element_bytes, nullable, tag): (
        Bound<'_, PyAny>,
        Bound<'_, PyAny>,
        Option<i64>,
        bool,
        Option<u64>,
    ) = field.extract()?;
    Ok(Field {
        name: to_name(&name)?,
        kind: self::kind(&kind, to_name)?,
        element_bytes,
        nullable,
        tag,
    })
}

fn kind<N>(kind: &Bound<'_, PyAny>, name: &ToName<'_, N>) -> PyResult<Kind<N>> {
    if let Ok(shape) = kind.cast::<PyTuple>() {
        return structure(shape, name).map(Kind::Struct);
    }
    let kind = kind.cast::<PyString>()?.to_str()?;
    Kind::scalar(kind).ok_or_else(|| PyValueError::new_err(format!("no type {kind}")))
}

/// One line about the first panic, without its message, which might quote the capture.
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
    module.add_class::<Decoder>()?;
    module.add_class::<crate::offload::Offload>()?;
    module.add_class::<crate::columns_class::Columns>()?;
    module.add_class::<crate::line_class::Line>()?;
    module.add_class::<crate::row_class::Row>()?;
    module.add_class::<crate::places::Places>()?;
    module.add_class::<crate::merge_class::Merge>()?;
    module.add_class::<crate::records_class::Records>()?;
    module.add_function(wrap_pyfunction!(crate::records_class::read_records, module)?)?;
    module.add_function(wrap_pyfunction!(crate::places::payloads, module)?)?;
    module.add_function(wrap_pyfunction!(crate::places::pcap_places, module)?)?;
    module.add_function(wrap_pyfunction!(crate::places::pcapng_places, module)?)?;
    module.add_function(wrap_pyfunction!(crate::ring::encode_slots, module)?)?;
    module.add_function(wrap_pyfunction!(crate::places::pcapng_skip, module)?)
}
