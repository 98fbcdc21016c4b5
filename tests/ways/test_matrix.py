"""All ways to run a command show the same: see matrix.py.

By default each command is run in each way once, of a capture in turn. All captures of what people reported
are read in each way. All captures and incidents are summarized with the core, and in two or three processes.
With ``KDISSECT_HYPOTHESIS=deep``, it is all captures x commands x ways.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.depth import IS_DEEP
from tests.ways.matrix import (
    BY_NAME,
    CAPTURES,
    COMMANDS,
    DIFFERENCES,
    IN_SPARK,
    INCIDENTS,
    JSON,
    LINES,
    OF_EXPORT,
    OF_REPORTS,
    PARAMETERS,
    SUMMARY,
    WAYS,
    Capture,
    Command,
    Difference,
    Matrix,
    Shown,
    Way,
    differences,
    left_of,
)

if TYPE_CHECKING:
    from pathlib import Path

REPORTED = [capture for capture in CAPTURES if capture.path.parent.name == "field"]


@pytest.fixture
def matrix(shared_directory: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Matrix:
    return Matrix(shared_directory, capfdbinary)


def both(matrix: Matrix, capture: Capture, command: Command, way: Way) -> tuple[Shown, Shown]:
    """What Python alone shows, and what a way shows, without documented differences."""
    documented = differences(way, command)
    expected = matrix.expected(capture, way.reference(command))
    return left_of(expected, capture, documented), left_of(
        way.run(matrix, capture, command), capture, documented
    )


def is_same(matrix: Matrix, capture: Capture, command: Command, way: Way) -> bool:
    expected, shown = both(matrix, capture, command, way)
    return shown == expected


def check(matrix: Matrix, capture: Capture, command: Command, way: Way) -> None:
    expected, shown = both(matrix, capture, command, way)
    assert (shown.status, shown.err, shown.out) == (expected.status, expected.err, expected.out)
    assert shown.files == expected.files


def in_turn(matrix: Matrix, command: Command, way: Way) -> Capture:
    """The first capture of which the command shows something, beginning at another one for each command."""
    place = COMMANDS.index(command) * 7 % len(CAPTURES)
    for capture in CAPTURES[place:] + CAPTURES[:place]:
        if way.takes(command, capture) and not matrix.expected(capture, way.reference(command)).is_empty:
            return capture
    raise AssertionError(f"{command} shows nothing of any capture")


PAIRS = [
    (command, way)
    for command in COMMANDS
    for way in WAYS
    if any(way.takes(command, each) for each in CAPTURES)
]
SUMMARIES = [
    (capture, jobs)
    for place, capture in enumerate([*CAPTURES, *INCIDENTS])
    for jobs in (2, 3)
    if IS_DEEP or jobs == 2 + place % 2
]
WHOLE = CAPTURES if IS_DEEP else [BY_NAME["quickstart"]]


@pytest.mark.parametrize(("command", "way"), PAIRS, ids=str)
def test_each_command_in_each_way(command: Command, way: Way, matrix: Matrix) -> None:
    check(matrix, in_turn(matrix, command, way), command, way)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("capture", REPORTED, ids=str)
def test_what_was_reported_in_each_way(capture: Capture, way: Way, matrix: Matrix) -> None:
    for command in OF_REPORTS if way.name == "core" else [JSON]:
        if way.takes(command, capture):
            check(matrix, capture, command, way)


@pytest.mark.parametrize(("capture", "jobs"), SUMMARIES, ids=str)
def test_every_summary_is_that_of_python_in_one_process(capture: Capture, jobs: int, matrix: Matrix) -> None:
    expected = matrix.expected(capture, SUMMARY)
    for each in (1, jobs):
        shown = matrix.run(capture, SUMMARY, jobs=each)
        assert (each, shown.status, shown.err) == (each, expected.status, expected.err)
        assert shown.out == expected.out


@pytest.mark.deep
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("capture", WHOLE, ids=str)
def test_all_commands_of_a_capture(capture: Capture, way: Way, matrix: Matrix) -> None:
    commands = [command for command in COMMANDS if way.takes(command, capture)]
    different = [str(command) for command in commands if not is_same(matrix, capture, command, way)]
    assert different == []


def test_every_command_that_reads_captures_is_in_the_matrix() -> None:
    missing = {*PARAMETERS} - {*LINES, *IN_SPARK, *OF_EXPORT}
    assert not missing, f"add lines with options of {', '.join(missing)} to LINES in tests/ways/matrix.py"
    assert {*LINES, *IN_SPARK, *OF_EXPORT} <= {*PARAMETERS}


@pytest.mark.parametrize(
    ("difference", "way"),
    [
        (each, way)
        for each in DIFFERENCES
        for way in WAYS
        if way.name in each.ways and way.takes(each.command, BY_NAME[each.capture])
    ],
    ids=str,
)
def test_every_difference_is_there(difference: Difference, way: Way, matrix: Matrix) -> None:
    """One that is no longer there must go, or it hides others."""
    capture, command = BY_NAME[difference.capture], difference.command
    others = [each for each in differences(way, command) if each is not difference]
    shown = left_of(way.run(matrix, capture, command), capture, others)
    assert shown != left_of(matrix.expected(capture, way.reference(command)), capture, others)


def test_every_way_of_a_difference_has_a_command_that_shows_it() -> None:
    names = {way.name: way for way in WAYS}
    for each in DIFFERENCES:
        for way in each.ways:
            assert names[way].takes(each.command, BY_NAME[each.capture]), (each.reason, way)
