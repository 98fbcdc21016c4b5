"""All tables of an export, by name. Holds nothing."""

from __future__ import annotations

from kdissect.sinks.tables.exchanges import exchanges, records
from kdissect.sinks.tables.groups import GROUPS
from kdissect.sinks.tables.others import ANOMALIES, CAPTURES, CONNECTIONS, TOPIC_IDS
from kdissect.sinks.tables.partitions import PARTITIONS

TABLES = {
    table.name: table
    for table in (
        exchanges(), records(), PARTITIONS, CONNECTIONS, GROUPS, TOPIC_IDS, ANOMALIES, CAPTURES,
    )
}  # fmt: skip
RECORDS = "records"
"""The one that is written only when asked for: it opens every batch."""
