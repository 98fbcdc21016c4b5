//! Exchanges, frames and interfaces here -> the objects of Python, and back.

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::link::{Holder, Link, IDENTITY};
use super::Lending;
use crate::exchanges::connection::{request_header, Finished, Frame, Header, Message, Outcome, Request};
use crate::python::handle::Object;
use crate::sinks::facts::Handle;

/// Interfaces known at a time.
const INTERFACES: usize = 65_536;

/// An outstanding request of Python.
#[derive(FromPyObject)]
struct PythonRequest<'py> {
    correlation_id: i32,
    time_ns: i64,
    first_frame: PythonFrame<'py>,
    anomalies: Bound<'py, PyAny>,
    retransmitted_ns: Option<i64>,
}

/// `Frame` of kdissect/model.py.
#[derive(FromPyObject)]
pub(super) struct PythonFrame<'py> {
    data: Bound<'py, PyBytes>,
    size: usize,
    packet: u64,
    pub(super) interface: Bound<'py, PyAny>,
    start_ns: i64,
    end_ns: i64,
}

impl PythonFrame<'_> {
    /// As it is here. `interface`: the number of its own.
    pub(super) fn frame(&self, interface: usize) -> Frame {
        Frame {
            data: self.data.as_bytes().to_vec(),
            size: self.size,
            packet: self.packet,
            interface,
            start_ns: self.start_ns,
            end_ns: self.end_ns,
        }
    }
}

impl Lending {
    /// The event of an exchange: its connection, if that has an object; a side, which says nothing; and the
    /// exchange.
    pub(super) fn finish<'py>(
        &mut self,
        py: Python<'py>,
        finished: Finished<Object>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        self.learn(py, &finished, false)?;
        let Finished {
            slot,
            number,
            request,
            outcome,
        } = finished;
        let mut link = self.links[slot].take().ok_or_else(|| PyKeyError::new_err(slot))?;
        let info = link.info(py, &self.python)?.bind(py).clone();
        let (answered, unacknowledged, unanswered) = &self.kinds;
        let (kind, completed_ns, response, end) = match outcome {
            Outcome::Answered(frame) => (answered, frame.end_ns, self.frame(py, frame)?, None),
            Outcome::Unacknowledged => (unacknowledged, request.time_ns, py.None().into_bound(py), None),
            Outcome::Unanswered(time_ns, fin) => (unanswered, time_ns, py.None().into_bound(py), Some(fin)),
        };
        let exchange = match request.message {
            Message::Object(exchange) => {
                let exchange = exchange.into_bound(py);
                exchange.setattr("response_frame", response)?;
                exchange.setattr("number", number)?;
                exchange.setattr("kind", kind)?;
                exchange.setattr("completed_ns", completed_ns)?;
                for (name, value) in IDENTITY.into_iter().zip(&link.identity) {
                    exchange.setattr(name, value)?;
                }
                exchange
            }
            Message::Frame(header, frame) => {
                let client_id = link.client_id(py, &header, &frame);
                let frame = self.frame(py, frame)?;
                let [software, version, principal, mechanism] = &link.identity;
                let head = self.request_header(py, &header, &client_id)?;
                let exchange = self.python.exchange.bind(py).call1(PyTuple::new(
                    py,
                    [
                        info,
                        number.into_pyobject(py)?.into_any(),
                        kind.bind(py).clone(),
                        frame,
                        response,
                        header.api_key.into_pyobject(py)?.into_any(),
                        header.api_version.into_pyobject(py)?.into_any(),
                        header.correlation_id.into_pyobject(py)?.into_any(),
                        client_id,
                        self.api_name(py, &header),
                        completed_ns.into_pyobject(py)?.into_any(),
                        software.bind(py).clone(),
                        version.bind(py).clone(),
                        principal.bind(py).clone(),
                        mechanism.bind(py).clone(),
                        head,
                    ],
                )?)?;
                note_retransmission(&exchange, request.retransmitted_ns)?;
                exchange
            }
        };
        if let Some(fin) = end {
            exchange.setattr("ended", true)?;
            if let Some((time_ns, is_client)) = fin {
                exchange.setattr("ended_ns", time_ns)?;
                exchange.setattr("closed_by_client", is_client)?;
            }
        }
        let connection = match &link.side {
            Holder::Lent(_, connection, _) => Some(connection.clone_ref(py)),
            Holder::Opened(..) | Holder::Python => None,
        };
        let pair = (connection, 0, exchange).into_pyobject(py);
        self.links[slot] = Some(link);
        pair
    }

    /// An exchange whose response has not come.
    pub(super) fn outstanding<'py>(
        &self,
        py: Python<'py>,
        link: &mut Link,
        header: Header,
        frame: Frame,
    ) -> PyResult<Bound<'py, PyAny>> {
        let client_id = link.client_id(py, &header, &frame);
        let exchange = self.python.exchange.bind(py).call1((
            link.info(py, &self.python)?,
            0,
            "",
            self.frame(py, frame)?,
            py.None(),
            header.api_key,
            header.api_version,
            header.correlation_id,
            &client_id,
            self.api_name(py, &header),
        ))?;
        exchange.setattr("request_header", self.request_header(py, &header, &client_id)?)?;
        Ok(exchange)
    }

    fn api_name<'py>(&self, py: Python<'py>, header: &Header) -> Bound<'py, PyAny> {
        match self.answers.apis.get(&(header.api_key, header.api_version)) {
            Some(Some(api)) => api.name.bind(py).clone(),
            _ => py.None().into_bound(py),
        }
    }

    fn request_header<'py>(
        &self,
        py: Python<'py>,
        header: &Header,
        client_id: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Header {
            api_key,
            api_version,
            correlation_id,
            body_pos,
            ..
        } = *header;
        let values = (api_key, api_version, correlation_id, client_id, body_pos);
        self.python
            .new
            .bind(py)
            .call1((&self.python.request_header, values))
    }

    fn frame<'py>(&self, py: Python<'py>, frame: Frame) -> PyResult<Bound<'py, PyAny>> {
        let Frame {
            data,
            size,
            packet,
            interface,
            start_ns,
            end_ns,
        } = frame;
        let bytes = PyBytes::new(py, &data);
        let values = (bytes, size, packet, &self.interfaces[interface], start_ns, end_ns);
        self.python.new.bind(py).call1((&self.python.frame, values))
    }

    /// An outstanding request from Python, as if it had come here, if it is usual.
    pub(super) fn request(&mut self, py: Python<'_>, exchange: Object) -> PyResult<Request<Object>> {
        let request: PythonRequest<'_> = exchange.extract(py)?;
        let (frame, data) = (&request.first_frame, request.first_frame.data.as_bytes());
        let mut usual = None;
        if request.retransmitted_ns.is_none() && !request.anomalies.is_truthy()? {
            if let Some(interface) = self.interface(&frame.interface) {
                let mut asking = self.answers.asking(py, &self.python);
                if let Ok((header, true)) = request_header(data, &mut asking) {
                    usual = Some(Message::Frame(header, frame.frame(interface)));
                }
            }
        }
        Ok(Request {
            correlation_id: request.correlation_id,
            time_ns: request.time_ns,
            bytes: data.len(),
            message: usual.unwrap_or(Message::Object(exchange)),
            retransmitted_ns: None,
        })
    }

    /// The number that stands for an interface. None: there are too many, until all connections have gone.
    pub(super) fn interface(&mut self, interface: &Bound<'_, PyAny>) -> Option<usize> {
        let address = interface.as_ptr() as usize;
        if let Some(&known) = self.known_interfaces.get(&address) {
            return Some(known);
        }
        if self.interfaces.len() >= INTERFACES {
            if self.links.iter().any(Option::is_some) {
                return None;
            }
            self.interfaces.clear();
            self.known_interfaces.clear();
        }
        self.known_interfaces.insert(address, self.interfaces.len());
        self.interfaces.push(Handle::of(interface.clone()));
        Some(self.interfaces.len() - 1)
    }
}

pub(super) fn note_retransmission(
    exchange: &Bound<'_, PyAny>,
    retransmitted_ns: Option<i64>,
) -> PyResult<()> {
    match retransmitted_ns {
        Some(time_ns) => exchange.setattr("retransmitted_ns", time_ns),
        None => Ok(()),
    }
}
