//! Answered exchanges -> the counts of kdissect/stats/connection_log.py, by connection.

use std::collections::HashMap;

use pyo3::prelude::*;

use crate::exchanges::connection::API_VERSIONS;
use crate::sinks::facts::{Answered, Object};
use crate::Odd;

#[derive(FromPyObject)]
pub struct ConnectionPlan {
    /// Called with the counts.
    take: Object,
    /// Keys of APIs whose responses brokers may delay.
    waiting: Vec<i16>,
}

/// The counts since the caller last took them.
pub struct Log {
    plan: ConnectionPlan,
    /// By the address of the object that their exchanges share.
    connections: HashMap<usize, Counted>,
    exchanges: u64,
}

pub struct Counted {
    info: Object,
    /// Of the first exchange: interface, client ID and time.
    interface: Object,
    client_id: Option<String>,
    first_ns: i64,
    pub exchanges: u64,
    /// Those of them that are no handshake; see `HANDSHAKE_APIS` of kdissect/stats/connection_log.py.
    served: u64,
    is_selected: bool,
    /// Of requests and responses.
    bytes: [u64; 2],
    /// Of the last exchange: its place among all, software name and version, principal and SASL mechanism, and its
    /// end.
    pub place: u64,
    identity: [Object; 4],
    last_ns: i64,
    /// When the last request that does not wait by design was sent, and when its response came.
    last_call: Option<(i64, i64)>,
    /// Keys of the others.
    waited: Vec<i16>,
}

impl Log {
    pub fn new(plan: ConnectionPlan) -> Self {
        Log {
            plan,
            connections: HashMap::new(),
            exchanges: 0,
        }
    }

    /// `bytes`: of both frames.
    pub fn add(
        &mut self,
        py: Python<'_>,
        exchange: &Answered<'_>,
        client_id: Option<&str>,
        bytes: [u64; 2],
    ) -> Result<(), Odd> {
        let info = exchange.known.info(py).map_err(|_| Odd)?;
        self.exchanges += 1;
        let counted = self
            .connections
            .entry(info.as_ptr() as usize)
            .or_insert_with(|| Counted::new(py, info.unbind(), exchange));
        counted.place = self.exchanges;
        counted.add(py, exchange, client_id, bytes, &self.plan);
        Ok(())
    }

    /// Passes on the counts, in the order of the last exchanges.
    pub fn flush(&mut self, py: Python<'_>) -> PyResult<()> {
        let mut all: Vec<Counted> = self.connections.drain().map(|(_, counted)| counted).collect();
        all.sort_by_key(|counted| counted.place);
        all.into_iter().try_for_each(|each| each.pass_on(py, &self.plan))
    }
}

impl Counted {
    /// Empty counts for the connection of an exchange.
    pub fn new(py: Python<'_>, info: Object, exchange: &Answered<'_>) -> Self {
        Counted {
            info,
            interface: exchange.interface.clone_ref(py),
            client_id: None,
            first_ns: exchange.request.start_ns,
            exchanges: 0,
            served: 0,
            is_selected: false,
            bytes: [0, 0],
            place: 0,
            identity: exchange
                .known
                .identity()
                .each_ref()
                .map(|each| each.clone_ref(py)),
            last_ns: 0,
            last_call: None,
            waited: Vec::new(),
        }
    }

    /// `bytes`: of both frames.
    pub fn add(
        &mut self,
        py: Python<'_>,
        exchange: &Answered<'_>,
        client_id: Option<&str>,
        bytes: [u64; 2],
        plan: &ConnectionPlan,
    ) {
        let (request, response) = (exchange.request, exchange.response);
        if self.client_id.is_none() {
            self.client_id = client_id.map(str::to_owned);
        }
        for (known, new) in self.identity.iter_mut().zip(exchange.known.identity()) {
            if !known.is(new) {
                *known = new.clone_ref(py);
            }
        }
        let api_key = exchange.header.api_key;
        self.exchanges += 1;
        self.served += u64::from(api_key != API_VERSIONS); // the core leaves the others to Python
        self.is_selected |= exchange.is_selected;
        self.bytes = [self.bytes[0] + bytes[0], self.bytes[1] + bytes[1]];
        self.last_ns = response.end_ns;
        if plan.waiting.contains(&api_key) {
            if !self.waited.contains(&api_key) {
                self.waited.push(api_key);
            }
        } else {
            self.last_call = Some((request.end_ns, response.start_ns));
        }
    }

    pub fn pass_on(self, py: Python<'_>, plan: &ConnectionPlan) -> PyResult<()> {
        let arguments = (
            self.info,
            self.interface,
            self.identity,
            self.client_id,
            (self.exchanges, self.served),
            self.is_selected,
            self.bytes,
            (self.first_ns, self.last_ns),
            self.last_call,
            self.waited,
        );
        plan.take.bind(py).call1(arguments).map(|_| ())
    }
}
