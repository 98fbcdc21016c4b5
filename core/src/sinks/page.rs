//! Exchanges -> what a sink makes of them, until Python takes it.

use crate::sinks::facts::{Answered, Constant, Constants, Handle, Known, Unacknowledged};
use crate::sinks::handed::Handed;
use crate::sinks::sink::{Progress, Sink};
use crate::{guarded, Odd};

/// Text buffered until Python takes it.
const PAGE_BYTES: usize = 64 * 1024;

/// What Python has not taken yet.
pub struct Page {
    sink: Box<dyn Sink>,
    pub text: Vec<u8>,
    progress: Progress,
    /// Size of the text with which it is full.
    pub max_bytes: usize,
}

impl Page {
    pub fn new(sink: Box<dyn Sink>) -> Self {
        Page {
            sink,
            text: Vec::new(),
            progress: Progress::default(),
            max_bytes: PAGE_BYTES,
        }
    }

    /// Returns what belongs to the text since the last call, and of how many exchanges that is.
    pub fn take(&mut self) -> (Vec<Handed>, Progress) {
        let mut handed = Vec::new();
        self.sink.flush(&mut handed);
        self.sink.settle(false, &mut handed);
        (handed, std::mem::take(&mut self.progress))
    }

    /// See [`Sink`].
    pub fn has_parts(&self) -> bool {
        self.sink.has_parts()
    }

    /// See [`Sink`].
    pub fn leave(&mut self, info: &Handle) {
        self.sink.leave(info);
    }

    /// See [`Sink`].
    pub fn settle(&mut self, is_last: bool) -> Vec<Handed> {
        let mut handed = Vec::new();
        self.sink.settle(is_last, &mut handed);
        handed
    }

    /// Whether Python must take what is here before more is added. `max_rows`: how many it takes.
    pub fn is_full(&self, max_rows: usize) -> bool {
        self.text.len() >= self.max_bytes || self.progress.rows >= max_rows || self.sink.is_full()
    }

    /// See [`Sink`].
    pub fn shared(&self, known: &dyn Known) -> Result<Constants, Odd> {
        self.sink.shared(known)
    }

    /// Adds an exchange. If anything is odd, it has no effect.
    pub fn add(&mut self, exchange: &Answered<'_>, shared: &[Option<Constant>]) -> Result<(), Odd> {
        self.write(exchange.is_selected, |sink, text| {
            sink.feed(exchange, shared, text)
        })
    }

    /// As `add`, for a request that expects no response.
    pub fn add_unacknowledged(
        &mut self,
        exchange: &Unacknowledged<'_>,
        shared: &[Option<Constant>],
    ) -> Result<(), Odd> {
        self.write(exchange.is_selected, |sink, text| {
            sink.feed_unacknowledged(exchange, shared, text)
        })
    }

    fn write(
        &mut self,
        is_selected: bool,
        write: impl FnOnce(&mut dyn Sink, &mut Vec<u8>) -> Result<(), Odd>,
    ) -> Result<(), Odd> {
        let start = self.text.len();
        let (sink, text) = (&mut *self.sink, &mut self.text);
        let written = guarded(|| write(sink, text));
        if written.is_err() || !is_selected {
            self.text.truncate(start);
        }
        if written.is_ok() {
            self.progress.exchanges += 1;
            self.progress.rows += usize::from(is_selected);
        }
        written
    }
}
