//! The next exchanges of the queue -> those that wait for the names of topics, and the topic IDs in them.

use pyo3::prelude::*;
use pyo3::types::PyList;

use super::asking::Callbacks;
use super::Lending;
use crate::exchanges::connection::{Finished, Message, Order, Outcome, Request};
use crate::exchanges::topic_names::{TopicIds, TopicRefs};
use crate::python::handle::Object;
use crate::python::line::{BodiesForm, Names, TopicStructForms};
use crate::{guarded, Odd};

/// Topic IDs in a run of exchanges that wait for names: each is compared with all.
const RUN_IDS: usize = 256;

/// See `wait`.
pub(super) type PyWaits<'py> = (
    usize,
    usize,
    i64,
    Option<(Vec<String>, Vec<(String, String)>)>,
    Option<Bound<'py, PyAny>>,
    Vec<PyPart<'py>>,
);

/// Exchanges that wait, as `wait` returns them: several only if they have no topic IDs.
type PyPart<'py> = (usize, usize, i64, Bound<'py, PyList>);

/// `TopicIdPlan` of kdissect/exchanges/undecoded.py.
#[derive(FromPyObject)]
struct TopicIdPlan<'py> {
    bodies: Option<BodiesForm<'py>>,
    structs: (TopicStructForms, TopicStructForms),
    tags: Vec<u8>,
}

/// Where topic IDs are in exchanges of an API in one version.
pub(super) enum Ids {
    Nowhere,
    /// Python finds them.
    Python,
    /// And the bytes after the correlation ID of a response.
    Here(Box<TopicIds>, Vec<u8>),
}

impl Ids {
    fn of(py: Python<'_>, python: &Callbacks, api: (i16, i16)) -> Self {
        let plan = || -> PyResult<Option<Ids>> {
            let plan: Option<TopicIdPlan<'_>> = python.topic_ids.bind(py).call1(api)?.extract()?;
            Ok(match plan {
                None => Some(Ids::Nowhere),
                Some(TopicIdPlan {
                    bodies,
                    structs,
                    tags,
                }) => match bodies {
                    Some(bodies) => Some(Ids::Here(
                        Names::default().topic_ids(bodies, structs)?.into(),
                        tags,
                    )),
                    None => None,
                },
            })
        };
        plan().ok().flatten().unwrap_or(Ids::Python)
    }

    /// Odd: Python finds them.
    fn refs(&self, finished: &Finished<Object>, budget: i64) -> Result<TopicRefs, Odd> {
        let (ids, tags, header, request) = match (self, &finished.request.message) {
            (Ids::Nowhere, _) => return Ok(TopicRefs::default()),
            (Ids::Here(ids, tags), Message::Frame(header, request)) => (ids, tags, header, request),
            _ => return Err(Odd),
        };
        let request = request.data.get(header.body_pos..).ok_or(Odd)?;
        let response = match &finished.outcome {
            Outcome::Answered(frame) => Some(frame.response_body(tags)?),
            _ => None,
        };
        guarded(|| ids.refs(request, response, budget))
    }
}

impl Lending {
    /// See `wait`.
    pub(super) fn wait_for_names<'py>(
        &mut self,
        py: Python<'py>,
        before: Order,
        max_exchanges: usize,
        room: (i64, i64),
        budget: i64,
    ) -> PyResult<Option<PyWaits<'py>>> {
        let max_exchanges = max_exchanges.min(usize::try_from(room.0).unwrap_or(0));
        let max_bytes = usize::try_from(room.1).unwrap_or(0);
        let (mut exchanges, mut bytes, mut completed_ns) = (0, 0, i64::MIN);
        let mut ids: Vec<String> = Vec::new();
        let mut parts: Vec<PyPart<'py>> = Vec::new();
        while let Some(finished) = self.queue.first(before) {
            let (size, time_ns) = (finished.held(), finished.order().0);
            let of_api = match &finished.request.message {
                Message::Frame(header, _) => self
                    .topic_ids
                    .entry((header.api_key, header.api_version))
                    .or_insert_with_key(|api| Ids::of(py, &self.python, *api)),
                Message::Object(_) => &Ids::Python,
            };
            let refs = of_api.refs(finished, budget);
            let may_join =
                |refs: &TopicRefs| refs.learned.is_empty() && ids.len() + refs.ids.len() <= RUN_IDS;
            let is_alone = !refs.as_ref().is_ok_and(may_join)
                || exchanges >= max_exchanges
                || bytes + size > max_bytes
                || time_ns < completed_ns;
            if is_alone && exchanges > 0 {
                break;
            }
            let copied = refs.is_err().then(|| copy(py, finished));
            self.hold(before);
            (exchanges, bytes, completed_ns) = (exchanges + 1, bytes + size, time_ns);
            if is_alone {
                let copied = match copied {
                    Some(copied) => Some(self.finish(py, copied)?.get_item(2)?),
                    None => None,
                };
                let refs = refs.ok().map(|refs| (refs.ids, refs.learned));
                return Ok(Some((exchanges, bytes, completed_ns, refs, copied, Vec::new())));
            }
            let own = refs.map(|refs| refs.ids).unwrap_or_default();
            for id in &own {
                if !ids.contains(id) {
                    ids.push(id.clone());
                }
            }
            match parts.last_mut() {
                Some((count, of_part, until_ns, before)) if own.is_empty() && before.is_empty() => {
                    (*count, *of_part, *until_ns) = (*count + 1, *of_part + size, time_ns);
                }
                _ => parts.push((1, size, time_ns, PyList::new(py, own)?)),
            }
        }
        if parts.len() == 1 {
            parts.clear();
        }
        let refs = (!ids.is_empty()).then_some((ids, Vec::new()));
        Ok((exchanges > 0).then_some((exchanges, bytes, completed_ns, refs, None, parts)))
    }
}

/// The same exchange, of which Python gets an object that it does not keep.
fn copy(py: Python<'_>, finished: &Finished<Object>) -> Finished<Object> {
    let message = match &finished.request.message {
        Message::Frame(header, frame) => Message::Frame(header.clone(), frame.clone()),
        Message::Object(exchange) => Message::Object(exchange.clone_ref(py)),
    };
    Finished {
        slot: finished.slot,
        number: finished.number,
        request: Request {
            message,
            ..finished.request
        },
        outcome: finished.outcome.clone(),
    }
}
