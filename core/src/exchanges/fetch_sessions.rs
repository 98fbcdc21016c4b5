//! The fetch sessions of a connection, as kdissect/exchanges/fetch_sessions.py keeps them.

use std::collections::BTreeMap;

use crate::{Odd, Why};

const MS_NS: i64 = 1_000_000;
/// Timestamps up to here, in both directions, have differences in nanoseconds.
const MAX_MS: i64 = (1 << 61) / MS_NS;
/// Most partitions of a session. A larger one would be passed to Python, and back, all the time.
const MAX_PARTITIONS: usize = 4096;

/// The ID of the partitions whose last response had records, or an offset out of range, as they were requested.
const ANSWERED: i64 = 0;
/// The error after which a consumer goes on elsewhere.
const OUT_OF_RANGE: i64 = 1;

/// The positions in the partitions of a session.
#[derive(Clone, Default)]
pub struct Session {
    topics: BTreeMap<String, BTreeMap<i64, Position>>,
    pub count: usize,
}

/// Those of a connection.
#[derive(Default)]
pub struct Sessions {
    /// By ID: those that no Fetch has continued here yet. None: they are left to Python.
    lent: BTreeMap<i64, Option<Session>>,
    /// Those that were continued here. One that is over is empty.
    by_id: BTreeMap<i64, Session>,
    /// Positions in the latter.
    pub count: usize,
}

/// The position of a consumer, as in kdissect/exchanges/fetch_sessions.py.
#[derive(Clone, Copy, Default)]
pub struct Position {
    pub fetch_offset: Option<i64>,
    pub next_offset: Option<i64>,
    pub newest_ms: Option<i64>,
    pub high_watermark: Option<i64>,
    pub last_stable: Option<i64>,
    pub log_start: Option<i64>,
    pub error: i64,
    pub repeats: i64,
    pub skipped: i64,
    /// Whether the ID of the topic stands for its name.
    pub is_nameless: bool,
}

impl Position {
    /// Whether its offsets and its timestamp have differences from others.
    pub fn check(&self) -> Result<(), Odd> {
        let is_far = |ms: i64| !(-MAX_MS..=MAX_MS).contains(&ms);
        let is_negative = |offset: Option<i64>| offset.is_some_and(|offset| offset < 0);
        match self.newest_ms.is_some_and(is_far)
            || is_negative(self.fetch_offset)
            || is_negative(self.next_offset)
        {
            true => Err(Why::Session.odd()),
            false => Ok(()),
        }
    }

    /// With what neither message says, which is as it was after the `previous` Fetch of the session. `answered`: as it
    /// was requested before, if records or an offset out of range came.
    fn after(&self, previous: Option<&Position>, answered: Option<&Position>) -> Position {
        let or_previous =
            |value: Option<i64>, of: fn(&Position) -> Option<i64>| value.or(previous.and_then(of));
        let (mut fetch_offset, end) = (self.fetch_offset, self.next_offset);
        let lost = answered.filter(|answered| answered.error != 0);
        let skipped = lost.and_then(|lost| Some(fetch_offset? - lost.fetch_offset?));
        let answered = answered.filter(|answered| answered.error == 0);
        if let (None, Some(end), Some(answered)) = (fetch_offset, end, answered) {
            if end <= answered.next_offset.unwrap_or(0) {
                fetch_offset = answered.fetch_offset; // an unnamed partition is requested as before, and so it was
            }
        }
        let fetch_offset = or_previous(fetch_offset, |previous| previous.next_offset);
        let repeated =
            answered.filter(|answered| fetch_offset.is_some() && answered.fetch_offset == fetch_offset);
        Position {
            fetch_offset,
            next_offset: end.filter(|_| repeated.is_none()).or(fetch_offset),
            high_watermark: or_previous(self.high_watermark, |previous| previous.high_watermark),
            last_stable: or_previous(self.last_stable, |previous| previous.last_stable),
            log_start: or_previous(self.log_start, |previous| previous.log_start),
            repeats: repeated.map_or(0, |answered| answered.repeats.saturating_add(1)),
            skipped: skipped.unwrap_or(0),
            ..*self
        }
    }

    /// Whether it is requested again, although records came, or follows an offset out of range.
    pub fn is_odd(&self) -> bool {
        self.repeats != 0 || self.skipped != 0
    }

    /// The next offset, and the records behind it.
    pub fn lag(&self) -> Option<(i64, i64)> {
        let next_offset = self.next_offset?;
        let lag = self.high_watermark?.saturating_sub(next_offset).max(0);
        Some((next_offset, lag))
    }

    /// Age of the newest record received, as long as there are more to read.
    pub fn age_ns(&self, time_ns: i64, lag: i64) -> Option<i64> {
        match lag {
            0 => Some(0),
            _ => Some(time_ns.saturating_sub(self.newest_ms? * MS_NS).max(0)),
        }
    }
}

/// What a Fetch says of its session.
pub struct Step {
    /// The one that the request belongs to; 0: none.
    pub requested: i64,
    /// Whether the request only has what changed.
    pub is_incremental: bool,
    /// Whether it asks for a new one.
    pub is_first: bool,
    pub forgotten: Vec<(String, i64)>,
    /// The IDs of topics that have a name.
    pub named: Vec<String>,
    /// The one that the response belongs to; 0: none.
    pub assigned: i64,
    /// Whether the response is nothing but an error: then it says nothing of partitions, and the session is over.
    pub is_failed: bool,
}

/// A partition after a Fetch: topic, number, position, and the offset after the records that came.
pub type PartitionAfter<'p> = (&'p str, i64, &'p Position, Option<i64>);

impl Step {
    /// Whether there is a session, before or after it.
    pub fn has_session(&self) -> bool {
        self.requested != 0 || self.assigned != 0
    }
}

impl Session {
    /// A session with these positions by topic and partition. Odd: it has too many, or one whose offsets have no
    /// differences from others.
    pub fn of(positions: impl Iterator<Item = (String, i64, Position)>) -> Result<Self, Odd> {
        let mut session = Session::default();
        for (topic, partition, position) in positions {
            position.check()?;
            session.set(&topic, partition, position);
        }
        match session.count {
            ..=MAX_PARTITIONS => Ok(session),
            _ => Err(Why::Session.odd()),
        }
    }

    pub fn topics(&self) -> impl Iterator<Item = (&str, &BTreeMap<i64, Position>)> {
        self.topics
            .iter()
            .map(|(topic, partitions)| (topic.as_str(), partitions))
    }

    pub fn get(&self, topic: &str, partition: i64) -> Option<&Position> {
        self.topics.get(topic).and_then(|known| known.get(&partition))
    }

    fn set(&mut self, topic: &str, partition: i64, position: Position) {
        if !self.topics.contains_key(topic) {
            self.topics.insert(topic.to_owned(), BTreeMap::new());
        }
        if let Some(partitions) = self.topics.get_mut(topic) {
            self.count += usize::from(partitions.insert(partition, position).is_none());
        }
    }

    fn forget(&mut self, topic: &str, partition: i64) {
        let Some(partitions) = self.topics.get_mut(topic) else {
            return;
        };
        self.count -= usize::from(partitions.remove(&partition).is_some());
        if partitions.is_empty() {
            self.topics.remove(topic);
        }
    }

    fn change<'p>(&mut self, step: &Step, fetched: impl Iterator<Item = PartitionAfter<'p>>) {
        for (topic, partition) in &step.forgotten {
            self.forget(topic, *partition);
        }
        for (topic, partition, position, _) in fetched {
            self.set(topic, partition, *position);
        }
    }

    pub fn positions(self) -> impl Iterator<Item = (String, i64, Position)> {
        self.topics.into_iter().flat_map(|(topic, partitions)| {
            let partitions = partitions.into_iter();
            partitions.map(move |(partition, position)| (topic.clone(), partition, position))
        })
    }
}

impl Sessions {
    pub fn of(lent: BTreeMap<i64, Option<Session>>) -> Self {
        Sessions {
            lent,
            ..Sessions::default()
        }
    }

    fn set(&mut self, id: i64, session: Session) {
        self.count += session.count;
        if let Some(before) = self.by_id.insert(id, session) {
            self.count -= before.count;
        }
    }

    /// Takes over the sessions that a Fetch continues. Odd: one is left to Python.
    pub fn take_over(&mut self, step: &Step) -> Result<(), Odd> {
        let needed = [Some(ANSWERED), step.is_incremental.then_some(step.requested)];
        for id in needed.into_iter().flatten() {
            if !self.by_id.contains_key(&id) {
                let session = match self.lent.get_mut(&id) {
                    Some(lent) => lent.take().ok_or_else(|| Why::Session.odd())?,
                    None => Session::default(),
                };
                self.set(id, session);
            }
        }
        Ok(())
    }

    /// The session that a Fetch continues.
    pub fn continued_by(&self, step: &Step) -> Option<&Session> {
        self.by_id.get(&step.requested).filter(|_| step.is_incremental)
    }

    /// Whether a topic of the session that a Fetch continues has got a name since.
    pub fn is_named_since(&self, step: &Step) -> bool {
        let session = self.continued_by(step);
        session.is_some_and(|session| step.named.iter().any(|id| session.topics.contains_key(id)))
    }

    /// Whether a Fetch with so many partitions may be added to its session.
    pub fn has_room(&self, step: &Step, partitions: usize) -> bool {
        let count = |id: i64| self.by_id.get(&id).map_or(0, |session| session.count);
        let session = if step.is_incremental {
            count(step.requested)
        } else {
            0
        };
        session.max(count(ANSWERED)) + partitions <= MAX_PARTITIONS
    }

    /// The position in a partition after a Fetch, whose messages say this of it.
    pub fn after(&self, step: &Step, topic: &str, partition: i64, position: &Position) -> Position {
        let of =
            |session: Option<&'_ Session>| session.and_then(|session| session.get(topic, partition).copied());
        let mut forgotten = step.forgotten.iter();
        let is_forgotten = forgotten.any(|each| (each.0.as_str(), each.1) == (topic, partition));
        let previous = of(self.continued_by(step)).filter(|_| !is_forgotten);
        position.after(previous.as_ref(), of(self.by_id.get(&ANSWERED)).as_ref())
    }

    /// The positions after a Fetch in all partitions of its session, or in its own if there is none.
    pub fn all_after<'p>(&self, step: &Step, fetched: impl Iterator<Item = PartitionAfter<'p>>) -> Session {
        if step.is_failed {
            return Session::default();
        }
        let mut session = self.continued_by(step).cloned().unwrap_or_default();
        session.change(step, fetched);
        session
    }

    /// Takes out the session of a Fetch, with the positions after it. Without a session, it has none.
    pub fn advance<'p>(
        &mut self,
        step: &Step,
        fetched: impl Iterator<Item = PartitionAfter<'p>> + Clone,
    ) -> Session {
        let mut session = Session::default();
        if step.requested != 0 {
            let known = std::mem::take(self.by_id.entry(step.requested).or_default());
            self.count -= known.count;
            if step.is_incremental {
                session = known;
            }
        }
        if step.is_failed {
            return Session::default();
        }
        for each in fetched.clone() {
            self.answer(each);
        }
        if step.has_session() {
            session.change(step, fetched);
        }
        session
    }

    /// Notes whether a response had records, or an offset out of range.
    fn answer(&mut self, (topic, partition, position, end): PartitionAfter<'_>) {
        let session = self.by_id.entry(ANSWERED).or_default();
        self.count -= session.count;
        match (position.error, end) {
            (0, Some(_)) => {
                let next_offset = end;
                session.set(
                    topic,
                    partition,
                    Position {
                        next_offset,
                        ..*position
                    },
                );
            }
            (OUT_OF_RANGE, _) => session.set(topic, partition, *position),
            _ => session.forget(topic, partition),
        }
        self.count += session.count;
    }

    /// Keeps the positions until the next Fetch of the session.
    pub fn keep(&mut self, step: &Step, mut session: Session) {
        if step.assigned == 0 || step.is_failed || session.count == 0 {
            return;
        }
        for position in session.topics.values_mut().flat_map(BTreeMap::values_mut) {
            position.fetch_offset = position.next_offset;
            (position.repeats, position.skipped) = (0, 0);
        }
        self.set(step.assigned, session);
    }

    /// Those that were continued here.
    pub fn continued(self) -> impl Iterator<Item = (i64, Session)> {
        self.by_id.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(requested: i64, is_incremental: bool, assigned: i64) -> Step {
        Step {
            requested,
            is_incremental,
            is_first: false,
            forgotten: Vec::new(),
            named: Vec::new(),
            assigned,
            is_failed: false,
        }
    }

    fn at(fetch_offset: Option<i64>, high_watermark: Option<i64>) -> Position {
        Position {
            fetch_offset,
            high_watermark,
            ..Position::default()
        }
    }

    /// A Fetch: partitions of a topic, and what the messages say of positions.
    fn fetch(
        sessions: &mut Sessions,
        step: &Step,
        positions: &[(i64, Position)],
    ) -> Vec<(i64, Option<(i64, i64)>)> {
        let after: Vec<_> = positions
            .iter()
            .map(|(partition, each)| {
                (
                    *partition,
                    sessions.after(step, "orders", *partition, each),
                    each.next_offset,
                )
            })
            .collect();
        let fetched = after
            .iter()
            .map(|(partition, position, end)| ("orders", *partition, position, *end));
        let previewed = sessions.all_after(step, fetched.clone()).count;
        let session = sessions.advance(step, fetched);
        if step.has_session() {
            assert_eq!(session.count, previewed);
        }
        let all = session.topics().flat_map(|(_, partitions)| partitions);
        let lags = all
            .map(|(partition, position)| (*partition, position.lag()))
            .collect();
        sessions.keep(step, session);
        lags
    }

    #[test]
    fn an_incremental_fetch_has_all_partitions_of_its_session() {
        let mut sessions = Sessions::default();
        let first = [(0, at(Some(5), Some(9))), (1, at(Some(7), Some(7)))];
        fetch(&mut sessions, &step(0, false, 77), &first);
        let lags = fetch(&mut sessions, &step(77, true, 77), &[(1, at(None, Some(12)))]);
        assert_eq!(lags, [(0, Some((5, 4))), (1, Some((7, 5)))]);
        assert_eq!(sessions.count, 2);
    }

    #[test]
    fn forgotten_partitions_and_sessions_that_are_over() {
        let mut sessions = Sessions::default();
        let both = [(0, at(Some(5), Some(9))), (1, at(Some(7), Some(7)))];
        fetch(&mut sessions, &step(0, false, 77), &both);
        let forgetting = Step {
            forgotten: vec![("orders".into(), 0), ("others".into(), 1)],
            ..step(77, true, 77)
        };
        assert_eq!(fetch(&mut sessions, &forgetting, &[]), [(1, Some((7, 0)))]);
        assert_eq!(fetch(&mut sessions, &step(77, false, 0), &[]), []);
        assert_eq!(sessions.count, 0);
        assert!(sessions.continued().all(|(_, session)| session.count == 0));
    }

    #[test]
    fn offsets_that_are_requested_again_or_out_of_range() {
        let mut sessions = Sessions::default();
        let none = step(0, false, 0);
        let requested = |offset, end, error| Position {
            fetch_offset: Some(offset),
            next_offset: end,
            error,
            ..Position::default()
        };
        let mut feed = |position: Position| {
            let after = sessions.after(&none, "orders", 0, &position);
            let fetched = [("orders", 0, &after, position.next_offset)];
            let session = sessions.advance(&none, fetched.into_iter());
            sessions.keep(&none, session);
            (after.next_offset, after.repeats, after.skipped)
        };
        assert_eq!(feed(requested(5, Some(9), 0)), (Some(9), 0, 0));
        assert_eq!(feed(requested(5, Some(9), 0)), (Some(5), 1, 0));
        assert_eq!(feed(requested(5, Some(9), 0)), (Some(5), 2, 0));
        assert_eq!(feed(requested(9, None, 0)), (Some(9), 0, 0));
        assert_eq!(feed(requested(9, None, OUT_OF_RANGE)), (Some(9), 0, 0));
        assert_eq!(feed(requested(20, Some(21), 0)), (Some(21), 0, 11));
        assert_eq!(feed(requested(20, None, 6)), (Some(20), 1, 0));
        assert_eq!(feed(requested(20, None, 0)), (Some(20), 0, 0));
    }

    #[test]
    fn a_topic_that_gets_a_name_is_noticed() {
        let mut sessions = Sessions::default();
        fetch(&mut sessions, &step(0, false, 77), &[(0, at(Some(5), Some(9)))]);
        let naming = |requested, is_incremental, id: &str| Step {
            named: vec![id.into()],
            ..step(requested, is_incremental, 77)
        };
        assert!(sessions.is_named_since(&naming(77, true, "orders")));
        assert!(!sessions.is_named_since(&naming(77, true, "others")));
        assert!(!sessions.is_named_since(&naming(77, false, "orders")));
        assert!(!sessions.is_named_since(&naming(78, true, "orders")));
    }

    #[test]
    fn a_session_has_a_limit() {
        let known = |count| Session::of((0..count).map(|each| ("orders".into(), each, at(Some(0), None))));
        let mut sessions = Sessions::of(BTreeMap::from([(77, known(4000).ok()), (78, None)]));
        sessions.take_over(&step(77, true, 77)).unwrap();
        assert_eq!(sessions.count, 4000);
        assert!(sessions.take_over(&step(78, true, 78)).is_err());
        assert!(sessions.has_room(&step(77, true, 77), 96));
        assert!(!sessions.has_room(&step(77, true, 77), 97));
        assert!(sessions.has_room(&step(77, false, 78), 4096));
        assert!(known(4097).is_err());
    }
}
