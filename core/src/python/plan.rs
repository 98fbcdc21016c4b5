//! `CorePlan` of kdissect/sinks/plan.py -> a [`Sink`], and which exchanges are selected.

use std::sync::Arc;

use pyo3::call::PyCallArgs;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use pyo3::IntoPyObjectExt;

use crate::exchanges::connection::Frame;
use crate::exchanges::content::Row;
use crate::exchanges::fetch_sessions::Session;
use crate::exchanges::guarded::ProtocolNames;
use crate::exchanges::values::Given;
use crate::kafka::records::Bounds;
use crate::kafka::tree::Decoded;
use crate::python::columns::push;
use crate::python::handle::{answer, Object};
use crate::python::line::{followed, PyLine};
use crate::python::row::{MentionsPlan, PyRow};
use crate::python::state::{MemoryState, NamedPosition};
use crate::sinks::cells::Content;
use crate::sinks::clock::{Since, TimeFormat};
use crate::sinks::columns::Column;
use crate::sinks::conditions::{Criteria, Criterion, Decision, NameTest, Tests, Vote};
use crate::sinks::connection_log::Log;
use crate::sinks::facts::{
    Answered, Api, Captures, CommonPlan, Constant, Constants, Framed, Handle, Known, Learn,
};
use crate::sinks::handed::{Handed, TallyDetail};
use crate::sinks::lines::{Described, Follow, LinePlan, Lines};
use crate::sinks::records::{
    Payloads, RecordContent, RecordFormat, RecordPlace, RecordPlan, RecordTable, RecordWriter, Selects,
    Writer,
};
use crate::sinks::rejections::Rejections;
use crate::sinks::rows::{RowFormat, RowPlan, Rows};
use crate::sinks::sink::Sink;
use crate::sinks::splitters::{MemoryPlan, Splitters};
use crate::sinks::table_form::TableForm;
use crate::sinks::table_rows::Table;
use crate::sinks::tallies::{Tallies, TallyPlan};
use crate::sinks::value_tests::{Mention, Number, Source, ValueTest};
use crate::sinks::whole::{EventRow, Events, Whole, WholePlan};
use crate::Odd;

pub struct Plan {
    pub sink: Box<dyn Sink>,
    pub receivers: Receivers,
    pub conditions: Option<Conditions>,
}

/// Functions of Python that take what a sink hands over.
#[derive(Default)]
pub struct Receivers {
    connection: Option<Object>,
    alive: Option<Object>,
    brokers: Option<Object>,
    events: Option<Object>,
    carried: Option<Object>,
    tally: Option<Object>,
    one: Option<Object>,
    slow: Option<Object>,
    memory: Option<Object>,
    times: Option<Object>,
}

/// `Conditions` of kdissect/sinks/plan.py.
pub struct Conditions {
    pub criteria: Criteria,
    /// Function: connection, identity, whether it is answered, API key and version, client ID -> results as bits.
    pub of_client: Object,
    /// Function: takes topic IDs without a name. None: it is not needed.
    note_ids: Option<Object>,
    /// Function: takes the times in `NotedTimes`. None: there is no range of times.
    note_times: Option<Object>,
    noted: NotedTimes,
    /// Takes what connections remember.
    receivers: Receivers,
}

/// When requests ended that are outside the range of times, and whether any is inside.
#[derive(Default)]
struct NotedTimes {
    outside_ns: Option<(i64, i64)>,
    is_any_inside: bool,
}

impl Conditions {
    /// Notes when a request ended.
    pub fn note_time(&mut self, time_ns: i64) {
        if self.note_times.is_none() {
            return;
        }
        let noted = &mut self.noted;
        if self.criteria.times_ns.contains(&time_ns) {
            noted.is_any_inside = true;
        } else {
            let (first_ns, last_ns) = noted.outside_ns.unwrap_or((time_ns, time_ns));
            noted.outside_ns = Some((first_ns.min(time_ns), last_ns.max(time_ns)));
        }
    }

    /// Notes what was decided of an exchange that the sink has taken.
    pub fn note(&mut self, py: Python<'_>, info: Option<&Handle>, decision: Decision) {
        self.criteria.has_match |= decision.is_selected;
        if let (Some((_, change)), Some(splitters), Some(info)) =
            (decision.split, &mut self.criteria.splitters, info)
        {
            splitters.note(info, &change);
        }
        if let (Some(note), false) = (&self.note_ids, decision.unnamed.is_empty()) {
            let noted = note.bind(py).call1((decision.unnamed,));
            debug_assert!(noted.is_ok());
        }
    }

    /// See [`Splitters::leave`].
    pub fn leave(&mut self, info: &Handle) {
        if let Some(splitters) = &mut self.criteria.splitters {
            splitters.leave(info);
        }
    }

    /// See [`Splitters::must_give_back`].
    pub fn must_give_back(&self) -> bool {
        let splitters = self.criteria.splitters.as_ref();
        splitters.is_some_and(Splitters::must_give_back)
    }

    /// See [`Splitters::give_back`].
    pub fn give_back(&mut self, py: Python<'_>) -> PyResult<()> {
        if let Some(splitters) = &mut self.criteria.splitters {
            let handed = splitters.give_back().map(Handed::Memory).collect();
            self.receivers.give(py, handed)?;
        }
        Ok(())
    }

    /// Passes on what was noted.
    pub fn pass_on(&mut self, py: Python<'_>) -> PyResult<()> {
        let noted = std::mem::take(&mut self.noted);
        match &self.note_times {
            Some(note) if noted.is_any_inside || noted.outside_ns.is_some() => note
                .bind(py)
                .call1((noted.outside_ns, noted.is_any_inside))
                .map(drop),
            _ => Ok(()),
        }
    }
}

impl Receivers {
    /// Calls them, in this order.
    pub fn give(&self, py: Python<'_>, handed: Vec<Handed>) -> PyResult<()> {
        handed.into_iter().try_for_each(|each| self.give_one(py, each))
    }

    fn give_one(&self, py: Python<'_>, handed: Handed) -> PyResult<()> {
        match handed {
            Handed::Connection(counted) => {
                let times = (counted.first_ns, counted.last_ns);
                let arguments = (
                    counted.info,
                    counted.interface,
                    counted.identity,
                    counted.client_id,
                    (counted.exchanges, counted.served, counted.unacknowledged),
                    counted.is_selected,
                    counted.bytes,
                    times,
                    counted.last_call,
                    counted.waited,
                    counted.is_refused,
                );
                give_to(py, &self.connection, arguments)
            }
            Handed::Alive(each) => {
                let arguments = (each.info, each.group, each.member, each.last_ns);
                give_to(py, &self.alive, arguments)
            }
            Handed::Brokers(named) => {
                let nodes = named.nodes.into_iter();
                let nodes = nodes.map(|each| (each.node, each.first, each.last_ns, each.rack));
                let nodes: Vec<_> = nodes.collect();
                let arguments = (named.info, named.is_selected, named.advertised, nodes);
                give_to(py, &self.brokers, arguments)
            }
            Handed::Events(events) => give_to(py, &self.events, (events,)),
            Handed::Carried(each) => {
                let arguments = (
                    (each.info, each.number, each.exchanges),
                    each.text,
                    (each.completed_ns, each.time_ns, each.bytes),
                    each.topic_ids,
                    each.produced,
                    each.fetched,
                    (each.rows, each.rows_bytes),
                    each.whole,
                );
                give_to(py, &self.carried, arguments)
            }
            Handed::Times(passed) => {
                let arguments = (passed.unwritten_ns, passed.shown_ns, passed.seen_ns);
                give_to(py, &self.times, arguments)
            }
            Handed::Memory((info, memory)) => give_to(py, &self.memory, (info, MemoryState::of(memory))),
            Handed::Slow(ranked) => {
                let (rank, slow) = *ranked;
                let arguments = (
                    rank,
                    (slow.info, slow.api_key, slow.client_id, slow.number),
                    (slow.time_ns, slow.latency_us, slow.total_us, slow.parts),
                    slow.topics,
                );
                give_to(py, &self.slow, arguments)
            }
            Handed::One(exchange) => give_to(py, &self.one, (exchange,)),
            Handed::Tally(tally) => {
                let counted = (tally.common, tally.times, tally.latencies);
                match tally.detail {
                    TallyDetail::Writes(acks, topics, producers) => {
                        give_to(py, &self.tally, (counted, (acks, topics, producers)))
                    }
                    TallyDetail::Reads(kind, max_wait_ms, noted, polls, topics) => give_to(
                        py,
                        &self.tally,
                        (counted, (kind, max_wait_ms, *noted, polls, topics)),
                    ),
                    TallyDetail::Alive(member, last, completed_ns) => {
                        give_to(py, &self.tally, (counted, (member, last, completed_ns)))
                    }
                    TallyDetail::Commits(member, last, completed_ns, topics) => {
                        give_to(py, &self.tally, (counted, (member, last, completed_ns, topics)))
                    }
                    TallyDetail::Offsets(topics) => give_to(py, &self.tally, (counted, (topics,))),
                    TallyDetail::Alike(content, completed, last) => {
                        give_to(py, &self.tally, (counted, (content, completed, last)))
                    }
                    TallyDetail::Versions(apis, completed) => {
                        give_to(py, &self.tally, (counted, (apis, completed)))
                    }
                }
            }
        }
    }
}

fn give_to<'py>(py: Python<'py>, receiver: &Option<Object>, arguments: impl PyCallArgs<'py>) -> PyResult<()> {
    match receiver {
        Some(receiver) => receiver.bind(py).call1(arguments).map(drop),
        None => Ok(()), // this plan hands over nothing of the kind
    }
}

/// A function of Python.
#[derive(FromPyObject)]
#[pyo3(transparent)]
struct Function(Object);

impl Function {
    /// Odd: it raised, or did not return what is expected.
    fn call<'py, R>(&self, py: Python<'py>, arguments: impl PyCallArgs<'py>) -> Result<R, Odd>
    where
        R: for<'a> FromPyObject<'a, 'py>,
    {
        answer(py, &self.0, arguments).ok_or(Odd)
    }
}

impl<'py> FromPyObject<'_, 'py> for Plan {
    type Error = PyErr;

    fn extract(plan: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let output = plan.getattr("output")?;
        let kind = output.get_type().name()?;
        let mut receivers = Receivers::default();
        let sink: Box<dyn Sink> = match kind.to_cow()?.as_ref() {
            "LinePlan" => Box::new(Lines::new(line_plan(&output, &mut receivers)?)),
            "RecordPlan" => Box::new(RecordWriter::new(
                record_plan(&output, &mut receivers)?,
                partition_test(get(&output, "is_partition")?),
            )),
            "RowPlan" => Box::new(Rows::new(row_plan(&output, &mut receivers)?)),
            "TallyPlan" => Box::new(Tallies::new(
                tally_plan(&output, &mut receivers)?,
                partition_test(get(&output, "is_partition")?),
            )),
            kind => return Err(PyTypeError::new_err(format!("no sink for a {kind}"))),
        };
        let conditions = plan.getattr("conditions")?.extract()?;
        Ok(Plan {
            sink,
            receivers,
            conditions,
        })
    }
}

fn get<'py, T>(plan: &Bound<'py, PyAny>, name: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    plan.getattr(name)?.extract().map_err(Into::into)
}

/// `api`: makes what describes the bodies of an API out of what Python returns.
fn common_plan<T>(
    plan: &Bound<'_, PyAny>,
    api: impl Fn(Python<'_>, (i16, i16), &Function) -> Option<Api<T>> + Send + Sync + 'static,
) -> PyResult<CommonPlan<T>> {
    let plan = &plan.getattr("common")?;
    let function = |name| get::<Function>(plan, name);
    let (shared, of_api, error) = (function("shared")?, function("api")?, function("error")?);
    let (topic_name, learn_name) = (function("topic_name")?, function("learn_name")?);
    let around = function("around")?;
    Ok(CommonPlan {
        shared: Box::new(move |known: &dyn Known| {
            Python::attach(|py| shared.call(py, (known.info()?, known.identity().each_ref())))
        }),
        api: Box::new(move |api_key, api_version| {
            Python::attach(|py| api(py, (api_key, api_version), &of_api))
        }),
        error: Box::new(move |code| Python::attach(|py| error.call(py, (code,)))),
        topic_name: Box::new(move |id, completed_ns| {
            Python::attach(|py| topic_name.call::<Option<String>>(py, (id, completed_ns)).ok()?)
        }),
        learn_name: Box::new(move |id, name| {
            Python::attach(|py| learn_name.call::<Bound<'_, PyAny>>(py, (id, name)).map(drop))
        }),
        around: Box::new(move |second| Python::attach(|py| around.call(py, (second,)))),
        budget: get(plan, "budget")?,
        leaves_flaws: get(plan, "leaves_flaws")?,
    })
}

/// `TimeFormat` of a plan.
fn time_format(plan: &Bound<'_, PyAny>) -> PyResult<TimeFormat> {
    let format = plan.getattr("times")?;
    let (name, first_ns): (String, i64) = (get(&format, "since")?, get(&format, "first_ns")?);
    Ok(TimeFormat {
        digits: get(&format, "digits")?,
        width: get(&format, "width")?,
        since: Since::named(&name, first_ns).ok_or_else(|| PyValueError::new_err(name))?,
    })
}

fn line_plan(plan: &Bound<'_, PyAny>, receivers: &mut Receivers) -> PyResult<LinePlan> {
    receivers.times = Some(get(plan, "pass_times")?);
    let (client, unanswered): (Function, Function) = (get(plan, "client")?, get(plan, "unanswered")?);
    let follow: Arc<Function> = Arc::new(get(plan, "follow")?);
    let api = move |py: Python<'_>, place: (i16, i16), of_api: &Function| {
        let known: Option<(Py<PyLine>, Vec<u8>, Constants)> = of_api.call(py, place).ok()?;
        let (described, tags, texts) = known?;
        let line = described.get().line.clone();
        let (follow, has_groups) = (follow.clone(), described.get().followed.is_some());
        let follow: Option<Follow> = has_groups.then(|| {
            Box::new(move |known: &dyn Known, decoded: &Decoded<'_>| {
                Python::attach(|py| {
                    let kept = described.get().followed.as_ref().ok_or(Odd)?;
                    let (request, response) = followed(py, decoded, kept)?;
                    let arguments = (known.info()?, place.0, request, response);
                    match follow.call(py, arguments)? {
                        true => Ok(()),
                        false => Err(Odd),
                    }
                })
            }) as Follow
        });
        Some((Described { line, follow }, tags, texts))
    };
    Ok(LinePlan {
        common: common_plan(plan, api)?,
        times: time_format(plan)?,
        gap: get(plan, "gap")?,
        width: get(plan, "width")?,
        client: Box::new(move |id| Python::attach(|py| client.call(py, (id,)))),
        rejections: rejections(plan)?,
        unacknowledged: get(plan, "unacknowledged")?,
        unanswered: Box::new(move |exchange| {
            let (header, request) = (exchange.header, exchange.request);
            Python::attach(|py| {
                let data = PyBytes::new(py, &request.data);
                let times = (request.end_ns, exchange.completed_ns);
                let arguments = (header.api_key, header.api_version, data, times, exchange.ended);
                unanswered.call(py, arguments)
            })
        }),
        followed: get(plan, "followed")?,
        ends: get(plan, "ends")?,
    })
}

fn row_api(py: Python<'_>, place: (i16, i16), of_api: &Function) -> Option<Api<Arc<Row>>> {
    let known: Option<(Py<PyRow>, Vec<u8>, Constants)> = of_api.call(py, place).ok()?;
    known.map(|(row, tags, texts)| (row.get().0.clone(), tags, texts))
}

/// Name of the table; the content of its columns, each with an index if there are several; where its rows go; rows
/// and bytes at which it is full.
type PlannedTable = (String, Vec<(String, usize)>, TableForm, (usize, usize));

fn row_plan(plan: &Bound<'_, PyAny>, receivers: &mut Receivers) -> PyResult<RowPlan> {
    let unknown = |name: &str| PyValueError::new_err(name.to_owned());
    let columns: Vec<(String, (String, usize))> = get(plan, "columns")?;
    let columns = columns.into_iter().map(|(before, (name, which))| {
        let content = Content::named(&name, which).ok_or_else(|| unknown(&name))?;
        Ok::<_, PyErr>((before, content))
    });
    let tables: Vec<PlannedTable> = get(plan, "tables")?;
    let tables = tables.into_iter().map(|(name, contents, form, full)| {
        Table::new(&name, &contents, form, full).ok_or_else(|| unknown(&name))
    });
    let expected: Function = get(plan, "expected")?;
    let (follow, is_secret): (Function, Function) = (get(plan, "follow")?, get(plan, "is_secret")?);
    let format: String = get(plan, "format")?;
    let log: Option<Bound<'_, PyAny>> = get(plan, "log")?;
    let whole: Option<Bound<'_, PyAny>> = get(plan, "whole")?;
    let memory: Option<Bound<'_, PyAny>> = get(plan, "memory")?;
    let records: Option<(Bound<'_, PyAny>, TableForm)> = get(plan, "records")?;
    let records = records.map(|(records, form)| {
        let test = partition_test(get(&records, "is_partition")?);
        let writer = Writer::new(record_plan(&records, receivers)?, test);
        Ok::<_, PyErr>(RecordTable::new(writer, form))
    });
    let records = records.transpose()?;
    Ok(RowPlan {
        common: common_plan(plan, row_api)?,
        columns: columns.collect::<PyResult<_>>()?,
        fields: get(plan, "fields")?,
        end: get(plan, "end")?,
        format: RowFormat::named(&format).ok_or_else(|| unknown(&format))?,
        tables: tables.collect::<PyResult<_>>()?,
        records,
        log: log
            .map(|log| Ok::<_, PyErr>(Log::new(waiting(&log, receivers)?)))
            .transpose()?,
        whole: whole.map(|whole| whole_plan(&whole, receivers)).transpose()?,
        learn: learn(plan)?,
        follow: Box::new(move |info, api_key, mentioned| {
            let ProtocolNames {
                group_id,
                of_request,
                of_response,
                offered,
            } = mentioned;
            let arguments = (info, api_key, group_id, of_request, of_response, offered);
            Python::attach(|py| follow.call(py, arguments))
        }),
        is_secret: Box::new(move |name| Python::attach(|py| is_secret.call(py, (name,)))),
        rejections: rejections(plan)?,
        captures: captures(plan)?,
        expected: Box::new(move |info, api_key, end_ns, errors| {
            Python::attach(|py| expected.call(py, (info, api_key, end_ns, errors)))
        }),
        memory: memory.map(|memory| memory_plan(&memory, receivers)).transpose()?,
    })
}

fn whole_plan(plan: &Bound<'_, PyAny>, receivers: &mut Receivers) -> PyResult<Whole> {
    receivers.brokers = get(plan, "take_brokers")?;
    receivers.alive = get(plan, "take_alive")?;
    receivers.events = get(plan, "take_events")?;
    let events: Option<Function> = get(plan, "events")?;
    let has_cluster: Function = get(plan, "has_cluster")?;
    Ok(Whole::new(WholePlan {
        has_brokers: receivers.brokers.is_some(),
        member: receivers
            .alive
            .is_some()
            .then(|| get(plan, "member"))
            .transpose()?,
        events: events.map(|events| {
            Box::new(move |exchange: &Answered<'_>| {
                Python::attach(|py| {
                    let whole = whole(py, &Framed::from(exchange))?;
                    let (rows, kept): (Vec<Bound<'_, PyAny>>, Option<Handle>) = events.call(py, (whole,))?;
                    Ok(Events {
                        rows: rows
                            .iter()
                            .map(event_row)
                            .collect::<PyResult<_>>()
                            .map_err(|_| Odd)?,
                        kept,
                    })
                })
            }) as Box<dyn Fn(&Answered<'_>) -> _ + Send + Sync>
        }),
        has_cluster: Box::new(move |info: &Handle| Python::attach(|py| has_cluster.call(py, (info,)))),
    }))
}

/// Values, or text.
fn event_row(row: &Bound<'_, PyAny>) -> PyResult<EventRow> {
    if let Ok(line) = row.cast::<PyBytes>() {
        return Ok(EventRow::Line(line.as_bytes().to_vec()));
    }
    let values = row.cast::<PyList>()?.clone().unbind();
    Ok(EventRow::Values(Box::new(move |columns: &mut [Column]| {
        Python::attach(|py| {
            let both = columns.iter_mut().zip(values.bind(py));
            both.map(|(column, value)| push(column, &value).map_err(|_| Odd))
                .sum()
        })
    })))
}

/// What Python writes about ApiVersions requests in versions that the broker does not support.
fn rejections(plan: &Bound<'_, PyAny>) -> PyResult<Rejections> {
    let rejected: Function = get(plan, "rejected")?;
    Ok(Rejections::new(Box::new(move |version, request, response| {
        Python::attach(|py| {
            let frames = (version, PyBytes::new(py, request), PyBytes::new(py, response));
            rejected.call(py, frames)
        })
    })))
}

fn captures(plan: &Bound<'_, PyAny>) -> PyResult<Captures> {
    let name: Function = get(plan, "capture")?;
    Ok(Captures::new(move |interface: &Handle| {
        Python::attach(|py| name.call(py, (interface,)))
    }))
}

fn learn(plan: &Bound<'_, PyAny>) -> PyResult<Box<Learn>> {
    let learn: Function = get(plan, "learn")?;
    Ok(Box::new(move |info, cluster| {
        Python::attach(|py| learn.call(py, (info, cluster)))
    }))
}

fn record_plan(plan: &Bound<'_, PyAny>, receivers: &mut Receivers) -> PyResult<RecordPlan> {
    let columns: Vec<(String, (String, usize))> = get(plan, "columns")?;
    let columns = columns.into_iter().map(|(before, (name, which))| {
        let content = RecordContent::named(&name, which).ok_or_else(|| PyValueError::new_err(name))?;
        Ok::<_, PyErr>((before, content))
    });
    let (records, headers, all_headers) = get(plan, "bounds")?;
    let label: Function = get(plan, "label")?;
    let printed: Function = get(plan, "printed")?;
    let (rejected, make_whole): (Function, Function) = (get(plan, "rejected")?, get(plan, "whole")?);
    let format: String = get(plan, "format")?;
    let selects: Option<Function> = get(plan, "selects")?;
    let (opens, open_messages): (Function, Function) = (get(plan, "opens")?, get(plan, "open_messages")?);
    let (optional, inflate): (Arc<Function>, Function) =
        (Arc::new(get(plan, "optional")?), get(plan, "inflate")?);
    let values = optional.clone();
    receivers.carried = get(plan, "join")?;
    let has_room: Option<Function> = get(plan, "has_room")?;
    Ok(RecordPlan {
        common: common_plan(plan, row_api)?,
        format: RecordFormat::named(&format).ok_or_else(|| PyValueError::new_err(format))?,
        times: time_format(plan)?,
        columns: columns.collect::<PyResult<_>>()?,
        end: get(plan, "end")?,
        encodings: get(plan, "encodings")?,
        before_fetch: get(plan, "before_fetch")?,
        no_optional: get(plan, "no_optional")?,
        captures: captures(plan)?,
        label: Box::new(move |topic, is_id| Python::attach(|py| label.call(py, (topic, is_id)))),
        rejected: Box::new(move |code| Python::attach(|py| rejected.call(py, (code,)))),
        whole: Box::new(move |exchange| {
            Python::attach(|py| make_whole.call(py, (whole(py, &Framed::from(exchange))?,)))
        }),
        printed: Box::new(move |payload, is_key| {
            Python::attach(|py| printed.call(py, (PyBytes::new(py, payload), is_key)))
        }),
        directions: get(plan, "directions")?,
        selects: selects.map(|selects| {
            Box::new(move |place: &RecordPlace<'_>, offset, payloads: &Payloads<'_>| {
                Python::attach(|py| selects.call(py, (form(place), offset, objects(py, payloads))))
            }) as Box<Selects>
        }),
        opens: Box::new(move |place: &RecordPlace<'_>, payloads: &Payloads<'_>| {
            Python::attach(|py| opens.call(py, (form(place), objects(py, payloads))))
        }),
        optional: Box::new(move |payloads: &Payloads<'_>| {
            Python::attach(|py| optional.call(py, objects(py, payloads)))
        }),
        push_optional: Box::new(move |payloads: &Payloads<'_>, columns: &mut [Column]| {
            Python::attach(|py| {
                let values: Bound<'_, PyList> = values.call(py, objects(py, payloads))?;
                let both = columns.iter_mut().zip(values);
                both.map(|(column, value)| push(column, &value).map_err(|_| Odd))
                    .sum()
            })
        }),
        inflate: Box::new(move |number, is_first, codec, magic, data| {
            Python::attach(|py| {
                let arguments = (number, is_first, codec, magic, PyBytes::new(py, data));
                inflate.call::<Vec<u8>>(py, arguments)
            })
        }),
        bounds: Bounds {
            records,
            headers,
            all_headers,
        },
        open_messages: Box::new(move |exchange| {
            Python::attach(|py| {
                let place = (exchange.known.info()?, exchange.number);
                let header = (exchange.header.api_key, exchange.header.api_version);
                let frames = [exchange.request, exchange.response];
                let frames = frames.map(|frame| PyBytes::new(py, &frame.data));
                open_messages.call(py, (place, header, frames))
            })
        }),
        learn: learn(plan)?,
        has_room: has_room.map(|has_room| {
            Box::new(move || Python::attach(|py| has_room.call(py, ()))) as Box<dyn Fn() -> _ + Send + Sync>
        }),
    })
}

fn form<'a>(place: &RecordPlace<'a>) -> (&'a str, Option<&'a str>, i64, Option<bool>) {
    (place.topic, place.topic_id, place.partition, place.is_control)
}

type PyPayload<'py> = Option<Bound<'py, PyBytes>>;

/// Key, value and headers.
fn objects<'py, 'a>(
    py: Python<'py>,
    payloads: &Payloads<'a>,
) -> (PyPayload<'py>, PyPayload<'py>, Vec<(&'a str, PyPayload<'py>)>) {
    let bytes = |data: Option<&[u8]>| data.map(|data| PyBytes::new(py, data));
    let headers = payloads
        .headers
        .iter()
        .map(|(name, value)| (*name, bytes(*value)));
    (bytes(payloads.key), bytes(payloads.value), headers.collect())
}

fn tally_plan(plan: &Bound<'_, PyAny>, receivers: &mut Receivers) -> PyResult<TallyPlan> {
    receivers.tally = Some(get(plan, "take")?);
    receivers.one = Some(get(plan, "take_one")?);
    receivers.slow = Some(get(plan, "take_slow")?);
    let interval: Function = get(plan, "interval")?;
    let has_cluster: Function = get(plan, "has_cluster")?;
    let learn_cluster: Function = get(plan, "learn_cluster")?;
    let (content, one): (Function, Function) = (get(plan, "content")?, get(plan, "one")?);
    Ok(TallyPlan {
        common: common_plan(plan, row_api)?,
        waiting: waiting(&plan.getattr("log")?, receivers)?,
        refused: get(plan, "refused")?,
        memory: memory_plan(&plan.getattr("memory")?, receivers)?,
        slowest: get(plan, "slowest")?,
        interval: Box::new(move || Python::attach(|py| interval.call(py, ()))),
        has_cluster: Box::new(move |info: &Handle| Python::attach(|py| has_cluster.call(py, (info,)))),
        learn_cluster: Box::new(move |info: &Handle, cluster: &str| {
            Python::attach(|py| {
                learn_cluster
                    .call::<Bound<'_, PyAny>>(py, (info, cluster))
                    .map(drop)
            })
        }),
        alike: get(plan, "alike")?,
        content: Box::new(move |info: &Handle, (api_key, version), frames| {
            Python::attach(|py| {
                let data = frames.map(|frame| PyBytes::new(py, &frame.data));
                content.call(py, (info, (api_key, version), data, frames[1].end_ns))
            })
        }),
        counted: get(plan, "counted")?,
        one: Box::new(move |alone, parts, session| {
            Python::attach(|py| {
                let parts = parts.map(|parts| (parts.all(), parts.think_us));
                let positions =
                    |session: Session| session.positions().map(NamedPosition::of).collect::<Vec<_>>();
                one.call(py, (whole(py, alone)?, parts, session.map(positions)))
            })
        }),
        slow_us: get(plan, "slow_us")?,
        queued_us: get(plan, "queued_us")?,
        by_group: get(plan, "by_group")?,
        by_partition: get(plan, "by_partition")?,
    })
}

/// What Python makes an exchange of, see `whole_exchange` in kdissect/exchanges/undecoded.py.
fn whole<'py>(py: Python<'py>, exchange: &Framed<'_>) -> Result<Bound<'py, PyTuple>, Odd> {
    let (header, identity) = (exchange.header, exchange.known.identity());
    let client_id = header.raw_client_id(exchange.request).map(std::str::from_utf8);
    let frame = |frame: &Frame| {
        (
            PyBytes::new(py, &frame.data),
            frame.size,
            frame.packet,
            exchange.interface.bind(py).clone(),
            frame.start_ns,
            frame.end_ns,
        )
    };
    let known = (
        (exchange.known.info()?, exchange.number),
        (
            header.api_key,
            header.api_version,
            header.correlation_id,
            client_id.transpose().map_err(|_| Odd)?,
            header.body_pos,
        ),
        identity.each_ref(),
        (frame(exchange.request), exchange.response.map(frame)),
    );
    known.into_pyobject(py).map_err(|_| Odd)
}

/// Which partitions are selected.
fn partition_test(is_partition: Option<Function>) -> Option<NameTest> {
    let is_partition = is_partition?;
    let classify = move |name: &str, id: Option<&str>, number: Option<i64>| {
        let names: Vec<&str> = std::iter::once(name).chain(id).collect();
        Python::attach(|py| match is_partition.call(py, (names, number))? {
            true => Ok(Vote::Selected),
            false => Ok(Vote::Nothing),
        })
    };
    Some(NameTest::new(
        Mention::Partition,
        Box::new(classify),
        (false, false),
        false,
    ))
}

/// What is to be known of a `ConnectionPlan`.
fn waiting(plan: &Bound<'_, PyAny>, receivers: &mut Receivers) -> PyResult<Vec<i16>> {
    receivers.connection = Some(get(plan, "take")?);
    get(plan, "waiting")
}

fn memory_plan(plan: &Bound<'_, PyAny>, receivers: &mut Receivers) -> PyResult<MemoryPlan> {
    receivers.memory = Some(get(plan, "restore")?);
    let lend: Function = get(plan, "lend")?;
    Ok(MemoryPlan {
        lend: Box::new(move |info: &Handle| {
            let state: MemoryState = Python::attach(|py| lend.call(py, (info,)))?;
            state.memory()
        }),
        max_watermarks: get(plan, "max_watermarks")?,
        max_total_watermarks: get(plan, "max_total_watermarks")?,
    })
}

impl<'py> FromPyObject<'_, 'py> for Constant {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = value.extract() {
            return Ok(Constant::Text(text));
        }
        value
            .extract()
            .map(Constant::Number)
            .or_else(|_| value.extract().map(Constant::Fields))
    }
}

impl<'py> IntoPyObject<'py> for &Given {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        match self {
            Given::Absent => Ok(py.None().into_bound(py)),
            Given::Bool(value) => value.into_bound_py_any(py),
            Given::Number(number) => number.into_bound_py_any(py),
            Given::Text(text) => text.into_bound_py_any(py),
            Given::Struct => {
                let fields = PyDict::new(py);
                fields.set_item("", py.None())?;
                Ok(fields.into_any())
            }
            Given::List(values) => values.into_bound_py_any(py),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Conditions {
    type Error = PyErr;

    fn extract(conditions: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let conditions = &*conditions;
        let (since_ns, until_ns) = get(conditions, "times_ns")?;
        let mut held = Tests::default();
        let mut test = |name| {
            let tests: Vec<Bound<'_, PyAny>> = get(conditions, name)?;
            let tests = tests.iter().map(|each| test(each, conditions, &mut held));
            Ok::<_, PyErr>(Criterion::And(tests.collect::<PyResult<_>>()?))
        };
        let (of_header, of_bodies) = (test("of_header")?, test("of_bodies")?);
        let (mentions, topic_name): (Function, Function) =
            (get(conditions, "mentions")?, get(conditions, "topic_name")?);
        let note_ids: Option<Object> = get(conditions, "note_ids")?;
        let mut receivers = Receivers::default();
        let memory: Option<Bound<'_, PyAny>> = get(conditions, "memory")?;
        let memory = memory.map(|memory| memory_plan(&memory, &mut receivers));
        Ok(Conditions {
            criteria: Criteria {
                of_header,
                of_bodies,
                tests: held,
                mentions: Box::new(move |api_key, api_version| {
                    Python::attach(|py| {
                        let plan: Option<MentionsPlan<'_>> =
                            mentions.call(py, (api_key, api_version)).ok()?;
                        plan?.mentions().ok().map(Arc::new)
                    })
                }),
                topic_name: Box::new(move |id, completed_ns| {
                    Python::attach(|py| topic_name.call::<Option<String>>(py, (id, completed_ns)).ok()?)
                }),
                notes_ids: note_ids.is_some(),
                times_ns: since_ns..until_ns,
                of_records: get(conditions, "of_records")?,
                budget: get(conditions, "budget")?,
                splitters: memory.transpose()?.map(Splitters::new),
                ..Criteria::default()
            },
            of_client: get(conditions, "of_client")?,
            note_ids,
            note_times: get(conditions, "note_times")?,
            noted: NotedTimes::default(),
            receivers,
        })
    }
}

/// `CoreTest` of kdissect/sinks/plan.py. Tests that hold what Python says are added to `held`.
fn test(form: &Bound<'_, PyAny>, conditions: &Bound<'_, PyAny>, held: &mut Tests) -> PyResult<Criterion> {
    let unknown = |name: String| PyValueError::new_err(name);
    let form = form.cast::<PyTuple>()?;
    let name: String = form.get_item(0)?.extract()?;
    let mut several = |tests: Bound<'_, PyAny>| {
        let tests = tests.try_iter()?.map(|each| test(&each?, conditions, held));
        tests.collect::<PyResult<Vec<_>>>()
    };
    Ok(match name.as_str() {
        "and" => Criterion::And(several(form.get_item(1)?)?),
        "or" => Criterion::Or(several(form.get_item(1)?)?),
        "not" => Criterion::Not(Box::new(test(&form.get_item(1)?, conditions, held)?)),
        "of_client" => Criterion::OfClient(form.get_item(1)?.extract()?),
        "number" => {
            let (_, number, ranges, if_absent): (String, String, Vec<(i64, i64)>, bool) = form.extract()?;
            let number = Number::named(&number).ok_or_else(|| unknown(number))?;
            Criterion::Number(number, ranges, if_absent)
        }
        "mentions" => {
            let (_, kind, classify, results): (String, String, Function, (bool, bool)) = form.extract()?;
            let noted: Vec<String> = get(conditions, "noted")?;
            let is_noted = noted.contains(&kind);
            let note: Option<Function> = match is_noted {
                true => Some(get(conditions, "note_name")?),
                false => None,
            };
            let of_kind = Mention::named(&kind).ok_or_else(|| unknown(kind.clone()))?;
            held.of_names.push(NameTest::new(
                of_kind,
                Box::new(move |name, _, number| {
                    Python::attach(|py| {
                        let vote = classify.call(py, (name, number))?;
                        if let Some(note) = &note {
                            note.call::<Bound<'_, PyAny>>(py, (&kind, name))?;
                        }
                        match vote {
                            0 => Ok(Vote::Nothing),
                            1 => Ok(Vote::Selected),
                            2 => Ok(Vote::Excluded),
                            _ => Err(Odd),
                        }
                    })
                }),
                results,
                is_noted,
            ));
            Criterion::Mentions(held.of_names.len() - 1)
        }
        "values" => {
            type Ranges = Option<Vec<(i64, i64)>>;
            let (_, sources, ranges, classify): (String, Vec<(String, Bound<'_, PyAny>)>, Ranges, Function) =
                form.extract()?;
            let sources = sources.iter().map(|(kind, which)| {
                let name = || which.extract::<String>();
                let source = match kind.as_str() {
                    "number" => Number::named(&name()?).map(Source::Number),
                    "mention" => Mention::named(&name()?).map(Source::Mention),
                    _ => Some(Source::Field(which.extract()?)),
                };
                source.ok_or_else(|| unknown(kind.clone()))
            });
            held.of_values.push(ValueTest::new(
                sources.collect::<PyResult<_>>()?,
                ranges,
                Box::new(move |values| Python::attach(|py| classify.call(py, (values,)))),
            ));
            Criterion::Values(held.of_values.len() - 1)
        }
        "errors" => Criterion::Errors(form.get_item(1)?.extract()?),
        "left" => Criterion::Left,
        _ => return Err(unknown(name)),
    })
}
