//! Exchanges of a connection -> groups of those that are alike, and what is counted of all.

use super::content::{CountedContent, Fetch};
use super::detail::Detail;
use super::group::{Group, TallyKey};
use super::TallyPlan;
use crate::sinks::connection_log::Counted;
use crate::sinks::facts::Answered;
use crate::sinks::handed::Handed;
use crate::sinks::splitters::Splitter;
use crate::{Odd, Why};

pub(super) struct CountedConnection {
    pub(super) splitter: Splitter,
    /// Groups, partitions and positions.
    pub(super) held: usize,
    pub(super) log: Counted,
    pub(super) groups: Vec<Group>,
    /// Whether its cluster is known.
    pub(super) has_cluster: bool,
}

impl CountedConnection {
    pub(super) fn new(plan: &TallyPlan, log: Counted) -> Result<Self, Odd> {
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
    pub(super) fn check_cluster(&mut self, plan: &TallyPlan, named: Option<&str>) -> Result<bool, Odd> {
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
    pub(super) fn group(
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
    pub(super) fn take_over(&mut self, fetch: &mut Fetch<'_, '_>) -> Result<(), Odd> {
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
    pub(super) fn pass_on(mut self, to: &mut Vec<Handed>) {
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
