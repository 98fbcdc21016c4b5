//! The latencies of usual exchanges, split. Holds what the parts of each connection's next latency depend on, which
//! Python gets back before it splits one itself.

use std::collections::hash_map::Entry;
use std::collections::HashMap;

use crate::exchanges::connection::{Frame, API_VERSIONS};
use crate::exchanges::content::Row;
use crate::exchanges::latency::{Fetched, Pace, Parts, Throttle, FETCH, JOIN_GROUP, SYNC_GROUP};
use crate::exchanges::memory::ConnectionMemory;
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
    /// Whether it has split one.
    is_used: bool,
    last_use: u64,
}

/// What an exchange changes, see [`Splitter::note`].
pub struct Change<'b, 'a> {
    fetched: Option<Vec<Fetched<'b, 'a>>>,
    pace: Pace,
    throttle: Throttle,
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

    /// The parts of the next latency. Nothing changes before `note`.
    pub fn split<'b, 'a>(
        &self,
        plan: &MemoryPlan,
        exchange: &Answered<'_>,
        row: &Row,
        decoded: &'b Decoded<'a>,
    ) -> Result<(Parts, Change<'b, 'a>), Odd> {
        let (mut fetched, mut pace) = (None, self.memory.pace);
        if exchange.header.api_key == API_VERSIONS && decoded.errors.is_empty() {
            pace.note_versions(&row.counted.versions(&decoded.response)?);
        }
        let throttle_time_ms = row.throttle_time_ms(decoded);
        let throttle = Throttle::of(throttle_time_ms, exchange.latency_ns()?, row.is_recent, &pace)?;
        let waited = match (exchange.header.api_key, row.is_fetch) {
            (JOIN_GROUP | SYNC_GROUP, _) => Some(true),
            (api_key, true) => {
                let names = &row.counted;
                let each = names.fetched(&decoded.response)?;
                let is_replica = row.is_replication(decoded);
                let watermarks = self.memory.watermarks.as_ref().ok_or(Odd)?;
                if api_key == FETCH && !watermarks.has_room(&each, plan.max_watermarks) {
                    return Err(Odd);
                }
                let is_throttled = throttle_time_ms.is_some_and(|ms| ms != 0);
                let waited = names.waited(decoded, &each, is_replica, is_throttled, watermarks)?;
                fetched = (api_key == FETCH).then_some(each);
                waited
            }
            _ => Some(false),
        };
        let parts = pace.parts(
            exchange.request.end_ns,
            exchange.response.start_ns,
            throttle,
            waited,
            row.is_fetch,
        )?;
        Ok((
            parts,
            Change {
                fetched,
                pace,
                throttle,
            },
        ))
    }

    /// The exchange that was split is not left to Python.
    pub fn note(&mut self, row: &Row, change: &Change<'_, '_>, response: &Frame) {
        if let (Some(fetched), Some(watermarks)) = (&change.fetched, &mut self.memory.watermarks) {
            row.counted.note(fetched, watermarks);
        }
        self.memory.pace = change.pace;
        let times = (response.start_ns, response.end_ns);
        self.memory.pace.pass(times, change.throttle, row.is_fetch);
        self.is_used = true;
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
