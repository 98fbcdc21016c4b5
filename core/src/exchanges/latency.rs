//! The latency of usual exchanges -> its parts, as kdissect/exchanges/latency.py finds them. What the
//! parts of a connection's next latency depend on is held by sinks/splitters.rs.

use std::collections::{BTreeMap, HashMap};

use crate::exchanges::usage::Fields;
use crate::kafka::entries::entries;
use crate::kafka::tree::{field, list, Decoded, Name, Value};
use crate::{Odd, Why};

const PRODUCE: i64 = 0;
pub const FETCH: i16 = 1;
pub const JOIN_GROUP: i16 = 11;
pub const SYNC_GROUP: i16 = 14;

/// As in kdissect/exchanges/latency.py.
const NEW_SESSION: i64 = 0;
const CLOSE_SESSION: i64 = -1;
const LOG_OVERHEAD: i64 = 12;
const MUTING_PRODUCE: i64 = 6;
const MS_NS: i64 = 1_000_000;

/// Bytes of names that take no more than one entry of a table.
const ANY_NAME: usize = 44;
const ASCII_NAME: usize = 206;
/// The parts of a latency: what is known of a usual exchange.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Parts {
    pub queued_us: Option<i64>,
    pub throttled_us: Option<i64>,
    pub rest: Rest,
    /// See `Exchange`: not part of the latency.
    pub think_us: Option<i64>,
}

impl Parts {
    /// `LatencyParts`.
    pub fn all(&self) -> [Option<i64>; 5] {
        let (wait_us, service_us) = match self.rest {
            Rest::Service(us) => (Some(0), Some(us)),
            Rest::Wait(us) => (Some(us), None),
            Rest::Unknown(wait_us) => (wait_us, None),
        };
        [self.queued_us, self.throttled_us, Some(0), wait_us, service_us]
    }

    /// How long the broker served other requests first, if nothing was throttled.
    pub fn only_queued_us(&self) -> Option<i64> {
        self.queued_us.filter(|_| self.throttled_us == Some(0))
    }
}

/// What the rest of a latency is, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Rest {
    Service(i64),
    Wait(i64),
    /// Whatever it is; of it, the wait.
    Unknown(Option<i64>),
}

/// What the parts of a connection's next latency depend on: `PaceState` of kdissect/exchanges/latency.py.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    pub previous_ns: Option<i64>,
    pub fetched_ns: Option<i64>,
    pub unmuted_ns: Option<i64>,
    pub is_certain: bool,
    pub has_kip_219: Option<bool>,
}

/// The throttle time of a response.
#[derive(Clone, Copy)]
pub struct Throttle {
    pub ns: i64,
    /// Whether it follows the response (KIP-219), or came before. None: unknown.
    mutes: Option<bool>,
}

impl Throttle {
    pub fn of(
        throttle_time_ms: Option<i64>,
        latency_ns: i64,
        is_recent: bool,
        pace: &Pace,
    ) -> Result<Self, Odd> {
        let ns = throttle_time_ms.unwrap_or(0).max(0);
        let ns = ns.checked_mul(MS_NS).ok_or(Odd)?;
        let is_at_once = is_recent || latency_ns.div_euclid(1000).checked_mul(1000).ok_or(Odd)? < ns;
        let mutes = match pace.has_kip_219 {
            _ if ns == 0 => Some(true),
            None if is_at_once => Some(true),
            known => known,
        };
        Ok(Throttle { ns, mutes })
    }

    /// By how much the broker delayed the response. None: unknown.
    fn delay_ns(self) -> Option<i64> {
        Some(if self.mutes? { 0 } else { self.ns })
    }
}

impl Pace {
    /// `waited`: whether the broker waited for something to return.
    pub fn parts(
        &self,
        begin_ns: i64,
        end_ns: i64,
        throttle: Throttle,
        waited: Option<bool>,
        is_fetch: bool,
    ) -> Result<Parts, Odd> {
        if begin_ns > end_ns {
            return Err(Why::Negative.odd());
        }
        let us = |until_ns: i64| Ok((until_ns.checked_sub(begin_ns).ok_or(Odd)?) / 1000);
        let served_ns = self.previous_ns.map(|ns| ns.clamp(begin_ns, end_ns));
        let known = (served_ns, self.unmuted_ns, throttle.delay_ns());
        let until_ns = match known {
            (Some(served), Some(unmuted), Some(delay)) if self.is_certain || unmuted <= served => {
                Some(served.max(unmuted).checked_add(delay).ok_or(Odd)?.min(end_ns))
            }
            _ => None,
        };
        let queued_us = served_ns.map(us).transpose()?;
        let before_us = until_ns.map(us).transpose()?;
        let end_us = us(end_ns)?;
        let rest = match (before_us, waited) {
            (Some(before_us), Some(false)) => Rest::Service(end_us - before_us),
            (Some(before_us), Some(true)) => Rest::Wait(end_us - before_us),
            (None, Some(false)) => Rest::Unknown(Some(0)),
            _ => Rest::Unknown(None),
        };
        let fetched_ns = self.fetched_ns.filter(|ns| is_fetch && *ns <= begin_ns);
        let think_us = fetched_ns.map(|ns| Ok(begin_ns.checked_sub(ns).ok_or(Odd)? / 1000));
        Ok(Parts {
            queued_us,
            throttled_us: before_us.zip(queued_us).map(|(before, queued)| before - queued),
            rest,
            think_us: think_us.transpose()?,
        })
    }

    /// Learns the API keys and versions that the broker supports.
    pub fn note_versions(&mut self, versions: &[(i64, i64, i64)]) {
        let produce = versions.iter().rev().find(|each| each.0 == PRODUCE);
        self.has_kip_219 = produce.map(|each| each.2 >= MUTING_PRODUCE).or(self.has_kip_219);
    }

    /// Goes on after a response, whose first and last bytes were seen then.
    pub fn pass(&mut self, (start_ns, end_ns): (i64, i64), throttle: Throttle, is_fetch: bool) {
        self.previous_ns = Some(end_ns);
        if is_fetch {
            self.fetched_ns = (throttle.ns == 0).then_some(end_ns); // clients wait that long
        }
        (self.unmuted_ns, self.is_certain) = match throttle.mutes {
            _ if throttle.ns == 0 => (Some(0), true),
            Some(false) => (Some(0), true),
            mutes => (start_ns.checked_add(throttle.ns), mutes.is_some()),
        };
    }
}

/// High watermark and last stable offset that a connection has seen of each partition, and in which order.
#[derive(Default)]
pub struct Watermarks {
    topics: HashMap<String, BTreeMap<i64, ([i64; 2], u64)>>,
    reported: u64,
    pub count: usize,
    /// Whether any was reported here.
    pub has_changed: bool,
}

impl Watermarks {
    pub fn get(&self, topic: &str, partition: i64) -> Option<[i64; 2]> {
        let (ends, _) = self.topics.get(topic)?.get(&partition)?;
        Some(*ends)
    }

    pub fn set(&mut self, topic: &str, partition: i64, ends: [i64; 2]) {
        let mark = (ends, self.reported);
        self.reported += 1;
        if !self.topics.contains_key(topic) {
            self.topics.insert(topic.to_owned(), BTreeMap::new());
        }
        if let Some(marks) = self.topics.get_mut(topic) {
            self.count += usize::from(marks.insert(partition, mark).is_none());
        }
    }

    /// Those that a response has reported.
    pub fn note(&mut self, marks: &[Mark]) {
        for (topic, partition, ends) in marks {
            self.set(topic, *partition, *ends);
        }
        self.has_changed |= !marks.is_empty();
    }

    pub fn has_room(&self, fetched: &[Fetched<'_, '_>], max: usize) -> bool {
        let new = || fetched.iter().filter(|each| self.get(&each.0, each.1).is_none());
        self.count + fetched.len() <= max || self.count + new().count() <= max
    }

    /// The least recently reported first.
    pub fn in_order(&self) -> Vec<(&str, i64, [i64; 2])> {
        let each = self.topics.iter().flat_map(|(topic, marks)| {
            let marks = marks.iter();
            marks.map(move |(partition, (ends, place))| (*place, topic.as_str(), *partition, *ends))
        });
        let mut all: Vec<_> = each.collect();
        all.sort_unstable_by_key(|each| each.0);
        let all = all.into_iter();
        all.map(|(_, topic, partition, ends)| (topic, partition, ends))
            .collect()
    }
}

/// Whether a name takes one entry of a table: `entries` of kdissect/names.py. None that it rejects does with Python's
/// strings, of one, two or four bytes for each character; an empty one is odd.
fn takes_one_entry(name: &str) -> bool {
    matches!(name.len(), 1..=ANY_NAME) || (name.is_ascii() && name.len() <= ASCII_NAME)
}

/// Topic as on the wire, number of a partition, high watermark and last stable offset.
pub type Mark = (String, i64, [i64; 2]);

/// A partition in a response: topic as on the wire, number, and struct.
pub type Fetched<'b, 'a> = (String, i64, &'b Value<'a>);

impl Fields {
    /// The partitions of a response; one that is not usual is odd.
    pub fn fetched<'b, 'a>(&self, response: &'b Value<'a>) -> Result<Vec<Fetched<'b, 'a>>, Odd> {
        let mut all = Vec::new();
        for topic in list(response.get(self.responses))? {
            let name = match (topic.get(self.topic), topic.get(self.topic_id)) {
                (Some(Value::Text(name)), _) if takes_one_entry(name) => (*name).to_owned(),
                (_, Some(Value::Uuid(id))) => String::from_utf8(id.to_vec()).map_err(|_| Odd)?,
                _ => return Err(Odd),
            };
            for each in list(topic.get(self.partitions))? {
                if each.get(self.diverging_epoch).is_some() || each.get(self.snapshot_id).is_some() {
                    return Err(Odd);
                }
                let partition = field(Some(each), self.partition_index)?.ok_or(Odd)?;
                all.push((name.clone(), partition, each));
            }
        }
        Ok(all)
    }

    /// Whether the broker waited for something to return. None: unknown. See kdissect/exchanges/latency.py.
    pub fn waited(
        &self,
        Decoded {
            request, response, ..
        }: &Decoded<'_>,
        fetched: &[Fetched<'_, '_>],
        is_replica: bool,
        is_throttled: bool,
        watermarks: &Watermarks,
    ) -> Result<Option<bool>, Odd> {
        let number = |name: Name, absent: i64| Ok(field(Some(request), name)?.unwrap_or(absent));
        let has_error = |body| Ok(field(Some(body), self.error_code)?.is_some_and(|code| code != 0));
        let min_bytes = number(self.min_bytes, 1)?;
        let mut is_unclear = has_error(response)?;
        if !is_replica && (is_unclear || self.is_answered_at_once(request)?) {
            return Ok(Some(false));
        }
        let max_bytes = match number(self.max_bytes, 0)? {
            0 => i64::MAX,
            max_bytes => max_bytes,
        };
        let needed = min_bytes.min(max_bytes).max(1);
        let which = usize::from(number(self.isolation_level, 0)? == 1);
        let (mut returned, mut ready, mut is_unseen) = (0, 0, false);
        for (topic, partition, each) in fetched {
            is_unclear |= has_error(each)?;
            if field(Some(each), self.preferred_read_replica)?.is_some_and(|replica| replica >= 0) {
                return Ok(Some(false));
            }
            let Some(Value::Records(data)) = each.get(self.records) else {
                continue;
            };
            if data.is_empty() {
                continue;
            }
            returned += i64::try_from(data.len()).map_err(|_| Odd)?;
            let Some(ends) = watermarks.get(topic, *partition).filter(|_| !is_replica) else {
                is_unseen = true;
                continue;
            };
            for entry in entries(data) {
                let entry = entry?;
                if entry.last_offset()? >= ends[which] {
                    break;
                }
                ready += LOG_OVERHEAD + i64::from(entry.size());
                if ready >= needed {
                    return Ok(Some(false));
                }
            }
        }
        let hides_it = if returned < needed {
            is_throttled
        } else {
            is_unseen
        };
        Ok(if is_unclear || hides_it { None } else { Some(true) })
    }

    fn is_answered_at_once(&self, request: &Value<'_>) -> Result<bool, Odd> {
        let number = |name: Name| field(Some(request), name);
        if number(self.max_wait_ms)?.is_some_and(|ms| ms <= 0)
            || number(self.min_bytes)?.is_some_and(|bytes| bytes <= 0)
        {
            return Ok(true);
        }
        if let Some(epoch) = number(self.share_session_epoch)? {
            return Ok(epoch == CLOSE_SESSION);
        }
        let names_all = number(self.session_epoch)?.is_none_or(|epoch| epoch <= NEW_SESSION);
        let topics = request.get(self.topics);
        Ok(names_all && matches!(topics, Some(Value::List(topics)) if topics.is_empty()))
    }

    /// The watermarks that a response reports.
    pub fn marks(&self, fetched: Vec<Fetched<'_, '_>>) -> Vec<Mark> {
        let marks = fetched.into_iter().filter_map(|(topic, partition, each)| {
            let end = |name| field(Some(each), name).ok().flatten().unwrap_or(-1);
            let high_watermark = end(self.high_watermark);
            if high_watermark < 0 || each.get(self.error_code).is_some_and(Value::is_true) {
                return None;
            }
            let last_stable = match end(self.last_stable_offset) {
                offset @ 0.. => offset,
                _ => high_watermark,
            };
            Some((topic, partition, [high_watermark, last_stable]))
        });
        marks.collect()
    }
}
