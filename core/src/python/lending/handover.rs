//! The state of a connection that Python lends -> a connection here, and back.

use std::collections::VecDeque;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;

use super::link::{Holder, Link, IDENTITY};
use super::objects::note_retransmission;
use super::Lending;
use crate::exchanges::connection::{Bare, Connection, Message, Opening, CLIENT};
use crate::exchanges::stage::reversed;
use crate::net::analysis::Analysis;
use crate::python::handle::Object;
use crate::python::state::{
    direction, BareSegment, ConnectionState, KafkaState, PartialFrame, Place, RecordState, StreamState,
    TcpState, UnreadState,
};
use crate::sinks::facts::Handle;

impl Lending {
    /// See `lend`.
    pub(super) fn lent(&mut self, py: Python<'_>, state: ConnectionState) -> PyResult<()> {
        let missing = || PyKeyError::new_err(state.ordinal);
        let duplex = state.duplex.ok_or_else(missing)?;
        let tcp = state.tcp;
        if let Some(unread) = state.unread {
            return self.lent_unread(py, state.ordinal, duplex, tcp, &unread);
        }
        let kafka = state.kafka.ok_or_else(missing)?;
        let pairing = kafka.pairing;
        let of_client = |name| Ok::<_, PyErr>(Handle::of(kafka.info.bind(py).getattr(name)?));
        let [software, version, principal, mechanism] = IDENTITY.map(of_client);
        let connection = duplex.getattr(py, "connection")?;
        let may_end = tcp.streams.0.first.is_some() && tcp.streams.1.first.is_some();
        let waiting = pairing.waiting.into_iter().map(|each| self.request(py, each));
        let waiting = waiting.collect::<PyResult<VecDeque<_>>>()?;
        let (client_records, broker_records) = state.records.unzip();
        let client = direction(py, tcp.streams.0, kafka.partial.0, client_records)?;
        let broker = direction(py, tcp.streams.1, kafka.partial.1, broker_records)?;
        let analysis = tcp.analysis.and_then(|state| Analysis::of(&state, tcp.client));
        let here = Connection {
            opening: may_end.then_some(Opening {
                handshake: None,
                reset: None,
                due_ns: None,
                idle_ns: i64::MAX, // Python looks after that
            }),
            directions: [client, broker],
            now_ns: tcp.now_ns,
            last_ns: kafka.last_ns,
            is_answered: kafka.is_answered,
            completed: pairing.completed,
            first_id: pairing.first_id,
            last_id: pairing.last_id,
            steady: pairing.steady,
            bytes: waiting.iter().map(|each| each.bytes).sum(),
            waiting,
            unacknowledged: pairing.unacknowledged.into(),
            taken: 0,
            has_retransmissions: false,
            analysis: analysis.map(Box::new),
            unread: None,
        };
        let ends = [tcp.ends.clone(), reversed(&tcp.ends)].map(Box::from);
        let slot = self.stage.admit(here, state.ordinal, ends);
        let identity = [software?, version?, principal?, mechanism?];
        let side = Holder::Lent(duplex, connection, tcp.client);
        let info = Handle::of(kafka.info.into_bound(py));
        self.link(py, slot, side, tcp.ends.into(), Some(info), identity);
        Ok(())
    }

    /// Takes a connection whose bytes are not read; the first side stands for its client.
    fn lent_unread(
        &mut self,
        py: Python<'_>,
        ordinal: u64,
        duplex: Object,
        tcp: TcpState,
        unread: &UnreadState,
    ) -> PyResult<()> {
        let connection = duplex.getattr(py, "connection")?;
        let one = direction(py, tcp.streams.0, PartialFrame::default(), None)?;
        let two = direction(py, tcp.streams.1, PartialFrame::default(), None)?;
        let analysis = tcp.analysis.and_then(|state| Analysis::of(&state, tcp.client));
        let mut here = Connection::unread([one, two], unread.unread());
        here.now_ns = tcp.now_ns;
        here.last_ns = unread.last_ns;
        here.analysis = analysis.map(Box::new);
        let ends = [tcp.ends.clone(), reversed(&tcp.ends)].map(Box::from);
        let slot = self.stage.admit(here, ordinal, ends);
        let identity = [(); 4].map(|()| Handle::of(py.None().into_bound(py)));
        let side = Holder::Lent(duplex, connection, tcp.client);
        self.link(py, slot, side, tcp.ends.into(), None, identity);
        Ok(())
    }

    /// See `recall`.
    pub(super) fn recalled(&mut self, py: Python<'_>, ordinal: u64) -> PyResult<ConnectionState> {
        let missing = || PyKeyError::new_err(ordinal);
        let slot = self.stage.slot(ordinal).ok_or_else(missing)?;
        let connection = self.stage.release(slot).ok_or_else(missing)?;
        let link = self.links.get_mut(slot).and_then(Option::take);
        let mut link = link.ok_or_else(missing)?;
        let tcp = self.tcp_state(py, &link, &connection, true);
        let records = connection.directions.each_ref().map(|each| {
            each.records.as_ref().map(|records| RecordState {
                opener: None,
                buffer: records.buffer.clone(),
                recent: records.recent.iter().copied().collect(),
            })
        });
        let [client_records, broker_records] = records;
        let (taken, is_kafka) = (connection.taken, connection.first_id.is_some());
        let unread = self.unread_state(&connection, None);
        let kafka = is_kafka.then(|| self.kafka_state(py, &mut link, connection));
        let kafka = kafka.transpose()?;
        if let Some(KafkaState { info, .. }) = &kafka {
            let software = if self.page.is_some() {
                &link.software[..]
            } else {
                &link.identity[..2]
            };
            for (name, known) in IDENTITY.iter().zip(software) {
                info.setattr(py, *name, known)?;
            }
        }
        let state = ConnectionState {
            ordinal,
            duplex: link.duplex(py),
            tcp,
            kafka,
            records: client_records.zip(broker_records),
            taken,
            latest: (link.queued > 0).then_some(link.latest),
            unread,
        };
        link.is_released = true;
        self.links[slot] = Some(link);
        self.forget(py, slot);
        Ok(state)
    }

    /// `info`: that of a connection whose end is reported.
    pub(super) fn unread_state(
        &self,
        connection: &Connection<Object>,
        info: Option<Object>,
    ) -> Option<UnreadState> {
        let unread = connection.unread.as_ref()?;
        let protocol = unread
            .protocol
            .map(|number| self.answers.protocols[number].clone());
        Some(UnreadState::of(unread, connection.last_ns, protocol, info))
    }

    /// `goes_on`: with the segments after the SYN, which Python processes again.
    pub(super) fn tcp_state(
        &self,
        py: Python<'_>,
        link: &Link,
        connection: &Connection<Object>,
        goes_on: bool,
    ) -> TcpState {
        let bare = |sender: usize, bare: &Bare| BareSegment {
            sender,
            packet: bare.packet.number,
            time_ns: bare.packet.time_ns,
            interface: self.interfaces[bare.packet.interface].object(py),
            sequence: bare.sequence,
            acknowledgment: bare.acknowledgment,
            flags: bare.flags,
        };
        let opening = connection.opening.as_ref();
        let mut segments = Vec::new();
        if let Some((syn, syn_ack)) = opening.and_then(|opening| opening.handshake.as_ref()) {
            segments.push(bare(CLIENT, syn));
            segments.extend(
                syn_ack
                    .as_ref()
                    .filter(|_| goes_on)
                    .map(|each| bare(1 - CLIENT, each)),
            );
        }
        let reset = opening.and_then(|opening| opening.reset.as_ref());
        segments.extend(reset.filter(|_| goes_on).map(|(_, side, each)| bare(*side, each)));
        let stream = |side: usize| {
            let each = &connection.directions[side];
            StreamState {
                first: connection.has_syn(side).then_some(each.first),
                next: each.next,
                acknowledged: each.acknowledged,
                fin_ns: each.fin_ns,
                doubted: each.doubted,
                repeated_bytes: each.repeated_bytes,
                seen: !each.is_missing,
            }
        };
        let analysis = connection.analysis.as_ref();
        TcpState {
            client: link.client(),
            ends: link.ends.to_vec(),
            streams: (stream(CLIENT), stream(1 - CLIENT)),
            now_ns: connection.now_ns,
            analysis: analysis.map(|analysis| analysis.state()),
            segments,
            reset_ns: reset.map(|(first_ns, ..)| *first_ns),
            due_ns: opening.and_then(|opening| opening.due_ns),
            idle_ns: opening
                .map(|opening| opening.idle_ns)
                .filter(|_| link.is_opened_here()),
        }
    }

    fn kafka_state(
        &self,
        py: Python<'_>,
        link: &mut Link,
        mut connection: Connection<Object>,
    ) -> PyResult<KafkaState> {
        let waiting = std::mem::take(&mut connection.waiting).into_iter();
        let waiting = waiting.map(|request| match request.message {
            Message::Object(exchange) => Ok(exchange),
            Message::Frame(header, frame) => {
                let exchange = self.outstanding(py, link, header, frame)?;
                note_retransmission(&exchange, request.retransmitted_ns)?;
                Ok(exchange.unbind())
            }
        });
        let waiting = waiting.collect::<PyResult<_>>()?;
        let [client, broker] = connection.directions.each_mut().map(|each| PartialFrame {
            prefix: std::mem::take(&mut each.prefix),
            data: std::mem::take(&mut each.data),
            size: each.size,
            start_ns: each.start_ns,
            skipped: each.skipped,
            latest: each.latest.map(|packet| Place {
                packet: packet.number,
                time_ns: packet.time_ns,
                interface: self.interfaces[packet.interface].object(py),
            }),
        });
        let info = link.info(py, &self.python)?.object(py);
        Ok(KafkaState::of(info, &connection, waiting, (client, broker)))
    }
}

const _: () = assert!(CLIENT == 0); // the order of `ends`, `streams` and `partial`
