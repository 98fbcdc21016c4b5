//! `ConnectionState` of kdissect/exchanges/lending.py and its parts: named tuples in Python, structs here.
//!
//! The only place that knows how the state of a connection crosses the border. What each field means stands beside
//! the class in Python.

use std::collections::BTreeMap;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyTuple, PyType};
use pyo3::{IntoPyObjectExt, PyTypeInfo};

use crate::exchanges::connection::{Connection, Direction, Order, Unread};
use crate::exchanges::fetch_sessions::{Position, Session, Sessions};
use crate::exchanges::latency::{Pace, Watermarks};
use crate::exchanges::memory::ConnectionMemory;
use crate::python::handle::Object;
use crate::python::opener::PythonOpener;
use crate::tls::records::Records;
use crate::Odd;

/// Structs with the fields of named tuples, in the same order. `as`: the class, if it has another name.
macro_rules! named_tuples {
    ($($(#[$attribute:meta])* $module:literal: $name:ident $(as $class:literal)? { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$attribute])*
        #[derive(FromPyObject)]
        pub struct $name {
            $(pub $field: $type,)*
        }

        impl<'py> IntoPyObject<'py> for $name {
            type Target = PyAny;
            type Output = Bound<'py, PyAny>;
            type Error = PyErr;

            fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
                static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
                let names = [stringify!($name) $(, $class)?];
                let class = CLASS.import(py, $module, names[names.len() - 1])?;
                let values = PyTuple::new(py, [$(self.$field.into_bound_py_any(py)?),*])?;
                PyTuple::type_object(py).call_method1(intern!(py, "__new__"), (class, values))
            }
        }
    )*};
}

named_tuples! {
    "kdissect.exchanges.lending": ConnectionState {
        ordinal: u64,
        duplex: Option<Object>,
        tcp: TcpState,
        kafka: Option<KafkaState>,
        records: Option<(RecordState, RecordState)>,
        taken: u64,
        latest: Option<Order>,
        unread: Option<UnreadState>,
    }

    "kdissect.net.connection": TcpState {
        client: usize,
        ends: Vec<u8>,
        streams: (StreamState, StreamState),
        now_ns: i64,
        analysis: Option<Vec<u8>>,
        segments: Vec<BareSegment>,
        reset_ns: Option<i64>,
        due_ns: Option<i64>,
        idle_ns: Option<i64>,
    }

    "kdissect.net.connection": StreamState {
        first: Option<u32>,
        next: u32,
        acknowledged: Option<u32>,
        fin_ns: Option<i64>,
        doubted: bool,
        repeated_bytes: u64,
        seen: bool,
    }

    "kdissect.net.connection": BareSegment {
        sender: usize,
        packet: u64,
        time_ns: i64,
        interface: Object,
        sequence: u32,
        acknowledgment: u32,
        flags: u8,
    }

    "kdissect.exchanges.kafka_connection": KafkaState {
        info: Object,
        last_ns: i64,
        is_answered: bool,
        pairing: PairingState,
        partial: (PartialFrame, PartialFrame),
    }

    "kdissect.exchanges.kafka_connection": UnreadState {
        last_ns: i64,
        seen: (bool, bool),
        unread_bytes: u64,
        heads: (u8, u8),
        pause_bytes: u64,
        skipped: (u64, u64),
        protocol: Option<String>,
        hellos: (Vec<u8>, Vec<u8>),
        info: Option<Object>,
    }

    "kdissect.exchanges.pairing": PairingState {
        completed: u64,
        first_id: Option<i32>,
        last_id: Option<i32>,
        steady: u64,
        waiting: Vec<Object>,
        unacknowledged: Vec<(i32, i16, i16)>,
        has_retransmissions: bool,
    }

    #[derive(Default)]
    "kdissect.kafka.framing": PartialFrame {
        prefix: Vec<u8>,
        data: Vec<u8>,
        size: usize,
        start_ns: i64,
        skipped: usize,
        latest: Option<Place>,
    }

    "kdissect.kafka.framing": Place {
        packet: u64,
        time_ns: i64,
        interface: Object,
    }

    "kdissect.tls.connection": RecordState {
        opener: Option<Object>,
        buffer: Vec<u8>,
        recent: Vec<usize>,
    }

    "kdissect.exchanges.memory": MemoryState {
        pace: Option<PaceState>,
        watermarks: Option<Vec<Watermark>>,
        sessions: BTreeMap<i64, Vec<NamedPosition>>,
    }

    "kdissect.exchanges.latency": PaceState {
        previous_ns: Option<i64>,
        fetched_ns: Option<i64>,
        unmuted_ns: Option<i64>,
        is_certain: bool,
        has_kip_219: Option<bool>,
    }

    "kdissect.exchanges.latency": Watermark {
        topic: String,
        partition: i64,
        high_watermark: i64,
        last_stable: i64,
    }

    "kdissect.exchanges.fetch_sessions": NamedPosition as "Position" {
        topic: TopicText,
        partition: i64,
        fetch_offset: Option<i64>,
        next_offset: Option<i64>,
        newest_ms: Option<i64>,
        high_watermark: Option<i64>,
        last_stable_offset: Option<i64>,
        log_start_offset: Option<i64>,
        error: i64,
        repeats: i64,
        skipped: i64,
    }
}

impl KafkaState {
    /// That of a connection here.
    pub fn of(
        info: Object,
        connection: &Connection<Object>,
        waiting: Vec<Object>,
        partial: (PartialFrame, PartialFrame),
    ) -> Self {
        KafkaState {
            info,
            last_ns: connection.last_ns,
            is_answered: connection.is_answered,
            pairing: PairingState {
                completed: connection.completed,
                first_id: connection.first_id,
                last_id: connection.last_id,
                steady: connection.steady,
                waiting,
                unacknowledged: connection.unacknowledged.iter().copied().collect(),
                has_retransmissions: connection.has_retransmissions,
            },
            partial,
        }
    }
}

impl UnreadState {
    /// As it goes on here.
    pub fn unread(&self) -> Unread {
        Unread {
            seen: self.seen.into(),
            heads: self.heads.into(),
            bytes: self.unread_bytes,
            pause_bytes: self.pause_bytes,
            skipped: [0; 2],
            protocol: None,
            hellos: Default::default(),
        }
    }

    /// As Python goes on with it.
    pub fn of(unread: &Unread, last_ns: i64, protocol: Option<String>, info: Option<Object>) -> Self {
        UnreadState {
            last_ns,
            seen: unread.seen.into(),
            unread_bytes: unread.bytes,
            heads: unread.heads.into(),
            pause_bytes: unread.pause_bytes,
            skipped: unread.skipped.into(),
            protocol,
            hellos: unread.hellos.clone().into(),
            info,
        }
    }
}

/// A direction that goes on here.
pub fn direction(
    py: Python<'_>,
    stream: StreamState,
    partial: PartialFrame,
    records: Option<RecordState>,
) -> PyResult<Direction> {
    let records = records.and_then(|each| Some((each.opener?, each.buffer)));
    let records = records.map(|(opener, buffer)| {
        PythonOpener::new(opener.into_bound(py)).map(|opener| Records::new(Box::new(opener), buffer))
    });
    Ok(Direction {
        first: stream.first.unwrap_or_default(),
        next: stream.next,
        acknowledged: stream.acknowledged,
        prefix: partial.prefix,
        data: partial.data,
        size: partial.size,
        skipped: partial.skipped,
        latest: None,
        start_ns: partial.start_ns,
        fin_ns: None,
        doubted: false,
        is_missing: !stream.seen,
        repeated_bytes: 0,
        records: records.transpose()?,
    })
}

impl MemoryState {
    /// As it goes on here. Odd: the next exchange is left to Python.
    pub fn memory(self) -> Result<ConnectionMemory, Odd> {
        let watermarks = self.watermarks.map(|all| {
            let mut known = Watermarks::default();
            for each in all {
                known.set(
                    &each.topic,
                    each.partition,
                    [each.high_watermark, each.last_stable],
                );
            }
            known
        });
        let sessions = self.sessions.into_iter().map(|(id, positions)| {
            let positions = positions.into_iter().map(NamedPosition::position);
            (id, Session::of(positions).ok())
        });
        let pace = self.pace.ok_or(Odd)?;
        Ok(ConnectionMemory {
            pace: Pace {
                previous_ns: pace.previous_ns,
                fetched_ns: pace.fetched_ns,
                unmuted_ns: pace.unmuted_ns,
                is_certain: pace.is_certain,
                has_kip_219: pace.has_kip_219,
            },
            watermarks,
            sessions: Sessions::of(sessions.collect()),
            has_split: false,
        })
    }

    /// As Python goes on with it.
    pub fn of(memory: ConnectionMemory) -> Self {
        let watermarks = memory.watermarks.filter(|watermarks| watermarks.has_changed);
        let watermarks = watermarks.map(|watermarks| {
            let all = watermarks.in_order().into_iter();
            all.map(|(topic, partition, [high_watermark, last_stable])| Watermark {
                topic: topic.to_owned(),
                partition,
                high_watermark,
                last_stable,
            })
            .collect()
        });
        let sessions = memory.sessions.continued().map(|(id, session)| {
            let positions = session.positions().map(NamedPosition::of);
            (id, positions.collect())
        });
        MemoryState {
            pace: memory.has_split.then_some(PaceState {
                previous_ns: memory.pace.previous_ns,
                fetched_ns: memory.pace.fetched_ns,
                unmuted_ns: memory.pace.unmuted_ns,
                is_certain: memory.pace.is_certain,
                has_kip_219: memory.pace.has_kip_219,
            }),
            watermarks,
            sessions: sessions.collect(),
        }
    }
}

/// A `str`, or a `TopicId` of kdissect/phrases.py.
pub struct TopicText {
    text: String,
    is_id: bool,
}

impl FromPyObject<'_, '_> for TopicText {
    type Error = PyErr;

    fn extract(topic: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        Ok(TopicText {
            text: topic.extract()?,
            is_id: !topic.is_exact_instance_of::<PyString>(),
        })
    }
}

impl<'py> IntoPyObject<'py> for TopicText {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        static ID: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        match self.is_id {
            true => ID.import(py, "kdissect.phrases", "TopicId")?.call1((self.text,)),
            false => self.text.into_bound_py_any(py),
        }
    }
}

impl NamedPosition {
    fn position(self) -> (String, i64, Position) {
        let position = Position {
            fetch_offset: self.fetch_offset,
            next_offset: self.next_offset,
            newest_ms: self.newest_ms,
            high_watermark: self.high_watermark,
            last_stable: self.last_stable_offset,
            log_start: self.log_start_offset,
            error: self.error,
            repeats: self.repeats,
            skipped: self.skipped,
            is_nameless: self.topic.is_id,
        };
        (self.topic.text, self.partition, position)
    }

    pub fn of((topic, partition, position): (String, i64, Position)) -> Self {
        NamedPosition {
            topic: TopicText {
                text: topic,
                is_id: position.is_nameless,
            },
            partition,
            fetch_offset: position.fetch_offset,
            next_offset: position.next_offset,
            newest_ms: position.newest_ms,
            high_watermark: position.high_watermark,
            last_stable_offset: position.last_stable,
            log_start_offset: position.log_start,
            error: position.error,
            repeats: position.repeats,
            skipped: position.skipped,
        }
    }
}
