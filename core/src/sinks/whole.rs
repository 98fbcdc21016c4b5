//! Answered exchanges -> what the tables need of them that are made at the end, and `groups` of events that Python
//! reads, for kdissect/tables/whole.py.

use std::collections::{HashMap, HashSet};

use crate::exchanges::content::{GroupEvents, Row};
use crate::exchanges::nodes::Node;
use crate::exchanges::usage::Stamp;
use crate::kafka::tree::{Decoded, Name, Value};
use crate::sinks::cells::RowFacts;
use crate::sinks::columns::Column;
use crate::sinks::facts::{Answered, Handle};
use crate::{Odd, Why};

/// Brokers, endpoints and members with which there are enough.
const MAX_HELD: usize = 8192;

/// `WholePlan` of kdissect/sinks/plan.py. The functions ask Python.
#[allow(clippy::type_complexity)] // of functions
pub struct WholePlan {
    /// Whether brokers are noted.
    pub has_brokers: bool,
    /// Where requests have the ID of a member; see [`Row::fields`]. None: it is not noted which are alive.
    pub member: Option<usize>,
    /// The events of groups in an exchange.
    pub events: Option<Box<dyn Fn(&Answered<'_>) -> Result<Events, Odd> + Send + Sync>>,
    /// Whether Python knows the cluster of a connection.
    pub has_cluster: Box<dyn Fn(&Handle) -> Result<bool, Odd> + Send + Sync>,
}

/// Events of groups, as Python reads them: their rows in `groups`, and what it keeps of them.
pub struct Events {
    pub rows: Vec<EventRow>,
    pub kept: Option<Handle>,
}

pub enum EventRow {
    Values(Box<Push>),
    Line(Vec<u8>),
}

/// Appends a value to each column, and returns their cost.
pub type Push = dyn Fn(&mut [Column]) -> Result<usize, Odd> + Send + Sync;

/// What exchanges say, since the caller last took it.
pub struct Whole {
    plan: WholePlan,
    alive: AliveMembers,
    brokers: Vec<NamedBrokers>,
    /// By the address of the object that the exchanges of a connection share, and whether they are selected.
    places: HashMap<(usize, bool), usize>,
    /// What Python keeps of events, in order.
    kept: Vec<Handle>,
    /// Connections of which there is anything that counts for the cluster they belong to.
    pending: HashSet<usize>,
    held: usize,
}

/// The same of one exchange.
#[derive(Default)]
pub struct WholeFacts<'a> {
    nodes: Vec<Node<'a>>,
    /// Cluster, host and port; without these two, it is the cluster of the broker that responds.
    advertised: Vec<Advertised<&'a str>>,
    /// Group and member.
    alive: Option<(&'a str, &'a str)>,
    pub events: Option<Events>,
}

type Advertised<T> = (Option<T>, Option<(T, i64)>);

/// The brokers that exchanges of a connection name.
pub struct NamedBrokers {
    pub info: Handle,
    pub is_selected: bool,
    /// The endpoints that responses advertise, each once, with the cluster that they name.
    pub advertised: Vec<Advertised<String>>,
    /// Those of selected exchanges.
    pub nodes: Vec<NamedNode>,
    known: HashSet<Advertised<String>>,
    places: HashMap<(i64, String, i64), usize>,
}

/// A broker: node ID, host and port; the first exchange that names it, the time of the last, and its latest rack.
pub struct NamedNode {
    pub node: (i64, String, i64),
    pub first: Stamp,
    pub last_ns: i64,
    pub rack: Option<(Stamp, String)>,
}

/// When a broker last accepted a request of a member of a group.
pub struct AliveMember {
    /// What the exchanges of its connection share.
    pub info: Handle,
    pub group: String,
    pub member: String,
    pub last_ns: i64,
}

/// By the address of the object that the exchanges of a connection share, group and member.
type AliveMembers = HashMap<(usize, String, String), (Handle, i64)>;

impl Whole {
    pub fn new(plan: WholePlan) -> Self {
        Whole {
            plan,
            alive: HashMap::new(),
            brokers: Vec::new(),
            places: HashMap::new(),
            kept: Vec::new(),
            pending: HashSet::new(),
            held: 0,
        }
    }

    /// Odd if an exchange is the first that names the cluster of its connection: what is here counts for its broker,
    /// which may have named another one elsewhere, and must be taken before.
    pub fn check_cluster(&self, info: &Handle, cluster: Option<&str>) -> Result<(), Odd> {
        match cluster.is_some() && self.pending.contains(&info.address) && !(self.plan.has_cluster)(info)? {
            true => Err(Why::Cluster.odd()),
            false => Ok(()),
        }
    }

    /// What an exchange says.
    pub fn find<'a>(
        &self,
        exchange: &Answered<'a>,
        row: &Row,
        decoded: &'a Decoded<'a>,
        found: &RowFacts<'a>,
        cluster: Option<&'a str>,
    ) -> Result<WholeFacts<'a>, Odd> {
        let mut facts = WholeFacts::default();
        if let (Some(plan), true) = (&row.nodes, self.plan.has_brokers) {
            if exchange.is_selected {
                facts.nodes = plan.nodes(decoded)?;
            }
            let cluster = cluster.filter(|_| plan.are_of_cluster);
            let ends = plan.advertised(decoded)?.into_iter();
            let ends = ends.map(|end| (cluster, Some(end)));
            facts.advertised = ends.chain(cluster.map(|cluster| (Some(cluster), None))).collect();
        }
        if !exchange.is_selected {
            return Ok(facts);
        }
        let has_errors = !found.errors.is_empty();
        match row.group_events {
            GroupEvents::Never => {}
            GroupEvents::Errors | GroupEvents::Commit if !has_errors => {
                facts.alive = self.member(row, decoded, found)?;
            }
            GroupEvents::Commit => {}
            GroupEvents::Errors | GroupEvents::Others => {
                facts.events = self
                    .plan
                    .events
                    .as_ref()
                    .map(|events| events(exchange))
                    .transpose()?;
            }
        }
        Ok(facts)
    }

    /// The group and the member that an exchange shows to be alive.
    fn member<'a>(
        &self,
        row: &Row,
        decoded: &'a Decoded<'a>,
        found: &RowFacts<'a>,
    ) -> Result<Option<(&'a str, &'a str)>, Odd> {
        let Some(member) = self.plan.member else {
            return Ok(None);
        };
        let names = row.fields.get(member).ok_or(Odd)?;
        let member = text_in(names, &decoded.request);
        Ok(found.group_id.filter(|group| !group.is_empty()).zip(member))
    }

    /// Notes what `find` has found. Nothing is odd.
    pub fn note(&mut self, exchange: &Answered<'_>, info: &Handle, facts: WholeFacts<'_>) {
        let completed_ns = exchange.response.end_ns;
        let mut is_pending = !facts.nodes.is_empty();
        if is_pending || !facts.advertised.is_empty() {
            let key = (info.address, exchange.is_selected);
            let place = *self.places.entry(key).or_insert(self.brokers.len());
            if place == self.brokers.len() {
                self.brokers
                    .push(NamedBrokers::new(info.clone(), exchange.is_selected));
            }
            if let Some(brokers) = self.brokers.get_mut(place) {
                self.held += brokers.add((exchange.request.end_ns, exchange.number), &facts);
            }
        }
        if let Some((group, member)) = facts.alive {
            let key = (info.address, group.to_owned(), member.to_owned());
            let (_, last_ns) = self.alive.entry(key).or_insert_with(|| {
                self.held += 1;
                (info.clone(), completed_ns)
            });
            *last_ns = completed_ns.max(*last_ns);
            is_pending = true;
        }
        if let Some(kept) = facts.events.and_then(|events| events.kept) {
            self.kept.push(kept);
            self.held += 1;
            is_pending = true;
        }
        if is_pending {
            self.pending.insert(info.address);
        }
    }

    pub fn is_full(&self) -> bool {
        self.held >= MAX_HELD
    }

    /// Hands over what is known.
    pub fn flush(&mut self) -> (Vec<NamedBrokers>, Vec<Handle>, Vec<AliveMember>) {
        self.places.clear();
        self.pending.clear();
        self.held = 0;
        let members = self.alive.drain();
        let alive = members.map(|((_, group, member), (info, last_ns))| AliveMember {
            info,
            group,
            member,
            last_ns,
        });
        let alive = alive.collect();
        (
            std::mem::take(&mut self.brokers),
            std::mem::take(&mut self.kept),
            alive,
        )
    }
}

impl NamedBrokers {
    fn new(info: Handle, is_selected: bool) -> Self {
        NamedBrokers {
            info,
            is_selected,
            advertised: Vec::new(),
            nodes: Vec::new(),
            known: HashSet::new(),
            places: HashMap::new(),
        }
    }

    /// Adds those of an exchange; returns how many are new.
    fn add(&mut self, stamp: Stamp, facts: &WholeFacts<'_>) -> usize {
        let before = self.advertised.len() + self.nodes.len();
        for (cluster, end) in &facts.advertised {
            let end = end.map(|(host, port)| (host.to_owned(), port));
            let each = (cluster.map(str::to_owned), end);
            if self.known.insert(each.clone()) {
                self.advertised.push(each);
            }
        }
        for each in &facts.nodes {
            let node = (each.id, each.host.to_owned(), each.port);
            let index = *self.places.entry(node.clone()).or_insert(self.nodes.len());
            if index == self.nodes.len() {
                self.nodes.push(NamedNode {
                    node,
                    first: stamp,
                    last_ns: stamp.0,
                    rack: None,
                });
            }
            if let Some(known) = self.nodes.get_mut(index) {
                known.first = known.first.min(stamp);
                known.last_ns = known.last_ns.max(stamp.0);
                let rack = each.rack.map(|rack| (stamp, rack.to_owned()));
                known.rack = rack.max(known.rack.take());
            }
        }
        self.advertised.len() + self.nodes.len() - before
    }
}

/// The first of these fields that is not empty.
pub fn text_in<'a>(names: &[Name], request: &Value<'a>) -> Option<&'a str> {
    names.iter().find_map(|name| match request.get(*name) {
        Some(Value::Text(text)) if !text.is_empty() => Some(*text),
        _ => None,
    })
}
