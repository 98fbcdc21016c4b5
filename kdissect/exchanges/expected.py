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

_EXPIRY_NS = 60 * SECOND_NS
"""After this long without the error, its next occurrence counts as a first one again."""

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
    only_at_first = _only_at_first().get((error, api), _only_at_first().get((error, _ANY_API)))
    if not only_at_first:
        return only_at_first is not None
    since = info.errors_since
    first_ns, last_ns = since.get(error, (now_ns, now_ns))
    if now_ns - last_ns > _EXPIRY_NS:
        first_ns = now_ns
    since[error] = first_ns, now_ns
    return now_ns - first_ns <= AT_FIRST_NS


@cache
def _only_at_first() -> dict[tuple[str, str | None], bool]:
    """Error and API -> whether the error is expected only at first."""
    return {
        (row["error"], api): row["only_at_first"] == "true"
        for row in rows("expected.tsv")
        for api in row["apis"].split()
    }
