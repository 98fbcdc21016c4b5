"""Every kind of anomaly, with its severity and meaning.

An anomaly is a value (``model.Anomaly``): it is shown and counted, never raised. ``error`` means that
something could not be decoded, ``warning`` that something is missing, ``note`` that something is unusual but
everything was decoded.
"""

from __future__ import annotations

from typing import NamedTuple

ERROR = "error"
WARNING = "warning"
NOTE = "note"


class AnomalyKind(NamedTuple):
    """Severity, and what it means."""

    severity: str
    description: str


PARTIAL = frozenset(
    {
        *("gap", "incomplete_message", "malformed_body", "malformed_header", "malformed_payload"),
        *("oversized", "truncated_body", "uncaptured_body", "undelivered", "unknown_api", "unknown_version"),
    }
)
"""Those of messages of which not all is shown, or before which some are missing."""

CATALOGUE: dict[str, AnomalyKind] = {
    "truncated_body": AnomalyKind(
        WARNING, "The body is shorter than its layout; the fields present are shown."
    ),
    "malformed_body": AnomalyKind(
        ERROR, "A length, count or marker in the body is invalid; the fields before it are shown."
    ),
    "malformed_header": AnomalyKind(
        ERROR, "The frame is too short for a request or response header, or the header is invalid."
    ),
    "unknown_api": AnomalyKind(
        WARNING, "The API key is newer than this version of kdissect; the body is shown as bytes."
    ),
    "unknown_version": AnomalyKind(
        WARNING, "The API version is newer than this version of kdissect; the body is shown as bytes."
    ),
    "oversized": AnomalyKind(
        WARNING, "The message would exceed the memory limit; only its first fields are shown."
    ),
    "unexpected_null": AnomalyKind(
        NOTE, "A field that is not nullable is null; Kafka rejects such a message."
    ),
    "trailing_bytes": AnomalyKind(NOTE, "Extra bytes follow the complete body."),
    "draft_layout": AnomalyKind(NOTE, "The body uses a pre-release layout of this version."),
    "uncaptured_body": AnomalyKind(
        WARNING, "Part of the frame was not captured, or the frame exceeds the size limit."
    ),
    "malformed_payload": AnomalyKind(
        ERROR, "An embedded message does not match its layout; it is shown as bytes."
    ),
    "truncated_payload": AnomalyKind(
        NOTE, "An embedded message ends before its last fields, as some clients write it; the rest is shown."
    ),
    "unread_telemetry": AnomalyKind(
        NOTE, "Metrics are shown as bytes, because opentelemetry-proto is not installed."
    ),
    "malformed_records": AnomalyKind(ERROR, "Record data is not a sequence of batches or message sets."),
    "unaligned_records": AnomalyKind(
        WARNING, "The beginning of a snapshot is missing; the records of this slice cannot be located."
    ),
    "crc_mismatch": AnomalyKind(
        WARNING, "The checksum of a batch or message does not match; its records are shown."
    ),
    "lz4_checksum_mismatch": AnomalyKind(
        WARNING, "A checksum of an LZ4 frame does not match; its records are shown, some readers reject them."
    ),
    "lz4_linked_blocks": AnomalyKind(
        WARNING, "An LZ4 frame has linked blocks; its records are shown, Kafka's own reader rejects them."
    ),
    "wrong_record_count": AnomalyKind(
        WARNING, "The record count of a batch is wrong; the records present are shown."
    ),
    "damaged_compression": AnomalyKind(
        ERROR, "Compressed records cannot be fully decompressed; those before the error are shown."
    ),
    "unknown_codec": AnomalyKind(WARNING, "Unknown compression codec; no records are shown."),
    "oversized_records": AnomalyKind(
        WARNING, "A batch exceeds the limit on records or decompressed bytes; it is not read."
    ),
    "gap": AnomalyKind(WARNING, "Bytes of the stream were not captured."),
    "undelivered": AnomalyKind(
        WARNING, "Bytes of the stream did not arrive: the receiver did not acknowledge them."
    ),
    "resynchronized": AnomalyKind(
        NOTE, "The next frame was found by its content, after a gap or mid-stream."
    ),
    "not_a_frame": AnomalyKind(ERROR, "The stream no longer parses as Kafka frames."),
    "partial_frame": AnomalyKind(WARNING, "The stream ends inside a frame."),
    "malformed_proxy_header": AnomalyKind(
        NOTE, "The connection begins with a malformed PROXY header, which is not used."
    ),
    "no_handshake": AnomalyKind(
        NOTE,
        "A SASL token without SaslHandshake before it: only brokers that support clients of Kafka 0.9 "
        "(GSSAPI) accept one, and only as the first bytes of a connection.",
    ),
    "late": AnomalyKind(NOTE, "Recognized only with the help of later packets; the row may be out of order."),
    "tls_alert": AnomalyKind(
        WARNING, "The broker expects TLS: it responded with this alert, and closed the connection."
    ),
    "one_direction": AnomalyKind(WARNING, "Only one direction of the connection was captured."),
    "given_up": AnomalyKind(
        WARNING,
        "A limit was reached, or the response is in another task's file; see the details.",
    ),
    "duplicate_correlation_id": AnomalyKind(
        NOTE, "Two outstanding requests of a connection have the same correlation ID."
    ),
    "unexpected_response": AnomalyKind(
        NOTE, "A response that no request waits for: to one that expects none (acks=0), or to none at all."
    ),
    "out_of_order_response": AnomalyKind(
        NOTE, "The response to a later request of the connection came before the response to this one."
    ),
    "incomplete_message": AnomalyKind(
        WARNING, "The message began but did not end: the connection or the capture ended first."
    ),
    "name_not_waited_for": AnomalyKind(
        NOTE, "Too many rows were waiting for a topic name; this one was written without it."
    ),
}
