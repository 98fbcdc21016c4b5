//! Exchanges -> rows of all tables, as in kdissect/tables/partitions.py and groups.py.

use crate::exchanges::content::{GroupEvents, Row};
use crate::exchanges::touched::Touched;
use crate::kafka::entries::LogEntry;
use crate::kafka::tree::{field, Decoded, Value};
use crate::sinks::cells::{Cell, Content, RowFacts};
use crate::sinks::columns::Column;
use crate::sinks::shared::Droppable;
use crate::sinks::table_form::TableForm;
use crate::sinks::whole::{text_in, EventRow};
use crate::Odd;

const MS_NS: i64 = 1_000_000;
const COMMIT: &str = "commit";

/// A table, and where its rows go.
pub struct Table {
    contents: Contents,
    form: TableForm,
    /// Rows and bytes at which it is full.
    max_rows: usize,
    max_bytes: usize,
}

enum Contents {
    Exchanges(Vec<Content>),
    Partitions(Vec<OfPartition>),
    Groups(Vec<OfGroup>),
}

/// The content of a column of `partitions`; most have its name.
enum OfPartition {
    Exchange(Content),
    GroupId,
    Topic,
    TopicId,
    Partition,
    Error,
    ErrorExpected,
    ErrorCode,
    Bytes,
    Records,
    Batches,
    ControlBatches,
    Markers,
    Compression,
    Magic,
    ProducerId,
    ProducerEpoch,
    BaseSequence,
    Transactional,
    BaseOffset(usize),
    LastOffset,
    MaxTimestamp,
    Replica,
    /// The first of these fields; see [`Row::fields`].
    Number(usize),
    /// A field of the request.
    Requested(usize),
    /// Computed from a field of the response and one of the request.
    Lag(usize),
}

/// The content of a column of `groups`.
enum OfGroup {
    Exchange(Content),
    Completed,
    Commit,
    IsNew,
    /// The first of these fields in the request that is not empty.
    Text(usize),
    /// The first of these fields in the request, unless it is negative.
    Number(usize),
    Error,
}

/// The content of a column, which has the name of one of `exchanges`.
fn of_exchange((name, which): &(String, usize)) -> Option<Content> {
    Content::named(name, *which)
}

fn of_partition(content: &(String, usize)) -> Option<OfPartition> {
    let (name, which) = content;
    Some(match name.as_str() {
        "group_id" => OfPartition::GroupId,
        "topic" => OfPartition::Topic,
        "topic_id" => OfPartition::TopicId,
        "partition" => OfPartition::Partition,
        "error" => OfPartition::Error,
        "error_expected" => OfPartition::ErrorExpected,
        "error_code" => OfPartition::ErrorCode,
        "bytes" => OfPartition::Bytes,
        "records" => OfPartition::Records,
        "batches" => OfPartition::Batches,
        "control_batches" => OfPartition::ControlBatches,
        "markers" => OfPartition::Markers,
        "compression" => OfPartition::Compression,
        "magic" => OfPartition::Magic,
        "replica_id" => OfPartition::Replica,
        "producer_id" => OfPartition::ProducerId,
        "producer_epoch" => OfPartition::ProducerEpoch,
        "base_sequence" => OfPartition::BaseSequence,
        "transactional" => OfPartition::Transactional,
        "base_offset" => OfPartition::BaseOffset(*which),
        "last_offset" => OfPartition::LastOffset,
        "max_timestamp" => OfPartition::MaxTimestamp,
        "number_in" => OfPartition::Number(*which),
        "requested" => OfPartition::Requested(*which),
        "fetch_lag" => OfPartition::Lag(*which),
        _ => OfPartition::Exchange(of_exchange(content)?),
    })
}

fn of_group(content: &(String, usize)) -> Option<OfGroup> {
    let (name, which) = content;
    Some(match name.as_str() {
        "completed" => OfGroup::Completed,
        "event" => OfGroup::Commit,
        "is_new" => OfGroup::IsNew,
        "text_in" => OfGroup::Text(*which),
        "number_in" => OfGroup::Number(*which),
        "error" => OfGroup::Error,
        _ => OfGroup::Exchange(of_exchange(content)?),
    })
}

impl Table {
    /// `contents`: of its columns, each with an index if there are several; `full`: rows and bytes at which it is
    /// full. None: there is no such table or content.
    pub fn new(
        name: &str,
        contents: &[(String, usize)],
        form: TableForm,
        full: (usize, usize),
    ) -> Option<Self> {
        let each = contents.iter();
        let contents = match name {
            "exchanges" => Contents::Exchanges(each.map(of_exchange).collect::<Option<_>>()?),
            "partitions" => Contents::Partitions(each.map(of_partition).collect::<Option<_>>()?),
            "groups" => Contents::Groups(each.map(of_group).collect::<Option<_>>()?),
            _ => return None,
        };
        let (max_rows, max_bytes) = full;
        Some(Table {
            contents,
            form,
            max_rows,
            max_bytes,
        })
    }

    pub fn has_partitions(&self) -> bool {
        matches!(self.contents, Contents::Partitions(_))
    }

    /// The columns that are the same in all rows of an exchange.
    pub fn contents(&self) -> Vec<&Content> {
        match &self.contents {
            Contents::Exchanges(contents) => contents.iter().collect(),
            Contents::Partitions(contents) => contents
                .iter()
                .filter_map(|each| match each {
                    OfPartition::Exchange(content) => Some(content),
                    _ => None,
                })
                .collect(),
            Contents::Groups(contents) => contents
                .iter()
                .filter_map(|each| match each {
                    OfGroup::Exchange(content) => Some(content),
                    _ => None,
                })
                .collect(),
        }
    }

    pub fn is_full(&self) -> bool {
        let (rows, held) = self.form.size();
        rows >= self.max_rows || held >= self.max_bytes
    }

    /// For `restore`.
    pub fn mark(&self) -> (usize, usize) {
        self.form.size()
    }

    pub fn restore(&self, (rows, held): (usize, usize)) {
        self.form.clone().truncate(rows, held);
    }

    /// Adds the row of an exchange to its own table.
    pub fn add_exchange(&self, found: &RowFacts<'_>) -> Result<(), Odd> {
        match &self.contents {
            Contents::Exchanges(contents) => self.row(contents, |content, cell| found.write(*content, cell)),
            _ => Ok(()),
        }
    }

    /// Adds its rows to another table; `events`: those of groups that Python has read. If the table is full before the last one, the exchange is odd: Python must
    /// take the rows from the table first.
    pub fn add(
        &self,
        row: &Row,
        decoded: &Decoded<'_>,
        found: &RowFacts<'_>,
        partitions: &[Touched<'_, '_>],
        events: &[EventRow],
        error_name: &mut dyn FnMut(i64) -> Result<String, Odd>,
    ) -> Result<(), Odd> {
        match &self.contents {
            Contents::Exchanges(_) => Ok(()),
            Contents::Partitions(contents) => partitions.iter().try_for_each(|each| {
                if self.is_full() {
                    return Err(Odd);
                }
                let code = each.error.filter(|code| *code != 0);
                let error = code.map(&mut *error_name).transpose()?;
                let touched = PartitionRow {
                    row,
                    found,
                    each,
                    error: error.as_deref(),
                };
                self.row(contents, |content, cell| touched.write(content, cell))
            }),
            Contents::Groups(contents) => match row.group_events {
                GroupEvents::Commit if found.group_id.is_some() => self.row(contents, |content, cell| {
                    group_cell(content, row, decoded, found, cell)
                }),
                _ => events.iter().try_for_each(|event| self.add_event(event)),
            },
        }
    }

    fn add_event(&self, event: &EventRow) -> Result<(), Odd> {
        if self.is_full() {
            return Err(Odd);
        }
        match (&self.form, event) {
            (TableForm::Columns(columns), EventRow::Values(push)) => columns.lock().row(push),
            (TableForm::Waiting(columns), EventRow::Values(push)) => columns.lock().row(push),
            (TableForm::Lines(lines), EventRow::Line(line)) => {
                lines.lock().add(line);
                Ok(())
            }
            _ => Err(Odd),
        }
    }

    fn row<C>(
        &self,
        contents: &[C],
        mut write: impl FnMut(&C, &mut Cell<'_>) -> Result<(), Odd>,
    ) -> Result<(), Odd> {
        let write_all = |columns: &mut [Column]| {
            let mut cost = 0;
            for (content, column) in contents.iter().zip(columns) {
                write(content, &mut Cell::Column(column, &mut cost))?;
            }
            Ok(cost)
        };
        match &self.form {
            TableForm::Columns(columns) => columns.lock().row(write_all),
            TableForm::Waiting(columns) => columns.lock().row(write_all),
            TableForm::Lines(lines) => lines.lock().row(|heads, out| {
                for (content, head) in contents.iter().zip(heads) {
                    out.extend_from_slice(head.as_bytes());
                    write(content, &mut Cell::Json(out))?;
                }
                Ok(())
            }),
        }
    }
}

struct PartitionRow<'a> {
    row: &'a Row,
    found: &'a RowFacts<'a>,
    each: &'a Touched<'a, 'a>,
    error: Option<&'a str>,
}

impl PartitionRow<'_> {
    fn write(&self, content: &OfPartition, cell: &mut Cell<'_>) -> Result<(), Odd> {
        let each = self.each;
        let records = each.records.as_ref();
        let first = records.and_then(|records| records.first.as_ref());
        let batch = first.and_then(LogEntry::batch);
        let names = |which: usize| self.row.fields.get(which).map(Vec::as_slice).ok_or(Odd);
        match content {
            OfPartition::Exchange(content) => self.found.write(*content, cell),
            OfPartition::GroupId => cell.text(each.group.or(self.found.group_id)),
            OfPartition::Topic => cell.text(Some(&*each.topic).filter(|topic| each.topic_id != Some(*topic))),
            OfPartition::TopicId => cell.text(each.topic_id),
            OfPartition::Partition => cell.number(Some(each.partition)),
            OfPartition::Error => cell.text(self.error),
            OfPartition::ErrorExpected => match self.error {
                Some(error) => cell.bool(self.found.expected_errors.iter().any(|each| each == error)),
                None => cell.null(),
            },
            OfPartition::ErrorCode => cell.number(each.error),
            OfPartition::Bytes => cell.number(records.and_then(|all| all.bytes.try_into().ok())),
            OfPartition::Records => cell.number(records.and_then(|all| all.records?.try_into().ok())),
            OfPartition::Batches => cell.number(records.and_then(|all| all.number.try_into().ok())),
            OfPartition::ControlBatches => cell.number(records.and_then(|all| all.control.try_into().ok())),
            OfPartition::Markers => cell.number(records.and_then(|all| all.markers.try_into().ok())),
            OfPartition::Compression => cell.texts(records.map_or(&[][..], |all| &all.codecs)),
            OfPartition::Magic => cell.number(first.map(|first| first.magic().into())),
            OfPartition::ProducerId => cell.number(batch.map(|batch| batch.producer_id)),
            OfPartition::ProducerEpoch => cell.number(batch.map(|batch| batch.producer_epoch.into())),
            OfPartition::BaseSequence => cell.number(batch.map(|batch| batch.base_sequence.into())),
            OfPartition::Transactional => match batch {
                Some(batch) => cell.bool(batch.is_transactional()),
                None => cell.null(),
            },
            OfPartition::BaseOffset(_) if each.is_fetched => cell.number(first.map(LogEntry::base_offset)),
            OfPartition::BaseOffset(which) => cell.number(each.number(names(*which)?)?),
            OfPartition::LastOffset if !each.is_fetched => cell.null(),
            OfPartition::LastOffset => cell.number(records.and_then(|all| all.last_offset)),
            OfPartition::MaxTimestamp => match records.map(|all| all.max_timestamp_ms) {
                None | Some(-1) => cell.null(),
                Some(ms) => self.found.time(ms.checked_mul(MS_NS).ok_or(Odd)?, cell),
            },
            OfPartition::Replica => cell.number(self.found.replica_id),
            OfPartition::Number(which) => cell.number(each.number(names(*which)?)?),
            OfPartition::Requested(which) => match names(*which)? {
                [name] => cell.number(field(each.request, *name)?),
                _ => Err(Odd),
            },
            OfPartition::Lag(which) => match names(*which)? {
                [end, from] => cell.number(each.lag(*end, *from)?),
                _ => Err(Odd),
            },
        }
    }
}

fn group_cell(
    content: &OfGroup,
    row: &Row,
    decoded: &Decoded<'_>,
    found: &RowFacts<'_>,
    cell: &mut Cell<'_>,
) -> Result<(), Odd> {
    let request = &decoded.request;
    let names = |which: &usize| row.fields.get(*which).ok_or(Odd);
    match content {
        OfGroup::Exchange(content) => found.write(*content, cell),
        OfGroup::Completed => found.time(found.exchange.response.end_ns, cell),
        OfGroup::Commit => cell.text(Some(COMMIT)),
        OfGroup::IsNew => cell.bool(false),
        OfGroup::Text(which) => cell.text(text_in(names(which)?, request)),
        OfGroup::Number(which) => {
            let mut names = names(which)?.iter();
            let number = names
                .find_map(|name| request.get(*name))
                .map(|value| match value {
                    Value::Int(number) => Ok(*number),
                    _ => Err(Odd),
                });
            cell.number(number.transpose()?.filter(|number| *number >= 0))
        }
        OfGroup::Error => cell.text(found.errors.first().map(String::as_str)),
    }
}
