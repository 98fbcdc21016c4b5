"""The subject of a story, as text -> a filter of the exchanges that concern it.

group:G            exchanges that name a group
client:C           those of a client: client ID, ``10.0.0.5``, ``10.0.0.5:41234``
txn:ID             those that name a transactional ID, and markers of its producer IDs
topic:T            those about a topic, its configs or its ACLs
broker:N           those that a broker answers: node ID, ``10.0.0.9:9092``, ``10.0.0.9``
host:IP            those from or to an address
record:T-P@OFFSET  those that carried the record at an offset, and each group's first commit past it
quorum             those by which controllers elect a leader and admit brokers, and copy metadata

Names can be globs, as in filters.py. The addresses of a node ID must be found before: messages may name them
late. The filter of a transactional ID holds its producer IDs, that of a record the groups that have
committed.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from kdissect.errors import UsageError
from kdissect.exchanges import content
from kdissect.exchanges.nodes import nodes
from kdissect.exchanges.partition_records import partition_records
from kdissect.exchanges.touched import touched
from kdissect.names import kept
from kdissect.nearest import did_you_mean
from kdissect.query.filters import (
    Filter,
    NameKind,
    NameTest,
    build,
    client_names,
    named_topics,
    partition_test,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kdissect.exchanges.partition_records import PartitionRecords
    from kdissect.model import Body, Endpoint, Exchange
    from kdissect.sinks.plan import PartitionTest

GROUP, CLIENT, TRANSACTION, TOPIC, RECORD, BROKER, HOST, QUORUM = KINDS = (
    *("group", "client", "txn", "topic", "record"),
    *("broker", "host", "quorum"),
)
FORMS = "group:G, client:C, txn:ID, topic:T, record:T-P@OFFSET, broker:N, host:IP or quorum"

_METADATA = "__cluster_metadata"
_QUORUM_APIS = frozenset(
    {
        *("Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "DescribeQuorum", "FetchSnapshot"),
        *("AddRaftVoter", "RemoveRaftVoter", "UpdateRaftVoter", "ControllerRegistration"),
        *("BrokerRegistration", "UnregisterBroker", "BrokerHeartbeat"),
    }
)

_RECORD = re.compile(r"(?P<topic>.+)[-:](?P<partition>\d{1,10})@(?P<offset>\d{1,19})", re.ASCII | re.DOTALL)
_COMMITS = ("OffsetCommit", "TxnOffsetCommit")
_MAX_NAMES = 1000
_END = 1 << 63  # of all offsets


class Subject(NamedTuple):
    """What a story is about.

    Attributes:
        kind: one of ``KINDS``.
        name: of the group, client, transaction or topic, or a glob; node ID or address of a broker; address;
            the topic that a quorum keeps.
        partition, offset: of a record.
        addresses: of a broker with a node ID, each with its port.
    """

    kind: str
    name: str
    partition: int = -1
    offset: int = -1
    addresses: frozenset[str] = frozenset()

    @property
    def is_node(self) -> bool:
        """Whether it is a broker's node ID, so that its ``addresses`` must be found."""
        return self.kind == BROKER and self.name.isdecimal()

    @property
    def is_partition(self) -> PartitionTest | None:
        """A test of the partitions that it is about; None: it is about no topic."""
        if self.kind not in (TOPIC, RECORD):
            return None
        return partition_test((self.name,), (str(self.partition),) if self.kind == RECORD else ())

    def is_end(self, client: Endpoint, broker: Endpoint, hop: Endpoint | None = None) -> bool:
        """Whether it is a broker or host that is an end of this connection."""
        if self.kind == BROKER:
            return str(broker) in self.addresses if self.is_node else self._is_name((str(broker), broker.ip))
        ends = client, broker, hop or client
        return self.kind == HOST and any(self._is_name((end.ip,)) for end in ends)

    def _is_name(self, names: tuple[str, ...]) -> bool:
        return _name_test(self.name).any_in(names)

    def filter(self) -> Filter:
        """A new filter of the exchanges that concern it."""
        return _FILTERS[self.kind](self)


@lru_cache(1)
def _name_test(name: str) -> NameTest:
    return NameTest((name,))


def parse_subject(text: str) -> Subject:
    """A subject from its text.

    Raises:
        UsageError: the text has none of the forms.
    """
    kind, _, name = text.partition(":")
    record = _RECORD.fullmatch(name) if kind == RECORD else None
    if record is not None:
        return Subject(kind, record["topic"], int(record["partition"]), int(record["offset"]))
    if text == QUORUM:
        return Subject(QUORUM, _METADATA)
    if kind not in KINDS or kind in (RECORD, QUORUM) or not name:
        hint = "" if kind in KINDS else did_you_mean(kind, KINDS)
        raise UsageError(f'invalid subject "{text}": use {FORMS}{hint}')
    return Subject(kind, name)


def _group(subject: Subject) -> Filter:
    return build(group=(subject.name,))


def _client(subject: Subject) -> Filter:
    is_client = NameTest((subject.name,))
    kind = NameKind("client", (subject.name,), client_names)
    return Filter((lambda exchange: is_client.any_in(client_names(exchange)),), name_kinds=(kind,))


def _end(names: Callable[[Exchange], Iterator[str]], subject: Subject) -> Filter:
    def is_end(exchange: Exchange) -> bool:
        connection = exchange.connection
        return subject.is_end(connection.client, connection.broker, connection.hop)

    return Filter((is_end,), name_kinds=(NameKind(subject.kind, (subject.name,), names),))


def _broker_names(exchange: Exchange) -> Iterator[str]:
    broker = exchange.connection.broker
    yield from (str(broker), broker.ip, *(str(node.id) for node in nodes(exchange)))


def _host_names(exchange: Exchange) -> Iterator[str]:
    yield from (exchange.connection.client.ip, exchange.connection.broker.ip)


def _topic(subject: Subject) -> Filter:
    is_topic = NameTest((subject.name,))
    kind = NameKind("topic", (subject.name,), named_topics)
    test = lambda exchange: is_topic.any_in(named_topics(exchange))  # noqa: E731
    return Filter((), (test,), name_kinds=(kind,), is_about_topics=True)


def _quorum(subject: Subject) -> Filter:
    is_topic = NameTest((subject.name,))
    test = lambda exchange: exchange.api in _QUORUM_APIS or is_topic.any_in(named_topics(exchange))  # noqa: E731
    return Filter((), (test,), is_about_topics=True)


def _transaction(subject: Subject) -> Filter:
    kind = NameKind("transactional ID", (subject.name,), content.transactional_ids)
    return Filter((), (_TransactionTest(subject.name),), name_kinds=(kind,))


def _record(subject: Subject) -> Filter:
    text = f"{subject.name}-{subject.partition}@{subject.offset}"
    return Filter(
        (), (_RecordTest(subject),), name_kinds=(NameKind("record", (text,), _places),), is_about_topics=True
    )


_FILTERS: dict[str, Callable[[Subject], Filter]] = {
    GROUP: _group,
    CLIENT: _client,
    TRANSACTION: _transaction,
    TOPIC: _topic,
    BROKER: partial(_end, _broker_names),
    HOST: partial(_end, _host_names),
    RECORD: _record,
    QUORUM: _quorum,
}


class _TransactionTest:
    """Whether an exchange names a transactional ID, or ends transactions of one of its producer IDs."""

    def __init__(self, name: str) -> None:
        self._is_name = NameTest((name,))
        self._producer_ids: set[int] = set()

    def __call__(self, exchange: Exchange) -> bool:
        names = content.transactional_ids(exchange)
        if names and self._is_name.any_in(names):
            self._learn(exchange.request)
            self._learn(exchange.response)
            return True
        markers = (exchange.request or {}).get("markers") or ()
        return exchange.api == "WriteTxnMarkers" and any(
            marker.get("producer_id") in self._producer_ids for marker in markers
        )

    def _learn(self, body: Body | None) -> None:
        producer_id = (body or {}).get("producer_id", -1)
        if producer_id >= 0 and len(self._producer_ids) < _MAX_NAMES:
            self._producer_ids.add(producer_id)


class _RecordTest:
    """Whether an exchange carried a record, or is a group's first commit past it."""

    def __init__(self, subject: Subject) -> None:
        self._offset = subject.offset
        self._is_partition = partition_test((subject.name,), (str(subject.partition),))
        self._is_seen = False
        self._groups: set[str] = set()  # that have committed

    def __call__(self, exchange: Exchange) -> bool:
        if exchange.api in _COMMITS:
            return self._is_first_commit(exchange)
        is_carried = any(map(self._is_in, partition_records(exchange)))
        self._is_seen |= is_carried
        return is_carried

    def _is_in(self, each: PartitionRecords) -> bool:
        number = -1 if each.partition is None else each.partition
        return self._is_partition(each.names, number) and any(
            self._offset in offsets for offsets in _offsets(each)
        )

    def _is_first_commit(self, exchange: Exchange) -> bool:
        group = kept(content.group_id(exchange))
        if not self._is_seen or group is None or group in self._groups or len(self._groups) >= _MAX_NAMES:
            return False
        is_past = any(
            each.error == 0
            and each.request.get("committed_offset", -1) > self._offset
            and self._is_partition((each.topic,), each.partition)
            for each in touched(exchange)
        )
        if is_past:
            self._groups.add(group)
        return is_past


def _offsets(each: PartitionRecords) -> Iterator[range]:
    """The offsets of each batch; more where compressed message sets (magic 0 and 1) hide their number."""
    if each.produced:
        if each.base_offset is not None:
            count = each.records.count()
            yield range(each.base_offset, _END if count is None else each.base_offset + count)
        return
    if not each.in_log:
        return
    for header in each.records.batches():
        if header["magic"] == 2:
            first = header["base_offset"]
            yield range(first, first + header["last_offset_delta"] + 1)
        else:
            last = header["offset"]
            yield range(last if header["compression"] == "none" else 0, last + 1)


def _places(exchange: Exchange) -> Iterator[str]:
    """The records at the start of each batch, in the form of a subject."""
    for each in partition_records(exchange):
        for name in each.names:
            for offsets in _offsets(each):
                yield f"{name}-{each.partition}@{offsets.start}"
