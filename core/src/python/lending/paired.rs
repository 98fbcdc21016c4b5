//! Exchanges that Python has paired, on connections that are not here -> what a sink makes of them.
//!
//! A connection may be with Python for many reasons, and most of its exchanges are usual all the same. Of those that
//! are, the core needs nothing but the frames: they are finished like its own, one by one, when it is their turn.

use pyo3::prelude::*;

use super::link::{Holder, IDENTITY};
use super::objects::PythonFrame;
use super::writing::key;
use super::Lending;
use crate::exchanges::connection::{
    advertises_vendor, request_header, Finished, Frame, Message, Outcome, Request, API_VERSIONS,
};
use crate::python::handle::Object;
use crate::runs::merge::KEY;
use crate::sinks::facts::Handle;
use crate::{Odd, Why};

/// `Exchange` of kdissect/model.py, before it is decoded.
#[derive(FromPyObject)]
struct PairedExchange<'py> {
    number: u64,
    kind: Bound<'py, PyAny>,
    request_frame: Option<PythonFrame<'py>>,
    response_frame: Option<PythonFrame<'py>>,
    anomalies: Bound<'py, PyAny>,
    retransmitted_ns: Option<i64>,
    announced: Option<u64>,
    is_out_of_order: bool,
}

impl Lending {
    /// Writes an exchange that Python has paired, as `write` does. Returns its key if it has a `place`.
    pub(super) fn write_paired(
        &mut self,
        exchange: &Bound<'_, PyAny>,
        slot: usize,
        place: Option<i64>,
    ) -> Result<Option<[u8; KEY]>, Odd> {
        let py = exchange.py();
        let mut api = (-1, -1);
        let start = self.page.as_ref().map_or(0, |page| page.text.len());
        let written = self.paired(exchange, slot).and_then(|finished| {
            api = finished.request.api();
            self.write(py, &finished)?;
            Ok(finished)
        });
        let finished = written.inspect_err(|odd| self.left.note(*odd, api))?;
        let Some(place) = place else {
            return Ok(None);
        };
        let size = self.page.as_ref().map_or(0, |page| page.text.len()) - start;
        let number = self.number(py, slot).map_err(|_| Odd)?;
        Ok(Some(key(&finished, place, number, size)))
    }

    /// The exchange, if nothing but its bodies can be unusual.
    fn paired(&mut self, exchange: &Bound<'_, PyAny>, slot: usize) -> Result<Finished<Object>, Odd> {
        let PairedExchange {
            number,
            kind,
            request_frame,
            response_frame,
            anomalies,
            retransmitted_ns,
            announced,
            is_out_of_order,
        } = exchange.extract().map_err(|_| Odd)?;
        if announced.is_some() || is_out_of_order || anomalies.is_truthy().unwrap_or(true) {
            return Err(Why::Anomaly.odd());
        }
        let (answered, unacknowledged, _) = &self.kinds;
        let is_answered = kind.is(answered);
        let request = match request_frame {
            Some(request) if is_answered || kind.is(unacknowledged) => self.whole(&request)?,
            _ => return Err(Why::Outcome.odd()),
        };
        let mut asking = self.answers.asking(exchange.py(), &self.python);
        let (header, expects_response) = request_header(&request.data, &mut asking)?;
        let outcome = match response_frame {
            Some(response) => Outcome::Answered(self.whole(&response)?),
            None => Outcome::Unacknowledged,
        };
        let names_vendor = matches!(&outcome, Outcome::Answered(response)
            if header.api_key == API_VERSIONS && advertises_vendor(&response.data, header.api_version));
        if expects_response != is_answered || names_vendor {
            return Err(Why::Response.odd());
        }
        Ok(Finished {
            slot,
            number,
            request: Request {
                correlation_id: header.correlation_id,
                time_ns: request.end_ns,
                bytes: request.data.len(),
                message: Message::Frame(header, request),
                retransmitted_ns,
            },
            outcome,
        })
    }

    fn whole(&mut self, frame: &PythonFrame<'_>) -> Result<Frame, Odd> {
        let interface = self.interface(&frame.interface).ok_or(Odd)?;
        let frame = frame.frame(interface);
        match frame.size == frame.data.len() {
            true => Ok(frame),
            false => Err(Why::Anomaly.odd()),
        }
    }

    /// The slot that stands for the connection of an exchange, while exchanges of it, with the same identity, follow
    /// each other.
    pub(super) fn guest_slot(&mut self, exchange: &Bound<'_, PyAny>) -> PyResult<usize> {
        let py = exchange.py();
        let info = Handle::of(exchange.getattr("connection")?);
        let of_client = |name| Ok::<_, PyErr>(Handle::of(exchange.getattr(name)?));
        let [software, version, principal, mechanism] = IDENTITY.map(of_client);
        let identity = [software?, version?, principal?, mechanism?];
        if let Some(slot) = self.guest {
            let link = self.links.get(slot).and_then(Option::as_ref);
            let is_same = link.is_some_and(|link| {
                let mut pairs = link.identity.iter().zip(&identity);
                link.info.get(py).is_some_and(|known| known.is(&info)) && pairs.all(|(one, two)| one.is(two))
            });
            if is_same {
                return Ok(slot);
            }
            self.dismiss(py);
        }
        let slot = self.stage.reserve();
        self.link(py, slot, Holder::Python, Box::default(), Some(info), identity);
        if let Some(Some(link)) = self.links.get_mut(slot) {
            link.is_released = true;
        }
        self.guest = Some(slot);
        Ok(slot)
    }

    /// Python takes the next exchange of that connection, or the core one of its own.
    pub(super) fn dismiss(&mut self, py: Python<'_>) {
        if let Some(slot) = self.guest.take() {
            self.forget(py, slot);
        }
    }
}
