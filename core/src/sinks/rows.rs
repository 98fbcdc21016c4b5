//! Exchanges -> JSON lines or CSV, as kdissect/tables/lines.py writes them to a file, or rows of columns, as
//! kdissect/tables/arrow.py makes them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::exchanges::content::Row;
use crate::exchanges::guarded::ProtocolNames;
use crate::exchanges::touched::Touched;
use crate::exchanges::values::FieldPath;
use crate::sinks::cells::{Cell, Content, RowFacts};
use crate::sinks::clock::Clock;
use crate::sinks::connection_log::Log;
use crate::sinks::facts::{
    Answered, Captures, CommonPlan, Constant, Constants, Errors, Handle, Known, KnownApis, Learn,
};
use crate::sinks::handed::{CarriedBatches, Handed};
use crate::sinks::record_lines::value_json;
use crate::sinks::records::RecordTable;
use crate::sinks::rejections::Rejections;
use crate::sinks::sink::Sink;
use crate::sinks::splitters::{MemoryPlan, Splitters};
use crate::sinks::table_rows::Table;
use crate::sinks::whole::Whole;
use crate::Odd;

const FETCH: i16 = 1;
const FETCH_SNAPSHOT: i16 = 59;
const SIZE_BYTES: usize = 4;
/// Digits of times.
const DIGITS: u32 = 6;

/// `RowPlan` of kdissect/sinks/plan.py. The functions ask Python.
#[allow(clippy::type_complexity)] // of functions
pub struct RowPlan {
    pub common: CommonPlan<Arc<Row>>,
    /// The text before each column, and its content.
    pub columns: Vec<(String, Content)>,
    /// Fields of bodies among them: whether in the request, and names from the outermost in.
    pub fields: Vec<(bool, Vec<String>)>,
    /// The text after a row.
    pub end: String,
    pub format: RowFormat,
    /// Where rows go instead.
    pub tables: Vec<Table>,
    /// Where records go.
    pub records: Option<RecordTable>,
    /// Where exchanges are counted.
    pub log: Option<Log>,
    /// Where is noted what tables need that are made at the end.
    pub whole: Option<Whole>,
    pub learn: Box<Learn>,
    /// From a connection, an API key, and what bodies say, to the name of the protocol of a group of consumers.
    pub follow: Box<dyn Fn(&Handle, i16, ProtocolNames<'_>) -> Result<String, Odd> + Send + Sync>,
    /// Whether the values of a config with this name are credentials.
    pub is_secret: Box<dyn Fn(&str) -> Result<bool, Odd> + Send + Sync>,
    /// Responses as JSON.
    pub rejections: Rejections,
    pub captures: Captures,
    /// Which errors are expected, given what the connection shares, API key, time of the response and all names.
    pub expected: Box<dyn Fn(&Handle, i16, i64, &[String]) -> Result<Vec<String>, Odd> + Send + Sync>,
    /// What connections remember, to split latencies.
    pub memory: Option<MemoryPlan>,
}

/// How values are written.
#[derive(Clone, Copy, PartialEq)]
pub enum RowFormat {
    Json,
    Csv,
    Fields,
}

impl RowFormat {
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "json" => RowFormat::Json,
            "csv" => RowFormat::Csv,
            "fields" => RowFormat::Fields,
            _ => return None,
        })
    }

    fn cell(self, out: &mut Vec<u8>) -> Cell<'_> {
        match self {
            RowFormat::Json => Cell::Json(out),
            RowFormat::Csv => Cell::Csv(out),
            RowFormat::Fields => Cell::Fields(out),
        }
    }
}

/// Writes rows.
pub struct Rows {
    plan: RowPlan,
    apis: KnownApis<Arc<Row>>,
    /// Where the fields are, by API key and version.
    fields: BTreeMap<(i16, i16), Vec<FieldPath>>,
    clock: Clock,
    errors: Errors,
    /// Both bodies of the current exchange as JSON.
    bodies: [Vec<u8>; 2],
    /// Which bodies to write.
    has_body: [bool; 2],
    /// Whether anything of bodies is written that is shown only under a condition.
    shows_values: bool,
    /// None: no latency is split.
    splitters: Option<Splitters>,
}

impl Rows {
    pub fn new(mut plan: RowPlan) -> Self {
        let memory = plan.memory.take();
        let contents = || {
            let written = plan.columns.iter().map(|(_, content)| content);
            written.chain(plan.tables.iter().flat_map(Table::contents))
        };
        let has = |content| contents().any(|each| *each == content);
        let of_parts = |each: &Content| matches!(each, Content::Part(_) | Content::Think | Content::LongPoll);
        let has_body = [has(Content::Request), has(Content::Response)];
        Rows {
            has_body,
            shows_values: has_body.contains(&true) || !plan.fields.is_empty(),
            splitters: memory.filter(|_| contents().any(of_parts)).map(Splitters::new),
            plan,
            apis: KnownApis::default(),
            fields: BTreeMap::new(),
            clock: Clock::of_moments(DIGITS),
            errors: Errors::default(),
            bodies: Default::default(),
        }
    }
}

impl Sink for Rows {
    fn feed(
        &mut self,
        exchange: &Answered<'_>,
        shared: &[Option<Constant>],
        out: &mut Vec<u8>,
    ) -> Result<(), Odd> {
        let plan = &mut self.plan;
        let common = &plan.common;
        let (row, tags, of_api) = self.apis.get(common, exchange.header)?;
        let (request, response) = (exchange.request, exchange.response);
        let mut decoded = exchange.decoded(&row.bodies, tags, common.budget)?;
        let throttle_time_ms = row.throttle_time_ms(&decoded);
        decoded.check()?;
        common.check_flaws(!decoded.errors.is_empty())?;
        exchange.check_errors(!decoded.errors.is_empty())?;
        let api_key = exchange.header.api_key;
        if let Some(protocols) = &row.protocols {
            let protocol = (plan.follow)(exchange.known.info()?, api_key, protocols.mentioned(&decoded))?;
            protocols.open(&mut decoded, &protocol, common.budget)?;
        }
        if let Some(configs) = row.configs.as_ref().filter(|_| self.shows_values) {
            configs.check(&decoded, &plan.is_secret)?;
        }
        let replica_id = row
            .replica_id(&decoded)
            .filter(|_| [FETCH, FETCH_SNAPSHOT].contains(&api_key));
        let is_replica = api_key == FETCH && replica_id.is_some();
        let topics = &common.topics(response.end_ns);
        let mut errors = Vec::new();
        for code in &decoded.errors {
            errors.push(self.errors.name(common, *code)?.to_owned());
        }
        let capture = plan.captures.of(exchange.interface)?;
        let clock = RefCell::new(&mut self.clock);
        let time_text = |time_ns| {
            let mut text = String::new();
            let mut clock = clock.try_borrow_mut().map_err(|_| Odd)?;
            clock.write(common, time_ns, &mut text)?;
            Ok(text)
        };
        let values = [&decoded.request, &decoded.response];
        for ((body, value), is_written) in self.bodies.iter_mut().zip(values).zip(self.has_body) {
            body.clear();
            if is_written && exchange.is_selected {
                value_json(&row.keys, value, body)?;
            }
        }
        if exchange.is_rejected() {
            let json = plan.rejections.text(exchange)?; // odd if there is an anomaly
            let [_, response] = &mut self.bodies;
            if !response.is_empty() {
                response.clear();
                response.extend_from_slice(json.as_bytes());
            }
        }
        let renewed;
        let mut shared = shared;
        let cluster = row.cluster(api_key, &decoded);
        if let Some(whole) = &plan.whole {
            whole.check_cluster(exchange.known.info()?, cluster)?;
        }
        if let Some(cluster) = cluster {
            if (plan.learn)(exchange.known.info()?, cluster)? {
                exchange.known.renew();
                renewed = (common.shared)(exchange.known)?;
                shared = &renewed;
            }
        }
        let client_id = exchange.header.raw_client_id(request).map(std::str::from_utf8);
        let mut found = RowFacts {
            time_text: &time_text,
            latency_us: exchange.latency_ns()?.div_euclid(1000),
            reader: row.counted.reader(&decoded.request, is_replica)?,
            replica_id,
            topics: row.topics(&decoded, topics)?,
            group_id: row.group.find(&decoded.request)?,
            transactional_id: row.transaction.find(&decoded.request)?,
            errors,
            throttle_time_ms,
            records: row.records(&decoded)?,
            bodies: self.bodies.each_ref().map(Vec::as_slice),
            ..RowFacts::of(
                exchange,
                row,
                shared,
                of_api,
                &capture,
                client_id.transpose().map_err(|_| Odd)?,
            )
        };
        let partitions = match &row.partitions {
            Some(plans) if plan.tables.iter().any(Table::has_partitions) => {
                Touched::of(plans, &decoded, topics)?
            }
            _ => Vec::new(),
        };
        row.bodies.learn(&decoded, topics)?;
        if !found.errors.is_empty() {
            let info = exchange.known.info()?;
            found.expected_errors = (plan.expected)(info, api_key, response.end_ns, &found.errors)?;
        }
        let mut splitter = None;
        if let Some(splitters) = &mut self.splitters {
            let (of_connection, plan) = splitters.get(exchange.known.info()?)?;
            let (parts, noted) = of_connection.split(plan, exchange, row, &decoded)?;
            (found.parts, found.think_us) = (parts.all(), parts.think_us);
            splitter = Some((of_connection, noted));
        }
        let facts = plan
            .whole
            .as_ref()
            .map(|whole| whole.find(exchange, row, &decoded, &found, cluster))
            .transpose()?
            .unwrap_or_default();
        let events = facts.events.as_ref().map_or(&[][..], |events| &events.rows);
        let info = exchange.known.info()?;
        let tables = match exchange.is_selected {
            true => &plan.tables[..],
            false => &[],
        };
        let mut carried = match &plan.records {
            Some(_) => Some(CarriedBatches::of(exchange, row, &decoded, 0)?),
            None => None,
        };
        let marks: Vec<_> = plan.tables.iter().map(|table| table.mark()).collect();
        let mut error_name = |code| Ok(self.errors.name(common, code)?.to_owned());
        let mut added = tables
            .iter()
            .try_for_each(|table| table.add(row, &decoded, &found, &partitions, events, &mut error_name));
        if let (Some(records), Some(carried), Ok(())) = (&mut plan.records, &mut carried, added) {
            added = records.add(&found, (row, &decoded), carried);
        }
        if let Err(odd) = added {
            let marked = tables.iter().zip(&marks);
            marked.for_each(|(table, mark)| table.restore(*mark));
            return Err(odd);
        }
        if exchange.is_selected {
            let start = out.len();
            let place = (api_key, exchange.header.api_version);
            let fields = self.fields.entry(place).or_insert_with(|| {
                let fields = plan.fields.iter();
                let paths = fields.map(|(of_request, names)| FieldPath::of(*of_request, names, &row.keys));
                paths.collect()
            });
            for (before, content) in &plan.columns {
                out.extend_from_slice(before.as_bytes());
                let cell = &mut plan.format.cell(out);
                match content {
                    Content::Field(which) => {
                        let path = fields.get(*which).ok_or(Odd)?;
                        cell.field(&path.values(&decoded)?, &row.keys)?;
                    }
                    content => found.write(*content, cell)?,
                }
            }
            if plan.format == RowFormat::Csv && plan.columns.len() == 1 && out.len() == start {
                out.extend_from_slice(b"\"\""); // so that it is no empty line
            }
            out.extend_from_slice(plan.end.as_bytes());
        }
        // From here on nothing may be odd.
        if let Some((splitter, noted)) = splitter {
            splitter.note(&noted);
        }
        for table in tables {
            table.add_exchange(&found)?;
        }
        if let (Some(records), Some(mut carried)) = (&mut plan.records, carried) {
            for (table, (before, held)) in plan.tables.iter().zip(&marks) {
                let (rows, more) = table.mark();
                carried.rows.push(rows - before);
                carried.rows_bytes += more - held;
            }
            records.note(carried);
        }
        if let Some(whole) = &mut plan.whole {
            whole.note(exchange, info, facts);
        }
        if let Some(log) = &mut plan.log {
            let bytes = [request, response].map(|frame| (SIZE_BYTES + frame.data.len()) as u64);
            log.add(exchange, found.client_id, bytes)?;
        }
        Ok(())
    }

    fn shared(&self, known: &dyn Known) -> Result<Constants, Odd> {
        (self.plan.common.shared)(known)
    }

    fn is_full(&self) -> bool {
        let must_give_back = self.splitters.as_ref().is_some_and(Splitters::must_give_back);
        let has_many = self.plan.records.as_ref().is_some_and(RecordTable::must_pass_on);
        let is_held = self.plan.whole.as_ref().is_some_and(Whole::is_full);
        must_give_back || has_many || is_held || self.plan.tables.iter().any(|table| table.is_full())
    }

    fn flush(&mut self, to: &mut Vec<Handed>) {
        if let Some(log) = &mut self.plan.log {
            to.extend(log.flush().into_iter().map(Handed::Connection));
        }
        if let Some(whole) = &mut self.plan.whole {
            let (brokers, events, alive) = whole.flush();
            to.extend(brokers.into_iter().map(Handed::Brokers));
            to.extend(events.into_iter().map(Handed::Events));
            to.extend(alive.into_iter().map(Handed::Alive));
        }
        if let Some(records) = &mut self.plan.records {
            to.extend(records.flush());
        }
    }

    fn leave(&mut self, info: &Handle) {
        if let Some(splitters) = &mut self.splitters {
            splitters.leave(info);
        }
    }

    fn settle(&mut self, _is_last: bool, to: &mut Vec<Handed>) {
        if let Some(splitters) = &mut self.splitters {
            to.extend(splitters.give_back().map(Handed::Memory));
        }
    }
}
