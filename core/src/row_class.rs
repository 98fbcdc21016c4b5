//! The class `kdissect._core.Row`: a [`row::Row`] for kdissect/tables/undecoded.py.

use pyo3::prelude::*;

use crate::line_class::{BodiesForm, Kept, Names};
use crate::row::{self, First, Topics};

/// What the columns of an exchange need, for one version of an API.
#[pyclass(frozen, module = "kdissect._core")]
pub struct Row {
    pub row: row::Row,
    /// The fields of request and response from which the parts of a latency are found. None: none are needed.
    pub projection: Option<(Kept, Kept)>,
}

/// See [`First`].
type FirstForm = (Vec<Vec<String>>, Option<(String, i64, i64)>);

#[pymethods]
impl Row {
    /// Arguments: see [`BodiesForm`], [`row::Row`] and [`Row`].
    #[new]
    fn new(
        py: Python<'_>,
        bodies: BodiesForm<'_>,
        topics: (Option<Plan>, Option<Plan>),
        group: FirstForm,
        transaction: FirstForm,
        records: (Vec<Vec<String>>, Vec<Vec<String>>),
        projection: Option<(Vec<String>, Vec<String>)>,
    ) -> PyResult<Self> {
        let names = Names::default();
        let paths = |paths: Vec<Vec<String>>| paths.iter().map(|path| names.numbers(path)).collect();
        let first = |(places, test): FirstForm| First {
            paths: paths(places),
            test: test.map(|(name, absent, wanted)| (names.number(&name), absent, wanted)),
        };
        let plan = |plan: Option<Plan>| plan.map(|plan| plan.topics(&names));
        let row = row::Row {
            bodies: names.bodies(bodies)?,
            request_topics: plan(topics.0),
            response_topics: plan(topics.1),
            group: first(group),
            transaction: first(transaction),
            request_records: paths(records.0),
            response_records: paths(records.1),
            throttle_time: names.number("throttle_time_ms"),
            replica: (names.number("replica_state"), names.number("replica_id")),
            keys: Vec::new(),
        };
        let projection =
            projection.map(|(request, response)| (names.kept(py, &request), names.kept(py, &response)));
        Ok(Row {
            row: row::Row {
                keys: names.keys(),
                ..row
            },
            projection,
        })
    }
}

/// `_TopicPlan` of kdissect/exchanges/content.py.
#[derive(FromPyObject)]
struct Plan {
    name: Option<String>,
    topic_id: Option<String>,
    topics: Vec<String>,
    inner: Vec<(String, bool, Plan)>,
}

impl Plan {
    fn topics(&self, names: &Names) -> Topics {
        let number = |name: &String| names.number(name);
        let inner = |(name, _, plan): &(String, bool, Plan)| (number(name), plan.topics(names));
        Topics {
            name: self.name.as_ref().map(number),
            id: self.topic_id.as_ref().map(number),
            arrays: names.numbers(&self.topics),
            inner: self.inner.iter().map(inner).collect(),
        }
    }
}
