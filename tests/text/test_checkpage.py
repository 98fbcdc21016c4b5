"""The text of the page; tests/cli/test_check.py prints it from captures."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from kdissect.limits import DEFAULT
from kdissect.stats import quality
from kdissect.stats.check import build_check
from kdissect.stats.document import CaptureFinding, Verdict
from kdissect.stats.survey import Survey
from kdissect.text import check_page, page
from kdissect.text.style import PLAIN

FIRST, LAST = datetime(2026, 11, 21, tzinfo=UTC), datetime(2026, 11, 21, 0, 0, 2, 500_000, tzinfo=UTC)
NOTHING = build_check([], Survey(DEFAULT), {}, {}, [])
INTERFACE = quality.InterfacePart(
    interface=0, name="eth0", link_type=1, link="Ethernet", ticks_per_second=10**9, snaplen=96, packets=1000,
    cut=10, cut_to=96, captured_bytes=96_000, wire_bytes=200_000, received=1010, accepted=1005,
    dropped_by_interface=None, dropped_by_system=5,
)  # fmt: skip
FILE = quality.FilePart(
    file="a.pcapng", format="pcapng", byte_order="little", compression="zstd", application="dumpcap",
    bytes=12_345, packets=1000, first=FIRST, last=LAST, backward=0, backward_max_us=0,
    interfaces=[
        INTERFACE,
        replace(INTERFACE, name=None, link=None, ticks_per_second=1 << 10, snaplen=0, captured_bytes=200_000,
                cut=0, received=None, accepted=None, dropped_by_system=None),
    ],
)  # fmt: skip
FULL = replace(
    NOTHING,
    verdict="lossy",
    message="1 of 3 exchanges fully captured (33.3%)",
    health=Verdict(
        verdict="failing",
        message="3 requests, 0 unanswered, 2 with errors",
        reason="some-rule: it failed (client a)",
    ),
    findings=[
        CaptureFinding(
            rule="missing-bytes", verdict="lossy", message="Something is missing.", advice="Look."
        ),
        CaptureFinding(rule="limits-reached", verdict="good", message="Something is odd.", advice=None),
    ],
    packets=1000,
    first=FIRST,
    last=LAST,
    files=[FILE],
    skipped={"UDP": 12, "ARP in VXLAN": 3},
    tcp=replace(NOTHING.tcp, gaps=2, lost_bytes=2920, out_of_order=1),
    connections=replace(
        NOTHING.connections,
        total=5,
        protocols={"Kafka": 3, "TLS": 2},
        ipv4=4,
        ipv6=1,
        kafka_from_start=2,
        kafka_mid_stream=1,
        kafka_one_sided=1,
        close_reasons={"fin": 4, "end": 1},
        without_data=3,
        not_kafka=[
            quality.EndpointPart(protocol="TLS", endpoint=f"10.0.0.2:{port}", connections=1)
            for port in (9093, 9094)
        ],
    ),
    exchanges=replace(
        NOTHING.exchanges,
        total=3,
        selected=3,
        complete=1,
        answered=2,
        orphans=1,
        unanswered=0,
        lost=4,
        incomplete=1,
    ),
    anomalies=[
        quality.AnomalyPart(anomaly="gap", severity="warning", meaning="...", exchanges=2, example="c0ffee/1")
    ],
    unknown=[quality.UnknownPart(api_key=3, api="Metadata", api_version=99, exchanges=1)],
)
PAGE = """\
capture: lossy, 1 of 3 exchanges fully captured (33.3%)
- Something is missing. Look.
- Something is odd.

traffic: failing, 3 requests, 0 unanswered, 2 with errors
- some-rule: it failed (client a)
details: kdissect summary --findings FILE

a.pcapng
pcapng, little endian, zstd, 12.3 KB, written by dumpcap
1,000 packets, 2.500 s from 2026-11-21 00:00:00.000000 to 00:00:02.500000 UTC
interface 0 (eth0): Ethernet, timestamps in ns, snaplen 96, 1,000 packets, 96.0 KB of 200.0 KB, \
10 truncated, 1,010 received, 1,005 passed the filter, 5 dropped
interface 0: link type 1, timestamps in 1/1,024 s, no snaplen, 1,000 packets, 200.0 KB

Packets
1,000 packets
skipped: 12 UDP, 3 ARP in VXLAN
TCP: 2 gaps, 2,920 bytes lost, 1 segment out of order

Connections
5 connections: 3 Kafka, 2 TLS, 4 over IPv4, 1 over IPv6
3 more without data
Kafka: 2 captured from the start, 1 joined mid-stream, 1 one-sided
4 closed by FIN, 1 still open at the end

Other protocols
PROTOCOL  ENDPOINT       CONNECTIONS
TLS       10.0.0.2:9093            1
1 more; use --max-rows to show them

Exchanges
3 exchanges, 2 answered, 1 orphan response
affected by gaps and truncation: 4 lost, 1 incomplete

Anomalies
gap: ...
details: kdissect read -V --exchange EXAMPLE FILE
ANOMALY  SEVERITY  EXCHANGES  EXAMPLE
gap      warning           2  c0ffee/1

Unknown APIs and versions
API KEY  API       VERSION  EXCHANGES
      3  Metadata       99          1
"""


def printed(check: quality.Check, *, limit: int = 1, width: int | None = None) -> str:
    out = io.StringIO()
    page.write(out, check_page.sections(check, limit=limit), width=width, style=PLAIN)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def test_a_page_with_every_part() -> None:
    assert printed(FULL) == PAGE


def test_empty_parts_are_left_out() -> None:
    assert printed(NOTHING).split("\n\n") == [
        f"capture: empty, no exchanges\n- {NOTHING.findings[0].message} {NOTHING.findings[0].advice}",
        "traffic: unknown, no requests",
        "Packets\n0 packets\nTCP: 0 gaps\n",
    ]


def test_many_files_and_interfaces_are_limited() -> None:
    many = replace(FILE, interfaces=[INTERFACE] * 11)
    text = printed(replace(FULL, files=[many, FILE, FILE]))
    assert "and 3 more interfaces\n" in text
    assert "and 2 more files; --json shows them\n" in text
    assert "1,000 packets, 2.500 s from" in text.partition("\nPackets\n")[2]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_it_fits_the_terminal(width: int) -> None:
    assert max(map(len, printed(FULL, width=width).splitlines())) <= width
