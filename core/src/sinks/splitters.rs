//! The latencies of usual exchanges, split. Holds what the parts of each connection's next latency depend on, which
//! Python gets back before it splits one itself.

use std::collections::hash_map::Entry;
use std::collections::HashMap;

use crate::exchanges::connection::{Frame, API_VERSIONS};
use crate::exchanges::content::Row;
use crate::exchanges::latency::{Mark, Pace, Parts, Throttle, FETCH, JOIN_GROUP, SYNC_GROUP};
use crate::exchanges::memory::ConnectionMemory;
use crate::exchanges::usage::Fields;
use crate::kafka::tree::Decoded;
use crate::sinks::facts::{Answered, Handle};
use crate::Odd;

/// Exchanges after which the watermarks of all connections are counted.
const COUNTED_EVERY: u64 = 1024;

/// `MemoryPlan` of kdissect/exchanges/memory.py.
#[allow(clippy::type_complexity)] // of functions
pub struct MemoryPlan {
    /// Asks Python what a connection remembers. Odd: the next exchange is left to Python.
    pub lend: Box<dyn Fn(&Handle) -> Result<ConnectionMemory, Odd> + Send + Sync>,
    pub max_watermarks: usize,
    pub max_total_watermarks: usize,
}

/// Splits the latencies of a connection, and keeps what it remembers.
pub struct Splitter {
    info: Handle,
    pub memory: ConnectionMemory,
    /// Whether an exchange was noted.
    is_used: bool,
    last_use: u64,
}

/// What an exchange changes, see [`Splitter::note`].
#[derive(Debug, PartialEq)]
pub enum Change {
    Here {
        pace: Pace,
        marks: Vec<Mark>,
    },
    /// The latency is split elsewhere.
    Elsewhere,
}

/// What an exchange says of its latency.
pub struct Paced<'a> {
    pub api_key: i16,
    pub request: &'a Frame,
    pub response: &'a Frame,
    pub is_fetch: bool,
    /// See [`Row`].
    pub is_recent: bool,
    pub names: &'a Fields,
}

impl Splitter {
    /// `info`: what the exchanges of the connection share.
    pub fn new(plan: &MemoryPlan, info: Handle) -> Result<Self, Odd> {
        Ok(Splitter {
            memory: (plan.lend)(&info)?,
            info,
            is_used: false,
            last_use: 0,
        })
    }

    /// Positions in sessions, and watermarks.
    pub fn known(&self) -> usize {
        self.memory.sessions.count + self.watermarks_known()
    }

    fn watermarks_known(&self) -> usize {
        let watermarks = self.memory.watermarks.as_ref();
        watermarks.map_or(0, |watermarks| watermarks.count)
    }

    /// The parts of the next latency, if they are not known yet. Nothing changes before `note`.
    pub fn split(
        &self,
        plan: &MemoryPlan,
        exchange: &Answered<'_>,
        row: &Row,
        decoded: &Decoded<'_>,
    ) -> Result<(Parts, Change), Odd> {
        if let Some(parts) = exchange.parts {
            return Ok((parts, Change::Elsewhere));
        }
        let paced = Paced {
            api_key: exchange.header.api_key,
            request: exchange.request,
            response: exchange.response,
            is_fetch: row.is_fetch,
            is_recent: row.is_recent,
            names: &row.counted,
        };
        self.parts(plan, &paced, decoded)
    }

    /// See `split`.
    pub fn parts(
        &self,
        plan: &MemoryPlan,
        exchange: &Paced<'_>,
        decoded: &Decoded<'_>,
    ) -> Result<(Parts, Change), Odd> {
        let &Paced {
            request,
            response,
            is_fetch,
            is_recent,
            names,
            ..
        } = exchange;
        let (mut marks, mut pace) = (Vec::new(), self.memory.pace);
        if exchange.api_key == API_VERSIONS && decoded.errors.is_empty() {
            pace.note_versions(&names.versions(&decoded.response)?);
        }
        let throttle_time_ms = names.throttle_time_ms(&decoded.response);
        let throttle = Throttle::of(throttle_time_ms, response.latency_ns(request)?, is_recent, &pace)?;
        let waited = match (exchange.api_key, is_fetch) {
            (JOIN_GROUP | SYNC_GROUP, _) => Some(true),
            (api_key, true) => {
                let each = names.fetched(&decoded.response)?;
                let is_replica = names.replica_id(&decoded.request).is_some();
                let watermarks = self.memory.watermarks.as_ref().ok_or(Odd)?;
                if api_key == FETCH && !watermarks.has_room(&each, plan.max_watermarks) {
                    return Err(Odd);
                }
                let is_throttled = throttle_time_ms.is_some_and(|ms| ms != 0);
                let waited = names.waited(decoded, &each, is_replica, is_throttled, watermarks)?;
                if api_key == FETCH {
                    marks = names.marks(each);
                }
                waited
            }
            _ => Some(false),
        };
        let parts = pace.parts(request.end_ns, response.start_ns, throttle, waited, is_fetch)?;
        pace.pass((response.start_ns, response.end_ns), throttle, is_fetch);
        Ok((parts, Change::Here { pace, marks }))
    }

    /// The exchange that was split is not left to Python.
    pub fn note(&mut self, change: &Change) {
        self.is_used = true;
        let Change::Here { pace, marks } = change else {
            return;
        };
        self.memory.has_split = true;
        if let Some(watermarks) = &mut self.memory.watermarks {
            watermarks.note(marks);
        }
        self.memory.pace = *pace;
    }

    /// Gives back what Python needs to split the next one.
    pub fn give_back(self) -> Option<(Handle, ConnectionMemory)> {
        self.is_used.then_some((self.info, self.memory))
    }
}

/// Those of all connections.
pub struct Splitters {
    plan: MemoryPlan,
    /// By the address of what the exchanges of a connection share.
    splitters: HashMap<usize, Splitter>,
    /// Those of connections that are no longer here.
    left: Vec<Splitter>,
    /// How often one was used.
    uses: u64,
}

impl Splitters {
    pub fn new(plan: MemoryPlan) -> Self {
        Splitters {
            plan,
            splitters: HashMap::new(),
            left: Vec::new(),
            uses: 0,
        }
    }

    pub fn get(&mut self, info: &Handle) -> Result<(&mut Splitter, &MemoryPlan), Odd> {
        self.uses += 1;
        if self.uses % COUNTED_EVERY == 0 && self.has_too_many() {
            self.left
                .extend(self.splitters.drain().map(|(_, splitter)| splitter));
            self.left.sort_by_key(|splitter| splitter.last_use);
            return Err(Odd);
        }
        let splitter = match self.splitters.entry(info.address) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => free.insert(Splitter::new(&self.plan, info.clone())?),
        };
        splitter.last_use = self.uses;
        Ok((splitter, &self.plan))
    }

    /// See [`Splitter::note`].
    pub fn note(&mut self, info: &Handle, change: &Change) {
        if let Some(splitter) = self.splitters.get_mut(&info.address) {
            splitter.note(change);
        }
    }

    fn has_too_many(&self) -> bool {
        let known: usize = self.splitters.values().map(Splitter::watermarks_known).sum();
        known > self.plan.max_total_watermarks
    }

    /// Python takes the next exchange of a connection, or it is no longer here.
    pub fn leave(&mut self, info: &Handle) {
        self.left.extend(self.splitters.remove(&info.address));
    }

    /// Whether `give_back` must be called before more latencies are split.
    pub fn must_give_back(&self) -> bool {
        !self.left.is_empty()
    }

    pub fn give_back(&mut self) -> impl Iterator<Item = (Handle, ConnectionMemory)> + '_ {
        self.left.drain(..).filter_map(Splitter::give_back)
    }
}
