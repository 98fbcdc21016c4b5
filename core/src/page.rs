//! Exchanges -> lines of text, as kdissect/text/table.py writes them to a file: no Python object is made.

use std::collections::HashMap;
use std::fmt::Write;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::connection::{Frame, Header};
use crate::line::TopicNames;
use crate::line_class::Line;
use crate::{guarded, Odd};

type Object = Py<PyAny>;

/// Text that is kept before it is taken.
const PAGE_BYTES: usize = 64 * 1024;
const SECOND_NS: i64 = 1_000_000_000;
const CORRELATION_ID_BYTES: usize = 4;

/// Most client IDs whose cells are known.
const CLIENTS: usize = 4096;

/// The templates of an API in one version, the bytes after the correlation ID of a response, and the cell.
type Api = (Py<Line>, Py<PyBytes>, String);

/// What Python's table knows.
#[derive(FromPyObject)]
pub struct Form {
    /// From a second to the texts before and after the decimal point and its digits.
    around: Object,
    digits: usize,
    /// Between columns.
    gap: String,
    /// Of the latency.
    width: usize,
    /// From what the exchanges of a connection share to the cells of its ends.
    ends: Object,
    /// From a client ID, empty if there is none, to its cell.
    client: Object,
    /// From API key and version to an [`Api`], None if these exchanges are left to Python.
    api: Object,
    /// From the ID of a topic to its name, or None.
    topic_name: Object,
    /// Takes the ID of a topic and its name.
    learn_name: Object,
    /// Memory for the bodies of an exchange.
    budget: i64,
}

/// An answered exchange.
pub struct Answered<'a> {
    /// The cells of the ends of its connection.
    pub ends: &'a str,
    pub header: &'a Header,
    pub request: &'a Frame,
    pub response: &'a Frame,
}

pub struct Page {
    form: Form,
    apis: HashMap<(i16, i16), Option<Api>>,
    clients: HashMap<Box<[u8]>, String>,
    second: Option<(i64, String, String)>,
    text: String,
    rows: usize,
}

struct Topics<'a, 'py> {
    form: &'a Form,
    py: Python<'py>,
}

impl TopicNames for Topics<'_, '_> {
    fn name(&self, id: &str) -> Option<String> {
        self.form.topic_name.bind(self.py).name(id)
    }

    fn learn(&self, id: &str, name: &str) -> Result<(), Odd> {
        let learned = self.form.learn_name.bind(self.py).call1((id, name));
        learned.map(|_| ()).map_err(|_| Odd)
    }
}

impl Page {
    pub fn new(form: Form) -> Self {
        Page {
            form,
            apis: HashMap::new(),
            clients: HashMap::new(),
            second: None,
            text: String::new(),
            rows: 0,
        }
    }

    /// The lines since the last call, and their number.
    pub fn take(&mut self) -> (String, usize) {
        (std::mem::take(&mut self.text), std::mem::take(&mut self.rows))
    }

    pub fn is_full(&self) -> bool {
        self.text.len() >= PAGE_BYTES
    }

    /// The cells of the ends of a connection.
    pub fn ends(&self, info: &Bound<'_, PyAny>) -> PyResult<String> {
        self.form.ends.bind(info.py()).call1((info,))?.extract()
    }

    /// Adds the line of an exchange. If anything is odd, it has no effect.
    pub fn add(&mut self, py: Python<'_>, exchange: &Answered<'_>) -> Result<(), Odd> {
        let start = self.text.len();
        let written = guarded(|| self.try_add(py, exchange));
        match written {
            Ok(()) => self.rows += 1,
            Err(Odd) => self.text.truncate(start),
        }
        written
    }

    fn try_add(&mut self, py: Python<'_>, exchange: &Answered<'_>) -> Result<(), Odd> {
        let Answered {
            ends,
            header,
            request,
            response,
        } = exchange;
        let form = &self.form;
        let known = self.apis.entry((header.api_key, header.api_version));
        let known = known.or_insert_with_key(|place| form.api.bind(py).call1(*place).ok()?.extract().ok()?);
        let (line, tags, api) = known.as_ref().ok_or(Odd)?;
        let body = response.data.get(CORRELATION_ID_BYTES..).ok_or(Odd)?;
        let body = body.strip_prefix(tags.as_bytes(py)).ok_or(Odd)?;

        let client_id = header.raw_client_id(request).unwrap_or_default(); // none looks like an empty one
        if !self.clients.contains_key(client_id) {
            if self.clients.len() >= CLIENTS {
                self.clients.clear();
            }
            let text = String::from_utf8_lossy(client_id); // it is known to be UTF-8
            let cell = form.client.bind(py).call1((text,)).map_err(|_| Odd)?;
            let cell = cell.extract().map_err(|_| Odd)?;
            self.clients.insert(client_id.into(), cell);
        }
        let client = self.clients.get(client_id).ok_or(Odd)?;

        let start = self.text.len();
        let (second, rest) = (
            request.end_ns.div_euclid(SECOND_NS),
            request.end_ns.rem_euclid(SECOND_NS),
        );
        if self.second.as_ref().is_none_or(|known| known.0 != second) {
            let around = form.around.bind(py).call1((second,)).map_err(|_| Odd)?;
            let (before, after) = around.extract().map_err(|_| Odd)?;
            self.second = Some((second, before, after));
        }
        let (_, before, after) = self.second.as_ref().ok_or(Odd)?;
        let digits = format!("{rest:09}");
        let digits = digits.get(..form.digits).ok_or(Odd)?;
        let out = &mut self.text;
        for text in [before, ".", digits, after] {
            out.push_str(text);
        }
        for cell in [ends, client.as_str(), api] {
            out.push_str(&form.gap);
            out.push_str(cell);
        }
        out.push_str(&form.gap);
        let cell = out.len();
        duration(response.start_ns.checked_sub(request.end_ns).ok_or(Odd)?, out);
        while out.len() < cell + form.width {
            out.push(' ');
        }
        out.push_str(&form.gap);
        line.get().0.write(
            request.data.get(header.body_pos..).ok_or(Odd)?,
            Some(body),
            form.budget,
            &Topics { form, py },
            out,
        )?;
        out.truncate(start + out[start..].trim_end().len());
        out.push('\n');
        Ok(())
    }
}

/// A latency with three or four digits, as in phrases.py.
fn duration(ns: i64, out: &mut String) {
    let us = ns.div_euclid(1000);
    _ = match us.unsigned_abs() {
        0..1000 => write!(out, "{us}us"),
        1000..10_000 => write!(out, "{:.2}ms", us as f64 / 1e3),
        10_000..1_000_000 => write!(out, "{:.1}ms", us as f64 / 1e3),
        _ => write!(out, "{:.2}s", us as f64 / 1e6),
    };
}
