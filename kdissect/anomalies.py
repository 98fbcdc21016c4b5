"""The catalogue of things that can be wrong with data. An anomaly is a value (model.Anomaly): shown, counted,
never raised.

``error`` means that something could not be decoded, ``warning`` that something is missing, ``note`` that it
is odd but everything was decoded.
"""

from __future__ import annotations

from typing import NamedTuple

ERROR = "error"
WARNING = "warning"
NOTE = "note"


class AnomalyKind(NamedTuple):
    """How bad it is, and what it means in one sentence."""

    severity: str
    sentence: str


CATALOGUE: dict[str, AnomalyKind] = {
    "truncated_body": AnomalyKind(
        WARNING, "The body ends before its layout does; the fields that are there are shown."
    ),
    "malformed_body": AnomalyKind(
        ERROR, "A length, count or marker in the body cannot be true; fields before it are shown."
    ),
    "malformed_header": AnomalyKind(
        ERROR, "The frame is too short or too odd for a request or response header."
    ),
    "unknown_api": AnomalyKind(
        WARNING, "The api key is newer than this program; the body is shown as bytes."
    ),
    "unknown_version": AnomalyKind(
        WARNING, "The api version is newer than this program; the body is shown as bytes."
    ),
    "oversized": AnomalyKind(
        WARNING, "The message would take more memory than the bound allows; only its first fields are shown."
    ),
    "left_over": AnomalyKind(NOTE, "Bytes follow the complete body."),
    "draft_layout": AnomalyKind(
        NOTE, "The body follows a layout that only pre-releases used for this version."
    ),
    "other_version": AnomalyKind(
        NOTE, "The response is in another version than the request (ApiVersions after error 35)."
    ),
    "uncaptured_body": AnomalyKind(
        WARNING, "A part of the frame was not captured or is larger than the bound."
    ),
    "malformed_payload": AnomalyKind(
        ERROR, "Bytes in a field are not what the message around them says; they are shown as bytes."
    ),
    "unread_telemetry": AnomalyKind(
        NOTE, "Metrics are shown as bytes: opentelemetry-proto, which reads them, is not installed."
    ),
    "malformed_records": AnomalyKind(ERROR, "Record data that is not a sequence of batches or message sets."),
    "unaligned_records": AnomalyKind(
        WARNING, "A later slice of a snapshot whose first bytes are missing; its records cannot be found."
    ),
    "crc_mismatch": AnomalyKind(
        WARNING, "A batch's or message's checksum is not that of its bytes; its records are shown."
    ),
    "wrong_record_count": AnomalyKind(
        WARNING, "A batch announces another number of records than it has; those that are there are shown."
    ),
    "damaged_compression": AnomalyKind(
        ERROR, "Compressed records that cannot be decompressed to the end; those before are shown."
    ),
    "unknown_codec": AnomalyKind(WARNING, "Records compressed in a way that nobody knows; none are shown."),
    "oversized_records": AnomalyKind(
        WARNING, "A batch has more records, or decompresses to more bytes, than the bound; they are not read."
    ),
    "gap": AnomalyKind(WARNING, "Bytes of the stream were not captured."),
    "resynchronised": AnomalyKind(
        NOTE, "The next frame was found by its content after a gap or in mid-stream."
    ),
    "not_a_frame": AnomalyKind(ERROR, "The stream stopped being a sequence of Kafka frames."),
    "partial_frame": AnomalyKind(WARNING, "The stream ends inside a frame."),
    "one_direction": AnomalyKind(WARNING, "Only one direction of the connection was captured."),
    "given_up": AnomalyKind(WARNING, "A bound on waiting requests was reached; the oldest was given up."),
    "duplicate_correlation_id": AnomalyKind(
        NOTE, "Two waiting requests of a connection have the same correlation id."
    ),
    "unasked_response": AnomalyKind(NOTE, "A response to a request that wanted none (acks 0)."),
    "name_not_waited_for": AnomalyKind(
        NOTE, "Too many rows waited for a topic's name; this one went on without it."
    ),
}
