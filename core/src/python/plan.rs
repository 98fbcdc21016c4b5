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
        })
    }
}
