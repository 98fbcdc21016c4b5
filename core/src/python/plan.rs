//! `CorePlan` of kdissect/sinks/plan.py -> a [`Sink`], and which exchanges are selected.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::sinks::conditions::FrameConditions;
use crate::sinks::facts::Object;
use crate::sinks::lines::{LinePlan, Lines};
use crate::sinks::rows::{RowPlan, Rows};
use crate::sinks::sink::Sink;
use crate::sinks::tallies::{Tallies, TallyPlan};

pub struct Plan {
    pub sink: Box<dyn Sink>,
    pub conditions: Option<Conditions>,
}

/// `Conditions` of kdissect/sinks/plan.py.
pub struct Conditions {
    pub frames: FrameConditions,
    /// Function: connection, API key and version, client ID -> whether such exchanges can match.
    pub may_match: Object,
    /// Function: takes the times in `NotedTimes`. None: there is no range of times.
    note_times: Option<Object>,
    noted: NotedTimes,
}

/// When requests ended that are outside the range of times, and whether any is inside.
#[derive(Default)]
struct NotedTimes {
    outside_ns: Option<(i64, i64)>,
    is_any_inside: bool,
}

impl Conditions {
    /// Notes when a request ended.
    pub fn note(&mut self, time_ns: i64) {
        if self.note_times.is_none() {
            return;
        }
        let noted = &mut self.noted;
        if self.frames.times_ns.contains(&time_ns) {
            noted.is_any_inside = true;
        } else {
            let (first_ns, last_ns) = noted.outside_ns.unwrap_or((time_ns, time_ns));
            noted.outside_ns = Some((first_ns.min(time_ns), last_ns.max(time_ns)));
        }
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

impl<'py> FromPyObject<'_, 'py> for Plan {
    type Error = PyErr;

    fn extract(plan: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let output = plan.getattr("output")?;
        let kind = output.get_type().name()?;
        let sink: Box<dyn Sink> = match kind.to_cow()?.as_ref() {
            "LinePlan" => Box::new(Lines::new(output.extract::<LinePlan>()?)),
            "RowPlan" => Box::new(Rows::new(output.extract::<RowPlan>()?)),
            "TallyPlan" => Box::new(Tallies::new(output.extract::<TallyPlan>()?)),
            kind => return Err(PyTypeError::new_err(format!("no sink for a {kind}"))),
        };
        let conditions = plan.getattr("conditions")?.extract()?;
        Ok(Plan { sink, conditions })
    }
}

impl<'py> FromPyObject<'_, 'py> for Conditions {
    type Error = PyErr;

    fn extract(conditions: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let (since_ns, until_ns) = conditions.getattr("times_ns")?.extract()?;
        Ok(Conditions {
            frames: FrameConditions {
                kinds: conditions.getattr("kinds")?.extract()?,
                times_ns: since_ns..until_ns,
                slower_than_ns: conditions.getattr("slower_than_ns")?.extract()?,
                bigger_than_bytes: conditions.getattr("bigger_than_bytes")?.extract()?,
            },
            may_match: conditions.getattr("may_match")?.extract()?,
            note_times: conditions.getattr("note_times")?.extract()?,
            noted: NotedTimes::default(),
        })
    }
}
