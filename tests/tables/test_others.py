from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kdissect.capture.reader import open_capture
from kdissect.limits import DEFAULT
from kdissect.model import Anomaly
from kdissect.stats.connection_log import ConnectionLog
from kdissect.stats.survey import Census
from kdissect.tables.others import (
    ANOMALIES,
    CAPTURES,
    CONNECTIONS,
    TOPIC_IDS,
    TopicIds,
    anomalies_after,
    anomalies_of,
    captures,
)
from kdissect.tables.values import timestamp
from tests.cli.commands import talk, write
from tests.exchange_factory import START_NS, connection, exchange

if TYPE_CHECKING:
    from pathlib import Path

    from kdissect.tables.form import Table


def shown(table: Table, row: Any) -> dict[str, Any]:
    return {column.name: column.get(row) for column in table.columns}


def test_topic_ids_come_once() -> None:
    ids = TopicIds(DEFAULT)
    first = list(ids.rows(exchange(topic_ids={"i": "t", "j": "u"})))
    assert [shown(TOPIC_IDS, row)["topic"] for row in first] == ["t", "u"]
    assert list(ids.rows(exchange(topic_ids={"i": "t"}))) == []
    (renamed,) = ids.rows(exchange(topic_ids={"i": "v"}, number=9))
    row = shown(TOPIC_IDS, renamed)
    assert (row["topic_id"], row["topic"], row["number"], row["date"]) == ("i", "v", 9, "2026-09-21")


def test_topic_ids_are_limited() -> None:
    ids = TopicIds(replace(DEFAULT, topic_names=2))
    for name in "abcd":
        assert len(list(ids.rows(exchange(topic_ids={name: name})))) == 1
    assert len(ids._seen) == 2


def test_anomalies_of_an_exchange() -> None:
    anomaly = Anomaly("trailing_bytes", "request", "1 bytes")
    (row,) = anomalies_of(exchange(anomalies=[anomaly], number=3))
    values = shown(ANOMALIES, row)
    assert (values["kind"], values["severity"], values["where"], values["detail"]) == (
        "trailing_bytes", "note", "request", "1 bytes",
    )  # fmt: skip
    assert (values["connection"], values["number"], values["packet"], values["api"]) == (
        "c0ffee",
        3,
        7,
        "Metadata",
    )
    assert values["time"] == START_NS


def test_anomalies_after_the_last_exchange() -> None:
    log = ConnectionLog(DEFAULT)
    log.exchange(exchange())
    (row,) = log.close()
    row.unattached.append(Anomaly("partial_frame", "connection", "5 bytes"))
    (anomaly,) = anomalies_after(row)
    values = shown(ANOMALIES, anomaly)
    assert (values["number"], values["packet"], values["api"]) == (None, None, None)
    assert (values["connection"], values["kind"], values["time"]) == ("c0ffee", "partial_frame", row.last_ns)


def test_connections() -> None:
    log = ConnectionLog(DEFAULT)
    log.exchange(exchange("Metadata", 9, {}, {}, connection=connection("abc"), client_id="app"))
    log.exchange(exchange("Metadata", 9, {}, connection=connection("abc"), number=2))
    (row,) = log.close()
    values = shown(CONNECTIONS, row)
    expected = {"connection": "abc", "client_ip": "10.0.0.5", "broker_port": 9092, "client_id": "app",
                "exchanges": 2, "answered": 1, "unanswered": 1, "orphans": 0, "request_bytes": 200,
                "response_bytes": 200, "gaps": 0, "lost_bytes": 0, "close_reason": None}  # fmt: skip
    assert {name: values[name] for name in expected} == expected


def test_captures(tmp_path: Path) -> None:
    path = write(tmp_path / "talk.pcap", talk())
    census = Census(DEFAULT)
    with open_capture(path) as capture:
        packets = list(census.watch(capture))
        (row,) = captures(capture.sources, census, [f"{path}: odd", "other: odd too"])
    values = shown(CAPTURES, row)
    assert (values["capture"], values["format"], values["packets"]) == (path, "pcap", len(packets))
    assert (values["packets_cut"], values["packets_dropped"], values["warnings"]) == (0, None, ["odd"])
    assert timestamp(values["first_time"]) == timestamp(packets[0].time_ns)
    assert [each["link"] for each in values["interfaces"]] == ["Ethernet"]


def test_a_capture_without_packets() -> None:
    source: Any = SimpleNamespace(
        name="x\udcff.pcap",
        form=None,
        compression=None,
        bytes_read=0,
        packets=0,
        interfaces={},
        statistics={},
    )
    (row,) = captures([source], Census(DEFAULT), [])
    values = shown(CAPTURES, row)
    assert (values["capture"], values["date"], values["first_time"], values["format"]) == (
        "x\\udcff.pcap", None, None, None,
    )  # fmt: skip
    assert values["packets_backward"] == 0
