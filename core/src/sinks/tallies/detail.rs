//! What more is counted of exchanges that are alike, by API: topics and their partitions, producers, members, versions.

use std::collections::BTreeMap;

use crate::exchanges::fetch_sessions::Position;
use crate::exchanges::touched::Touched;
use crate::exchanges::usage::{Lag, Noted, Polls, Run, Stamp};
use crate::sinks::facts::Handle;
use crate::sinks::quantiles::Quantiles;
use crate::sinks::samples::Samples;

pub(super) enum Detail {
    Writes(ByTopic<WrittenTopic, WrittenPartition>, Vec<Producer>),
    Reads(Box<Reads>),
    Alive(Alive),
    Commits(Alive, ByTopic<(), Committed>),
    Offsets(ByTopic<(), Reported>),
    Versions(ReportedVersions),
    Alike(Box<Same>),
}

/// Of exchanges with the same bodies: what Python keeps of these, and when they were completed.
pub(super) struct Same {
    pub(super) content: Handle,
    pub(super) completed: Noted,
    pub(super) last: Stamp,
}

/// The versions that the last response says its broker supports: key of an API, the first, the last; and when.
#[derive(Default)]
pub(super) struct ReportedVersions {
    pub(super) apis: Vec<(i64, i64, i64)>,
    pub(super) completed: Stamp,
}

/// Offsets that a group has committed, or without a group, the end of the partition.
pub(super) type Reported = BTreeMap<Option<String>, Samples>;

/// By name, with their partitions.
pub(super) type ByTopic<T, P> = BTreeMap<String, Topic<T, P>>;

pub(super) struct Topic<T, P> {
    /// None: there is none, or no exchange named the topic.
    pub(super) id: Option<String>,
    /// When it was named first.
    pub(super) named_ns: i64,
    pub(super) all: T,
    pub(super) partitions: BTreeMap<i64, P>,
}

#[derive(Default)]
pub(super) struct WrittenTopic {
    pub(super) exchanges: u64,
    pub(super) service_us: Quantiles,
    /// Once for each partition.
    pub(super) noted: Noted,
    pub(super) bytes: u64,
    pub(super) records: u64,
}

#[derive(Default)]
pub(super) struct WrittenPartition {
    pub(super) noted: Noted,
    pub(super) bytes: u64,
    pub(super) records: u64,
    pub(super) codecs: Vec<(&'static str, u64)>,
    pub(super) ends: Samples,
    pub(super) runs: Vec<Run>,
    pub(super) repeatable: Vec<(u32, i32, i64)>,
}

/// Batches with a producer ID and epoch.
pub(super) struct Producer {
    pub(super) id: i64,
    pub(super) epoch: i16,
    pub(super) batches: u64,
    pub(super) records: u64,
    pub(super) first_ns: i64,
    pub(super) last_ns: i64,
}

#[derive(Default)]
pub(super) struct Reads {
    pub(super) max_wait_ms: i64,
    pub(super) empty: Noted,
    pub(super) polls: Polls,
    pub(super) opened: Noted,
    pub(super) denied: Noted,
    pub(super) topics: ByTopic<(), ReadPartition>,
}

#[derive(Default)]
pub(super) struct ReadPartition {
    pub(super) touches: u64,
    pub(super) bytes: u64,
    pub(super) records: u64,
    pub(super) codecs: Vec<(&'static str, u64)>,
    pub(super) high_watermark: Samples,
    pub(super) last_stable: Samples,
    pub(super) log_start: Samples,
    /// The high watermarks and last stable offsets of the exchanges with both. None: all have both.
    pub(super) stable: Option<Box<(Samples, Samples)>>,
    pub(super) lag: Lag,
    /// Exchanges that left records unread.
    pub(super) behind: Noted,
}

/// A member's last request, and the latest response.
#[derive(Default)]
pub(super) struct Alive {
    pub(super) last: Stamp,
    pub(super) completed_ns: i64,
}

pub(super) struct Committed {
    pub(super) commits: u64,
    pub(super) first: (Stamp, i64),
    pub(super) last: (Stamp, i64),
    pub(super) offsets: Samples,
}

impl Alive {
    pub(super) fn see(&mut self, stamp: Stamp, completed_ns: i64) {
        self.last = self.last.max(stamp);
        self.completed_ns = self.completed_ns.max(completed_ns);
    }
}

pub(super) fn add_batch(
    producers: &mut Vec<Producer>,
    time_ns: i64,
    &(id, epoch, _, records): &(i64, i16, i64, u64),
) {
    let place = producers
        .iter()
        .position(|known| (known.id, known.epoch) == (id, epoch));
    let producer = match place.and_then(|place| producers.get_mut(place)) {
        Some(known) => known,
        None => {
            producers.push(Producer {
                id,
                epoch,
                batches: 0,
                records: 0,
                first_ns: time_ns,
                last_ns: time_ns,
            });
            let last = producers.len() - 1;
            &mut producers[last]
        }
    };
    producer.batches += 1;
    producer.records += records;
    producer.first_ns = producer.first_ns.min(time_ns);
    producer.last_ns = producer.last_ns.max(time_ns);
}

/// Whether the topics have no other IDs than they are known to have.
pub(super) fn fit<'t, T, P>(
    topics: &ByTopic<T, P>,
    mut touched: impl Iterator<Item = &'t Touched<'t, 't>>,
) -> bool {
    touched.all(|each| {
        let known = topics.get(&*each.topic).and_then(|topic| topic.id.as_deref());
        known.is_none() || known == each.topic_id
    })
}

/// The topic of a partition, which an exchange names.
pub(super) fn topic_of<'t, T: Default, P>(
    topics: &'t mut ByTopic<T, P>,
    each: &Touched<'_, '_>,
    completed_ns: i64,
) -> &'t mut Topic<T, P> {
    let topic = topic_named(topics, &each.topic, completed_ns);
    match topic.id {
        Some(_) => topic.named_ns = topic.named_ns.min(completed_ns),
        None => (topic.id, topic.named_ns) = (each.topic_id.map(str::to_owned), completed_ns),
    }
    topic
}

pub(super) fn topic_named<'t, T: Default, P>(
    topics: &'t mut ByTopic<T, P>,
    name: &str,
    completed_ns: i64,
) -> &'t mut Topic<T, P> {
    topics.entry(name.to_owned()).or_insert_with(|| Topic {
        id: None,
        named_ns: completed_ns,
        all: T::default(),
        partitions: BTreeMap::new(),
    })
}

impl Topic<(), ReadPartition> {
    /// A partition; one that is new is one `more`.
    pub(super) fn read(&mut self, partition: i64, more: &mut usize) -> &mut ReadPartition {
        self.partitions.entry(partition).or_insert_with(|| {
            *more += 1;
            ReadPartition::default()
        })
    }
}

impl ReadPartition {
    pub(super) fn see(&mut self, time_ns: i64, stamp: Stamp, position: &Position) {
        let both = position
            .high_watermark
            .zip(position.last_stable.filter(|offset| *offset >= 0));
        if both.is_none() && self.stable.is_none() {
            self.stable = Some(Box::new((self.high_watermark.clone(), self.last_stable.clone())));
        }
        if let (Some((end, stable)), Some(samples)) = (both, &mut self.stable) {
            samples.0.add(time_ns, end);
            samples.1.add(time_ns, stable);
        }
        for (samples, offset) in [
            (&mut self.high_watermark, position.high_watermark),
            (&mut self.last_stable, position.last_stable),
            (&mut self.log_start, position.log_start),
        ] {
            if let Some(offset) = offset {
                samples.add(time_ns, offset);
            }
        }
        self.lag.add(time_ns, position);
        if position.lag().is_some_and(|(_, lag)| lag > 0) {
            self.behind.add(stamp);
        }
    }
}
