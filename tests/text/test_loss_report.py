"""What a capture is missing, in a line or two."""

from __future__ import annotations

import pytest

from kdissect.text.loss_report import DETAILS, loss_lines

GAPS = {"kafka_gaps": 3, "kafka_lost_bytes": 14_480}
CUT = "the snaplen truncated 900 bytes of Kafka connections (capture with -s 0)"
THREE_GAPS = "3 gaps in Kafka connections: 14,480 bytes not captured"


@pytest.mark.parametrize(
    ("counts", "lines"),
    [
        ({"packets": 9, "gaps": 3}, []),
        (GAPS, [f"{THREE_GAPS}; {DETAILS}"]),
        (
            GAPS | {"kafka_skipped_bytes": 7, "exchanges_lost": 7, "exchanges_incomplete": 1},
            [f"{THREE_GAPS}, 7 bytes skipped; 7 exchanges lost, 1 exchange incomplete; {DETAILS}"],
        ),
        (
            {"kafka_gaps": 0, "kafka_cut_bytes": 900, "exchanges_incomplete": 12},
            [f"{CUT}; 12 exchanges incomplete"],
        ),
        (
            GAPS | {"kafka_cut_bytes": 900, "exchanges_lost": 1},
            [
                THREE_GAPS,
                f"{CUT}; 1 exchange lost; {DETAILS}",
            ],
        ),
        (
            {"kafka_responses_only": 1},
            [f"1 Kafka connection with responses only: capture where both directions can be seen; {DETAILS}"],
        ),
        (
            {"kafka_skipped_bytes": 2521},
            [],
        ),
        (
            {"closed_evicted": 1, "requests_given_up": 4096, "shed": 2},
            [
                "1 connection evicted before its end; --limits connections=N keeps more",
                "4,096 outstanding requests dropped because of a limit; --limits shows the limits",
                (
                    "buffered data was dropped 2 times because connections held too much; "
                    "--limits total_held_bytes=SIZE keeps more"
                ),
            ],
        ),
        (
            {"full_tables": 1},
            ["1 table is full: further names are counted together; --limits summary_rows=N keeps more"],
        ),
    ],
)
def test_the_lines(counts: dict[str, int], lines: list[str]) -> None:
    assert loss_lines(counts) == lines
