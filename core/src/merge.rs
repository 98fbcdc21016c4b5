//! Rows of several processes -> the same rows in the order in which one process would write them, as
//! kdissect/parallel/assembling.py and kdissect/exchanges/ordering.py put them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use crate::Odd;

/// Bytes of a number in a key.
const NUMBER: usize = 8;
/// Numbers in a key.
const NUMBERS: usize = 6;
pub const KEY: usize = NUMBERS * NUMBER;
/// Instead of the bytes of the text: Python has the row.
const OBJECT: i64 = -1;

/// The key of a row: place, time and packet of completion, bytes of the frames, connection, and bytes of the text.
pub fn key(numbers: [i64; NUMBERS]) -> [u8; KEY] {
    let mut bytes = [0; KEY];
    for (place, number) in bytes.chunks_mut(NUMBER).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

type Order = (i64, i64);

/// What a row is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Where its text is in that of its batch.
    Text(Arc<[u8]>, usize, usize),
    /// The number of a row that Python has, among those of its process.
    Object(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub worker: usize,
    pub completed_ns: i64,
    packet: i64,
    pub held: i64,
    connection: i64,
    pub content: Content,
}

/// The rows of a process that are not merged yet, each with its place, and since when its connections wait, from
/// which place on.
#[derive(Default)]
struct Part {
    rows: VecDeque<(i64, Row)>,
    waits: VecDeque<(i64, Option<i64>)>,
    waiting_since_ns: Option<i64>,
    objects: u64,
}

impl Part {
    /// The place where something happens next.
    fn next(&self) -> Option<i64> {
        let row = self.rows.front().map(|each| each.0);
        let wait = self.waits.front().map(|each| each.0);
        match (row, wait) {
            (Some(row), Some(wait)) => Some(row.min(wait)),
            (row, wait) => row.or(wait),
        }
    }
}

pub struct Merge {
    parts: Vec<Part>,
    most_rows: usize,
    most_bytes: i64,
    held: BTreeMap<(Order, i64, u64), Row>, // by order, connection and arrival
    latest: HashMap<i64, Order>,            // by connection: order of the last one held
    bytes: i64,
    arrivals: u64,
    /// In order.
    pub ready: VecDeque<Row>,
}

impl Merge {
    /// `most_rows`, `most_bytes`: how many rows are held until their order is settled.
    pub fn new(workers: usize, most_rows: usize, most_bytes: i64) -> Self {
        Merge {
            parts: (0..workers).map(|_| Part::default()).collect(),
            most_rows,
            most_bytes,
            held: BTreeMap::new(),
            latest: HashMap::new(),
            bytes: 0,
            arrivals: 0,
            ready: VecDeque::new(),
        }
    }

    /// Adds the next rows of a process: their keys and texts, and its waits.
    pub fn add(
        &mut self,
        worker: usize,
        keys: &[u8],
        text: &[u8],
        waits: Vec<(i64, Option<i64>)>,
    ) -> Result<(), Odd> {
        let text: Arc<[u8]> = text.into();
        let part = self.parts.get_mut(worker).ok_or(Odd)?;
        let mut at: usize = 0;
        for key in keys.chunks(KEY) {
            let mut numbers = [0; NUMBERS];
            for (number, bytes) in numbers.iter_mut().zip(key.chunks(NUMBER)) {
                *number = i64::from_le_bytes(bytes.try_into().map_err(|_| Odd)?);
            }
            let [place, completed_ns, packet, held, connection, size] = numbers;
            let content = if size == OBJECT {
                part.objects += 1;
                Content::Object(part.objects - 1)
            } else {
                let size = usize::try_from(size).map_err(|_| Odd)?;
                let end = at.checked_add(size).filter(|&end| end <= text.len()).ok_or(Odd)?;
                let begin = std::mem::replace(&mut at, end);
                Content::Text(text.clone(), begin, end)
            };
            let row = Row {
                worker,
                completed_ns,
                packet,
                held,
                connection,
                content,
            };
            part.rows.push_back((place, row));
        }
        part.waits.extend(waits);
        Ok(())
    }

    /// Merges the rows of all processes up to and including a place.
    pub fn advance(&mut self, until: i64) {
        while let Some(place) = self.parts.iter().filter_map(Part::next).min() {
            if place > until {
                break;
            }
            let mut rows = Vec::new();
            for part in &mut self.parts {
                while part.waits.front().is_some_and(|wait| wait.0 <= place) {
                    part.waiting_since_ns = part.waits.pop_front().and_then(|wait| wait.1);
                }
                while part.rows.front().is_some_and(|row| row.0 <= place) {
                    rows.extend(part.rows.pop_front().map(|row| row.1));
                }
            }
            let waiting = self.parts.iter().filter_map(|part| part.waiting_since_ns).min();
            self.order(rows, waiting);
        }
    }

    /// As `Ordering.feed`.
    fn order(&mut self, rows: Vec<Row>, waiting_since_ns: Option<i64>) {
        let is_one = rows.windows(2).all(|two| two[0].connection == two[1].connection);
        if self.held.is_empty() && waiting_since_ns.is_none() && is_one {
            self.ready.extend(rows);
            return;
        }
        for row in rows {
            let own = (row.completed_ns, row.packet);
            let order = self
                .latest
                .get(&row.connection)
                .map_or(own, |&latest| latest.max(own));
            self.latest.insert(row.connection, order);
            self.bytes = self.bytes.saturating_add(row.held);
            self.held.insert((order, row.connection, self.arrivals), row);
            self.arrivals += 1;
        }
        while let Some(first) = self.held.first_entry() {
            let is_settled = waiting_since_ns.is_none_or(|time_ns| first.key().0 .0 < time_ns);
            let row = if is_settled {
                first.remove()
            } else if self.held.len() > self.most_rows || self.bytes > self.most_bytes {
                match self.held.pop_first() {
                    Some((_, row)) => row,
                    None => break,
                }
            } else {
                break;
            };
            self.bytes = self.bytes.saturating_sub(row.held);
            self.ready.push_back(row);
        }
        if self.held.is_empty() {
            self.latest.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(place: i64, completed_ns: i64, connection: i64, size: i64) -> [u8; KEY] {
        key([place, completed_ns, place, 10, connection, size])
    }

    fn ready(merge: &mut Merge) -> String {
        let text = |row: Row| match row.content {
            Content::Text(text, begin, end) => String::from_utf8_lossy(&text[begin..end]).into_owned(),
            Content::Object(number) => format!("<{}.{number}>", row.worker),
        };
        merge.ready.drain(..).map(text).collect()
    }

    #[test]
    fn rows_come_in_order_of_their_places() {
        let mut merge = Merge::new(2, 8, 1000);
        let keys = [row(2, 20, 1, 1), row(6, 60, 1, OBJECT), row(8, 80, 1, 2)].concat();
        merge.add(0, &keys, b"aDD", Vec::new()).unwrap();
        merge.add(1, &row(4, 40, 2, 1), b"b", Vec::new()).unwrap();
        merge.advance(6);
        assert_eq!(ready(&mut merge), "ab<0.0>");
        merge.advance(8);
        assert_eq!(ready(&mut merge), "DD");
    }

    #[test]
    fn rows_wait_for_what_may_come_before_them() {
        let mut merge = Merge::new(2, 8, 1000);
        merge.add(0, &row(4, 40, 1, 1), b"b", Vec::new()).unwrap();
        merge
            .add(1, &row(6, 20, 2, 1), b"a", vec![(2, Some(20)), (6, None)])
            .unwrap();
        merge.advance(4);
        assert_eq!(ready(&mut merge), "");
        merge.advance(6);
        assert_eq!(ready(&mut merge), "ab");
    }

    #[test]
    fn no_more_rows_wait_than_the_limits_allow() {
        for (rows, bytes) in [(1, 1000), (8, 10)] {
            let mut merge = Merge::new(1, rows, bytes);
            let keys = [row(4, 40, 1, 1), row(6, 60, 1, 1)].concat();
            merge.add(0, &keys, b"ab", vec![(2, Some(20))]).unwrap();
            merge.advance(6);
            assert_eq!(ready(&mut merge), "a");
        }
    }

    #[test]
    fn what_does_not_fit_is_odd() {
        let mut merge = Merge::new(1, 8, 1000);
        assert_eq!(merge.add(1, b"", b"", Vec::new()), Err(Odd));
        assert_eq!(merge.add(0, b"short", b"", Vec::new()), Err(Odd));
        assert_eq!(merge.add(0, &row(2, 20, 1, 3), b"ab", Vec::new()), Err(Odd));
        assert_eq!(merge.add(0, &row(2, 20, 1, -7), b"ab", Vec::new()), Err(Odd));
    }
}
