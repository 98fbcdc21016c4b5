//! Usual exchanges -> counts of those that are alike, connection by connection, for kdissect/stats/core_tallies.py:
//!
//! content     a decoded exchange -> what it adds
//! group       exchanges that are alike -> what is counted of them
//! detail      what more is counted of them, by API
//! connection  exchanges of a connection -> groups, and what is counted of all
//! tally       a group -> what Python gets
//!
//! The counts of a connection are passed on before Python takes an exchange of it, and when it is no longer here;
//! those of all connections when there are enough of them.

mod connection;
mod content;
mod detail;
mod group;
mod tally;

use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::sync::Arc;

use connection::CountedConnection;
use content::{consumers, found, member, CountedContent};
use group::{Apart, TallyKey};

use crate::exchanges::content::Row;
use crate::exchanges::fetch_sessions::Session;
use crate::exchanges::latency::{Parts, Rest, FETCH, JOIN_GROUP, SYNC_GROUP};
use crate::exchanges::touched::Touched;
use crate::exchanges::usage::PIECE_NS;
use crate::kafka::tree::NO_ID;
use crate::sinks::conditions::{NameTest, Vote};
use crate::sinks::connection_log::Counted;
use crate::sinks::facts::{Answered, CommonPlan, Constant, Framed, Handle, KnownApis, Unacknowledged};
use crate::sinks::handed::Handed;
use crate::sinks::kept_bodies::{DecodeBodies, KeptBodies};
use crate::sinks::sink::Sink;
use crate::sinks::slowest::{Slow, Slowest};
use crate::sinks::splitters::MemoryPlan;
use crate::{Odd, Why};

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
