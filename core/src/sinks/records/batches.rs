//! Record data -> its records, as kdissect/kafka/batches.py reads them.

use std::borrow::Cow;
use std::ops::Range;

use crate::kafka::entries::{entries, Batch, LogEntry};
use crate::kafka::records::Record;
use crate::kafka::{messages, records};
use crate::sinks::records::plan::RecordPlan;
use crate::Odd;

const OVERHEAD: usize = 12;
const HEADER_BYTES: usize = 61;
const CRC_FROM: usize = 21;
/// In the key of a control record, after the version.
const CONTROL_TYPE: Range<usize> = 2..4;
const ABORT: [u8; 2] = [0; 2];

/// The records of a batch, of a compressed message, or of consecutive messages of the same kind.
pub struct OpenBatch<'a> {
    /// Of messages, the first one's.
    pub header: &'a LogEntry,
    pub base_offset: i64,
    /// The timestamp of all of them, if the broker set it.
    pub append_ms: Option<i64>,
    pub records: Vec<Record>,
    pub data: Cow<'a, [u8]>,
    /// Whether its transaction was aborted.
    pub is_aborted: bool,
}

impl OpenBatch<'_> {
    pub fn is_control(&self) -> bool {
        self.header.batch().is_some_and(Batch::is_control)
    }

    /// Whether it ends a transaction that was aborted.
    pub fn is_abort(&self) -> bool {
        let keys = self
            .records
            .iter()
            .filter_map(|record| self.data.get(record.key.clone()?));
        self.is_control()
            && keys
                .map(|key| key.get(CONTROL_TYPE))
                .any(|kind| kind == Some(&ABORT))
    }

    /// Odd: offsets descend.
    fn check(self) -> Result<Self, Odd> {
        let are_ascending = self.records.windows(2).all(|pair| match pair {
            [first, second] => first.offset <= second.offset,
            _ => true,
        });
        match are_ascending {
            true => Ok(self),
            false => Err(Odd),
        }
    }
}

/// The first batch, and its bytes. None if it is not complete.
pub fn first_batch(data: &[u8]) -> Result<Option<(LogEntry, &[u8])>, Odd> {
    let Some(entry) = entries(data).next().transpose()? else {
        return Ok(None);
    };
    entry.batch().ok_or(Odd)?;
    let size = usize::try_from(entry.size()).map_err(|_| Odd)?;
    Ok(data.get(..OVERHEAD + size).map(|whole| (entry, whole)))
}

impl RecordPlan {
    /// Reads a batch, as `_decode_batch` in kdissect/kafka/batches.py. `base_offset`: of its first record.
    /// `is_first`: whether none of the exchange was decompressed yet.
    pub fn opened_batch<'a>(
        &self,
        whole: &'a [u8],
        (header, batch): (&'a LogEntry, &Batch),
        base_offset: i64,
        number: u64,
        is_first: &mut bool,
    ) -> Result<OpenBatch<'a>, Odd> {
        if crc32c::crc32c(whole.get(CRC_FROM..).ok_or(Odd)?) != batch.crc {
            return Err(Odd);
        }
        let content = whole.get(HEADER_BYTES..).ok_or(Odd)?;
        let (data, place): (Cow<'a, [u8]>, _) = if header.compression() == 0 || content.is_empty() {
            (whole.into(), HEADER_BYTES..whole.len())
        } else {
            let inflated = self.inflated(number, is_first, header, content)?;
            let end = inflated.len();
            (inflated.into(), 0..end)
        };
        let records = records::read(&data, place, base_offset, batch.base_timestamp, self.bounds)?;
        if usize::try_from(batch.records) != Ok(records.len()) {
            return Err(Odd);
        }
        let append_ms = header.is_append_time().then_some(batch.max_timestamp);
        OpenBatch {
            header,
            base_offset,
            append_ms,
            records,
            data,
            is_aborted: false,
        }
        .check()
    }

    /// Reads messages, as `_decode_messages` in kdissect/kafka/batches.py. `base_offset`: of the first, if the broker
    /// said so. Returns them and how many bytes they are; None if the first is cut off.
    pub fn opened_set<'a>(
        &self,
        whole: &'a [u8],
        header: &'a LogEntry,
        base_offset: Option<i64>,
        number: u64,
        is_first: &mut bool,
    ) -> Result<Option<(OpenBatch<'a>, usize)>, Odd> {
        let max_records = self.bounds.records;
        let (mut records, end) = messages::read(whole, 0, max_records)?;
        let Some(first) = records.first() else {
            return Ok(None);
        };
        let mut data: Cow<'a, [u8]> = whole.into();
        let mut append_ms = None;
        if header.compression() != 0 {
            let content = first
                .value
                .clone()
                .and_then(|place| whole.get(place))
                .ok_or(Odd)?;
            let (magic, last_offset) = (header.magic(), first.offset);
            append_ms = Some(first.timestamp_ms).filter(|_| magic == 1 && header.is_append_time());
            data = self.inflated(number, is_first, header, content)?.into();
            records = messages::read_inner(&data, magic, max_records)?;
            // Offsets in magic 1 are relative (KIP-31). Old librdkafka producers set the wrapper's to 0.
            let last = records.last().ok_or(Odd)?.offset;
            if magic == 1 && last_offset != 0 {
                let shift = last_offset.checked_sub(last).ok_or(Odd)?;
                for record in &mut records {
                    record.offset = record.offset.checked_add(shift).ok_or(Odd)?;
                }
            }
        }
        if let Some(base_offset) = base_offset {
            for (index, record) in (0_i64..).zip(&mut records) {
                record.offset = base_offset.checked_add(index).ok_or(Odd)?;
            }
        }
        let base_offset = records.first().ok_or(Odd)?.offset;
        let batch = OpenBatch {
            header,
            base_offset,
            append_ms,
            records,
            data,
            is_aborted: false,
        };
        Ok(Some((batch.check()?, end)))
    }

    fn inflated(
        &self,
        number: u64,
        is_first: &mut bool,
        header: &LogEntry,
        content: &[u8],
    ) -> Result<Vec<u8>, Odd> {
        let is_first = std::mem::take(is_first);
        (self.inflate)(number, is_first, header.compression(), header.magic(), content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::rounds;
    use crate::kafka::records::Bounds;
    use crate::sinks::clock::TimeFormat;
    use crate::sinks::facts::{Captures, CommonPlan};
    use crate::sinks::records::plan::RecordFormat;

    const MAGIC_AT: usize = 16;
    const RECORD: [u8; 8] = [14, 0, 0, 0, 2, b'k', 1, 0];
    const BOUNDS: Bounds = Bounds {
        records: 10,
        headers: 2,
        all_headers: 3,
    };

    fn plan() -> RecordPlan {
        RecordPlan {
            common: CommonPlan {
                shared: Box::new(|_| Err(Odd)),
                api: Box::new(|_, _| None),
                error: Box::new(|_| Err(Odd)),
                topic_name: Box::new(|_, _| None),
                learn_name: Box::new(|_, _| Err(Odd)),
                around: Box::new(|_| Err(Odd)),
                budget: 0,
                leaves_flaws: false,
            },
            format: RecordFormat::Json,
            times: TimeFormat::of_moments(6),
            columns: Vec::new(),
            end: String::new(),
            encodings: Default::default(),
            before_fetch: Default::default(),
            no_optional: String::new(),
            captures: Captures::new(|_| Err(Odd)),
            label: Box::new(|topic, _| Ok((topic.to_owned(), true))),
            rejected: Box::new(|_| Err(Odd)),
            whole: Box::new(|_| Err(Odd)),
            printed: Box::new(|_, _| Err(Odd)),
            directions: (true, true),
            selects: None,
            opens: Box::new(|_, _| Err(Odd)),
            open_messages: Box::new(|_| Err(Odd)),
            optional: Box::new(|_| Err(Odd)),
            push_optional: Box::new(|_, _| Err(Odd)),
            inflate: Box::new(|_, _, _, _, data| Ok(data.to_vec())),
            bounds: BOUNDS,
            learn: Box::new(|_, _| Err(Odd)),
            has_room: None,
        }
    }

    /// A batch of so many records.
    fn batch(records: u8, attributes: u8) -> Vec<u8> {
        let mut data = vec![0; HEADER_BYTES];
        (0..records).for_each(|_| data.extend(RECORD));
        data[11] = (data.len() - OVERHEAD) as u8;
        data[MAGIC_AT] = 2;
        data[22] = attributes;
        data[60] = records;
        checked(data)
    }

    /// With its checksum, if it has a place for one.
    fn checked(mut data: Vec<u8>) -> Vec<u8> {
        if data.len() >= CRC_FROM {
            let crc = crc32c::crc32c(&data[CRC_FROM..]).to_be_bytes();
            data[CRC_FROM - 4..CRC_FROM].copy_from_slice(&crc);
        }
        data
    }

    #[test]
    fn batches_are_opened() {
        let plan = plan();
        for codec in [0, 3] {
            let whole = batch(3, codec);
            let mut is_first = true;
            let entry = entries(&whole).next().unwrap().unwrap();
            let header = (&entry, entry.batch().unwrap());
            let open = plan.opened_batch(&whole, header, 70, 1, &mut is_first).unwrap();
            assert_eq!((open.records.len(), open.base_offset), (3, 70));
            assert_eq!(is_first, codec == 0);
        }
        let is_odd = |data: &[u8]| {
            let entry = entries(data).next().unwrap().unwrap();
            let header = (&entry, entry.batch().unwrap());
            plan.opened_batch(data, header, 0, 1, &mut false).is_err()
        };
        assert!(is_odd(&batch(11, 0)), "more than the bounds");
        let mut data = batch(1, 0);
        data[60] = 2;
        assert!(is_odd(&data), "a wrong checksum");
        assert!(is_odd(&checked(data)), "a wrong number");
    }

    #[test]
    fn the_first_batch_is_found() {
        let whole = batch(2, 0);
        let several = [&whole[..], &whole[..40]].concat();
        assert_eq!(first_batch(&several).unwrap().unwrap().1, whole);
        for end in 0..whole.len() {
            assert_eq!(first_batch(&whole[..end]), Ok(None), "{end}");
        }
        for (place, byte) in [(MAGIC_AT, 1), (8, 0xFF), (11, 48)] {
            let mut data = whole.clone();
            data[place] = byte;
            assert_eq!(first_batch(&data), Err(Odd));
        }
    }

    #[test]
    fn no_batches_panic() {
        let (plan, mut taken) = (plan(), 0);
        rounds("batches", 20_000, |random| {
            let codec = [0, 0, 1][random.below(3)];
            let mut data = batch(random.below(4) as u8, codec);
            random.damage(&mut data);
            let Ok(Some((_, whole))) = first_batch(&data) else {
                return;
            };
            let whole = checked(whole.to_vec());
            let Some(Ok(entry)) = entries(&whole).next() else {
                return;
            };
            let Some(header) = entry.batch() else { return };
            let base_offset = [header.base_offset, 0, i64::MAX][random.below(3)];
            let open = plan.opened_batch(&whole, (&entry, header), base_offset, 1, &mut true);
            taken += usize::from(open.is_ok());
        });
        assert!(taken > 1000);
    }
}
