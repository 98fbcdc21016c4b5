//! Exchanges of a connection that are alike -> what is counted of them.

use std::collections::BTreeMap;

use super::content::CountedContent;
use super::detail::{
    add_batch, fit, topic_named, topic_of, Alive, Committed, Detail, ReportedVersions, Same, WrittenPartition,
};
use crate::exchanges::fetch_sessions::Session;
use crate::exchanges::latency::{Parts, Rest};
use crate::exchanges::usage::{add_run, tally, Fetcher, Noted};
use crate::sinks::facts::{Answered, Handle};
use crate::sinks::handed::Member;
use crate::sinks::quantiles::Quantiles;
use crate::sinks::samples::Samples;

/// Exchanges that are alike.
pub(super) struct Group {
    pub(super) key: TallyKey,
    pub(super) identity: [Handle; 4],
    pub(super) exchanges: u64,
    /// Number of the last one.
    pub(super) last: u64,
    pub(super) bytes: [u64; 2],
    pub(super) noted: Noted,
    pub(super) service_us: Quantiles,
    pub(super) wait_us: Quantiles,
    pub(super) unknown: u64,
    pub(super) queued_us: Quantiles,
    /// Those that waited long for earlier ones.
    pub(super) queued: Noted,
    pub(super) total_us: Quantiles,
    /// What is not part of latencies.
    pub(super) transfer_us: i64,
    pub(super) detail: Detail,
}

#[derive(PartialEq)]
pub(super) struct TallyKey {
    pub(super) api_key: i16,
    pub(super) api_version: i16,
    pub(super) client_id: Option<Box<[u8]>>,
    pub(super) is_measured: bool,
    /// Of a Produce.
    pub(super) acks: i64,
    /// Of a Fetch.
    pub(super) reader: Fetcher,
    /// Of a member: group, member, instance, and generation.
    pub(super) member: Option<Member>,
    /// What Python keeps of their bodies, by its address.
    content: Option<usize>,
    pub(super) apart: Apart,
}

/// What keeps exchanges apart because tables or intervals are asked for.
#[derive(PartialEq)]
pub(super) struct Apart {
    /// Start of the interval.
    pub(super) start_ns: i64,
    pub(super) group: Option<String>,
    /// In wire order.
    pub(super) partitions: Vec<(String, i64)>,
}

impl TallyKey {
    pub(super) fn of(
        exchange: &Answered<'_>,
        parts: &Parts,
        found: &CountedContent<'_, '_>,
        member: Option<Member>,
        apart: Apart,
    ) -> Self {
        TallyKey {
            api_key: exchange.header.api_key,
            api_version: exchange.header.api_version,
            client_id: exchange.header.raw_client_id(exchange.request).map(Box::from),
            is_measured: matches!(parts.rest, Rest::Service(_)),
            acks: match found {
                CountedContent::Produce(acks, _) => *acks,
                _ => 0,
            },
            reader: match found {
                CountedContent::Fetch(fetch) => fetch.reader,
                _ => Fetcher::default(),
            },
            member,
            content: match found {
                CountedContent::Alike(content) => Some(content.address),
                _ => None,
            },
            apart,
        }
    }
}

impl Group {
    pub(super) fn new(key: TallyKey, identity: [Handle; 4], found: &CountedContent<'_, '_>) -> Self {
        Group {
            key,
            identity,
            exchanges: 0,
            last: 0,
            bytes: [0, 0],
            noted: Noted::default(),
            service_us: Quantiles::default(),
            wait_us: Quantiles::default(),
            unknown: 0,
            queued_us: Quantiles::default(),
            queued: Noted::default(),
            total_us: Quantiles::default(),
            transfer_us: 0,
            detail: match found {
                CountedContent::Produce(..) => Detail::Writes(BTreeMap::new(), Vec::new()),
                CountedContent::Fetch(_) => Detail::Reads(Box::default()),
                CountedContent::Heartbeat => Detail::Alive(Alive::default()),
                CountedContent::Commit(_) => Detail::Commits(Alive::default(), BTreeMap::new()),
                CountedContent::Offsets(_) => Detail::Offsets(BTreeMap::new()),
                CountedContent::Versions(_) => Detail::Versions(ReportedVersions::default()),
                CountedContent::Alike(content) => Detail::Alike(Box::new(Same {
                    content: content.clone(),
                    completed: Noted::default(),
                    last: (i64::MIN, 0),
                })),
            },
        }
    }

    pub(super) fn is_of(&self, key: &TallyKey, exchange: &Answered<'_>) -> bool {
        let mut identities = self.identity.iter().zip(exchange.known.identity());
        self.key == *key && identities.all(|(one, other)| one.is(other))
    }

    /// Whether no topic has another ID than before.
    pub(super) fn fits(&self, found: &CountedContent<'_, '_>) -> bool {
        match (&self.detail, found) {
            (Detail::Writes(topics, _), CountedContent::Produce(_, writes)) => {
                fit(topics, writes.iter().map(|(each, ..)| *each))
            }
            (Detail::Reads(reads), CountedContent::Fetch(fetch)) => {
                fit(&reads.topics, fetch.reads.iter().map(|(each, _)| *each))
            }
            (Detail::Commits(_, topics), CountedContent::Commit(commits)) => {
                fit(topics, commits.iter().map(|(each, _)| *each))
            }
            (Detail::Offsets(topics), CountedContent::Offsets(offsets)) => {
                fit(topics, offsets.iter().map(|(each, _)| *each))
            }
            (Detail::Alive(_), CountedContent::Heartbeat)
            | (Detail::Versions(_), CountedContent::Versions(_))
            | (Detail::Alike(_), CountedContent::Alike(_)) => true,
            _ => false,
        }
    }

    /// Adds an exchange; returns how many more partitions are held.
    pub(super) fn add(
        &mut self,
        exchange: &Answered<'_>,
        parts: &Parts,
        bytes: [u64; 2],
        found: &CountedContent<'_, '_>,
        session: Option<&Session>,
        queued_us: i64,
    ) -> usize {
        let (request, response) = (exchange.request, exchange.response);
        let stamp = (request.end_ns, exchange.number);
        let (time_ns, completed_ns) = (response.start_ns, response.end_ns);
        self.exchanges += 1;
        self.last = exchange.number;
        self.bytes = [self.bytes[0] + bytes[0], self.bytes[1] + bytes[1]];
        self.noted.add(stamp);
        match parts.rest {
            Rest::Service(us) => self.service_us.add(us),
            Rest::Wait(us) => self.wait_us.add(us),
            Rest::Unknown(_) => self.unknown += 1,
        }
        if let Some(waited_us @ 1..) = parts.queued_us {
            self.queued_us.add(waited_us);
            if waited_us >= queued_us {
                self.queued.add(stamp);
            }
        }
        let latency_us = exchange.latency_ns().map_or(0, |ns| ns.div_euclid(1000));
        let total_us = exchange.total_us();
        if let Some(total_us) = total_us {
            self.total_us.add(total_us);
            self.transfer_us += total_us - latency_us;
        }
        let mut more = 0;
        match (&mut self.detail, found) {
            (Detail::Writes(topics, producers), CountedContent::Produce(_, writes)) => {
                let mut seen: Vec<&str> = Vec::new();
                for (each, write, end) in writes {
                    let topic = topic_of(topics, each, completed_ns);
                    let all = &mut topic.all;
                    if !seen.contains(&&*each.topic) {
                        seen.push(&each.topic);
                        all.exchanges += 1;
                        if let Rest::Service(us) = parts.rest {
                            all.service_us.add(us);
                        }
                    }
                    all.noted.add(stamp);
                    all.bytes += write.bytes;
                    all.records += write.records;
                    let written = topic.partitions.entry(each.partition).or_insert_with(|| {
                        more += 1;
                        WrittenPartition::default()
                    });
                    written.noted.add(stamp);
                    written.bytes += write.bytes;
                    written.records += write.records;
                    for &(codec, count) in &write.codecs {
                        tally(&mut written.codecs, codec, count);
                    }
                    if let Some(end) = end {
                        written.ends.add(time_ns, *end);
                    }
                    let before = written.runs.len();
                    for numbered in &write.numbered {
                        add_run(&mut written.runs, stamp, numbered);
                        add_batch(producers, stamp.0, numbered);
                    }
                    written.repeatable.extend_from_slice(&write.repeatable);
                    more += written.runs.len() - before + write.repeatable.len();
                }
            }
            (Detail::Reads(reads), CountedContent::Fetch(fetch)) => {
                reads.max_wait_ms = reads.max_wait_ms.max(fetch.max_wait_ms);
                if fetch.reads.iter().all(|(_, read)| read.bytes == 0) {
                    reads.empty.add(stamp);
                }
                if let Some(think_us) = parts.think_us {
                    reads.polls.add(stamp, think_us, total_us.unwrap_or(latency_us));
                }
                match fetch.session.assigned {
                    _ if !fetch.session.is_first => (),
                    0 => reads.denied.add(stamp),
                    _ => reads.opened.add(stamp),
                }
                for (each, read) in &fetch.reads {
                    let topic = topic_of(&mut reads.topics, each, completed_ns);
                    let known = topic.read(each.partition, &mut more);
                    known.touches += u64::from(read.is_fetched);
                    known.bytes += read.bytes;
                    known.records += read.records;
                    for &(codec, count) in &read.codecs {
                        tally(&mut known.codecs, codec, count);
                    }
                    if !fetch.session.has_session() {
                        known.see(time_ns, stamp, &read.position);
                    }
                }
                for (name, partitions) in session.into_iter().flat_map(Session::topics) {
                    let topic = topic_named(&mut reads.topics, name, completed_ns);
                    if partitions.values().any(|each| each.is_nameless) {
                        topic.id = Some(name.to_owned());
                    }
                    for (partition, position) in partitions.iter().filter(|each| each.1.error == 0) {
                        let known = topic.read(*partition, &mut more);
                        known.see(time_ns, stamp, position);
                    }
                }
            }
            (Detail::Versions(reported), CountedContent::Versions(apis)) => {
                let completed = (completed_ns, exchange.number);
                if completed >= reported.completed {
                    *reported = ReportedVersions {
                        apis: apis.clone(),
                        completed,
                    };
                }
            }
            (Detail::Alike(same), CountedContent::Alike(_)) => {
                let completed = (completed_ns, exchange.number);
                same.completed.add(completed);
                same.last = same.last.max(completed);
            }
            (Detail::Alive(alive), CountedContent::Heartbeat) => alive.see(stamp, completed_ns),
            (Detail::Commits(alive, topics), CountedContent::Commit(commits)) => {
                alive.see(stamp, completed_ns);
                for (each, offset) in commits {
                    let topic = topic_of(topics, each, completed_ns);
                    let now = (stamp, *offset);
                    let known = topic.partitions.entry(each.partition).or_insert_with(|| {
                        more += 1;
                        Committed {
                            commits: 0,
                            first: now,
                            last: now,
                            offsets: Samples::default(),
                        }
                    });
                    known.commits += 1;
                    known.first = known.first.min(now);
                    known.last = known.last.max(now);
                    known.offsets.add(time_ns, *offset);
                }
            }
            (Detail::Offsets(topics), CountedContent::Offsets(offsets)) => {
                for (each, reported) in offsets {
                    let topic = topic_of(topics, each, completed_ns);
                    let Some((group, offset)) = reported else {
                        continue;
                    };
                    let known = topic.partitions.entry(each.partition).or_default();
                    let samples = known.entry(group.map(str::to_owned)).or_insert_with(|| {
                        more += 1;
                        Samples::default()
                    });
                    samples.add(time_ns, *offset);
                }
            }
            _ => (),
        }
        more
    }
}
