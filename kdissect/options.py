"""The settings of a run as values: what to dissect, and how tables of it are written.

Commands (cli/options.py, cli/export_options.py) and the data source of Spark (spark/options.py) make them.
They are pickled for workers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kdissect.files import PRIVATE
from kdissect.limits import DEFAULT, Limits

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

JSONL, PARQUET = "jsonl", "parquet"
BOTH = "both"
"""Bodies of requests and of responses."""
ROTATED_BYTES = 256_000_000


@dataclass(frozen=True, slots=True)
class Options:
    """What to dissect, and which of its exchanges to select.

    Attributes:
        limits: bounds of every stage.
        ports: look only at connections with one of these ports; empty: at all.
        kafka_ports: connections with one of these are Kafka, whatever their bytes look like, and that end is
            the broker.
        show_secrets: leave credentials in the bodies.
        criteria: filters as strings, by the names that ``query.filters.build`` has for them.
        where: an expression, see query/where.py.
        exchanges: connection id and number of those that are selected; empty: all.
    """

    limits: Limits = DEFAULT
    ports: frozenset[int] = frozenset()
    kafka_ports: frozenset[int] = frozenset()
    show_secrets: bool = False
    criteria: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    where: str | None = None
    exchanges: frozenset[tuple[str, int]] = frozenset()

    @property
    def is_filtered(self) -> bool:
        """Whether criteria or an expression select exchanges."""
        return bool(self.where) or any(self.criteria.values())


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """How tables are written.

    Attributes:
        folder: holds a folder for each table.
        form: ``jsonl`` or ``parquet``.
        compression: ``none``, ``gz`` or ``zst``; None: zst for Parquet, none for JSON lines.
        tables: names; empty: all but ``records``.
        bodies: of exchanges: ``none``, ``request``, ``response`` or ``both``; the others are null.
        partition_by: columns that folders are named after: ``date``, ``api``.
        rotate_bytes: a file that has so many is finished.
        rotate_ns: so is one begun so much packet time ago; None: whatever its age.
        mode: permissions of the files; those who may read them may open the folders that are made.
    """

    folder: Path
    form: str = JSONL
    compression: str | None = None
    tables: tuple[str, ...] = ()
    bodies: str = BOTH
    partition_by: tuple[str, ...] = ()
    rotate_bytes: int = ROTATED_BYTES
    rotate_ns: int | None = None
    mode: int = PRIVATE
