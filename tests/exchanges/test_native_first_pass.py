"""The first pass learns the same with the native core and without it, in one process and in several."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.exchanges import lending
from kdissect.exchanges.clusters import names_cluster
from kdissect.exchanges.learned import ADVERTISING
from kdissect.exchanges.lending import ConnectionState, Lending
from kdissect.exchanges.topic_names import may_name_topic_ids
from kdissect.kafka.framing import SHED_BYTES, SIZE_BYTES, Framing, PartialFrame
from kdissect.limits import Limits
from tests.captures import pcap, pcapng
from tests.core import NEEDS_CORE, without_core
from tests.depth import IS_DEEP
from tests.frames import (
    FETCH,
    HEARTBEAT,
    METADATA,
    PRODUCE,
    request,
    request_payload,
    response,
    response_payload,
    sized,
)
from tests.learned_facts import facts_of
from tests.lifetimes import lifetimes
from tests.segments import Talk
from tests.test_lending import BUSY, SAMPLES, SEEDS, damaged, mixed, sealed, timed
from tests.tls.sessions import TlsSettings
from tests.tls.test_recordings import CAPTURE, KEYS

if TYPE_CHECKING:
    from kdissect.model import Exchange
    from kdissect.net.connection import Event

PAYLOADS = request_payload, response_payload

pytestmark = NEEDS_CORE


@pytest.fixture
def same(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Checks that the facts are the same with the core and without it, and in shards. Returns them."""

    def check(path: Path, **how: Any) -> dict[str, list[Any]]:
        for end_to_end in (False, True):
            results = []
            for shards in (1, 3):
                facts = facts_of(path, end_to_end=end_to_end, shards=shards, **how)
                with without_core():
                    assert facts_of(path, end_to_end=end_to_end, shards=shards, **how) == facts
                results.append(facts)
            whole, merged = results
            if "limits" not in how:  # what is left out because of one depends on the order
                assert {key: sorted(facts) for key, facts in whole.items()} == merged
        return whole

    return check


@pytest.mark.parametrize("name", [*SAMPLES][:: 1 if IS_DEEP else 3])
def test_samples(name: str, same: Any) -> None:
    same(SAMPLES[name])


def test_most_samples_have_facts(same: Any) -> None:
    facts = same(SAMPLES["kafka-4-cluster"])
    assert len(facts["topics"]) > 3
    assert len(facts["produced"]) > 3
    assert len(facts["listeners"]) > 3


@pytest.mark.parametrize("name", BUSY)
def test_damage(name: str, same: Any, tmp_path: Path) -> None:
    for seed in range(SEEDS):
        random = Random(f"{name} {seed}")
        same(written(random.choice((pcap, pcapng))(damaged(timed(SAMPLES[name]), random)), tmp_path))


def test_many_connections(same: Any, tmp_path: Path) -> None:
    for seed in range(SEEDS):
        random = Random(seed)
        same(written(pcap(damaged(mixed(BUSY, random), random)), tmp_path))


def test_lifetimes(same: Any, tmp_path: Path) -> None:
    for seed in range(10 * SEEDS):
        random = Random(seed)
        same(written(pcap(lifetimes(random, 100, random.choice((0, 0.02, 0.1)))), tmp_path))


@pytest.mark.parametrize(
    "limits",
    [
        {"topic_names": 2},
        {"produced_batches": 3},
        {"connections": 4},
        {"connection_idle_ns": 2_000_000},
        {"pending_requests": 1},
        {"pending_bytes": 300},
        {"frame_bytes": 150},
        {"total_held_bytes": 0},
    ],
    ids=str,
)
def test_limits(limits: dict[str, int], same: Any, tmp_path: Path) -> None:
    random = Random(1)
    same(written(pcap(damaged(mixed(BUSY[:3], random), random)), tmp_path), limits=Limits(**limits))


@pytest.mark.parametrize("cipher", ["", "ECDHE-RSA-AES256-GCM-SHA384"])
def test_tls(cipher: str, same: Any, tmp_path: Path) -> None:
    settings = TlsSettings("TLS 1.2", cipher) if cipher else TlsSettings()
    packets, key_logs = sealed(tmp_path, settings, mss=1448)
    same(written(pcap(packets), tmp_path), key_logs=key_logs)


def test_a_recording_of_tls(same: Any) -> None:
    assert same(Path(CAPTURE), key_logs=(str(KEYS),))["tls_sessions"]


def test_what_is_not_needed_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    passed_on: list[Exchange] = []
    plain = lending._learn

    def learn(exchange: Exchange) -> None:
        passed_on.append(exchange)
        plain(exchange)

    monkeypatch.setattr(lending, "_learn", learn)
    facts_of(SAMPLES["kafka-4-latecomer"])
    assert passed_on
    for each in passed_on:
        of_api = each.api_key, each.api_version
        assert each.api_key in ADVERTISING or may_name_topic_ids(*of_api) or names_cluster(*of_api)
    facts_of(SAMPLES["kafka-4-latecomer"], end_to_end=True)
    assert PRODUCE in {each.api_key for each in passed_on}


def test_one_connection_to_each_broker_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    plain = Lending._closed

    def note(core: Lending, end: ConnectionState) -> Event:
        event = plain(core, end)
        closed.append(event[0].server)
        return event

    monkeypatch.setattr(Lending, "_closed", note)
    facts = facts_of(SAMPLES["kafka-4-cluster"])
    assert 1 < len(closed) == len(set(closed))
    assert set(closed) <= set(facts["listeners"])


@pytest.mark.parametrize("large", [0, 1])
@pytest.mark.parametrize("mss", [300, 512, 1400])
def test_bodies_that_are_not_needed_are_not_kept(
    large: int, mss: int, same: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even while they arrive, request (0) or response (1). What follows a gap in one is learned."""
    talk = Talk(mss=mss).handshake()
    send, skip = (talk.client_sends, talk.broker_sends), (talk.client_skips, talk.broker_skips)
    for number in range(3):
        send[0](request(HEARTBEAT, 4, correlation_id=number))
        send[1](response(HEARTBEAT, 4, correlation_id=number))
    for side, payload in enumerate(make(FETCH, 4, correlation_id=7) for make in PAYLOADS):
        if side != large:
            send[side](sized(payload))
            continue
        frame = sized(payload + bytes(100 * mss))
        send[side](frame[: 50 * mss])
        skip[side](mss)
        send[side](frame[51 * mss :])
    topics = [{"name": "events", "topic_id": "A" * 21 + "w"}]
    send[0](request(METADATA, 12, correlation_id=8))
    send[1](response(METADATA, 12, {"topics": topics}, correlation_id=8))
    restored: list[PartialFrame] = []
    plain = Framing.restore

    def restore(framing: Framing, partial: PartialFrame) -> None:
        restored.append(partial)
        plain(framing, partial)

    monkeypatch.setattr(Framing, "restore", restore)
    packets = [(each.time_ns, each.data) for each in talk.finish().packets]
    facts = same(written(pcap(packets), tmp_path))
    assert [name for _, (name, _) in facts["topics"]] == ["events"]
    (cut,) = {partial for partial in restored if partial.skipped}
    assert (len(cut.data), cut.skipped) == (SHED_BYTES, 50 * mss - SIZE_BYTES - SHED_BYTES)


def written(capture: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "capture"
    path.write_bytes(capture)
    return path
