//! Exchanges -> JSON lines or CSV, as kdissect/tables/lines.py writes them to a file, or rows of columns, as
//! kdissect/tables/arrow.py makes them.

use std::borrow::Cow;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyList, PyString};

use crate::columns::Column;
use crate::connection_log::{Log, LogForm};
use crate::decimal::put;
use crate::latency::{SplitForm, Splitters};
use crate::line_class::Kept;
use crate::page::{Answered, Clock, Constant, Errors, Facts, KnownApis, Object};
use crate::record_lines::json_text;
use crate::row_class::Row;
use crate::table_rows::Table;
use crate::touched::Touched;
use crate::tree::Value;
use crate::Odd;

const SIZE_BYTES: usize = 4;
const DAY_NS: i64 = 86_400_000_000_000;
/// Digits of times.
const DIGITS: u32 = 6;
const ANSWERED: &str = "answered";

#[derive(FromPyObject)]
pub struct RowForm {
    facts: Facts,
    /// The text before each column, and its content.
    columns: Vec<(String, Content)>,
    /// The text after a row.
    end: String,
    is_csv: bool,
    /// Where rows go instead.
    tables: Vec<Table>,
    /// Where exchanges are counted.
    log: Option<LogForm>,
    /// Function: interface of a packet -> name of its capture.
    capture: Object,
    /// Function: connection, API key, time of a response, names of errors -> those that are expected.
    expected: Object,
    /// What splits latencies in Python.
    split: Option<SplitForm>,
}

/// The content of a column; most have its name.
#[derive(Clone, Copy, PartialEq)]
pub enum Content {
    Shared(usize),
    OfApi(usize),
    Null,
    Answered,
    NoAnomalies,
    Capture,
    Number,
    Packet,
    Date,
    Time,
    TimeNs,
    Latency,
    RequestTransfer,
    ResponseTransfer,
    Total,
    Part(usize),
    LongPoll,
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

    fn extract(content: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let (name, which): (String, usize) = content.extract()?;
        Content::named(&name, which)
    }
}

impl Content {
    /// `which`: if there are several.
    pub fn named(name: &str, which: usize) -> PyResult<Self> {
        Ok(match name {
            "shared" => Content::Shared(which),
            "of_api" => Content::OfApi(which),
            "null" => Content::Null,
            "kind" | "outcome" => Content::Answered,
            "anomalies" => Content::NoAnomalies,
            "capture" => Content::Capture,
            "number" => Content::Number,
            "packet" => Content::Packet,
            "date" => Content::Date,
            "time" => Content::Time,
            "time_ns" => Content::TimeNs,
            "latency_us" => Content::Latency,
            "request_transfer_us" => Content::RequestTransfer,
            "response_transfer_us" => Content::ResponseTransfer,
            "total_us" => Content::Total,
            "part" => Content::Part(which),
            "long_poll" => Content::LongPoll,
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
            _ => return Err(pyo3::exceptions::PyValueError::new_err(name.to_owned())),
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
    /// The current exchange: both bodies as JSON, and its time.
    bodies: [Vec<u8>; 2],
    time: String,
    /// Which bodies to write.
    has_body: [bool; 2],
    /// None: no latency is split.
    splitters: Option<Splitters>,
    log: Option<Log>,
}

/// What is known of an exchange.
pub struct Found<'a> {
    pub exchange: &'a Answered<'a>,
    shared: &'a [Option<Constant>],
    of_api: &'a [Option<Constant>],
    capture: &'a str,
    time: &'a str,
    latency_us: i64,
    parts: [Option<i64>; 5],
    is_fetch: bool,
    client_id: Option<&'a str>,
    topics: Vec<Cow<'a, str>>,
    pub group_id: Option<&'a str>,
    pub transactional_id: Option<&'a str>,
    pub errors: Vec<String>,
    pub expected_errors: Vec<String>,
    throttle_time_ms: Option<i64>,
    records: Option<(u64, usize)>,
    bodies: [&'a [u8]; 2],
}

impl Rows {
    pub fn new(mut form: RowForm) -> Self {
        let log = form.log.take().map(Log::new);
        let split = form.split.take();
        let contents = || {
            let written = form.columns.iter().map(|(_, content)| content);
            written.chain(form.tables.iter().flat_map(Table::contents))
        };
        let has = |content| contents().any(|each| *each == content);
        let of_parts = |each: &Content| matches!(each, Content::Part(_) | Content::LongPoll);
        Rows {
            has_body: [has(Content::Request), has(Content::Response)],
            splitters: split.filter(|_| contents().any(of_parts)).map(Splitters::new),
            form,
            apis: KnownApis::default(),
            capture: None,
            clock: Clock::default(),
            errors: Errors::default(),
            bodies: Default::default(),
            time: String::new(),
            log,
        }
    }

    /// See [`Page::leave`](crate::page::Page::leave).
    pub fn leave(&mut self, info: &Bound<'_, PyAny>) {
        if let Some(splitters) = &mut self.splitters {
            splitters.leave(info);
        }
    }

    /// Gives back what splits the latencies of connections that are no longer here.
    pub fn give_back(&mut self, py: Python<'_>) -> PyResult<()> {
        let splitters = self.splitters.as_mut();
        splitters.map_or(Ok(()), |splitters| splitters.give_back(py))
    }

    /// Passes on the counts.
    pub fn flush(&mut self, py: Python<'_>) -> PyResult<()> {
        self.log.as_mut().map_or(Ok(()), |log| log.flush(py))
    }

    pub fn facts(&self) -> &Facts {
        &self.form.facts
    }

    /// Whether Python must take the rows before more are added, or `give_back` must be called.
    pub fn is_full(&self, py: Python<'_>) -> bool {
        let must_give_back = self.splitters.as_ref().is_some_and(Splitters::must_give_back);
        must_give_back || self.form.tables.iter().any(|table| table.is_full(py))
    }

    pub fn write(
        &mut self,
        py: Python<'_>,
        exchange: &Answered<'_>,
        shared: &[Option<Constant>],
        out: &mut Vec<u8>,
    ) -> Result<(), Odd> {
        let form = &self.form;
        let facts = &form.facts;
        let (row, tags, of_api) = self.apis.get(py, facts, exchange.header)?;
        let all @ Row { row, is_fetch } = row.get();
        let (request, response) = (exchange.request, exchange.response);
        let decoded = row.bodies.decoded(
            exchange.request_body()?,
            Some(exchange.response_body(tags.as_bytes(py))?),
            facts.budget,
        )?;
        let throttle_time_ms = row.throttle_time_ms(&decoded);
        if decoded.has_unknown || decoded.is_followed || throttle_time_ms.is_some_and(|number| number != 0) {
            return Err(Odd);
        }
        facts.check_flaws(!decoded.errors.is_empty())?;
        if !form.tables.is_empty() && *is_fetch && row.is_replication(&decoded) {
            return Err(Odd);
        }
        let topics = &facts.topics(py, response.end_ns);
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
        self.time.clear();
        if form.tables.is_empty() {
            self.clock
                .write(py, facts, request.end_ns, DIGITS, &mut self.time)?;
        }
        let values = [&decoded.request, &decoded.response];
        for ((body, value), is_written) in self.bodies.iter_mut().zip(values).zip(self.has_body) {
            body.clear();
            if is_written {
                row.json(value, body)?;
            }
        }
        let client_id = exchange.header.raw_client_id(request).map(std::str::from_utf8);
        let mut found = Found {
            exchange,
            shared,
            of_api,
            capture,
            time: &self.time,
            latency_us: exchange.latency_ns()?.div_euclid(1000),
            parts: [None; 5],
            is_fetch: *is_fetch,
            client_id: client_id.transpose().map_err(|_| Odd)?,
            topics: row.topics(&decoded, topics)?,
            group_id: row.group.find(&decoded.request)?,
            transactional_id: row.transaction.find(&decoded.request)?,
            errors,
            expected_errors: Vec::new(),
            throttle_time_ms,
            records: row.records(&decoded)?,
            bodies: self.bodies.each_ref().map(Vec::as_slice),
        };
        let partitions = match &row.partitions {
            Some(plans) if form.tables.iter().any(Table::has_partitions) => {
                Touched::of(plans, &decoded, topics)?
            }
            _ => Vec::new(),
        };
        row.bodies.learn(&decoded, topics)?;
        let api_key = exchange.header.api_key;
        if !found.errors.is_empty() {
            let info = exchange.known.info(py).map_err(|_| Odd)?;
            let arguments = (info, api_key, response.end_ns, &found.errors);
            let names = form.expected.bind(py).call1(arguments).map_err(|_| Odd)?;
            found.expected_errors = names.extract().map_err(|_| Odd)?;
        }
        let mut splitter = None;
        if let Some(splitters) = &mut self.splitters {
            let info = exchange.known.info(py).map_err(|_| Odd)?;
            let (of_connection, form) = splitters.get(py, &info)?;
            let (parts, noted) = of_connection.split(py, form, exchange, all, &decoded)?;
            found.parts = parts.all();
            splitter = Some((of_connection, noted));
        }
        let marks: Vec<_> = form.tables.iter().map(|table| table.mark(py)).collect();
        let mut error_name = |code| Ok(self.errors.name(py, facts, code)?.to_owned());
        for table in &form.tables {
            if let Err(odd) = table.add(py, row, &decoded, &found, &partitions, &mut error_name) {
                let tables = form.tables.iter().zip(&marks);
                tables.for_each(|(table, mark)| table.restore(py, *mark));
                return Err(odd);
            }
        }
        // From here on nothing may be odd.
        if let Some((splitter, noted)) = splitter {
            splitter.note(all, &noted, response.end_ns);
        }
        for table in &form.tables {
            table.add_exchange(py, &found)?;
        }
        if let Some(log) = &mut self.log {
            let bytes = [request, response].map(|frame| (SIZE_BYTES + frame.data.len()) as u64);
            log.add(py, exchange, found.client_id, bytes)?;
        }
        for (before, content) in &form.columns {
            out.extend_from_slice(before.as_bytes());
            let mut cell = if form.is_csv {
                Cell::Csv(out)
            } else {
                Cell::Json(out)
            };
            found.write(*content, &mut cell)?;
        }
        out.extend_from_slice(form.end.as_bytes());
        Ok(())
    }
}

impl Found<'_> {
    pub fn write(&self, content: Content, cell: &mut Cell<'_>) -> Result<(), Odd> {
        let (exchange, bytes) = (self.exchange, |size: usize| i64::try_from(size).ok());
        let Answered {
            request, response, ..
        } = exchange;
        match content {
            Content::Shared(which) => cell.constant(self.shared.get(which).ok_or(Odd)?),
            Content::OfApi(which) => cell.constant(self.of_api.get(which).ok_or(Odd)?),
            Content::Null => cell.text(None),
            Content::Answered => cell.text(Some(ANSWERED)),
            Content::NoAnomalies => cell.texts(&[""; 0]),
            Content::Capture => cell.text(Some(self.capture)),
            Content::Number => cell.number(i64::try_from(exchange.number).ok()),
            Content::Packet => cell.number(i64::try_from(request.packet).ok()),
            Content::Date => cell.number(Some(request.end_ns.div_euclid(DAY_NS))),
            Content::Time if self.time.is_empty() => cell.number(Some(request.end_ns.div_euclid(1000))),
            Content::Time => cell.text(Some(self.time)),
            Content::TimeNs => cell.number(Some(request.end_ns)),
            Content::Latency => cell.number(Some(self.latency_us)),
            Content::RequestTransfer => cell.number(request.transfer_us()),
            Content::ResponseTransfer => cell.number(response.transfer_us()),
            Content::Total => cell.number(exchange.total_us()),
            Content::Part(which) => cell.number(*self.parts.get(which).ok_or(Odd)?),
            Content::LongPoll => cell.bool(self.is_fetch && self.has_waited()),
            Content::ClientId => cell.text(self.client_id),
            Content::CorrelationId => cell.number(Some(exchange.header.correlation_id.into())),
            Content::RequestBytes => cell.number(bytes(SIZE_BYTES + request.data.len())),
            Content::ResponseBytes => cell.number(bytes(SIZE_BYTES + response.data.len())),
            Content::Topics => cell.texts(&self.topics),
            Content::GroupId => cell.text(self.group_id),
            Content::TransactionalId => cell.text(self.transactional_id),
            Content::Errors => cell.texts(&self.errors),
            Content::ExpectedErrors => cell.texts(&self.expected_errors),
            Content::ThrottleTime => cell.number(self.throttle_time_ms),
            Content::Records => cell.number(self.records.and_then(|records| records.0.try_into().ok())),
            Content::RecordsBytes => cell.number(self.records.and_then(|records| bytes(records.1))),
            Content::Request => cell.json(self.bodies[0]),
            Content::Response => cell.json(self.bodies[1]),
        }
    }

    /// `LatencyParts.waited`.
    fn has_waited(&self) -> bool {
        let [known @ .., service] = &self.parts;
        service.is_none() && known.iter().all(Option::is_some)
    }
}

/// Where a value goes: text, or a column and the cost of its row.
pub enum Cell<'a> {
    Json(&'a mut Vec<u8>),
    Csv(&'a mut Vec<u8>),
    Column(&'a mut Column, &'a mut usize),
}

impl Cell<'_> {
    pub fn null(&mut self) -> Result<(), Odd> {
        match self {
            Cell::Json(out) => out.extend_from_slice(b"null"),
            Cell::Csv(_) => (),
            Cell::Column(column, cost) => **cost += column.null()?,
        }
        Ok(())
    }

    pub fn number(&mut self, number: Option<i64>) -> Result<(), Odd> {
        match (number, self) {
            (None, cell) => return cell.null(),
            (Some(number), Cell::Json(out) | Cell::Csv(out)) => put(out, number),
            (Some(number), Cell::Column(column, cost)) => **cost += column.int(number)?,
        }
        Ok(())
    }

    /// Only for tables; text has none.
    pub fn bool(&mut self, value: bool) -> Result<(), Odd> {
        match self {
            Cell::Json(_) | Cell::Csv(_) => return Err(Odd),
            Cell::Column(column, cost) => **cost += column.bool(value)?,
        }
        Ok(())
    }

    pub fn text(&mut self, text: Option<&str>) -> Result<(), Odd> {
        match (text, self) {
            (None, cell) => return cell.null(),
            (Some(text), Cell::Json(out)) => json_text(text.as_bytes(), out),
            (Some(text), Cell::Csv(out)) => quoted(text.as_bytes(), out),
            (Some(text), Cell::Column(column, cost)) => **cost += column.text(text)?,
        }
        Ok(())
    }

    pub fn texts(&mut self, texts: &[impl AsRef<str>]) -> Result<(), Odd> {
        match self {
            Cell::Json(out) => {
                out.push(b'[');
                for (place, text) in texts.iter().enumerate() {
                    if place > 0 {
                        out.push(b',');
                    }
                    json_text(text.as_ref().as_bytes(), out);
                }
                out.push(b']');
            }
            Cell::Csv(out) => {
                let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
                quoted(texts.join(";").as_bytes(), out);
            }
            Cell::Column(column, cost) => {
                **cost += column.list(|element| {
                    texts
                        .iter()
                        .try_fold(0, |sum, text| Ok::<_, Odd>(sum + element.text(text.as_ref())?))
                })?;
            }
        }
        Ok(())
    }

    fn json(&mut self, json: &[u8]) -> Result<(), Odd> {
        match self {
            Cell::Json(out) => out.extend_from_slice(json),
            Cell::Csv(out) => quoted(json, out),
            Cell::Column(column, cost) => **cost += column.bytes(json)?,
        }
        Ok(())
    }

    /// Text written by Python, or a value for a column.
    fn constant(&mut self, constant: &Option<Constant>) -> Result<(), Odd> {
        match (constant, self) {
            (Some(Constant::Text(text)), Cell::Json(out) | Cell::Csv(out)) => {
                out.extend_from_slice(text.as_bytes())
            }
            (Some(Constant::Text(text)), cell) => return cell.text(Some(text)),
            (Some(Constant::Number(number)), cell) => return cell.number(Some(*number)),
            (Some(Constant::Fields(fields)), Cell::Column(column, cost)) => {
                **cost += column.structure(|columns| {
                    let mut cost = 0;
                    for (name, column) in columns {
                        Cell::Column(column, &mut cost).constant(fields.get(name).ok_or(Odd)?)?;
                    }
                    Ok::<_, Odd>(cost)
                })?;
            }
            (Some(Constant::Fields(_)), _) => return Err(Odd),
            (None, cell) => return cell.null(),
        }
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

/// A value as built by Python's decoder, with only these fields of structs.
pub fn projected<'py>(py: Python<'py>, value: &Value<'_>, kept: &Kept) -> Result<Bound<'py, PyAny>, Odd> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Value::Int(number) => number.into_pyobject(py).map_err(|_| Odd)?.into_any(),
        Value::Float | Value::Embedded(_) | Value::Records(_) => return Err(Odd),
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
