//! Rows of several processes -> the same rows in the order in which one process would write them, as
//! kdissect/runs/assembling.py and kdissect/exchanges/ordering.py put them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use crate::Odd;

/// Bytes of a number in a key.
const NUMBER: usize = 8;
/// Numbers in a key.
const NUMBERS: usize = 6;
pub const KEY: usize = NUMBERS * NUMBER;
/// Instead of the bytes of the text: Python has the row.
pub const OBJECT: i64 = -1;
/// After all places.
const NEVER: i64 = i64::MAX;

/// The key of a row: place, time and packet of completion, bytes of the frames, connection, and bytes of the text:
/// none if it is not selected, and only keeps its place in the order.
pub fn key(numbers: [i64; NUMBERS]) -> [u8; KEY] {
    let mut bytes = [0; KEY];
    for (place, number) in bytes.chunks_mut(NUMBER).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

type RowOrder = (i64, i64);

/// Where a batch is: memory of another process, or that of a test.
pub type Memory = Box<dyn AsRef<[u8]> + Send + Sync>;

/// Keys of rows, in the order in which a process completed them, and then their texts.
struct PartBatch {
    memory: Memory,
    /// Where the keys end.
    keys: usize,
}

impl PartBatch {
    fn bytes(&self) -> &[u8] {
        (*self.memory).as_ref()
    }

    /// The key that begins there.
    fn key(&self, at: usize) -> Key<'_> {
        Key(self.bytes().get(at..at + KEY).unwrap_or_default())
    }
}

/// A key of a row. Keys are checked when they come.
#[derive(Clone, Copy)]
struct Key<'a>(&'a [u8]);

impl Key<'_> {
    fn number(self, index: usize) -> i64 {
        let bytes = self.0.get(index * NUMBER..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| i64::from_le_bytes(*bytes))
    }

    fn place(self) -> i64 {
        self.number(0)
    }

    fn connection(self) -> i64 {
        self.number(4)
    }

    /// Bytes of the text. None: Python has the row.
    fn size(self) -> Option<usize> {
        usize::try_from(self.number(5)).ok()
    }
}

/// Consecutive rows of a batch that have texts: where their keys begin and end, and their texts.
pub struct TextRun {
    batch: Arc<PartBatch>,
    keys: Range<usize>,
    text: Range<usize>,
}

impl TextRun {
    /// A row that may be held for long, which its batch is not meant to be.
    fn copied(batch: &PartBatch, key: Range<usize>, text: Range<usize>) -> TextRun {
        let bytes = |range| batch.bytes().get(range).unwrap_or_default();
        let memory = [bytes(key), bytes(text)].concat();
        TextRun {
            text: KEY..memory.len(),
            batch: Arc::new(PartBatch {
                memory: Box::new(memory),
                keys: KEY,
            }),
            keys: 0..KEY,
        }
    }

    pub fn rows(&self) -> usize {
        self.keys.len() / KEY
    }

    /// How many have a text. The others are not selected.
    pub fn shown(&self) -> usize {
        let sizes = self
            .keys
            .clone()
            .step_by(KEY)
            .map(|key| self.batch.key(key).size());
        sizes.filter(|size| size.is_some_and(|size| size > 0)).count()
    }

    pub fn text(&self) -> &[u8] {
        self.batch.bytes().get(self.text.clone()).unwrap_or_default()
    }

    /// Time of completion and bytes of the frames, of the last row.
    pub fn last(&self) -> (i64, i64) {
        let key = self.batch.key(self.keys.end - KEY);
        (key.number(1), key.number(3))
    }

    /// Its first rows, so many of which are shown; all of them if there are no more.
    pub fn first(&self, shown: usize) -> TextRun {
        let mut left = TextRun {
            batch: self.batch.clone(),
            keys: self.keys.clone(),
            text: self.text.clone(),
        };
        let mut taken = 0;
        while taken < shown && left.rows() > 0 {
            taken += usize::from(!left.split().text().is_empty());
        }
        TextRun {
            batch: self.batch.clone(),
            keys: self.keys.start..left.keys.start,
            text: self.text.start..left.text.start,
        }
    }

    /// Removes and returns the first row.
    pub fn split(&mut self) -> TextRun {
        let size = self.batch.key(self.keys.start).size().unwrap_or_default();
        let first = TextRun {
            batch: self.batch.clone(),
            keys: self.keys.start..self.keys.start + KEY,
            text: self.text.start..self.text.start + size,
        };
        (self.keys.start, self.text.start) = (first.keys.end, first.text.end);
        first
    }
}

/// What comes next.
pub enum RowContent {
    Text(TextRun),
    /// A row that Python has: its process, and its number among those of that process.
    Object(usize, u64),
}

struct HeldRow {
    order: RowOrder,
    held: i64,
    connection: i64,
    content: RowContent,
}

/// The rows of a process that are not merged yet, and since when its connections wait, from which place on.
struct Part {
    batches: VecDeque<Arc<PartBatch>>,
    /// In the first batch, if there is one: where the next key and the next text begin.
    key: usize,
    text: usize,
    /// Place of the next row; `NEVER`: there is none.
    place: i64,
    waits: VecDeque<(i64, Option<i64>)>,
    waiting_since_ns: Option<i64>,
    objects: u64,
}

impl Part {
    fn new() -> Self {
        Part {
            batches: VecDeque::new(),
            key: 0,
            text: 0,
            place: NEVER,
            waits: VecDeque::new(),
            waiting_since_ns: None,
            objects: 0,
        }
    }

    /// The place where connections wait since another time.
    fn wait(&self) -> i64 {
        self.waits.front().map_or(NEVER, |wait| wait.0)
    }

    /// Goes to a key of the first batch, and to its text.
    fn go_to(&mut self, key: usize, text: usize) {
        (self.key, self.text) = (key, text);
        while self.batches.front().is_some_and(|batch| self.key >= batch.keys) {
            self.batches.pop_front();
            self.key = 0;
            self.text = self.batches.front().map_or(0, |batch| batch.keys);
        }
        self.place = self
            .batches
            .front()
            .map_or(NEVER, |batch| batch.key(self.key).place());
    }

    /// Takes rows before this place that have texts. Stops before a place with rows of several connections.
    fn run(&mut self, before: i64) -> Option<TextRun> {
        let batch = self.batches.front()?.clone();
        let keys = batch.bytes().get(..batch.keys).unwrap_or_default();
        let at = |key: usize| Key(keys.get(key..).unwrap_or_default());
        let (mut key, mut text) = (self.key, self.text);
        let mut first = (key, text); // of the same place
        while key < keys.len() {
            let place = at(key).place();
            if place >= before {
                break;
            }
            let Some(size) = at(key).size() else {
                break;
            };
            if place != at(first.0).place() {
                first = (key, text);
            } else if at(key).connection() != at(first.0).connection() {
                (key, text) = first;
                break;
            }
            (key, text) = (key + KEY, text + size);
        }
        let (keys, texts) = (self.key..key, self.text..text);
        self.go_to(key, text);
        (!keys.is_empty()).then_some(TextRun {
            batch,
            keys,
            text: texts,
        })
    }

    /// Takes the next row.
    fn row(&mut self, worker: usize) -> Option<HeldRow> {
        let batch = self.batches.front()?.clone();
        let (key, text) = (self.key, self.text);
        let size = batch.key(key).size();
        let end = text + size.unwrap_or_default();
        self.go_to(key + KEY, end);
        let number = |index| batch.key(key).number(index);
        Some(HeldRow {
            order: (number(1), number(2)),
            held: number(3),
            connection: number(4),
            content: match size {
                None => {
                    self.objects += 1;
                    RowContent::Object(worker, self.objects - 1)
                }
                Some(_) => RowContent::Text(TextRun::copied(&batch, key..key + KEY, text..end)),
            },
        })
    }
}

pub struct Merge {
    parts: Vec<Part>,
    max_rows: usize,
    max_bytes: i64,
    held: BTreeMap<(RowOrder, i64, u64), HeldRow>, // by order, connection and arrival
    latest: HashMap<i64, RowOrder>,                // by connection: order of the last one held
    bytes: i64,
    arrivals: u64,
    /// In order.
    pub ready: VecDeque<RowContent>,
}

impl Merge {
    /// `max_rows`, `max_bytes`: how many rows are held until their order is settled.
    pub fn new(workers: usize, max_rows: usize, max_bytes: i64) -> Self {
        Merge {
            parts: (0..workers).map(|_| Part::new()).collect(),
            max_rows,
            max_bytes,
            held: BTreeMap::new(),
            latest: HashMap::new(),
            bytes: 0,
            arrivals: 0,
            ready: VecDeque::new(),
        }
    }

    /// Adds the next waits of a process, before the rows of their places.
    pub fn wait(&mut self, worker: usize, waits: Vec<(i64, Option<i64>)>) -> Result<(), Odd> {
        self.parts.get_mut(worker).ok_or(Odd)?.waits.extend(waits);
        Ok(())
    }

    /// Adds the next rows of a process; `keys`: how many bytes of the memory these are.
    pub fn add(&mut self, worker: usize, memory: Memory, keys: usize) -> Result<(), Odd> {
        let part = self.parts.get_mut(worker).ok_or(Odd)?;
        let batch = PartBatch { memory, keys };
        if keys % KEY != 0 {
            return Err(Odd);
        }
        let mut end = keys;
        for key in batch.bytes().get(..keys).ok_or(Odd)?.chunks(KEY) {
            match Key(key).number(NUMBERS - 1) {
                OBJECT => {}
                size => {
                    let size = usize::try_from(size).map_err(|_| Odd)?;
                    end = end.checked_add(size).ok_or(Odd)?;
                }
            }
        }
        if end > batch.bytes().len() {
            return Err(Odd);
        }
        if part.batches.is_empty() {
            (part.key, part.text) = (0, keys);
        }
        part.batches.push_back(Arc::new(batch));
        part.go_to(part.key, part.text);
        Ok(())
    }

    /// Merges the rows of all processes up to and including a place.
    pub fn advance(&mut self, until: i64) {
        let mut waiting = self.parts.iter().filter_map(|part| part.waiting_since_ns).min();
        loop {
            // Which process is next, and from which place on it is not alone.
            let (mut next, mut place, mut others) = (0, NEVER, NEVER);
            for (worker, part) in self.parts.iter().enumerate() {
                let own = part.place.min(part.wait());
                if own < place {
                    (next, place, others) = (worker, own, place);
                } else {
                    others = others.min(own);
                }
            }
            if place > until || place == NEVER {
                break;
            }
            if waiting.is_none() && self.held.is_empty() {
                let part = &mut self.parts[next];
                let before = others.min(part.wait()).min(until.saturating_add(1));
                if let Some(run) = part.run(before) {
                    self.ready.push_back(RowContent::Text(run));
                    continue;
                }
            }
            let mut rows = Vec::new();
            for (worker, part) in self.parts.iter_mut().enumerate() {
                while part.wait() <= place {
                    part.waiting_since_ns = part.waits.pop_front().and_then(|wait| wait.1);
                }
                while part.place <= place {
                    rows.extend(part.row(worker));
                }
            }
            waiting = self.parts.iter().filter_map(|part| part.waiting_since_ns).min();
            self.order(rows, waiting);
        }
    }

    /// As `Ordering.feed`.
    fn order(&mut self, rows: Vec<HeldRow>, waiting_since_ns: Option<i64>) {
        let is_one = rows.windows(2).all(|two| two[0].connection == two[1].connection);
        if self.held.is_empty() && waiting_since_ns.is_none() && is_one {
            self.ready.extend(rows.into_iter().map(|row| row.content));
            return;
        }
        for row in rows {
            let latest = self.latest.get(&row.connection);
            let order = latest.map_or(row.order, |&latest| latest.max(row.order));
            self.latest.insert(row.connection, order);
            self.bytes = self.bytes.saturating_add(row.held);
            self.held.insert((order, row.connection, self.arrivals), row);
            self.arrivals += 1;
        }
        while let Some(first) = self.held.first_entry() {
            let is_settled = waiting_since_ns.is_none_or(|time_ns| first.key().0 .0 < time_ns);
            let row = if is_settled {
                first.remove()
            } else if self.held.len() > self.max_rows || self.bytes > self.max_bytes {
                match self.held.pop_first() {
                    Some((_, row)) => row,
                    None => break,
                }
            } else {
                break;
            };
            self.bytes = self.bytes.saturating_sub(row.held);
            self.ready.push_back(row.content);
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

    fn add(merge: &mut Merge, worker: usize, keys: impl Into<Vec<u8>>, text: &str) -> Result<(), Odd> {
        let keys = keys.into();
        let size = keys.len();
        merge.add(
            worker,
            Box::new([keys.as_slice(), text.as_bytes()].concat()),
            size,
        )
    }

    fn ready(merge: &mut Merge) -> String {
        let text = |content: RowContent| match content {
            RowContent::Text(run) => String::from_utf8_lossy(run.text()).into_owned(),
            RowContent::Object(worker, number) => format!("<{worker}.{number}>"),
        };
        merge.ready.drain(..).map(text).collect()
    }

    #[test]
    fn rows_come_in_order_of_their_places() {
        let mut merge = Merge::new(2, 8, 1000);
        let keys = [row(2, 20, 1, 1), row(6, 60, 1, OBJECT), row(8, 80, 1, 2)].concat();
        add(&mut merge, 0, keys, "aDD").unwrap();
        add(&mut merge, 1, row(4, 40, 2, 1), "b").unwrap();
        merge.advance(6);
        assert_eq!(ready(&mut merge), "ab<0.0>");
        merge.advance(8);
        assert_eq!(ready(&mut merge), "DD");
    }

    #[test]
    fn rows_wait_for_what_may_come_before_them() {
        let mut merge = Merge::new(2, 8, 1000);
        add(&mut merge, 0, row(4, 40, 1, 1), "b").unwrap();
        merge.wait(1, vec![(2, Some(20)), (6, None)]).unwrap();
        add(&mut merge, 1, row(6, 20, 2, 1), "a").unwrap();
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
            merge.wait(0, vec![(2, Some(20))]).unwrap();
            add(&mut merge, 0, keys, "ab").unwrap();
            merge.advance(6);
            assert_eq!(ready(&mut merge), "a");
        }
    }

    #[test]
    fn rows_that_are_not_selected_keep_their_places() {
        let mut merge = Merge::new(1, 1, 1000);
        let keys = [row(4, 40, 1, 0), row(6, 60, 1, 1), row(8, 80, 1, 0)].concat();
        merge.wait(0, vec![(2, Some(20)), (8, None)]).unwrap();
        add(&mut merge, 0, keys, "a").unwrap();
        merge.advance(6);
        assert_eq!((merge.ready.len(), ready(&mut merge).as_str()), (1, "")); // the other one waits
        merge.advance(8);
        let shown = merge.ready.iter().map(|row| match row {
            RowContent::Text(run) => (run.rows(), run.shown()),
            RowContent::Object(..) => (0, 0),
        });
        assert_eq!(shown.collect::<Vec<_>>(), [(1, 1), (1, 0)]);
    }

    #[test]
    fn what_does_not_fit_is_odd() {
        let mut merge = Merge::new(1, 8, 1000);
        assert_eq!(add(&mut merge, 1, [], ""), Err(Odd));
        assert_eq!(add(&mut merge, 0, *b"short", ""), Err(Odd));
        assert_eq!(add(&mut merge, 0, row(2, 20, 1, 3), "ab"), Err(Odd));
        assert_eq!(add(&mut merge, 0, row(2, 20, 1, -7), "ab"), Err(Odd));
    }
}
