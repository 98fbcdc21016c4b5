//! Exchanges whose turn it is -> what the sink makes of them, or the first that it leaves to Python.

use std::cell::Cell;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::asking::Callbacks;
use super::link::Link;
use super::Lending;
use crate::exchanges::connection::{Finished, Message, Order, Outcome};
use crate::python::handle::Object;
use crate::python::merge::RowBatch;
use crate::python::plan::Conditions;
use crate::runs::merge::{self, KEY};
use crate::sinks::conditions::{Candidate, Decision};
use crate::sinks::facts::{Answered, Handle, Known, Unacknowledged};
use crate::sinks::sink::Progress;
use crate::{Odd, Why};

/// A connection for [`Page`].
struct KnownLink<'a, 'py> {
    py: Python<'py>,
    link: &'a Link,
    python: &'a Callbacks,
    /// Whether what its exchanges share is as before.
    is_same: Cell<bool>,
}

impl Known for KnownLink<'_, '_> {
    fn info(&self) -> Result<&Handle, Odd> {
        self.link.info(self.py, self.python).map_err(|_| Odd)
    }

    fn ends(&self) -> Option<&[u8]> {
        self.link.is_opened_here().then_some(&self.link.ends)
    }

    fn identity(&self) -> &[Handle; 4] {
        &self.link.identity
    }

    fn renew(&self) {
        self.is_same.set(false);
    }
}

impl Lending {
    /// See `written`.
    pub(super) fn write_queued<'py>(
        &mut self,
        py: Python<'py>,
        before: Option<Order>,
        (max_exchanges, max_rows): (usize, usize),
        writes: bool,
        batch: &mut Option<PyRefMut<'_, RowBatch>>,
    ) -> PyResult<Option<(Bound<'py, PyTuple>, u64)>> {
        self.dismiss(py);
        self.pass_on(py, false)?;
        for _ in 0..max_exchanges {
            let conditions = self.conditions.as_ref();
            if self.page.as_ref().is_none_or(|page| page.is_full(max_rows))
                || conditions.is_some_and(Conditions::must_give_back)
            {
                break;
            }
            let next = match before {
                Some(before) => self.queue.pop(before),
                None => self.queue.waiting.pop_front(),
            };
            let Some((order, finished)) = next else {
                break;
            };
            let slot = finished.slot;
            let mut is_written = false;
            if writes {
                self.learn(py, &finished, false)?;
                let start = self.page.as_ref().map_or(0, |page| page.text.len());
                let written = self.write(py, &finished);
                is_written = written.is_ok();
                if let Err(odd) = written {
                    self.left.note(odd, finished.request.api());
                }
                if let (true, Some(shift), Some(batch)) = (is_written, self.shift, &mut *batch) {
                    let size = self.page.as_ref().map_or(0, |page| page.text.len()) - start;
                    let packet = i64::try_from(finished.order().1).unwrap_or(i64::MAX);
                    let place = packet.saturating_add(shift).saturating_mul(2);
                    let key = key(&finished, place, self.number(py, slot)?, size);
                    batch.keys.extend_from_slice(&key);
                }
            }
            if !writes {
                self.left.note(Why::Nameless.odd(), finished.request.api());
            }
            let mut odd = None;
            if !is_written {
                self.leave(py, slot);
                if let Some(link) = self.links.get_mut(slot).and_then(Option::as_mut) {
                    link.shared = None; // it may name the cluster
                }
                odd = Some((self.finish(py, *finished)?, order.1));
            }
            if let Some(link) = self.links.get_mut(slot).and_then(Option::as_mut) {
                match before {
                    Some(_) => link.queued -= 1,
                    None => link.waiting -= 1,
                }
            }
            self.forget(py, slot);
            if odd.is_some() {
                return Ok(odd);
            }
        }
        Ok(None)
    }

    /// Writes the line of an exchange.
    pub(super) fn write(&mut self, py: Python<'_>, finished: &Finished<Object>) -> Result<(), Odd> {
        let Message::Frame(header, request) = &finished.request.message else {
            return Err(Why::Lent.odd());
        };
        match finished.outcome {
            Outcome::Answered(_) => (),
            Outcome::Unacknowledged if self.shift.is_none() => (), // otherwise its key has another place
            Outcome::Unanswered(..) if self.shift.is_none() && self.conditions.is_none() => (),
            _ => return Err(Why::Outcome.odd()),
        }
        let page = self.page.as_mut().ok_or(Odd)?;
        let conditions = self.conditions.as_ref();
        let splits = conditions.is_some_and(|conditions| conditions.criteria.splitters.is_some());
        if finished.request.retransmitted_ns.is_some() && (splits || page.has_parts()) {
            return Err(Why::Retransmitted.odd());
        }
        let link = self
            .links
            .get_mut(finished.slot)
            .and_then(Option::as_mut)
            .ok_or(Odd)?;
        let python = &self.python;
        let response = match &finished.outcome {
            Outcome::Answered(response) => Some(response),
            _ => None,
        };
        let mut decision = Decision {
            is_selected: true,
            ..Decision::default()
        };
        if let Some(conditions) = &mut self.conditions {
            let of_client = link.of_client(py, python, conditions, header, (request, response.is_some()));
            let candidate = Candidate {
                number: finished.number,
                header,
                request,
                response,
                completed_ns: finished.order().0,
                of_client: of_client.map_err(|_| Odd)?,
                info: match &conditions.criteria.splitters {
                    Some(_) => Some(link.info(py, python).map_err(|_| Odd)?),
                    None => None,
                },
            };
            conditions.note_time(conditions.criteria.time_ns(&candidate));
            decision = conditions.criteria.decide(&candidate)?;
        }
        let Decision {
            is_selected,
            leaves_errors,
            ..
        } = decision;
        let parts = decision.split.as_ref().map(|(parts, _)| *parts);
        let shared = link.shared.take();
        let known = &KnownLink {
            py,
            link,
            python,
            is_same: Cell::new(true),
        };
        let shared = match shared {
            Some(shared) => shared,
            None => page.shared(known)?,
        };
        let interface = self.interfaces.get(request.interface).ok_or(Odd)?;
        let written = if let Some(response) = response {
            let answered = Answered {
                known,
                interface,
                number: finished.number,
                header,
                request,
                response,
                is_selected,
                leaves_errors,
                parts,
            };
            page.add(&answered, &shared)
        } else {
            let unacknowledged = Unacknowledged {
                known,
                interface,
                number: finished.number,
                header,
                request,
                completed_ns: finished.order().0,
                ended: match finished.outcome {
                    Outcome::Unanswered(_, fin) => Some(fin),
                    _ => None,
                },
                is_selected,
            };
            page.add_unacknowledged(&unacknowledged, &shared)
        };
        let is_same = known.is_same.get();
        link.shared = Some(shared).filter(|_| is_same);
        if let (Ok(()), Some(conditions)) = (written, &mut self.conditions) {
            conditions.note(py, link.info.get(py), decision);
        }
        written
    }

    /// Exchanges the texts of a batch and of the page, which then adds to that of the batch, or no longer does.
    pub(super) fn swap_text(&mut self, batch: &mut Option<PyRefMut<'_, RowBatch>>) {
        if let (Some(page), Some(batch)) = (&mut self.page, batch) {
            std::mem::swap(&mut page.text, &mut batch.text);
        }
    }

    /// Takes what the sink has made since the last time. Python gets all that its next exchange depends on.
    pub(super) fn take_page<'py>(&mut self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>, Progress)> {
        let Some(page) = self.page.as_mut() else {
            return Ok((PyBytes::new(py, b""), Progress::default()));
        };
        let (handed, progress) = page.take();
        let text = PyBytes::new(py, &page.text);
        page.text.clear();
        self.receivers.give(py, handed)?;
        self.give_back(py)?;
        Ok((text, progress))
    }

    /// Gives back what connections remember that are no longer here, as far as conditions depend on it.
    pub(super) fn give_back(&mut self, py: Python<'_>) -> PyResult<()> {
        self.conditions
            .as_mut()
            .map_or(Ok(()), |conditions| conditions.give_back(py))
    }
}

/// The key of a line, see runs/merge.rs.
pub(super) fn key(finished: &Finished<Object>, place: i64, connection: i64, size: usize) -> [u8; KEY] {
    let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let (end_ns, packet) = finished.order();
    let packet = i64::try_from(packet).unwrap_or(i64::MAX);
    let held = number(finished.held());
    merge::key([place, end_ns, packet, held, connection, number(size)])
}
