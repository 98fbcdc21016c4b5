from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect.kafka.traces import Trace, b3, sw8, trace_of, traceparent, traces, tracestate

TRACE, SPAN, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "05e3ac9a4f6e3b90"


def sw8_text(*fields: object) -> str:
    return "-".join(b64encode(f.encode()).decode() if isinstance(f, str) else str(f) for f in fields)


SW8 = sw8_text(1, "1.2.3", "4.5.6", 3, "shop", "shop-1@10.0.0.5", "/pay", "10.0.0.9:9092")


def test_traceparent() -> None:
    assert traceparent(f"00-{TRACE}-{SPAN}-03") == {
        "version": "00",
        "trace_id": TRACE,
        "parent_id": SPAN,
        "trace_flags": "03",
        "sampled": True,
        "random": True,
    }
    later = traceparent(f"cc-{TRACE}-{SPAN}-00-what-comes-then")
    assert later is not None
    assert later["version"] == "cc"
    assert not later["sampled"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
        f"01-{TRACE}-{SPAN}-01more",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_what_is_no_traceparent(text: str) -> None:
    assert traceparent(text) is None


def test_tracestate() -> None:
    assert tracestate("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE") == [
        {"key": "rojo", "value": "00f067aa0ba902b7"},
        {"key": "congo", "value": "t61rcWkgMzE"},
    ]
    assert tracestate("fw529a3039@dt=FfAAAA , ,\tx=a b") == [
        {"key": "fw529a3039@dt", "value": "FfAAAA"},
        {"key": "x", "value": "a b"},
    ]


@pytest.mark.parametrize("text", ["", ",", "Rojo=1", "rojo", "rojo=", "a=b=c", "a=é", ",".join(["a=1"] * 33)])
def test_what_is_no_tracestate(text: str) -> None:
    assert tracestate(text) is None


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (f"{TRACE}-{SPAN}-1-{PARENT}",
         {"trace_id": TRACE, "span_id": SPAN, "sampling": "accepted", "parent_span_id": PARENT}),
        (f"{TRACE}-{SPAN}-d", {"trace_id": TRACE, "span_id": SPAN, "sampling": "debug"}),
        (f"{TRACE[:16]}-{SPAN}", {"trace_id": TRACE[:16], "span_id": SPAN}),
        ("0", {"sampling": "denied"}),
        ("d", {"sampling": "debug"}),
        ("", None),
        ("2", None),
        (f"{TRACE}-{SPAN}-2", None),
        (f"{TRACE}-{SPAN}-1-{PARENT}-", None),
        (f"{TRACE[:20]}-{SPAN}", None),
    ],
)  # fmt: skip
def test_b3(text: str, parts: dict[str, str] | None) -> None:
    assert b3(text) == parts


def test_b3_in_several_headers() -> None:
    headers = [
        ("X-B3-TraceId", TRACE.encode()),
        ("X-B3-SpanId", SPAN.encode()),
        ("X-B3-ParentSpanId", PARENT.encode()),
        ("X-B3-Sampled", b"1"),
    ]
    several = traces(headers)
    assert several == {"b3": b3(f"{TRACE}-{SPAN}-1-{PARENT}")}
    assert traces([*headers, ("X-B3-Flags", b"1")])["b3"]["sampling"] == "debug"
    assert traces([*headers, ("b3", b"0")]) == {"b3": {"sampling": "denied"}}
    assert traces([("x-b3-traceid", b"no hex"), ("x-b3-sampled", b"false")]) == {"b3": {"sampling": "denied"}}


def test_sw8() -> None:
    assert sw8(SW8) == {
        "sample": 1,
        "trace_id": "1.2.3",
        "parent_segment_id": "4.5.6",
        "parent_span_id": 3,
        "parent_service": "shop",
        "parent_service_instance": "shop-1@10.0.0.5",
        "parent_endpoint": "/pay",
        "target_address": "10.0.0.9:9092",
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1-2-3",
        "-".join(["1"] * 8),
        SW8 + "-",
        "2" + SW8[1:],
        SW8.replace("=", "!"),
        *(SW8.replace("-3-", f"-{span}-") for span in ("x", "", "9" * 5000, "\u0663")),
    ],
)
def test_what_is_no_sw8(text: str) -> None:
    assert sw8(text) is None


def test_the_last_of_equal_headers_counts_and_others_are_left_alone() -> None:
    first, last = f"00-{SPAN * 2}-{SPAN}-00", f"00-{TRACE}-{SPAN}-01"
    headers = [("traceparent", first.encode()), ("traceparent", last.encode()), ("x", b"\xff"), ("y", None)]
    assert traces(headers) == {"traceparent": traceparent(last)}
    assert traces([]) == {}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["traceparent", "tracestate", "b3", "X-B3-TraceId", "X-B3-Flags", "sw8"]),
            st.none() | st.binary(max_size=80) | st.sampled_from([SW8.encode(), b"a=b", b"d"]),
        )
    )
)
def test_any_headers(headers: list[tuple[str, Any]]) -> None:
    assert set(traces(headers)) <= {"traceparent", "tracestate", "b3", "sw8"}


def test_the_trace_of_a_record() -> None:
    w3c = ("traceparent", f"00-{TRACE}-{SPAN}-01".encode())
    zipkin = ("B3", f"{TRACE}-{PARENT}-1".encode())
    sky = ("sw8", SW8.encode())
    assert trace_of(()) is None
    assert trace_of((("other", b"1"), ("tracestate", b"a=b"), ("b3", b"0"))) is None
    assert trace_of((sky, zipkin, w3c)) == Trace("w3c", TRACE, SPAN)
    assert trace_of((sky, zipkin)) == Trace("b3", TRACE, PARENT)
    assert trace_of((("X-B3-TraceId", TRACE.encode()),)) == Trace("b3", TRACE, None)
    assert trace_of((sky,)) == Trace("sw8", "1.2.3", "4.5.6/3")
