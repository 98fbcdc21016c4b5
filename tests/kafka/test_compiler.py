from __future__ import annotations

import inspect
import tracemalloc
from struct import pack
from typing import Any

import pytest

from kdissect.errors import Malformed, Truncated, Unsupported
from kdissect.kafka import schema
from kdissect.kafka.codes import uuid_text
from kdissect.kafka.compiler import collector, decoder, generated_decoder, source
from kdissect.kafka.primitives import DecodeBudget
from kdissect.kafka.records import RecordData
from kdissect.kafka.walker import walk
from tests.kafka.decoding import decode, message_of
from tests.kafka.encoder import encoder, put_compact_bytes
from tests.kafka.random_bodies import TIMES, Case, all_messages, cases, random_body

MESSAGES = all_messages()
NAMES = [message.name for message in MESSAGES]

EVERYTHING = message_of("""\
# Every kind of field.

Everything 0-1, flexible 1+ =>
  flag: bool
  small: int8
  [numbers]?: int32
  [names]: string
  [ids]: uuid
  [inner] =>
    label: string?
    [deeper] =>
      ratio: float64
  maybe? =>
    id: uuid
  raw: bytes?
  records: records?
  port: uint16
  hint: string?                             1+ tag 0
  extra? =>                                 1+ tag 1
    level: uint32
""")


DELETE_GROUPS = schema.response(42)
assert DELETE_GROUPS is not None


# The generated code


def test_generated_code_reads_like_written() -> None:
    assert source(DELETE_GROUPS, 2) == GOLDEN_FLEXIBLE


def test_generated_code_of_old_versions_runs_through_plain_structs() -> None:
    message = message_of("""\
# Old.

Old 0 =>
  first: int32
  pair =>
    left: int16
    right: int16
  last: int64
  [offsets]: int64
""")
    assert source(message, 0) == GOLDEN_OLD
    assert decode(message, 0, pack(">ihhqiq", 1, 2, 3, 4, 1, 5))[0] == {
        "first": 1,
        "pair": {"left": 2, "right": 3},
        "last": 4,
        "offsets": [5],
    }


def test_source_is_where_tracebacks_look() -> None:
    function = generated_decoder(EVERYTHING, 1)
    assert inspect.getsource(function) in source(EVERYTHING, 1)
    assert function.__code__.co_filename == "<kdissect Everything v1 decoder>"


def test_functions_are_compiled_once() -> None:
    assert decoder(EVERYTHING, 0) is decoder(EVERYTHING, 0)
    assert encoder(EVERYTHING, 0) is encoder(EVERYTHING, 0)
    assert decoder(EVERYTHING, 0) is not decoder(EVERYTHING, 1)


def test_unknown_versions_are_unsupported() -> None:
    for compile_ in (decoder, encoder, lambda message, version: collector(message, version, "error")):
        with pytest.raises(Unsupported, match="Everything has no version 2"):
            compile_(EVERYTHING, 2)
    assert isinstance(walk(EVERYTHING, 2, b"").error, Unsupported)


# Every layout


@pytest.mark.parametrize("message", MESSAGES, ids=NAMES)
def test_random_bodies_come_back(message: schema.Message) -> None:
    """Body, encoder, bytes, compiled code and walker, the same body, encoder, the same bytes."""
    for case in cases([message]):
        for salt in range(3 * TIMES):
            body = random_body(case.layout, case.random(salt))
            raw = encoder(message, case.version, case.draft)(body)
            before, behind = b"\xff" * salt, b"\x01" * salt
            decoded, end = decode(message, case.version, before + raw + behind, salt, case.draft)
            assert decoded == body
            assert end == salt + len(raw)
            assert encoder(message, case.version, case.draft)(decoded) == raw


@pytest.mark.parametrize("message", MESSAGES, ids=NAMES)
def test_bodies_cut_anywhere_are_truncated(message: schema.Message) -> None:
    for case in cases([message]):
        raw = small_body(case, "cut")
        for size in range(len(raw)):
            with pytest.raises((Truncated, Malformed)):
                decode(message, case.version, raw[:size], 0, case.draft)


def test_mutated_bodies_decode_or_fail_cleanly() -> None:
    """10,000 of them: compiled code and walker find the same values, or both a fault."""
    every = cases(MESSAGES)
    faults = 0
    for number in range(10_000 * TIMES):
        case = every[number % len(every)]
        random = case.random(f"mutate {number}")
        raw = bytearray(small_body(case, number // len(every) % 3))
        for _ in range(random.choice([1, 1, 2, 8])):
            at = random.randrange(len(raw) + 1)
            match random.randrange(4):
                case 0:
                    raw[at : at + 1] = bytes(
                        [random.choice([0, 1, 0x7F, 0x80, 0xFE, 0xFF, random.randrange(256)])]
                    )
                case 1:
                    raw[at : at + 4] = random.choice(
                        [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\xff\xfe"]
                    )
                case 2:
                    del raw[at : at + random.randint(1, 8)]
                case _:
                    raw[at:at] = random.randbytes(random.randint(1, 8))
        try:
            decode(case.message, case.version, bytes(raw), 0, case.draft)
        except (Truncated, Malformed):
            faults += 1
    assert 2000 * TIMES < faults < 8000 * TIMES


_small_bodies: dict[tuple[object, object], bytes] = {}


def small_body(case: Case, salt: object) -> bytes:
    """The shortest of a few random bodies."""
    key = (case, salt)
    if key not in _small_bodies:
        bodies = (random_body(case.layout, case.random(f"{salt} {attempt}")) for attempt in range(4))
        _small_bodies[key] = min(map(encoder(case.message, case.version, case.draft), bodies), key=len)
    return _small_bodies[key]


# Values


def only(kind: str, raw: bytes, *, flexible: bool = False) -> Any:
    """The one field of a message, decoded both ways."""
    text = f"# One.\n\nOne 0{', flexible 0+' if flexible else ''} =>\n  {kind}\n"
    body, end = decode(message_of(text), 0, raw + b"\0" * flexible)
    assert end == len(raw) + flexible
    return body["field"]


def test_any_byte_but_zero_is_true() -> None:
    assert [only("field: bool", bytes([byte])) for byte in (0, 1, 2, 255)] == [False, True, True, True]
    assert only("[field]: bool", b"\0\0\0\x03\0\x01\x80") == [False, True, True]
    assert only("[field]: bool", b"\x04\0\x01\x80", flexible=True) == [False, True, True]


def test_null_is_decoded_where_it_is_not_legal() -> None:
    assert only("field: string", b"\xff\xff") is None
    assert only("field: bytes", b"\xff\xff\xff\xff") is None
    assert only("[field]: int32", b"\xff\xff\xff\xff") is None
    assert only("[field]: string", b"\xff\xff\xff\xff") is None
    for kind in ("field: string", "field: bytes", "field: records", "[field]: int32", "[field]: string"):
        assert only(kind, b"\0", flexible=True) is None


def test_text_that_is_none_shows_escapes() -> None:
    assert only("field: string", b"\0\4a\xff\xc3b") == "a\\xff\\xc3b"
    assert only("field: jutf", b"\0\1\xff") == "\\xff"
    assert only("field: utf16", b"\0\0\0\2\xd8\x00\0a") == "\\xd8\\x00a"


def test_java_texts() -> None:
    assert only("field: jutf", b"\0\x0bz\xc0\x80\xc3\xa9\xed\xa0\xb4\xed\xb4\x9e") == "z\0é𝄞"
    assert only("field: utf16", b"\0\0\0\3\0z\xd8\x34\xdd\x1e") == "z𝄞"


def test_string16_has_its_old_length_in_flexible_versions() -> None:
    assert only("field: string16?", b"\0\2ab", flexible=True) == "ab"
    assert only("field: string16?", b"\xff\xff", flexible=True) is None


def test_uuids_are_in_kafkas_form() -> None:
    assert only("field: uuid", bytes(range(16))) == uuid_text(bytes(range(16))) == "AAECAwQFBgcICQoLDA0ODw"
    assert only("[field]: uuid", b"\0\0\0\2" + bytes(32)) == ["A" * 22] * 2


def test_records_stay_in_the_buffer() -> None:
    raw = b"\0\0\0\3abc"
    records = only("field: records", raw)
    assert isinstance(records, RecordData)
    assert (records.data, records.start, records.end) == (raw, 4, 7)


def test_long_and_padded_varints() -> None:
    assert only("field: string", b"\x81\x01" + b"x" * 128, flexible=True) == "x" * 128
    assert only("field: string", b"\x82\x80\x80\x80\x00x", flexible=True) == "x"
    with pytest.raises(Malformed, match="more than 5 bytes"):
        only("field: string", b"\x82\x80\x80\x80\x80\x00x", flexible=True)


@pytest.mark.parametrize("flexible", [False, True], ids=["old", "flexible"])
def test_nullable_structs(flexible: bool) -> None:
    kind = "field? =>\n    id: int16"
    end = b"\0" if flexible else b""
    assert only(kind, b"\xff", flexible=flexible) is None
    assert only(kind, b"\x01\0\x09" + end, flexible=flexible) == {"id": 9}
    with pytest.raises(Truncated):
        only(kind, b"\x01\0")


# Tags

TAGGED = message_of("""\
# Tags.

Tagged 0, flexible 0+ =>
  id: int8
  name: string?                             0+ tag 3
  more? =>                                  0+ tag 4
    level: int8
  [list]: int16                             0+ tag 5
""")


def test_tags_by_name_and_number() -> None:
    body, _ = decode(TAGGED, 0, b"\x07\x04\x03\x03\x03hi\x04\x03\x01\x09\0\x05\x03\x02\0\x08\x7f\x02\xab\xcd")
    assert body == {"id": 7, "name": "hi", "more": {"level": 9}, "list": [8], "_tags": {127: b"\xab\xcd"}}


def test_absent_and_null_tags() -> None:
    assert decode(TAGGED, 0, b"\x07\0")[0] == {"id": 7}
    assert decode(TAGGED, 0, b"\x07\x02\x03\x01\0\x04\x01\0")[0] == {"id": 7, "name": None, "more": None}


def test_tags_out_of_order_and_twice() -> None:
    body, _ = decode(TAGGED, 0, b"\x07\x04\x04\x01\0\x03\x02\x02a\x09\x01!\x03\x02\x02b")
    assert list(body.items()) == [("id", 7), ("more", None), ("name", "b"), ("_tags", {9: b"!"})]


def test_many_unknown_tags() -> None:
    raw = b"".join(bytes([0x80 | number & 0x7F, number >> 7, 1, 1]) for number in range(1000, 1200))
    assert decode(TAGGED, 0, b"\x07\xc8\x01" + raw)[0]["_tags"] == dict.fromkeys(range(1000, 1200), b"\x01")
    nested = message_of("# N.\n\nN 0, flexible 0+ =>\n  [list] =>\n    id: int8\n")
    assert decode(nested, 0, b"\x02\x05\x01\x64\0\0")[0] == {"list": [{"id": 5, "_tags": {100: b""}}]}


@pytest.mark.parametrize("size", [1, 3])
def test_a_tag_of_the_wrong_size_is_malformed(size: int) -> None:
    with pytest.raises(Malformed, match="tag 3"):
        decode(TAGGED, 0, b"\x07\x01\x03" + bytes([size]) + b"\x02a\0\0")
    assert walk(TAGGED, 0, b"\x07\x01\x03" + bytes([size]) + b"\x02a\0\0").value == {"id": 7, "name": "a"}


# Lies

HUGE = 0x7FFFFFFF
HUGE_VARINT = b"\xff\xff\xff\xff\x07"


@pytest.mark.parametrize(
    "kind",
    ["field: string", "field: bytes", "field: records"]
    + [f"[field]: {kind}" for kind in ("bool", "int8", "int64", "uuid", "string", "bytes")]
    + ["[field] =>\n    id: int32", "[field] =>\n    name: string", "[field] =>\n    [inner]: int32"],
)
@pytest.mark.parametrize("flexible", [False, True], ids=["old", "flexible"])
@pytest.mark.parametrize("behind", [b"", bytes(100)], ids=["nothing", "something"])
def test_lying_lengths_cost_nothing(kind: str, flexible: bool, behind: bytes) -> None:
    length = (
        HUGE_VARINT
        if flexible
        else pack(">h" if kind.endswith(": string") and "[" not in kind else ">i", 0x7FFF)
    )
    if not flexible and ("[" in kind or "string" not in kind):
        length = pack(">i", HUGE)
    only_walked = f"# One.\n\nOne 0{', flexible 0+' if flexible else ''} =>\n  {kind}\n"
    message = message_of(only_walked)
    for every in (decoder(message, 0), generated_decoder(message, 0)):  # the first may call the second
        with pytest.raises(Truncated):
            every(length + behind, 0, DecodeBudget())
    tracemalloc.start()
    with pytest.raises(Truncated):
        decoder(message, 0)(length + behind, 0, DecodeBudget())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000
    assert isinstance(walk(message, 0, length + behind).error, Truncated)


def test_many_elements_of_no_bytes_are_not_believed() -> None:
    message = message_of("""\
# Empty.

Empty 0-1 =>
  [list] =>
    id: int32                               1+
""")
    assert decode(message, 0, b"\0\0\0\2xy") == ({"list": [{}, {}]}, 4)
    with pytest.raises(Truncated):
        decode(message, 0, b"\0\x10\0\0xy")


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ("field: string", b"\xff\xfe"),
        ("field: bytes", b"\x80\0\0\0"),
        ("[field]: int32", b"\xff\xff\xff\xfe"),
        ("[field]: string", b"\xff\xff\xff\xfe"),
        ("[field] =>\n    id: int8", b"\xff\xff\xff\xfe"),
    ],
)
def test_lengths_below_null_are_malformed(kind: str, raw: bytes) -> None:
    with pytest.raises(Malformed, match="a length of -"):
        only(kind, raw + bytes(20))


def test_errors_know_roughly_where() -> None:
    message = message_of("# Two.\n\nTwo 0 =>\n  name: string\n  number: int32\n")
    with pytest.raises(Truncated) as caught:
        decode(message, 0, b"\0\1xAB")
    assert caught.value.pos == 3


def test_strings_are_no_longer_than_kafka_reads() -> None:
    message = message_of("# Text.\n\nText 0, flexible 0+ =>\n  text: string\n")
    text = b"x" * 32_767
    assert decode(message, 0, put_compact_bytes(text) + b"\0")[0] == {"text": text.decode()}
    with pytest.raises(Malformed, match="a string of 32768 bytes"):
        decode(message, 0, put_compact_bytes(text + b"x") + b"\0")
    with pytest.raises(Truncated):
        decode(message, 0, put_compact_bytes(text + b"x")[:-1])


GOLDEN_FLEXIBLE = """\
# DeleteGroupsResponse v2, generated from its .kmsg text.
def decode_DeleteGroupsResponse_v2(data, pos, budget):
    end = len(data)
    left = budget.left
    try:
        throttle_time_ms, n = unpack_iB(data, pos)
        pos += 5
        if n > 127:
            n, pos = uvarint(data, pos, n)
        if n > 1:
            left -= 320 * (n - 1)
            if left < 0:
                raise too_many(n - 1, pos, end)
            results = []
            for _ in range(n - 1):
                n = data[pos]
                pos += 1
                if n > 127:
                    n, pos = uvarint(data, pos, n)
                    if n - 1 > 32767:
                        raise too_long(n - 1, pos, end)
                group_id = data[pos:(pos := pos + n - 1)].decode("utf-8", "backslashreplace") if n else unexpected_null(budget, pos)
                error_code, tags = unpack_hB(data, pos)
                pos += 3
                results_item = {"group_id": group_id, "error_code": error_code}
                if tags:
                    if tags > 127:
                        tags, pos = uvarint(data, pos, tags)
                    left -= 384 * tags
                    if left < 0:
                        raise too_many(tags, pos, end)
                    pos = unknown_tags(data, pos, tags, results_item)
                results.append(results_item)
        else:
            results = [] if n else unexpected_null(budget, pos)
        tags_2 = data[pos]
        pos += 1
        body = {"throttle_time_ms": throttle_time_ms, "results": results}
        if tags_2:
            if tags_2 > 127:
                tags_2, pos = uvarint(data, pos, tags_2)
            left -= 384 * tags_2
            if left < 0:
                raise too_many(tags_2, pos, end)
            pos = unknown_tags(data, pos, tags_2, body)
        if pos > end:
            raise Truncated("the last field is cut off", pos=end)
        budget.left = left
        return body, pos
    except (IndexError, StructError):
        raise Truncated("the buffer ends inside the body", pos=min(pos, end)) from None
"""  # noqa: E501

GOLDEN_OLD = """\
# Old v0, generated from its .kmsg text.
def decode_Old_v0(data, pos, budget):
    end = len(data)
    left = budget.left
    try:
        first, left_2, right, last, n = unpack_ihhqi(data, pos)
        pos += 20
        if n > 0:
            left -= 40 * n
            if left < 0:
                raise too_many(n, pos, end)
            offsets = [*unpack_from(f">{n}q", data, pos)]
            pos += 8 * n
        else:
            offsets = [] if n >= 0 else unexpected_null(budget, pos, n)
        body = {
            "first": first,
            "pair": {"left": left_2, "right": right},
            "last": last,
            "offsets": offsets,
        }
        if pos > end:
            raise Truncated("the last field is cut off", pos=end)
        budget.left = left
        return body, pos
    except (IndexError, StructError):
        raise Truncated("the buffer ends inside the body", pos=min(pos, end)) from None
"""
