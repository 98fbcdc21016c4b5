//! What the counts of usual exchanges (sinks/tallies.rs) consist of.

use crate::exchanges::fetch_sessions::{Position, Step};
use crate::exchanges::touched::Touched;
use crate::kafka::entries::{entries, Batch};
use crate::kafka::tree::{field, list, name_of, Decoded, Name, TopicNames, Value, NO_ID};
use crate::{Odd, Why};

/// Exchanges that are named.
const FIRST: usize = 5;
const SECOND_NS: i64 = 1_000_000_000;
/// A piece of time in which occurrences are counted.
pub const PIECE_NS: i64 = 10 * SECOND_NS;

/// From this think time on, a consumer pauses (`PAUSE_US` of kdissect/stats/lag.py).
const PAUSE_US: i64 = 500_000;
/// Records of this size may be worth a note.
const LARGE_BYTES: usize = 1_000_000;
/// Compressed batches that Python decompresses: all in the first exchanges of a connection, and one in so many.
const FIRST_EXCHANGES: u64 = 20;
const ONE_IN: u32 = 16;
const METADATA: &str = "__cluster_metadata";
const METADATA_ID: [u8; 22] = *b"AAAAAAAAAAAAAAAAAAAAAQ";
/// After so long, a producer may have given up (`LATE_US` of kdissect/stats/record_counts.py).
const LATE_NS: i64 = SECOND_NS;
/// Before this sequence number, Python looks for records that were sent before with an earlier producer epoch
/// (`EpochDuplicates` of kdissect/stats/findings/producers.py).
const FRESH: i64 = 10_000;
const MS_NS: i64 = 1_000_000;
const HOUR_MS: i64 = 3_600_000;
const YEAR_2000_MS: i64 = 946_684_800_000;
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
    /// Checksum, length and time of batches that may have been sent before, or may be sent again.
    pub repeatable: Vec<(u32, i32, i64)>,
}

impl Write {
    /// `number`: of the exchange; `time_ns`: of its request; `latency_ns`: until its response.
    pub fn of(data: &[u8], number: u64, time_ns: i64, latency_ns: i64) -> Result<Self, Odd> {
        let is_repeatable = number <= FIRST_EXCHANGES || latency_ns >= LATE_NS;
        let mut write = Write {
            bytes: data.len() as u64,
            records: 0,
            codecs: Vec::new(),
            numbered: Vec::new(),
            repeatable: Vec::new(),
        };
        if data.len() >= LARGE_BYTES {
            return Err(Why::Records.odd());
        }
        for entry in entries(data) {
            let entry = entry.map_err(|_| Why::Records.odd())?;
            let records = entry.records().filter(|number| *number > 0);
            let is_far = is_far(entry.max_timestamp(), time_ns / MS_NS);
            let records = records.filter(|_| !is_far).ok_or_else(|| Why::Records.odd())?;
            write.records += records;
            tally(&mut write.codecs, entry.codec(), 1);
            let Some(batch) = entry.batch() else { continue };
            let is_sampled = number <= FIRST_EXCHANGES || batch.crc % ONE_IN == 0;
            let is_odd = batch.is_transactional() || batch.is_control();
            if is_odd || (entry.compression() != 0 && is_sampled) {
                return Err(Why::Records.odd());
            }
            if is_repeatable {
                write.repeatable.push((batch.crc, batch.length, time_ns));
            }
            if batch.producer_id >= 0 {
                let base = i64::from(batch.base_sequence);
                let is_fresh = batch.producer_epoch > 0 && base < FRESH;
                if base < 0 || base + i64::from(batch.records) > WRAP || is_fresh {
                    return Err(Why::Records.odd());
                }
                write
                    .numbered
                    .push((batch.producer_id, batch.producer_epoch, base, records));
            }
        }
        match write.records {
            0 => Err(Why::Records.odd()),
            _ => Ok(write),
        }
    }
}

/// Whether a timestamp is impossible, as `FarTimestamps` of kdissect/stats/findings has it.
fn is_far(timestamp_ms: i64, now_ms: i64) -> bool {
    (1..YEAR_2000_MS).contains(&timestamp_ms) || timestamp_ms > now_ms + HOUR_MS
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

/// Who fetches.
#[derive(Clone, Copy, Default, PartialEq)]
pub enum Fetcher {
    #[default]
    Consumer,
    Replica,
    /// A broker or controller reads the metadata of the cluster.
    Voter,
}

impl Fetcher {
    /// The kind of its requests, as `waiter` in kdissect/exchanges/latency.py has it.
    pub fn kind(self) -> &'static str {
        match self {
            Fetcher::Consumer => "Fetch",
            Fetcher::Replica => "Fetch (replica)",
            Fetcher::Voter => "Fetch (KRaft)",
        }
    }
}

/// What a Fetch reads from a partition.
pub struct Read {
    /// Whether the numbers of its records are known, and none of them are markers of transactions.
    pub is_plain: bool,
    pub bytes: u64,
    pub records: u64,
    /// How many batches have each codec.
    pub codecs: Vec<(&'static str, u64)>,
    pub is_fetched: bool,
    /// What the messages say of it, see [`Sessions::after`].
    pub position: Position,
    /// The offset after the records.
    pub end: Option<i64>,
}

impl Read {
    /// `data`: the records, if there is such a field. `position`: what the messages say of it.
    pub fn of(data: Option<&[u8]>, mut position: Position) -> Result<Self, Odd> {
        let (mut records, mut codecs) = (Some(0), Vec::new());
        let mut newest_ms = None;
        for entry in entries(data.unwrap_or_default()) {
            let entry = entry.map_err(|_| Why::Records.odd())?;
            let number = entry.records();
            let number = number.filter(|_| !entry.batch().is_some_and(Batch::is_control));
            records = records.zip(number).map(|(records, number)| records + number);
            tally(&mut codecs, entry.codec(), 1);
            let next = entry.last_offset().ok().and_then(|last| last.checked_add(1));
            position.next_offset = Some(next.ok_or_else(|| Why::Records.odd())?);
            newest_ms = newest_ms.max(Some(entry.max_timestamp()));
        }
        position.newest_ms = newest_ms.filter(|ms| *ms != -1);
        position.check()?;
        Ok(Read {
            is_plain: records.is_some(),
            bytes: data.map_or(0, |data| data.len() as u64),
            records: records.unwrap_or(0),
            codecs,
            is_fetched: data.is_some(),
            end: position.next_offset,
            position,
        })
    }
}

/// How long a consumer took between fetches whose think time is known, and how long it waited for them: `CountedPolls`
/// of kdissect/stats/contents.py.
#[derive(Default)]
pub struct Polls {
    pub count: u64,
    pub think_us: i64,
    pub waited_us: i64,
    pub pauses: Noted,
    pub paused_us: i64,
}

impl Polls {
    pub fn add(&mut self, stamp: Stamp, think_us: i64, waited_us: i64) {
        self.count += 1;
        self.think_us += think_us;
        self.waited_us += waited_us;
        if think_us >= PAUSE_US {
            self.pauses.add(stamp);
            self.paused_us += think_us;
        }
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

impl Lag {
    pub fn add(&mut self, time_ns: i64, position: &Position) {
        let Some((next_offset, lag)) = position.lag() else {
            return;
        };
        let (now, there) = ((time_ns, lag), (time_ns, next_offset));
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
        if let Some(age_ns) = position.age_ns(time_ns, lag) {
            self.last_age = self.last_age.max(Some((time_ns, age_ns)));
            self.worst_age_ns = self.worst_age_ns.max(Some(age_ns));
        }
    }
}

macro_rules! names {
    ($($name:ident)*) => {
        /// The fields that are counted, by their names in messages.
        pub struct Fields {
            $(pub $name: Name,)*
        }

        impl Fields {
            pub fn of(number: impl Fn(&str) -> Name) -> Self {
                Fields { $($name: number(stringify!($name)),)* }
            }
        }
    };
}

names! {
    acks transactional_id base_offset records log_append_time_ms
    aborted_transactions first_offset producer_id
    session_id session_epoch topics responses forgotten_topics_data
    topic topic_id partitions partition_index
    fetch_offset high_watermark last_stable_offset log_start_offset
    max_wait_ms min_bytes max_bytes isolation_level
    diverging_epoch snapshot_id preferred_read_replica
    error_code share_session_epoch
    groups group_id member_id group_instance_id generation_id_or_member_epoch generation_id
    committed_offset timestamp offset
    api_keys api_key min_version max_version cluster_id
    replica_state replica_id throttle_time_ms
}

impl Fields {
    /// What a Fetch reads from a partition.
    pub fn read(&self, each: &Touched<'_, '_>) -> Result<Read, Odd> {
        let end = |name| Ok(field(each.response, name)?.filter(|offset| *offset >= 0));
        let position = Position {
            fetch_offset: field(each.request, self.fetch_offset)?,
            high_watermark: end(self.high_watermark)?,
            last_stable: end(self.last_stable_offset)?,
            log_start: end(self.log_start_offset)?,
            error: each.error.unwrap_or(0),
            is_nameless: each.is_nameless(),
            ..Position::default()
        };
        let data = match each.response.and_then(|body| body.get(self.records)) {
            Some(Value::Records(data)) => Some(*data),
            Some(Value::Null) | None => None,
            Some(_) => return Err(Odd),
        };
        Read::of(data, position)
    }

    /// What a Fetch says of its session.
    pub fn session(
        &self,
        decoded: &Decoded<'_>,
        touched: &[Touched<'_, '_>],
        names: &dyn TopicNames,
    ) -> Result<Step, Odd> {
        let (request, response) = (&decoded.request, &decoded.response);
        let requested = field(Some(request), self.session_id)?.unwrap_or(0);
        let epoch = field(Some(request), self.session_epoch)?.unwrap_or(-1);
        let mut forgotten = Vec::new();
        let with_names = touched.iter().filter(|each| !each.is_nameless());
        let mut named: Vec<String> = with_names
            .filter_map(|each| each.topic_id.map(str::to_owned))
            .collect();
        for topic in list(request.get(self.forgotten_topics_data))? {
            let name = match (topic.get(self.topic), topic.get(self.topic_id)) {
                (Some(Value::Text(name)), _) if !name.is_empty() => (*name).to_owned(),
                (_, Some(Value::Uuid(id))) if *id != NO_ID => {
                    let name = name_of(id, names)?;
                    if name.as_bytes() != id {
                        named.push(std::str::from_utf8(id).map_err(|_| Odd)?.to_owned());
                    }
                    name
                }
                _ => return Err(Why::Session.odd()),
            };
            for partition in list(topic.get(self.partitions))? {
                match partition {
                    Value::Int(partition) => forgotten.push((name.clone(), *partition)),
                    _ => return Err(Why::Session.odd()),
                }
            }
        }
        Ok(Step {
            requested,
            is_incremental: requested != 0 && epoch > 0,
            is_first: epoch == 0,
            forgotten,
            named,
            assigned: field(Some(response), self.session_id)?.unwrap_or(0),
            is_failed: response.get(self.error_code).is_some_and(Value::is_true),
        })
    }

    /// The versions that an ApiVersions response says the broker supports.
    pub fn versions(&self, response: &Value<'_>) -> Result<Vec<(i64, i64, i64)>, Odd> {
        let apis = list(response.get(self.api_keys))?.iter().map(|each| {
            let names = [self.api_key, self.min_version, self.max_version];
            let [key, first, last] = names.map(|name| field(Some(each), name));
            Ok((key?.ok_or(Odd)?, first?.ok_or(Odd)?, last?.ok_or(Odd)?))
        });
        apis.collect()
    }

    /// Of the broker that sent this Fetch.
    pub fn replica_id(&self, request: &Value<'_>) -> Option<i64> {
        let state = request.get(self.replica_state).filter(|state| state.is_true());
        match state.unwrap_or(request).get(self.replica_id) {
            Some(Value::Int(id)) if *id >= 0 => Some(*id),
            _ => None,
        }
    }

    /// None if absent.
    pub fn throttle_time_ms(&self, response: &Value<'_>) -> Option<i64> {
        match response.get(self.throttle_time_ms) {
            Some(Value::Int(number)) => Some(*number),
            _ => None,
        }
    }

    /// Who fetches; `is_replica`: a broker.
    pub fn reader(&self, request: &Value<'_>, is_replica: bool) -> Result<Fetcher, Odd> {
        if !is_replica {
            return Ok(Fetcher::Consumer);
        }
        let is_metadata = |topic: &Value<'_>| match (topic.get(self.topic), topic.get(self.topic_id)) {
            (Some(Value::Text(name)), _) if !name.is_empty() => {
                *name == METADATA || name.as_bytes() == METADATA_ID
            }
            (_, Some(Value::Uuid(id))) => *id == METADATA_ID,
            _ => false,
        };
        match list(request.get(self.topics))?.iter().any(is_metadata) {
            true => Ok(Fetcher::Voter),
            false => Ok(Fetcher::Replica),
        }
    }
}
