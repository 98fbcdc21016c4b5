//! The records of a batch of magic 2, uncompressed or decompressed: what `read_batch` in
//! kdissect/kafka/recordbatch.py reads.

use std::ops::Range;

use crate::kafka::wire::Reader;
use crate::Odd;

/// Position of a value. None: null.
pub type Span = Option<Range<usize>>;

pub struct Record {
    pub offset: i64,
    pub timestamp_ms: i64,
    pub key: Span,
    pub value: Span,
    /// In wire order, keys and values.
    pub headers: Vec<(Range<usize>, Span)>,
}

/// Limits of what is read of a batch. More is odd.
#[derive(Clone, Copy)]
pub struct Bounds {
    pub records: usize,
    /// Headers of one record.
    pub headers: usize,
    /// Headers of all records together.
    pub all_headers: usize,
}

/// Reads all records between two positions.
pub fn read(
    data: &[u8],
    place: Range<usize>,
    base_offset: i64,
    base_timestamp_ms: i64,
    mut bounds: Bounds,
) -> Result<Vec<Record>, Odd> {
    if place.start > place.end {
        return Err(Odd);
    }
    let mut reader = Reader::new(data.get(..place.end).ok_or(Odd)?, place.start);
    let mut records = Vec::new();
    while reader.left() > 0 {
        if records.len() >= bounds.records {
            return Err(Odd);
        }
        let length = length(&mut reader)?;
        if length > reader.left() {
            return Err(Odd);
        }
        let end = reader.pos() + length;
        reader.byte()?; // attributes: none are defined
        records.push(Record {
            timestamp_ms: base_timestamp_ms.checked_add(reader.varlong()?).ok_or(Odd)?,
            offset: base_offset.checked_add(reader.varint()?).ok_or(Odd)?,
            key: span(&mut reader)?,
            value: span(&mut reader)?,
            headers: headers(&mut reader, data, &mut bounds)?,
        });
        if reader.pos() != end {
            return Err(Odd);
        }
    }
    Ok(records)
}

fn length(reader: &mut Reader) -> Result<usize, Odd> {
    usize::try_from(reader.varint()?).map_err(|_| Odd)
}

/// Null is -1 in one byte.
fn span(reader: &mut Reader) -> Result<Span, Odd> {
    let start = reader.pos();
    let length = reader.varint()?;
    if length == -1 && reader.pos() == start + 1 {
        return Ok(None);
    }
    let start = reader.pos();
    reader.take(usize::try_from(length).map_err(|_| Odd)?)?;
    Ok(Some(start..reader.pos()))
}

fn headers(reader: &mut Reader, data: &[u8], bounds: &mut Bounds) -> Result<Vec<(Range<usize>, Span)>, Odd> {
    let count = length(reader)?;
    if count > bounds.headers {
        return Err(Odd);
    }
    bounds.all_headers = bounds.all_headers.checked_sub(count).ok_or(Odd)?;
    let mut headers = Vec::new();
    for _ in 0..count {
        let key = span(reader)?.ok_or(Odd)?;
        std::str::from_utf8(&data[key.clone()]).map_err(|_| Odd)?; // Python shows its bytes as escapes
        headers.push((key, span(reader)?));
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::{rounds, Random};
    use crate::sinks::record_lines::{json, plain_text};

    const USUAL: Bounds = Bounds {
        records: 10,
        headers: 2,
        all_headers: 3,
    };

    /// A record with what comes after its length.
    fn record(content: &[u8]) -> Vec<u8> {
        let mut record = vec![2 * u8::try_from(content.len()).unwrap()];
        record.extend(content);
        record
    }

    /// One with key "k", null, and a header "h" that is empty; then one that has nothing.
    fn two() -> Vec<u8> {
        let first = record(&[0, 2, 0, 2, b'k', 1, 2, 2, b'h', 0]);
        [first, record(&[0, 0x81, 1, 2, 0, 0, 0])].concat()
    }

    fn try_read(data: &[u8], bounds: Bounds) -> Result<Vec<Record>, Odd> {
        read(data, 0..data.len(), 100, 1000, bounds)
    }

    #[test]
    fn records_are_read() {
        let records = try_read(&two(), USUAL).unwrap();
        let [first, second] = &records[..] else { panic!() };
        assert_eq!((first.offset, first.timestamp_ms), (100, 1001));
        assert_eq!((&first.key, &first.value), (&Some(5..6), &None));
        assert_eq!(first.headers, [(9..10, Some(11..11))]);
        assert_eq!((second.offset, second.timestamp_ms), (101, 1000 - 65));
        assert_eq!((&second.key, &second.value), (&Some(17..17), &Some(18..18)));
        assert!(second.headers.is_empty());
    }

    #[test]
    fn what_is_not_usual_is_odd() {
        let is_odd = |content: &[u8]| try_read(&record(content), USUAL).is_err();
        assert!(!is_odd(&[0, 0, 0, 1, 1, 0]));
        assert!(is_odd(&[0, 0, 0, 1, 1, 0, 0]), "bytes after the headers");
        assert!(is_odd(&[0, 0, 0, 1, 1]), "no headers");
        assert!(is_odd(&[0, 0, 0, 3, 1, 0]), "a length of -2");
        assert!(is_odd(&[0, 0, 0, 0x81, 0, 1, 0]), "-1 in two bytes");
        assert!(is_odd(&[0, 0, 0, 1, 1, 2, 1, 1]), "a header without key");
        assert!(is_odd(&[0, 0, 0, 1, 1, 2, 2, 0xFF, 1]), "a key that is not UTF-8");
        assert!(is_odd(&[0, 0, 0, 1, 1, 6, 0, 1, 0, 1, 0, 1]), "many headers");
        let data = two();
        for end in 0..data.len() {
            let is_complete = [0, 11].contains(&end);
            assert_eq!(try_read(&data[..end], USUAL).is_ok(), is_complete, "{end}");
        }
        assert!(read(&data, 0..data.len(), i64::MAX, 0, USUAL).is_err());
        assert!(read(&data, 0..data.len(), 0, i64::MAX, USUAL).is_err());
        assert!(read(&data, 0..data.len() + 1, 0, 0, USUAL).is_err());
    }

    #[test]
    fn bounds_hold() {
        let one = Bounds { records: 1, ..USUAL };
        assert!(try_read(&two(), one).is_err());
        let data = [two(), two(), two(), two()].concat();
        assert!(try_read(&data[..3 * two().len()], USUAL).is_ok());
        assert!(try_read(&data, USUAL).is_err(), "four headers");
    }

    fn random_record(random: &mut Random) -> Vec<u8> {
        let mut content = vec![0];
        for _ in 0..2 {
            let more = [0x80, 0xFF][random.below(2)];
            content.extend(std::iter::repeat_n(more, random.below(3) * random.below(5)));
            content.push(random.number() as u8 & 0x7F);
        }
        let mut push_bytes = |content: &mut Vec<u8>| match random.below(4) {
            0 => content.push(1),
            _ => {
                let size = random.below(8);
                content.push(2 * size as u8);
                let mask = if random.below(2) == 0 { 0x7F } else { 0xFF };
                content.extend((0..size).map(|_| random.number() as u8 & mask));
            }
        };
        push_bytes(&mut content);
        push_bytes(&mut content);
        content.push(2);
        push_bytes(&mut content);
        push_bytes(&mut content);
        record(&content)
    }

    #[test]
    fn no_records_panic() {
        let mut taken = 0;
        rounds("records", 50_000, |random| {
            let mut data: Vec<u8> = (0..random.below(4)).flat_map(|_| random_record(random)).collect();
            random.damage(&mut data);
            let base = [0, -1, i64::MIN, i64::MAX][random.below(4)];
            let Ok(records) = read(&data, 0..data.len(), base, base, USUAL) else {
                return;
            };
            taken += records.len();
            for Record {
                key, value, headers, ..
            } in records
            {
                for span in [key, value]
                    .into_iter()
                    .chain(headers.into_iter().map(|(_, value)| value))
                {
                    let payload = span.map(|place| &data[place]);
                    let mut out = Vec::new();
                    json(payload, b"", &mut out);
                    std::str::from_utf8(&out).unwrap();
                    assert!(plain_text(payload).is_none_or(|text| text.is_ascii()));
                }
            }
        });
        assert!(taken > 1000);
    }
}
