//! What the counts of usual exchanges (counts.rs) consist of.

use crate::tree::batches;
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
