//! Exchanges -> JSON lines or CSV, as kdissect/tables/lines.py writes them to a file, or rows of columns, as
//! kdissect/tables/arrow.py makes them.

use pyo3::prelude::*;

use crate::exchanges::touched::Touched;
use crate::python::row::PyRow;
use crate::sinks::cells::{Cell, Content, RowFacts};
use crate::sinks::connection_log::{ConnectionPlan, Log};
use crate::sinks::facts::{Answered, Clock, CommonPlan, Constant, Errors, Known, KnownApis, Object};
use crate::sinks::record_lines::value_json;
use crate::sinks::sink::Sink;
use crate::sinks::splitters::{MemoryPlan, Splitters};
use crate::sinks::table_rows::{of_exchange, AliveMembers, AlivePlan, Table};
use crate::Odd;

const SIZE_BYTES: usize = 4;
/// Digits of times.
const DIGITS: u32 = 6;

#[derive(FromPyObject)]
pub struct RowPlan {
    common: CommonPlan,
    /// The text before each column, and its content.
    columns: Vec<(String, Content)>,
    /// The text after a row.
    end: String,
    is_csv: bool,
    /// Where rows go instead.
    tables: Vec<Table>,
    /// Where exchanges are counted.
    log: Option<ConnectionPlan>,
    /// Where members of groups are noted that are alive.
    alive: Option<AlivePlan>,
    /// Function: interface of a packet -> name of its capture.
    capture: Object,
    /// Function: connection, API key, time of a response, names of errors -> those that are expected.
    expected: Object,
    /// What connections remember, to split latencies.
    memory: Option<MemoryPlan>,
}

impl<'py> FromPyObject<'_, 'py> for Content {
    type Error = PyErr;

    fn extract(content: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        of_exchange(&content.extract()?)
    }
}

/// Writes rows.
pub struct Rows {
    plan: RowPlan,
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
    pub fn new(mut plan: RowPlan) -> Self {
        let log = plan.log.take().map(Log::new);
        let alive = plan.alive.take().map(AliveMembers::new);
        let memory = plan.memory.take();
        let contents = || {
            let written = plan.columns.iter().map(|(_, content)| content);
            written.chain(plan.tables.iter().flat_map(Table::contents))
        };
        let has = |content| contents().any(|each| *each == content);
        let of_parts = |each: &Content| matches!(each, Content::Part(_) | Content::LongPoll);
        Rows {
            has_body: [has(Content::Request), has(Content::Response)],
            splitters: memory.filter(|_| contents().any(of_parts)).map(Splitters::new),
            plan,
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
}

impl Sink for Rows {
    fn feed(
        &mut self,
        py: Python<'_>,
        exchange: &Answered<'_>,
        shared: &[Option<Constant>],
        out: &mut Vec<u8>,
    ) -> Result<(), Odd> {
        let plan = &self.plan;
        let common = &plan.common;
        let (row, tags, of_api) = self.apis.get(py, common, exchange.header)?;
        let all @ PyRow { row, is_fetch } = row.get();
        let (request, response) = (exchange.request, exchange.response);
        let decoded = row.bodies.decoded(
            exchange.request_body()?,
            Some(exchange.response_body(tags.as_bytes(py))?),
            common.budget,
        )?;
        let throttle_time_ms = row.throttle_time_ms(&decoded);
        if decoded.has_unknown || decoded.is_followed || throttle_time_ms.is_some_and(|number| number != 0) {
            return Err(Odd);
        }
        common.check_flaws(!decoded.errors.is_empty())?;
        if !plan.tables.is_empty() && *is_fetch && row.is_replication(&decoded) {
            return Err(Odd);
        }
        let topics = &common.topics(py, response.end_ns);
        let mut errors = Vec::new();
        for code in &decoded.errors {
            errors.push(self.errors.name(py, common, *code)?.to_owned());
        }
        if self
            .capture
            .as_ref()
            .is_none_or(|known| !known.0.is(exchange.interface))
        {
            let cell = plan
                .capture
                .bind(py)
                .call1((exchange.interface,))
                .map_err(|_| Odd)?;
            let cell = cell.extract().map_err(|_| Odd)?;
            self.capture = Some((exchange.interface.clone_ref(py), cell));
        }
        let (_, capture) = self.capture.as_ref().ok_or(Odd)?;
        self.time.clear();
        if plan.tables.is_empty() {
            self.clock
                .write(py, common, request.end_ns, DIGITS, &mut self.time)?;
        }
        let values = [&decoded.request, &decoded.response];
        for ((body, value), is_written) in self.bodies.iter_mut().zip(values).zip(self.has_body) {
            body.clear();
            if is_written && exchange.is_selected {
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
            Some(plans) if plan.tables.iter().any(Table::has_partitions) => {
                Touched::of(plans, &decoded, topics)?
            }
            _ => Vec::new(),
        };
        row.bodies.learn(&decoded, topics)?;
        let api_key = exchange.header.api_key;
        if !found.errors.is_empty() {
            let info = exchange.known.info(py).map_err(|_| Odd)?;
            let arguments = (info, api_key, response.end_ns, &found.errors);
            let names = plan.expected.bind(py).call1(arguments).map_err(|_| Odd)?;
            found.expected_errors = names.extract().map_err(|_| Odd)?;
        }
        let mut splitter = None;
        if let Some(splitters) = &mut self.splitters {
            let info = exchange.known.info(py).map_err(|_| Odd)?;
            let (of_connection, plan) = splitters.get(py, &info)?;
            let (parts, noted) = of_connection.split(plan, exchange, all, &decoded)?;
            found.parts = parts.all();
            splitter = Some((of_connection, noted));
        }
        let member = match &self.alive {
            Some(alive) => alive.find(row, &decoded, &found)?,
            None => None,
        };
        let info = exchange.known.info(py).map_err(|_| Odd)?.unbind();
        let marks: Vec<_> = plan.tables.iter().map(|table| table.mark(py)).collect();
        let mut error_name = |code| Ok(self.errors.name(py, common, code)?.to_owned());
        for table in &plan.tables {
            if let Err(odd) = table.add(py, row, &decoded, &found, &partitions, &mut error_name) {
                let tables = plan.tables.iter().zip(&marks);
                tables.for_each(|(table, mark)| table.restore(py, *mark));
                return Err(odd);
            }
        }
        // From here on nothing may be odd.
        if let Some((splitter, noted)) = splitter {
            splitter.note(all, &noted, response.end_ns);
        }
        for table in &plan.tables {
            table.add_exchange(py, &found)?;
        }
        if let (Some(alive), Some(member)) = (&mut self.alive, member) {
            alive.add(info, member, response.end_ns);
        }
        if let Some(log) = &mut self.log {
            let bytes = [request, response].map(|frame| (SIZE_BYTES + frame.data.len()) as u64);
            log.add(py, exchange, found.client_id, bytes)?;
        }
        if !exchange.is_selected {
            return Ok(());
        }
        for (before, content) in &plan.columns {
            out.extend_from_slice(before.as_bytes());
            let mut cell = if plan.is_csv {
                Cell::Csv(out)
            } else {
                Cell::Json(out)
            };
            found.write(*content, &mut cell)?;
        }
        out.extend_from_slice(plan.end.as_bytes());
        Ok(())
    }

    fn shared(&self, py: Python<'_>, known: &dyn Known) -> PyResult<Vec<Option<Constant>>> {
        self.plan.common.shared(py, known)
    }

    fn is_full(&self, py: Python<'_>) -> bool {
        let must_give_back = self.splitters.as_ref().is_some_and(Splitters::must_give_back);
        must_give_back || self.plan.tables.iter().any(|table| table.is_full(py))
    }

    fn flush(&mut self, py: Python<'_>) -> PyResult<()> {
        self.log.as_mut().map_or(Ok(()), |log| log.flush(py))?;
        self.alive.as_mut().map_or(Ok(()), |alive| alive.flush(py))
    }

    fn leave(&mut self, info: &Bound<'_, PyAny>) {
        if let Some(splitters) = &mut self.splitters {
            splitters.leave(info);
        }
    }

    fn settle(&mut self, py: Python<'_>, _is_last: bool) -> PyResult<()> {
        let splitters = self.splitters.as_mut();
        splitters.map_or(Ok(()), |splitters| splitters.give_back(py))
    }
}
