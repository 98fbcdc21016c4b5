//! Which exchanges are selected: `Conditions` of kdissect/sinks/plan.py. A test is true, false or unknown; Python
//! takes an exchange if that leaves open whether it is selected.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use crate::exchanges::connection::{Frame, Header};
use crate::exchanges::content::{Mentioned, Mentions};
use crate::exchanges::latency::Parts;
use crate::exchanges::values::Given;
use crate::kafka::tree::Decoded;
use crate::sinks::facts::Handle;
use crate::sinks::splitters::{Change, Paced, Splitters};
use crate::sinks::value_tests::{Mention, Number, Source, ValueTest};
use crate::{guarded, Odd, Why};

const SIZE_BYTES: usize = 4;
const PRODUCE: i16 = 0;
/// The place of the think time after the parts of a latency.
const THINK: usize = 5;
/// What is kept at a time of what Python says of names, and the longest one.
const VOTES: usize = 4096;
const VOTE_BYTES: usize = 256;

#[derive(Debug)]
pub enum Criterion {
    And(Vec<Criterion>),
    Or(Vec<Criterion>),
    Not(Box<Criterion>),
    /// A bit of what Python says of the client.
    OfClient(u32),
    /// Ranges with both ends, and the result if there is no such number.
    Number(Number, Vec<(i64, i64)>, bool),
    /// An index of [`Tests::of_names`].
    Mentions(usize),
    /// An index of [`Tests::of_values`].
    Values(usize),
    /// The result if the response has no errors.
    Errors(bool),
    Left,
}

/// What a name, or a partition of a topic, says of an exchange.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Vote {
    Nothing,
    Selected,
    Excluded,
}

/// From a name, and its ID if both are known, and the number of a partition.
pub type Classify = Box<dyn Fn(&str, Option<&str>, Option<i64>) -> Result<Vote, Odd> + Send + Sync>;

/// By name, and number of a partition.
type Votes = HashMap<Box<str>, BTreeMap<Option<i64>, Vote>>;

/// A test of what bodies mention.
pub struct NameTest {
    pub kind: Mention,
    /// Asks Python.
    pub classify: Classify,
    /// The result if no name says anything.
    pub otherwise: bool,
    /// Whether any name may exclude exchanges.
    pub may_exclude: bool,
    /// Whether all names are classified while nothing is selected, so that Python notes them.
    pub is_noted: bool,
    /// By ID; without one, under an empty one.
    known: BTreeMap<Box<str>, Votes>,
    /// How many there are.
    held: usize,
}

/// Those that hold what Python says.
#[derive(Default)]
pub struct Tests {
    pub of_names: Vec<NameTest>,
    pub of_values: Vec<ValueTest>,
}

/// Where bodies mention it; None: Python finds it.
type KnownMentions = Option<Arc<Mentions>>;

/// The functions classify Python.
#[allow(clippy::type_complexity)] // of functions
pub struct Criteria {
    /// All must be true.
    pub of_header: Criterion,
    pub of_bodies: Criterion,
    pub tests: Tests,
    /// By API key and version.
    pub mentions: Box<dyn Fn(i16, i16) -> KnownMentions + Send + Sync>,
    /// See [`crate::sinks::facts::CommonPlan`].
    pub topic_name: Box<dyn Fn(&str, i64) -> Option<String> + Send + Sync>,
    /// Whether topic IDs without a name are noted.
    pub notes_ids: bool,
    pub times_ns: Range<i64>,
    /// Whether these are times of records; otherwise they are those of requests.
    pub of_records: bool,
    pub budget: i64,
    /// What splits latencies. None: no test needs their parts.
    pub splitters: Option<Splitters>,
    pub places: BTreeMap<(i16, i16), KnownMentions>,
    /// Whether any exchange is selected.
    pub has_match: bool,
}

/// An exchange that is complete.
pub struct Candidate<'a> {
    pub number: u64,
    pub header: &'a Header,
    pub request: &'a Frame,
    /// None if it expects none.
    pub response: Option<&'a Frame>,
    pub completed_ns: i64,
    /// What Python says of the client.
    pub of_client: u64,
    /// What the exchanges of the connection share, if latencies are split.
    pub info: Option<&'a Handle>,
}

#[derive(Debug, Default, PartialEq)]
pub struct Decision {
    pub is_selected: bool,
    /// Whether that is only so if there are no errors in the response.
    pub leaves_errors: bool,
    /// Topic IDs without a name, to be noted.
    pub unnamed: Vec<String>,
    /// The parts of its latency, and what is to be noted of it, if it was split.
    pub split: Option<(Parts, Change)>,
}

/// What tests of an exchange share.
#[derive(Clone, Copy)]
struct Facts<'a> {
    candidate: &'a Candidate<'a>,
    /// None: Python finds it.
    mentioned: Option<&'a Mentioned>,
    /// Whether there may be errors in the response.
    has_errors: bool,
    /// The parts of the latency and the think time; None: they are not known here.
    parts: Option<[Option<i64>; 6]>,
}

impl Facts<'_> {
    /// None: it is not known here. Odd: no number holds it.
    fn number(&self, number: Number) -> Result<Option<Option<i64>>, Odd> {
        let place = match number {
            Number::Part(place) => place,
            Number::ThinkUs => THINK,
            _ => return self.candidate.get(number).map(Some),
        };
        self.parts
            .map(|parts| parts.get(place).copied().ok_or(Odd))
            .transpose()
    }

    /// None: it is not known here.
    fn given(&self, source: Source) -> Result<Option<Given>, Odd> {
        let absent = |value: Option<Given>| value.unwrap_or(Given::Absent);
        let mentioned = match (source, self.mentioned) {
            (Source::Number(number), _) => {
                let number = self.number(number)?;
                return Ok(number.map(|number| absent(number.map(Given::Number))));
            }
            (_, None) => return Ok(None),
            (_, Some(mentioned)) => mentioned,
        };
        let kind = match source {
            Source::Field(place) => return mentioned.fields.get(place).cloned().ok_or(Odd),
            Source::Mention(kind) => kind,
            Source::Number(_) => return Err(Odd),
        };
        let whole = |value| Some(value).filter(|_| !mentioned.is_partial);
        Ok(match kind {
            Mention::Topic => whole(Given::texts(mentioned.topics.iter().chain(&mentioned.named))),
            Mention::Topics => whole(Given::texts(&mentioned.topics)),
            Mention::Group => Some(Given::texts(&mentioned.groups)),
            Mention::GroupId => Some(absent(mentioned.groups.first().cloned().map(Given::Text))),
            Mention::Partition => return Err(Odd),
        })
    }
}

impl Candidate<'_> {
    /// Odd: no number holds it, or it is none of a candidate.
    fn get(&self, number: Number) -> Result<Option<i64>, Odd> {
        let bytes = |frame: &Frame| i64::try_from(frame.size.saturating_add(SIZE_BYTES)).map_err(|_| Odd);
        let latency_ns = || {
            self.response
                .map(|frame| frame.latency_ns(self.request))
                .transpose()
        };
        Ok(match number {
            Number::Number => Some(self.number.try_into().map_err(|_| Odd)?),
            Number::Packet => Some(self.request.packet.try_into().map_err(|_| Odd)?),
            Number::TimeNs => Some(self.request.end_ns),
            Number::CorrelationId => Some(self.header.correlation_id.into()),
            Number::LatencyNs => latency_ns()?,
            Number::LatencyUs => latency_ns()?.map(|ns| ns.div_euclid(1000)),
            Number::RequestTransferUs => self.request.transfer_us(),
            Number::ResponseTransferUs => self.response.and_then(Frame::transfer_us),
            Number::TotalUs => self.response.and_then(|response| response.total_us(self.request)),
            Number::RequestBytes => Some(bytes(self.request)?),
            Number::ResponseBytes => self.response.map(bytes).transpose()?,
            Number::Part(_) | Number::ThinkUs => return Err(Odd),
        })
    }
}

impl NameTest {
    pub fn new(
        kind: Mention,
        classify: Classify,
        (otherwise, may_exclude): (bool, bool),
        is_noted: bool,
    ) -> Self {
        NameTest {
            kind,
            classify,
            otherwise,
            may_exclude,
            is_noted,
            known: BTreeMap::new(),
            held: 0,
        }
    }

    /// `id`: of a topic with this name; None: it has none, or only that is known.
    pub fn vote(&mut self, name: &str, id: Option<&str>, number: Option<i64>) -> Result<Vote, Odd> {
        let key = id.unwrap_or_default();
        let known = self
            .known
            .get(key)
            .and_then(|names| names.get(name)?.get(&number));
        if let Some(known) = known {
            return Ok(*known);
        }
        let vote = (self.classify)(name, id, number)?;
        if name.len() <= VOTE_BYTES {
            if self.held >= VOTES {
                self.known.clear();
                self.held = 0;
            }
            self.held += 1;
            let names = self.known.entry(key.into()).or_default();
            names.entry(name.into()).or_default().insert(number, vote);
        }
        Ok(vote)
    }

    /// Whether what a request mentions may not select an exchange.
    fn needs_response(&self) -> bool {
        self.may_exclude && !matches!(self.kind, Mention::Group | Mention::GroupId)
    }

    /// None: it depends on the response, which was not looked at.
    fn is_true(&mut self, mentioned: &Mentioned) -> Result<Option<bool>, Odd> {
        let mut is_selected = self.otherwise;
        let mut is_excluded = false;
        let mut add = |vote: Vote| {
            is_selected |= vote == Vote::Selected;
            is_excluded |= vote == Vote::Excluded;
        };
        let (names, more): (&[String], &[String]) = match self.kind {
            Mention::Topic => (&mentioned.topics, &mentioned.named),
            Mention::Topics => (&mentioned.topics, &[]),
            Mention::Group => (&mentioned.groups, &[]),
            Mention::GroupId => (mentioned.groups.get(..1).unwrap_or_default(), &[]),
            Mention::Partition => (&[], &[]),
        };
        for name in names.iter().chain(more) {
            add(self.vote(name, None, None)?);
        }
        if self.kind == Mention::Partition {
            for (place, number) in &mentioned.partitions {
                let topic = mentioned.topics.get(*place).ok_or(Odd)?;
                add(self.vote(topic, None, Some(*number))?);
            }
        }
        let is_whole = !mentioned.is_partial || matches!(self.kind, Mention::Group | Mention::GroupId);
        let is_final = is_whole || is_excluded || (is_selected && !self.may_exclude);
        Ok(Some(is_selected && !is_excluded).filter(|_| is_final))
    }
}

impl Criterion {
    /// None: it is unknown.
    fn is_true(&self, facts: &Facts<'_>, tests: &mut Tests) -> Result<Option<bool>, Odd> {
        match self {
            Criterion::And(several) => all(several, facts, tests, true),
            Criterion::Or(several) => all(several, facts, tests, false),
            Criterion::Not(test) => Ok(test.is_true(facts, tests)?.map(|is_true| !is_true)),
            Criterion::OfClient(bit) => Ok(Some(facts.candidate.of_client >> bit & 1 == 1)),
            Criterion::Number(number, ranges, if_absent) => Ok(facts.number(*number)?.map(|value| {
                let is_within = |value| {
                    ranges
                        .iter()
                        .any(|(first, last)| (*first..=*last).contains(&value))
                };
                value.map_or(*if_absent, is_within)
            })),
            Criterion::Mentions(index) => match (facts.mentioned, tests.of_names.get_mut(*index)) {
                (Some(mentioned), Some(test)) => test.is_true(mentioned),
                _ => Ok(None),
            },
            Criterion::Values(index) => {
                let test = tests.of_values.get_mut(*index).ok_or(Odd)?;
                let values = test.sources.iter().map(|source| facts.given(*source));
                match values.collect::<Result<Option<Vec<_>>, _>>()? {
                    Some(values) => test.is_true(values).map(Some),
                    None => Ok(None),
                }
            }
            Criterion::Errors(if_none) => Ok(Some(*if_none).filter(|_| !facts.has_errors)),
            Criterion::Left => Ok(None),
        }
    }

    /// Whether what bodies mention is needed.
    fn mentions(&self) -> bool {
        match self {
            Criterion::And(tests) | Criterion::Or(tests) => tests.iter().any(Criterion::mentions),
            Criterion::Not(test) => test.mentions(),
            test => matches!(test, Criterion::Mentions(_) | Criterion::Values(_)),
        }
    }
}

/// Whether all tests have this result. The opposite of one decides.
fn all(
    several: &[Criterion],
    facts: &Facts<'_>,
    tests: &mut Tests,
    result: bool,
) -> Result<Option<bool>, Odd> {
    let mut all = Some(result);
    for test in several {
        match test.is_true(facts, tests)? {
            None => all = None,
            Some(each) if each != result => return Ok(Some(each)),
            Some(_) => (),
        }
    }
    Ok(all)
}

impl Default for Criteria {
    /// All exchanges are selected.
    fn default() -> Self {
        Criteria {
            of_header: Criterion::And(Vec::new()),
            of_bodies: Criterion::And(Vec::new()),
            tests: Tests::default(),
            mentions: Box::new(|_, _| None),
            topic_name: Box::new(|_, _| None),
            notes_ids: false,
            times_ns: i64::MIN..i64::MAX,
            of_records: false,
            budget: i64::MAX,
            splitters: None,
            places: BTreeMap::new(),
            has_match: false,
        }
    }
}

impl Criteria {
    /// When an exchange was seen, as `record_time_ns` in kdissect/exchanges/content.py if `of_records`.
    pub fn time_ns(&self, candidate: &Candidate<'_>) -> i64 {
        match candidate.response {
            Some(response) if self.of_records && candidate.header.api_key != PRODUCE => response.end_ns,
            _ => candidate.request.end_ns,
        }
    }

    /// What an exchange is. Odd: Python must decide. It has no effect but notes of names.
    pub fn decide(&mut self, candidate: &Candidate<'_>) -> Result<Decision, Odd> {
        let mut facts = Facts {
            candidate,
            mentioned: None,
            has_errors: true,
            parts: None,
        };
        let header = match self.times_ns.contains(&self.time_ns(candidate)) {
            true => self.of_header.is_true(&facts, &mut self.tests)?,
            false => Some(false),
        };
        let mut mentioned = None;
        let mut split = None;
        if self.splitters.is_some() {
            let mentions = self.known_mentions(candidate.header);
            let mut bodies = None;
            mentioned = Some(self.find(candidate, &mentions, &mut bodies, true)?);
            split = self.split(candidate, &mentions, &bodies)?;
            let parts = split.as_ref().map_or([None; 6], |(parts, _)| {
                let [queued, throttled, network, wait, service] = parts.all();
                [queued, throttled, network, wait, service, parts.think_us]
            });
            facts.parts = Some(parts);
        }
        let mut known = match header {
            Some(true) => self.test_bodies(&Facts {
                mentioned: mentioned.as_ref(),
                ..facts
            })?,
            _ => header,
        };
        let is_open = header == Some(true) && known.is_none();
        let notes_names = !self.has_match && self.tests.of_names.iter().any(|each| each.is_noted);
        let notes_ids = self.notes_ids && header == Some(true);
        if mentioned.is_some() {
            // it is all known
        } else if notes_names || notes_ids || (is_open && self.of_bodies.mentions()) {
            let mentions = self.known_mentions(candidate.header);
            let has_ids = || mentions.as_ref().is_none_or(|each| each.has_ids());
            let needs_all = notes_names || (notes_ids && has_ids());
            let needs_response = self.needs_response(&mentions);
            let mut request = None; // decoded
            if is_open && !needs_all && !needs_response {
                mentioned = self.find(candidate, &mentions, &mut request, false).ok();
                let mentioned = mentioned.as_ref();
                known = self.test_bodies(&Facts { mentioned, ..facts })?;
            }
            if needs_all || (is_open && known.is_none()) {
                mentioned = match self.find(candidate, &mentions, &mut request, true) {
                    Err(odd) if needs_all => return Err(odd),
                    found => found.ok(),
                };
            }
        }
        for each in self.tests.of_names.iter_mut().filter(|_| notes_names) {
            mentioned.as_ref().map(|found| each.is_true(found)).transpose()?;
        }
        let mut leaves_errors = false;
        for has_errors in [true, false] {
            if is_open && known.is_none() {
                leaves_errors = !has_errors;
                let mentioned = mentioned.as_ref();
                known = self.test_bodies(&Facts {
                    mentioned,
                    has_errors,
                    ..facts
                })?;
            }
        }
        Ok(Decision {
            is_selected: known.ok_or_else(|| Why::Condition.odd())?,
            leaves_errors,
            unnamed: mentioned
                .filter(|_| notes_ids)
                .map_or(Vec::new(), |found| found.unnamed),
            split,
        })
    }

    /// Splits the latency of an exchange; None: it has no response. `bodies`: decoded as `Mentions` say.
    fn split(
        &mut self,
        candidate: &Candidate<'_>,
        mentions: &KnownMentions,
        bodies: &Option<Decoded<'_>>,
    ) -> Result<Option<(Parts, Change)>, Odd> {
        let (Some(splitters), Some(response)) = (&mut self.splitters, candidate.response) else {
            return Ok(None);
        };
        let pace = mentions.as_ref().and_then(|mentions| mentions.pace.as_ref());
        let (pace, bodies) = pace.zip(bodies.as_ref()).ok_or(Odd)?;
        let exchange = Paced {
            api_key: candidate.header.api_key,
            request: candidate.request,
            response,
            is_fetch: pace.is_fetch,
            is_recent: pace.is_recent,
            names: &pace.names,
        };
        let (splitter, plan) = splitters.get(candidate.info.ok_or(Odd)?)?;
        splitter.parts(plan, &exchange, bodies).map(Some)
    }

    /// Whether what a request mentions cannot decide.
    fn needs_response(&self, mentions: &KnownMentions) -> bool {
        let is_in_response = |source: &Source| match source {
            Source::Field(place) => {
                let path = mentions.as_ref().and_then(|mentions| mentions.fields.get(*place));
                path.is_some_and(|path| path.as_ref().is_some_and(|path| !path.of_request))
            }
            Source::Mention(kind) => matches!(kind, Mention::Topic | Mention::Topics),
            Source::Number(_) => false,
        };
        let mut sources = self.tests.of_values.iter().flat_map(|test| &test.sources);
        self.tests.of_names.iter().any(NameTest::needs_response) || sources.any(is_in_response)
    }

    fn test_bodies(&mut self, facts: &Facts<'_>) -> Result<Option<bool>, Odd> {
        self.of_bodies.is_true(facts, &mut self.tests)
    }

    fn known_mentions(&mut self, header: &Header) -> Option<Arc<Mentions>> {
        let (api_key, api_version) = (header.api_key, header.api_version);
        let known = self.places.entry((api_key, api_version));
        known
            .or_insert_with(|| (self.mentions)(api_key, api_version))
            .clone()
    }

    /// What bodies mention; most requests mention all that decides, so the response can wait. Leaves the decoded
    /// request in `decoded` for the response.
    fn find<'a>(
        &self,
        candidate: &Candidate<'a>,
        mentions: &Option<Arc<Mentions>>,
        decoded: &mut Option<Decoded<'a>>,
        in_response: bool,
    ) -> Result<Mentioned, Odd> {
        let mentions = mentions.as_ref().ok_or_else(|| Why::Layout.odd())?;
        let has_response = candidate.response.is_some() && mentions.are_in_response();
        let response = candidate.response.filter(|_| in_response && has_response);
        if response.is_none() && !mentions.are_in_request() {
            return Ok(mentions.nothing(has_response && !in_response));
        }
        guarded(|| {
            let mut bodies = match decoded.take() {
                Some(request) => request,
                None => {
                    let body = candidate.request.data.get(candidate.header.body_pos..);
                    mentions
                        .ids
                        .bodies
                        .decoded_request(body.ok_or(Odd)?, self.budget)?
                }
            };
            if let Some(response) = response {
                let frame = (response, &mentions.tags[..]);
                let both = &mentions.ids.bodies;
                candidate
                    .header
                    .add_response(both, &mut bodies, frame, self.budget)?;
            }
            let topic_name = |id: &str| (self.topic_name)(id, candidate.completed_ns);
            let found = mentions.find(&bodies, &topic_name, has_response && !in_response)?;
            *decoded = Some(bodies);
            Ok(found)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn frame(size: usize, start_ns: i64, end_ns: i64) -> Frame {
        Frame {
            data: Vec::new(),
            size,
            packet: 1,
            interface: 0,
            start_ns,
            end_ns,
        }
    }

    const HEADER: Header = Header {
        api_key: 3,
        api_version: 1,
        correlation_id: 7,
        client_id: None,
        body_pos: 0,
        is_needed: true,
    };

    /// Of an exchange with a response, and of one without.
    fn decisions(mut conditions: Criteria) -> [Result<Decision, Odd>; 2] {
        let (request, response) = (frame(10, 90, 100), frame(20, 150, 160));
        [Some(&response), None].map(|response| {
            conditions.decide(&Candidate {
                number: 5,
                header: &HEADER,
                request: &request,
                response,
                completed_ns: 160,
                of_client: 0b10,
                info: None,
            })
        })
    }

    fn of_header(test: Criterion) -> Criteria {
        Criteria {
            of_header: test,
            ..Criteria::default()
        }
    }

    fn are_selected(conditions: Criteria) -> [bool; 2] {
        decisions(conditions).map(|decision| decision.unwrap().is_selected)
    }

    #[test]
    fn records_have_the_time_of_the_message_that_carries_them() {
        let (request, response) = (frame(10, 90, 100), frame(20, 150, 160));
        let time_ns = |of_records, api_key, response| {
            let header = &Header { api_key, ..HEADER };
            let criteria = Criteria {
                of_records,
                ..Criteria::default()
            };
            criteria.time_ns(&Candidate {
                number: 5,
                header,
                request: &request,
                response,
                completed_ns: 160,
                of_client: 0,
                info: None,
            })
        };
        for (of_records, expected) in [(false, [100, 100]), (true, [100, 160])] {
            assert_eq!(
                [PRODUCE, 1].map(|api_key| time_ns(of_records, api_key, Some(&response))),
                expected
            );
            assert_eq!(time_ns(of_records, 1, None), 100);
        }
    }

    #[test]
    fn bounds_are_those_of_python() {
        assert_eq!(are_selected(Criteria::default()), [true, true]);
        for (times_ns, is_inside) in [(100..101, true), (101..200, false), (0..100, false)] {
            let conditions = Criteria {
                times_ns,
                ..Criteria::default()
            };
            assert_eq!(are_selected(conditions), [is_inside; 2]);
        }
        for (number, range, if_absent, expected) in [
            (Number::LatencyNs, (50, 99), false, [true, false]),
            (Number::LatencyNs, (51, 99), true, [false, true]),
            (Number::LatencyUs, (0, 0), false, [true, false]),
            (Number::RequestBytes, (14, 14), false, [true, true]),
            (Number::ResponseBytes, (15, 24), false, [true, false]),
            (Number::Number, (5, 5), false, [true, true]),
            (Number::TimeNs, (100, 100), false, [true, true]),
            (Number::CorrelationId, (8, 9), false, [false, false]),
        ] {
            let test = Criterion::Number(number, vec![(-9, -8), range], if_absent);
            assert_eq!(are_selected(of_header(test)), expected, "{number:?}");
        }
    }

    #[test]
    fn what_is_unknown_is_left_unless_it_does_not_matter() {
        let bit = Criterion::OfClient;
        for (test, expected) in [
            (Criterion::And(vec![Criterion::Left, bit(0)]), Some(false)),
            (Criterion::And(vec![Criterion::Left, bit(1)]), None),
            (Criterion::Or(vec![Criterion::Left, bit(1)]), Some(true)),
            (Criterion::Or(vec![Criterion::Left, bit(0)]), None),
            (Criterion::Not(Box::new(Criterion::Left)), None),
            (Criterion::Not(Box::new(bit(0))), Some(true)),
        ] {
            let [decision, _] = decisions(of_header(test));
            assert_eq!(decision.ok().map(|each| each.is_selected), expected);
        }
    }

    #[test]
    fn errors_are_left_if_they_decide() {
        let decided = |test| {
            let [decision, _] = decisions(Criteria {
                of_bodies: test,
                ..Criteria::default()
            });
            decision.map(|each| (each.is_selected, each.leaves_errors))
        };
        assert_eq!(decided(Criterion::Errors(false)), Ok((false, true)));
        assert_eq!(decided(Criterion::Errors(true)), Ok((true, true)));
        let and = |test| Criterion::And(vec![Criterion::Errors(true), test]);
        assert_eq!(decided(and(Criterion::OfClient(0))), Ok((false, false)));
        assert_eq!(decided(and(Criterion::OfClient(1))), Ok((true, true)));
        assert!(decided(and(Criterion::Left)).is_err());
    }

    #[test]
    fn a_latency_that_no_number_holds_is_odd() {
        let (request, response) = (frame(1, 0, i64::MIN), frame(1, i64::MAX, i64::MAX));
        let test = Criterion::Number(Number::LatencyNs, Vec::new(), false);
        let decision = of_header(test).decide(&Candidate {
            number: 1,
            header: &HEADER,
            request: &request,
            response: Some(&response),
            completed_ns: 0,
            of_client: 0,
            info: None,
        });
        assert_eq!(decision, Err(Odd));
    }

    #[test]
    fn a_name_that_excludes_outweighs_those_that_select() {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        let classify: Classify = Box::new(|name, _, _| {
            CALLS.fetch_add(1, Ordering::Relaxed);
            Ok(match name {
                "no" => Vote::Excluded,
                "yes" => Vote::Selected,
                _ => Vote::Nothing,
            })
        });
        let mut name_tests = NameTest::new(Mention::Group, classify, (false, true), false);
        let mut is_true = |groups: &[&str]| {
            let groups = groups.iter().map(|group| (*group).to_owned()).collect();
            let mentioned = Mentioned {
                groups,
                ..Mentioned::default()
            };
            name_tests.is_true(&mentioned).unwrap().unwrap()
        };
        assert!(is_true(&["other", "yes"]));
        assert!(!is_true(&["yes", "no"]));
        assert!(!is_true(&["other"]) && !is_true(&[]));
        assert_eq!(CALLS.load(Ordering::Relaxed), 3);
        let long = "x".repeat(VOTE_BYTES + 1);
        assert!(!is_true(&[&long]) && !is_true(&[&long]));
        assert_eq!(CALLS.load(Ordering::Relaxed), 5);
        let many: Vec<String> = (0..2 * VOTES).map(|number| number.to_string()).collect();
        is_true(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(name_tests.known.values().map(HashMap::len).sum::<usize>() <= VOTES);
    }

    #[test]
    fn a_name_with_an_id_is_another_than_without() {
        let classify: Classify = Box::new(|name, id, number| {
            Ok(match (name, id, number) {
                ("name", Some("id"), Some(3)) => Vote::Selected,
                _ => Vote::Nothing,
            })
        });
        let mut test = NameTest::new(Mention::Partition, classify, (false, false), false);
        for _ in 0..2 {
            assert_eq!(test.vote("name", Some("id"), Some(3)), Ok(Vote::Selected));
            assert_eq!(test.vote("name", None, Some(3)), Ok(Vote::Nothing));
            assert_eq!(test.vote("id", None, Some(3)), Ok(Vote::Nothing));
            assert_eq!(test.vote("name", Some("id"), Some(4)), Ok(Vote::Nothing));
        }
    }

    #[test]
    fn a_request_alone_decides_if_nothing_can_exclude() {
        for (kind, may_exclude, expected) in [
            (Mention::Topic, false, [Some(true), None]),
            (Mention::Topic, true, [None, None]),
            (Mention::Group, true, [Some(true), Some(false)]),
        ] {
            let classify: Classify = Box::new(|name, _, _| {
                Ok(match name {
                    "yes" => Vote::Selected,
                    _ => Vote::Nothing,
                })
            });
            let mut test = NameTest::new(kind, classify, (false, may_exclude), false);
            let is_true = ["yes", "other"].map(|name| {
                let mentioned = Mentioned {
                    topics: vec![name.to_owned()],
                    groups: vec![name.to_owned()],
                    is_partial: true,
                    ..Mentioned::default()
                };
                test.is_true(&mentioned).unwrap()
            });
            assert_eq!(is_true, expected, "{kind:?}");
        }
    }
}
