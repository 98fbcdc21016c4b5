"""Exchanges -> rows of ``brokers`` and ``rebalances``, which are known when all of them were read.

What is held merges, however a capture is divided: at most ``Limits.export_brokers`` brokers, and what a
summary holds of groups.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.exchanges.group_events import group_events, usual_events
from kdissect.exchanges.nodes import names_nodes, nodes
from kdissect.model import Endpoint
from kdissect.names import kept
from kdissect.phrases import many
from kdissect.stats.by_cluster import ByCluster
from kdissect.stats.groups import Groups, timelines
from kdissect.stats.quantiles import Bounded
from kdissect.stats.sums import Summed, earlier, earliest, later, latest, merged, summed
from kdissect.tables.columns import INT32, INT64, STRING, TIMESTAMP, Array, Column, Struct
from kdissect.tables.form import SEE_EXCHANGES, Table, int64, time_columns, valid_time

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from kdissect.exchanges.group_events import GroupEvent
    from kdissect.limits import Limits
    from kdissect.model import ConnectionInfo, Exchange
    from kdissect.stats.rebalances import Rebalance

    Advertised = tuple[str | None, tuple[str, int] | None]
    NamedByCore = tuple[tuple[int, str, int], tuple[int, int], int, tuple[tuple[int, int], str] | None]


# --- brokers ------------------------------------------------------------------------------------------------


@summed
class Named(Summed):
    """When a broker was named.

    Attributes:
        first: time, connection and number of the first exchange that names it.
        last_ns: time of the last.
        rack: the latest, after time, connection and number.
    """

    first: tuple[int, str, int] | None = earliest()
    last_ns: int | None = latest()
    rack: tuple[int, str, int, str] | None = latest()


@summed
class Brokers(Summed):
    """The brokers of a cluster, by node ID, host and port."""

    named: Bounded[tuple[int, str, int], Named] = merged()

    def __init__(self, limits: Limits) -> None:
        self.named = Bounded(limits.export_brokers, Named)

    def take(self, exchange: Exchange) -> None:
        """Note the brokers that an exchange names."""
        place = exchange.time_ns, exchange.connection.id, exchange.number
        for node in nodes(exchange):
            rack = None if node.rack is None else (*place, kept(node.rack))
            self.note(node[:3], place, place[0], rack)

    def note(
        self,
        node: tuple[int, str, int],
        first: tuple[int, str, int],
        last_ns: int,
        rack: tuple[int, str, int, str] | None,
    ) -> None:
        """Note a broker that some exchanges name, see ``Named``."""
        each = self.named[node]
        each.first = earlier(each.first, first)
        each.last_ns = later(each.last_ns, last_ns)
        if rack is not None:
            each.rack = later(each.rack, rack)


class NamedBroker(NamedTuple):
    """A broker of a cluster."""

    cluster_id: str | None
    node_id: int
    host: str
    port: int
    named: Named


BROKERS = Table(
    "brokers",
    "A broker, or one of its listeners, as Metadata, DescribeCluster, FindCoordinator and messages among "
    "brokers name it: one row for each node ID, host and port in a cluster.",
    (
        Column("cluster_id", STRING, attrgetter("cluster_id"), SEE_EXCHANGES),
        Column("node_id", INT32, attrgetter("node_id"), "Node ID."),
        Column("host", STRING, attrgetter("host"), "Advertised host name or address."),
        Column("port", INT32, attrgetter("port"), "Advertised port."),
        Column(
            "rack",
            STRING,
            lambda row: row.named.rack and row.named.rack[-1],
            "Rack as it was named last; null if no message names one. FindCoordinator has no racks.",
        ),
        *time_columns(lambda row: row.named.first[0], "Time of the first exchange that names it."),
        Column(
            "last_time",
            TIMESTAMP,
            valid_time(attrgetter("named.last_ns")),
            "Time of the last exchange that names it.",
        ),
        Column(
            "connection",
            STRING,
            lambda row: row.named.first[1],
            "See `exchanges`; of the first exchange that names it.",
        ),
        Column(
            "number",
            INT64,
            lambda row: row.named.first[2],
            "See `exchanges`; of the first exchange that names it.",
        ),
    ),
)


# --- rebalances ---------------------------------------------------------------------------------------------


class GroupRebalance(NamedTuple):
    """A rebalance of a group."""

    cluster_id: str | None
    group_id: str
    rebalance: Rebalance


def _causes(row: GroupRebalance) -> list[dict[str, Any]]:
    return [
        {
            "cause": each.cause,
            "time_ns": None if each.time_ns is None else int64(each.time_ns),
            "member_id": each.member_id,
            "client_id": each.client_id,
            "reason": each.reason,
        }
        for each in row.rebalance.causes
    ]


def _duration_us(row: GroupRebalance) -> int | None:
    each = row.rebalance
    return None if each.end_ns is None else each.end_ns // 1000 - each.start_ns // 1000


def _of_rebalance(name: str, kind: Any, description: str) -> Column:
    return Column(name, kind, attrgetter(f"rebalance.{name}"), description)


_FIRST = "See `exchanges`; of the rebalance's first exchange."
_CAUSE = Struct(
    (
        *(("cause", STRING), ("time_ns", INT64)),
        *(("member_id", STRING), ("client_id", STRING), ("reason", STRING)),
    )
)

REBALANCES = Table(
    "rebalances",
    "A rebalance of a group, as in `summary --groups`: from its first sign to the last assignment of one "
    "generation; in groups that only use heartbeats, until the last member received the new epoch.",
    (
        Column("cluster_id", STRING, attrgetter("cluster_id"), SEE_EXCHANGES),
        Column("group_id", STRING, attrgetter("group_id"), "Group ID."),
        *time_columns(
            attrgetter("rebalance.start_ns"),
            "Time of its first exchange: a JoinGroup, a LeaveGroup, or a Heartbeat rejected with "
            "REBALANCE_IN_PROGRESS.",
        ),
        Column(
            "end_time",
            TIMESTAMP,
            valid_time(attrgetter("rebalance.end_ns")),
            "When the last member received its assignment; null if that was not captured.",
        ),
        Column("duration_us", INT64, _duration_us, "From `time` to `end_time`.", "us"),
        Column(
            "cause",
            STRING,
            lambda row: row.rebalance.causes[0].cause if row.rebalance.causes else None,
            "What started it: `first` (member), `join`, `return` (of a static member), `leave`, `timeout`, "
            "`subscription` (changed), `revocation` (second half of a cooperative rebalance), `protocol` "
            "(changed assignor), `metadata` (changed topics), `rejoin`, `unknown`.",
        ),
        Column(
            "causes",
            Array(_CAUSE),
            _causes,
            "That, and what else happened before it ended: cause, time in nanoseconds since 1970, member, "
            "client, reason given by the client (KIP-800).",
        ),
        _of_rebalance(
            "generation_before", INT32, "Generation or epoch before it; null if it was not captured."
        ),
        _of_rebalance("generation_after", INT32, "The resulting generation or epoch."),
        _of_rebalance("members_before", INT32, "Members before it; null if that was not captured."),
        _of_rebalance(
            "members_after",
            INT32,
            "Members as reported to the leader; otherwise, those seen in the capture.",
        ),
        _of_rebalance("joins", INT64, "Number of JoinGroup requests, including failed ones."),
        _of_rebalance("protocol", STRING, "Partition assignor chosen."),
        _of_rebalance("leader", STRING, "Member ID of the leader."),
        Column("connection", STRING, lambda row: row.rebalance.exchange.rpartition("/")[0], _FIRST),
        Column("number", INT64, lambda row: int(row.rebalance.exchange.rpartition("/")[2]), _FIRST),
    ),
)


# --- both ---------------------------------------------------------------------------------------------------


WHOLE_TABLES = {table.name: table for table in (BROKERS, REBALANCES)}


@summed
class Whole(Summed):
    """What the tables need to know of a cluster; None: that table is not requested."""

    brokers: Brokers | None = merged()
    groups: Groups | None = merged()

    def __init__(self, limits: Limits, tables: Collection[str]) -> None:
        self.brokers = Brokers(limits) if BROKERS.name in tables else None
        self.groups = Groups(limits) if REBALANCES.name in tables else None


class WholeRows:
    """Makes the rows of the requested tables.

    Args:
        tables: their names, and maybe others.
        limits: see ``Limits``.

    Attributes:
        of_clusters: a ``Whole`` for each cluster.
    """

    def __init__(self, tables: Collection[str], limits: Limits) -> None:
        self._tables = frozenset(WHOLE_TABLES.keys() & tables)
        self.of_clusters = ByCluster(partial(Whole, limits, self._tables), limits)

    def feed(self, exchange: Exchange) -> None:
        """Note what an exchange says."""
        self.of_clusters.learn(exchange)
        key, version = exchange.api_key, exchange.api_version
        if key is None or version is None:
            return
        if BROKERS.name in self._tables and names_nodes(key, version):
            self.of_clusters.of(exchange.connection).brokers.take(exchange)
        if self.has_rebalances and usual_events(exchange.api) != "never":
            self.see_events(exchange.connection, group_events(exchange, include_alive=True))

    def merge(self, part: ByCluster) -> None:
        """Add what another part of the same captures says; it is not used afterward."""
        self.of_clusters.merge(part)

    def take_brokers(
        self, info: ConnectionInfo, advertised: Sequence[Advertised], named: Sequence[NamedByCore]
    ) -> None:
        """Note brokers that exchanges of a connection name, see ``WholePlan``."""
        for cluster, end in advertised:
            if cluster is not None:
                self.of_clusters.learn_cluster(info.broker if end is None else Endpoint(*end), cluster)
        if named and BROKERS.name in self._tables:
            brokers = self.of_clusters.of(info).brokers
            for node, (first_ns, number), last_ns, rack in named:
                latest_rack = None if rack is None else (rack[0][0], info.id, rack[0][1], kept(rack[1]))
                brokers.note(node, (first_ns, info.id, number), last_ns, latest_rack)

    @property
    def has_rebalances(self) -> bool:
        """Whether it needs the events of groups."""
        return REBALANCES.name in self._tables

    def see_events(self, info: ConnectionInfo, events: Iterable[GroupEvent]) -> None:
        """Take events of groups."""
        groups = self.of_clusters.of(info).groups
        for event in events:
            groups.see(kept(event))

    def see_alive(self, info: ConnectionInfo, group: str, member: str, completed_ns: int) -> None:
        """Take a member whose commit, or heartbeat without a change, a broker has accepted."""
        self.of_clusters.of(info).groups.see_alive(group, member, completed_ns)

    def close(self) -> Iterator[tuple[str, Any]]:
        """The rows, with the names of their tables, in order of time."""
        by_id = self.of_clusters.by_id()
        if BROKERS.name in self._tables:
            brokers = [
                NamedBroker(cluster, node_id, host, port, named)
                for cluster, whole in by_id.items()
                for (node_id, host, port), named in whole.brokers.named.items()
            ]
            for broker in sorted(brokers, key=lambda row: (row.named.first, row.cluster_id or "", row[1:4])):
                yield BROKERS.name, broker
        if REBALANCES.name in self._tables:
            rebalances = [
                GroupRebalance(cluster, group, each)
                for cluster, whole in by_id.items()
                for group, timeline in timelines(whole.groups)
                for each in timeline
            ]
            for row in sorted(rebalances, key=_by_start):
                yield REBALANCES.name, row

    def left_out(self) -> list[str]:
        """What is missing in the tables because of limits, for people. To be called after ``close``."""
        parts = list(self.of_clusters.by_id().values())
        warnings = []
        if BROKERS.name in self._tables and any(part.brokers.named.other is not None for part in parts):
            warnings.append("brokers: more than the limit export_brokers; the others are not in the table")
        events = sum(part.groups.left_out for part in parts) if REBALANCES.name in self._tables else 0
        if events:
            warnings.append(
                f"rebalances: {many(events, 'event')} of groups beyond the limits summary_group_..."
            )
        return warnings


def _by_start(row: GroupRebalance) -> tuple[int, str, str, int]:
    return row.rebalance.start_ns, row.cluster_id or "", row.group_id, row.rebalance.generation_after
