"""Who is behind, and how far: the part of the document that ``--lag`` asks for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  (the JSON Schema is made from the annotations)

from kdissect.analysis.summary.fields import told


@dataclass(slots=True, kw_only=True)
class LagRow:
    """A reader of a partition: a client that fetches it, or a group that commits offsets of it."""

    kind: str = told("`client` or `group`.")
    name: str = told("Client id, or group id.")
    topic: str = told("Name or id of the topic.")
    partition: int = told("Its partition.")
    position: int | None = told("Of a client: the offset behind the last record it got.")
    committed_offset: int | None = told("Of a group: the last offset committed, or told by OffsetFetch.")
    high_watermark: int | None = told("End of what consumers may read, as the wire last told it.")
    last_stable_offset: int | None = told("End of what read_committed consumers may read.")
    log_start_offset: int | None = told("First offset that is still there.")
    lag: int | None = told("Records between that position or offset and the high watermark, at the end.")
    lag_first: int | None = told("The same when it was first known.")
    lag_worst: int | None = told("The same when it was largest.")
    worst: datetime | None = told("When that was.")
    seconds: float | None = told("Age of the newest record it got, when records were left; 0 when none were.")
    seconds_worst: float | None = told("The oldest that it was.")
    first: datetime = told("First time that it fetched or committed.")
    last: datetime = told("Last time.")
    count: int = told("Answers to Fetch that told a lag; of a group: commits, and answers to OffsetFetch.")
