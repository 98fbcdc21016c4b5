"""Stories of samples, compared with what their clients and brokers logged; diagrams of any width."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from kdissect import dissect, open_capture
from kdissect.limits import DEFAULT
from kdissect.options import Options
from kdissect.phrases import columns_of, duration
from kdissect.pipeline import Dissection
from kdissect.query.subjects import parse_subject
from kdissect.text.sequence_diagram import arrows_of, mermaid, text_diagram
from kdissect.text.sequence_drawing import html, svg
from kdissect.text.story import Entry, Note, Participant, Story
from kdissect.text.style import Times
from tests.cli.commands import run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kdissect.limits import Limits
    from kdissect.text.sequence_diagram import Arrow

SECOND_NS = 1_000_000_000
GROUP_APIS = ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup")


@cache
def truth(sample: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(Path(f"samples/{sample}.truth.json").read_text())
    return document


def story(subject: str, sample: str, limits: Limits = DEFAULT) -> list[Entry | Note]:
    about = parse_subject(subject)
    collected, matches = Story(about, limits), about.filter().matches
    with open_capture(f"samples/{sample}.pcap.gz") as packets:
        for exchange in filter(matches, Dissection(packets, Options(end_to_end=True))):
            collected.feed(exchange)
    return collected.close()


def entries(rows: Sequence[Entry | Note]) -> list[Entry]:
    return [row for row in rows if isinstance(row, Entry)]


def notes(rows: Sequence[Entry | Note]) -> list[str]:
    return [row.text for row in rows if isinstance(row, Note)]


def test_a_group_has_all_that_its_members_sent_and_why_it_rebalanced() -> None:
    rows = story("group:restless", "kafka-4-storm", replace(DEFAULT, story_entries=10_000))
    sent: Counter[tuple[str, str]] = Counter()
    for entry in entries(rows):
        if entry.name in GROUP_APIS:
            sent[entry.client.name, entry.name] += entry.count
    logged = ((each["client_id"], each["api"]) for each in truth("kafka-4-storm")["requests"])
    assert sent == Counter(each for each in logged if each[0] != "calm" and each[1] in GROUP_APIS)
    about = [text for text in notes(rows) if text.startswith("rebalance")]
    causes = [text.rpartition(": ")[2] for text in about if " begins: " in text]
    assert [" begins: " in text for text in about] == [True, False] * len(causes), "each ends where it did"
    did = [(who, what) for group, who, what in truth("kafka-4-storm")["facts"]["did"] if group == "restless"]
    words = {"joins": "joined", "leaves": "left", "dies": "timed out"}
    assert causes == ["steady joined as the first member", *(f"{who} {words[what]}" for who, what in did[1:])]


def test_heartbeats_are_one_line_and_a_gap_is_shown() -> None:
    rows = story("group:calm", "kafka-4-storm")
    (_, fold) = (each for each in entries(rows) if each.name == "Heartbeat")
    assert fold.count == 15
    assert fold.text.startswith("15 times in 7.02s, last: generation 1")
    assert notes(rows)[0] == "idle for 2.02s"


def test_transactions_end_as_their_producers_saw_them() -> None:
    outcomes = truth("kafka-4-fenced")["facts"]["outcomes"]
    shared = story("txn:pay-shared", "kafka-4-fenced")
    ended = [re.findall(r"^transaction of pay-shared ([\w ]+) after", text) for text in notes(shared)]
    assert [each[0] for each in ended if each] == ["aborted by InitProducerId", *outcomes["second"]]
    (fenced,) = (each for each in entries(shared) if each.client.name == "first" and each.errors)
    assert (fenced.name, fenced.errors) == ("EndTxn", ("INVALID_PRODUCER_EPOCH",))
    assert len([each for each in entries(shared) if each.name == "WriteTxnMarkers"]) == 3
    alone = [text for text in notes(story("txn:pay-alone", "kafka-4-fenced")) if " after " in text]
    assert [text.split()[3] for text in alone] == outcomes["alone"]


def test_consumers_that_wait_belong_to_the_story_of_a_transaction(capsys: pytest.CaptureFixture[str]) -> None:
    path = "samples/troubles/open-transaction.pcap.gz"
    verdict, *rows = map(json.loads, run(capsys, "story", "--json", "txn:payments-1", path).out.splitlines())
    assert verdict["why"].startswith(
        "readers-blocked: partition orders-0, client forgetful, transactional ID "
    )
    assert verdict["why"].endswith("; explains fenced-producers")
    assert "Fetch" not in {row.get("api") for row in rows}, "they do not name it"


def test_the_outcome_of_a_transaction_is_shown_where_it_ended() -> None:
    rows = story("txn:pay-alone", "kafka-4-fenced")
    begins = [row.time_ns for row in rows if isinstance(row, Note) and row.text.endswith(" begins")]
    ended = [row.time_ns for row in rows if isinstance(row, Note) and " after " in row.text]
    ends = [row.end_ns // 1000 for row in entries(rows) if row.name == "EndTxn"]
    assert len(begins) == len(ended) >= 2
    assert all(before < after for before, after in zip(begins, ended, strict=True))
    assert {time_ns // 1000 for time_ns in ended} <= set(ends)


def test_a_record_goes_from_its_producer_to_replicas_consumers_and_a_commit() -> None:
    rows = entries(story("record:spread:1@0", "kafka-4-cluster"))
    logged = truth("kafka-4-cluster")
    (producer,) = (each for each in logged["produced"] if (each["partition"], each["offset"]) == (1, 0))
    consumers = {
        each["client_id"] for each in logged["consumed"] if (each["partition"], each["offset"]) == (1, 0)
    }
    commit = next(each for each in logged["commits"] if each["partition"] == 1)
    assert rows[0].client.name == producer["client_id"]
    assert rows[0].text.startswith("produced: spread-1, 1 record")
    replicas = {each.client.name for each in rows if each.text.startswith("replicated to broker")}
    assert replicas == {"broker-1-fetcher-0", "broker-3-fetcher-0"}
    assert {each.client.name for each in rows if each.text.startswith("fetched")} >= consumers
    (past,) = (each for each in rows if each.name == "OffsetCommit")
    assert past.client.name == commit["client_id"]
    assert past.text == f"first commit past it: group readers, spread-1, offset {commit['offset']}"
    for each in rows[1:]:
        if each.carries:  # the same time, from the packets and from the column e2e_latency_us
            since_us = (each.time_ns - rows[0].time_ns) // 1000
            assert f", {duration(since_us * 1000)} end to end: " in each.text


def test_a_consumer_that_keeps_up_has_each_record_after_milliseconds() -> None:
    rows = entries(story("record:orders:0@130", "kafka-4-lag"))
    assert [each.client.name for each in rows] == ["shop", "quick", "quick"]
    commits = [each for each in truth("kafka-4-lag")["commits"] if each["client_id"] == "quick"]
    assert [each["offset"] for each in commits if each["partition"] == 0][:2] == [125, 250]
    assert rows[2].time_ns - rows[1].time_ns < SECOND_NS  # auto.commit.interval.ms of this sample is 400


def test_what_exceeds_the_limit_is_counted() -> None:
    whole, part = (
        story("topic:spread", "kafka-4-cluster", replace(DEFAULT, story_entries=most))
        for most in (10_000, 10)
    )
    shown, everything = entries(part), entries(whole)
    assert len(shown) == 10
    (left_out,) = (text for text in notes(part) if "left out" in text)
    counted = int(left_out.split()[0].replace(",", ""))
    assert counted + sum(each.count for each in shown) == sum(each.count for each in everything)
    assert shown[0] == everything[0]
    assert max(each.time_ns for each in shown) == max(each.time_ns for each in everything)


def test_nothing_grows_with_the_number_of_routine_exchanges() -> None:
    collected = Story(parse_subject("client:quick"), replace(DEFAULT, story_entries=2))
    with open_capture("samples/kafka-4-lag.pcap.gz") as packets:
        for exchange in dissect(packets):
            collected.feed(exchange)
            assert len(collected._first) + len(collected._latest) + len(collected._folds) <= 3


HOSTILE = 'a;b#c\nd`*_%%{init}<b>\x1b[0m \u202e end "x": -->>'


def rows_of(clients: int, name: str = "client") -> list[Entry | Note]:
    """A story of some clients, each with an exchange that ends after the next one began."""
    times_ns = [place * SECOND_NS for place in range(clients)]
    entries = [
        Entry(
            time_ns,
            time_ns + 3 * SECOND_NS // 2,
            Participant(f"{name}-{time_ns}", "10.0.0.1"),
            Participant("10.0.0.9:9092"),
            "ConsumerGroupHeartbeat v1",
            f"group {name}, epoch 3 -> epoch 4",
            "1.50s",
            ("FENCED_MEMBER_EPOCH",),
            "1f0c9a2be4d7/12",
        )
        for time_ns in times_ns
    ]
    return [Note(0, 0, f"note {name}"), *entries]


@pytest.mark.parametrize("width", [60, 80, 120, 200, None])
@pytest.mark.parametrize("name", ["c", "a-client-with-a-long-name", "客户端", "hostile"])
def test_a_diagram_fits_or_there_is_none(width: int | None, name: str) -> None:
    fitting = []
    for clients in range(1, 31):
        rows = rows_of(clients, HOSTILE if name == "hostile" else name)
        lines = text_diagram(rows, Times("u", digits=3, in_column=True), width=width)
        if lines is None:
            continue
        fitting.append(clients)
        assert all(line.isprintable() for line in lines)
        assert width is None or max(map(columns_of, lines)) <= width
        messages = [line for line in lines if re.match(r"\d\d:\d\d:\d\d\.\d{3}  [|]", line)]
        assert len(messages) == 2 * clients - 1  # the last response has nothing before it
    assert fitting == list(range(1, len(fitting) + 1))
    assert len(fitting) >= (30 if width is None else (width - 22) // 8)


def test_the_arrow_of_a_late_response_is_below_what_came_before() -> None:
    lines = text_diagram(rows_of(2, "c"), Times("r", digits=1), width=None)
    assert lines is not None
    heads = [(line.split()[0], ">|" in line, "|<" in line) for line in lines[2:]]
    assert heads == [("0.0", True, False), ("1.0", False, True), ("1.5", False, True)]


def test_mermaid_gets_no_text_that_it_could_interpret() -> None:
    lines = list(mermaid(rows_of(3, HOSTILE)))
    assert lines[0] == "sequenceDiagram"
    plain = r"(?:[A-Za-z0-9 ,./=-]|#\d+;)*"
    arrow = r"p\d+(?:->>|-->>)p\d+"
    for line in lines[1:]:
        assert re.fullmatch(rf"    (?:participant p\d+ as|{arrow}:|Note over p\d+,p\d+:) {plain}", line), line
        assert not re.search(r"(?i)\bend\b", line)


SVG = "{http://www.w3.org/2000/svg}"
VERDICT = Note(0, SECOND_NS, f"degraded: {HOSTILE}", f"because of {HOSTILE}")


@pytest.mark.parametrize("clients", [1, 3, 30])
def test_a_picture_has_each_arrow_between_its_lanes(clients: int) -> None:
    rows = rows_of(clients, "c")
    root = ET.fromstring(svg(rows, VERDICT, Times("u"), "title"))
    arrows = [arrow for arrow in arrows_of(rows) if not isinstance(arrow, Note)]
    drawn = [
        (float(places[1]), float(places[3]), path.get("class", ""))
        for path in root.iter(f"{SVG}path")
        if (places := re.split("[MH ]", path.attrib["d"])) and len(places) == 4
    ]
    names = root.findall(f"{SVG}text[@class='name']")
    lanes = {"".join(name.itertext()): float(name.attrib["x"]) for name in names}
    assert len(lanes) == clients + 1
    assert drawn == [(lanes[arrow.start.name], lanes[arrow.end.name], line_class(arrow)) for arrow in arrows]
    texts = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    assert all(arrow.label in texts and arrow.text in texts for arrow in arrows)
    assert float(root.attrib["width"]) > max(lanes.values())


def line_class(arrow: Arrow) -> str:
    return ("error" if arrow.is_error else "") + (" response" if arrow.is_response else "")


@pytest.mark.parametrize("draw", [svg, html])
def test_names_in_a_picture_are_text(draw: Callable[..., str]) -> None:
    markup = f"</title></text><script>alert(1)</script>{HOSTILE}"
    drawn = draw(rows_of(3, markup), VERDICT._replace(text=markup), Times("u"), markup)
    assert "<script" not in drawn
    assert "&lt;script" in drawn
    assert all(character.isprintable() or character == "\n" for character in drawn)
    for picture in re.findall(r"(?s)<svg.+?</svg>", drawn):
        tags = {element.tag.removeprefix(SVG) for element in ET.fromstring(picture).iter()}
        assert tags <= {"svg", "style", "title", "text", "line", "path", "rect"}
