"""The errors of an exchange -> those that are normal steps of the protocol: kafka/expected.tsv lists them,
with reasons.

Some are expected only at first: such errors are how clients learn that a leader or a coordinator moved. If
one persists on a connection, something is wrong.

Holds two times for each such error of a connection.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from kdissect.kafka.codes import rows
from kdissect.limits import SECOND_NS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kdissect.model import ConnectionInfo, Exchange

AT_FIRST_NS = 5 * SECOND_NS
"""Leaders and coordinators move, and new topics get a leader, within a few seconds; clients retry every
100 ms to 1 s (retry.backoff.ms, retry.backoff.max.ms).
"""

_ANY_API = "*"


def expected_errors(exchange: Exchange, errors: Iterable[str]) -> tuple[str, ...]:
    """The expected ones of its ``errors``. Call it once for each exchange with errors, in order within each
    connection.
    """
    return expected_of(exchange.connection, exchange.api, exchange.completed_ns, errors)


def expected_of(
    info: ConnectionInfo, api: str | None, completed_ns: int, errors: Iterable[str]
) -> tuple[str, ...]:
    """The same for an exchange of this connection and API that completed at this time."""
    return tuple(error for error in errors if _is_expected(info, api, completed_ns, error))


def _is_expected(info: ConnectionInfo, api: str | None, now_ns: int, error: str) -> bool:
    new_after_ns = _new_after_ns().get((error, api), _new_after_ns().get((error, _ANY_API)))
    if not new_after_ns:
        return new_after_ns is not None
    since = info.errors_since
    first_ns, last_ns = since.get(error, (now_ns, now_ns))
    if now_ns - last_ns > new_after_ns:
        first_ns = now_ns
    since[error] = first_ns, now_ns
    return now_ns - first_ns <= AT_FIRST_NS


@cache
def _new_after_ns() -> dict[tuple[str, str | None], int]:
    """Error and API -> for how long there is none of it before it counts as a first one again. 0: it is
    expected at any time.

    A producer whose previous transaction is still being ended retries within ``retry.backoff.max.ms``, 1 s:
    CONCURRENT_TRANSACTIONS after two seconds is about another transaction.
    """
    return {
        (row["error"], api): int(row["new_after_s"]) * SECOND_NS
        for row in rows("expected.tsv")
        for api in row["apis"].split()
    }
