"""Rows of exchanges -> what the native core must know to note what other tables need, made at the
end, and to add rows of events of groups. Holds nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.exchanges.group_events import ALIVE, group_events
from kdissect.exchanges.topic_names import topic_refs
from kdissect.exchanges.undecoded import whole_exchange
from kdissect.sinks.plan import WholePlan
from kdissect.tables.columns import arrow_getter, text_getter
from kdissect.tables.values import json_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kdissect.exchanges.group_events import GroupEvent
    from kdissect.exchanges.undecoded import WholeExchange
    from kdissect.model import Exchange
    from kdissect.sinks.plan import PlanContext
    from kdissect.tables.columns import Column
    from kdissect.tables.rows import TableRows


def whole_plan(
    context: PlanContext,
    rows: TableRows,
    groups: Sequence[Column],
    member: int,
    later: Callable[..., Callable[..., Any]],
    *,
    are_lines: bool,
) -> WholePlan:
    """What the core must know.

    Args:
        context: names of topics, and limits.
        rows: makes those of the exchanges that the core leaves.
        groups: the columns of that table; none if it is not requested.
        member: see ``WholePlan``.
        later: from what takes something of an exchange to what takes it when the exchange is through.
        are_lines: whether rows are JSON lines, or values for columns.
    """
    whole = rows.whole
    names = [column.name for column in groups]
    getters = [(text_getter if are_lines else arrow_getter)(column) for column in groups]

    def row(event: GroupEvent) -> list[Any] | bytes:
        values = [get(event) for get in getters]
        return json_line(dict(zip(names, values, strict=True))) if are_lines else values

    def events(carried: WholeExchange) -> tuple[list[Any], Any]:
        exchange = _decoded(context, whole_exchange(carried))
        of_exchange = group_events(exchange, include_alive=True)
        shown = [row(event) for event in of_exchange if getters and event.event != ALIVE]
        return shown, (exchange.connection, of_exchange) if has_rebalances else None

    plan = WholePlan(
        take_brokers=later(rows.take_brokers) if rows.needs_brokers else None,
        take_alive=None,
        member=member,
        events=events if getters else None,
        take_events=None,
        has_cluster=lambda info: info.cluster_id is not None,
    )
    has_rebalances = whole is not None and whole.has_rebalances
    if whole is None or not has_rebalances:
        return plan
    see_events = whole.see_events
    return plan._replace(
        take_alive=later(whole.see_alive), events=events, take_events=later(lambda seen: see_events(*seen))
    )


def _decoded(context: PlanContext, exchange: Exchange) -> Exchange:
    """An answered exchange, as far as its group events need it. The names in it have been learned.

    Raises:
        LookupError: it has an anomaly, or a topic ID without a name.
    """
    context.decoding.decode(exchange)
    if exchange.anomalies:
        raise LookupError(exchange.api)
    for topic_id in topic_refs(exchange).keys:
        name = context.names.name(topic_id, exchange.completed_ns)
        if name is None:
            raise LookupError(topic_id)
        if name != topic_id:
            exchange.topic_ids[topic_id] = name
    return exchange
