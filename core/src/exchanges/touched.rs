//! Bodies -> the partitions in them, as kdissect/exchanges/touched.py finds them, and what their record batches say.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::exchanges::connection::NAME_BYTES;
use crate::kafka::entries::{entries, Batch, LogEntry};
use crate::kafka::tree::{elements, field, name_of, Decoded, Name, TopicNames, Value};
use crate::{Odd, Why};

/// The fields of a struct that describe a partition, and those with structs that do.
pub struct PartitionPlan {
    pub topic: Option<Name>,
    pub topic_id: Option<Name>,
    pub group: Option<Name>,
    pub partition: Option<Name>,
    pub error: Option<Name>,
    pub records: Option<Name>,
    pub inner: Vec<(Name, PartitionPlan)>,
}

/// A partition, and its structs in both messages.
pub struct Touched<'b, 'a> {
    pub topic: Cow<'b, str>,
    pub topic_id: Option<&'b str>,
    pub partition: i64,
    pub group: Option<&'a str>,
    pub request: Option<&'b Value<'a>>,
    pub response: Option<&'b Value<'a>>,
    pub error: Option<i64>,
    pub is_fetched: bool,
    pub records: Option<RecordBatches>,
}

/// The sums of the headers of batches, or of messages before there were any.
pub struct RecordBatches {
    pub bytes: usize,
    /// None: compression hides the number.
    pub records: Option<u64>,
    pub number: usize,
    pub control: usize,
    pub markers: u64,
    /// Each once.
    pub codecs: Vec<&'static str>,
    pub first: Option<LogEntry>,
    pub last_offset: Option<i64>,
    pub max_timestamp_ms: i64,
}

/// The same of one message.
pub struct FoundPartition<'b, 'a> {
    pub topic: Cow<'b, str>,
    pub topic_id: Option<&'b str>,
    pub partition: i64,
    group: Option<&'a str>,
    pub body: &'b Value<'a>,
    pub error: Option<i64>,
    pub records: Option<&'a [u8]>,
}

impl<'b, 'a> Touched<'b, 'a> {
    /// Topic and partition.
    pub fn place(&self) -> (String, i64) {
        (self.topic.clone().into_owned(), self.partition)
    }

    /// Whether the ID of the topic stands for its name.
    pub fn is_nameless(&self) -> bool {
        self.topic_id.is_some_and(|id| id == self.topic)
    }

    /// The partitions in wire order, the request's first. A partition listed twice in a message is odd.
    pub fn of(
        (of_request, of_response): &(Option<PartitionPlan>, Option<PartitionPlan>),
        decoded: &'b Decoded<'a>,
        names: &dyn TopicNames,
    ) -> Result<Vec<Self>, Odd> {
        let mut both = [Vec::new(), Vec::new()];
        let bodies = [(of_request, &decoded.request), (of_response, &decoded.response)];
        for (found, (plan, body)) in both.iter_mut().zip(bodies) {
            if let Some(plan) = plan {
                plan.gather(body, names, None, None, None, found)?;
            }
        }
        let [requested, responded] = both;
        let mut places = HashMap::with_capacity(requested.len());
        let mut touched = Vec::with_capacity(requested.len());
        for (place, each) in requested.into_iter().enumerate() {
            if places.insert(each.key(), place).is_some() {
                return Err(Odd);
            }
            touched.push(Touched {
                request: Some(each.body),
                response: None,
                error: None,
                is_fetched: false,
                records: each.records.map(RecordBatches::of).transpose()?,
                topic: each.topic,
                topic_id: each.topic_id,
                partition: each.partition,
                group: each.group,
            });
        }
        let of_request = touched.len();
        for each in responded {
            let place = *places.entry(each.key()).or_insert(touched.len());
            if place == touched.len() {
                touched.push(Touched {
                    topic: each.topic,
                    topic_id: None,
                    partition: each.partition,
                    group: each.group,
                    request: None,
                    response: None,
                    error: None,
                    is_fetched: false,
                    records: None,
                });
            } else if place >= of_request {
                return Err(Odd);
            }
            let known = touched.get_mut(place).ok_or(Odd)?;
            if known.response.is_some() {
                return Err(Odd);
            }
            known.response = Some(each.body);
            known.topic_id = known.topic_id.or(each.topic_id);
            known.error = each.error;
            known.is_fetched = each.records.is_some();
            if let Some(data) = each.records {
                known.records = Some(RecordBatches::of(data)?);
            }
        }
        Ok(touched)
    }

    /// The first of these fields that is present, the response's before the request's.
    pub fn number(&self, names: &[Name]) -> Result<Option<i64>, Odd> {
        for name in names {
            for body in [self.response, self.request] {
                if let Some(number) = field(body, *name)? {
                    return Ok(Some(number));
                }
            }
        }
        Ok(None)
    }

    /// Lag: the high watermark minus the fetch offset.
    pub fn lag(&self, high_watermark: Name, fetch_offset: Name) -> Result<Option<i64>, Odd> {
        let end = field(self.response, high_watermark)?;
        Ok(match (end, field(self.request, fetch_offset)?) {
            (Some(end @ 0..), Some(from @ 0..)) => Some((end - from).max(0)),
            _ => None,
        })
    }
}

impl<'b, 'a> FoundPartition<'b, 'a> {
    fn key(&self) -> (Cow<'b, str>, i64, Option<&'a str>) {
        (self.topic.clone(), self.partition, self.group)
    }
}

impl PartitionPlan {
    /// The partitions of a message in wire order.
    pub fn found<'b, 'a>(
        &self,
        body: &'b Value<'a>,
        names: &dyn TopicNames,
    ) -> Result<Vec<FoundPartition<'b, 'a>>, Odd> {
        let mut found = Vec::new();
        self.gather(body, names, None, None, None, &mut found)?;
        Ok(found)
    }

    fn gather<'b, 'a>(
        &self,
        body: &'b Value<'a>,
        names: &dyn TopicNames,
        mut topic: Option<Cow<'b, str>>,
        mut topic_id: Option<&'b str>,
        mut group: Option<&'a str>,
        found: &mut Vec<FoundPartition<'b, 'a>>,
    ) -> Result<(), Odd> {
        let text = |name: Option<Name>| match name.and_then(|name| body.get(name)) {
            Some(Value::Text(text)) if text.len() > NAME_BYTES => Err(Odd),
            Some(Value::Text(text)) if !text.is_empty() => Ok(Some(*text)),
            _ => Ok(None),
        };
        if let Some(name) = text(self.topic)? {
            topic = Some(name.into());
        }
        if let Some(Value::Uuid(id)) = self.topic_id.and_then(|name| body.get(name)) {
            if topic.is_some() {
                return Err(Odd); // no version has both
            }
            topic_id = Some(std::str::from_utf8(id).map_err(|_| Odd)?);
            topic = Some(name_of(id, names)?.into());
        }
        group = text(self.group)?.or(group);
        let partition = self.partition.and_then(|name| body.get(name));
        if let (Some(topic), Some(partition)) = (&topic, partition) {
            let Value::Int(partition) = partition else {
                return Err(Odd);
            };
            found.push(FoundPartition {
                topic: topic.clone(),
                topic_id,
                partition: *partition,
                group,
                body,
                error: self.error.map_or(Ok(None), |name| field(Some(body), name))?,
                records: match self.records.and_then(|name| body.get(name)) {
                    Some(Value::Records(data)) => Some(data),
                    _ => None,
                },
            });
        }
        for (name, inner) in &self.inner {
            for deeper in elements(body.get(*name)) {
                inner.gather(deeper, names, topic.clone(), topic_id, group, found)?;
            }
        }
        Ok(())
    }
}

impl RecordBatches {
    fn of(data: &[u8]) -> Result<Self, Odd> {
        let mut all = RecordBatches {
            bytes: data.len(),
            records: Some(0),
            number: 0,
            control: 0,
            markers: 0,
            codecs: Vec::new(),
            first: None,
            last_offset: None,
            max_timestamp_ms: -1,
        };
        for entry in entries(data) {
            let entry = entry.map_err(|_| Why::Records.odd())?;
            let is_alike = |first: &LogEntry| first.batch().is_some() == entry.batch().is_some();
            if !all.first.as_ref().is_none_or(is_alike) {
                return Err(Why::Records.odd());
            }
            all.number += 1;
            let records = entry.records();
            all.records = all.records.zip(records).map(|(all, records)| all + records);
            if entry.batch().is_some_and(Batch::is_control) {
                all.control += 1;
                all.markers += records.unwrap_or(0);
            }
            if !all.codecs.contains(&entry.codec()) {
                all.codecs.push(entry.codec());
            }
            let last_offset = entry.last_offset();
            let last_offset = last_offset.ok().filter(|offset| *offset != i64::MIN);
            all.last_offset = Some(last_offset.ok_or_else(|| Why::Records.odd())?);
            all.max_timestamp_ms = match all.number {
                1 => entry.max_timestamp(),
                _ => all.max_timestamp_ms.max(entry.max_timestamp()),
            };
            all.first.get_or_insert(entry);
        }
        Ok(all)
    }
}
