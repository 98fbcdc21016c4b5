//! Answered exchanges -> the counts of kdissect/stats/connection_log.py, by connection.

use std::collections::HashMap;

use crate::exchanges::connection::API_VERSIONS;
use crate::sinks::facts::{Answered, Handle};
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
    pub exchanges: u64,
    /// Those of them that are no handshake; see `HANDSHAKE_APIS` of kdissect/stats/connection_log.py.
    pub served: u64,
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
        let counted = self
            .connections
            .entry(info.address)
            .or_insert_with(|| Counted::new(info.clone(), exchange));
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
    pub fn new(info: Handle, exchange: &Answered<'_>) -> Self {
        Counted {
            info,
            interface: exchange.interface.clone(),
            client_id: None,
            first_ns: exchange.request.start_ns,
            exchanges: 0,
            served: 0,
            is_selected: false,
            bytes: [0, 0],
            place: 0,
            identity: exchange.known.identity().clone(),
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
        if self.client_id.is_none() {
            self.client_id = client_id.map(str::to_owned);
        }
        for (known, new) in self.identity.iter_mut().zip(exchange.known.identity()) {
            if !known.is(new) {
                *known = new.clone();
            }
        }
        let api_key = exchange.header.api_key;
        self.exchanges += 1;
        self.served += u64::from(api_key != API_VERSIONS); // the core leaves the others to Python
        self.is_selected |= exchange.is_selected;
        self.bytes = [self.bytes[0] + bytes[0], self.bytes[1] + bytes[1]];
        self.last_ns = response.end_ns;
        if waiting.contains(&api_key) {
            if !self.waited.contains(&api_key) {
                self.waited.push(api_key);
            }
        } else {
            self.last_call = Some((request.end_ns, response.start_ns));
        }
    }
}
