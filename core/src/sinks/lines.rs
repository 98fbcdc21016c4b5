//! Exchanges -> their lines, as kdissect/text/table.py writes them to a file, without Python objects for their
//! contents.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::sync::Arc;

use crate::exchanges::connection::{Frame, Header};
use crate::kafka::tree::Decoded;
use crate::sinks::about_template::Line;
use crate::sinks::clock::{Clock, TimeFormat};
use crate::sinks::decimal::push;
use crate::sinks::facts::{
    Answered, CommonPlan, Constant, Constants, Errors, Known, KnownApis, Unacknowledged,
};
use crate::sinks::handed::Handed;
use crate::sinks::rejections::Rejections;
use crate::sinks::sink::Sink;
use crate::Odd;

/// Maximum number of client IDs with cached cells.
const CLIENTS: usize = 4096;

/// `LinePlan` of kdissect/sinks/plan.py. The functions ask Python.
#[allow(clippy::type_complexity)] // of functions
pub struct LinePlan {
    pub common: CommonPlan<Described>,
    pub times: TimeFormat,
    /// Text between columns.
    pub gap: String,
    /// Width of the latency.
    pub width: usize,
    /// The cell of a client ID, empty if there is none.
    pub client: Box<dyn Fn(&str) -> Result<String, Odd> + Send + Sync>,
    /// The texts after the latency.
    pub rejections: Rejections,
    /// The text instead of the latency, for requests that expect no response, and for those that got none.
    pub unacknowledged: String,
    pub unanswered: Box<dyn Fn(&Unacknowledged<'_>) -> Result<String, Odd> + Send + Sync>,
    /// The text after the errors if bytes follow a body.
    pub followed: String,
    /// The width of both endpoints. None: Python writes them.
    pub ends: Option<usize>,
}

/// An API in one version.
pub struct Described {
    pub line: Arc<Line>,
    /// Tells Python of the group in an exchange. Odd: it is not on the fast path. None: it needs not be told.
    pub follow: Option<Follow>,
}

pub type Follow = Box<dyn Fn(&dyn Known, &Decoded<'_>) -> Result<(), Odd> + Send + Sync>;

impl Described {
    /// See [`Line::write`].
    fn write(
        &self,
        known: &dyn Known,
        (request, response): (&[u8], Option<&[u8]>),
        common: &CommonPlan<Described>,
        completed_ns: i64,
        out: &mut String,
    ) -> Result<(Vec<i64>, bool), Odd> {
        let mut follow = |decoded: &Decoded<'_>| match &self.follow {
            Some(follow) => follow(known, decoded),
            None => Ok(()),
        };
        let topics = &common.topics(completed_ns);
        self.line
            .write(request, response, common.budget, topics, &mut follow, out)
    }
}

/// Writes lines of text.
pub struct Lines {
    plan: LinePlan,
    apis: KnownApis<Described>,
    clients: BTreeMap<Box<[u8]>, String>,
    clock: Clock,
    errors: Errors,
    line: String,
}

impl Lines {
    pub fn new(plan: LinePlan) -> Self {
        Lines {
            clock: Clock::new(plan.times),
            plan,
            apis: KnownApis::default(),
            clients: BTreeMap::new(),
            errors: Errors::default(),
            line: String::new(),
        }
    }

    /// The cells of both endpoints, if they are IPv4 addresses, as most are.
    fn ends(&self, known: &dyn Known) -> Option<String> {
        let width = self.plan.ends?;
        let &[a, b, c, d, e, f, g, h, client, by, broker, at] = known.ends()? else {
            return None;
        };
        let end = |ip: [u8; 4], port: [u8; 2]| format!("{}:{}", Ipv4Addr::from(ip), u16::from_be_bytes(port));
        let (client, broker) = (end([a, b, c, d], [client, by]), end([e, f, g, h], [broker, at]));
        Some(format!("{client:width$}{}{broker:width$}", self.plan.gap))
    }

    /// Begins a line: all cells before the latency.
    fn begin(&mut self, header: &Header, request: &Frame, shared: &[Option<Constant>]) -> Result<(), Odd> {
        let LinePlan {
            common, gap, client, ..
        } = &self.plan;
        let (_, _, api) = self.apis.get(common, header)?;

        let client_id = header.raw_client_id(request);
        let client_id = client_id.unwrap_or_default(); // a missing one is shown like an empty one
        let client = match self.clients.get(client_id) {
            Some(cell) => cell,
            None => {
                if self.clients.len() >= CLIENTS {
                    self.clients.clear();
                }
                let text = String::from_utf8_lossy(client_id); // already checked to be UTF-8
                self.clients.entry(client_id.into()).or_insert(client(&text)?)
            }
        };

        let text = &mut self.line;
        text.clear();
        self.clock.write(common, request.end_ns, text)?;
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
        while text.len() < cell + self.plan.width {
            text.push(' ');
        }
        text.push_str(&self.plan.gap);
    }

    /// From here on nothing may be odd.
    fn finish_line(&mut self, request: &Frame, is_selected: bool, out: &mut Vec<u8>) {
        self.clock.pass(request.end_ns, is_selected);
        out.extend_from_slice(self.line.trim_end().as_bytes());
        out.push(b'\n');
    }
}

impl Sink for Lines {
    fn feed_unacknowledged(
        &mut self,
        exchange: &Unacknowledged<'_>,
        shared: &[Option<Constant>],
        out: &mut Vec<u8>,
    ) -> Result<(), Odd> {
        let &Unacknowledged {
            known,
            header,
            request,
            completed_ns,
            ..
        } = exchange;
        self.plan.common.check_flaws(true)?; // they count as flaws too
        self.begin(header, request, shared)?;
        let cell = self.line.len();
        match exchange.ended {
            None => self.line.push_str(&self.plan.unacknowledged),
            Some(_) => self.line.push_str(&(self.plan.unanswered)(exchange)?),
        }
        self.end_cell(cell);
        let common = &self.plan.common;
        let (described, ..) = self.apis.get(common, header)?;
        let body = request.data.get(header.body_pos..).ok_or(Odd)?;
        let text = &mut self.line;
        match described.write(known, (body, None), common, completed_ns, text)? {
            (_, false) => self.finish_line(request, exchange.is_selected, out),
            _ => return Err(Odd),
        }
        Ok(())
    }

    fn feed(
        &mut self,
        exchange: &Answered<'_>,
        shared: &[Option<Constant>],
        out: &mut Vec<u8>,
    ) -> Result<(), Odd> {
        self.begin(exchange.header, exchange.request, shared)?;
        let cell = self.line.len();
        duration(exchange.latency_ns()?, &mut self.line);
        self.end_cell(cell);
        let LinePlan {
            common,
            gap,
            rejections,
            followed,
            ..
        } = &mut self.plan;
        let (described, tags, _) = self.apis.get(common, exchange.header)?;
        let text = &mut self.line;
        let about = text.len();
        if exchange.is_rejected() {
            common.check_flaws(true)?;
            exchange.check_errors(true)?;
            text.push_str(rejections.text(exchange)?);
            self.finish_line(exchange.request, exchange.is_selected, out);
            return Ok(());
        }
        let bodies = (exchange.request_body()?, Some(exchange.response_body(tags)?));
        let (errors, is_followed) =
            described.write(exchange.known, bodies, common, exchange.response.end_ns, text)?;
        common.check_flaws(!errors.is_empty() || is_followed)?;
        exchange.check_errors(!errors.is_empty())?;
        let mut word = |word: &str| {
            if text.len() > about {
                text.push_str(gap);
            }
            text.push_str(word);
        };
        for code in errors {
            word(self.errors.name(common, code)?);
        }
        if is_followed {
            word(followed);
        }
        self.finish_line(exchange.request, exchange.is_selected, out);
        Ok(())
    }

    fn shared(&self, known: &dyn Known) -> Result<Constants, Odd> {
        match self.ends(known) {
            Some(cells) => Ok(vec![Some(Constant::Text(cells))]),
            None => (self.plan.common.shared)(known),
        }
    }

    fn has_parts(&self) -> bool {
        false
    }

    fn flush(&mut self, to: &mut Vec<Handed>) {
        to.extend(self.clock.flush().map(Handed::Times));
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
