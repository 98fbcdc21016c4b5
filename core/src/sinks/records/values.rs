//! A record -> the values of its columns: text, or values that are appended to columns.

use crate::kafka::entries::{Batch, NO_TIMESTAMP};
use crate::sinks::cells::{csv, Cell, RowFacts};
use crate::sinks::columns::{Column, WaitingColumns};
use crate::sinks::record_lines::{base64, json, plain_text};
use crate::sinks::records::batches::OpenBatch;
use crate::sinks::records::partitions::PartitionRecords;
use crate::sinks::records::plan::{Opened, Payloads, RecordContent, RecordFormat, RecordPlan};
use crate::Odd;

/// Columns from headers and schemas.
const OPTIONAL: usize = 8;
const MS_NS: i64 = 1_000_000;

/// A record and what is known of it.
pub struct CarriedRecord<'a> {
    pub offset: Option<i64>,
    /// The requested offset.
    pub is_before: Option<bool>,
    pub timestamp_ms: i64,
    /// The same; None: its format has none.
    pub wire_ms: Option<i64>,
    pub payloads: Payloads<'a>,
}

impl Payloads<'_> {
    /// Whether columns from headers and schemas may have values.
    pub fn may_have_optional(&self) -> bool {
        let begins_with_zero = |payload: Option<&[u8]>| payload.is_some_and(|data| data.first() == Some(&0));
        !self.headers.is_empty() || begins_with_zero(self.key) || begins_with_zero(self.value)
    }
}

pub fn encoding(payload: Option<&[u8]>) -> Option<&'static str> {
    payload.map(|payload| match std::str::from_utf8(payload) {
        Ok(_) => "utf-8",
        Err(_) => "base64",
    })
}

impl PartitionRecords<'_> {
    /// Writes what the records of a batch share, apart from times in text.
    pub fn write(
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
            RecordContent::Control => cell.bool(batch.is_control()),
            RecordContent::ControlType | RecordContent::Error => cell.null(),
            RecordContent::Aborted if self.aborted.is_some() => cell.bool(batch.is_aborted),
            RecordContent::Aborted => cell.null(),
            _ => Err(Odd),
        }
    }
}

impl RecordPlan {
    /// Adds the row of a record to columns.
    pub fn row(
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
    pub fn before_fetch(
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

    /// Writes what Python says of a record. Returns whether it has the content.
    pub fn opened(
        &self,
        content: RecordContent,
        (control, cells, optional): &Opened,
        out: &mut Vec<u8>,
    ) -> Result<bool, Odd> {
        let [key, key_encoding, value, value_encoding] = cells;
        let [of_key, of_value] = &self.encodings;
        let texts: [&str; 3] = match content {
            RecordContent::Key(_) => [key, of_key, key_encoding],
            RecordContent::Value => [value, of_value, value_encoding],
            RecordContent::KeyText => [key, "", ""],
            RecordContent::ValueText => [value, "", ""],
            RecordContent::KeyEncoding => [key_encoding, "", ""],
            RecordContent::ValueEncoding => [value_encoding, "", ""],
            RecordContent::Optional => [optional, "", ""],
            RecordContent::ControlType => {
                self.format.cell(out).text(control.as_deref())?;
                return Ok(true);
            }
            _ => return Ok(false),
        };
        texts
            .iter()
            .for_each(|text| out.extend_from_slice(text.as_bytes()));
        Ok(true)
    }

    /// Writes a key or value without its encoding.
    pub fn text(&self, payload: Option<&[u8]>, is_key: bool, out: &mut Vec<u8>) -> Result<(), Odd> {
        let Some(payload) = payload else {
            return self.format.cell(out).null();
        };
        let Ok(text) = std::str::from_utf8(payload) else {
            let mut text = Vec::new();
            base64(payload, &mut text);
            let text = std::str::from_utf8(&text).map_err(|_| Odd)?;
            return self.format.cell(out).text(Some(text));
        };
        if self.format.cell(out).text(Some(text)).is_err() {
            out.extend_from_slice((self.printed)(payload, is_key)?.as_bytes());
        }
        Ok(())
    }

    /// Writes a key or value, and after `between` its encoding, if that is shown.
    pub fn payload(
        &self,
        payload: Option<&[u8]>,
        between: &str,
        is_key: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), Odd> {
        match self.format {
            RecordFormat::Json => json(payload, between.as_bytes(), out),
            RecordFormat::Csv => csv(payload, between.as_bytes(), out),
            RecordFormat::Fields => return Err(Odd), // has no encodings next to them
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
pub fn fill(start: usize, width: usize, out: &mut Vec<u8>) {
    if out.len() - start < width {
        out.resize(start + width, b' ');
    }
}
