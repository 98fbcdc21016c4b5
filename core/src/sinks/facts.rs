//! What is known of an exchange that is to be described: its frames, what Python is asked, and what it is given.

use std::any::Any;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::exchanges::connection::{Frame, Header};
use crate::exchanges::latency::Parts;
use crate::kafka::tree::{Bodies, Decoded, TopicNames};
use crate::{Odd, Why};

/// An object of Python. It is kept, compared and given back; only core/src/python looks into it.
#[derive(Clone)]
pub struct Handle {
    /// No other object has it as long as this one is kept.
    pub address: usize,
    pub object: Arc<dyn Any + Send + Sync>,
}

impl Handle {
    pub fn is(&self, other: &Handle) -> bool {
        self.address == other.address
    }
}

/// The names of the captures of interfaces, which Python knows; of the latest one, it is kept.
#[allow(clippy::type_complexity)] // of a function
pub struct Captures {
    name: Box<dyn Fn(&Handle) -> Result<String, Odd> + Send + Sync>,
    latest: Option<(Handle, Arc<str>)>,
}

impl Captures {
    pub fn new(name: impl Fn(&Handle) -> Result<String, Odd> + Send + Sync + 'static) -> Self {
        Captures {
            name: Box::new(name),
            latest: None,
        }
    }

    pub fn of(&mut self, interface: &Handle) -> Result<Arc<str>, Odd> {
        match &self.latest {
            Some((known, name)) if known.is(interface) => Ok(name.clone()),
            _ => {
                let name: Arc<str> = (self.name)(interface)?.into();
                self.latest = Some((interface.clone(), name.clone()));
                Ok(name)
            }
        }
    }
}

/// Text, or a value for a column; for a struct, the values of its fields.
pub enum Constant {
    Text(String),
    Number(i64),
    Fields(HashMap<String, Option<Constant>>),
}

/// Texts, or values for columns, that several exchanges share.
pub type Constants = Vec<Option<Constant>>;

/// `CommonPlan` of kdissect/sinks/plan.py. `T`: what describes the bodies of an API in one version. The functions
/// ask Python.
#[allow(clippy::type_complexity)] // of functions
pub struct CommonPlan<T> {
    /// Of the exchanges of a connection.
    pub shared: Box<dyn Fn(&dyn Known) -> Result<Constants, Odd> + Send + Sync>,
    /// By API key and version. None: it is left to Python.
    pub api: Box<dyn Fn(i16, i16) -> Option<Api<T>> + Send + Sync>,
    /// The name of an error code.
    pub error: Box<dyn Fn(i64) -> Result<String, Odd> + Send + Sync>,
    /// The name of a topic ID when an exchange was completed.
    pub topic_name: Box<dyn Fn(&str, i64) -> Option<String> + Send + Sync>,
    /// Keeps the name of a topic ID.
    pub learn_name: Box<dyn Fn(&str, &str) -> Result<(), Odd> + Send + Sync>,
    /// The texts before the decimal point of a second and after its digits.
    pub around: Box<dyn Fn(i64) -> Result<(String, String), Odd> + Send + Sync>,
    /// Memory limit for the bodies of an exchange.
    pub budget: i64,
    /// Whether exchanges with errors in the response are left to Python.
    pub leaves_flaws: bool,
}

/// Takes what a connection shares, and the cluster that an exchange names. Returns whether what the connection shares
/// has changed.
pub type Learn = dyn Fn(&Handle, &str) -> Result<bool, Odd> + Send + Sync;

/// What is known of a connection.
pub trait Known {
    /// What its exchanges share.
    fn info(&self) -> Result<&Handle, Odd>;
    /// Its endpoints, the client's first, if its SYN was captured.
    fn ends(&self) -> Option<&[u8]>;
    /// Software name and version, principal, SASL mechanism.
    fn identity(&self) -> &[Handle; 4];
    /// What its exchanges share has changed.
    fn renew(&self);
}

impl Constant {
    pub fn text(constant: &Option<Constant>) -> &str {
        match constant {
            Some(Constant::Text(text)) => text,
            _ => "",
        }
    }
}

/// A request that expects no response, or got none.
pub struct Unacknowledged<'a> {
    pub known: &'a dyn Known,
    pub interface: &'a Handle,
    pub number: u64,
    pub header: &'a Header,
    pub request: &'a Frame,
    pub completed_ns: i64,
    /// Of one that got none, the first FIN: its time, and whether it was the client's.
    pub ended: Option<Option<(i64, bool)>>,
    /// See [`Answered`].
    pub is_selected: bool,
}

/// An exchange as frames, which Python decodes.
pub struct Framed<'a> {
    pub known: &'a dyn Known,
    pub interface: &'a Handle,
    pub number: u64,
    pub header: &'a Header,
    pub request: &'a Frame,
    pub response: Option<&'a Frame>,
}

impl<'a> From<&Answered<'a>> for Framed<'a> {
    fn from(exchange: &Answered<'a>) -> Self {
        Framed {
            known: exchange.known,
            interface: exchange.interface,
            number: exchange.number,
            header: exchange.header,
            request: exchange.request,
            response: Some(exchange.response),
        }
    }
}

impl<'a> From<&Unacknowledged<'a>> for Framed<'a> {
    fn from(exchange: &Unacknowledged<'a>) -> Self {
        Framed {
            known: exchange.known,
            interface: exchange.interface,
            number: exchange.number,
            header: exchange.header,
            request: exchange.request,
            response: None,
        }
    }
}

/// An answered exchange.
pub struct Answered<'a> {
    pub known: &'a dyn Known,
    pub interface: &'a Handle,
    pub number: u64,
    pub header: &'a Header,
    pub request: &'a Frame,
    pub response: &'a Frame,
    /// Whether it gets a row. If not, it changes what its connection remembers, and what is learned from it, all
    /// the same.
    pub is_selected: bool,
    /// Whether it is left to Python if there are errors in the response.
    pub leaves_errors: bool,
    /// The parts of its latency, if they are known already.
    pub parts: Option<Parts>,
}

impl<'a> Answered<'a> {
    pub fn request_body(&self) -> Result<&'a [u8], Odd> {
        self.request.data.get(self.header.body_pos..).ok_or(Odd)
    }

    /// `tags`: the bytes after the correlation ID.
    pub fn response_body(&self, tags: &[u8]) -> Result<&'a [u8], Odd> {
        self.response.response_body(tags)
    }

    /// See [`Header::is_rejected`].
    pub fn is_rejected(&self) -> bool {
        self.header.is_rejected(self.response)
    }

    /// Decodes the bodies. `tags`: as for `response_body`.
    pub fn decoded(&self, bodies: &Bodies, tags: &[u8], budget: i64) -> Result<Decoded<'a>, Odd> {
        let mut decoded = bodies.decoded_request(self.request_body()?, budget)?;
        self.header
            .add_response(bodies, &mut decoded, (self.response, tags), budget)?;
        Ok(decoded)
    }

    /// Odd if it has errors that are left to Python.
    pub fn check_errors(&self, has_errors: bool) -> Result<(), Odd> {
        match self.leaves_errors && has_errors {
            true => Err(Why::Error.odd()),
            false => Ok(()),
        }
    }

    pub fn latency_ns(&self) -> Result<i64, Odd> {
        self.response.latency_ns(self.request)
    }

    /// `Exchange.total_us`.
    pub fn total_us(&self) -> Option<i64> {
        self.response.total_us(self.request)
    }
}

/// What describes the bodies of an API version; the bytes after the correlation ID of a response; and the texts that
/// such exchanges share.
pub type Api<T> = (T, Vec<u8>, Constants);

/// APIs by key and version. There are few, so a tree is faster than a hash table.
pub struct KnownApis<T>(BTreeMap<(i16, i16), Option<Api<T>>>);

impl<T> Default for KnownApis<T> {
    fn default() -> Self {
        KnownApis(BTreeMap::new())
    }
}

impl<T> KnownApis<T> {
    pub fn get(&mut self, common: &CommonPlan<T>, header: &Header) -> Result<&Api<T>, Odd> {
        let known = self.0.entry((header.api_key, header.api_version));
        let api = known.or_insert_with_key(|(api_key, api_version)| (common.api)(*api_key, *api_version));
        api.as_ref().ok_or_else(|| Why::Layout.odd())
    }
}

/// Names of error codes.
#[derive(Default)]
pub struct Errors(HashMap<i64, String>);

impl Errors {
    pub fn name<T>(&mut self, common: &CommonPlan<T>, code: i64) -> Result<&str, Odd> {
        if let Entry::Vacant(place) = self.0.entry(code) {
            place.insert((common.error)(code)?);
        }
        self.0.get(&code).map(String::as_str).ok_or(Odd)
    }
}

impl<T> CommonPlan<T> {
    /// Whether an exchange with or without errors or an anomaly is on the fast path.
    pub fn check_flaws(&self, has_flaws: bool) -> Result<(), Odd> {
        if self.leaves_flaws && has_flaws {
            return Err(Why::Error.odd());
        }
        Ok(())
    }

    /// Names in an exchange that was completed then.
    pub fn topics(&self, completed_ns: i64) -> NamesThen<'_, T> {
        NamesThen {
            common: self,
            completed_ns,
        }
    }
}

pub struct NamesThen<'a, T> {
    common: &'a CommonPlan<T>,
    completed_ns: i64,
}

impl<T> TopicNames for NamesThen<'_, T> {
    fn name(&self, id: &str) -> Option<String> {
        (self.common.topic_name)(id, self.completed_ns)
    }

    fn learn(&self, id: &str, name: &str) -> Result<(), Odd> {
        (self.common.learn_name)(id, name)
    }
}
