//! Exchanges -> what is made of them, until Python takes it: lines of text, rows, or counts.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::sinks::facts::{Answered, Constant, Known, Unacknowledged};
use crate::sinks::lines::{LineForm, Lines};
use crate::sinks::rows::{RowForm, Rows};
use crate::sinks::tallies::{CountForm, Counts};
use crate::{guarded, Odd};

/// Text buffered until Python takes it.
const PAGE_BYTES: usize = 64 * 1024;

/// Built by kdissect/exchanges/lending.py.
#[derive(FromPyObject)]
pub enum Form {
    Lines(LineForm),
    Rows(RowForm),
    Counts(CountForm),
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
        facts.shared(py, known)
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

    /// As `add`, for a request that expects no response.
    pub fn add_unacknowledged(
        &mut self,
        py: Python<'_>,
        exchange: &Unacknowledged<'_>,
        shared: &[Option<Constant>],
    ) -> Result<(), Odd> {
        self.write(|writer, text| match writer {
            Writer::Lines(lines) => lines.write_unacknowledged(py, exchange, shared, text),
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
