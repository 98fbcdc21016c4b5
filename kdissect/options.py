"""The settings of a run as values: what to dissect, and how to write tables.

Created by the commands (cli/options.py, cli/export_options.py) and by Spark's data source
(spark/options.py), and pickled for workers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from kdissect.files import PRIVATE
from kdissect.limits import DEFAULT, Limits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

JSONL, PARQUET = "jsonl", "parquet"
BOTH = "both"
"""Bodies of requests and of responses."""
ROTATED_BYTES = 256_000_000
WHOLE, WINDOW = "whole", "window"
"""Which parts of the input give a topic ID its name: all, or only those up to shortly after it."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to dissect, and which exchanges to select.

    Attributes:
        limits: of every stage.
        ports: dissect only connections with one of these ports; empty: all.
        kafka_ports: connections with one of these ports are dissected as Kafka, whatever their content, and
            the end with that port is the broker.
        show_secrets: do not redact credentials in bodies.
        criteria: filter name (see ``query.filters.build``) -> its values as strings.
        where: an expression, see query/where.py.
        key_logs: files with secrets of TLS sessions: key logs, and pcapng files with Decryption Secrets
            Blocks.
        pcapng_files: captures, of which pcapng files may have secrets too. Without ``key_logs`` they are
            searched when the first TLS connection begins, because a search takes a tenth as long as reading
            the file.
        end_to_end: determine when fetched records were produced.
        numbers_streams: number TCP connections as tshark does, for the field ``tcp_stream``.
        exchanges: connection ID and number of each selected exchange; empty: all.
        topic_ids: names of topic IDs that the user has given; they apply to the whole input.
        cluster: ID or name of the cluster of all brokers; None: it is learned, see exchanges/clusters.py.
        clusters: the same of brokers in some captures: patterns of their names, and clusters.
        names: ``WHOLE`` or ``WINDOW``, see exchanges/learned.py. A dissection by itself reads its input once,
            so it always uses the latter, and so do pipes and streams.
    """

    limits: Limits = DEFAULT
    ports: frozenset[int] = frozenset()
    kafka_ports: frozenset[int] = frozenset()
    show_secrets: bool = False
    criteria: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    where: str | None = None
    exchanges: frozenset[tuple[str, int]] = frozenset()
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    cluster: str | None = None
    clusters: tuple[tuple[str, str], ...] = ()
    names: str = WHOLE
    key_logs: tuple[str, ...] = ()
    pcapng_files: Sequence[str] = ()
    end_to_end: bool = False
    numbers_streams: bool = False

    def cluster_in(self, capture: str) -> str | None:
        """The cluster that the user has given to the brokers in a capture; None: none."""
        for pattern, cluster in self.clusters:
            if fnmatchcase(capture, pattern) or fnmatchcase(capture, f"*/{pattern}"):
                return cluster
        return self.cluster

    @property
    def is_filtered(self) -> bool:
        """Whether criteria or an expression select exchanges."""
        return bool(self.where) or any(self.criteria.values())


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """How to write tables.

    Attributes:
        directory: output directory, with a subdirectory for each table.
        form: ``jsonl`` or ``parquet``.
        compression: ``none``, ``gz`` or ``zst``; None: zst for Parquet, none for JSON lines.
        tables: names; empty: all except ``records``.
        bodies: of exchanges: ``none``, ``request``, ``response`` or ``both``; the others are null.
        partition_by: columns to partition directories by: ``date``, ``api``.
        rotate_bytes: size at which a file is finished and the next one begins.
        rotate_ns: age at which it is, in packet time; None: any age.
        mode: permissions of the files; those who can read the files can also list the new directories.
    """

    directory: Path
    form: str = JSONL
    compression: str | None = None
    tables: tuple[str, ...] = ()
    bodies: str = BOTH
    partition_by: tuple[str, ...] = ()
    rotate_bytes: int = ROTATED_BYTES
    rotate_ns: int | None = None
    mode: int = PRIVATE
