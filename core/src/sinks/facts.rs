//! What Python and the core know of an exchange that is to be described: its frames, and what Python is called for.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::exchanges::connection::{Frame, Header, API_VERSIONS};
use crate::python::line::PyTopicNames;
use crate::sinks::decimal::push_digits;
use crate::Odd;

pub type Object = Py<PyAny>;

const SECOND_NS: i64 = 1_000_000_000;
const CORRELATION_ID_BYTES: usize = 4;
/// The first bytes of an ApiVersions response of any version.
const UNSUPPORTED_VERSION: [u8; 2] = 35i16.to_be_bytes();

/// Text, or a value for a column; for a struct, the values of its fields.
#[derive(FromPyObject)]
pub enum Constant {
    Text(String),
    Number(i64),
    Fields(HashMap<String, Option<Constant>>),
}

/// What all lines need.
#[derive(FromPyObject)]
pub struct CommonPlan {
    /// Function: the object shared by a connection's exchanges and what is known about its client -> the texts they
    /// share.
    shared: Object,
    /// Function: API key and version -> the class for their bodies, the bytes after the correlation ID of a
    /// response, and the texts that such exchanges share. None if they are left to Python.
    api: Object,
    /// Function: error code -> name.
    error: Object,
    /// Function: topic ID, and completion time of an exchange -> topic name, or None.
    topic_name: Object,
    /// Function that learns a topic ID and its name.
    learn_name: Object,
    /// Function: second -> the texts before the decimal point and after the digits.
    around: Object,
    /// Memory limit for the bodies of an exchange.
    pub budget: i64,
    /// Whether exchanges with errors in the response are left to Python.
    leaves_flaws: bool,
}

/// What is known of a connection.
pub trait Known {
    /// The object that its exchanges share.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>>;
    /// Its endpoints, the client's first, if its SYN was captured.
    fn ends(&self) -> Option<&[u8]>;
    /// Software name and version, principal, SASL mechanism.
    fn identity(&self) -> &[Object; 4];
}

impl Constant {
    pub fn text(constant: &Option<Constant>) -> &str {
        match constant {
            Some(Constant::Text(text)) => text,
            _ => "",
        }
    }
}

/// A request that expects no response.
pub struct Unacknowledged<'a> {
    pub known: &'a dyn Known,
    pub header: &'a Header,
    pub request: &'a Frame,
    pub completed_ns: i64,
    /// See [`Answered`].
    pub is_selected: bool,
}

/// An answered exchange.
pub struct Answered<'a> {
    pub known: &'a dyn Known,
    pub interface: &'a Object,
    pub number: u64,
    pub header: &'a Header,
    pub request: &'a Frame,
    pub response: &'a Frame,
    /// Whether it gets a row. If not, it changes what its connection remembers, and what is learned from it, all
    /// the same.
    pub is_selected: bool,
}

impl<'a> Answered<'a> {
    pub fn request_body(&self) -> Result<&'a [u8], Odd> {
        self.request.data.get(self.header.body_pos..).ok_or(Odd)
    }

    /// `tags`: the bytes after the correlation ID.
    pub fn response_body(&self, tags: &[u8]) -> Result<&'a [u8], Odd> {
        let rest = self.response.data.get(CORRELATION_ID_BYTES..).ok_or(Odd)?;
        rest.strip_prefix(tags).ok_or(Odd)
    }

    /// Whether the broker does not support this version of ApiVersions, and responds in version 0 (KIP-511).
    pub fn is_rejected(&self) -> bool {
        let body = self.response.data.get(CORRELATION_ID_BYTES..);
        self.header.api_key == API_VERSIONS && body.is_some_and(|body| body.starts_with(&UNSUPPORTED_VERSION))
    }

    pub fn latency_ns(&self) -> Result<i64, Odd> {
        self.response.start_ns.checked_sub(self.request.end_ns).ok_or(Odd)
    }

    /// `Exchange.total_us`.
    pub fn total_us(&self) -> Option<i64> {
        let latency_us = self.latency_ns().ok()?.div_euclid(1000);
        let [request_us, response_us] = [self.request, self.response].map(Frame::transfer_us);
        let total_us = request_us?.checked_add(latency_us)?.checked_add(response_us?);
        total_us.filter(|_| latency_us >= 0)
    }
}

/// The class for the bodies of an API version, and what else [`CommonPlan`] has about it.
pub type Api<T> = (Py<T>, Py<PyBytes>, Vec<Option<Constant>>);

/// APIs by key and version. There are few, so a tree is faster than a hash table.
pub struct KnownApis<T>(BTreeMap<(i16, i16), Option<Api<T>>>);

impl<T> Default for KnownApis<T> {
    fn default() -> Self {
        KnownApis(BTreeMap::new())
    }
}

impl<T: pyo3::PyClass> KnownApis<T> {
    pub fn get(&mut self, py: Python<'_>, common: &CommonPlan, header: &Header) -> Result<&Api<T>, Odd> {
        let known = self.0.entry((header.api_key, header.api_version));
        let api = known.or_insert_with_key(|place| common.api.bind(py).call1(*place).ok()?.extract().ok()?);
        api.as_ref().ok_or(Odd)
    }
}

/// Texts around the digits of the latest second.
#[derive(Default)]
pub struct Clock(Option<(i64, String, String)>);

impl Clock {
    /// Writes a time, with this many digits after the decimal point.
    pub fn write(
        &mut self,
        py: Python<'_>,
        common: &CommonPlan,
        time_ns: i64,
        places: u32,
        out: &mut String,
    ) -> Result<(), Odd> {
        let (second, rest) = (time_ns.div_euclid(SECOND_NS), time_ns.rem_euclid(SECOND_NS));
        if self.0.as_ref().is_none_or(|known| known.0 != second) {
            let around = common.around.bind(py).call1((second,)).map_err(|_| Odd)?;
            let (before, after) = around.extract().map_err(|_| Odd)?;
            self.0 = Some((second, before, after));
        }
        let (_, before, after) = self.0.as_ref().ok_or(Odd)?;
        let left_out = 9_u32.checked_sub(places).ok_or(Odd)?;
        out.push_str(before);
        out.push('.');
        push_digits(out, rest.unsigned_abs() / 10_u64.pow(left_out), places as usize);
        out.push_str(after);
        Ok(())
    }
}

/// Names of error codes.
#[derive(Default)]
pub struct Errors(HashMap<i64, String>);

impl Errors {
    pub fn name(&mut self, py: Python<'_>, common: &CommonPlan, code: i64) -> Result<&str, Odd> {
        if let Entry::Vacant(place) = self.0.entry(code) {
            let name = common.error.bind(py).call1((code,)).map_err(|_| Odd)?;
            place.insert(name.extract().map_err(|_| Odd)?);
        }
        self.0.get(&code).map(String::as_str).ok_or(Odd)
    }
}

impl CommonPlan {
    /// Whether an exchange with or without errors or an anomaly is on the fast path.
    pub fn check_flaws(&self, has_flaws: bool) -> Result<(), Odd> {
        if self.leaves_flaws && has_flaws {
            return Err(Odd);
        }
        Ok(())
    }

    /// The texts that the exchanges of a connection share.
    pub fn shared(&self, py: Python<'_>, known: &dyn Known) -> PyResult<Vec<Option<Constant>>> {
        let arguments = (known.info(py)?, known.identity().each_ref());
        self.shared.bind(py).call1(arguments)?.extract()
    }

    pub fn topics<'a, 'py>(&'a self, py: Python<'py>, completed_ns: i64) -> PyTopicNames<'a, 'py> {
        PyTopicNames(
            self.topic_name.bind(py),
            self.learn_name.bind(py),
            Some(completed_ns),
        )
    }
}
