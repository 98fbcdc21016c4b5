//! What Python is given besides text and columns: values, of which core/src/python makes objects.

use crate::exchanges::memory::ConnectionMemory;
use crate::exchanges::usage::Stamp;
use crate::sinks::connection_log::Counted;
use crate::sinks::facts::Handle;
use crate::sinks::quantiles;
use crate::sinks::slowest::{Rank, Slow};
use crate::sinks::whole::{AliveMember, NamedBrokers};

pub enum Handed {
    Connection(Counted),
    Alive(AliveMember),
    Brokers(NamedBrokers),
    /// What Python keeps of events of groups.
    Events(Handle),
    Carried(Box<CarriedBatches>),
    Tally(Box<Tally>),
    /// What Python counts of one exchange.
    One(Handle),
    /// An exchange among the slowest.
    Slow(Box<(Rank, Slow)>),
    /// What the exchanges of a connection share, and what it remembers of them.
    Memory((Handle, ConnectionMemory)),
    Times(PassedTimes),
}

/// When exchanges began that lines were written of since the last call: the first that is shown, if its time is left
/// to Python; the last that is shown; and the last.
#[derive(Debug, Default, PartialEq)]
pub struct PassedTimes {
    pub unwritten_ns: Option<i64>,
    pub shown_ns: Option<i64>,
    pub seen_ns: Option<i64>,
}

/// The batches in an exchange, which Python joins with those in others, and where its text is.
pub struct CarriedBatches {
    pub info: Handle,
    pub number: u64,
    /// How many exchanges it stands for: several, if they have no records.
    pub exchanges: usize,
    /// Where its text is.
    pub text: (usize, usize),
    /// How many rows it has in each table.
    pub rows: Vec<usize>,
    /// The size of these.
    pub rows_bytes: usize,
    pub completed_ns: i64,
    /// When the record was seen.
    pub time_ns: i64,
    /// Of its frames and bodies.
    pub bytes: i64,
    /// IDs of topics, with their names.
    pub topic_ids: Vec<(String, String)>,
    /// With the numbers of those that were rejected, none of the others.
    pub produced: Vec<(Origin, Option<Numbers>)>,
    pub fetched: Vec<FetchedBatch>,
    /// The exchange, if its text may have to change.
    pub whole: Option<Handle>,
}

/// A fetched batch: its numbers, and where its text is.
pub type FetchedBatch = (Origin, Numbers, (usize, usize));

/// Producer ID, epoch and base sequence.
pub type Numbers = (i64, i16, i32);

/// Topic or its ID, partition, base offset, base timestamp in milliseconds.
pub type Origin = (String, i64, i64, i64);

impl CarriedBatches {
    /// Whether it has neither batches nor text.
    pub fn is_empty(&self) -> bool {
        let (start, end) = self.text;
        self.produced.is_empty() && self.fetched.is_empty() && start == end
    }

    /// Adds it to others, to the last of them if both have none.
    pub fn add_to(self, others: &mut Vec<CarriedBatches>) {
        match others.last_mut() {
            Some(last) if last.is_empty() && self.is_empty() => last.add(self),
            _ => others.push(self),
        }
    }

    fn add(&mut self, other: CarriedBatches) {
        self.exchanges += other.exchanges;
        self.rows_bytes += other.rows_bytes;
        self.rows
            .iter_mut()
            .zip(other.rows)
            .for_each(|(rows, more)| *rows += more);
        self.bytes += other.bytes;
        self.completed_ns = self.completed_ns.max(other.completed_ns);
    }
}

/// A group as Python takes it, see kdissect/stats/core_tallies.py: what the exchanges have in common; their counts; and
/// those of their API.
pub struct Tally {
    pub common: (
        Handle,
        i16,
        i16,
        Option<String>,
        [Handle; 4],
        bool,
        GroupAndPartitions,
    ),
    pub times: (u64, [u64; 2], PythonNoted),
    pub latencies: (
        quantiles::Distribution,
        quantiles::Distribution,
        u64,
        quantiles::Distribution,
        PythonNoted,
        quantiles::Distribution,
        i64,
    ),
    pub detail: TallyDetail,
}

pub enum TallyDetail {
    Writes(i64, Vec<PythonWrittenTopic>, Vec<PythonProducer>),
    /// Those without records, that open a session, and that ask for one in vain.
    Reads(
        &'static str,
        i64,
        Box<[PythonNoted; 3]>,
        PythonPolls,
        Vec<PythonReadTopic>,
    ),
    Alive(Option<Member>, Stamp, i64),
    Commits(
        Option<Member>,
        Stamp,
        i64,
        Vec<(PythonTopic, Vec<PythonCommitted>)>,
    ),
    Offsets(Vec<(PythonTopic, Vec<PythonReported>)>),
    /// Key of an API, the first version, the last; and when.
    Versions(Vec<(i64, i64, i64)>, Stamp),
    /// What Python keeps of the bodies; completion of the exchanges, and the last one.
    Alike(Handle, PythonNoted, Stamp),
}

/// What keeps exchanges apart if asked for: their group, and the topics and partitions in them.
pub type GroupAndPartitions = (Option<String>, Vec<(String, i64)>);
/// Group, member, instance, and generation.
pub type Member = (String, Option<String>, Option<String>, Option<i64>);
pub type PythonNoted = (u64, i64, i64, Vec<Stamp>, Vec<(i64, u64)>);
pub type PythonPolls = (u64, i64, i64, PythonNoted, i64);
pub type PythonSamples = (u64, u32, Vec<(i64, i64)>);
pub type PythonRun = (i64, i16, i64, i64, u64, Stamp, (i64, i64));
/// Name, ID, and when it was named.
pub type PythonTopic = (String, Option<String>, i64);
pub type PythonWritten = (
    i64,
    PythonNoted,
    (u64, u64),
    Vec<(&'static str, u64)>,
    PythonSamples,
    Vec<PythonRun>,
    Vec<(u32, i32, i64)>,
);
pub type PythonWrittenTopic = (
    PythonTopic,
    u64,
    quantiles::Distribution,
    PythonNoted,
    (u64, u64),
    Vec<PythonWritten>,
);
pub type PythonLag = (
    u64,
    (i64, i64),
    (i64, i64),
    (i64, i64),
    (i64, i64),
    (i64, i64),
    Option<(i64, i64)>,
    Option<i64>,
);
pub type PythonReadTopic = (PythonTopic, Vec<PythonRead>);
pub type PythonProducer = (i64, i16, u64, u64, i64, i64);
pub type PythonRead = (
    i64,
    u64,
    (u64, u64),
    Vec<(&'static str, u64)>,
    (PythonSamples, PythonSamples, PythonSamples),
    Option<(PythonSamples, PythonSamples)>,
    PythonLag,
    PythonNoted,
);
pub type PythonReported = (i64, Option<String>, PythonSamples);
pub type PythonCommitted = (i64, u64, (Stamp, i64), (Stamp, i64), PythonSamples);
