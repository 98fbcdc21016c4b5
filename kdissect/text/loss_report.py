"""The counts of a run -> lines for people: what the capture is missing, and what was dropped because of a
limit.

    3 gaps in Kafka connections: 14,480 bytes not captured; 7 exchanges lost; details: kdissect check FILE

The counts are those of ``pipeline.Dissection``; exchanges/kafka_connection.py defines lost exchanges.
``full_tables``: see stats/summarizer.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.phrases import facts, many

if TYPE_CHECKING:
    from collections.abc import Mapping

DETAILS = "details: kdissect check FILE"


def loss_lines(counts: Mapping[str, int]) -> list[str]:
    """One line for each kind of loss; none if everything was captured and nothing dropped."""
    return [*_one_direction(counts), *_gaps(counts), *_dropped(counts)]


def _one_direction(counts: Mapping[str, int]) -> list[str]:
    if not (connections := counts.get("kafka_responses_only", 0)):
        return []
    text = f"{many(connections, 'Kafka connection')} with responses only"
    return [f"{text}: capture where both directions can be seen; {DETAILS}"]


def _gaps(counts: Mapping[str, int]) -> list[str]:
    gaps, cut = counts.get("kafka_gaps", 0), counts.get("kafka_cut_bytes", 0)
    skipped = counts.get("kafka_skipped_bytes", 0)
    lines: list[str] = []
    if gaps:
        missing = many(counts.get("kafka_lost_bytes", 0), "byte")
        line = f"{many(gaps, 'gap')} in Kafka connections: {missing} not captured"
        lines.append(f"{line}, {many(skipped, 'byte')} skipped" if skipped else line)
    if undelivered := counts.get("kafka_undelivered_gaps", 0):
        missing = many(counts.get("kafka_undelivered_bytes", 0), "byte")
        line = f"{missing} of Kafka connections did not arrive, in {many(undelivered, 'gap')}"
        lines.append(f"{line}: the network lost them; {DETAILS}")
    if cut:
        lines.append(f"the snaplen truncated {many(cut, 'byte')} of Kafka connections (capture with -s 0)")
    lost, incomplete = counts.get("exchanges_lost", 0), counts.get("exchanges_incomplete", 0)
    cost = facts(
        many(lost, "exchange") + " lost" if lost else None,
        many(incomplete, "exchange") + " incomplete" if incomplete else None,
    )
    if lines and cost:
        lines[-1] += f"; {cost}"
    if gaps:
        lines[-1] += f"; {DETAILS}"
    return lines


def _dropped(counts: Mapping[str, int]) -> list[str]:
    lines = []
    if evicted := counts.get("closed_evicted", 0):
        text = f"{many(evicted, 'connection')} evicted before {'its' if evicted == 1 else 'their'} end"
        lines.append(f"{text}; --limits connections=N keeps more")
    if requests := counts.get("requests_given_up", 0):
        lines.append(
            f"{many(requests, 'outstanding request')} dropped because of a limit; --limits shows the limits"
        )
    if flushed := counts.get("streams_flushed", 0):
        times = many(flushed, "time")
        text = f"stopped waiting for missing segments {times}: too much data was buffered after them"
        lines.append(f"{text}; --limits total_stream_bytes=SIZE holds more")
    if forgotten := counts.get("ended_forgotten", 0):
        text = (
            f"{many(forgotten, 'closed connection')} forgotten early; their repeated packets are "
            "counted again"
        )
        lines.append(f"{text}; --limits ended_connections=N keeps more")
    if evicted := counts.get("produced_evicted", 0):
        text = f"{evicted:,} produced {'batch' if evicted == 1 else 'batches'} forgotten early"
        lines.append(f"{text}; --limits produced_batches=N keeps more for e2e_latency_us")
    if names := counts.get("names_forgotten", 0):
        text = f"a topic's name was forgotten {many(names, 'time')}"
        lines.append(f"{text}; --limits topic_names=N keeps more")
    if unsure := counts.get("unsure_ids", 0):
        text = f"{many(unsure, 'connection')} may have the ID of an earlier one"
        lines.append(f"{text}; --limits connection_ids=N remembers more")
    if late := counts.get("late_segments", 0):
        text = f"{many(late, 'TCP segment')} captured too late to fill a gap"
        lines.append(f"{text}; --limits reorder_window=TIME waits longer")
    if shed := counts.get("shed", 0):
        text = f"buffered data was dropped {many(shed, 'time')} because connections held too much"
        lines.append(f"{text}; --limits total_held_bytes=SIZE keeps more")
    if full := counts.get("full_tables", 0):
        text = f"{many(full, 'table')} {'is' if full == 1 else 'are'} full"
        lines.append(f"{text}: further names are counted together; --limits summary_rows=N keeps more")
    return lines
