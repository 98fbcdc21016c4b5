from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from base64 import b64encode
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from kdissect.cli.plot import KINDS
from kdissect.extras import install
from kdissect.phrases import printable
from samples.golden import ROOT
from tests.captures import pcap
from tests.cli.commands import capture_bytes, run, talk
from tests.core import without_core
from tests.depth import IS_DEEP
from tests.frames import METADATA, request, response
from tests.reports import HOSTILE, NEEDS_EXTRA, hostile_capture
from tests.segments import START_NS, Talk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = NEEDS_EXTRA

STORM = str(ROOT / "samples/kafka-4-storm.pcap.gz")
FENCED = str(ROOT / "samples/kafka-4-fenced.pcap.gz")
PARTS = ("--groups", "--lag", "--versions", "--transactions", "--connections", "--findings")
SECOND_NS = 10**9
VOID = {"meta", "br", "input", "rect", "img"}


class Elements(HTMLParser):
    """What is in a page: elements with attributes, and the text of each kind of element."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.setdefault(self._open[-1], []).append(data)


@pytest.fixture(scope="module")
def storm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from kdissect.cli.main import main

    path = tmp_path_factory.mktemp("report") / "storm.html"
    assert main(["report", "-o", str(path), STORM]) == 0
    return path


def test_what_a_reader_needs_first_is_there_without_script(storm: Path) -> None:
    elements = Elements(storm.read_text())
    assert elements.texts["h2"] == [
        *("Verdicts", "Findings", "Charts", "Evidence", "Slowest exchanges", "Tables", "The capture"),
    ]
    assert "degraded" in elements.texts["strong"]
    assert "warning: rebalance-storm" in elements.texts["h3"]
    assert {"APIs", "Brokers", "Clients", "Topics", "restless: 11 rebalances"} <= {*elements.texts["caption"]}
    assert oct(storm.stat().st_mode)[-3:] == "600"


def test_every_link_and_every_chart_leads_somewhere(storm: Path) -> None:
    elements = Elements(storm.read_text())
    ids = [attributes["id"] for _, attributes in elements.tags if "id" in attributes]
    assert len(ids) == len({*ids})
    links = {str(attributes["href"]) for tag, attributes in elements.tags if tag == "a"}
    assert len([link for link in links if link.startswith("#x-")]) > 5  # of evidence, and in tables
    assert {link.removeprefix("#") for link in links} <= {*ids}
    [data] = [text for text in elements.texts["script"] if text.startswith("[")]
    names = [each["name"] for each in json.loads(data)]
    assert {f"chart-{name}" for name in names} <= {*ids}
    assert {"overview", "throughput", "latency", "groups", "findings", "lifetimes"} <= {*names}


def test_the_policy_allows_what_is_in_the_page_and_nothing_else(storm: Path) -> None:
    elements = Elements(storm.read_text())
    [policy] = [
        str(attributes["content"])
        for _, attributes in elements.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    contents = [text for text in elements.texts["script"] if not text.startswith("[")]
    hashes = {
        f"'sha256-{b64encode(hashlib.sha256(each.encode()).digest()).decode()}'"
        for each in (*contents, *elements.texts["style"])
    }
    assert hashes == {*re.findall(r"'sha256-[^']+'", policy)}
    assert not [attributes for _, attributes in elements.tags if {"style", "src", "onclick"} & {*attributes}]


def test_names_from_the_wire_are_text(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    capture, path = tmp_path / "hostile.pcap", tmp_path / "report.html"
    capture.write_bytes(hostile_capture())
    assert run(capsys, "report", "-o", str(path), str(capture)) == (0, "", "")
    elements = Elements(path.read_text())
    assert "img" not in {tag for tag, _ in elements.tags}
    assert sum(tag == "script" for tag, _ in elements.tags) == 3
    cells = {*elements.texts["td"]}
    for name in HOSTILE:
        assert printable(f"client {name}") in cells
        assert any(printable(f"group {name}") in cell for cell in cells)
    assert path.read_text().isprintable() is False  # line breaks alone
    assert "\u202e" not in path.read_text()


@pytest.mark.parametrize("form", ["html", "json"])
def test_one_process_two_and_none_of_the_core_write_the_same(
    form: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def written(*options: str) -> bytes:
        path = tmp_path / "out"
        assert run(capsys, "report", "--format", form, "-o", str(path), *options, FENCED).status == 0
        return path.read_bytes()

    one = written("-j", "1")
    assert written("-j", "2") == one
    with without_core():
        assert written("-j", "1") == one


def test_json_is_the_data_of_summary_and_check(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert run(capsys, "report", "--format", "json", "-o", str(path), STORM).status == 0
    document = json.loads(path.read_text())
    check = json.loads(run(capsys, "check", "--json", STORM).out)
    check["counts"] = {name: count for name, count in check["counts"].items() if count}
    assert document["check"] == check
    summary = document["summary"]
    for options in ((), PARTS):
        expected = json.loads(run(capsys, "summary", "--json", *options, STORM).out)
        same = [name for name, value in expected.items() if value is not None and name != "slowest"]
        assert {name: summary[name] for name in same} == {name: expected[name] for name in same}
    named = [each for row in summary["findings"] for each in row["evidence"]]
    assert [row["exchange"] for row in document["evidence"]] == [*dict.fromkeys(named)]
    for row in document["evidence"]:
        fields = ("latency_us", "service_us", "wait_us", "api", "errors")
        shown = run(capsys, "read", "--json", "--exchange", row["exchange"], STORM)
        assert {name: row[name] for name in fields} == {name: json.loads(shown.out)[name] for name in fields}
    for field, total in (("exchanges", "exchanges"), ("request_bytes", "request_bytes")):
        assert sum(row[field] for row in summary["intervals"]) == summary["capture"][total]
    ends = sum(sum(row["ended"].values()) for row in summary["intervals"])
    connections = summary["client_connections"]
    assert ends == sum(sum(row["ends"].values()) - row["ends"].get("open", 0) for row in connections)
    opened = sum(row["connect_us"]["count"] for row in connections)
    assert sum(row["opened"] for row in summary["intervals"]) == opened


def test_no_traffic_makes_a_page_without_charts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    capture, path = tmp_path / "none.pcap", tmp_path / "report.html"
    capture.write_bytes(capture_bytes())
    done = run(capsys, "report", "-o", str(path), str(capture))
    assert (done.status, done.err) == (0, "kdissect: no packets\n")
    elements = Elements(path.read_text())
    assert "Charts" not in elements.texts["h2"]
    assert "empty" in elements.texts["strong"]


def test_a_file_that_cannot_be_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    done = run(capsys, "report", "-o", str(tmp_path / "no" / "x.html"), FENCED)
    assert done.status == 3
    assert done.err.endswith("x.html: No such file or directory\n")


def test_without_the_extra(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is missed before the capture is read. The data needs none."""
    for name in ("charts", "report_page"):
        monkeypatch.delitem(sys.modules, f"kdissect.text.{name}", raising=False)
        monkeypatch.delattr(f"kdissect.text.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "altair", None)
    for command in (
        ("report", "-o", str(tmp_path / "x.html")),
        ("plot", "lag", "-o", str(tmp_path / "x.svg")),
    ):
        done = run(capsys, *command, "no such file")
        assert done.status == 2
        assert install("report") in done.err
    assert run(capsys, "report", "--format", "json", "-o", str(tmp_path / "x.json"), FENCED).status == 0


def test_the_page_can_be_opened(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[str] = []
    monkeypatch.setattr("click.launch", launched.append)
    path = tmp_path / "x.json"
    assert run(capsys, "report", "--format", "json", "--open", "-o", str(path), FENCED).status == 0
    assert launched == [path.as_uri()]


MEASURED = """
import sys
from kdissect.cli.main import main
from tests.peak import peak_kib
status = main()
print(peak_kib(), file=sys.stderr)
sys.exit(status)
"""
CONNECTIONS = 200_000 if IS_DEEP else 10_000
TOPICS = 5_000
MAX_KIB = 400_000_000 // 1024  # half of it is what draws the charts


@pytest.mark.deep
def test_many_connections_and_topics_make_a_page_of_limited_size(tmp_path: Path) -> None:
    capture, path = tmp_path / "many.pcap", tmp_path / "report.html"

    def packets() -> Iterator[tuple[int, bytes]]:
        for number in range(CONNECTIONS):
            name, client = f"topic-{number % TOPICS}", (f"10.{number // 60_000}.0.1", 1024 + number % 60_000)
            talk = Talk(client, start_ns=START_NS + number * 3 * SECOND_NS).handshake()  # a week
            body = {"topics": [{"name": name}]}
            talk.client_sends(request(METADATA, 7, body, client_id=f"client-{number % 20_000}"))
            body = {"topics": [{"name": name, "error_code": 3}]}
            talk.broker_sends(response(METADATA, 7, body)).finish()
            yield from ((packet.time_ns, packet.data) for packet in talk.packets)

    capture.write_bytes(pcap(packets()))
    command = [sys.executable, "-c", MEASURED, "report", "-j", "1", "-o", str(path), str(capture)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert path.stat().st_size < 3_000_000
    assert int(done.stderr.splitlines()[-1]) < MAX_KIB, done.stderr
    [data] = [text for text in Elements(path.read_text()).texts["script"] if text.startswith("[")]
    columns = {each["name"]: each["columns"] for each in json.loads(data)}
    times = columns["overview"]
    assert 300 <= len(times["t"]) <= 600
    seconds = (times["e"][0] - times["t"][0]) / 1000
    assert sum(columns["throughput"]["Metadata"]) * seconds == pytest.approx(CONNECTIONS, rel=0.001)


# --- plot ---------------------------------------------------------------------------------------------------


def test_every_kind_of_chart_can_be_named() -> None:
    from kdissect.text import charts  # altair takes a second

    assert tuple(charts.KINDS) == KINDS


@pytest.mark.parametrize(("form", "start"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_an_image(form: str, start: bytes, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / f"groups.{form}"
    assert run(capsys, "plot", "groups", "-o", str(path), STORM) == (0, "", "")
    assert path.read_bytes().startswith(start)
    if form == "svg":
        texts = re.findall(r"<text[^>]*>([^<]+)</text>", path.read_text())
        assert {"calm", "restless", "join", "leave", "timeout"} <= {*texts}


def test_there_may_be_nothing_to_draw(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    done = run(capsys, "plot", "transactions", "-o", str(path), STORM)
    assert (done.status, done.err) == (
        0,
        "kdissect: nothing to draw: no transactions in the exchanges that were read\n",
    )
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("latency", "-o", "x.gif"), "must end in .svg, .png or .pdf"),
        (("sunshine", "-o", "x.svg"), "'sunshine' is not one of"),
    ],
)
def test_wrong_arguments(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    capture = tmp_path / "talk.pcap"
    capture.write_bytes(capture_bytes(talk()))
    done = run(capsys, "plot", *arguments, str(capture))
    assert done.status == 2
    assert message in done.err


@pytest.mark.parametrize("name", ["a.pcap", "a.pcap-copy"])
def test_no_capture_is_overwritten(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes((ROOT / "samples" / "quickstart.pcap").read_bytes())
    before = path.read_bytes()
    for target in (path, tmp_path / "b.pcap.gz", "-"):
        assert run(capsys, "report", "-o", str(target), str(path)).status == 2, target
    assert path.read_bytes() == before
