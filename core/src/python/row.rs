//! The class `kdissect._core.Row`: a [`content::Row`] for kdissect/tables/native_rows.py.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::exchanges::content::{self, First, GroupEvents, Mentions, PacePlan, Topics};
use crate::exchanges::nodes::{NodePlace, NodePlan};
use crate::exchanges::usage::Fields;
use crate::exchanges::values::FieldPath;
use crate::exchanges::{guarded, touched};
use crate::python::line::{BodiesForm, Names, TopicStructForms, UserDataForm};

/// What the columns of an exchange need, for one version of an API.
#[pyclass(frozen, name = "Row", module = "kdissect._core")]
pub struct PyRow(pub Arc<content::Row>);

/// See [`First`].
type FirstForm = (Vec<Vec<String>>, Option<(String, i64, i64)>);

/// Where partitions are in request and response, the names of fields, which [`GroupEvents`] it is, and nodes.
type OtherTables = (
    Option<(Option<PyPartitionPlan>, Option<PyPartitionPlan>)>,
    Vec<Vec<String>>,
    String,
    Option<NodesForm>,
);

/// Where brokers are named in request and response, and whether those in the response are advertised, and of its
/// cluster; see [`NodePlan`].
type NodesForm = (Vec<PyNodePlace>, Vec<PyNodePlace>, bool, bool);

#[pymethods]
impl PyRow {
    /// Arguments: see [`BodiesForm`], and [`content::Row`].
    #[new]
    fn new(
        bodies: BodiesForm<'_>,
        topics: (Option<PyTopicPlan>, Option<PyTopicPlan>),
        group_and_transaction: (FirstForm, FirstForm),
        records: (Vec<Vec<String>>, Vec<Vec<String>>),
        flags: (bool, bool, bool),
        user_data: Option<Vec<UserDataForm<'_>>>,
        other_tables: OtherTables,
    ) -> PyResult<Self> {
        let names = Names::default();
        let (group, transaction) = group_and_transaction;
        let (partitions, fields, group_events, nodes) = other_tables;
        let (is_fetch, is_recent, has_configs) = flags;
        let paths = |paths: Vec<Vec<String>>| paths.iter().map(|path| names.numbers(path)).collect();
        let plan = |plan: Option<PyTopicPlan>| plan.map(|plan| plan.topics(&names));
        let row = content::Row {
            bodies: names.bodies(bodies)?,
            is_fetch,
            is_recent,
            request_topics: plan(topics.0),
            response_topics: plan(topics.1),
            group: first(&names, group),
            transaction: first(&names, transaction),
            request_records: paths(records.0),
            response_records: paths(records.1),
            partitions: partitions.map(|(request, response)| {
                let plan = |plan: PyPartitionPlan| plan.numbered(&names);
                (request.map(plan), response.map(plan))
            }),
            fields: paths(fields),
            counted: Fields::of(|name| names.number(name)),
            group_events: match group_events.as_str() {
                "never" => GroupEvents::Never,
                "errors" => GroupEvents::Errors,
                "commit" => GroupEvents::Commit,
                _ => GroupEvents::Others,
            },
            nodes: nodes.map(|nodes| node_plan(&names, nodes)),
            protocols: user_data.map(|formats| names.protocols(formats)).transpose()?,
            configs: has_configs.then(|| guarded::Configs {
                value: names.number("value"),
                names: ["name", "key"].map(|name| names.number(name)),
                is_sensitive: names.number("is_sensitive"),
            }),
            replica: (names.number("replica_state"), names.number("replica_id")),
            keys: Vec::new(),
        };
        Ok(PyRow(Arc::new(content::Row {
            keys: names.keys(),
            ..row
        })))
    }
}

/// `_TopicPlan` of kdissect/exchanges/content.py.
#[derive(FromPyObject)]
struct PyTopicPlan {
    name: Option<String>,
    topic_id: Option<String>,
    topics: Vec<String>,
    partition: Option<String>,
    partitions: Vec<String>,
    inner: Vec<(String, bool, PyTopicPlan)>,
}

/// `MentionsPlan` of kdissect/exchanges/undecoded.py.
#[derive(FromPyObject)]
pub struct MentionsPlan<'py> {
    bodies: BodiesForm<'py>,
    topics: (Option<PyTopicPlan>, Option<PyTopicPlan>),
    groups: FirstForm,
    fields: Vec<Option<(bool, Vec<String>)>>,
    /// Whether it is a Fetch; None: its latency is not split.
    pace: Option<(bool, bool)>,
    structs: (TopicStructForms, TopicStructForms),
    tags: Vec<u8>,
}

impl MentionsPlan<'_> {
    pub fn mentions(self) -> PyResult<Mentions> {
        let names = Names::default();
        let topics = |plan: Option<PyTopicPlan>| plan.map(|plan| plan.topics(&names));
        names.are_of_request(true);
        let (request_topics, groups) = (topics(self.topics.0), first(&names, self.groups));
        names.are_of_request(false);
        let response_topics = topics(self.topics.1);
        let field = |form: &Option<(bool, Vec<String>)>| {
            let (of_request, path) = form.as_ref()?;
            names.are_of_request(*of_request);
            let (of_request, names) = (*of_request, names.numbers(path));
            Some(FieldPath { of_request, names })
        };
        let fields = self.fields.iter().map(field).collect();
        let pace = self.pace.map(|(is_fetch, is_recent)| {
            for of_request in [true, false] {
                names.are_of_request(of_request);
                match is_fetch {
                    true => _ = Fields::of(|name| names.read(name)),
                    false => _ = names.read("throttle_time_ms"),
                }
            }
            let names = Fields::of(|name| names.number(name));
            PacePlan {
                is_fetch,
                is_recent,
                names,
            }
        });
        Ok(Mentions {
            request_topics,
            response_topics,
            groups,
            fields,
            pace,
            ids: names.topic_ids(self.bodies, self.structs)?,
            tags: self.tags,
        })
    }
}

fn first(names: &Names, (places, test): FirstForm) -> First {
    First {
        paths: places.iter().map(|path| names.numbers(path)).collect(),
        test: test.map(|(name, absent, wanted)| (names.read(&name), absent, wanted)),
    }
}

impl PyTopicPlan {
    fn topics(&self, names: &Names) -> Topics {
        let number = |name: &String| names.read(name);
        let inner = |(name, _, plan): &(String, bool, PyTopicPlan)| (number(name), plan.topics(names));
        Topics {
            name: self.name.as_ref().map(number),
            id: self.topic_id.as_ref().map(number),
            arrays: names.numbers(&self.topics),
            partition: self.partition.as_ref().map(number),
            partitions: names.numbers(&self.partitions),
            inner: self.inner.iter().map(inner).collect(),
        }
    }
}

/// `NodePlace` of kdissect/exchanges/nodes.py.
#[derive(FromPyObject)]
struct PyNodePlace {
    structs: Vec<(String, bool)>,
    id_field: String,
    inside: Vec<(String, bool)>,
}

fn node_plan(names: &Names, (request, response, are_advertised, are_of_cluster): NodesForm) -> NodePlan {
    let path = |path: Vec<(String, bool)>| path.iter().map(|(name, _)| names.number(name)).collect();
    let places = |places: Vec<PyNodePlace>| {
        let places = places.into_iter().map(|place| NodePlace {
            structs: path(place.structs),
            id: names.number(&place.id_field),
            inside: path(place.inside),
        });
        places.collect()
    };
    NodePlan {
        request: places(request),
        response: places(response),
        are_advertised,
        are_of_cluster,
        host: names.number("host"),
        port: names.number("port"),
        racks: ["rack", "rack_id"].map(|name| names.number(name)),
        lists: ["brokers", "coordinators"].map(|name| names.number(name)),
    }
}

/// `_PartitionPlan` of kdissect/exchanges/touched.py.
#[derive(FromPyObject)]
struct PyPartitionPlan {
    topic: Option<String>,
    topic_id: Option<String>,
    group: Option<String>,
    partition: Option<String>,
    error: Option<String>,
    records: Option<String>,
    inner: Vec<(String, bool, PyPartitionPlan)>,
}

impl PyPartitionPlan {
    fn numbered(self, names: &Names) -> touched::PartitionPlan {
        let number = |name: Option<String>| name.map(|name| names.number(&name));
        let inner =
            |(name, _, plan): (String, bool, PyPartitionPlan)| (names.number(&name), plan.numbered(names));
        touched::PartitionPlan {
            topic: number(self.topic),
            topic_id: number(self.topic_id),
            group: number(self.group),
            partition: number(self.partition),
            error: number(self.error),
            records: number(self.records),
            inner: self.inner.into_iter().map(inner).collect(),
        }
    }
}
