"""The native core describes exchanges as Python does, or leaves them to it."""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.capture.reader import open_capture
from kdissect.exchanges.content import errors, message_plan
from kdissect.kafka import apis, schema
from kdissect.kafka.bodies import BodyLayout
from kdissect.kafka.codes import error_name
from kdissect.kafka.compiler import generated_decoder
from kdissect.kafka.headers import response_body_pos
from kdissect.kafka.internal.payloads import PAYLOAD_MESSAGES, GroupProtocols, open_payloads
from kdissect.kafka.layout import layout, present
from kdissect.kafka.primitives import DecodeBudget
from kdissect.kafka.records import RecordData
from kdissect.kafka.secrets import redact
from kdissect.pipeline import dissect
from kdissect.sinks.plan import Plan
from kdissect.sinks.sink import Each
from kdissect.text.about import about, describe_undecoded
from kdissect.text.about_template import described_apis, native_line
from samples.golden import captures, name_of
from tests.core import NEEDS_CORE
from tests.exchange_factory import exchange
from tests.kafka.encoder import encoder
from tests.kafka.random_bodies import TIMES, random_body
from tests.sinks import taken
from tests.vectors.messages import vectors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from kdissect.kafka.schema import Field, Message
    from kdissect.model import Body, Exchange

pytestmark = NEEDS_CORE

BUDGET = 1 << 27
LEFT_TO_PYTHON = {
    "SaslAuthenticate": "credentials",
    "DescribeGroups": "messages of members",
}
"""APIs with templates, and why."""
FEW = {"SyncGroup": "up to v4 it has no protocol type"}
OPAQUE = ("JoinGroup", "SyncGroup")
"""APIs whose vectors have bytes where consumers have messages."""


def line(
    api: str, version: int, request: bytes, response: bytes | None = None, names: dict[str, str] | None = None
) -> tuple[str, list[str]] | None:
    """What the core writes about an exchange with these bodies, and the errors."""
    key = apis.find(api).key
    return described(
        key,
        native_line(key, version),
        (b"??" + request, 2),
        None if response is None else (b"!" + response, 1),
        names or {},
    )


def described(
    key: int,
    describe: Any,
    request: tuple[bytes, int],
    response: tuple[bytes, int] | None,
    names: dict[str, str],
) -> tuple[str, list[str]] | None:
    follow = partial(GroupProtocols().follow, "", key)
    result = describe.text(request, response, BUDGET, names.get, lambda *_: None, follow)
    return None if result is None else (result[0], [error_name(code) for code in result[1]])


def decoded(message: Message, version: int, raw: bytes) -> Body:
    body, end = generated_decoder(message, version)(raw, 0, DecodeBudget())
    assert end == len(raw)
    return body


def topic_ids(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(topic_id := value.get("topic_id"), str):
            yield topic_id
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from topic_ids(each)


def messages(api: str) -> tuple[Message, Message]:
    key = apis.find(api).key
    request, response = schema.request(key), schema.response(key)
    assert request is not None
    assert response is not None
    return request, response


def both(
    api: str, version: int, raws: Sequence[bytes]
) -> tuple[tuple[str, list[str]] | None, tuple[str, list[str]]]:
    """What the core and Python write. Every topic ID has a name. Python does not know credentials."""
    bodies = [decoded(message, version, raw) for message, raw in zip(messages(api), raws, strict=False)]
    for message, body in zip(messages(api), bodies, strict=False):
        redact(message, body)
    names = {topic_id: f"topic{topic_id[:2]}" for topic_id in topic_ids(bodies)}
    expected = exchange(api, version, *bodies, topic_ids=names)
    assert not open_payloads(expected) or line(api, version, *raws, names=names) is None
    return line(api, version, *raws, names=names), (about(expected), errors(expected))


TAKEN = sorted(described_apis() - LEFT_TO_PYTHON.keys())


def test_what_is_left_to_python() -> None:
    for name in described_apis():
        lines = [native_line(apis.find(name).key, version) for version in range(*versions(name))]
        assert (None in lines, any(lines)) == (name in LEFT_TO_PYTHON, name not in LEFT_TO_PYTHON), name


def versions(api: str) -> tuple[int, int]:
    request, _ = messages(api)
    return request.versions.first, request.versions.last + 1


CODES = [0, 0, 0, 3, 16, -1, 9999]


def usual(
    fields: Sequence[Field], version: int, body: Body, random: Random, codes: Sequence[int] = CODES
) -> Body:
    """A random body with few errors, without null where it is not legal, and with whole record batches."""
    for field in present(fields, version):
        value = body.get(field.name)
        if field.role == "error" and field.name in body:
            code = random.choice(codes)
            body[field.name] = [code, 0, code] if field.array else code
        elif field.role in PAYLOAD_MESSAGES and value is not None:
            body[field.name] = random.choice([b"", value, payload(PAYLOAD_MESSAGES[field.role], random)])
        elif field.name == "protocol_type" and value is not None:
            body[field.name] = "consumer"
        elif field.type == "records" and value is not None:
            raw = b"".join(batch(random) for _ in range(random.choice([0, 1, 1, 3])))
            body[field.name] = RecordData(raw, 0, len(raw))
        elif field.array and value is None and field.nullable is None and field.name in body:
            body[field.name] = []
        elif field.type == "struct" and value is not None:
            for each in value if field.array else [value]:
                usual(field.fields, version, each, random, codes)
    return body


def payload(name: str, random: Random) -> bytes:
    """A message of a consumer, with its version."""
    message = schema.embedded(name)
    version = random.randint(message.versions.first, message.versions.last)
    body = random_body(layout(message, version), random, letters="az09._- ")
    return version.to_bytes(2, "big") + encoder(message, version)(
        usual(message.fields, version, body, random)
    )


def batch(random: Random) -> bytes:
    """Header and some of the records of a batch: nothing here looks at the rest."""
    rest = random.randbytes(random.choice([0, 9, 2000]))
    count = random.choice([0, 1, 12, 1_234_567, -1]).to_bytes(4, "big", signed=True)
    return bytes(8) + (49 + len(rest)).to_bytes(4, "big") + bytes(4) + b"\2" + bytes(40) + count + rest


@pytest.mark.parametrize("api", TAKEN)
def test_usual_exchanges_are_described_by_the_core(api: str) -> None:
    described: Counter[bool] = Counter()
    for version in range(*versions(api)):
        random = Random(f"{api} {version}")
        may_quote = message_plan(BodyLayout(messages(api)[1], version)) is None  # then errors are Python's
        for number in range(5 * TIMES):
            codes = [0] if may_quote and number % 3 else CODES
            raws = [
                encoder(message, version)(
                    usual(
                        message.fields,
                        version,
                        random_body(layout(message, version), random, letters="az09._- "),
                        random,
                        codes,
                    )
                )
                for message in messages(api)[: random.choice([1, 2, 2])]
            ]
            text, expected = both(api, version, raws)
            assert text in (None, expected)
            described[text is not None] += 1
    assert described[True] > described[False] or api in FEW
    assert described[True]


@pytest.mark.parametrize("api", TAKEN)
def test_bytes_of_kafkas_own_classes(api: str) -> None:
    described = 0
    for version in range(*versions(api)):
        requests, responses = (
            [
                each
                for place, result in vectors()[message.name].items()
                if (place.version, place.draft) == (version, None)
                for each in result
            ]
            for message in messages(api)
        )
        for request, response in zip(requests, responses, strict=False):  # some responses are drafts
            text, expected = both(api, version, [request.raw, response.raw])
            assert text in (None, expected)
            described += text is not None
            text, expected = both(api, version, [request.raw])
            assert text in (None, expected)
            described += text is not None
    assert described or api in OPAQUE


@pytest.mark.parametrize("capture", [*captures()], ids=name_of)
def test_samples(capture: Path) -> None:
    with open_capture(str(capture)) as opened:
        for each in dissect(opened.packet_blocks()):
            text = line_of(each)
            assert text is None or text == (about(each), errors(each))


@pytest.mark.parametrize("capture", [*captures()], ids=name_of)
def test_exchanges_that_are_not_decoded(capture: Path) -> None:
    with open_capture(str(capture)) as opened:
        expected = [(about(each), errors(each), each.anomalies) for each in dissect(opened.packet_blocks())]
    with open_capture(str(capture)) as opened:
        exchanges: list[Exchange] = []
        sink = Each(exchanges.append)
        sink.plan = Plan(describe=describe_undecoded)
        taken(dissect(opened.packet_blocks()), sink)
    assert [(about(each), errors(each), each.anomalies) for each in exchanges] == expected
    assert all(each.response is None for each in exchanges if each.text is not None)
    if name_of(capture) == "quickstart":
        assert sum(each.text is not None for each in exchanges) > len(exchanges) / 2


def line_of(each: Exchange) -> tuple[str, list[str]] | None:
    request, response = each.request_frame, each.response_frame
    if request is None or each.api_key is None or each.api_version is None or each.request_header is None:
        return None
    if (describe := native_line(each.api_key, each.api_version)) is None or each.anomalies:
        return None
    answer = None
    if response is not None:
        answer = response.data, response_body_pos(response.data, each.api_key, each.api_version)
    return described(
        each.api_key, describe, (request.data, each.request_header.body_pos), answer, each.topic_ids
    )


TOPICS = [{"name": "orders", "partitions": [{"partition_index": 3, "committed_offset": 7}]}]
COMMIT = {"group_id": "g", "generation_id_or_member_epoch": 4, "member_id": "m", "topics": TOPICS}


def commit(**changes: Any) -> bytes:
    body = random_body(layout(messages("OffsetCommit")[0], 7), Random(0)) | COMMIT | changes
    for topic in body["topics"]:
        for partition in topic["partitions"]:
            partition |= {"committed_leader_epoch": 0, "committed_metadata": None}
    return encoder(messages("OffsetCommit")[0], 7)(body)


def committed(error_code: int = 0) -> bytes:
    topics = [{"name": "orders", "partitions": [{"partition_index": 3, "error_code": error_code}]}]
    return encoder(messages("OffsetCommit")[1], 7)({"throttle_time_ms": 0, "topics": topics})


def test_what_is_odd_is_left_to_python() -> None:
    about_it = "group g, orders-3, offset 7"
    assert line("OffsetCommit", 7, commit(), committed()) == (about_it, [])
    assert line("OffsetCommit", 7, commit(), committed(16)) == (about_it, ["NOT_COORDINATOR"])
    assert line("OffsetCommit", 7, commit() + b"\0", committed()) is None
    assert line("OffsetCommit", 7, commit(), committed() + b"\0") is None
    for text in ("\x1b[31m", "a\n", "\x7f", "\u202e", "Ж", "\ud7ff"):
        assert line("OffsetCommit", 7, commit(group_id=text), committed()) is None
    for raws in ((commit(), committed()[:end]) for end in range(len(committed()))):
        assert line("OffsetCommit", 7, *raws) is None
    for end in range(len(commit())):
        assert line("OffsetCommit", 7, commit()[:end], committed()) is None


def test_an_id_without_a_name_is_left_to_python() -> None:
    request, _ = messages("ShareFetch")
    body = random_body(layout(request, 1), Random(1))
    body["topics"] = [{"topic_id": "b" * 21 + "A", "partitions": [], "_tags": {}}]
    body["forgotten_topics_data"] = []
    raw = encoder(request, 1)(body)
    assert line("ShareFetch", 1, raw) is None
    assert line("ShareFetch", 1, raw, names={"b" * 21 + "A": "orders"}) == ("orders", [])
    assert line("ShareFetch", 1, raw, names={"b" * 21 + "A": "or\x1bders"}) is None


def test_what_exceeds_the_budget_is_left_to_python() -> None:
    describe = native_line(apis.find("OffsetCommit").key, 7)
    request, response = (commit(), 0), (committed(), 0)
    needed = next(n for n in range(9999) if describe.text(request, response, n, None, None, None) is not None)
    assert needed > next(
        n for n in range(9999) if describe.text(request, None, n, None, None, None) is not None
    )
