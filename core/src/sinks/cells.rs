//! What is known of an exchange -> values for the columns of its row: text of JSON or CSV, or values that are
//! appended to columns.

use std::borrow::Cow;

use crate::exchanges::content::Row;
use crate::exchanges::usage::Fetcher;
use crate::exchanges::values::Found;
use crate::kafka::tree::Value;
use crate::sinks::columns::Column;
use crate::sinks::decimal::put;
use crate::sinks::facts::{Answered, Constant};
use crate::sinks::record_lines::{base64, json_text, listed, value_json};
use crate::Odd;

const SIZE_BYTES: usize = 4;
const DAY_NS: i64 = 86_400_000_000_000;
pub const DATE_BYTES: usize = "2026-11-21".len();
const ANSWERED: &str = "answered";

/// The content of a column; most have its name.
#[derive(Clone, Copy, PartialEq)]
pub enum Content {
    Shared(usize),
    OfApi(usize),
    /// The same, unless a broker fetches.
    WaitKind(usize),
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
    Think,
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
    /// One of `RowPlan::fields`.
    Field(usize),
}

impl Content {
    /// `which`: if there are several. None: there is no such content.
    pub fn named(name: &str, which: usize) -> Option<Self> {
        Some(match name {
            "shared" => Content::Shared(which),
            "of_api" => Content::OfApi(which),
            "wait_kind" => Content::WaitKind(which),
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
            "think_us" => Content::Think,
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
            "field" => Content::Field(which),
            _ => return None,
        })
    }
}

/// What is known of an exchange.
pub struct RowFacts<'a> {
    pub exchange: &'a Answered<'a>,
    pub shared: &'a [Option<Constant>],
    pub of_api: &'a [Option<Constant>],
    pub capture: &'a str,
    /// Text for a time.
    pub time_text: &'a dyn Fn(i64) -> Result<String, Odd>,
    pub latency_us: i64,
    pub parts: [Option<i64>; 5],
    pub think_us: Option<i64>,
    pub is_fetch: bool,
    pub reader: Fetcher,
    /// Of the broker that fetches.
    pub replica_id: Option<i64>,
    pub client_id: Option<&'a str>,
    pub topics: Vec<Cow<'a, str>>,
    pub group_id: Option<&'a str>,
    pub transactional_id: Option<&'a str>,
    pub errors: Vec<String>,
    pub expected_errors: Vec<String>,
    pub throttle_time_ms: Option<i64>,
    pub records: Option<(Option<u64>, usize)>,
    pub bodies: [&'a [u8]; 2],
}

impl<'a> RowFacts<'a> {
    /// What is known before its bodies are read.
    pub fn of(
        exchange: &'a Answered<'a>,
        row: &Row,
        shared: &'a [Option<Constant>],
        of_api: &'a [Option<Constant>],
        capture: &'a str,
        client_id: Option<&'a str>,
    ) -> Self {
        RowFacts {
            exchange,
            shared,
            of_api,
            capture,
            time_text: &|_| Err(Odd),
            latency_us: 0,
            parts: [None; 5],
            think_us: None,
            is_fetch: row.is_fetch,
            reader: Fetcher::Consumer,
            replica_id: None,
            client_id,
            topics: Vec::new(),
            group_id: None,
            transactional_id: None,
            errors: Vec::new(),
            expected_errors: Vec::new(),
            throttle_time_ms: None,
            records: None,
            bodies: [b"", b""],
        }
    }

    pub fn write(&self, content: Content, cell: &mut Cell<'_>) -> Result<(), Odd> {
        let (exchange, bytes) = (self.exchange, |size: usize| i64::try_from(size).ok());
        let Answered {
            request, response, ..
        } = exchange;
        match content {
            Content::Shared(which) => cell.constant(self.shared.get(which).ok_or(Odd)?),
            Content::WaitKind(_) if self.reader != Fetcher::Consumer => cell.text(Some(self.reader.kind())),
            Content::OfApi(which) | Content::WaitKind(which) => {
                cell.constant(self.of_api.get(which).ok_or(Odd)?)
            }
            Content::Null => cell.text(None),
            Content::Answered => cell.text(Some(ANSWERED)),
            Content::NoAnomalies => cell.texts(&[""; 0]),
            Content::Capture => cell.text(Some(self.capture)),
            Content::Number => cell.number(i64::try_from(exchange.number).ok()),
            Content::Packet => cell.number(i64::try_from(request.packet).ok()),
            Content::Date => self.date(request.end_ns, cell),
            Content::Time => self.time(request.end_ns, cell),
            Content::TimeNs => cell.number(Some(request.end_ns)),
            Content::Latency => cell.number(Some(self.latency_us)),
            Content::RequestTransfer => cell.number(request.transfer_us()),
            Content::ResponseTransfer => cell.number(response.transfer_us()),
            Content::Total => cell.number(exchange.total_us()),
            Content::Part(which) => cell.number(*self.parts.get(which).ok_or(Odd)?),
            Content::Think => cell.number(self.think_us),
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
            Content::Records => cell.number(self.records.and_then(|records| records.0?.try_into().ok())),
            Content::RecordsBytes => cell.number(self.records.and_then(|records| bytes(records.1))),
            Content::Request => cell.json(self.bodies[0]),
            Content::Response => cell.json(self.bodies[1]),
            Content::Field(_) => Err(Odd), // it is not among these facts
        }
    }

    pub fn time(&self, time_ns: i64, cell: &mut Cell<'_>) -> Result<(), Odd> {
        match cell {
            Cell::Column(..) => cell.number(Some(time_ns.div_euclid(1000))),
            _ => cell.text(Some(&(self.time_text)(time_ns)?)),
        }
    }

    /// The day of a time; 64 bits hold none before 1677 or after 2262.
    pub fn date(&self, time_ns: i64, cell: &mut Cell<'_>) -> Result<(), Odd> {
        match cell {
            Cell::Column(..) => cell.number(Some(time_ns.div_euclid(DAY_NS))),
            _ => cell.text(Some((self.time_text)(time_ns)?.get(..DATE_BYTES).ok_or(Odd)?)),
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
    /// Between tabs: no character may need an escape.
    Fields(&'a mut Vec<u8>),
    /// Of lines for people; an absent value is `-`.
    Text(&'a mut Vec<u8>),
    Column(&'a mut Column, &'a mut usize),
}

impl Cell<'_> {
    pub fn null(&mut self) -> Result<(), Odd> {
        match self {
            Cell::Json(out) => out.extend_from_slice(b"null"),
            Cell::Csv(_) | Cell::Fields(_) => (),
            Cell::Text(out) => out.push(b'-'),
            Cell::Column(column, cost) => **cost += column.null()?,
        }
        Ok(())
    }

    pub fn number(&mut self, number: Option<i64>) -> Result<(), Odd> {
        match (number, self) {
            (None, cell) => return cell.null(),
            (Some(number), Cell::Json(out) | Cell::Csv(out) | Cell::Fields(out) | Cell::Text(out)) => {
                put(out, number);
            }
            (Some(number), Cell::Column(column, cost)) => **cost += column.int(number)?,
        }
        Ok(())
    }

    pub fn bool(&mut self, value: bool) -> Result<(), Odd> {
        match self {
            Cell::Json(out) | Cell::Fields(out) | Cell::Text(out) => {
                out.extend_from_slice(if value { b"true" } else { b"false" });
            }
            Cell::Csv(out) => out.extend_from_slice(if value { b"True" } else { b"False" }),
            Cell::Column(column, cost) => **cost += column.bool(value)?,
        }
        Ok(())
    }

    pub fn text(&mut self, text: Option<&str>) -> Result<(), Odd> {
        match (text, self) {
            (None, cell) => return cell.null(),
            (Some(text), Cell::Json(out)) => json_text(text.as_bytes(), out),
            (Some(text), Cell::Csv(out)) => quoted(text.as_bytes(), out),
            (Some(text), Cell::Fields(out)) => printable(text.as_bytes(), out)?,
            (Some(text), Cell::Text(out)) => out.extend_from_slice(text.as_bytes()),
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
            Cell::Csv(out) | Cell::Text(out) => {
                let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
                quoted(texts.join(";").as_bytes(), out);
            }
            Cell::Fields(out) => {
                for (place, text) in texts.iter().enumerate() {
                    if place > 0 {
                        out.push(b';');
                    }
                    printable(text.as_ref().as_bytes(), out)?;
                }
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

    /// What is at a path in a body. `keys`: as for `value_json`.
    pub fn field(&mut self, found: &Found<'_>, keys: &[String]) -> Result<(), Odd> {
        let is_flat = |value: Option<&Value<'_>>| !matches!(value, Some(Value::Struct(_) | Value::List(_)));
        match (&mut *self, found) {
            (Cell::Json(out), _) => found_json(found, keys, out),
            (_, Found::One(None | Some(Value::Null))) => self.null(),
            (_, Found::One(Some(Value::Int(number)))) => self.number(Some(*number)),
            (_, Found::One(Some(Value::Text(text)))) => self.text(Some(text)),
            (_, Found::One(Some(Value::Uuid(id)))) => self.text(Some(id_text(id)?)),
            (_, Found::One(Some(Value::List(values)))) if values.iter().all(|each| is_flat(Some(each))) => {
                self.joined(values.iter().map(Some))
            }
            (_, Found::Many(values)) if values.iter().all(|each| is_flat(*each)) => {
                self.joined(values.iter().copied())
            }
            _ => {
                let mut json = Vec::new();
                found_json(found, keys, &mut json)?;
                self.json(&json)
            }
        }
    }

    /// Values separated by semicolons; one of another type than numbers and text is odd.
    fn joined<'v>(&mut self, values: impl Iterator<Item = Option<&'v Value<'v>>>) -> Result<(), Odd> {
        let text = |value: Option<&Value<'_>>| {
            Ok(match value {
                None | Some(Value::Null) => String::new(),
                Some(Value::Bool(value)) => value.to_string(),
                Some(Value::Int(number)) => number.to_string(),
                Some(Value::Text(text)) => (*text).to_owned(),
                Some(Value::Uuid(id)) => id_text(id)?.to_owned(),
                Some(_) => return Err(Odd),
            })
        };
        let texts = values.map(text).collect::<Result<Vec<_>, Odd>>()?;
        self.texts(&texts)
    }

    fn json(&mut self, json: &[u8]) -> Result<(), Odd> {
        match self {
            Cell::Json(out) => out.extend_from_slice(json),
            Cell::Csv(out) => quoted(json, out),
            Cell::Fields(out) => printable(json, out)?,
            Cell::Text(out) => out.extend_from_slice(json),
            Cell::Column(column, cost) => **cost += column.bytes(json)?,
        }
        Ok(())
    }

    /// Text written by Python, or a value for a column.
    fn constant(&mut self, constant: &Option<Constant>) -> Result<(), Odd> {
        match (constant, self) {
            (
                Some(Constant::Text(text)),
                Cell::Json(out) | Cell::Csv(out) | Cell::Fields(out) | Cell::Text(out),
            ) => out.extend_from_slice(text.as_bytes()),
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

fn id_text(id: &[u8; 22]) -> Result<&str, Odd> {
    std::str::from_utf8(id).map_err(|_| Odd)
}

fn found_json(found: &Found<'_>, keys: &[String], out: &mut Vec<u8>) -> Result<(), Odd> {
    let one =
        |value: Option<&Value<'_>>, out: &mut Vec<u8>| value_json(keys, value.unwrap_or(&Value::Null), out);
    match found {
        Found::One(value) => one(*value, out),
        Found::Many(values) => listed(values.iter(), b"[", b"]", out, |value, out| one(*value, out)),
    }
}

/// Writes a key or value as CSV, and after `between` its encoding, as `text_and_encoding` in
/// kdissect/tables/values.py defines them.
pub fn csv(payload: Option<&[u8]>, between: &[u8], out: &mut Vec<u8>) {
    let encoding: &[u8] = match payload {
        None => b"",
        Some(payload) if std::str::from_utf8(payload).is_ok() => {
            quoted(payload, out);
            b"utf-8"
        }
        Some(payload) => {
            base64(payload, out);
            b"base64"
        }
    };
    out.extend_from_slice(between);
    out.extend_from_slice(encoding);
}

/// Writes text that needs no escapes. Odd: some of it may.
fn printable(text: &[u8], out: &mut Vec<u8>) -> Result<(), Odd> {
    if !text.iter().all(|byte| (b' '..=b'~').contains(byte)) {
        return Err(Odd);
    }
    out.extend_from_slice(text);
    Ok(())
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
