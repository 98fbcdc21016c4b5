//! Exchanges that are whole -> the counts of kdissect/stats/connection_log.py, by connection.

use std::collections::HashMap;

use crate::exchanges::connection::API_VERSIONS;
use crate::sinks::facts::{Answered, Handle, Known, Unacknowledged};
use crate::Odd;

/// The counts since the caller last took them.
pub struct Log {
    /// Keys of APIs whose responses brokers may delay.
    waiting: Vec<i16>,
    /// By the address of the object that their exchanges share.
    connections: HashMap<usize, Counted>,
    exchanges: u64,
}

pub struct Counted {
    pub info: Handle,
    /// Of the first exchange: interface, client ID and time.
    pub interface: Handle,
    pub client_id: Option<String>,
    pub first_ns: i64,
    /// Those that were answered.
    pub exchanges: u64,
    /// Those of them that are no handshake; see `HANDSHAKE_APIS` of kdissect/stats/connection_log.py.
    pub served: u64,
    pub unacknowledged: u64,
    /// Whether a response refuses the client.
    pub is_refused: bool,
    pub is_selected: bool,
    /// Of requests and responses.
    pub bytes: [u64; 2],
    /// Of the last exchange: its place among all, software name and version, principal and SASL mechanism, and its
    /// end.
    pub place: u64,
    pub identity: [Handle; 4],
    pub last_ns: i64,
    /// When the last request that does not wait by design was sent, and when its response came.
    pub last_call: Option<(i64, i64)>,
    /// Keys of the others.
    pub waited: Vec<i16>,
}

impl Log {
    pub fn new(waiting: Vec<i16>) -> Self {
        Log {
            waiting,
            connections: HashMap::new(),
            exchanges: 0,
        }
    }

    /// `bytes`: of both frames.
    pub fn add(
        &mut self,
        exchange: &Answered<'_>,
        client_id: Option<&str>,
        bytes: [u64; 2],
    ) -> Result<(), Odd> {
        let info = exchange.known.info()?;
        self.exchanges += 1;
        let counted = self.connections.entry(info.address).or_insert_with(|| {
            Counted::new(
                info.clone(),
                exchange.interface,
                exchange.request.start_ns,
                exchange.known,
            )
        });
        counted.place = self.exchanges;
        counted.add(exchange, client_id, bytes, &self.waiting);
        Ok(())
    }

    /// Hands over the counts, in the order of the last exchanges.
    pub fn flush(&mut self) -> Vec<Counted> {
        let mut all: Vec<Counted> = self.connections.drain().map(|(_, counted)| counted).collect();
        all.sort_by_key(|counted| counted.place);
        all
    }
}

impl Counted {
    /// Empty counts for the connection of an exchange.
    pub fn new(info: Handle, interface: &Handle, first_ns: i64, known: &dyn Known) -> Self {
        Counted {
            info,
            interface: interface.clone(),
            client_id: None,
            first_ns,
            exchanges: 0,
            served: 0,
            unacknowledged: 0,
            is_refused: false,
            is_selected: false,
            bytes: [0, 0],
            place: 0,
            identity: known.identity().clone(),
            last_ns: 0,
            last_call: None,
            waited: Vec::new(),
        }
    }

    /// `bytes`: of both frames.
    pub fn add(
        &mut self,
        exchange: &Answered<'_>,
        client_id: Option<&str>,
        bytes: [u64; 2],
        waiting: &[i16],
    ) {
        let (request, response) = (exchange.request, exchange.response);
        self.add_any(
            exchange.known,
            client_id,
            bytes,
            exchange.is_selected,
            response.end_ns,
        );
        let api_key = exchange.header.api_key;
        self.exchanges += 1;
        self.served += u64::from(api_key != API_VERSIONS); // the core leaves the others to Python
        if waiting.contains(&api_key) {
            if !self.waited.contains(&api_key) {
                self.waited.push(api_key);
            }
        } else {
            self.last_call = Some((request.end_ns, response.start_ns));
        }
    }

    /// Adds a request that expects no response.
    pub fn add_unacknowledged(&mut self, exchange: &Unacknowledged<'_>, client_id: Option<&str>, bytes: u64) {
        let (known, is_selected) = (exchange.known, exchange.is_selected);
        self.add_any(known, client_id, [bytes, 0], is_selected, exchange.request.end_ns);
        self.unacknowledged += 1;
    }

    fn add_any(
        &mut self,
        known: &dyn Known,
        client_id: Option<&str>,
        bytes: [u64; 2],
        is_selected: bool,
        last_ns: i64,
    ) {
        if self.client_id.is_none() {
            self.client_id = client_id.map(str::to_owned);
        }
        for (before, new) in self.identity.iter_mut().zip(known.identity()) {
            if !before.is(new) {
                *before = new.clone();
            }
        }
        self.is_selected |= is_selected;
        self.bytes = [self.bytes[0] + bytes[0], self.bytes[1] + bytes[1]];
        self.last_ns = last_ns;
    }
}
