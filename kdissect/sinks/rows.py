"""Exchanges -> rows of JSON or CSV, by a writer. Holds what the writer does.

On the fast path, the core writes rows, if all columns are columns of exchanges and not paths into bodies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.sinks.sink import ALL, Each, Plan, ignore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kdissect.exchanges.latency import SplitForm
    from kdissect.model import ConnectionInfo, Exchange, Interface
    from kdissect.sinks.lines import CoreWriter
    from kdissect.sinks.sink import CommonForm, ConnectionForm, Demand


class AliveForm(NamedTuple):
    """What the core must know to note when brokers accepted requests of members of groups.

    Attributes:
        take: takes what the exchanges of a connection share, group ID, member ID, and the time of the last
            response.
        member: which of the fields for other tables has the member ID.
    """

    take: Callable[[ConnectionInfo, str, str, int], object]
    member: int


class RowForm(NamedTuple):
    """What the core must know to write JSON lines or CSV, or to fill a table.

    Attributes:
        facts: of all forms.
        columns: the text before each column; what is in it, and which of several such
            (core/src/sinks/rows.rs).
        end: the text after them.
        is_csv: how values are written.
        tables: where rows are added instead: name of each table; its columns by what is in them, and which of
            several such (core/src/sinks/table_rows.rs); the core's ``Columns``; rows and bytes with which
            it is full.
        log: what counts the exchanges besides, if anything does.
        alive: what takes the members of groups that are alive, if anything does.
        capture: from the interface of a packet to the name of its capture.
        expected: from a connection, an API key, the time of a response, and the names of errors to the names
            of those that are expected.
        split: how to split latencies.
    """

    facts: CommonForm
    columns: list[tuple[str, tuple[str, int]]]
    end: str
    is_csv: bool
    tables: list[tuple[str, list[tuple[str, int]], Any, tuple[int, int]]]
    log: ConnectionForm | None
    alive: AliveForm | None
    capture: Callable[[Interface], str]
    expected: Callable[[ConnectionInfo, int, int, list[str]], Sequence[str]]
    split: SplitForm


class Rows(Each):
    """Rows of JSON or CSV.

    Args:
        writer: writes exchanges.
        demand: which ones come, and what else is done with them.
        check, skip: see ``Each``.
    """

    def __init__(
        self,
        writer: CoreWriter,
        demand: Demand = ALL,
        *,
        check: Callable[[Exchange], object] | None = None,
        skip: Callable[[Exchange], object] = ignore,
    ) -> None:
        super().__init__(writer.feed, writer.close, check=check, skip=skip)
        self._add = writer.add
        form = writer.form if check is None and demand.allows_core else None
        self.plan = None if form is None else Plan(form)

    def take(self, output: bytes, exchanges: int) -> None:
        """Write rows of the core."""
        self.rows += exchanges
        self._add(output)
