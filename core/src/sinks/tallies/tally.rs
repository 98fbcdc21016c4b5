//! A group of exchanges that are alike -> a [`Tally`], which Python gets.

use super::detail::{Committed, Detail, ReadPartition, Reported, Topic, WrittenPartition, WrittenTopic};
use super::group::{Group, TallyKey};
use crate::exchanges::usage::{Noted, Polls};
use crate::sinks::facts::Handle;
use crate::sinks::handed::{
    PythonCommitted, PythonNoted, PythonPolls, PythonReadTopic, PythonReported, PythonSamples, PythonTopic,
    PythonWrittenTopic, Tally, TallyDetail,
};
use crate::sinks::samples::Samples;

impl Group {
    pub(super) fn tally(self, info: Handle) -> Tally {
        let TallyKey {
            api_key,
            api_version,
            client_id,
            is_measured,
            acks,
            reader,
            member,
            apart,
            ..
        } = self.key;
        let client_id = client_id.map(|id| String::from_utf8_lossy(&id).into_owned()); // it is known to be UTF-8
        Tally {
            common: (
                info,
                api_key,
                api_version,
                client_id,
                self.identity,
                is_measured,
                (apart.group, apart.partitions),
            ),
            times: (self.exchanges, self.bytes, python_noted(self.noted)),
            latencies: (
                self.service_us.counted(),
                self.wait_us.counted(),
                self.unknown,
                self.queued_us.counted(),
                python_noted(self.queued),
                self.total_us.counted(),
                self.transfer_us,
            ),
            detail: match self.detail {
                Detail::Writes(topics, producers) => {
                    let each = producers.into_iter();
                    let each =
                        each.map(|it| (it.id, it.epoch, it.batches, it.records, it.first_ns, it.last_ns));
                    TallyDetail::Writes(
                        acks,
                        topics.into_iter().map(written_topic).collect(),
                        each.collect(),
                    )
                }
                Detail::Reads(reads) => TallyDetail::Reads(
                    reader.kind(),
                    reads.max_wait_ms,
                    Box::new([reads.empty, reads.opened, reads.denied].map(python_noted)),
                    python_polls(reads.polls),
                    reads.topics.into_iter().map(read_topic).collect(),
                ),
                Detail::Alive(alive) => TallyDetail::Alive(member, alive.last, alive.completed_ns),
                Detail::Commits(alive, topics) => TallyDetail::Commits(
                    member,
                    alive.last,
                    alive.completed_ns,
                    topics.into_iter().map(committed_topic).collect(),
                ),
                Detail::Offsets(topics) => {
                    TallyDetail::Offsets(topics.into_iter().map(reported_topic).collect())
                }
                Detail::Versions(reported) => TallyDetail::Versions(reported.apis, reported.completed),
                Detail::Alike(same) => {
                    TallyDetail::Alike(same.content, python_noted(same.completed), same.last)
                }
            },
        }
    }
}

fn python_noted(noted: Noted) -> PythonNoted {
    (
        noted.count,
        noted.first_ns,
        noted.last_ns,
        noted.first,
        noted.pieces,
    )
}

fn python_polls(polls: Polls) -> PythonPolls {
    let pauses = python_noted(polls.pauses);
    (
        polls.count,
        polls.think_us,
        polls.waited_us,
        pauses,
        polls.paused_us,
    )
}

fn python_samples(samples: &Samples) -> PythonSamples {
    (samples.count, samples.bits, samples.all())
}

fn written_topic((name, topic): (String, Topic<WrittenTopic, WrittenPartition>)) -> PythonWrittenTopic {
    let all = topic.all;
    let partitions = topic.partitions.into_iter().map(|(partition, written)| {
        let runs = written.runs.iter().map(|run| {
            let times = (run.first_ns, run.last_ns);
            (
                run.producer_id,
                run.epoch,
                run.base,
                run.end,
                run.batches,
                run.first,
                times,
            )
        });
        (
            partition,
            python_noted(written.noted),
            (written.bytes, written.records),
            written.codecs,
            python_samples(&written.ends),
            runs.collect(),
            written.repeatable,
        )
    });
    (
        (name, topic.id, topic.named_ns),
        all.exchanges,
        all.service_us.counted(),
        python_noted(all.noted),
        (all.bytes, all.records),
        partitions.collect(),
    )
}

fn read_topic((name, topic): (String, Topic<(), ReadPartition>)) -> PythonReadTopic {
    let partitions = topic.partitions.into_iter().map(|(partition, read)| {
        let lag = read.lag;
        (
            partition,
            read.touches,
            (read.bytes, read.records),
            read.codecs,
            (
                python_samples(&read.high_watermark),
                python_samples(&read.last_stable),
                python_samples(&read.log_start),
            ),
            read.stable
                .map(|both| (python_samples(&both.0), python_samples(&both.1))),
            (
                lag.count,
                lag.first,
                lag.last,
                lag.worst,
                lag.start,
                lag.position,
                lag.last_age,
                lag.worst_age_ns,
            ),
            python_noted(read.behind),
        )
    });
    ((name, topic.id, topic.named_ns), partitions.collect())
}

fn committed_topic((name, topic): (String, Topic<(), Committed>)) -> (PythonTopic, Vec<PythonCommitted>) {
    let partitions = topic.partitions.into_iter().map(|(partition, known)| {
        let offsets = python_samples(&known.offsets);
        (partition, known.commits, known.first, known.last, offsets)
    });
    ((name, topic.id, topic.named_ns), partitions.collect())
}

fn reported_topic((name, topic): (String, Topic<(), Reported>)) -> (PythonTopic, Vec<PythonReported>) {
    let partitions = topic.partitions.into_iter().flat_map(|(partition, groups)| {
        let each = groups.into_iter();
        each.map(move |(group, offsets)| (partition, group, python_samples(&offsets)))
    });
    ((name, topic.id, topic.named_ns), partitions.collect())
}
