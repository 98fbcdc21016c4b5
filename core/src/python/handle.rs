//! [`Handle`]: the objects of Python that sinks keep. And [`answer`] of its functions.

use std::sync::Arc;

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;

use crate::python::opener::keep_interrupt;
use crate::sinks::facts::Handle;

/// An object of Python.
pub type Object = Py<PyAny>;

/// What a function of Python returns. None: it raised, or that is not what is expected.
pub fn answer<'py, R>(py: Python<'py>, function: &Object, arguments: impl PyCallArgs<'py>) -> Option<R>
where
    R: for<'a> FromPyObject<'a, 'py>,
{
    let returned = function.bind(py).call1(arguments);
    let returned = returned.inspect_err(|error| keep_interrupt(py, error)).ok()?;
    returned.extract().ok()
}

impl Handle {
    pub fn of(object: Bound<'_, PyAny>) -> Self {
        Handle {
            address: object.as_ptr() as usize,
            object: Arc::new(object.unbind()),
        }
    }

    pub fn bind<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        match self.object.downcast_ref::<Object>() {
            Some(object) => object.bind(py),
            None => unreachable!("`of` makes all handles"),
        }
    }

    pub fn object(&self, py: Python<'_>) -> Object {
        self.bind(py).clone().unbind()
    }
}

impl FromPyObject<'_, '_> for Handle {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        Ok(Handle::of(object.to_owned()))
    }
}

impl<'py> IntoPyObject<'py> for &Handle {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        Ok(self.bind(py).clone())
    }
}

impl<'py> IntoPyObject<'py> for Handle {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        (&self).into_pyobject(py)
    }
}
