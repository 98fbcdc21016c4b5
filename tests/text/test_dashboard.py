from __future__ import annotations

import pytest

from kdissect.phrases import columns_of
from kdissect.stats.pulse import Pulse, PulseSnapshot
from kdissect.text.dashboard import StatusBar, UiState, draw
from kdissect.text.style import Style
from tests.pulses import at, beat, busy, fed

SMALL, LARGE = (80, 24), (200, 50)
STATUS = StatusBar("eth0", memory_bytes=61_000_000)


def screen(
    now: PulseSnapshot | None = None, *keys: str, size: tuple[int, int] = SMALL, status: StatusBar = STATUS
) -> list[str]:
    choices = UiState()
    for key in keys:
        choices.press(key)
    return [line.plain for line in draw(now or busy().now(), choices, status, *size)]


def test_80x24() -> None:
    lines = screen()
    assert lines[0].startswith("kdissect live eth0  14:13:30 UTC  rates over ")
    assert lines[1].startswith("4.9 exchanges/s")
    assert "2.3% errors" in lines[1]
    assert "p50 5.00ms" in lines[1]
    assert lines[2].split("  ")[0].strip() == "1 APIs"
    assert lines[3].split() == [
        "API",
        "/s▼",
        "N",
        "P50",
        "P99",
        "ERRORS/s",
        "ERRORS",
        "UNANSWERED",
        "WAITS/s",
    ]
    assert [line.split()[0] for line in lines[4:9]] == [
        "Heartbeat",
        "Produce",
        "Fetch",
        "JoinGroup",
        "OffsetCommit",
    ]
    events = lines.index(next(line for line in lines if line.startswith("5 Errors and rebalances")))
    assert "NOT_LEADER_OR_FOLLOWER" in lines[events + 2]
    assert lines[-2].startswith("1,234 packets  0 dropped  memory 61.0 MB  5 connections")
    assert "q quit" in lines[-1]


@pytest.mark.parametrize(
    ("key", "headings", "first"),
    [
        ("2", ["TOPIC", "REC", "IN/s", "IN/s▼", "REC", "OUT/s", "OUT/s", "ERRORS/s", "ERRORS"], "orders"),
        ("3", ["CLIENT", "CONN", "/s▼", "N", "P99", "ERRORS/s", "LIBRARY"], "app"),
        ("4", ["GROUP", "STATE", "MEMBERS", "LAG▼", "WORST", "REBAL"], "g"),
    ],
)
def test_panes_at_80x24(key: str, headings: list[str], first: str) -> None:
    lines = screen(None, key)
    assert lines[3].split() == headings
    assert lines[4].split()[0] == first


def test_lost_segments_are_shown_if_they_are_more_than_usual() -> None:
    current = busy().now()
    assert "3.5% of segments lost" in screen(current._replace(segments=626, lost=22))[1]
    assert "lost" not in screen(current._replace(segments=6260, lost=22))[1]
    assert "lost" not in screen(current._replace(segments=20, lost=9))[1]


def test_a_group_and_its_lag() -> None:
    assert screen(None, "4")[4].split() == ["g", "stable", "1", "510", "orders-0", "510", "1"]


def test_news_fill_the_screen_where_they_are_chosen() -> None:
    lines = screen(None, "5")
    assert lines[3].split() == ["TIME▼", "EVENT", "COUNT", "DETAILS"]
    assert sum("Errors and rebalances" in line for line in lines) == 1


def test_all_panes_side_by_side_at_200x50() -> None:
    lines = screen(size=LARGE)
    titles = [line for line in lines if "──" in line]
    assert [[f"{n} {name}" in title for n, name in pair] for title, pair in zip(
        titles, [((1, "APIs"), (2, "Topics")), ((3, "Clients"), (4, "Groups")), ((5, "Errors"),)], strict=True
    )] == [[True, True], [True, True], [True]]  # fmt: skip
    assert any("Heartbeat" in line and "orders" in line for line in lines)
    assert any("ADDRESS" in line and "WORST" in line for line in lines)
    assert any(
        line.startswith("14:13:29 NOT_LEADER_OR_FOLLOWER") or "NOT_LEADER_OR_FOLLOWER" in line
        for line in lines
    )


@pytest.mark.parametrize(
    "size", [SMALL, LARGE, (120, 40), (200, 24), (80, 50), (60, 15), (40, 10), (20, 4), (1, 1), (300, 100)]
)
@pytest.mark.parametrize("key", ["1", "3", "5", "h"])
def test_it_fits_any_terminal(size: tuple[int, int], key: str) -> None:
    width, height = size
    for status in (STATUS, STATUS._replace(message="listening on eth0", has_ended=True)):
        lines = screen(None, key, size=size, status=status)
        assert len(lines) == height if height >= 6 else len(lines) <= height
        assert {columns_of(line) for line in lines} == {width}


def test_a_clients_name_is_cut_and_cannot_speak_to_the_terminal() -> None:
    pulse = fed(beat(0, "\x1b[2J漢字" * 40))
    for size in (SMALL, LARGE):
        lines = screen(pulse.now(), "3", size=size)
        assert any("\\x1b[2J漢字" in line and "…" in line for line in lines)
        assert {columns_of(line) for line in lines} == {size[0]}


def test_rows_that_do_not_fit_are_scrolled_to() -> None:
    now = fed(*(beat(number / 100, f"client-{number:02}") for number in range(60))).now()
    first = screen(now, "3", "left", "left")
    assert first[4].startswith("client-00")
    assert screen(now, "3", "left", "left", "down", "down")[4].startswith("client-02")
    last = screen(now, "3", "left", "left", *["pagedown"] * 9)
    assert any(line.startswith("client-59") for line in last)


def test_before_the_first_packet_and_without_kafka() -> None:
    assert screen(Pulse().now())[1].strip() == "waiting for packets"
    other = Pulse()
    other.tick(at(0), 12)
    assert screen(other.now())[1].startswith(
        "12 packets, but no Kafka exchanges yet; -d tcp.port==PORT,kafka"
    )


def test_packets_without_exchanges_are_in_the_headline() -> None:
    pulse = busy()
    for second in (14, 20):
        pulse.tick(at(second), 1234 + second)
    assert screen(pulse.now())[1].startswith("no exchange for 10 s  - exchanges/s")
    pulse.feed(beat(20.1))
    assert screen(pulse.now())[1].startswith("0.1 exchanges/s  no errors")


def test_inactivity_is_in_the_headline() -> None:
    pulse = busy()
    pulse.tick(at(20), 1234)
    lines = draw(pulse.now(), UiState(), STATUS, *SMALL)
    assert lines[1].plain.startswith("no packets for 10 s  - exchanges/s  no errors")
    assert str(lines[1].spans[0].style) == "bold red"
    heartbeat = next(line for line in lines if line.plain.startswith("Heartbeat"))
    assert {str(span.style) for span in heartbeat.spans} <= {"dim", ""}


def test_colors_and_names_of_hosts() -> None:
    pulse = busy()
    address = pulse.now().clients[0].address
    style = Style(True, {"error": "magenta", "faint": ""}, {address: "web-1"})
    pulse.tick(at(20), 1234)
    lines = draw(pulse.now(), UiState(), STATUS, *LARGE, style)
    assert str(lines[1].spans[0].style) == "bold magenta"
    assert any("web-1" in line.plain for line in lines)
    assert not any(address in line.plain for line in lines)
    assert not any("dim" in str(span.style) for line in lines for span in line.spans)


@pytest.mark.parametrize(("error", "style"), [(25, "bold red"), (27, "green"), (79, "green")])
def test_errors_of_normal_rebalances_are_no_alarm(error: int, style: str) -> None:
    facts = beat(0, error=error)
    if error != 25:
        facts.exchange.expected_errors, facts.serious = tuple(facts.errors), []
    now = fed(facts).now()
    (_, headline, *_) = draw(now, UiState(), STATUS, *SMALL)
    failed = next(span for span in headline.spans if "errors" in headline.plain[span.start : span.end])
    assert failed.style == style
    assert [failure.is_expected for failure in now.failures] == [error != 25]


def test_drops_are_an_alarm() -> None:
    line = screen(status=StatusBar("eth0", by_kernel=1000, by_us=2))[-2]
    assert "1,002 DROPPED: 1,000 by the kernel, 2 by kdissect" in line


def test_paused_ended_and_the_message() -> None:
    lines = screen(None, "p", status=STATUS._replace(has_ended=True, message="listening on eth0"))
    assert lines[0].rstrip().endswith("PAUSED  ENDED")
    assert lines[-3].strip() == "listening on eth0"
    assert screen(status=STATUS._replace(has_keys=False))[-1].startswith("no keyboard")


def test_help_lists_every_key() -> None:
    text = "\n".join(screen(None, "h"))
    assert "sort by another column" in text
    assert "Dimmed rows are idle" in text
