//! A connection that is here -> what Python knows of it: its objects, its client, and what its exchanges share.
//!
//! It is kept until the connection is no longer here, and none of its exchanges is queued or waits.

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyString};

use super::asking::Callbacks;
use super::Lending;
use crate::exchanges::connection::{Finished, Frame, Header, Message, Order, API_VERSIONS};
use crate::python::handle::Object;
use crate::python::plan::Conditions;
use crate::sinks::facts::{Constants, Handle};

/// What is kept at a time of what Python says of a connection's exchanges, and the longest client ID in it.
const MATCHES: usize = 32;
const MATCH_BYTES: usize = 64;

/// What is known of a client, by the names of attributes.
pub(super) const IDENTITY: [&str; 4] = [
    "client_software_name",
    "client_software_version",
    "principal",
    "sasl_mechanism",
];

/// Python's side of a connection that is here.
pub(super) struct Link {
    pub(super) side: Holder,
    /// Of the client's segments.
    pub(super) ends: Box<[u8]>,
    /// Shared by its exchanges, once it is needed.
    pub(super) info: PyOnceLock<Handle>,
    /// Software name and version, principal, SASL mechanism.
    pub(super) identity: [Handle; 4],
    /// Software name and version as of the latest exchange; those in the queue may have earlier ones.
    pub(super) software: [Handle; 2],
    client_id: Option<(Box<[u8]>, Py<PyString>)>,
    /// Texts that its exchanges share, once they are needed.
    pub(super) shared: Option<Constants>,
    /// Which of its exchanges match, as far as Python was asked.
    matches: Vec<Match>,
    /// Its number in keys, once one needs it.
    number: Option<i64>,
    /// Exchanges in the queue, and the order of the latest one.
    pub(super) queued: usize,
    pub(super) latest: Order,
    /// Exchanges that have left the order and wait for names.
    pub(super) waiting: usize,
    pub(super) is_released: bool,
}

/// What Python says of exchanges of a kind, API, version and client, as bits.
struct Match {
    is_answered: bool,
    api_key: i16,
    api_version: i16,
    client_id: Option<Box<[u8]>>,
    results: u64,
}

pub(super) enum Holder {
    /// Its objects, duplex and connection, and which side is the client.
    Lent(Object, Object, usize),
    /// It was opened here: time of the SYN, and its number.
    Opened(i64, u64),
    /// It is not here.
    Python,
}

impl Link {
    pub(super) fn is_opened_here(&self) -> bool {
        matches!(self.side, Holder::Opened(..))
    }

    /// Which side of the connection is the client.
    pub(super) fn client(&self) -> usize {
        match self.side {
            Holder::Lent(.., client) => client,
            Holder::Opened(..) | Holder::Python => 0,
        }
    }

    /// The object of a connection that was lent.
    pub(super) fn duplex(&self, py: Python<'_>) -> Option<Object> {
        match &self.side {
            Holder::Lent(duplex, ..) => Some(duplex.clone_ref(py)),
            Holder::Opened(..) | Holder::Python => None,
        }
    }

    /// What its exchanges share.
    pub(super) fn info(&self, py: Python<'_>, python: &Callbacks) -> PyResult<&Handle> {
        self.info.get_or_try_init(py, || match &self.side {
            Holder::Opened(time_ns, ordinal) => {
                let values = (PyBytes::new(py, &self.ends), *time_ns, *ordinal);
                Ok(Handle::of(python.info.bind(py).call1(values)?))
            }
            _ => Err(PyKeyError::new_err(())), // it came with the connection
        })
    }

    /// What Python says of exchanges of this kind, API, version and client. It is asked once for each.
    pub(super) fn of_client(
        &mut self,
        py: Python<'_>,
        python: &Callbacks,
        conditions: &Conditions,
        header: &Header,
        (request, is_answered): (&Frame, bool),
    ) -> PyResult<u64> {
        let client_id = header.raw_client_id(request);
        let is_known = |known: &&Match| {
            (known.is_answered, known.api_key, known.api_version)
                == (is_answered, header.api_key, header.api_version)
                && known.client_id.as_deref() == client_id
        };
        if let Some(known) = self.matches.iter().find(is_known) {
            return Ok(known.results);
        }
        let text = self.client_id(py, header, request);
        let identity = self.identity.each_ref();
        let info = self.info(py, python)?;
        let arguments = (
            info,
            identity,
            is_answered,
            header.api_key,
            header.api_version,
            text,
        );
        let results = conditions.of_client.bind(py).call1(arguments)?.extract()?;
        if client_id.is_none_or(|id| id.len() <= MATCH_BYTES) {
            if self.matches.len() >= MATCHES {
                self.matches.clear();
            }
            self.matches.push(Match {
                is_answered,
                api_key: header.api_key,
                api_version: header.api_version,
                client_id: client_id.map(Box::from),
                results,
            });
        }
        Ok(results)
    }

    pub(super) fn client_id<'py>(
        &mut self,
        py: Python<'py>,
        header: &Header,
        frame: &Frame,
    ) -> Bound<'py, PyAny> {
        let Some(bytes) = header.raw_client_id(frame) else {
            return py.None().into_bound(py);
        };
        if let Some((_, text)) = self.client_id.as_ref().filter(|(known, _)| **known == *bytes) {
            return text.bind(py).clone().into_any();
        }
        let text = PyString::new(py, &String::from_utf8_lossy(bytes)); // it is known to be UTF-8
        self.client_id = Some((bytes.into(), text.clone().unbind()));
        text.into_any()
    }
}

impl Lending {
    /// Keeps Python's side of a connection that has come here.
    pub(super) fn link(
        &mut self,
        py: Python<'_>,
        slot: usize,
        side: Holder,
        ends: Box<[u8]>,
        info: Option<Handle>,
        identity: [Handle; 4],
    ) {
        if self.links.len() <= slot {
            self.links.resize_with(slot + 1, || None);
        }
        let shared = PyOnceLock::new();
        if let Some(info) = info {
            _ = shared.set(py, info); // it is empty
        }
        self.links[slot] = Some(Link {
            side,
            ends,
            info: shared,
            software: [0, 1].map(|index| identity[index].clone()),
            identity,
            client_id: None,
            shared: None,
            matches: Vec::new(),
            number: None,
            queued: 0,
            latest: (0, 0),
            waiting: 0,
            is_released: false,
        });
    }

    /// The number of a connection in keys: its ID and the lowest bits of its ordinal, as in
    /// kdissect/runs/worker.py.
    pub(super) fn number(&mut self, py: Python<'_>, slot: usize) -> PyResult<i64> {
        let Some(link) = self.links.get_mut(slot).and_then(Option::as_mut) else {
            return Ok(0);
        };
        if let Some(number) = link.number {
            return Ok(number);
        }
        let (id, ordinal): (String, i64) = link.info(py, &self.python)?.bind(py).getattr("key")?.extract()?;
        let number = i64::from_str_radix(&id, 16)? << 15 | ordinal & 0x7FFF;
        link.number = Some(number);
        Ok(number)
    }

    /// Learns from a finished ApiVersions exchange which software the client is: as it `is_queued`, or is taken.
    pub(super) fn learn(
        &mut self,
        py: Python<'_>,
        finished: &Finished<Object>,
        is_queued: bool,
    ) -> PyResult<()> {
        let Message::Frame(header, frame) = &finished.request.message else {
            return Ok(());
        };
        if header.api_key != API_VERSIONS {
            return Ok(());
        }
        let (_, name, version_sent) = self
            .answers
            .introductions
            .of(&self.python, &PyBytes::new(py, &frame.data))?;
        if let Some(link) = self.links.get_mut(finished.slot).and_then(Option::as_mut) {
            let [software, version, ..] = &mut link.identity;
            let known = if is_queued {
                link.software.each_mut()
            } else {
                [software, version]
            };
            for (known, new) in known.into_iter().zip([name, version_sent]) {
                if !new.bind(py).is_none() {
                    *known = new;
                    link.shared = None;
                    link.matches.clear();
                }
            }
        }
        Ok(())
    }

    /// Python takes the next exchange of a connection, or it is no longer here.
    pub(super) fn leave(&mut self, py: Python<'_>, slot: usize) {
        if let (Some(page), Some(Some(link))) = (&mut self.page, self.links.get(slot)) {
            if let Some(info) = link.info.get(py) {
                page.leave(info);
                if let Some(conditions) = &mut self.conditions {
                    conditions.leave(info);
                }
            }
        }
    }

    /// A connection has ended.
    pub(super) fn let_go(&mut self, py: Python<'_>, slot: usize) -> PyResult<()> {
        if let Some(link) = self.links.get_mut(slot).and_then(Option::as_mut) {
            link.is_released = true;
            if link.queued + link.waiting > 0 {
                link.info(py, &self.python)?; // later it would get the ID of the next one
            }
        }
        self.forget(py, slot);
        Ok(())
    }

    /// Forgets a connection that was given back, once nothing of it is queued.
    pub(super) fn forget(&mut self, py: Python<'_>, slot: usize) {
        let is_gone = |link: &Link| link.is_released && link.queued + link.waiting == 0;
        if self.links.get(slot).and_then(Option::as_ref).is_some_and(is_gone) {
            self.leave(py, slot);
            self.links[slot] = None;
            self.stage.reuse(slot);
        }
    }
}
