//! Usual exchanges -> those with the longest service times, as `Largest` of kdissect/stats/quantiles.py ranks them.
//! Holds as many as are wanted, with what a table says of each until Python has it.

use std::collections::BTreeMap;

use crate::exchanges::latency::{Parts, Rest};
use crate::exchanges::touched::Touched;
use crate::sinks::facts::{Answered, Handle};
use crate::Odd;

/// Partitions of an exchange that are looked at for its first topics; see `some_topics` of kdissect/stats/traffic.py.
const PARTITIONS: usize = 100;
const TOPICS: usize = 5;

/// Service time; completion, packet and number of the exchange, each negative: of equal times, the first counts.
pub type Rank = (i64, i64, i64, i64);

/// `Slow` of kdissect/stats/traffic.py.
pub struct Slow {
    pub info: Handle,
    pub api_key: i16,
    pub client_id: Option<String>,
    pub number: u64,
    pub time_ns: i64,
    pub latency_us: i64,
    pub total_us: Option<i64>,
    pub parts: [Option<i64>; 5],
    /// Each once; whether its ID stands for it.
    pub topics: Vec<(String, bool)>,
}

pub struct Slowest {
    wanted: usize,
    /// None: Python has it.
    kept: BTreeMap<Rank, Option<Slow>>,
}

impl Slowest {
    pub fn new(wanted: usize) -> Self {
        Slowest {
            wanted,
            kept: BTreeMap::new(),
        }
    }

    /// The rank of an exchange, if it is among them.
    pub fn rank(&self, exchange: &Answered<'_>, parts: &Parts) -> Result<Option<Rank>, Odd> {
        let Rest::Service(us) = parts.rest else {
            return Ok(None);
        };
        let fastest = self.kept.keys().next().map_or(i64::MIN, |rank| rank.0);
        if self.wanted == 0 || (self.kept.len() >= self.wanted && us < fastest) {
            return Ok(None);
        }
        let negative = |number: u64| i64::try_from(number).map(|number| -number).map_err(|_| Odd);
        let response = exchange.response;
        let completed = response.end_ns.checked_neg().ok_or(Odd)?;
        let rank = (
            us,
            completed,
            negative(response.packet)?,
            negative(exchange.number)?,
        );
        let is_among =
            self.kept.len() < self.wanted || self.kept.keys().next().is_some_and(|last| rank > *last);
        Ok(is_among.then_some(rank))
    }

    pub fn add(&mut self, rank: Rank, slow: Slow) {
        self.kept.insert(rank, Some(slow));
        if self.kept.len() > self.wanted {
            self.kept.pop_first();
        }
    }

    /// Those that Python does not have.
    pub fn not_given(&mut self) -> impl Iterator<Item = (Rank, Slow)> + '_ {
        let kept = self.kept.iter_mut();
        kept.filter_map(|(rank, slow)| Some((*rank, slow.take()?)))
    }
}

impl Slow {
    /// `client_id`: see `Answered`.
    pub fn of(
        exchange: &Answered<'_>,
        parts: &Parts,
        client_id: Option<&str>,
        touched: &[Touched<'_, '_>],
    ) -> Result<Self, Odd> {
        let mut topics: Vec<(String, bool)> = Vec::new();
        for each in touched.iter().take(PARTITIONS) {
            if topics.len() < TOPICS && topics.iter().all(|(topic, _)| *topic != *each.topic) {
                topics.push((each.topic.clone().into_owned(), each.is_nameless()));
            }
        }
        Ok(Slow {
            info: exchange.known.info()?.clone(),
            api_key: exchange.header.api_key,
            client_id: client_id.map(str::to_owned),
            number: exchange.number,
            time_ns: exchange.request.end_ns,
            latency_us: exchange.latency_ns()?.div_euclid(1000),
            total_us: exchange.total_us(),
            parts: parts.all(),
            topics,
        })
    }
}
