from __future__ import annotations

import click
import pytest

from kdissect.cli.tables import LIVE_ROTATED_NS, ROTATED_BYTES, Rotation, Tables, to_rotation

NOTHING = {
    "folder": "x", "form": None, "compression": None, "tables": None, "with_records": False, "bodies": None,
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
    ("text", "said"),
    [
        ("5m", '"5m" could be a size or a time; use 5min or 5MB'),
        ("5", '"5" is too small; use 256MB, 1GiB, 30s, 5min'),
        ("5ms", '"5ms" is too small; use 256MB, 1GiB, 30s, 5min'),
        ("often", '"often" is not a size or a time; use 256MB, 1GiB, 30s, 5min'),
    ],
)
def test_what_is_neither_or_means_two_things(text: str, said: str) -> None:
    with pytest.raises(click.BadParameter, match=said):
        to_rotation(text)


def test_the_other_of_both_stays_as_it_is() -> None:
    assert Tables.take({**NOTHING}).rotation == Rotation(ROTATED_BYTES, None)
    assert Tables.take({**NOTHING}, LIVE_ROTATED_NS).rotation == Rotation(ROTATED_BYTES, LIVE_ROTATED_NS)
    sized = Tables.take({**NOTHING, "rotate": (("bytes", 5000),)}, LIVE_ROTATED_NS)
    assert sized.rotation == Rotation(5000, LIVE_ROTATED_NS)


def test_what_is_written_down_is_what_makes_a_difference() -> None:
    options = {
        **NOTHING,
        "tables": ("groups",),
        "bodies": "none",
        "api": ("Fetch",),
        "topic": (),
        "quiet": True,
    }
    tables = Tables.take(options)
    assert tables.told == {"bodies": "none", "api": ("Fetch",)}
    assert tables.filtered
    assert options == {"api": ("Fetch",), "topic": (), "quiet": True}
