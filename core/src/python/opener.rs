//! A cipher of Python -> the [`Opener`] of TLS records.

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::tls::records::{Opener, APPLICATION_DATA};

/// A `RecordOpener` of kdissect/tls/ciphers.py that can decrypt a record again.
#[derive(Debug)]
pub struct PythonOpener {
    object: Py<PyAny>,
    sequence: u64,
}

impl PythonOpener {
    pub fn new(object: Bound<'_, PyAny>) -> PyResult<Self> {
        let sequence = object.getattr(intern!(object.py(), "sequence"))?.extract()?;
        Ok(PythonOpener {
            object: object.unbind(),
            sequence,
        })
    }
}

/// Interrupts again once Python runs, if that is what the error is: Python processes what is left to it, and the
/// interrupt must happen there.
pub fn keep_interrupt(py: Python<'_>, error: &PyErr) {
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        let _ = py
            .import("_thread")
            .and_then(|thread| thread.call_method0("interrupt_main"));
    }
}

impl Opener for PythonOpener {
    fn open(&mut self, version: u16, fragment: &[u8]) -> Option<Vec<u8>> {
        Python::attach(|py| {
            let fragment = PyBytes::new(py, fragment);
            let arguments = (APPLICATION_DATA, version, fragment);
            let opened = self
                .object
                .bind(py)
                .call_method1(intern!(py, "open"), arguments)
                .and_then(|opened| opened.extract::<Option<(u8, Bound<'_, PyBytes>)>>());
            match opened {
                Ok(Some((APPLICATION_DATA, content))) => {
                    self.sequence += 1;
                    return Some(content.as_bytes().to_vec());
                }
                Err(error) => keep_interrupt(py, &error),
                _ => {}
            }
            self.undo(0); // decrypted, but not application data
            None
        })
    }

    fn undo(&mut self, records: u64) {
        self.sequence -= records;
        Python::attach(|py| {
            let _ = self
                .object
                .bind(py)
                .setattr(intern!(py, "sequence"), self.sequence);
        });
    }
}
