//! Messages of magic 0 and 1: what `read_messages` in kdissect/kafka/messageset.py reads.

use std::ops::Range;

use crate::kafka::entries::NO_TIMESTAMP;
use crate::kafka::records::{Record, Span};
use crate::kafka::wire::Reader;
use crate::Odd;

/// From here on, a checksum covers a message.
const MAGIC_AT: usize = 16;
const CODEC: u8 = 0x07;

/// Reads the first message and those after it with the same magic and attributes, up to one that is cut off. Returns
/// them, and where they end. One that is compressed is read alone, and its value is still compressed.
pub fn read(data: &[u8], start: usize, max_records: usize) -> Result<(Vec<Record>, usize), Odd> {
    let kind = kind_at(data, start).ok_or(Odd)?;
    let [magic, attributes] = kind;
    let shortest = match magic {
        0 => 26,
        1 => 34,
        _ => return Err(Odd),
    };
    let mut records = Vec::new();
    let mut pos = start;
    while data.len() - pos >= shortest && kind_at(data, pos) == Some(kind) {
        let mut reader = Reader::new(data, pos);
        let offset = reader.i64()?;
        let size = usize::try_from(reader.i32()?).map_err(|_| Odd)?;
        let end = reader.pos() + size;
        if end > data.len() {
            break;
        }
        if records.len() >= max_records {
            return Err(Odd);
        }
        let crc = u32::from_be_bytes(reader.array()?);
        reader.take(kind.len())?;
        let timestamp_ms = match magic {
            0 => NO_TIMESTAMP,
            _ => reader.i64()?,
        };
        records.push(Record {
            offset,
            timestamp_ms,
            key: span(&mut reader)?,
            value: span(&mut reader)?,
            headers: Vec::new(),
        });
        let covered = data.get(pos + MAGIC_AT..end).ok_or(Odd)?;
        if reader.pos() != end || crc32fast::hash(covered) != crc {
            return Err(Odd);
        }
        pos = end;
        if is_compressed(attributes) {
            break;
        }
    }
    Ok((records, pos))
}

/// Reads the messages in one that was compressed, of the same magic. There is at least one.
pub fn read_inner(data: &[u8], magic: u8, max_records: usize) -> Result<Vec<Record>, Odd> {
    let mut records = Vec::new();
    let mut pos = 0;
    while pos < data.len() {
        let [inner_magic, attributes] = kind_at(data, pos).ok_or(Odd)?;
        if inner_magic != magic || is_compressed(attributes) {
            return Err(Odd);
        }
        let (mut more, end) = read(data, pos, max_records - records.len())?;
        if more.is_empty() {
            return Err(Odd);
        }
        records.append(&mut more);
        pos = end;
    }
    match records.is_empty() {
        true => Err(Odd),
        false => Ok(records),
    }
}

/// Magic and attributes.
fn kind_at(data: &[u8], pos: usize) -> Option<[u8; 2]> {
    let place: Range<usize> = pos.checked_add(MAGIC_AT)?..pos.checked_add(MAGIC_AT + 2)?;
    data.get(place)?.try_into().ok()
}

fn is_compressed(attributes: u8) -> bool {
    attributes & CODEC != 0
}

fn span(reader: &mut Reader<'_>) -> Result<Span, Odd> {
    let length = reader.long()?;
    let start = reader.pos();
    length
        .map(|length| reader.take(length).map(|_| start..start + length))
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::rounds;

    /// With its checksum.
    fn message(magic: u8, attributes: u8, offset: u8) -> Vec<u8> {
        let mut data = vec![
            0, 0, 0, 0, 0, 0, 0, offset, 0, 0, 0, 0, 0, 0, 0, 0, magic, attributes,
        ];
        if magic == 1 {
            data.extend([0, 0, 0, 0, 0, 0, 0, 9]);
        }
        data.extend([0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 2, b'o', b'k']);
        checked(data)
    }

    fn checked(mut data: Vec<u8>) -> Vec<u8> {
        data[11] = data.len() as u8 - 12;
        let crc = crc32fast::hash(&data[16..]).to_be_bytes();
        data[12..16].copy_from_slice(&crc);
        data
    }

    fn offsets(records: &[Record]) -> Vec<i64> {
        records.iter().map(|record| record.offset).collect()
    }

    #[test]
    fn messages_of_a_kind_are_read_together() {
        let data = [message(1, 0, 5), message(1, 0, 6), message(0, 0, 7)].concat();
        let (records, end) = read(&data, 0, 9).unwrap();
        assert_eq!((offsets(&records), records[0].timestamp_ms), (vec![5, 6], 9));
        assert_eq!(records[0].key, None);
        assert_eq!(&data[records[1].value.clone().unwrap()], b"ok");
        let (records, end) = read(&data, end, 9).unwrap();
        assert_eq!((offsets(&records), records[0].timestamp_ms), (vec![7], -1));
        assert_eq!(end, data.len());
        assert!(read(&data, 0, 1).is_err(), "more than the bounds");
        let (records, _) = read(&data[..40], 0, 9).unwrap();
        assert_eq!(offsets(&records), [5], "the next one is cut off");
        let compressed = [message(1, 1, 5), message(1, 1, 6)].concat();
        assert_eq!(offsets(&read(&compressed, 0, 1).unwrap().0), [5]);
    }

    #[test]
    fn inner_messages_are_whole_and_of_one_magic() {
        let data = [message(1, 0, 5), message(1, 8, 6)].concat();
        assert_eq!(offsets(&read_inner(&data, 1, 2).unwrap()), [5, 6]);
        assert!(read_inner(&data, 1, 1).is_err());
        assert!(read_inner(&data, 0, 2).is_err());
        assert!(read_inner(&data[..data.len() - 1], 1, 2).is_err());
        assert!(read_inner(&message(1, 2, 5), 1, 2).is_err());
        assert!(read_inner(&[], 1, 2).is_err());
    }

    #[test]
    fn no_messages_panic() {
        let mut taken = 0;
        rounds("messages", 20_000, |random| {
            let magic = random.below(2) as u8;
            let mut data = [message(magic, 0, 5), message(magic, 0, 6)].concat();
            let place = random.below(data.len());
            random.damage(&mut data);
            if data.len() > 20 && random.below(2) == 0 {
                data = checked(data);
            }
            taken += usize::from(read(&data, 0, 9).is_ok());
            taken += usize::from(read(&data, place, 9).is_ok());
            taken += usize::from(read_inner(&data, magic, 9).is_ok());
        });
        assert!(taken > 1000);
    }
}
