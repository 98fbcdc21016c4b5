//! Bodies -> the record data of partitions.

use std::collections::{HashMap, HashSet};

use crate::exchanges::content::Row;
use crate::exchanges::touched::FoundPartition;
use crate::exchanges::usage::Fields;
use crate::kafka::entries::Batch;
use crate::kafka::tree::{field, Decoded, Value, NO_ID};
use crate::Odd;

/// Kafka's topics have at most as many characters; longer names are kept differently (kdissect/names.py).
const TOPIC_BYTES: usize = 249;

/// Record data, and what both messages say of it.
pub struct PartitionRecords<'b> {
    pub topic: &'b str,
    pub topic_id: Option<&'b str>,
    pub partition: i64,
    pub data: &'b [u8],
    pub is_fetched: bool,
    /// Of a Produce: why the broker rejected it.
    pub error: Option<i64>,
    /// That the broker gave.
    pub base_offset: Option<i64>,
    pub append_ms: Option<i64>,
    /// Of a Fetch: that it requested.
    pub fetch_offset: Option<i64>,
    /// Which transactions were aborted, if it says so.
    pub aborted: Option<AbortedTransactions>,
}

/// `AbortedTransactions` of kdissect/kafka/batches.py.
pub struct AbortedTransactions {
    /// First offset and producer ID of those that have not begun, the next one last.
    pub waiting: Vec<(i64, i64)>,
    pub open: HashSet<i64>,
}

impl AbortedTransactions {
    pub fn of(aborted: &[Value<'_>], names: &Fields) -> Result<Self, Odd> {
        let number = |each, name| field(Some(each), name)?.ok_or(Odd);
        let waiting = aborted.iter().map(|each| {
            Ok((
                number(each, names.first_offset)?,
                number(each, names.producer_id)?,
            ))
        });
        let mut waiting: Vec<_> = waiting.collect::<Result<_, Odd>>()?;
        waiting.sort_unstable_by(|one, other| other.cmp(one));
        Ok(AbortedTransactions {
            waiting,
            open: HashSet::new(),
        })
    }

    /// Whether the records of the next batch were aborted.
    pub fn hides(&mut self, batch: &Batch, last_offset: i64, is_abort: bool) -> bool {
        while let Some((_, producer)) = self.waiting.last().filter(|(first, _)| *first <= last_offset) {
            self.open.insert(*producer);
            self.waiting.pop();
        }
        let is_open = self.open.contains(&batch.producer_id);
        if is_open && is_abort {
            self.open.remove(&batch.producer_id);
        }
        is_open && batch.is_transactional() && !batch.is_control()
    }
}

/// The topic as both messages have it: one that was created again has two IDs with the same name.
fn wire_topic<'b>(each: &'b FoundPartition<'b, '_>) -> &'b str {
    each.topic_id.unwrap_or(&each.topic)
}

impl<'b> PartitionRecords<'b> {
    /// Of its topic, unless only the ID is known.
    pub fn name(&self) -> Option<&'b str> {
        Some(self.topic).filter(|topic| self.topic_id != Some(topic))
    }

    /// In wire order.
    pub fn of(
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
            let error = others.get(&(wire_topic(each), each.partition));
            let error = error
                .and_then(|other| other.error)
                .filter(|code| !is_fetched && *code != 0);
            let known = |name| Ok::<_, Odd>(number(name)?.filter(|number| error.is_none() && *number >= 0));
            if each.topic.is_empty() || each.topic.len() > TOPIC_BYTES {
                return Err(Odd);
            }
            if each.topic_id.is_some_and(|id| id.as_bytes() == NO_ID) {
                return Err(Odd);
            }
            let aborted = match each.body.get(names.aborted_transactions) {
                None | Some(Value::Null) => None,
                Some(Value::List(aborted)) => Some(AbortedTransactions::of(aborted, names)?),
                _ => return Err(Odd),
            };
            all.push(PartitionRecords {
                topic: &each.topic,
                topic_id: each.topic_id,
                partition: each.partition,
                data,
                is_fetched,
                error,
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
                aborted,
            });
        }
        match all.len() == row.record_fields(decoded) {
            true => Ok(all),
            false => Err(Odd), // some belong to no partition
        }
    }
}
