from __future__ import annotations

import io
import json
import sys

import pytest

from kdissect.cli.main import main
from kdissect.cli.terminal import OK, USAGE
from kdissect.kafka import apis, vendors
from tests.cli.commands import run

LINES = len(apis.all_apis()) + len(vendors.vendor_apis()) + 4


def test_all_apis(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "apis")
    assert done.status == OK
    assert done.lines[:3] == [
        "KEY  NAME                                   VERSIONS  FLEXIBLE  SINCE   REMOVED       FORMERLY",
        "0    Produce                                0-13      9+        0.8.0   0-2 in 4.0.0",
        "1    Fetch                                  0-18      12+       0.8.0   0-3 in 4.0.0",
    ]
    assert len(done.lines) == LINES
    assert done.lines[-1] == "15000  Redpanda DescribeRedpandaRoles            0"


def test_one_api_by_any_name(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "apis", "join-group")
    assert done.lines[0] == "JoinGroup (API key 11); served by broker"
    assert done.lines[2:5] == [
        "VERSION  SINCE   REMOVED  NOTES",
        "0        0.8.2   4.0.0    restored in 4.0.1, different layout in 0.8.2",
        "1        0.10.1  4.0.0    restored in 4.0.1",
    ]
    assert done.lines[-1] == "9        3.2              flexible"
    assert run(capsys, "apis", "11").out == run(capsys, "apis", "JOIN_GROUP").out == done.out
    assert "formerly ConsumerMetadata, GroupCoordinator;" in run(capsys, "apis", "10").lines[0]


def test_versions_that_some_releases_had_differently(capsys: pytest.CaptureFixture[str]) -> None:
    shown = run(capsys, "apis", "ConsumerGroupHeartbeat").lines
    assert "unstable in 3.5..3.6" in shown[3]
    assert "different layout in " in shown[3]
    assert run(capsys, "apis", "ConsumerGroupHeartbeat", "0").out.count("Request (Version: 0, draft of ") == 1


def test_one_version_as_the_guide_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "apis", "Heartbeat", "v4")
    assert done.out == (
        "Heartbeat Request (Version: 4) => group_id generation_id member_id group_instance_id TAG_BUFFER\n"
        "  group_id => COMPACT_STRING\n"
        "  generation_id => INT32\n"
        "  member_id => COMPACT_STRING\n"
        "  group_instance_id => COMPACT_NULLABLE_STRING\n"
        "\n"
        "Heartbeat Response (Version: 4) => throttle_time_ms error_code TAG_BUFFER\n"
        "  throttle_time_ms => INT32\n"
        "  error_code => INT16\n"
    )


def test_the_compiled_source(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "apis", "--source", "Heartbeat", "4")
    assert "def decode_HeartbeatRequest_v4(data, pos, budget):" in done.lines
    assert "def decode_HeartbeatResponse_v4(data, pos, budget):" in done.lines
    compile(done.out, "source", "exec")


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    everything = json.loads(run(capsys, "apis", "--json").out)
    names = [api["name"] for api in everything]
    assert names == [api.name for api in (*apis.all_apis(), *vendors.vendor_apis())]
    assert everything[11] == json.loads(run(capsys, "apis", "--json", "JoinGroup").out)
    assert everything[11]["versions"][0] == {
        "version": 0,
        "flexible": False,
        "introduced": "0.8.2",
        "removed": "4.0.0",
        "restored": "4.0.1",
        "unstable": None,
    }
    fetch = json.loads(run(capsys, "apis", "--json", "Fetch", "12").out)
    assert (fetch["name"], fetch["version"], fetch["introduced"]) == ("Fetch", 12, "2.7")
    assert [field["name"] for field in fetch["request"]][-1] == "cluster_id"
    assert fetch["request"][-1]["tag"] == 0
    topics = next(field for field in fetch["request"] if field["name"] == "topics")
    assert topics["array"]
    assert [field["name"] for field in topics["fields"]] == ["topic", "partitions"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["Fetsch"], 'did you mean "Fetch"?'),
        (["Fetch", "19"], 'Fetch has versions 0-18, not "19"'),
        (["Fetch", "-1"], "no such option"),
        (["Fetch", "new"], 'not "new"'),
        (["--source"], "--source needs an API name and a version"),
        (["--source", "Fetch"], "--source needs an API name and a version"),
        (["--source", "--json", "Fetch", "13"], "--source and --json are mutually exclusive"),
    ],
)
def test_mistakes(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "apis", *arguments)
    assert (done.status, done.out) == (USAGE, "")
    assert text in done.err


def test_a_terminal_gets_lines_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Tty()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["apis"]) == OK
    lengths = [len(line) for line in screen.getvalue().splitlines()]
    assert len(lengths) == LINES
    assert max(lengths) == 80


def test_apis_of_vendors(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "apis", "501").lines == [
        "KEY  NAME                         VERSIONS",
        "501  AutoMQ CreateStreams         0",
        "501  Inkless AlterDisklessSwitch  0",
    ]
    assert run(capsys, "apis", "inkless").lines[1] == "500  Inkless InitDisklessLog      0"
    (shown,) = json.loads(run(capsys, "apis", "--json", "automq-get-kvs").out)
    assert (shown["api_key"], [each["version"] for each in shown["versions"]]) == (509, [0, 1])
    assert shown.keys() == json.loads(run(capsys, "apis", "--json", "Fetch").out).keys()
    for arguments in (("501", "0"), ("--source", "501"), ("--source", "automq")):
        refused = run(capsys, "apis", *arguments)
        assert refused.status == USAGE
        assert "the layouts of AutoMQ CreateStreams are not known" in refused.err
    assert run(capsys, "apis", "517").status == USAGE
