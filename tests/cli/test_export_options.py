from __future__ import annotations

import click
import pytest

from kdissect.cli.export_options import LIVE_ROTATED_NS, take_export, to_rotation
from kdissect.cli.options import take_options
from kdissect.options import ROTATED_BYTES
from kdissect.tables import manifest

NOTHING = {
    "directory": "x", "form": None,
    "compression": None, "tables": None, "with_records": False, "bodies": None,
    "rotate": (), "partition_by": None, "mode": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "rotation"),
    [
        ("256MB", ("bytes", 256_000_000)),
        ("1GiB", ("bytes", 1 << 30)),
        ("1M", ("bytes", 1_000_000)),
        ("5000", ("bytes", 5000)),
        ("5min", ("duration_ns", 300_000_000_000)),
        ("30 s", ("duration_ns", 30_000_000_000)),
        ("1h", ("duration_ns", 3_600_000_000_000)),
    ],
)
def test_a_file_ends_by_size_or_by_time(text: str, rotation: tuple[str, int]) -> None:
    assert to_rotation(text) == rotation


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5m", '"5m" is ambiguous; use 5min or 5MB'),
        ("5", '"5" is too small; use 256MB, 1GiB, 30s, 5min'),
        ("5ms", '"5ms" is too small; use 256MB, 1GiB, 30s, 5min'),
        ("often", '"often" is not a size or a time; use 256MB, 1GiB, 30s, 5min'),
    ],
)
def test_invalid_or_ambiguous_rotation(text: str, message: str) -> None:
    with pytest.raises(click.BadParameter, match=message):
        to_rotation(text)


def test_the_other_default_stays() -> None:
    def rotation(rotate: tuple[tuple[str, int], ...], *rotated_ns: int) -> tuple[int, int | None]:
        export = take_export({**NOTHING, "rotate": rotate}, *rotated_ns)
        return export.rotate_bytes, export.rotate_ns

    assert rotation(()) == (ROTATED_BYTES, None)
    assert rotation((), LIVE_ROTATED_NS) == (ROTATED_BYTES, LIVE_ROTATED_NS)
    assert rotation((("bytes", 5000),), LIVE_ROTATED_NS) == (5000, LIVE_ROTATED_NS)


def test_the_manifest_has_the_options_that_change_the_output() -> None:
    own = {**NOTHING, "tables": ("groups",), "bodies": "none", "mode": 0o644}
    options = {
        **own,
        "api": ("Fetch",),
        "topic": (),
        "ports": (),
        "decode_as": ({9092},),
        "show_secrets": False,
    }
    export, query = take_export(options), take_options(options)
    assert manifest.job_of([], query, export)["options"] == {
        "form": "jsonl",
        "bodies": "none",
        "rotate_bytes": ROTATED_BYTES,
        "kafka_ports": [9092],
        "criteria": {"api": ["Fetch"]},
        "names": "whole",
    }
    assert query.is_filtered
    assert options == {}
