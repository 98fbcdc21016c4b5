//! Record data -> the headers of its batches and messages, as kdissect/kafka/records.py reads them.

use crate::kafka::wire::Reader;
use crate::Odd;

/// The shortest entries, up to what follows the magic.
const ENTRY_BYTES: usize = 18;
const MIN_BATCH_BYTES: usize = 49;
const MIN_MESSAGE_BYTES: usize = 14;
const TIMESTAMP_BYTES: usize = 8;
const CODEC: i16 = 0x07;
const LOG_APPEND_TIME: i16 = 0x08;
pub const NO_TIMESTAMP: i64 = -1;

/// A record batch, or a message before there were batches.
#[derive(Debug, PartialEq)]
pub enum LogEntry {
    Batch(Batch),
    Message(OldMessage),
}

/// The header of a record batch of magic 2.
#[derive(Debug, PartialEq)]
pub struct Batch {
    pub base_offset: i64,
    pub length: i32,
    pub leader_epoch: i32,
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub records: i32,
}

/// The header of a message of magic 0 or 1, which may hold others.
#[derive(Debug, PartialEq)]
pub struct OldMessage {
    pub offset: i64,
    pub size: i32,
    pub crc: u32,
    pub magic: u8,
    pub attributes: i8,
    /// Of magic 1.
    pub timestamp: Option<i64>,
}

impl Batch {
    pub fn is_transactional(&self) -> bool {
        self.attributes & 0x10 != 0
    }

    /// Whether it has markers of transactions instead of records.
    pub fn is_control(&self) -> bool {
        self.attributes & 0x20 != 0
    }
}

impl LogEntry {
    /// None: it is a message.
    pub fn batch(&self) -> Option<&Batch> {
        match self {
            LogEntry::Batch(batch) => Some(batch),
            LogEntry::Message(_) => None,
        }
    }

    pub fn magic(&self) -> u8 {
        match self {
            LogEntry::Batch(_) => 2,
            LogEntry::Message(message) => message.magic,
        }
    }

    pub fn attributes(&self) -> i16 {
        match self {
            LogEntry::Batch(batch) => batch.attributes,
            LogEntry::Message(message) => message.attributes.into(),
        }
    }

    /// Bytes after offset and size.
    pub fn size(&self) -> i32 {
        match self {
            LogEntry::Batch(batch) => batch.length,
            LogEntry::Message(message) => message.size,
        }
    }

    /// Of the first record; of a message, see `last_offset`.
    pub fn base_offset(&self) -> i64 {
        match self {
            LogEntry::Batch(batch) => batch.base_offset,
            LogEntry::Message(message) => message.offset,
        }
    }

    /// Of the last record; a message that holds others has that of the last of them.
    pub fn last_offset(&self) -> Result<i64, Odd> {
        match self {
            LogEntry::Batch(batch) => batch.base_offset.checked_add(batch.last_offset_delta.into()),
            LogEntry::Message(message) => Some(message.offset),
        }
        .ok_or(Odd)
    }

    /// The newest timestamp of a record, or -1.
    pub fn max_timestamp(&self) -> i64 {
        match self {
            LogEntry::Batch(batch) => batch.max_timestamp,
            LogEntry::Message(message) => message.timestamp.unwrap_or(NO_TIMESTAMP),
        }
    }

    /// None: compression hides the number.
    pub fn records(&self) -> Option<u64> {
        match self {
            LogEntry::Batch(batch) => Some(batch.records.try_into().unwrap_or(0)),
            LogEntry::Message(_) => (self.compression() == 0).then_some(1),
        }
    }

    /// The number of the codec, 0 if there is none.
    pub fn compression(&self) -> i16 {
        self.attributes() & CODEC
    }

    pub fn codec(&self) -> &'static str {
        let codecs = [
            "none", "gzip", "snappy", "lz4", "zstd", "codec 5", "codec 6", "codec 7",
        ];
        codecs[usize::from(self.compression().unsigned_abs())]
    }

    pub fn is_append_time(&self) -> bool {
        self.attributes() & LOG_APPEND_TIME != 0
    }

    /// Magic 0 has no timestamps.
    pub fn timestamp_type(&self) -> Option<&'static str> {
        match (self.magic(), self.is_append_time()) {
            (0, _) => None,
            (_, true) => Some("LogAppendTime"),
            (_, false) => Some("CreateTime"),
        }
    }
}

/// The headers up to one that is cut off. Anything else is odd.
pub fn entries(data: &[u8]) -> impl Iterator<Item = Result<LogEntry, Odd>> + '_ {
    let mut reader = Reader::new(data, 0);
    std::iter::from_fn(move || entry(&mut reader).transpose())
}

/// The number of records. None: compression hides it.
pub fn record_count(data: &[u8]) -> Result<Option<u64>, Odd> {
    entries(data).try_fold(Some(0), |sum, entry| {
        let number = entry?.records();
        Ok(sum.zip(number).map(|(sum, number)| sum + number))
    })
}

/// None: it is cut off.
fn entry(reader: &mut Reader<'_>) -> Result<Option<LogEntry>, Odd> {
    if reader.left() < ENTRY_BYTES {
        return Ok(None);
    }
    let offset = reader.i64()?;
    let size = reader.i32()?;
    let length = usize::try_from(size).map_err(|_| Odd)?;
    let magic = reader.peek(4).ok_or(Odd)?;
    let smallest = match magic {
        0 | 1 => MIN_MESSAGE_BYTES,
        2 => MIN_BATCH_BYTES,
        _ => return Err(Odd),
    };
    if length < smallest {
        return Err(Odd);
    }
    if length > reader.left() {
        return Ok(None);
    }
    let mut rest = Reader::new(reader.take(length)?, 0);
    if magic < 2 {
        let crc = u32::from_be_bytes(rest.array()?);
        rest.byte()?;
        let attributes = rest.i8()?;
        let has_timestamp = magic == 1 && length >= MIN_MESSAGE_BYTES + TIMESTAMP_BYTES;
        return Ok(Some(LogEntry::Message(OldMessage {
            offset,
            size,
            crc,
            magic,
            attributes,
            timestamp: has_timestamp.then(|| rest.i64()).transpose()?,
        })));
    }
    let leader_epoch = rest.i32()?;
    rest.byte()?;
    Ok(Some(LogEntry::Batch(Batch {
        base_offset: offset,
        length: size,
        leader_epoch,
        crc: u32::from_be_bytes(rest.array()?),
        attributes: rest.i16()?,
        last_offset_delta: rest.i32()?,
        base_timestamp: rest.i64()?,
        max_timestamp: rest.i64()?,
        producer_id: rest.i64()?,
        producer_epoch: rest.i16()?,
        base_sequence: rest.i32()?,
        records: rest.i32()?,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Vec<u8> {
        let mut batch = vec![0; 61];
        batch[11] = 49;
        batch[16] = 2;
        batch[60] = 3;
        batch
    }

    fn message(magic: u8, attributes: u8) -> Vec<u8> {
        let mut message = vec![0; if magic == 1 { 34 } else { 26 }];
        message[11] = message.len() as u8 - 12;
        message[16] = magic;
        message[17] = attributes;
        message
    }

    #[test]
    fn records_are_counted_up_to_an_entry_that_is_cut_off() {
        let (batch, message) = (batch(), message(1, 0));
        let several = [&batch[..], &batch[..], &message[..]].concat();
        assert_eq!(record_count(&several), Ok(Some(7)));
        for end in several.len() - message.len()..several.len() {
            assert_eq!(record_count(&several[..end]), Ok(Some(6)), "{end}");
        }
    }

    #[test]
    fn compression_hides_messages() {
        assert_eq!(record_count(&message(0, 2)), Ok(None));
        assert_eq!(record_count(&[message(0, 2), batch()].concat()), Ok(None));
    }

    #[test]
    fn entries_of_an_impossible_kind_or_size_are_odd() {
        for (place, byte) in [(16, 3), (16, 0xFF), (11, 48), (8, 0xFF)] {
            let mut data = batch();
            data[place] = byte;
            assert_eq!(record_count(&data), Err(Odd));
        }
        let mut short = message(0, 0);
        short[11] = 13;
        assert_eq!(record_count(&short), Err(Odd));
    }
}
