//! Answered exchanges -> what kdissect/stats/connection_log.py counts of them, connection by connection.

use std::collections::HashMap;

use pyo3::prelude::*;

use crate::page::{Answered, Object};
use crate::Odd;

#[derive(FromPyObject)]
pub struct LogForm {
    /// Takes the counts.
    take: Object,
    /// Keys of the APIs whose responses brokers delay.
    waiting: Vec<i16>,
}

/// The exchanges since the caller took them.
pub struct Log {
    form: LogForm,
    /// By the address of what their exchanges share.
    connections: HashMap<usize, Counted>,
    exchanges: u64,
}

struct Counted {
    info: Object,
    /// Of the first exchange.
    interface: Object,
    client_id: Option<String>,
    first_ns: i64,
    exchanges: u64,
    /// Of requests and responses.
    bytes: [u64; 2],
    /// Of the last exchange: its place among all, software name and version, principal and SASL mechanism, and its
    /// end.
    place: u64,
    identity: [Object; 4],
    last_ns: i64,
    /// When the last request was sent that does not wait by design, and when its response came.
    last_call: Option<(i64, i64)>,
}

impl Log {
    pub fn new(form: LogForm) -> Self {
        Log {
            form,
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
        let (request, response) = (exchange.request, exchange.response);
        let info = exchange.known.info(py).map_err(|_| Odd)?;
        let identity = exchange.known.identity();
        self.exchanges += 1;
        let counted = self
            .connections
            .entry(info.as_ptr() as usize)
            .or_insert_with(|| Counted {
                info: info.unbind(),
                interface: exchange.interface.clone_ref(py),
                client_id: None,
                first_ns: request.start_ns,
                exchanges: 0,
                bytes: [0, 0],
                place: 0,
                identity: identity.each_ref().map(|each| each.clone_ref(py)),
                last_ns: 0,
                last_call: None,
            });
        if counted.client_id.is_none() {
            counted.client_id = client_id.map(str::to_owned);
        }
        for (known, new) in counted.identity.iter_mut().zip(identity) {
            if !known.is(new) {
                *known = new.clone_ref(py);
            }
        }
        counted.exchanges += 1;
        counted.bytes = [counted.bytes[0] + bytes[0], counted.bytes[1] + bytes[1]];
        counted.place = self.exchanges;
        counted.last_ns = response.end_ns;
        if !self.form.waiting.contains(&exchange.header.api_key) {
            counted.last_call = Some((request.end_ns, response.start_ns));
        }
        Ok(())
    }

    /// Passes on the counts, in the order of the last exchanges.
    pub fn flush(&mut self, py: Python<'_>) -> PyResult<()> {
        let mut all: Vec<Counted> = self.connections.drain().map(|(_, counted)| counted).collect();
        all.sort_by_key(|counted| counted.place);
        for each in all {
            let arguments = (
                each.info,
                each.interface,
                each.identity,
                each.client_id,
                each.exchanges,
                each.bytes,
                (each.first_ns, each.last_ns),
                each.last_call,
            );
            self.form.take.bind(py).call1(arguments)?;
        }
        Ok(())
    }
}
