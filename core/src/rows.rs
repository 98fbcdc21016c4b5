//! Exchanges -> JSON lines or CSV, as kdissect/tables/lines.py writes them to a file.

use std::io::Write;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyList, PyString};

use crate::line_class::Kept;
use crate::page::{Answered, Clock, Errors, Facts, KnownApis, Object};
use crate::record_lines::json_text;
use crate::row_class::Row;
use crate::tree::Value;
use crate::Odd;

const SIZE_BYTES: usize = 4;
/// Of times.
const DIGITS: usize = 6;

#[derive(FromPyObject)]
pub struct RowForm {
    facts: Facts,
    /// What stands before each column, and what it contains.
    columns: Vec<(String, Content)>,
    /// What ends a row.
    end: String,
    is_csv: bool,
    /// From the interface of a packet to the name of its capture.
    capture: Object,
    /// From a connection, an API key, the time of a response, and the names of errors to those that are expected.
    expected: Object,
    /// From a connection, an API key, the end of a request, start and end of its response, and what it needs of
    /// both bodies to the parts of the latency.
    parts: Object,
    /// The class `RecordData`.
    records: Object,
}

/// Most names are those of columns.
#[derive(Clone, Copy, PartialEq)]
enum Content {
    Shared(usize),
    OfApi(usize),
    Capture,
    Number,
    Packet,
    Time,
    Latency,
    Part(usize),
    ClientId,
    CorrelationId,
    RequestBytes,
    ResponseBytes,
    Topics,
    GroupId,
    TransactionalId,
    Errors,
    ExpectedErrors,
    ThrottleTime,
    Records,
    RecordsBytes,
    Request,
    Response,
}

impl<'py> FromPyObject<'_, 'py> for Content {
    type Error = PyErr;

    /// From its name, and which of several it is.
    fn extract(content: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let (name, which): (String, usize) = content.extract()?;
        Ok(match name.as_str() {
            "shared" => Content::Shared(which),
            "api" => Content::OfApi(which),
            "capture" => Content::Capture,
            "number" => Content::Number,
            "packet" => Content::Packet,
            "time" => Content::Time,
            "latency_us" => Content::Latency,
            "part" => Content::Part(which),
            "client_id" => Content::ClientId,
            "correlation_id" => Content::CorrelationId,
            "request_bytes" => Content::RequestBytes,
            "response_bytes" => Content::ResponseBytes,
            "topics" => Content::Topics,
            "group_id" => Content::GroupId,
            "transactional_id" => Content::TransactionalId,
            "errors" => Content::Errors,
            "expected_errors" => Content::ExpectedErrors,
            "throttle_time_ms" => Content::ThrottleTime,
            "records" => Content::Records,
            "records_bytes" => Content::RecordsBytes,
            "request" => Content::Request,
            "response" => Content::Response,
            _ => return Err(pyo3::exceptions::PyValueError::new_err(name)),
        })
    }
}

/// Writes rows.
pub struct Rows {
    form: RowForm,
    apis: KnownApis<Row>,
    capture: Option<(Object, String)>,
    clock: Clock,
    errors: Errors,
    /// Of the row that is being written, by column.
    cells: Vec<Vec<u8>>,
    splits_latency: bool,
}

impl Rows {
    pub fn new(form: RowForm) -> Self {
        Rows {
            cells: vec![Vec::new(); form.columns.len()],
            splits_latency: form.columns.iter().any(|each| matches!(each.1, Content::Part(_))),
            form,
            apis: KnownApis::default(),
            capture: None,
            clock: Clock::default(),
            errors: Errors::default(),
        }
    }

    pub fn facts(&self) -> &Facts {
        &self.form.facts
    }

    pub fn write(
        &mut self,
        py: Python<'_>,
        exchange: &Answered<'_>,
        shared: &[String],
        out: &mut Vec<u8>,
    ) -> Result<(), Odd> {
        let form = &self.form;
        let facts = &form.facts;
        let (row, tags, of_api) = self.apis.get(py, facts, exchange.header)?;
        let Row { row, projection } = row.get();
        let (request, response) = (exchange.request, exchange.response);
        let decoded = row.bodies.decoded(
            exchange.request_body()?,
            Some(exchange.response_body(tags.as_bytes(py))?),
            facts.budget,
        )?;
        let throttle_time_ms = row.throttle_time_ms(&decoded);
        if decoded.has_unknown || decoded.is_followed || throttle_time_ms.is_some_and(|number| number > 0) {
            return Err(Odd);
        }
        facts.check_errors(&decoded.errors)?;
        let topics = &facts.topics(py);
        let records = row.records(&decoded)?;
        let mut errors = Vec::new();
        for code in &decoded.errors {
            errors.push(self.errors.name(py, facts, *code)?.to_owned());
        }
        if self
            .capture
            .as_ref()
            .is_none_or(|known| !known.0.is(exchange.interface))
        {
            let cell = form
                .capture
                .bind(py)
                .call1((exchange.interface,))
                .map_err(|_| Odd)?;
            let cell = cell.extract().map_err(|_| Odd)?;
            self.capture = Some((exchange.interface.clone_ref(py), cell));
        }
        let (_, capture) = self.capture.as_ref().ok_or(Odd)?;
        for ((_, content), cell) in form.columns.iter().zip(&mut self.cells) {
            cell.clear();
            let mut cell = Cell {
                is_csv: form.is_csv,
                out: cell,
            };
            match *content {
                Content::Shared(_) | Content::OfApi(_) | Content::Part(_) | Content::ExpectedErrors => (),
                Content::Capture => cell.text(Some(capture)),
                Content::Number => cell.number(Some(exchange.number)),
                Content::Packet => cell.number(Some(request.packet)),
                Content::Time => {
                    let mut text = String::new();
                    self.clock.write(py, facts, request.end_ns, DIGITS, &mut text)?;
                    cell.text(Some(&text));
                }
                Content::Latency => cell.number(Some(exchange.latency_ns()?.div_euclid(1000))),
                Content::ClientId => match exchange.header.raw_client_id(request) {
                    Some(client_id) => cell.text(Some(std::str::from_utf8(client_id).map_err(|_| Odd)?)),
                    None => cell.text(None),
                },
                Content::CorrelationId => cell.number(Some(exchange.header.correlation_id)),
                Content::RequestBytes => cell.number(Some(SIZE_BYTES + request.data.len())),
                Content::ResponseBytes => cell.number(Some(SIZE_BYTES + response.data.len())),
                Content::Topics => cell.texts(&row.topics(&decoded, topics)?),
                Content::GroupId => cell.text(row.group.find(&decoded.request)?),
                Content::TransactionalId => cell.text(row.transaction.find(&decoded.request)?),
                Content::Errors => cell.texts(&errors),
                Content::ThrottleTime => cell.number(throttle_time_ms),
                Content::Records => cell.number(records.map(|records| records.0)),
                Content::RecordsBytes => cell.number(records.map(|records| records.1)),
                Content::Request => cell.json(|out| row.json(&decoded.request, out))?,
                Content::Response => cell.json(|out| row.json(&decoded.response, out))?,
            }
        }
        row.bodies.learn(&decoded, topics)?;
        // From here on nothing is odd: what is called remembers the exchange.
        let mut expected = Vec::new();
        let api_key = exchange.header.api_key;
        if !errors.is_empty() {
            let info = exchange.known.info(py).map_err(|_| Odd)?;
            let arguments = (info, api_key, response.end_ns, &errors);
            let names = form.expected.bind(py).call1(arguments).map_err(|_| Odd)?;
            expected = names.extract::<Vec<String>>().map_err(|_| Odd)?;
        }
        let mut parts = [None; 5];
        if self.splits_latency {
            let needed = match projection {
                Some((of_request, of_response)) => Some((
                    projected(py, &decoded.request, of_request, Some(&form.records))?,
                    projected(py, &decoded.response, of_response, Some(&form.records))?,
                )),
                None => None,
            };
            let times = (request.end_ns, response.start_ns, response.end_ns);
            let info = exchange.known.info(py).map_err(|_| Odd)?;
            let arguments = (info, api_key, times, needed);
            let split = form.parts.bind(py).call1(arguments).map_err(|_| Odd)?;
            parts = split.extract::<[Option<i64>; 5]>().map_err(|_| Odd)?;
        }
        for ((before, content), cell) in form.columns.iter().zip(&mut self.cells) {
            out.extend_from_slice(before.as_bytes());
            let mut cell = Cell {
                is_csv: form.is_csv,
                out: cell,
            };
            match *content {
                Content::Shared(which) => out.extend_from_slice(shared.get(which).ok_or(Odd)?.as_bytes()),
                Content::OfApi(which) => out.extend_from_slice(of_api.get(which).ok_or(Odd)?.as_bytes()),
                Content::Part(which) => cell.number(*parts.get(which).ok_or(Odd)?),
                Content::ExpectedErrors => cell.texts(&expected),
                _ => (),
            }
            out.extend_from_slice(cell.out);
        }
        out.extend_from_slice(form.end.as_bytes());
        Ok(())
    }
}

/// Writes a cell.
struct Cell<'a> {
    is_csv: bool,
    out: &'a mut Vec<u8>,
}

impl Cell<'_> {
    fn null(&mut self) {
        if !self.is_csv {
            self.out.extend_from_slice(b"null");
        }
    }

    fn number(&mut self, number: Option<impl std::fmt::Display>) {
        match number {
            Some(number) => _ = write!(self.out, "{number}"), // a vector takes everything
            None => self.null(),
        }
    }

    fn text(&mut self, text: Option<&str>) {
        match text {
            Some(text) if self.is_csv => quoted(text.as_bytes(), self.out),
            Some(text) => json_text(text.as_bytes(), self.out),
            None => self.null(),
        }
    }

    fn texts(&mut self, texts: &[impl AsRef<str>]) {
        if self.is_csv {
            let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
            return quoted(texts.join(";").as_bytes(), self.out);
        }
        self.out.push(b'[');
        for (place, text) in texts.iter().enumerate() {
            if place > 0 {
                self.out.push(b',');
            }
            json_text(text.as_ref().as_bytes(), self.out);
        }
        self.out.push(b']');
    }

    fn json(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), Odd>) -> Result<(), Odd> {
        if !self.is_csv {
            return write(self.out);
        }
        let mut json = Vec::new();
        write(&mut json)?;
        quoted(&json, self.out);
        Ok(())
    }
}

/// Writes a cell of CSV, in quotes if it needs them.
fn quoted(text: &[u8], out: &mut Vec<u8>) {
    if !text.iter().any(|byte| b",\"\r\n".contains(byte)) {
        return out.extend_from_slice(text);
    }
    out.push(b'"');
    for piece in text.split_inclusive(|byte| *byte == b'"') {
        out.extend_from_slice(piece);
        if piece.ends_with(b"\"") {
            out.push(b'"');
        }
    }
    out.push(b'"');
}

/// A value as Python's decoder makes it, with no other fields of structs than these.
pub fn projected<'py>(
    py: Python<'py>,
    value: &Value<'_>,
    kept: &Kept,
    records: Option<&Object>,
) -> Result<Bound<'py, PyAny>, Odd> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Value::Int(number) => number.into_pyobject(py).map_err(|_| Odd)?.into_any(),
        Value::Float | Value::Embedded(_) => return Err(Odd),
        Value::Text(text) => PyString::new(py, text).into_any(),
        Value::Uuid(id) => PyString::new(py, std::str::from_utf8(id).map_err(|_| Odd)?).into_any(),
        Value::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        Value::Records(data) => {
            let arguments = (PyBytes::new(py, data), 0, data.len());
            records.ok_or(Odd)?.bind(py).call1(arguments).map_err(|_| Odd)?
        }
        Value::List(values) => {
            let values = values.iter().map(|each| projected(py, each, kept, records));
            let values = values.collect::<Result<Vec<_>, Odd>>()?;
            PyList::new(py, values).map_err(|_| Odd)?.into_any()
        }
        Value::Struct(fields) => {
            let object = PyDict::new(py);
            for (name, value) in fields {
                if let Some(key) = kept.get(name) {
                    let value = projected(py, value, kept, records)?;
                    object.set_item(key, value).map_err(|_| Odd)?;
                }
            }
            object.into_any()
        }
    })
}
