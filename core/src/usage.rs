//! What the counts of usual exchanges (counts.rs) consist of.

use std::collections::{BTreeMap, HashMap};

use crate::touched::field;
use crate::tree::{batches, Name, Value};
use crate::Odd;

/// Exchanges that are named.
const FIRST: usize = 5;
const SECOND_NS: i64 = 1_000_000_000;
/// A piece of time in which occurrences are counted.
pub const PIECE_NS: i64 = 10 * SECOND_NS;

/// Records of this size may be worth a note.
const LARGE_BYTES: usize = 1_000_000;
const UNCOMPRESSED: i16 = 0;
const CODEC_MASK: i16 = 7;
const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;
/// Compressed batches that Python decompresses: all in the first exchanges of a connection, and one in so many.
const FIRST_EXCHANGES: u64 = 20;
const ONE_IN: u32 = 16;
/// The last sequence number is followed by 0.
const WRAP: i64 = 1 << 31;

/// When an exchange began, and its number.
pub type Stamp = (i64, u64);

/// Adds to the count of a key: one of few, most often the latest.
pub fn tally<K: PartialEq>(counts: &mut Vec<(K, u64)>, key: K, more: u64) {
    match counts.iter_mut().rev().find(|known| known.0 == key) {
        Some((_, count)) => *count += more,
        None => counts.push((key, more)),
    }
}

/// How often something occurred, when, the first exchanges, and how often in each piece of time.
#[derive(Default)]
pub struct Noted {
    pub count: u64,
    pub first_ns: i64,
    pub last_ns: i64,
    pub first: Vec<Stamp>,
    pub pieces: Vec<(i64, u64)>,
}

impl Noted {
    pub fn add(&mut self, stamp: Stamp) {
        let (time_ns, _) = stamp;
        if self.count == 0 {
            (self.first_ns, self.last_ns) = (time_ns, time_ns);
        }
        self.first_ns = self.first_ns.min(time_ns);
        self.last_ns = self.last_ns.max(time_ns);
        self.count += 1;
        self.note_first(stamp);
        tally(&mut self.pieces, time_ns.div_euclid(PIECE_NS), 1);
    }

    /// In order of time; at the same time, in that of the numbers as text.
    fn note_first(&mut self, stamp: Stamp) {
        let first = &mut self.first;
        if first.len() >= FIRST && first.last().is_some_and(|last| stamp.0 > last.0) || first.contains(&stamp)
        {
            return;
        }
        let place = first.partition_point(|known| {
            known.0 < stamp.0 || (known.0 == stamp.0 && known.1.to_string() < stamp.1.to_string())
        });
        first.insert(place, stamp);
        first.truncate(FIRST);
    }
}

/// The parts of a latency: what is known of a usual exchange.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Parts {
    pub queued_us: i64,
    pub rest: Rest,
}

/// What the rest of a latency is, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Rest {
    Service(i64),
    Wait(i64),
    Unknown,
}

/// What the parts of a connection's next latency depend on, as in kdissect/exchanges/latency.py.
pub struct Pace {
    /// Last byte of the previous response.
    pub previous_ns: i64,
    /// The broker reads again by this time.
    pub unmuted_ns: i64,
}

impl Pace {
    /// `waited`: whether the broker waited for something to return.
    pub fn parts(&self, begin_ns: i64, end_ns: i64, waited: Option<bool>) -> Result<Parts, Odd> {
        if begin_ns > end_ns {
            return Err(Odd);
        }
        let us = |until_ns: i64| Ok((until_ns.checked_sub(begin_ns).ok_or(Odd)?) / 1000);
        let until_ns = self.previous_ns.clamp(begin_ns, end_ns);
        if self.unmuted_ns > until_ns {
            return Err(Odd);
        }
        let queued_us = us(until_ns)?;
        let rest_us = us(end_ns)? - queued_us;
        let rest = match waited {
            Some(false) => Rest::Service(rest_us),
            Some(true) => Rest::Wait(rest_us),
            None => Rest::Unknown,
        };
        Ok(Parts { queued_us, rest })
    }
}

/// Consecutive sequence numbers of a producer, and the first exchange with them.
pub struct Run {
    pub producer_id: i64,
    pub epoch: i16,
    pub base: i64,
    /// After the last one.
    pub end: i64,
    pub batches: u64,
    pub first: Stamp,
    pub first_ns: i64,
    pub last_ns: i64,
}

/// What a Produce writes to a partition.
pub struct Write {
    pub bytes: u64,
    pub records: u64,
    /// How many batches have each codec.
    pub codecs: Vec<(&'static str, u64)>,
    /// Producer ID and epoch, first sequence number, number of records.
    pub numbered: Vec<(i64, i16, i64, u64)>,
}

impl Write {
    /// `number`: of the exchange.
    pub fn of(data: &[u8], number: u64) -> Result<Self, Odd> {
        let mut write = Write {
            bytes: data.len() as u64,
            records: 0,
            codecs: Vec::new(),
            numbered: Vec::new(),
        };
        if data.len() >= LARGE_BYTES {
            return Err(Odd);
        }
        for batch in batches(data) {
            let batch = batch?;
            let codec = batch.attributes & CODEC_MASK;
            let is_sampled = number <= FIRST_EXCHANGES || batch.crc % ONE_IN == 0;
            let is_odd = batch.attributes & (TRANSACTIONAL | CONTROL) != 0;
            if is_odd || (codec != UNCOMPRESSED && is_sampled) || batch.records <= 0 {
                return Err(Odd);
            }
            let records = u64::from(batch.records.unsigned_abs());
            write.records += records;
            tally(&mut write.codecs, batch.codec(), 1);
            if batch.producer_id >= 0 {
                let base = i64::from(batch.base_sequence);
                if base < 0 || base + i64::from(batch.records) > WRAP {
                    return Err(Odd);
                }
                write
                    .numbered
                    .push((batch.producer_id, batch.producer_epoch, base, records));
            }
        }
        match write.records {
            0 => Err(Odd),
            _ => Ok(write),
        }
    }
}

/// Adds sequence numbers to those of a partition.
pub fn add_run(
    runs: &mut Vec<Run>,
    stamp: Stamp,
    &(producer_id, epoch, base, records): &(i64, i16, i64, u64),
) {
    let end = base + i64::try_from(records).unwrap_or(0);
    let same = |run: &&mut Run| run.producer_id == producer_id && run.epoch == epoch && run.end == base;
    if let Some(run) = runs.last_mut().as_mut().filter(|run| same(run)) {
        run.end = end;
        run.batches += 1;
        run.first_ns = run.first_ns.min(stamp.0);
        run.last_ns = run.last_ns.max(stamp.0);
        return;
    }
    runs.push(Run {
        producer_id,
        epoch,
        base,
        end,
        batches: 1,
        first: stamp,
        first_ns: stamp.0,
        last_ns: stamp.0,
    });
}

/// What a Fetch reads from a partition.
pub struct Read {
    pub bytes: u64,
    pub records: u64,
    pub batches: u64,
    pub is_fetched: bool,
    pub position: Position,
}

/// The position of a consumer, as in kdissect/exchanges/fetch_sessions.py.
#[derive(Clone, Copy, Default)]
pub struct Position {
    pub fetch_offset: i64,
    pub next_offset: i64,
    pub newest_ms: Option<i64>,
    pub high_watermark: Option<i64>,
    pub last_stable: Option<i64>,
    pub log_start: Option<i64>,
}

impl Read {
    /// `data`: the records, if there is such a field.
    pub fn of(data: Option<&[u8]>, mut position: Position) -> Result<Self, Odd> {
        let (mut records, mut number) = (0, 0);
        let mut newest_ms = None;
        position.next_offset = position.fetch_offset;
        for batch in batches(data.unwrap_or_default()) {
            let batch = batch?;
            if batch.attributes & CONTROL != 0 {
                return Err(Odd);
            }
            records += u64::try_from(batch.records).unwrap_or(0);
            number += 1;
            let last = batch.base_offset.checked_add(batch.last_offset_delta.into());
            position.next_offset = last.and_then(|last| last.checked_add(1)).ok_or(Odd)?;
            newest_ms = newest_ms.max(Some(batch.max_timestamp));
        }
        position.newest_ms = newest_ms.filter(|ms| *ms != -1);
        Ok(Read {
            bytes: data.map_or(0, |data| data.len() as u64),
            records,
            batches: number,
            is_fetched: data.is_some(),
            position,
        })
    }
}

/// A client's lag in a partition, as `ClientLag` of kdissect/stats/lag.py has it.
#[derive(Default)]
pub struct Lag {
    pub count: u64,
    /// Time and lag.
    pub first: (i64, i64),
    pub last: (i64, i64),
    /// Lag and negative time.
    pub worst: (i64, i64),
    /// Time and offset.
    pub start: (i64, i64),
    pub position: (i64, i64),
    /// Time, and age of the newest record received.
    pub last_age: Option<(i64, i64)>,
    pub worst_age_ns: Option<i64>,
}

impl Position {
    pub fn lag(&self) -> Option<i64> {
        Some(self.high_watermark?.saturating_sub(self.next_offset).max(0))
    }

    /// Age of the newest record received, as long as there are more to read.
    fn age_ns(&self, time_ns: i64, lag: i64) -> Result<Option<i64>, Odd> {
        let Some(newest_ms) = self.newest_ms.filter(|_| lag > 0) else {
            return Ok((lag == 0).then_some(0));
        };
        let newest_ns = newest_ms.checked_mul(1_000_000).ok_or(Odd)?;
        Ok(Some(time_ns.checked_sub(newest_ns).ok_or(Odd)?.max(0)))
    }

    /// Whether it can be added.
    pub fn check(&self, time_ns: i64) -> Result<(), Odd> {
        self.lag().map_or(Ok(None), |lag| self.age_ns(time_ns, lag))?;
        Ok(())
    }
}

impl Lag {
    pub fn add(&mut self, time_ns: i64, position: &Position) {
        let Some(lag) = position.lag() else {
            return;
        };
        let (now, there) = ((time_ns, lag), (time_ns, position.next_offset));
        if self.count == 0 {
            (self.first, self.last, self.worst) = (now, now, (lag, -time_ns));
            (self.start, self.position) = (there, there);
        }
        self.count += 1;
        self.first = self.first.min(now);
        self.last = self.last.max(now);
        self.worst = self.worst.max((lag, -time_ns));
        self.start = self.start.min(there);
        self.position = self.position.max(there);
        if let Ok(Some(age_ns)) = position.age_ns(time_ns, lag) {
            self.last_age = self.last_age.max(Some((time_ns, age_ns)));
            self.worst_age_ns = self.worst_age_ns.max(Some(age_ns));
        }
    }
}

/// High watermark and last stable offset that a connection has seen of each partition, and in which order.
#[derive(Default)]
pub struct Watermarks {
    topics: HashMap<String, BTreeMap<i64, ([i64; 2], u64)>>,
    reported: u64,
    pub count: usize,
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

/// The fields of a Fetch on which it depends whether the broker waited.
pub struct FetchNames {
    pub max_wait_ms: Name,
    pub min_bytes: Name,
    pub max_bytes: Name,
    pub isolation_level: Name,
    pub session_epoch: Name,
    pub topics: Name,
    pub responses: Name,
    pub topic: Name,
    pub topic_id: Name,
    pub partitions: Name,
    pub partition_index: Name,
    pub high_watermark: Name,
    pub last_stable_offset: Name,
    pub diverging_epoch: Name,
    pub snapshot_id: Name,
    pub preferred_read_replica: Name,
    pub records: Name,
}

/// A partition in a response: topic as on the wire, number, and struct.
type Fetched<'b, 'a> = (String, i64, &'b Value<'a>);

impl FetchNames {
    /// The partitions of a response; one that is not usual is odd.
    pub fn fetched<'b, 'a>(&self, response: &'b Value<'a>) -> Result<Vec<Fetched<'b, 'a>>, Odd> {
        let mut all = Vec::new();
        for topic in list(response.get(self.responses))? {
            let name = match (topic.get(self.topic), topic.get(self.topic_id)) {
                (Some(Value::Text(name)), _) if !name.is_empty() => (*name).to_owned(),
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
        request: &Value<'_>,
        fetched: &[Fetched<'_, '_>],
        watermarks: &Watermarks,
    ) -> Result<Option<bool>, Odd> {
        let number = |name: Name, absent: i64| Ok(field(Some(request), name)?.unwrap_or(absent));
        let min_bytes = number(self.min_bytes, 1)?;
        let names_all = number(self.session_epoch, -1)? <= 0;
        let has_no_topics =
            matches!(request.get(self.topics), Some(Value::List(topics)) if topics.is_empty());
        if number(self.max_wait_ms, 1)? <= 0 || min_bytes <= 0 || (names_all && has_no_topics) {
            return Ok(Some(false));
        }
        for (.., each) in fetched {
            if field(Some(each), self.preferred_read_replica)?.is_some_and(|replica| replica >= 0) {
                return Ok(Some(false));
            }
        }
        let max_bytes = match number(self.max_bytes, 0)? {
            0 => i64::MAX,
            max_bytes => max_bytes,
        };
        let needed = min_bytes.min(max_bytes).max(1);
        let which = usize::from(number(self.isolation_level, 0)? == 1);
        let (mut returned, mut ready, mut is_unseen) = (0, 0, false);
        for (topic, partition, each) in fetched {
            let Some(Value::Records(data)) = each.get(self.records) else {
                continue;
            };
            if data.is_empty() {
                continue;
            }
            returned += i64::try_from(data.len()).map_err(|_| Odd)?;
            let Some(ends) = watermarks.get(topic, *partition) else {
                is_unseen = true;
                continue;
            };
            for batch in batches(data) {
                let batch = batch?;
                let last = batch.base_offset.checked_add(batch.last_offset_delta.into());
                if last.ok_or(Odd)? >= ends[which] {
                    break;
                }
                ready += 12 + i64::from(batch.length);
                if ready >= needed {
                    return Ok(Some(false));
                }
            }
        }
        Ok(if returned < needed || !is_unseen {
            Some(true)
        } else {
            None
        })
    }

    pub fn note(&self, fetched: &[Fetched<'_, '_>], watermarks: &mut Watermarks) {
        for (topic, partition, each) in fetched {
            let end = |name| field(Some(each), name).ok().flatten().unwrap_or(-1);
            let high_watermark = end(self.high_watermark);
            if high_watermark < 0 {
                continue;
            }
            let last_stable = match end(self.last_stable_offset) {
                offset @ 0.. => offset,
                _ => high_watermark,
            };
            watermarks.set(topic, *partition, [high_watermark, last_stable]);
        }
    }
}

/// The elements of an array that is not null.
fn list<'b, 'a>(value: Option<&'b Value<'a>>) -> Result<&'b [Value<'a>], Odd> {
    match value {
        Some(Value::List(values)) => Ok(values),
        Some(Value::Null) | None => Ok(&[]),
        Some(_) => Err(Odd),
    }
}
