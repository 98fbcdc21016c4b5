//! Exchanges -> JSON lines or CSV, as kdissect/tables/lines.py writes them to a file, or rows of columns, as
//! kdissect/tables/arrow.py makes them.

use pyo3::prelude::*;

use crate::exchanges::touched::Touched;
use crate::python::row::PyRow;
use crate::sinks::cells::{Cell, Content, RowFacts};
use crate::sinks::connection_log::{Log, LogForm};
use crate::sinks::facts::{Answered, Clock, Constant, Errors, Facts, KnownApis, Object};
use crate::sinks::record_lines::value_json;
use crate::sinks::splitters::{MemoryForm, Splitters};
use crate::sinks::table_rows::{of_exchange, AliveForm, AliveMembers, Table};
use crate::Odd;

const SIZE_BYTES: usize = 4;
/// Digits of times.
const DIGITS: u32 = 6;

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
    /// Where members of groups are noted that are alive.
    alive: Option<AliveForm>,
    /// Function: interface of a packet -> name of its capture.
    capture: Object,
    /// Function: connection, API key, time of a response, names of errors -> those that are expected.
    expected: Object,
    /// What connections remember, to split latencies.
    memory: Option<MemoryForm>,
}

impl<'py> FromPyObject<'_, 'py> for Content {
    type Error = PyErr;

    fn extract(content: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        of_exchange(&content.extract()?)
    }
}

/// Writes rows.
pub struct Rows {
    form: RowForm,
    apis: KnownApis<PyRow>,
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
    alive: Option<AliveMembers>,
}

impl Rows {
    pub fn new(mut form: RowForm) -> Self {
        let log = form.log.take().map(Log::new);
        let alive = form.alive.take().map(AliveMembers::new);
        let memory = form.memory.take();
        let contents = || {
            let written = form.columns.iter().map(|(_, content)| content);
            written.chain(form.tables.iter().flat_map(Table::contents))
        };
        let has = |content| contents().any(|each| *each == content);
        let of_parts = |each: &Content| matches!(each, Content::Part(_) | Content::LongPoll);
        Rows {
            has_body: [has(Content::Request), has(Content::Response)],
            splitters: memory.filter(|_| contents().any(of_parts)).map(Splitters::new),
            form,
            apis: KnownApis::default(),
            capture: None,
            clock: Clock::default(),
            errors: Errors::default(),
            bodies: Default::default(),
            time: String::new(),
            log,
            alive,
        }
    }

    /// See [`Page::leave`](crate::sinks::page::Page::leave).
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
        self.log.as_mut().map_or(Ok(()), |log| log.flush(py))?;
        self.alive.as_mut().map_or(Ok(()), |alive| alive.flush(py))
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
        let all @ PyRow { row, is_fetch } = row.get();
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
                value_json(&row.keys, value, body)?;
            }
        }
        let client_id = exchange.header.raw_client_id(request).map(std::str::from_utf8);
        let mut found = RowFacts {
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
            let (parts, noted) = of_connection.split(form, exchange, all, &decoded)?;
            found.parts = parts.all();
            splitter = Some((of_connection, noted));
        }
        let member = match &self.alive {
            Some(alive) => alive.find(row, &decoded, &found)?,
            None => None,
        };
        let info = exchange.known.info(py).map_err(|_| Odd)?.unbind();
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
        if let (Some(alive), Some(member)) = (&mut self.alive, member) {
            alive.add(info, member, response.end_ns);
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
