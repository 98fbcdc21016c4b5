//! What the core must know to write records.

use std::sync::Arc;

use crate::exchanges::content::Row;
use crate::kafka::records::Bounds;
use crate::sinks::cells::{Cell, Content};
use crate::sinks::clock::TimeFormat;
use crate::sinks::columns::Column;
use crate::sinks::facts::{Answered, Captures, CommonPlan, Handle, Learn};
use crate::Odd;

#[derive(Clone, Copy, PartialEq)]
pub enum RecordFormat {
    Json,
    Csv,
    /// Between tabs.
    Fields,
    Text,
}

impl RecordFormat {
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "json" => RecordFormat::Json,
            "csv" => RecordFormat::Csv,
            "fields" => RecordFormat::Fields,
            "text" => RecordFormat::Text,
            _ => return None,
        })
    }

    pub fn cell(self, out: &mut Vec<u8>) -> Cell<'_> {
        match self {
            RecordFormat::Json => Cell::Json(out),
            RecordFormat::Csv => Cell::Csv(out),
            RecordFormat::Fields => Cell::Fields(out),
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
    RecordPlace(usize),
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
    /// Why the broker rejected it.
    Error,
    /// Its topic and partition, as `RecordFilter.is_first` of kdissect/query/record_filters.py knows them.
    Position,
    Date,
    TimeNs,
    Control,
    /// A byte that is not UTF-8.
    Mark(u8),
    // From here on, the records of a batch differ.
    /// Of a control batch.
    ControlType,
    Offset(usize),
    BeforeFetchOffset,
    Timestamp,
    /// With its encoding, if that is shown next.
    Key(usize),
    Value,
    /// Without it.
    KeyText,
    ValueText,
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
            "place" => RecordContent::RecordPlace(which),
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
            "error" => RecordContent::Error,
            "position" => RecordContent::Position,
            "offset" => RecordContent::Offset(which),
            "before_fetch_offset" => RecordContent::BeforeFetchOffset,
            "timestamp" => RecordContent::Timestamp,
            "key" => RecordContent::Key(which),
            "value" => RecordContent::Value,
            "optional" => RecordContent::Optional,
            "mark" => RecordContent::Mark(u8::try_from(which).ok()?),
            "key_text" => RecordContent::KeyText,
            "value_text" => RecordContent::ValueText,
            "record_date" => RecordContent::Date,
            "record_time_ns" => RecordContent::TimeNs,
            "control" => RecordContent::Control,
            "control_type" => RecordContent::ControlType,
            "timestamp_ms" => RecordContent::TimestampMs,
            "key_encoding" => RecordContent::KeyEncoding,
            "value_encoding" => RecordContent::ValueEncoding,
            _ => RecordContent::Exchange(Content::named(name, which)?),
        })
    }

    pub fn is_per_record(self) -> bool {
        matches!(
            self,
            RecordContent::Offset(_)
                | RecordContent::BeforeFetchOffset
                | RecordContent::Timestamp
                | RecordContent::Key(_)
                | RecordContent::Value
                | RecordContent::KeyText
                | RecordContent::ValueText
                | RecordContent::KeyEncoding
                | RecordContent::ValueEncoding
                | RecordContent::TimestampMs
                | RecordContent::Optional
        )
    }
}

/// Whether a record is selected by its place and offset, and what is in it.
pub type Selects = dyn Fn(&RecordPlace<'_>, Option<i64>, &Payloads<'_>) -> Result<bool, Odd> + Send + Sync;

/// Decodes a record that no client wrote.
pub type Opens = dyn Fn(&RecordPlace<'_>, &Payloads<'_>) -> Result<Opened, Odd> + Send + Sync;

/// Where a record is.
#[derive(Clone, Copy)]
pub struct RecordPlace<'a> {
    /// The name of its topic, or its ID.
    pub topic: &'a str,
    pub topic_id: Option<&'a str>,
    pub partition: i64,
    /// None: a client wrote it. Otherwise it is in one of Kafka's own topics, or if true, in a control batch.
    pub is_control: Option<bool>,
}

/// What stands for a record that no client wrote: its type in a control batch, then the cells of key, its encoding,
/// value and its encoding, and the columns from headers and schemas.
pub type Opened = (Option<String>, [String; 4], String);

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
    pub captures: Captures,
    /// What stands for a topic, given its name, or its ID and true; and whether clients wrote its records.
    pub label: Box<dyn Fn(&str, bool) -> Result<TopicLabel, Odd> + Send + Sync>,
    /// Text for an error in the response to a Produce.
    pub rejected: Box<dyn Fn(i64) -> Result<String, Odd> + Send + Sync>,
    /// Makes the exchange, for Python to write its records if it learns more of them.
    pub whole: Box<dyn Fn(&Answered<'_>) -> Result<Handle, Odd> + Send + Sync>,
    /// Text for a key or value, and whether it is a key.
    pub printed: Box<dyn Fn(&[u8], bool) -> Result<String, Odd> + Send + Sync>,
    /// Whether records that were produced, and fetched, are selected.
    pub directions: (bool, bool),
    /// None: all are selected.
    pub selects: Option<Box<Selects>>,
    pub opens: Box<Opens>,
    /// The columns from headers and schemas, of key, value and headers.
    pub optional: Box<dyn Fn(&Payloads<'_>) -> Result<String, Odd> + Send + Sync>,
    /// Appends the same to columns, and returns their cost.
    pub push_optional: Box<dyn Fn(&Payloads<'_>, &mut [Column]) -> Result<usize, Odd> + Send + Sync>,
    /// Decompresses a batch, given the number of the exchange, whether it is the first one there, codec and magic.
    pub inflate: Box<dyn Fn(u64, bool, i16, u8, &[u8]) -> Result<Vec<u8>, Odd> + Send + Sync>,
    pub bounds: Bounds,
    /// Opens the messages in bodies, and returns the memory that all of it takes.
    pub open_messages: Box<dyn Fn(&Answered<'_>) -> Result<i64, Odd> + Send + Sync>,
    pub learn: Box<Learn>,
    /// Whether Python joins the batches that were produced and fetched; if so, whether there is room for more text.
    pub has_room: Option<Box<dyn Fn() -> Result<bool, Odd> + Send + Sync>>,
}

/// What stands for a topic, and whether clients wrote its records.
pub type TopicLabel = (String, bool);
