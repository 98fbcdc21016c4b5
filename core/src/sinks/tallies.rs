//! Usual exchanges -> counts of those that are alike, connection by connection, for kdissect/stats/core_tallies.py.
//!
//! The counts of a connection are passed on before Python takes an exchange of it, and when it is no longer here;
//! those of all connections when there are enough of them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::exchanges::connection::{API_VERSIONS, NAME_BYTES};
use crate::exchanges::content::Row;
use crate::exchanges::fetch_sessions::{PartitionAfter, Position, Session, Step};
use crate::exchanges::latency::{Parts, Rest, FETCH, JOIN_GROUP, SYNC_GROUP};
use crate::exchanges::touched::Touched;
use crate::exchanges::usage::{
    add_run, tally, Fetcher, Fields, Lag, Noted, Polls, Read, Run, Stamp, Write, PIECE_NS,
};
use crate::kafka::tree::{field, Decoded, TopicNames, Value, NO_ID};
use crate::sinks::conditions::{NameTest, Vote};
use crate::sinks::connection_log::Counted;
use crate::sinks::facts::{Answered, CommonPlan, Constant, Framed, Handle, KnownApis, Unacknowledged};
use crate::sinks::handed::{
    Handed, Member, PythonCommitted, PythonNoted, PythonPolls, PythonReadTopic, PythonReported,
    PythonSamples, PythonTopic, PythonWrittenTopic, Tally, TallyDetail,
};
use crate::sinks::kept_bodies::{DecodeBodies, KeptBodies};
use crate::sinks::quantiles::Quantiles;
use crate::sinks::samples::Samples;
use crate::sinks::sink::Sink;
use crate::sinks::slowest::{Slow, Slowest};
use crate::sinks::splitters::{MemoryPlan, Splitter};
use crate::{Odd, Why};

const PRODUCE: i16 = 0;
const LIST_OFFSETS: i16 = 2;
const OFFSET_COMMIT: i16 = 8;
const OFFSET_FETCH: i16 = 9;
const HEARTBEAT: i16 = 12;

/// The timestamp with which ListOffsets asks for the end of a partition.
const LATEST: i64 = -1;

const SIZE_BYTES: u64 = 4;
/// Exchanges, and groups, partitions and positions in sessions, with which there are enough.
const MAX_EXCHANGES: u64 = 1 << 16;
const MAX_HELD: usize = 8192;
/// Bytes of messages that Python counts one by one with which there are enough. Decoded, they take more by far.
const MAX_ONES_BYTES: u64 = 1 << 16;
/// What the position in a partition of a session counts as, beside a message.
const POSITION_BYTES: u64 = 64;
/// Groups of a connection with which there are enough: each of its exchanges is compared with them.
const MAX_GROUPS: usize = 256;
/// Python keeps as many pieces of time apart before it forgets any. Later, no more than one is counted at a time.
const PIECES: i64 = 60;

/// `TallyPlan` of kdissect/sinks/plan.py.
#[allow(clippy::type_complexity)] // of functions
pub struct TallyPlan {
    pub common: CommonPlan<Arc<Row>>,
    /// Keys of APIs whose responses brokers may delay.
    pub waiting: Vec<i16>,
    /// Errors by which brokers refuse clients.
    pub refused: Vec<i64>,
    pub memory: MemoryPlan,
    /// Of so many exchanges with the longest service times Python needs more than counts.
    pub slowest: usize,
    /// The length of an interval in nanoseconds; exchanges of different intervals are not alike. 0: they are.
    pub interval: Box<dyn Fn() -> Result<i64, Odd> + Send + Sync>,
    /// Whether Python knows the cluster of a connection.
    pub has_cluster: Box<dyn Fn(&Handle) -> Result<bool, Odd> + Send + Sync>,
    /// Takes the cluster that an exchange names.
    pub learn_cluster: Box<dyn Fn(&Handle, &str) -> Result<(), Odd> + Send + Sync>,
    /// Keys of APIs of whose bodies Python keeps one of those that are alike.
    pub alike: Vec<i16>,
    pub content: DecodeBodies,
    /// Keys of APIs of which more is counted than what is in any exchange. Those of all others, and of these if
    /// they have errors or are not plain, Python counts one by one.
    pub counted: Vec<i16>,
    pub one: MakeOne,
    /// Exchanges that are served for so long are counted one by one; requests that wait so long are noted.
    pub slow_us: i64,
    pub queued_us: i64,
    /// Whether exchanges of different groups of consumers, or with different partitions, are not alike.
    pub by_group: bool,
    pub by_partition: bool,
}

/// What Python counts of an exchange, with the parts of its latency, and the positions after a Fetch; it learns which
/// errors are expected, and the protocols of groups. None: it takes the exchange.
pub type MakeOne =
    Box<dyn Fn(&Framed<'_>, Option<&Parts>, Option<Session>) -> Result<Option<Handle>, Odd> + Send + Sync>;

/// Counts exchanges that are alike together.
pub struct Tallies {
    plan: TallyPlan,
    apis: KnownApis<Arc<Row>>,
    /// By the address of what their exchanges share.
    connections: HashMap<usize, CountedConnection>,
    /// Those that are no longer here.
    left: Vec<CountedConnection>,
    /// What Python counts one by one, of all connections in order, and how many bytes the messages had.
    ones: Vec<Handle>,
    ones_bytes: u64,
    slowest: Slowest,
    bodies: KeptBodies,
    /// Since counts of all were passed on.
    exchanges: u64,
    held: usize,
    /// In all.
    added: u64,
    /// The first and the latest piece of time, and whether a later one has begun.
    pieces: Option<(i64, i64)>,
    is_due: bool,
    /// None: it must be asked for.
    interval_ns: Option<i64>,
    /// Votes for partitions that are counted; exchanges with others are left. None: all are counted.
    partitions: Option<NameTest>,
}

struct CountedConnection {
    splitter: Splitter,
    /// Groups, partitions and positions.
    held: usize,
    log: Counted,
    groups: Vec<Group>,
    /// Whether its cluster is known.
    has_cluster: bool,
}

/// Exchanges that are alike.
struct Group {
    key: TallyKey,
    identity: [Handle; 4],
    exchanges: u64,
    /// Number of the last one.
    last: u64,
    bytes: [u64; 2],
    noted: Noted,
    service_us: Quantiles,
    wait_us: Quantiles,
    unknown: u64,
    queued_us: Quantiles,
    /// Those that waited long for earlier ones.
    queued: Noted,
    total_us: Quantiles,
    /// What is not part of latencies.
    transfer_us: i64,
    detail: Detail,
}

#[derive(PartialEq)]
struct TallyKey {
    api_key: i16,
    api_version: i16,
    client_id: Option<Box<[u8]>>,
    is_measured: bool,
    /// Of a Produce.
    acks: i64,
    /// Of a Fetch.
    reader: Fetcher,
    /// Of a member: group, member, instance, and generation.
    member: Option<Member>,
    /// What Python keeps of their bodies, by its address.
    content: Option<usize>,
    apart: Apart,
}

/// What keeps exchanges apart because tables or intervals are asked for.
#[derive(PartialEq)]
struct Apart {
    /// Start of the interval.
    start_ns: i64,
    group: Option<String>,
    /// In wire order.
    partitions: Vec<(String, i64)>,
}

impl TallyKey {
    fn of(
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

enum Detail {
    Writes(ByTopic<WrittenTopic, WrittenPartition>, Vec<Producer>),
    Reads(Box<Reads>),
    Alive(Alive),
    Commits(Alive, ByTopic<(), Committed>),
    Offsets(ByTopic<(), Reported>),
    Versions(ReportedVersions),
    Alike(Box<Same>),
}

/// Of exchanges with the same bodies: what Python keeps of these, and when they were completed.
struct Same {
    content: Handle,
    completed: Noted,
    last: Stamp,
}

/// The versions that the last response says its broker supports: key of an API, the first, the last; and when.
#[derive(Default)]
struct ReportedVersions {
    apis: Vec<(i64, i64, i64)>,
    completed: Stamp,
}

/// Offsets that a group has committed, or without a group, the end of the partition.
type Reported = BTreeMap<Option<String>, Samples>;

/// By name, with their partitions.
type ByTopic<T, P> = BTreeMap<String, Topic<T, P>>;

struct Topic<T, P> {
    /// None: there is none, or no exchange named the topic.
    id: Option<String>,
    /// When it was named first.
    named_ns: i64,
    all: T,
    partitions: BTreeMap<i64, P>,
}

#[derive(Default)]
struct WrittenTopic {
    exchanges: u64,
    service_us: Quantiles,
    /// Once for each partition.
    noted: Noted,
    bytes: u64,
    records: u64,
}

#[derive(Default)]
struct WrittenPartition {
    noted: Noted,
    bytes: u64,
    records: u64,
    codecs: Vec<(&'static str, u64)>,
    ends: Samples,
    runs: Vec<Run>,
    repeatable: Vec<(u32, i32, i64)>,
}

/// Batches with a producer ID and epoch.
struct Producer {
    id: i64,
    epoch: i16,
    batches: u64,
    records: u64,
    first_ns: i64,
    last_ns: i64,
}

#[derive(Default)]
struct Reads {
    max_wait_ms: i64,
    empty: Noted,
    polls: Polls,
    opened: Noted,
    denied: Noted,
    topics: ByTopic<(), ReadPartition>,
}

#[derive(Default)]
struct ReadPartition {
    touches: u64,
    bytes: u64,
    records: u64,
    codecs: Vec<(&'static str, u64)>,
    high_watermark: Samples,
    last_stable: Samples,
    log_start: Samples,
    /// The high watermarks and last stable offsets of the exchanges with both. None: all have both.
    stable: Option<Box<(Samples, Samples)>>,
    lag: Lag,
    /// Exchanges that left records unread.
    behind: Noted,
}

/// A member's last request, and the latest response.
#[derive(Default)]
struct Alive {
    last: Stamp,
    completed_ns: i64,
}

struct Committed {
    commits: u64,
    first: (Stamp, i64),
    last: (Stamp, i64),
    offsets: Samples,
}

/// What an exchange adds, once everything about it is known to be usual.
enum CountedContent<'b, 'a> {
    Produce(i64, Vec<(&'b Touched<'b, 'a>, Write, Option<i64>)>),
    Fetch(Fetch<'b, 'a>),
    Heartbeat,
    Commit(Vec<(&'b Touched<'b, 'a>, i64)>),
    Offsets(Vec<(&'b Touched<'b, 'a>, Option<Offset<'b>>)>),
    Versions(Vec<(i64, i64, i64)>),
    Alike(Handle),
}

/// An offset that is reported, and the group that has committed it; None: it is the end of the partition.
type Offset<'b> = (Option<&'b str>, i64);

struct Fetch<'b, 'a> {
    reader: Fetcher,
    max_wait_ms: i64,
    /// The partitions that the messages name. Once the session has been taken over, with the positions after it.
    reads: Vec<(&'b Touched<'b, 'a>, Read)>,
    session: Step,
}

impl Fetch<'_, '_> {
    /// The partitions that the messages name.
    fn fetched(&self) -> impl Iterator<Item = PartitionAfter<'_>> + Clone {
        let reads = self.reads.iter();
        reads.map(|(each, read)| (&*each.topic, each.partition, &read.position, read.end))
    }

    /// Whether it is counted with others.
    fn is_plain(&self) -> bool {
        let mut reads = self.reads.iter();
        reads.all(|(_, read)| read.is_plain && !read.position.is_odd())
    }
}

impl Tallies {
    pub fn new(plan: TallyPlan, partitions: Option<NameTest>) -> Self {
        Tallies {
            slowest: Slowest::new(plan.slowest),
            bodies: KeptBodies::default(),
            plan,
            apis: KnownApis::default(),
            connections: HashMap::new(),
            left: Vec::new(),
            ones: Vec::new(),
            ones_bytes: 0,
            exchanges: 0,
            held: 0,
            added: 0,
            pieces: None,
            is_due: false,
            interval_ns: None,
            partitions,
        }
    }

    /// Start of the interval of a time; 0 without intervals.
    fn start_ns(&mut self, time_ns: i64) -> Result<i64, Odd> {
        let length_ns = match self.interval_ns {
            Some(length_ns) => length_ns,
            None => *self.interval_ns.insert((self.plan.interval)()?),
        };
        match length_ns {
            0 => Ok(0),
            _ => time_ns.checked_sub(time_ns.rem_euclid(length_ns)).ok_or(Odd),
        }
    }

    /// Whether there are enough of all connections.
    fn are_enough(&self) -> bool {
        self.is_due || self.exchanges >= MAX_EXCHANGES || self.held >= MAX_HELD
    }
}

impl Sink for Tallies {
    fn feed(
        &mut self,
        exchange: &Answered<'_>,
        _shared: &[Option<Constant>],
        _out: &mut Vec<u8>,
    ) -> Result<(), Odd> {
        let start_ns = self.start_ns(exchange.request.end_ns)?;
        let plan = &self.plan;
        let (row, tags, _) = self.apis.get(&plan.common, exchange.header)?;
        let (request, response) = (exchange.request, exchange.response);
        let decoded = exchange.decoded(&row.bodies, tags, plan.common.budget)?;
        if row.throttle_time_ms(&decoded).is_some_and(|ms| ms != 0) {
            return Err(Why::Throttled.odd());
        }
        let has_errors = !decoded.errors.is_empty();
        exchange.check_errors(has_errors)?;
        decoded.check()?;
        let api_key = exchange.header.api_key;
        let names = plan.common.topics(response.end_ns);
        let touched = match &row.partitions {
            Some(plans) => Touched::of(plans, &decoded, &names)?,
            None => Vec::new(),
        };
        if touched.iter().any(|each| is_strange(each, plan.by_partition)) {
            return Err(Why::Nameless.odd());
        }
        let mut partitions = self.partitions.as_mut().filter(|_| exchange.is_selected);
        let mut check = |topic: &str, number: i64| {
            let vote = partitions
                .as_mut()
                .map(|test| test.vote(topic, None, Some(number)));
            match vote.transpose()? {
                None | Some(Vote::Selected) => Ok(()),
                Some(_) => Err(Why::Condition.odd()),
            }
        };
        for each in &touched {
            check(&each.topic, each.partition)?;
        }
        let pieces = with(&mut self.pieces, &mut self.is_due, request.end_ns)?;
        row.bodies.learn(&decoded, &names)?;
        let is_fetch = api_key == FETCH;
        let mut found = match plan.alike.contains(&api_key) && exchange.is_selected {
            _ if is_fetch => Ok(found(exchange, &decoded, row, &touched, &names)?), // it has positions
            _ if has_errors || !plan.counted.contains(&api_key) => Err(Odd),
            true => {
                let content = self.bodies.of(exchange, &decoded, tags, &plan.content);
                self.is_due |= self.bodies.is_full;
                content.map(CountedContent::Alike)
            }
            false => found(exchange, &decoded, row, &touched, &names),
        };
        let info = exchange.known.info()?;
        let connection = match self.connections.entry(info.address) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => {
                let log = Counted::new(info.clone(), exchange.interface, request.start_ns, exchange.known);
                free.insert(CountedConnection::new(plan, log)?)
            }
        };
        let cluster = row.cluster(api_key, &decoded);
        let is_new_cluster = connection.check_cluster(plan, cluster)?;
        let known = connection.splitter.known();
        let mut is_alone = has_errors;
        if let (Ok(CountedContent::Fetch(fetch)), true) = (&mut found, exchange.is_selected) {
            connection.take_over(fetch)?;
            is_alone |= !fetch.is_plain();
            let session = connection.splitter.memory.sessions.continued_by(&fetch.session);
            for (topic, positions) in session.into_iter().flat_map(Session::topics) {
                positions.keys().try_for_each(|number| check(topic, *number))?;
            }
        }
        let fetch = match &found {
            Ok(CountedContent::Fetch(fetch)) if exchange.is_selected => Some(fetch),
            _ => None,
        };
        let (parts, noted) = connection.splitter.split(&plan.memory, exchange, row, &decoded)?;
        let client_id = exchange.header.raw_client_id(request);
        let client_text = client_id.map(std::str::from_utf8).transpose().map_err(|_| Odd)?;
        let is_throttled = parts.only_queued_us().is_none(); // or that is not known
        if is_throttled && fetch.is_some() {
            return Err(Why::Throttled.odd());
        }
        is_alone |= is_throttled || matches!(parts.rest, Rest::Service(us) if us >= plan.slow_us);
        let (mut alike, mut slow) = (None, None);
        if let (Ok(found), true) = (&found, exchange.is_selected && !is_alone) {
            let member = member(found, &decoded, &row.counted)?;
            let apart = Apart {
                start_ns,
                group: match plan.by_group {
                    true => consumers(row, &decoded)?,
                    false => None,
                },
                partitions: match plan.by_partition {
                    true => touched.iter().map(Touched::place).collect(),
                    false => Vec::new(),
                },
            };
            let key = TallyKey::of(exchange, &parts, found, member, apart);
            if let Some(rank) = self.slowest.rank(exchange, &parts)? {
                slow = Some((rank, Slow::of(exchange, &parts, client_text, &touched)?));
            }
            let (place, is_new) = connection.group(key, exchange, found);
            self.held += usize::from(is_new);
            self.is_due |= connection.groups.len() >= MAX_GROUPS;
            if !connection
                .groups
                .get(place)
                .is_some_and(|group| group.fits(found))
            {
                return Err(Why::Detail.odd());
            }
            alike = Some((place, found));
        }
        if let (Some(cluster), true) = (cluster, is_new_cluster) {
            (plan.learn_cluster)(&connection.log.info, cluster)?;
            connection.has_cluster = true;
        }
        let is_learned = has_errors || matches!(api_key, JOIN_GROUP | SYNC_GROUP);
        let is_one = alike.is_none() && (exchange.is_selected || is_learned);
        let sessions = &connection.splitter.memory.sessions;
        let session = fetch
            .filter(|_| is_one)
            .map(|fetch| sessions.all_after(&fetch.session, fetch.fetched()));
        let positions = session.as_ref().map_or(0, |session| session.count);
        let one = match is_one {
            true => {
                let alone = Framed::from(exchange);
                Some((plan.one)(&alone, Some(&parts), session)?.ok_or_else(|| Why::Content.odd())?)
            }
            false => None,
        };
        let is_refused = decoded.errors.iter().any(|code| plan.refused.contains(code));
        // From here on nothing is odd.
        connection.splitter.note(&noted);
        if let Some((rank, slow)) = slow {
            self.slowest.add(rank, slow);
        }
        let bytes = [request, response].map(|frame| SIZE_BYTES + frame.data.len() as u64);
        connection.log.add(exchange, client_text, bytes, &plan.waiting);
        connection.log.is_refused |= is_refused;
        connection.log.place = self.added;
        self.added += 1;
        let sessions = &mut connection.splitter.memory.sessions;
        let session = fetch.map(|fetch| sessions.advance(&fetch.session, fetch.fetched()));
        let mut more = 0;
        if let Some((place, found)) = alike {
            if let Some(group) = connection.groups.get_mut(place) {
                more = group.add(exchange, &parts, bytes, found, session.as_ref(), plan.queued_us);
            }
        }
        if let (Some(fetch), Some(session)) = (fetch, session) {
            sessions.keep(&fetch.session, session);
        }
        if let (Some(one), true) = (one, exchange.is_selected) {
            self.ones_bytes += bytes[0] + bytes[1] + POSITION_BYTES * positions as u64;
            self.ones.push(one);
        }
        let now_known = connection.splitter.known();
        more += now_known.saturating_sub(known);
        connection.held += more;
        self.held += more;
        self.exchanges += 1;
        self.pieces = Some(pieces);
        Ok(())
    }

    fn feed_unacknowledged(
        &mut self,
        exchange: &Unacknowledged<'_>,
        _shared: &[Option<Constant>],
        _out: &mut Vec<u8>,
    ) -> Result<(), Odd> {
        let (known, request) = (exchange.known, exchange.request);
        if exchange.ended.is_some() {
            return Err(Why::Outcome.odd()); // it got no response, and is counted with the end of the connection
        }
        if self.partitions.is_some() {
            return Err(Why::Condition.odd());
        }
        let pieces = with(&mut self.pieces, &mut self.is_due, request.end_ns)?;
        let info = known.info()?;
        let connection = match self.connections.entry(info.address) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => {
                let log = Counted::new(info.clone(), exchange.interface, request.start_ns, known);
                free.insert(CountedConnection::new(&self.plan, log)?)
            }
        };
        let client_id = exchange.header.raw_client_id(request);
        let client_text = client_id.map(std::str::from_utf8).transpose().map_err(|_| Odd)?;
        let alone = Framed::from(exchange);
        let one = match exchange.is_selected {
            true => Some((self.plan.one)(&alone, None, None)?.ok_or_else(|| Why::Content.odd())?),
            false => None,
        };
        // From here on nothing is odd.
        let bytes = SIZE_BYTES + request.data.len() as u64;
        connection.log.add_unacknowledged(exchange, client_text, bytes);
        connection.log.place = self.added;
        self.added += 1;
        self.ones_bytes += bytes;
        self.ones.extend(one);
        self.exchanges += 1;
        self.pieces = Some(pieces);
        Ok(())
    }

    fn is_full(&self) -> bool {
        !self.left.is_empty() || self.ones_bytes >= MAX_ONES_BYTES || self.are_enough()
    }

    fn leave(&mut self, info: &Handle) {
        if let Some(connection) = self.connections.remove(&info.address) {
            self.left.push(connection);
        }
    }

    /// Passes on what Python counts one by one: events are kept in order, between those of exchanges that it takes.
    /// And the counts of connections that are no longer here, and of all others if there are enough.
    fn settle(&mut self, is_last: bool, to: &mut Vec<Handed>) {
        to.extend(self.ones.drain(..).map(Handed::One));
        self.ones_bytes = 0;
        if is_last || self.are_enough() {
            let start = self.left.len();
            self.left
                .extend(self.connections.drain().map(|(_, connection)| connection));
            self.left[start..].sort_by_key(|connection| connection.log.place);
            self.exchanges = 0;
            self.held = 0;
            self.is_due = false;
            self.interval_ns = None;
            self.bodies.make_room();
            to.extend(self.slowest.not_given().map(|slow| Handed::Slow(Box::new(slow))));
        }
        for connection in std::mem::take(&mut self.left) {
            self.held = self.held.saturating_sub(connection.held);
            connection.pass_on(to);
        }
    }
}

/// The pieces of time with that of an exchange. Odd: all counts must be passed on before a new one, and Python takes the
/// first exchange in it.
fn with(pieces: &mut Option<(i64, i64)>, is_due: &mut bool, time_ns: i64) -> Result<(i64, i64), Odd> {
    let piece = time_ns.div_euclid(PIECE_NS);
    let (first, last) = pieces.unwrap_or((piece, piece));
    if piece > last && piece - first >= PIECES {
        *is_due = true;
        *pieces = Some((first, piece));
        return Err(Why::Piece.odd());
    }
    Ok((first.min(piece), last.max(piece)))
}

/// Whether it is no partition of a topic; without a name, it is none in tables of partitions.
fn is_strange(touched: &Touched<'_, '_>, by_partition: bool) -> bool {
    let is_none = touched.topic_id.is_some_and(|id| id.as_bytes() == NO_ID);
    is_none || touched.partition < 0 || (by_partition && touched.is_nameless())
}

/// What an exchange adds.
fn found<'b, 'a>(
    exchange: &Answered<'_>,
    decoded: &'b Decoded<'a>,
    row: &Row,
    touched: &'b [Touched<'b, 'a>],
    names: &dyn TopicNames,
) -> Result<CountedContent<'b, 'a>, Odd> {
    let (request, fields) = (&decoded.request, &row.counted);
    Ok(match exchange.header.api_key {
        PRODUCE => {
            let acks = field(Some(request), fields.acks)?
                .filter(|acks| *acks != 0)
                .ok_or(Odd)?;
            if request.get(fields.transactional_id).is_some_and(Value::is_true) {
                return Err(Odd);
            }
            let writes = touched.iter().map(|each| {
                let body = each.request.ok_or(Odd)?;
                let (Some(Value::Records(data)), Some(0)) = (body.get(fields.records), each.error) else {
                    return Err(Odd);
                };
                let write = Write::of(
                    data,
                    exchange.number,
                    exchange.request.end_ns,
                    exchange.latency_ns()?,
                )?;
                let base = field(each.response, fields.base_offset)?.filter(|offset| *offset >= 0);
                let records = i64::try_from(write.records).map_err(|_| Odd)?;
                let end = base
                    .map(|base| base.checked_add(records).ok_or(Odd))
                    .transpose()?;
                Ok((each, write, end))
            });
            CountedContent::Produce(acks, writes.collect::<Result<_, Odd>>()?)
        }
        FETCH => {
            let reads = touched.iter().map(|each| Ok((each, fields.read(each)?)));
            CountedContent::Fetch(Fetch {
                reader: fields.reader(request, row.is_replication(decoded))?,
                max_wait_ms: field(Some(request), fields.max_wait_ms)?.unwrap_or(0).max(0),
                reads: reads.collect::<Result<_, Odd>>()?,
                session: fields.session(decoded, touched, names)?,
            })
        }
        HEARTBEAT => CountedContent::Heartbeat,
        OFFSET_COMMIT => {
            let commits = touched.iter().map(|each| {
                let offset = field(each.request, fields.committed_offset)?;
                match (offset, each.error, each.group) {
                    (Some(offset @ 0..), Some(0), None) => Ok((each, offset)),
                    _ => Err(Odd),
                }
            });
            CountedContent::Commit(commits.collect::<Result<_, Odd>>()?)
        }
        LIST_OFFSETS => {
            let ends = touched.iter().map(|each| {
                let is_end = field(each.request, fields.timestamp)? == Some(LATEST);
                let offset = field(each.response, fields.offset)?.filter(|offset| is_end && *offset >= 0);
                Ok((each, offset.map(|offset| (None, offset))))
            });
            CountedContent::Offsets(ends.collect::<Result<_, Odd>>()?)
        }
        OFFSET_FETCH => {
            let of_all = match request.get(fields.group_id) {
                Some(Value::Text(group)) if !group.is_empty() => Some(*group),
                _ => None,
            };
            let offsets = touched.iter().map(|each| {
                let offset = field(each.response, fields.committed_offset)?.filter(|offset| *offset >= 0);
                let group = each.group.or(of_all).ok_or(Odd)?;
                Ok((each, offset.map(|offset| (Some(group), offset))))
            });
            CountedContent::Offsets(offsets.collect::<Result<_, Odd>>()?)
        }
        API_VERSIONS => CountedContent::Versions(fields.versions(&decoded.response)?),
        _ => CountedContent::Offsets(touched.iter().map(|each| (each, None)).collect()),
    })
}

/// The member that a request names, if what is counted of it depends on that.
fn member(
    found: &CountedContent<'_, '_>,
    decoded: &Decoded<'_>,
    fields: &Fields,
) -> Result<Option<Member>, Odd> {
    if !matches!(found, CountedContent::Heartbeat | CountedContent::Commit(_)) {
        return Ok(None);
    }
    let text = |name| match decoded.request.get(name) {
        Some(Value::Text(text)) if text.len() > NAME_BYTES => Err(Why::Group.odd()),
        Some(Value::Text(text)) if !text.is_empty() => Ok(Some((*text).to_owned())),
        Some(Value::Text(_) | Value::Null) | None => Ok(None),
        Some(_) => Err(Why::Group.odd()),
    };
    let named = match decoded.request.get(fields.generation_id_or_member_epoch) {
        Some(_) => fields.generation_id_or_member_epoch,
        None => fields.generation_id,
    };
    let generation = field(Some(&decoded.request), named)?.filter(|generation| *generation >= 0);
    Ok(Some((
        text(fields.group_id)?.ok_or_else(|| Why::Group.odd())?,
        text(fields.member_id)?,
        text(fields.group_instance_id)?,
        generation,
    )))
}

/// The first group that a request names, as `content.group_id` of kdissect/exchanges has it.
fn consumers(row: &Row, decoded: &Decoded<'_>) -> Result<Option<String>, Odd> {
    match row.group.find(&decoded.request)? {
        Some(group) if group.len() > NAME_BYTES => Err(Why::Group.odd()),
        group => Ok(group.map(str::to_owned)),
    }
}

impl CountedConnection {
    fn new(plan: &TallyPlan, log: Counted) -> Result<Self, Odd> {
        Ok(CountedConnection {
            splitter: Splitter::new(&plan.memory, log.info.clone())?,
            log,
            held: 0,
            groups: Vec::new(),
            has_cluster: false,
        })
    }

    /// Whether an exchange is the first that names the cluster. Odd: what was counted of the connection before must
    /// be passed on before that is known.
    fn check_cluster(&mut self, plan: &TallyPlan, named: Option<&str>) -> Result<bool, Odd> {
        if named.is_none() || self.has_cluster {
            return Ok(false);
        }
        self.has_cluster = (plan.has_cluster)(&self.log.info)?;
        let is_of_broker = |group: &Group| matches!(group.detail, Detail::Versions(_));
        if !self.has_cluster && !self.groups.iter().all(is_of_broker) {
            return Err(Why::Cluster.odd());
        }
        Ok(!self.has_cluster)
    }

    /// The place of the group of an exchange, and whether it is new.
    fn group(
        &mut self,
        key: TallyKey,
        exchange: &Answered<'_>,
        found: &CountedContent<'_, '_>,
    ) -> (usize, bool) {
        let is_known = |group: &Group| group.is_of(&key, exchange);
        if let Some(place) = self.groups.iter().rposition(is_known) {
            return (place, false);
        }
        let identity = exchange.known.identity().clone();
        self.groups.push(Group::new(key, identity, found));
        self.held += 1;
        (self.groups.len() - 1, true)
    }

    /// Takes over the sessions that a Fetch continues, and finds its positions.
    fn take_over(&mut self, fetch: &mut Fetch<'_, '_>) -> Result<(), Odd> {
        let (step, sessions) = (&fetch.session, &mut self.splitter.memory.sessions);
        sessions.take_over(step)?;
        if sessions.is_named_since(step) || !sessions.has_room(step, fetch.reads.len()) {
            return Err(Why::Session.odd());
        }
        for (each, read) in &mut fetch.reads {
            read.position = sessions.after(step, &each.topic, each.partition, &read.position);
        }
        Ok(())
    }

    /// Passes on its groups, in the order of their last exchanges, then what is counted of all.
    fn pass_on(mut self, to: &mut Vec<Handed>) {
        self.groups.sort_by_key(|group| group.last);
        if self.log.exchanges + self.log.unacknowledged == 0 {
            return;
        }
        to.extend(self.splitter.give_back().map(Handed::Memory));
        let info = &self.log.info;
        let groups = self.groups.into_iter();
        to.extend(groups.map(|group| Handed::Tally(Box::new(group.tally(info.clone())))));
        to.push(Handed::Connection(self.log));
    }
}

impl Group {
    fn new(key: TallyKey, identity: [Handle; 4], found: &CountedContent<'_, '_>) -> Self {
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

    fn is_of(&self, key: &TallyKey, exchange: &Answered<'_>) -> bool {
        let mut identities = self.identity.iter().zip(exchange.known.identity());
        self.key == *key && identities.all(|(one, other)| one.is(other))
    }

    /// Whether no topic has another ID than before.
    fn fits(&self, found: &CountedContent<'_, '_>) -> bool {
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
    fn add(
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

    fn tally(self, info: Handle) -> Tally {
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

impl Alive {
    fn see(&mut self, stamp: Stamp, completed_ns: i64) {
        self.last = self.last.max(stamp);
        self.completed_ns = self.completed_ns.max(completed_ns);
    }
}

fn add_batch(producers: &mut Vec<Producer>, time_ns: i64, &(id, epoch, _, records): &(i64, i16, i64, u64)) {
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
fn fit<'t, T, P>(topics: &ByTopic<T, P>, mut touched: impl Iterator<Item = &'t Touched<'t, 't>>) -> bool {
    touched.all(|each| {
        let known = topics.get(&*each.topic).and_then(|topic| topic.id.as_deref());
        known.is_none() || known == each.topic_id
    })
}

/// The topic of a partition, which an exchange names.
fn topic_of<'t, T: Default, P>(
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

fn topic_named<'t, T: Default, P>(
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
    fn read(&mut self, partition: i64, more: &mut usize) -> &mut ReadPartition {
        self.partitions.entry(partition).or_insert_with(|| {
            *more += 1;
            ReadPartition::default()
        })
    }
}

impl ReadPartition {
    fn see(&mut self, time_ns: i64, stamp: Stamp, position: &Position) {
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
