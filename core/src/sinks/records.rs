//! Exchanges -> the records in them as JSON lines or CSV, as `RecordLines` and `RecordCsv` in kdissect/tables/lines.py
//! write them, or as lines of text, as `RecordTable` in kdissect/text/table.py does.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::exchanges::content::Row;
use crate::exchanges::touched::FoundPartition;
use crate::exchanges::usage::Fetcher;
use crate::kafka::entries::{entries, Batch, LogEntry, NO_TIMESTAMP};
use crate::kafka::messages;
use crate::kafka::records::{self, Bounds, Record};
use crate::kafka::tree::{field, Decoded, Value, NO_ID};
use crate::sinks::cells::{csv, Cell, Content, RowFacts, DATE_BYTES};
use crate::sinks::clock::{Clock, TimeFormat};
use crate::sinks::columns::{Column, WaitingColumns};
use crate::sinks::conditions::{NameTest, Vote};
use crate::sinks::facts::{Answered, CommonPlan, Constant, Constants, Handle, Known, KnownApis, Learn};
use crate::sinks::handed::{CarriedBatches, Handed};
use crate::sinks::record_lines::{json, plain_text};
use crate::sinks::shared::Droppable;
use crate::sinks::sink::Sink;
use crate::sinks::table_form::TableForm;
use crate::Odd;

/// Text of one exchange. Python holds one batch of a larger one at a time.
const MAX_TEXT: usize = 1024 * 1024;
/// Size of the rows of one exchange in columns.
const MAX_ROWS_BYTES: usize = 4 * 1024 * 1024;
/// Columns from headers and schemas.
const OPTIONAL: usize = 8;
/// Kafka's topics have at most as many characters; longer names are kept differently (kdissect/names.py).
const TOPIC_BYTES: usize = 249;
/// Topics of which it is known what stands for them.
const MAX_TOPICS: usize = 1000;
/// Of timestamps.
const TIMESTAMP_DIGITS: u32 = 6;
const MS_NS: i64 = 1_000_000;

/// A batch, or a message, from its first offset on.
const ENTRY_BYTES: usize = 18;
const OVERHEAD: usize = 12;
const HEADER_BYTES: usize = 61;
const MAGIC_AT: usize = 16;
const CRC_FROM: usize = 21;

#[derive(Clone, Copy, PartialEq)]
pub enum RecordFormat {
    Json,
    Csv,
    Text,
}

impl RecordFormat {
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "json" => RecordFormat::Json,
            "csv" => RecordFormat::Csv,
            "text" => RecordFormat::Text,
            _ => return None,
        })
    }

    fn cell(self, out: &mut Vec<u8>) -> Cell<'_> {
        match self {
            RecordFormat::Json => Cell::Json(out),
            RecordFormat::Csv => Cell::Csv(out),
            RecordFormat::Text => Cell::Text(out),
        }
    }
}

/// The content of a column; most have its name. Some have a width, which blanks fill.
#[derive(Clone, Copy, PartialEq)]
pub enum RecordContent {
    Exchange(Content),
    Time,
    RequestTime,
    Topic,
    TopicId,
    Partition,
    /// Both.
    Place(usize),
    TimestampType,
    Magic,
    Compression,
    BaseOffset,
    ProducerId,
    ProducerEpoch,
    BaseSequence,
    LeaderEpoch,
    Transactional,
    Aborted,
    Date,
    TimeNs,
    Control,
    /// A byte that is not UTF-8.
    Mark,
    // From here on, the records of a batch differ.
    Offset(usize),
    BeforeFetchOffset,
    Timestamp,
    /// With its encoding, if that is shown.
    Key(usize),
    Value,
    TimestampMs,
    KeyEncoding,
    ValueEncoding,
    /// All columns from headers and schemas; in a table, the first of them.
    Optional,
}

impl RecordContent {
    /// `which`: if there are several, or its width. None: there is no such content.
    pub fn named(name: &str, which: usize) -> Option<Self> {
        Some(match name {
            "record_time" => RecordContent::Time,
            "request_time" => RecordContent::RequestTime,
            "topic" => RecordContent::Topic,
            "topic_id" => RecordContent::TopicId,
            "partition" => RecordContent::Partition,
            "place" => RecordContent::Place(which),
            "timestamp_type" => RecordContent::TimestampType,
            "magic" => RecordContent::Magic,
            "compression" => RecordContent::Compression,
            "base_offset" => RecordContent::BaseOffset,
            "producer_id" => RecordContent::ProducerId,
            "producer_epoch" => RecordContent::ProducerEpoch,
            "base_sequence" => RecordContent::BaseSequence,
            "leader_epoch" => RecordContent::LeaderEpoch,
            "transactional" => RecordContent::Transactional,
            "aborted" => RecordContent::Aborted,
            "offset" => RecordContent::Offset(which),
            "before_fetch_offset" => RecordContent::BeforeFetchOffset,
            "timestamp" => RecordContent::Timestamp,
            "key" => RecordContent::Key(which),
            "value" => RecordContent::Value,
            "optional" => RecordContent::Optional,
            "mark" => RecordContent::Mark,
            "record_date" => RecordContent::Date,
            "record_time_ns" => RecordContent::TimeNs,
            "control" => RecordContent::Control,
            "timestamp_ms" => RecordContent::TimestampMs,
            "key_encoding" => RecordContent::KeyEncoding,
            "value_encoding" => RecordContent::ValueEncoding,
            _ => RecordContent::Exchange(Content::named(name, which)?),
        })
    }

    fn is_per_record(self) -> bool {
        matches!(
            self,
            RecordContent::Offset(_)
                | RecordContent::BeforeFetchOffset
                | RecordContent::Timestamp
                | RecordContent::Key(_)
                | RecordContent::Value
                | RecordContent::TimestampMs
                | RecordContent::Optional
        )
    }
}

/// Whether a record is selected by offset, key, value and headers.
pub type Selects = dyn Fn(Option<i64>, &Payloads<'_>) -> Result<bool, Odd> + Send + Sync;

/// What a client wrote into a record.
pub struct Payloads<'a> {
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    /// Name and value of each.
    pub headers: Vec<(&'a str, Option<&'a [u8]>)>,
}

/// `RecordPlan` of kdissect/sinks/plan.py. The functions ask Python.
#[allow(clippy::type_complexity)] // of functions
pub struct RecordPlan {
    pub common: CommonPlan<Arc<Row>>,
    pub format: RecordFormat,
    /// Of when a record was seen.
    pub times: TimeFormat,
    /// The text before each column, and its content.
    pub columns: Vec<(String, RecordContent)>,
    /// The text after a record.
    pub end: String,
    /// The texts before the encodings of key and value.
    pub encodings: [String; 2],
    /// The texts around the requested offset that a record comes before.
    pub before_fetch: [String; 2],
    /// The columns from headers and schemas of a record without any.
    pub no_optional: String,
    /// The name of the capture of an interface.
    pub capture: Box<dyn Fn(&Handle) -> Result<String, Odd> + Send + Sync>,
    /// What stands for a topic, given its name, or its ID and true. None: its records are not as clients wrote them.
    pub label: Box<dyn Fn(&str, bool) -> Result<Option<String>, Odd> + Send + Sync>,
    /// Text for a key or value, and whether it is a key.
    pub printed: Box<dyn Fn(&[u8], bool) -> Result<String, Odd> + Send + Sync>,
    /// Whether records that were produced, and fetched, are selected.
    pub directions: (bool, bool),
    /// None: all are selected.
    pub selects: Option<Box<Selects>>,
    /// The columns from headers and schemas, of key, value and headers.
    pub optional: Box<dyn Fn(&Payloads<'_>) -> Result<String, Odd> + Send + Sync>,
    /// Appends the same to columns, and returns their cost.
    pub push_optional: Box<dyn Fn(&Payloads<'_>, &mut [Column]) -> Result<usize, Odd> + Send + Sync>,
    /// Decompresses a batch, given the number of the exchange, whether it is the first one there, codec and magic.
    pub inflate: Box<dyn Fn(u64, bool, i16, u8, &[u8]) -> Result<Vec<u8>, Odd> + Send + Sync>,
    pub bounds: Bounds,
    pub learn: Box<Learn>,
    /// Whether Python joins the batches that were produced and fetched; if so, whether there is room for more text.
    pub has_room: Option<Box<dyn Fn() -> Result<bool, Odd> + Send + Sync>>,
}

/// Writes records.
pub struct RecordWriter {
    writer: Writer,
    apis: KnownApis<Arc<Row>>,
    capture: Option<(Handle, String)>,
    carried: Vec<CarriedBatches>,
    /// Whether Python has no room for more text.
    is_full: bool,
}

/// Where records go.
pub enum RecordForm<'a> {
    Text(&'a mut Vec<u8>),
    Columns(&'a mut WaitingColumns),
}

impl RecordForm<'_> {
    /// Bytes of text, or rows.
    fn place(&self) -> usize {
        match self {
            RecordForm::Text(out) => out.len(),
            RecordForm::Columns(columns) => columns.size().0,
        }
    }

    fn held(&self) -> usize {
        match self {
            RecordForm::Text(out) => out.len(),
            RecordForm::Columns(columns) => columns.size().1,
        }
    }

    fn max_bytes(&self) -> usize {
        match self {
            RecordForm::Text(_) => MAX_TEXT,
            RecordForm::Columns(_) => MAX_ROWS_BYTES,
        }
    }
}

/// Opens batches, and writes their records.
pub struct Writer {
    plan: RecordPlan,
    /// By name, and by ID.
    labels: [HashMap<String, Option<String>>; 2],
    /// Which are selected. None: all are.
    partitions: Option<NameTest>,
    clock: Clock,
    /// For timestamps of records.
    record_clock: Clock,
    template: SharedText,
}

/// The text that all records of a batch share, and where in it they differ.
#[derive(Default)]
struct SharedText {
    text: Vec<u8>,
    places: Vec<(usize, RecordContent)>,
}

/// Record data, and what both messages say of it.
struct PartitionRecords<'b> {
    topic: &'b str,
    topic_id: Option<&'b str>,
    partition: i64,
    data: &'b [u8],
    is_fetched: bool,
    /// Of a Produce: that the broker gave.
    base_offset: Option<i64>,
    append_ms: Option<i64>,
    /// Of a Fetch: that it requested.
    fetch_offset: Option<i64>,
    /// Whether it says which transactions were aborted: none.
    has_aborted: bool,
}

/// The topic as both messages have it: one that was created again has two IDs with the same name.
fn wire_topic<'b>(each: &'b FoundPartition<'b, '_>) -> &'b str {
    each.topic_id.unwrap_or(&each.topic)
}

impl<'b> PartitionRecords<'b> {
    /// Of its topic, unless only the ID is known.
    fn name(&self) -> Option<&'b str> {
        Some(self.topic).filter(|topic| self.topic_id != Some(topic))
    }

    /// In wire order.
    fn of(
        row: &Row,
        decoded: &'b Decoded<'_>,
        found: &'b [Vec<FoundPartition<'b, '_>>; 2],
    ) -> Result<Vec<Self>, Odd> {
        let [requested, responded] = found;
        let names = &row.counted;
        let is_fetched = row.is_fetch;
        let (with_records, others) = if is_fetched {
            (responded, requested)
        } else {
            (requested, responded)
        };
        let others: HashMap<_, _> = others
            .iter()
            .map(|each| ((wire_topic(each), each.partition), each))
            .collect();
        let mut all = Vec::new();
        for each in with_records {
            let Some(data) = each.records else { continue };
            let other = others.get(&(wire_topic(each), each.partition));
            let number = |name| other.map_or(Ok(None), |other| field(Some(other.body), name));
            let known = |name| Ok::<_, Odd>(number(name)?.filter(|number| *number >= 0));
            if each.topic.is_empty() || each.topic.len() > TOPIC_BYTES {
                return Err(Odd);
            }
            if !is_fetched && other.is_some_and(|other| other.error.unwrap_or(0) != 0) {
                return Err(Odd);
            }
            if each.topic_id.is_some_and(|id| id.as_bytes() == NO_ID) {
                return Err(Odd);
            }
            let has_aborted = match each.body.get(names.aborted_transactions) {
                None | Some(Value::Null) => false,
                Some(Value::List(aborted)) if aborted.is_empty() => true,
                _ => return Err(Odd),
            };
            all.push(PartitionRecords {
                topic: &each.topic,
                topic_id: each.topic_id,
                partition: each.partition,
                data,
                is_fetched,
                base_offset: if is_fetched {
                    None
                } else {
                    known(names.base_offset)?
                },
                append_ms: if is_fetched {
                    None
                } else {
                    known(names.log_append_time_ms)?
                },
                fetch_offset: if is_fetched {
                    number(names.fetch_offset)?
                } else {
                    None
                },
                has_aborted,
            });
        }
        match all.len() == row.record_fields(decoded) {
            true => Ok(all),
            false => Err(Odd), // some belong to no partition
        }
    }
}

/// The records of a batch, of a compressed message, or of consecutive messages of the same kind.
struct OpenBatch<'a> {
    /// Of messages, the first one's.
    header: &'a LogEntry,
    base_offset: i64,
    /// The timestamp of all of them, if the broker set it.
    append_ms: Option<i64>,
    records: Vec<Record>,
    data: Cow<'a, [u8]>,
}

impl OpenBatch<'_> {
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
fn first_batch(data: &[u8]) -> Result<Option<(LogEntry, &[u8])>, Odd> {
    let Some(entry) = entries(data).next().transpose()? else {
        return Ok(None);
    };
    entry.batch().ok_or(Odd)?;
    let size = usize::try_from(entry.size()).map_err(|_| Odd)?;
    Ok(data.get(..OVERHEAD + size).map(|whole| (entry, whole)))
}

impl RecordWriter {
    /// `partitions`: which are selected; None: all are.
    pub fn new(plan: RecordPlan, partitions: Option<NameTest>) -> Self {
        RecordWriter {
            writer: Writer::new(plan, partitions),
            apis: KnownApis::default(),
            capture: None,
            carried: Vec::new(),
            is_full: false,
        }
    }
}

impl Writer {
    /// `partitions`: which are selected; None: all are.
    pub fn new(plan: RecordPlan, partitions: Option<NameTest>) -> Self {
        Writer {
            clock: Clock::new(plan.times),
            record_clock: Clock::of_moments(TIMESTAMP_DIGITS),
            plan,
            labels: Default::default(),
            partitions,
            template: SharedText::default(),
        }
    }

    /// Whether Python joins batches, and has no room for more that wait.
    pub fn is_full(&self) -> Option<bool> {
        let has_room = self.plan.has_room.as_ref()?;
        Some(!has_room().unwrap_or(false))
    }

    /// Writes the records of an exchange.
    pub fn write_all(
        &mut self,
        found: &RowFacts<'_>,
        (row, decoded): (&Row, &Decoded<'_>),
        carried: &mut CarriedBatches,
        mut out: RecordForm<'_>,
    ) -> Result<(), Odd> {
        let Some((Some(of_request), Some(of_response))) = &row.partitions else {
            return Err(Odd);
        };
        let common = &self.plan.common;
        let topics = &common.topics(found.exchange.response.end_ns);
        let partitions = [
            of_request.found(&decoded.request, topics)?,
            of_response.found(&decoded.response, topics)?,
        ];
        let (mut is_first, start) = (true, out.held());
        for each in PartitionRecords::of(row, decoded, &partitions)? {
            self.write(found, &each, &mut is_first, start, carried, &mut out)?;
        }
        Ok(())
    }

    /// See [`RecordPlan`].
    fn label(&mut self, topic: &str, is_id: bool) -> Result<Option<&str>, Odd> {
        let labels = &mut self.labels[usize::from(is_id)];
        if !labels.contains_key(topic) {
            if labels.len() >= MAX_TOPICS {
                labels.clear();
            }
            labels.insert(topic.to_owned(), (self.plan.label)(topic, is_id)?);
        }
        Ok(labels.get(topic).ok_or(Odd)?.as_deref())
    }

    /// Whether records of a partition are selected.
    fn is_shown(&mut self, each: &PartitionRecords<'_>) -> Result<bool, Odd> {
        let (produced, fetched) = self.plan.directions;
        match &mut self.partitions {
            _ if !(if each.is_fetched { fetched } else { produced }) => Ok(false),
            None => Ok(true),
            Some(test) => {
                let id = each.topic_id.filter(|_| each.name().is_some());
                Ok(test.vote(each.topic, id, Some(each.partition))? == Vote::Selected)
            }
        }
    }

    /// Reads a batch, as `_decode_batch` in kdissect/kafka/batches.py. `base_offset`: of its first record.
    /// `is_first`: whether none of the exchange was decompressed yet.
    fn open<'a>(
        &self,
        whole: &'a [u8],
        (header, batch): (&'a LogEntry, &Batch),
        base_offset: i64,
        number: u64,
        is_first: &mut bool,
    ) -> Result<OpenBatch<'a>, Odd> {
        if batch.is_control() || crc32c::crc32c(whole.get(CRC_FROM..).ok_or(Odd)?) != batch.crc {
            return Err(Odd);
        }
        let content = whole.get(HEADER_BYTES..).ok_or(Odd)?;
        let (data, place): (Cow<'a, [u8]>, _) = if header.compression() == 0 || content.is_empty() {
            (whole.into(), HEADER_BYTES..whole.len())
        } else {
            let inflated = self.inflate(number, is_first, header, content)?;
            let end = inflated.len();
            (inflated.into(), 0..end)
        };
        let records = records::read(&data, place, base_offset, batch.base_timestamp, self.plan.bounds)?;
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
        }
        .check()
    }

    /// Reads messages, as `_decode_messages` in kdissect/kafka/batches.py. `base_offset`: of the first, if the broker
    /// said so. Returns them and how many bytes they are; None if the first is cut off.
    fn open_messages<'a>(
        &self,
        whole: &'a [u8],
        header: &'a LogEntry,
        base_offset: Option<i64>,
        number: u64,
        is_first: &mut bool,
    ) -> Result<Option<(OpenBatch<'a>, usize)>, Odd> {
        let max_records = self.plan.bounds.records;
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
            data = self.inflate(number, is_first, header, content)?.into();
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
        };
        Ok(Some((batch.check()?, end)))
    }

    fn inflate(
        &self,
        number: u64,
        is_first: &mut bool,
        header: &LogEntry,
        content: &[u8],
    ) -> Result<Vec<u8>, Odd> {
        let is_first = std::mem::take(is_first);
        (self.plan.inflate)(number, is_first, header.compression(), header.magic(), content)
    }

    /// Writes the records of a partition. `held`: the size of `out` before the exchange.
    fn write(
        &mut self,
        found: &RowFacts<'_>,
        each: &PartitionRecords<'_>,
        is_first: &mut bool,
        held: usize,
        carried: &mut CarriedBatches,
        out: &mut RecordForm<'_>,
    ) -> Result<(), Odd> {
        let is_shown = self.is_shown(each)?;
        match each.data.get(MAGIC_AT) {
            Some(0 | 1) if each.data.len() >= ENTRY_BYTES => {
                if is_shown {
                    self.write_messages(found, each, is_first, held, out)?;
                } else if entries(each.data).any(|entry| entry.is_ok_and(|entry| entry.batch().is_some())) {
                    return Err(Odd); // which is joined with others
                }
            }
            _ => self.write_batches(found, each, (is_shown, held), is_first, carried, out)?,
        }
        if let (Some(id), Some(topic)) = (each.topic_id, each.name()) {
            carried.topic_ids.push((id.to_owned(), topic.to_owned()));
        }
        Ok(())
    }

    /// Messages of magic 0 and 1 are not joined with others.
    fn write_messages(
        &mut self,
        found: &RowFacts<'_>,
        each: &PartitionRecords<'_>,
        is_first: &mut bool,
        held: usize,
        out: &mut RecordForm<'_>,
    ) -> Result<(), Odd> {
        let (mut data, mut base_offset) = (each.data, each.base_offset);
        while let Some(header) = entries(data).next().transpose()? {
            self.check_label(each)?;
            let opened = self.open_messages(data, &header, base_offset, found.exchange.number, is_first)?;
            let Some((batch, size)) = opened else { break };
            self.batch(found, each, &batch, held, out)?;
            if base_offset.is_some() {
                let last = batch.records.last().ok_or(Odd)?.offset;
                base_offset = Some(last.checked_add(1).ok_or(Odd)?);
            }
            data = data.get(size..).ok_or(Odd)?;
        }
        Ok(())
    }

    fn write_batches(
        &mut self,
        found: &RowFacts<'_>,
        each: &PartitionRecords<'_>,
        (is_shown, held): (bool, usize),
        is_first: &mut bool,
        carried: &mut CarriedBatches,
        out: &mut RecordForm<'_>,
    ) -> Result<(), Odd> {
        let (mut data, mut base_offset) = (each.data, each.base_offset);
        let topic = each.topic_id.unwrap_or(each.topic);
        let mut is_produced = each.base_offset.is_some();
        while let Some((entry, whole)) = first_batch(data)? {
            data = data.get(whole.len()..).ok_or(Odd)?;
            let header = entry.batch().ok_or(Odd)?;
            let start_offset = base_offset.unwrap_or(header.base_offset);
            let start = out.place();
            if is_shown {
                self.check_label(each)?;
                let number = found.exchange.number;
                let batch = self.open(whole, (&entry, header), start_offset, number, is_first)?;
                self.batch(found, each, &batch, held, out)?;
            }
            let origin = (
                topic.to_owned(),
                each.partition,
                start_offset,
                header.base_timestamp,
            );
            if each.is_fetched {
                let numbers = (header.producer_id, header.producer_epoch, header.base_sequence);
                carried.fetched.push((origin, numbers, (start, out.place())));
            } else if std::mem::take(&mut is_produced) {
                carried.produced.push(origin);
            }
            if base_offset.is_some() {
                let last = start_offset.checked_add(header.last_offset_delta.into());
                base_offset = Some(last.and_then(|last| last.checked_add(1)).ok_or(Odd)?);
            }
        }
        Ok(())
    }

    /// Odd: the records of the topic are not as clients wrote them.
    fn check_label(&mut self, each: &PartitionRecords<'_>) -> Result<(), Odd> {
        let label = self.label(each.topic, each.name().is_none())?;
        label.map(drop).ok_or(Odd)
    }

    /// `held`: see `write`.
    fn batch(
        &mut self,
        found: &RowFacts<'_>,
        each: &PartitionRecords<'_>,
        batch: &OpenBatch<'_>,
        held: usize,
        out: &mut RecordForm<'_>,
    ) -> Result<(), Odd> {
        if matches!(out, RecordForm::Text(_)) {
            self.share(found, each, batch)?;
        }
        let data = &batch.data[..];
        let max_held = held + out.max_bytes();
        let bytes = |span: &Option<Range<usize>>| match span {
            Some(place) => data.get(place.clone()).ok_or(Odd).map(Some),
            None => Ok(None),
        };
        for record in &batch.records {
            let headers = record.headers.iter().map(|(name, value)| {
                let name = std::str::from_utf8(data.get(name.clone()).ok_or(Odd)?);
                Ok::<_, Odd>((name.map_err(|_| Odd)?, bytes(value)?))
            });
            let payloads = Payloads {
                key: bytes(&record.key)?,
                value: bytes(&record.value)?,
                headers: headers.collect::<Result<_, _>>()?,
            };
            let is_known = each.is_fetched || each.base_offset.is_some();
            let append_ms = each.append_ms.or(batch.append_ms);
            let carried = CarriedRecord {
                offset: is_known.then_some(record.offset),
                is_before: each.fetch_offset.map(|from| record.offset < from),
                timestamp_ms: append_ms.unwrap_or(record.timestamp_ms),
                wire_ms: append_ms.or((batch.header.magic() > 0).then_some(record.timestamp_ms)),
                payloads,
            };
            if let Some(selects) = &self.plan.selects {
                if !selects(carried.offset, &carried.payloads)? {
                    continue;
                }
            }
            match out {
                RecordForm::Text(out) => self.line(each, &carried, out)?,
                RecordForm::Columns(columns) => self.plan.row(found, each, batch, &carried, columns)?,
            }
            if out.held() > max_held {
                return Err(Odd);
            }
        }
        Ok(())
    }

    /// Writes the line of a record.
    fn line(
        &mut self,
        each: &PartitionRecords<'_>,
        record: &CarriedRecord<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Odd> {
        let plan = &self.plan;
        let format = plan.format;
        let [of_key, of_value] = &plan.encodings;
        let payloads = &record.payloads;
        let text = &self.template.text;
        let mut from = 0;
        for (place, content) in &self.template.places {
            out.extend_from_slice(text.get(from..*place).ok_or(Odd)?);
            from = *place;
            match content {
                RecordContent::Offset(width) => {
                    let start = out.len();
                    format.cell(out).number(record.offset)?;
                    fill(start, *width, out);
                }
                RecordContent::BeforeFetchOffset => {
                    plan.before_fetch(record.is_before, each.fetch_offset, out)?;
                }
                RecordContent::Timestamp => match record.timestamp_ms {
                    NO_TIMESTAMP => format.cell(out).null()?,
                    ms => {
                        let mut time = String::new();
                        let ns = ms.checked_mul(MS_NS).ok_or(Odd)?;
                        self.record_clock.write(&plan.common, ns, &mut time)?;
                        format.cell(out).text(Some(&time))?;
                    }
                },
                RecordContent::TimestampMs => {
                    format.cell(out).number(record.wire_ms)?;
                }
                RecordContent::Key(width) => {
                    let start = out.len();
                    plan.payload(payloads.key, of_key, true, out)?;
                    fill(start, *width, out);
                }
                RecordContent::Value => plan.payload(payloads.value, of_value, false, out)?,
                RecordContent::Optional => match payloads.may_have_optional() {
                    false => out.extend_from_slice(plan.no_optional.as_bytes()),
                    true => out.extend_from_slice((plan.optional)(payloads)?.as_bytes()),
                },
                _ => return Err(Odd),
            }
        }
        out.extend_from_slice(text.get(from..).ok_or(Odd)?);
        Ok(())
    }

    /// Writes what the records of a batch share.
    fn share(
        &mut self,
        found: &RowFacts<'_>,
        each: &PartitionRecords<'_>,
        batch: &OpenBatch<'_>,
    ) -> Result<(), Odd> {
        let label = self.label(each.topic, each.name().is_none())?.unwrap_or_default();
        let place = format!("{label}-{}", each.partition);
        let SharedText { text, places } = &mut self.template;
        text.clear();
        places.clear();
        let (request, response) = (found.exchange.request, found.exchange.response);
        let mut time = String::new();
        for (before, content) in &self.plan.columns {
            text.extend_from_slice(before.as_bytes());
            let start = text.len();
            let mut cell = self.plan.format.cell(text);
            match content {
                RecordContent::Time | RecordContent::RequestTime | RecordContent::Date => {
                    let is_response = *content != RecordContent::RequestTime && each.is_fetched;
                    let end_ns = if is_response {
                        response.end_ns
                    } else {
                        request.end_ns
                    };
                    time.clear();
                    self.clock.write(&self.plan.common, end_ns, &mut time)?;
                    match content {
                        RecordContent::Date => cell.text(time.get(..DATE_BYTES))?,
                        _ => cell.text(Some(&time))?,
                    }
                }
                RecordContent::Place(_) if !place.is_ascii() => return Err(Odd), // its width is unknown
                RecordContent::Place(width) => {
                    cell.text(Some(&place))?;
                    fill(start, *width, text);
                }
                RecordContent::Mark => text.push(0xFF),
                content if content.is_per_record() => places.push((start, *content)),
                content => each.write(*content, found, batch, &mut cell)?,
            }
        }
        text.extend_from_slice(self.plan.end.as_bytes());
        Ok(())
    }
}

/// A record and what is known of it.
struct CarriedRecord<'a> {
    offset: Option<i64>,
    /// The requested offset.
    is_before: Option<bool>,
    timestamp_ms: i64,
    /// The same; None: its format has none.
    wire_ms: Option<i64>,
    payloads: Payloads<'a>,
}

impl Payloads<'_> {
    /// Whether columns from headers and schemas may have values.
    fn may_have_optional(&self) -> bool {
        let begins_with_zero = |payload: Option<&[u8]>| payload.is_some_and(|data| data.first() == Some(&0));
        !self.headers.is_empty() || begins_with_zero(self.key) || begins_with_zero(self.value)
    }
}

fn encoding(payload: Option<&[u8]>) -> Option<&'static str> {
    payload.map(|payload| match std::str::from_utf8(payload) {
        Ok(_) => "utf-8",
        Err(_) => "base64",
    })
}

impl PartitionRecords<'_> {
    /// Writes what the records of a batch share, apart from times in text.
    fn write(
        &self,
        content: RecordContent,
        found: &RowFacts<'_>,
        batch: &OpenBatch<'_>,
        cell: &mut Cell<'_>,
    ) -> Result<(), Odd> {
        let (entry, header) = (batch.header, batch.header.batch());
        let request_ns = found.exchange.request.end_ns;
        let time_ns = match self.is_fetched {
            true => found.exchange.response.end_ns,
            false => request_ns,
        };
        match content {
            RecordContent::Exchange(content) => found.write(content, cell),
            RecordContent::Time => found.time(time_ns, cell),
            RecordContent::RequestTime => found.time(request_ns, cell),
            RecordContent::Date => found.date(time_ns, cell),
            RecordContent::TimeNs => cell.number(Some(time_ns)),
            RecordContent::Topic => cell.text(self.name()),
            RecordContent::TopicId => cell.text(self.topic_id),
            RecordContent::Partition => cell.number(Some(self.partition)),
            RecordContent::TimestampType => {
                let appended = self.append_ms.map(|_| "LogAppendTime");
                cell.text(appended.or(entry.timestamp_type()))
            }
            RecordContent::Magic => cell.number(Some(entry.magic().into())),
            RecordContent::Compression => cell.text(Some(entry.codec())),
            RecordContent::BaseOffset => {
                let is_known = self.is_fetched || self.base_offset.is_some();
                cell.number(is_known.then_some(batch.base_offset))
            }
            RecordContent::ProducerId => cell.number(header.map(|it| it.producer_id)),
            RecordContent::ProducerEpoch => cell.number(header.map(|it| it.producer_epoch.into())),
            RecordContent::BaseSequence => cell.number(header.map(|it| it.base_sequence.into())),
            RecordContent::LeaderEpoch => cell.number(header.map(|it| it.leader_epoch.into())),
            RecordContent::Transactional => cell.bool(header.is_some_and(Batch::is_transactional)),
            RecordContent::Control => cell.bool(false),
            RecordContent::Aborted if self.has_aborted => cell.bool(false),
            RecordContent::Aborted => cell.null(),
            _ => Err(Odd),
        }
    }
}

impl RecordPlan {
    /// Adds the row of a record to columns.
    fn row(
        &self,
        found: &RowFacts<'_>,
        each: &PartitionRecords<'_>,
        batch: &OpenBatch<'_>,
        record: &CarriedRecord<'_>,
        to: &mut WaitingColumns,
    ) -> Result<(), Odd> {
        let payloads = &record.payloads;
        to.row(|columns| {
            let (mut cost, mut rest) = (0, columns);
            for (_, content) in &self.columns {
                let width = match content {
                    RecordContent::Optional => OPTIONAL,
                    _ => 1,
                };
                let (here, others) = rest.split_at_mut_checked(width).ok_or(Odd)?;
                rest = others;
                if *content == RecordContent::Optional {
                    cost += match payloads.may_have_optional() {
                        true => (self.push_optional)(payloads, here)?,
                        false => here
                            .iter_mut()
                            .try_fold(0, |sum, column| Ok::<_, Odd>(sum + column.empty_or_null()?))?,
                    };
                    continue;
                }
                let column = here.first_mut().ok_or(Odd)?;
                let bytes = |payload: Option<&[u8]>, column: &mut Column| match payload {
                    Some(payload) => column.bytes(payload),
                    None => column.null(),
                };
                match content {
                    RecordContent::Key(_) => cost += bytes(payloads.key, column)?,
                    RecordContent::Value => cost += bytes(payloads.value, column)?,
                    content => {
                        let cell = &mut Cell::Column(column, &mut cost);
                        match content {
                            RecordContent::KeyEncoding => cell.text(encoding(payloads.key))?,
                            RecordContent::ValueEncoding => cell.text(encoding(payloads.value))?,
                            RecordContent::Offset(_) => cell.number(record.offset)?,
                            RecordContent::BeforeFetchOffset => match record.is_before {
                                Some(is_before) => cell.bool(is_before)?,
                                None => cell.null()?,
                            },
                            RecordContent::Timestamp if record.timestamp_ms == NO_TIMESTAMP => cell.null()?,
                            RecordContent::Timestamp => {
                                found.time(record.timestamp_ms.checked_mul(MS_NS).ok_or(Odd)?, cell)?;
                            }
                            RecordContent::TimestampMs => cell.number(record.wire_ms)?,
                            content => each.write(*content, found, batch, cell)?,
                        }
                    }
                }
            }
            Ok(cost)
        })
    }

    /// Writes whether a record comes before the requested offset.
    fn before_fetch(
        &self,
        is_before: Option<bool>,
        fetch_offset: Option<i64>,
        out: &mut Vec<u8>,
    ) -> Result<(), Odd> {
        match (self.format, is_before) {
            (RecordFormat::Text, Some(true)) => {
                let [before, after] = &self.before_fetch;
                out.extend_from_slice(before.as_bytes());
                self.format.cell(out).number(fetch_offset)?;
                out.extend_from_slice(after.as_bytes());
            }
            (RecordFormat::Text, _) => (),
            (format, Some(is_before)) => format.cell(out).bool(is_before)?,
            (format, None) => format.cell(out).null()?,
        }
        Ok(())
    }

    /// Writes a key or value, and after `between` its encoding, if that is shown.
    fn payload(
        &self,
        payload: Option<&[u8]>,
        between: &str,
        is_key: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), Odd> {
        match self.format {
            RecordFormat::Json => json(payload, between.as_bytes(), out),
            RecordFormat::Csv => csv(payload, between.as_bytes(), out),
            RecordFormat::Text => match (plain_text(payload), payload) {
                (Some(text), _) if is_key => out.extend_from_slice(text.as_bytes()),
                (Some(text), _) => out.extend_from_slice(text.trim_end_matches(' ').as_bytes()),
                (None, Some(payload)) => {
                    let text = (self.printed)(payload, is_key)?;
                    if text.is_empty() {
                        return Err(Odd); // what follows takes its place
                    }
                    out.extend_from_slice(text.as_bytes());
                }
                (None, None) => return Err(Odd),
            },
        }
        Ok(())
    }
}

/// Fills with blanks what begins there, in ASCII.
fn fill(start: usize, width: usize, out: &mut Vec<u8>) {
    if out.len() - start < width {
        out.resize(start + width, b' ');
    }
}

/// The table of records, whose rows wait until they are joined, as those of all other tables do.
pub struct RecordTable {
    writer: Writer,
    form: TableForm,
    text: Vec<u8>,
    carried: Vec<CarriedBatches>,
    is_full: bool,
}

impl RecordTable {
    /// Size of rows since Python took some.
    const MAX_BYTES: usize = 1024 * 1024;

    pub fn new(writer: Writer, form: TableForm) -> Self {
        RecordTable {
            writer,
            form,
            text: Vec::new(),
            carried: Vec::new(),
            is_full: false,
        }
    }

    /// Adds the rows of an exchange, if it is selected. If anything is odd, it has no effect.
    pub fn add(
        &mut self,
        found: &RowFacts<'_>,
        (row, decoded): (&Row, &Decoded<'_>),
        carried: &mut CarriedBatches,
    ) -> Result<(), Odd> {
        if self.is_full {
            return Err(Odd);
        }
        if row.record_fields(decoded) == 0 {
            carried.rows.push(0);
            return Ok(());
        }
        let (before, held) = self.form.size();
        let written = match &self.form {
            TableForm::Waiting(columns) => {
                let out = RecordForm::Columns(&mut columns.lock());
                self.writer.write_all(found, (row, decoded), carried, out)
            }
            TableForm::Lines(lines) => {
                self.text.clear();
                let out = RecordForm::Text(&mut self.text);
                let written = self.writer.write_all(found, (row, decoded), carried, out);
                lines.lock().add(&self.text);
                written
            }
            TableForm::Columns(_) => Err(Odd),
        };
        if written.is_err() || !found.exchange.is_selected {
            self.form.truncate(before, held);
        }
        written?;
        let (rows, more) = self.form.size();
        let mut counted = (0, 0);
        for (.., place) in &mut carried.fetched {
            *place = match &self.form {
                _ if !found.exchange.is_selected => (0, 0),
                TableForm::Lines(_) => {
                    let row_at = |place: usize, (known, row): (usize, usize)| {
                        let text = self.text.get(known..place).unwrap_or_default();
                        (place, row + text.iter().filter(|byte| **byte == b'\n').count())
                    };
                    let start = row_at(place.0, counted);
                    counted = row_at(place.1, start);
                    (start.1, counted.1)
                }
                _ => (place.0 - before, place.1 - before),
            };
        }
        carried.rows.push(rows - before);
        carried.rows_bytes += more - held;
        Ok(())
    }

    /// Notes what was added of an exchange.
    pub fn note(&mut self, carried: CarriedBatches) {
        carried.add_to(&mut self.carried);
    }

    /// Whether Python must take what was made before more is.
    pub fn must_pass_on(&self) -> bool {
        self.carried.iter().map(|each| each.rows_bytes).sum::<usize>() >= Self::MAX_BYTES
    }

    /// Hands over what was noted.
    pub fn flush(&mut self) -> impl Iterator<Item = Handed> + '_ {
        if let (Some(is_full), false) = (self.writer.is_full(), self.carried.is_empty() && !self.is_full) {
            self.is_full = is_full;
        }
        let carried = self.carried.drain(..);
        carried.map(|each| Handed::Carried(Box::new(each)))
    }
}

impl CarriedBatches {
    /// Of an exchange, without its batches. `start`: of its text.
    pub fn of(exchange: &Answered<'_>, row: &Row, decoded: &Decoded<'_>, start: usize) -> Result<Self, Odd> {
        let (request, response) = (exchange.request, exchange.response);
        let [of_request, of_response] = decoded.costs;
        // The request of a Produce is decoded when it is sent.
        let (time_ns, cost) = match row.is_fetch {
            true => (response.end_ns, of_request + of_response),
            false => (request.end_ns, of_response),
        };
        let held = i64::try_from(request.data.len() + response.data.len()).map_err(|_| Odd)?;
        Ok(CarriedBatches {
            info: exchange.known.info()?.clone(),
            number: exchange.number,
            exchanges: 1,
            text: (start, start),
            rows: Vec::new(),
            rows_bytes: 0,
            completed_ns: response.end_ns,
            time_ns,
            bytes: held + cost,
            topic_ids: Vec::new(),
            produced: Vec::new(),
            fetched: Vec::new(),
        })
    }
}

impl Sink for RecordWriter {
    fn feed(
        &mut self,
        exchange: &Answered<'_>,
        shared: &[Option<Constant>],
        out: &mut Vec<u8>,
    ) -> Result<(), Odd> {
        let writer = &mut self.writer;
        let (row, tags, of_api) = self.apis.get(&writer.plan.common, exchange.header)?;
        let (request, response) = (exchange.request, exchange.response);
        let decoded = exchange.decoded(&row.bodies, tags, writer.plan.common.budget)?;
        decoded.check()?;
        exchange.check_errors(!decoded.errors.is_empty())?;
        let start = out.len();
        let client_id = exchange.header.raw_client_id(request).map(std::str::from_utf8);
        let client_id = client_id.transpose().map_err(|_| Odd)?;
        let mut carried = CarriedBatches::of(exchange, row, &decoded, start)?;
        if row.record_fields(&decoded) > 0 {
            if self.is_full {
                return Err(Odd);
            }
            if self
                .capture
                .as_ref()
                .is_none_or(|known| !known.0.is(exchange.interface))
            {
                let name = (writer.plan.capture)(exchange.interface)?;
                self.capture = Some((exchange.interface.clone(), name));
            }
            let (_, capture) = self.capture.as_ref().ok_or(Odd)?;
            let facts = RowFacts {
                exchange,
                shared,
                of_api,
                capture,
                time_text: &|_| Err(Odd),
                latency_us: 0,
                parts: [None; 5],
                think_us: None,
                is_fetch: row.is_fetch,
                reader: Fetcher::Consumer,
                replica_id: None,
                client_id,
                topics: Vec::new(),
                group_id: None,
                transactional_id: None,
                errors: Vec::new(),
                expected_errors: Vec::new(),
                throttle_time_ms: None,
                records: None,
                bodies: [b"", b""],
            };
            writer.write_all(&facts, (row, &decoded), &mut carried, RecordForm::Text(out))?;
        }
        let common = &writer.plan.common;
        row.bodies.learn(&decoded, &common.topics(response.end_ns))?;
        if let Some(cluster) = row.cluster(exchange.header.api_key, &decoded) {
            if (writer.plan.learn)(exchange.known.info()?, cluster)? {
                exchange.known.renew();
            }
        }
        // From here on nothing may be odd.
        if !exchange.is_selected {
            out.truncate(start);
            for (.., place) in &mut carried.fetched {
                *place = (start, start);
            }
        }
        carried.text.1 = out.len();
        if writer.plan.has_room.is_some() {
            carried.add_to(&mut self.carried);
        }
        Ok(())
    }

    fn shared(&self, known: &dyn Known) -> Result<Constants, Odd> {
        (self.writer.plan.common.shared)(known)
    }

    fn has_parts(&self) -> bool {
        false
    }

    fn flush(&mut self, to: &mut Vec<Handed>) {
        if self.carried.is_empty() && !self.is_full {
            return;
        }
        if let Some(is_full) = self.writer.is_full() {
            self.is_full = is_full;
        }
        let carried = self.carried.drain(..);
        to.extend(carried.map(|each| Handed::Carried(Box::new(each))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::rounds;

    const RECORD: [u8; 8] = [14, 0, 0, 0, 2, b'k', 1, 0];
    const BOUNDS: Bounds = Bounds {
        records: 10,
        headers: 2,
        all_headers: 3,
    };

    fn writer() -> Writer {
        let plan = RecordPlan {
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
            capture: Box::new(|_| Err(Odd)),
            label: Box::new(|topic, _| Ok(Some(topic.to_owned()))),
            printed: Box::new(|_, _| Err(Odd)),
            directions: (true, true),
            selects: None,
            optional: Box::new(|_| Err(Odd)),
            push_optional: Box::new(|_, _| Err(Odd)),
            inflate: Box::new(|_, _, _, _, data| Ok(data.to_vec())),
            bounds: BOUNDS,
            learn: Box::new(|_, _| Err(Odd)),
            has_room: None,
        };
        RecordWriter::new(plan, None).writer
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
        let writer = writer();
        for codec in [0, 3] {
            let whole = batch(3, codec);
            let mut is_first = true;
            let entry = entries(&whole).next().unwrap().unwrap();
            let header = (&entry, entry.batch().unwrap());
            let open = writer.open(&whole, header, 70, 1, &mut is_first).unwrap();
            assert_eq!((open.records.len(), open.base_offset), (3, 70));
            assert_eq!(is_first, codec == 0);
        }
        let is_odd = |data: &[u8]| {
            let entry = entries(data).next().unwrap().unwrap();
            let header = (&entry, entry.batch().unwrap());
            writer.open(data, header, 0, 1, &mut false).is_err()
        };
        assert!(is_odd(&batch(1, 0x20)), "control records");
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
        let (writer, mut taken) = (writer(), 0);
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
            let open = writer.open(&whole, (&entry, header), base_offset, 1, &mut true);
            taken += usize::from(open.is_ok());
        });
        assert!(taken > 1000);
    }
}
