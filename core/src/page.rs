//! Exchanges -> their lines, as kdissect/text/table.py or kdissect/tables/lines.py writes them to a file, without
//! Python objects for their contents.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::net::Ipv4Addr;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::connection::{Frame, Header, API_VERSIONS};
use crate::counts::{CountForm, Counts};
use crate::decimal::{push, push_digits};
use crate::line_class::{Line, Topics};
use crate::rows::{RowForm, Rows};
use crate::{guarded, Odd};

pub type Object = Py<PyAny>;

/// Text buffered until Python takes it.
const PAGE_BYTES: usize = 64 * 1024;
const SECOND_NS: i64 = 1_000_000_000;
const CORRELATION_ID_BYTES: usize = 4;
/// The first bytes of an ApiVersions response of any version.
const UNSUPPORTED_VERSION: [u8; 2] = 35i16.to_be_bytes();

/// Where the correlation ID is in requests and responses.
const REQUEST_ID: std::ops::Range<usize> = 4..8;
const RESPONSE_ID: std::ops::Range<usize> = 0..4;
/// Maximum number of cached rejections, and of bytes of a frame in one.
const REJECTIONS: usize = 256;
const REJECTION_BYTES: usize = 1024;

/// Maximum number of client IDs with cached cells.
const CLIENTS: usize = 4096;

/// Built by kdissect/exchanges/offload.py.
#[derive(FromPyObject)]
pub enum Form {
    Lines(LineForm),
    Rows(RowForm),
    Counts(CountForm),
}

/// Text, or a value for a column; for a struct, the values of its fields.
#[derive(FromPyObject)]
pub enum Constant {
    Text(String),
    Number(i64),
    Fields(HashMap<String, Option<Constant>>),
}

/// What all lines need.
#[derive(FromPyObject)]
pub struct Facts {
    /// Function: the object shared by a connection's exchanges and what is known about its client -> the texts they
    /// share.
    shared: Object,
    /// Function: API key and version -> the class for their bodies, the bytes after the correlation ID of a
    /// response, and the texts that such exchanges share. None if they are left to Python.
    api: Object,
    /// Function: error code -> name.
    error: Object,
    /// Function: topic ID, and completion time of an exchange -> topic name, or None.
    topic_name: Object,
    /// Function that learns a topic ID and its name.
    learn_name: Object,
    /// Function: second -> the texts before the decimal point and after the digits.
    around: Object,
    /// Memory limit for the bodies of an exchange.
    pub budget: i64,
    /// Whether exchanges with errors in the response are left to Python.
    leaves_flaws: bool,
}

#[derive(FromPyObject)]
pub struct LineForm {
    facts: Facts,
    /// Digits after the decimal point.
    digits: u32,
    /// Text between columns.
    gap: String,
    /// Width of the latency.
    width: usize,
    /// Function: client ID, empty if there is none -> its cell.
    client: Object,
    /// Function: connection, API key, and the fields it needs from both bodies -> whether they are on the fast path.
    follow: Object,
    /// Function: the unsupported version of an ApiVersions request, and both frames -> the text after the latency.
    rejected: Object,
    /// The text instead of the latency, for unacknowledged and for unanswered requests.
    without: (String, String),
    /// The text after the errors if bytes follow a body.
    followed: String,
    /// The width of both endpoints. None: Python writes them.
    ends: Option<usize>,
}

/// What is known of a connection.
pub trait Known {
    /// The object that its exchanges share.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>>;
    /// Its endpoints, the client's first, if its SYN was captured.
    fn ends(&self) -> Option<&[u8]>;
    /// Software name and version, principal, SASL mechanism.
    fn identity(&self) -> &[Object; 4];
}

impl Constant {
    fn text(constant: &Option<Constant>) -> &str {
        match constant {
            Some(Constant::Text(text)) => text,
            _ => "",
        }
    }
}

/// A request without a response.
pub struct Unanswered<'a> {
    pub known: &'a dyn Known,
    pub header: &'a Header,
    pub request: &'a Frame,
    pub is_expected: bool,
    pub completed_ns: i64,
}

/// An answered exchange.
pub struct Answered<'a> {
    pub known: &'a dyn Known,
    pub interface: &'a Object,
    pub number: u64,
    pub header: &'a Header,
    pub request: &'a Frame,
    pub response: &'a Frame,
}

impl<'a> Answered<'a> {
    pub fn request_body(&self) -> Result<&'a [u8], Odd> {
        self.request.data.get(self.header.body_pos..).ok_or(Odd)
    }

    /// `tags`: the bytes after the correlation ID.
    pub fn response_body(&self, tags: &[u8]) -> Result<&'a [u8], Odd> {
        let rest = self.response.data.get(CORRELATION_ID_BYTES..).ok_or(Odd)?;
        rest.strip_prefix(tags).ok_or(Odd)
    }

    /// Whether the broker does not support this version of ApiVersions, and responds in version 0 (KIP-511).
    fn is_rejected(&self) -> bool {
        let body = self.response.data.get(CORRELATION_ID_BYTES..);
        self.header.api_key == API_VERSIONS && body.is_some_and(|body| body.starts_with(&UNSUPPORTED_VERSION))
    }

    pub fn latency_ns(&self) -> Result<i64, Odd> {
        self.response.start_ns.checked_sub(self.request.end_ns).ok_or(Odd)
    }

    /// `Exchange.total_us`.
    pub fn total_us(&self) -> Option<i64> {
        let latency_us = self.latency_ns().ok()?.div_euclid(1000);
        let [request_us, response_us] = [self.request, self.response].map(Frame::transfer_us);
        let total_us = request_us?.checked_add(latency_us)?.checked_add(response_us?);
        total_us.filter(|_| latency_us >= 0)
    }
}

/// The class for the bodies of an API version, and what else [`Facts`] has about it.
pub type Api<T> = (Py<T>, Py<PyBytes>, Vec<Option<Constant>>);

/// APIs by key and version. There are few, so a tree is faster than a hash table.
pub struct KnownApis<T>(BTreeMap<(i16, i16), Option<Api<T>>>);

impl<T> Default for KnownApis<T> {
    fn default() -> Self {
        KnownApis(BTreeMap::new())
    }
}

impl<T: pyo3::PyClass> KnownApis<T> {
    pub fn get(&mut self, py: Python<'_>, facts: &Facts, header: &Header) -> Result<&Api<T>, Odd> {
        let known = self.0.entry((header.api_key, header.api_version));
        let api = known.or_insert_with_key(|place| facts.api.bind(py).call1(*place).ok()?.extract().ok()?);
        api.as_ref().ok_or(Odd)
    }
}

/// Texts around the digits of the latest second.
#[derive(Default)]
pub struct Clock(Option<(i64, String, String)>);

impl Clock {
    /// Writes a time, with this many digits after the decimal point.
    pub fn write(
        &mut self,
        py: Python<'_>,
        facts: &Facts,
        time_ns: i64,
        places: u32,
        out: &mut String,
    ) -> Result<(), Odd> {
        let (second, rest) = (time_ns.div_euclid(SECOND_NS), time_ns.rem_euclid(SECOND_NS));
        if self.0.as_ref().is_none_or(|known| known.0 != second) {
            let around = facts.around.bind(py).call1((second,)).map_err(|_| Odd)?;
            let (before, after) = around.extract().map_err(|_| Odd)?;
            self.0 = Some((second, before, after));
        }
        let (_, before, after) = self.0.as_ref().ok_or(Odd)?;
        let left_out = 9_u32.checked_sub(places).ok_or(Odd)?;
        out.push_str(before);
        out.push('.');
        push_digits(out, rest.unsigned_abs() / 10_u64.pow(left_out), places as usize);
        out.push_str(after);
        Ok(())
    }
}

/// Names of error codes.
#[derive(Default)]
pub struct Errors(HashMap<i64, String>);

impl Errors {
    pub fn name(&mut self, py: Python<'_>, facts: &Facts, code: i64) -> Result<&str, Odd> {
        if let Entry::Vacant(place) = self.0.entry(code) {
            let name = facts.error.bind(py).call1((code,)).map_err(|_| Odd)?;
            place.insert(name.extract().map_err(|_| Odd)?);
        }
        self.0.get(&code).map(String::as_str).ok_or(Odd)
    }
}

impl Facts {
    /// Whether an exchange with or without errors or an anomaly is on the fast path.
    pub fn check_flaws(&self, has_flaws: bool) -> Result<(), Odd> {
        if self.leaves_flaws && has_flaws {
            return Err(Odd);
        }
        Ok(())
    }

    pub fn topics<'a, 'py>(&'a self, py: Python<'py>, completed_ns: i64) -> Topics<'a, 'py> {
        Topics(
            self.topic_name.bind(py),
            self.learn_name.bind(py),
            Some(completed_ns),
        )
    }
}

/// Lines that Python has not taken yet.
pub struct Page {
    writer: Writer,
    pub text: Vec<u8>,
    rows: usize,
    /// Size of the text with which it is full.
    pub max_bytes: usize,
}

enum Writer {
    Lines(Box<Lines>),
    Rows(Box<Rows>),
    Counts(Box<Counts>),
}

impl Page {
    pub fn new(form: Form) -> Self {
        Page {
            writer: match form {
                Form::Lines(form) => Writer::Lines(Box::new(Lines::new(form))),
                Form::Rows(form) => Writer::Rows(Box::new(Rows::new(form))),
                Form::Counts(form) => Writer::Counts(Box::new(Counts::new(form))),
            },
            text: Vec::new(),
            rows: 0,
            max_bytes: PAGE_BYTES,
        }
    }

    /// Returns the lines since the last call, and their number.
    pub fn take<'py>(&mut self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>, usize)> {
        if let Writer::Rows(rows) = &mut self.writer {
            rows.flush(py)?;
        }
        self.pass_on(py, false)?;
        let text = PyBytes::new(py, &self.text);
        self.text.clear();
        Ok((text, std::mem::take(&mut self.rows)))
    }

    /// Whether it consists of rows or counts, not text.
    pub fn has_rows(&self) -> bool {
        !matches!(self.writer, Writer::Lines(_))
    }

    /// Called when Python takes the next exchange of a connection, or the connection leaves the core.
    pub fn leave(&mut self, info: &Bound<'_, PyAny>) {
        match &mut self.writer {
            Writer::Lines(_) => (),
            Writer::Rows(rows) => rows.leave(info),
            Writer::Counts(counts) => counts.leave(info),
        }
    }

    /// Passes on the counts: of connections that left the core, or of all.
    pub fn pass_on(&mut self, py: Python<'_>, is_last: bool) -> PyResult<()> {
        match &mut self.writer {
            Writer::Lines(_) => Ok(()),
            Writer::Rows(rows) => rows.give_back(py),
            Writer::Counts(counts) => counts.pass_on(py, is_last),
        }
    }

    pub fn is_full(&self, py: Python<'_>) -> bool {
        match &self.writer {
            Writer::Rows(rows) if rows.is_full(py) => true,
            Writer::Counts(counts) => counts.must_pass_on(),
            _ => self.text.len() >= self.max_bytes,
        }
    }

    /// The texts that the exchanges of a connection share.
    pub fn shared(&self, py: Python<'_>, known: &dyn Known) -> PyResult<Vec<Option<Constant>>> {
        let facts = match &self.writer {
            Writer::Lines(lines) => {
                if let Some(cells) = lines.ends(known) {
                    return Ok(vec![Some(Constant::Text(cells))]);
                }
                &lines.form.facts
            }
            Writer::Rows(rows) => rows.facts(),
            Writer::Counts(_) => return Ok(Vec::new()),
        };
        let arguments = (known.info(py)?, known.identity().each_ref());
        facts.shared.bind(py).call1(arguments)?.extract()
    }

    /// Adds the line of an exchange. If anything is odd, it has no effect.
    pub fn add(
        &mut self,
        py: Python<'_>,
        exchange: &Answered<'_>,
        shared: &[Option<Constant>],
    ) -> Result<(), Odd> {
        self.write(|writer, text| match writer {
            Writer::Lines(lines) => lines.write(py, exchange, shared, text),
            Writer::Rows(rows) => rows.write(py, exchange, shared, text),
            Writer::Counts(counts) => counts.add(py, exchange),
        })
    }

    /// As `add`, for a request without a response.
    pub fn add_unanswered(
        &mut self,
        py: Python<'_>,
        exchange: &Unanswered<'_>,
        shared: &[Option<Constant>],
    ) -> Result<(), Odd> {
        self.write(|writer, text| match writer {
            Writer::Lines(lines) => lines.write_unanswered(py, exchange, shared, text),
            Writer::Rows(_) | Writer::Counts(_) => Err(Odd),
        })
    }

    fn write(&mut self, write: impl FnOnce(&mut Writer, &mut Vec<u8>) -> Result<(), Odd>) -> Result<(), Odd> {
        let start = self.text.len();
        let (writer, text) = (&mut self.writer, &mut self.text);
        let written = guarded(|| write(writer, text));
        match written {
            Ok(()) => self.rows += 1,
            Err(Odd) => self.text.truncate(start),
        }
        written
    }
}

/// Writes lines of text.
struct Lines {
    form: LineForm,
    apis: KnownApis<Line>,
    clients: BTreeMap<Box<[u8]>, String>,
    clock: Clock,
    errors: Errors,
    rejections: Rejections,
    line: String,
}

impl Lines {
    fn new(form: LineForm) -> Self {
        Lines {
            form,
            apis: KnownApis::default(),
            clients: BTreeMap::new(),
            clock: Clock::default(),
            errors: Errors::default(),
            rejections: Rejections::default(),
            line: String::new(),
        }
    }

    /// The cells of both endpoints, if they are IPv4 addresses, as most are.
    fn ends(&self, known: &dyn Known) -> Option<String> {
        let width = self.form.ends?;
        let &[a, b, c, d, e, f, g, h, client, by, broker, at] = known.ends()? else {
            return None;
        };
        let end = |ip: [u8; 4], port: [u8; 2]| format!("{}:{}", Ipv4Addr::from(ip), u16::from_be_bytes(port));
        let (client, broker) = (end([a, b, c, d], [client, by]), end([e, f, g, h], [broker, at]));
        Some(format!("{client:width$}{}{broker:width$}", self.form.gap))
    }

    /// Begins a line: all cells before the latency.
    fn begin(
        &mut self,
        py: Python<'_>,
        header: &Header,
        request: &Frame,
        shared: &[Option<Constant>],
    ) -> Result<(), Odd> {
        let LineForm {
            facts,
            digits,
            gap,
            client,
            ..
        } = &self.form;
        let (_, _, api) = self.apis.get(py, facts, header)?;

        let client_id = header.raw_client_id(request);
        let client_id = client_id.unwrap_or_default(); // a missing one is shown like an empty one
        let client = match self.clients.get(client_id) {
            Some(cell) => cell,
            None => {
                if self.clients.len() >= CLIENTS {
                    self.clients.clear();
                }
                let text = String::from_utf8_lossy(client_id); // already checked to be UTF-8
                let cell = client.bind(py).call1((text,)).map_err(|_| Odd)?;
                let cell = cell.extract().map_err(|_| Odd)?;
                self.clients.entry(client_id.into()).or_insert(cell)
            }
        };

        let text = &mut self.line;
        text.clear();
        self.clock.write(py, facts, request.end_ns, *digits, text)?;
        let mut add = |cell: &str| {
            text.push_str(gap);
            text.push_str(cell);
        };
        shared.iter().for_each(|cell| add(Constant::text(cell)));
        add(client);
        api.iter().for_each(|cell| add(Constant::text(cell)));
        text.push_str(gap);
        Ok(())
    }

    /// Pads the cell that began at this position: the latency, or the text instead of it.
    fn end_cell(&mut self, cell: usize) {
        let text = &mut self.line;
        while text.len() < cell + self.form.width {
            text.push(' ');
        }
        text.push_str(&self.form.gap);
    }

    fn write_unanswered(
        &mut self,
        py: Python<'_>,
        exchange: &Unanswered<'_>,
        shared: &[Option<Constant>],
        out: &mut Vec<u8>,
    ) -> Result<(), Odd> {
        let &Unanswered {
            known,
            header,
            request,
            is_expected,
            completed_ns,
        } = exchange;
        self.form.facts.check_flaws(true)?; // they count as flaws too
        self.begin(py, header, request, shared)?;
        let cell = self.line.len();
        let (unacknowledged, unanswered) = &self.form.without;
        self.line
            .push_str(if is_expected { unacknowledged } else { unanswered });
        self.end_cell(cell);
        let LineForm { facts, follow, .. } = &self.form;
        let (line, ..) = self.apis.get(py, facts, header)?;
        let follow = |of_request, of_response| {
            let arguments = (known.info(py)?, header.api_key, of_request, of_response);
            follow.bind(py).call1(arguments)
        };
        let body = request.data.get(header.body_pos..).ok_or(Odd)?;
        let topics = &facts.topics(py, completed_ns);
        let text = &mut self.line;
        match line
            .get()
            .write(follow, (body, None), facts.budget, topics, text)?
        {
            (_, false) => finish_line(text, out),
            _ => return Err(Odd),
        }
        Ok(())
    }

    fn write(
        &mut self,
        py: Python<'_>,
        exchange: &Answered<'_>,
        shared: &[Option<Constant>],
        out: &mut Vec<u8>,
    ) -> Result<(), Odd> {
        self.begin(py, exchange.header, exchange.request, shared)?;
        let cell = self.line.len();
        duration(exchange.latency_ns()?, &mut self.line);
        self.end_cell(cell);
        let LineForm {
            facts,
            gap,
            follow,
            rejected,
            followed,
            ..
        } = &self.form;
        let (line, tags, _) = self.apis.get(py, facts, exchange.header)?;
        let text = &mut self.line;
        let about = text.len();
        if exchange.is_rejected() {
            facts.check_flaws(true)?;
            text.push_str(self.rejections.text(py, rejected, exchange)?);
            finish_line(text, out);
            return Ok(());
        }
        let follow = |of_request, of_response| {
            let api_key = exchange.header.api_key;
            let arguments = (exchange.known.info(py)?, api_key, of_request, of_response);
            follow.bind(py).call1(arguments)
        };
        let response = exchange.response_body(tags.as_bytes(py))?;
        let (errors, is_followed) = line.get().write(
            follow,
            (exchange.request_body()?, Some(response)),
            facts.budget,
            &facts.topics(py, exchange.response.end_ns),
            text,
        )?;
        facts.check_flaws(!errors.is_empty() || is_followed)?;
        let mut word = |word: &str| {
            if text.len() > about {
                text.push_str(gap);
            }
            text.push_str(word);
        };
        for code in errors {
            word(self.errors.name(py, facts, code)?);
        }
        if is_followed {
            word(followed);
        }
        finish_line(text, out);
        Ok(())
    }
}

fn finish_line(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(text.trim_end().as_bytes());
    out.push(b'\n');
}

/// Texts for unsupported ApiVersions requests, by version and by frames without their correlation IDs.
#[derive(Default)]
struct Rejections(HashMap<Rejection, String>);

type Rejection = (i16, Box<[u8]>, Box<[u8]>);

impl Rejections {
    fn text(&mut self, py: Python<'_>, rejected: &Object, exchange: &Answered<'_>) -> Result<&str, Odd> {
        let (request, response) = (&exchange.request.data, &exchange.response.data);
        if request.len().max(response.len()) > REJECTION_BYTES {
            return Err(Odd);
        }
        if self.0.len() >= REJECTIONS {
            self.0.clear();
        }
        let version = exchange.header.api_version;
        let rest = |frame: &[u8], id: std::ops::Range<usize>| [&frame[..id.start], &frame[id.end..]].concat();
        let key = (
            version,
            rest(request, REQUEST_ID).into(),
            rest(response, RESPONSE_ID).into(),
        );
        Ok(match self.0.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let frames = (version, PyBytes::new(py, request), PyBytes::new(py, response));
                let text = rejected.bind(py).call1(frames).map_err(|_| Odd)?;
                place.insert(text.extract().map_err(|_| Odd)?)
            }
        })
    }
}

/// A latency with three or four digits, as in phrases.py.
fn duration(ns: i64, out: &mut String) {
    let us = ns.div_euclid(1000);
    _ = match us.unsigned_abs() {
        0..1000 => {
            push(out, us);
            out.push_str("us");
            Ok(())
        }
        1000..10_000 => write!(out, "{:.2}ms", us as f64 / 1e3),
        10_000..1_000_000 => write!(out, "{:.1}ms", us as f64 / 1e3),
        _ => write!(out, "{:.2}s", us as f64 / 1e6),
    };
}
