//! What the stage asks -> what Python answers; answers about an API, and about a request, are kept.

use std::collections::{BTreeMap, HashMap};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::exchanges::connection::{Apis, BeforeAcks, Usual};
use crate::python::handle::{answer, Object};
use crate::python::opener::keep_interrupt;
use crate::sinks::facts::Handle;

/// Introductions known at a time, and the longest one.
const INTRODUCTIONS: usize = 1024;
const INTRODUCTION_BYTES: usize = 1024;
const CORRELATION_ID: std::ops::Range<usize> = 4..8;

/// Functions and classes of Python.
#[derive(FromPyObject)]
pub(super) struct Callbacks {
    /// What is usual, see lending.py.
    usual: Object,
    /// From a request to its [`Introduction`].
    pub(super) introduction: Object,
    /// Whether a connection may open between these ends.
    pub(super) may_open: Object,
    /// From API key and version to whether requests of it are known.
    is_known: Object,
    /// From the first bytes of a side, and whether they are the first of all and the client's, to a protocol.
    pub(super) refused: Object,
    /// Number of the shard of connections to take, and of shards. None: there is only one.
    pub(super) shard: Option<(u32, u32)>,
    /// From API key and version to whether exchanges are passed on. None: all are.
    pub(super) is_needed: Option<Object>,
    /// From ends and time of a SYN, and the connection's number, to what its exchanges share.
    pub(super) info: Object,
    /// From API key and version to a [`TopicIdPlan`]. None: there are no topic IDs.
    pub(super) topic_ids: Object,
    pub(super) exchange: Object,
    pub(super) frame: Object,
    pub(super) request_header: Object,
    /// `tuple.__new__`.
    pub(super) new: Object,
}

/// What Python says of an API in one version.
pub(super) struct SharedApi {
    pub(super) name: Object,
    usual: Usual,
}

/// APIs by key and version; None: left to Python.
pub(super) type SharedApis = BTreeMap<(i16, i16), Option<SharedApi>>;

/// What Python says of a request: whether a connection is recognized by it if it is the first; and name and
/// version of the client's software.
type Introduction = (bool, Handle, Handle);

/// What Python says of requests, by their bytes without correlation ID.
#[derive(Default)]
pub(super) struct Introductions {
    known: HashMap<Box<[u8]>, Introduction>,
}

/// What Python has answered.
pub(super) struct Answers {
    pub(super) apis: SharedApis,
    pub(super) introductions: Introductions,
    /// Those that are not Kafka; the first is none.
    pub(super) protocols: Vec<String>,
}

pub(super) struct Asking<'a, 'py> {
    py: Python<'py>,
    answers: &'a mut Answers,
    python: &'a Callbacks,
}

impl Answers {
    /// Asks Python about what is not known yet.
    pub(super) fn asking<'a, 'py>(&'a mut self, py: Python<'py>, python: &'a Callbacks) -> Asking<'a, 'py> {
        Asking {
            py,
            answers: self,
            python,
        }
    }
}

impl Introductions {
    pub(super) fn of<'py>(
        &mut self,
        python: &Callbacks,
        frame: &Bound<'py, PyBytes>,
    ) -> PyResult<Introduction> {
        let py = frame.py();
        let mut key = frame.as_bytes().to_vec();
        let is_kept = key.len() <= INTRODUCTION_BYTES;
        if let Some(id) = key.get_mut(CORRELATION_ID).filter(|_| is_kept) {
            id.fill(0);
            if let Some(known) = self.known.get(&key[..]) {
                return Ok(known.clone());
            }
        }
        let introduction: Introduction = python.introduction.bind(py).call1((frame,))?.extract()?;
        if is_kept {
            if self.known.len() >= INTRODUCTIONS {
                self.known.clear();
            }
            self.known.insert(key.into(), introduction.clone());
        }
        Ok(introduction)
    }
}

impl Apis for Asking<'_, '_> {
    fn usual(&mut self, api_key: i16, api_version: i16) -> Option<Usual> {
        let (py, python, apis) = (self.py, self.python, &mut self.answers.apis);
        let api = apis.entry((api_key, api_version)).or_insert_with(|| {
            let (name, has_tags, before): (Object, bool, u8) =
                answer(py, &python.usual, (api_key, api_version))?;
            let is_needed = match &python.is_needed {
                Some(is_needed) => answer(py, is_needed, (api_key, api_version))?,
                None => true,
            };
            let before_acks = match before {
                0 => BeforeAcks::Nothing,
                1 => BeforeAcks::Text,
                _ => BeforeAcks::CompactText,
            };
            Some(SharedApi {
                name,
                usual: Usual {
                    has_tags,
                    before_acks,
                    is_needed,
                },
            })
        });
        api.as_ref().map(|api| api.usual)
    }

    fn is_first(&mut self, frame: &[u8]) -> bool {
        let frame = PyBytes::new(self.py, frame);
        let introduction = self.answers.introductions.of(self.python, &frame);
        introduction
            .inspect_err(|error| keep_interrupt(self.py, error))
            .is_ok_and(|(is_first, ..)| is_first)
    }

    fn refused(&mut self, payload: &[u8], begins: bool, ends: &[u8]) -> Option<usize> {
        let [payload, ends] = [payload, ends].map(|each| PyBytes::new(self.py, each));
        let protocol: Option<String> = answer(self.py, &self.python.refused, (payload, begins, ends))?;
        let protocol = protocol?;
        let known = self.answers.protocols.iter().position(|each| *each == protocol);
        known.or_else(|| {
            self.answers.protocols.push(protocol);
            Some(self.answers.protocols.len() - 1)
        })
    }

    fn is_known(&mut self, api_key: i16, api_version: i16) -> bool {
        answer(self.py, &self.python.is_known, (api_key, api_version)).unwrap_or(true)
    }

    fn may_open(&mut self, ends: &[u8]) -> bool {
        let ends = PyBytes::new(self.py, ends);
        answer(self.py, &self.python.may_open, (ends,)).unwrap_or(false)
    }
}
