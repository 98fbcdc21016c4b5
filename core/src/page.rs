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

/// The templates of an API in one version, and the bytes after the correlation ID of a response.
type Api = (Py<Line>, Py<PyBytes>);

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
    /// From an exchange to the cells between time and latency.
    cells: Object,
    /// From API key and version to an [`Api`], None if these exchanges are left to Python.
    api: Object,
    /// From the ID of a topic to its name, or None.
    topic_name: Object,
    /// Memory for the bodies of an exchange.
    budget: i64,
}

pub struct Page {
    form: Form,
    apis: HashMap<(i16, i16), Option<Api>>,
    second: Option<(i64, String, String)>,
    text: String,
    rows: usize,
}

impl Page {
    pub fn new(form: Form) -> Self {
        Page {
            form,
            apis: HashMap::new(),
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

    /// The cells of an exchange between time and latency.
    pub fn cells(&self, py: Python<'_>, exchange: &Bound<'_, PyAny>) -> PyResult<String> {
        self.form.cells.bind(py).call1((exchange,))?.extract()
    }

    /// Adds the line of an answered exchange. If anything is odd, it has no effect.
    pub fn add(
        &mut self,
        py: Python<'_>,
        cells: &str,
        header: &Header,
        request: &Frame,
        response: &Frame,
    ) -> Result<(), Odd> {
        let start = self.text.len();
        let written = guarded(|| self.try_add(py, cells, header, request, response));
        match written {
            Ok(()) => self.rows += 1,
            Err(Odd) => self.text.truncate(start),
        }
        written
    }

    fn try_add(
        &mut self,
        py: Python<'_>,
        cells: &str,
        header: &Header,
        request: &Frame,
        response: &Frame,
    ) -> Result<(), Odd> {
        let Form {
            api,
            digits,
            gap,
            width,
            topic_name,
            budget,
            ..
        } = &self.form;
        let known = self.apis.entry((header.api_key, header.api_version));
        let known = known.or_insert_with_key(|place| api.bind(py).call1(*place).ok()?.extract().ok()?);
        let (line, tags) = known.as_ref().ok_or(Odd)?;
        let body = response.data.get(CORRELATION_ID_BYTES..).ok_or(Odd)?;
        let body = body.strip_prefix(tags.as_bytes(py)).ok_or(Odd)?;

        let start = self.text.len();
        let (second, rest) = (
            request.end_ns.div_euclid(SECOND_NS),
            request.end_ns.rem_euclid(SECOND_NS),
        );
        if self.second.as_ref().is_none_or(|known| known.0 != second) {
            let around = self.form.around.bind(py).call1((second,)).map_err(|_| Odd)?;
            let (before, after) = around.extract().map_err(|_| Odd)?;
            self.second = Some((second, before, after));
        }
        let (_, before, after) = self.second.as_ref().ok_or(Odd)?;
        let digits_text = format!("{rest:09}");
        let out = &mut self.text;
        for text in [
            before,
            ".",
            digits_text.get(..*digits).ok_or(Odd)?,
            after,
            gap,
            cells,
            gap,
        ] {
            out.push_str(text);
        }
        let cell = out.len();
        duration(response.start_ns.checked_sub(request.end_ns).ok_or(Odd)?, out);
        while out.len() < cell + width {
            out.push(' ');
        }
        out.push_str(gap);
        let names: &dyn TopicNames = topic_name.bind(py);
        line.get().0.write(
            request.data.get(header.body_pos..).ok_or(Odd)?,
            Some(body),
            *budget,
            names,
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
