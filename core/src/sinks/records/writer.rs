//! Record data -> the text or rows of its records.

use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;

use crate::exchanges::content::Row;
use crate::kafka::entries::{entries, NO_TIMESTAMP};
use crate::kafka::tree::Decoded;
use crate::sinks::cells::{RowFacts, DATE_BYTES};
use crate::sinks::clock::Clock;
use crate::sinks::columns::WaitingColumns;
use crate::sinks::conditions::{NameTest, Vote};
use crate::sinks::handed::{CarriedBatches, Handed};
use crate::sinks::records::batches::{first_batch, OpenBatch};
use crate::sinks::records::partitions::PartitionRecords;
use crate::sinks::records::plan::{
    Opened, Payloads, RecordContent, RecordFormat, RecordPlace, RecordPlan, TopicLabel,
};
use crate::sinks::records::values::{encoding, fill, CarriedRecord};
use crate::sinks::shared::Droppable;
use crate::Odd;

/// Text of one exchange. Python holds one batch of a larger one at a time.
const MAX_TEXT: usize = 1024 * 1024;
/// Size of the rows of one exchange in columns.
const MAX_ROWS_BYTES: usize = 4 * 1024 * 1024;
/// Topics of which it is known what stands for them.
const MAX_TOPICS: usize = 1000;
/// Of timestamps.
const TIMESTAMP_DIGITS: u32 = 6;
const MS_NS: i64 = 1_000_000;
/// A batch, or a message, from its first offset on.
const ENTRY_BYTES: usize = 18;
const MAGIC_AT: usize = 16;

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
    pub plan: RecordPlan,
    /// By name, and by ID.
    labels: [HashMap<String, TopicLabel>; 2],
    /// Texts of errors.
    rejections: HashMap<i64, String>,
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

/// What was written, until Python takes it.
#[derive(Default)]
pub struct NotedBatches {
    pub carried: Vec<CarriedBatches>,
    /// Whether Python has no room for more.
    pub is_full: bool,
}

impl NotedBatches {
    /// Hands it over. If nothing was written for lack of room, there may be some now.
    pub fn flush(&mut self, writer: &Writer) -> impl Iterator<Item = Handed> + '_ {
        if self.is_full || !self.carried.is_empty() {
            self.is_full = writer.is_full().unwrap_or(self.is_full);
        }
        let carried = self.carried.drain(..);
        carried.map(|each| Handed::Carried(Box::new(each)))
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
            rejections: HashMap::new(),
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
        for mut each in PartitionRecords::of(row, decoded, &partitions)? {
            self.write(found, &mut each, &mut is_first, start, carried, &mut out)?;
        }
        Ok(())
    }

    /// See [`RecordPlan`].
    fn label(&mut self, topic: &str, is_id: bool) -> Result<&TopicLabel, Odd> {
        let labels = &mut self.labels[usize::from(is_id)];
        if !labels.contains_key(topic) {
            if labels.len() >= MAX_TOPICS {
                labels.clear();
            }
            labels.insert(topic.to_owned(), (self.plan.label)(topic, is_id)?);
        }
        labels.get(topic).ok_or(Odd)
    }

    /// Whether records of a partition are selected, if the exchange is.
    fn is_shown(&mut self, is_selected: bool, each: &PartitionRecords<'_>) -> Result<bool, Odd> {
        let (produced, fetched) = self.plan.directions;
        match &mut self.partitions {
            _ if !(is_selected && if each.is_fetched { fetched } else { produced }) => Ok(false),
            None => Ok(true),
            Some(test) => {
                let id = each.topic_id.filter(|_| each.name().is_some());
                Ok(test.vote(each.topic, id, Some(each.partition))? == Vote::Selected)
            }
        }
    }

    /// Writes the records of a partition. `held`: the size of `out` before the exchange.
    fn write(
        &mut self,
        found: &RowFacts<'_>,
        each: &mut PartitionRecords<'_>,
        is_first: &mut bool,
        held: usize,
        carried: &mut CarriedBatches,
        out: &mut RecordForm<'_>,
    ) -> Result<(), Odd> {
        let is_shown = self.is_shown(found.exchange.is_selected, each)?;
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
            let opened = self
                .plan
                .opened_set(data, &header, base_offset, found.exchange.number, is_first)?;
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
        each: &mut PartitionRecords<'_>,
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
                let number = found.exchange.number;
                let mut batch =
                    self.plan
                        .opened_batch(whole, (&entry, header), start_offset, number, is_first)?;
                if let Some(aborted) = &mut each.aborted {
                    batch.is_aborted = aborted.hides(header, entry.last_offset()?, batch.is_abort());
                }
                self.batch(found, each, &batch, held, out)?;
            }
            let origin = (
                topic.to_owned(),
                each.partition,
                start_offset,
                header.base_timestamp,
            );
            let numbers = (header.producer_id, header.producer_epoch, header.base_sequence);
            if each.is_fetched {
                carried.fetched.push((origin, numbers, (start, out.place())));
            } else if each.error.is_some() {
                carried
                    .produced
                    .extend((header.producer_id >= 0).then_some((origin, Some(numbers))));
            } else if std::mem::take(&mut is_produced) {
                carried.produced.push((origin, None));
            }
            if base_offset.is_some() {
                let last = start_offset.checked_add(header.last_offset_delta.into());
                base_offset = Some(last.and_then(|last| last.checked_add(1)).ok_or(Odd)?);
            }
        }
        Ok(())
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
        let name = each.name();
        let is_control = batch.is_control();
        let (_, is_clients) = self.label(each.topic, name.is_none())?;
        let place = RecordPlace {
            topic: each.topic,
            topic_id: each.topic_id,
            partition: each.partition,
            is_control: Some(is_control).filter(|_| is_control || !is_clients),
        };
        match out {
            RecordForm::Text(_) => self.share(found, each, batch)?,
            RecordForm::Columns(_) if place.is_control.is_some() || each.error.is_some() => return Err(Odd),
            RecordForm::Columns(_) => (),
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
            let opened = match place.is_control {
                None => None,
                Some(_) => Some((self.plan.opens)(&place, &carried.payloads)?),
            };
            if let Some(selects) = &self.plan.selects {
                if !selects(&place, carried.offset, &carried.payloads)? {
                    continue;
                }
            }
            match out {
                RecordForm::Text(out) => self.line(each, &carried, opened.as_ref(), out)?,
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
        opened: Option<&Opened>,
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
            if let Some(opened) = opened {
                if plan.opened(*content, opened, out)? {
                    continue;
                }
            }
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
                RecordContent::KeyText => plan.text(payloads.key, true, out)?,
                RecordContent::ValueText => plan.text(payloads.value, false, out)?,
                RecordContent::KeyEncoding => format.cell(out).text(encoding(payloads.key))?,
                RecordContent::ValueEncoding => format.cell(out).text(encoding(payloads.value))?,
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
        if let Some(code) = each.error {
            if !self.rejections.contains_key(&code) {
                self.rejections.insert(code, (self.plan.rejected)(code)?);
            }
        }
        let (label, _) = self.label(each.topic, each.name().is_none())?;
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
                RecordContent::RecordPlace(_) if !place.is_ascii() => return Err(Odd), // its width is unknown
                RecordContent::RecordPlace(width) => {
                    cell.text(Some(&place))?;
                    fill(start, *width, text);
                }
                RecordContent::Mark(byte) => text.push(*byte),
                RecordContent::Position => {
                    write!(text, "{}\t{}", each.topic, each.partition).map_err(|_| Odd)?
                }
                RecordContent::Error => match each.error {
                    Some(code) => text.extend_from_slice(self.rejections.get(&code).ok_or(Odd)?.as_bytes()),
                    None if self.plan.format == RecordFormat::Text => (),
                    None => cell.null()?,
                },
                RecordContent::ControlType if batch.is_control() => places.push((start, *content)),
                content if content.is_per_record() => places.push((start, *content)),
                content => each.write(*content, found, batch, &mut cell)?,
            }
        }
        if batch.is_aborted && self.plan.format == RecordFormat::Text {
            return Err(Odd); // what is said of a copy comes before it
        }
        text.extend_from_slice(self.plan.end.as_bytes());
        Ok(())
    }
}
