"""A frame's first bytes -> request header or correlation id; which header version goes with which body.

The rules and their exceptions (KIP-482, KIP-511, protocol guide "Headers"):

* a request header is v2 when the body's version is flexible, else v1; ControlledShutdown v0 alone has v0,
  without client id;
* a response header is v1 when the body's version is flexible, else v0; ApiVersions answers with v0 in every
  version, so that a client can read the answer before it knows what the broker speaks;
* an api newer than this program is taken to be flexible: every one since Kafka 2.4 is.
"""

from __future__ import annotations

from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from kdissect.errors import DecodeError, Malformed, Truncated
from kdissect.kafka import schema
from kdissect.kafka.compiler import decoder
from kdissect.kafka.primitives import DecodeBudget
from kdissect.limits import KIB

if TYPE_CHECKING:
    from kdissect.kafka.compiler import Decoder

CONTROLLED_SHUTDOWN = 7
API_VERSIONS = 18

# Bounds on what is believed to be a header at all: apis have come at about seven a year, and
# versions at less than two a year for each.
MAX_API_KEY = 1023
MAX_API_VERSION = 127

_KEY_VERSION_CORRELATION = Struct(">hhi")
_USUAL = Struct(">hhih")  # the same, and the length of the client id behind it
_NO_TAGS = b"\0"
_HEADER_BYTES = 64 * KIB  # decoded: Kafka has no tagged field for headers yet
_CORRELATION = Struct(">i")
CORRELATION_ID_BYTES = _CORRELATION.size
HEADER_BEGINS_BYTES = _KEY_VERSION_CORRELATION.size
"""Api key, api version and correlation id: without these a request is nothing."""


class RequestHeader(NamedTuple):
    """A decoded request header.

    Attributes:
        body_pos: offset of the body behind it, -1 where the header could not be read to its end.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_pos: int


def is_flexible(api_key: int, api_version: int) -> bool:
    """Whether bodies of this version have compact lengths and tagged fields."""
    message = schema.request(api_key)
    return message is None or (message.flexible is not None and api_version >= message.flexible)


@cache
def request_header_version(api_key: int, api_version: int) -> int:
    """0: no client id (ControlledShutdown v0 alone); 1: with client id; 2: tagged fields follow it."""
    if api_key == CONTROLLED_SHUTDOWN and api_version == 0:
        return 0
    return 2 if is_flexible(api_key, api_version) else 1


@cache
def _request_decoders(api_key: int, api_version: int) -> list[Decoder]:
    """The header's decoder; for an api nobody knows the older one too, should it not be flexible after
    all.
    """
    if api_key == CONTROLLED_SHUTDOWN and api_version == 0:
        versions = [0]
    elif schema.request(api_key) is None:
        versions = [2, 1]
    else:
        versions = [2 if is_flexible(api_key, api_version) else 1]
    return [decoder(schema.header("RequestHeader"), version) for version in versions]


@cache
def response_header_version(api_key: int, api_version: int) -> int:
    """0: the correlation id alone; 1: tagged fields follow it."""
    return int(api_key != API_VERSIONS and is_flexible(api_key, api_version))


@cache
def _response_decoder(version: int) -> Decoder:
    return decoder(schema.header("ResponseHeader"), version)


def read_request_header(data: bytes) -> RequestHeader:
    """Read the header at the start of a request frame.

    Raises:
        Truncated: fewer than the eight bytes that carry api key, version and correlation id.
        Malformed: an api key or version that no Kafka will have in this decade: these bytes are no request.
    """
    if len(data) >= _USUAL.size:
        api_key, api_version, correlation_id, size = _USUAL.unpack_from(data)
        if size >= 0 and 0 <= api_key <= MAX_API_KEY and 0 <= api_version <= MAX_API_VERSION:
            version = request_header_version(api_key, api_version)
            end = _USUAL.size + size
            if (version == 2 and data.startswith(_NO_TAGS, end)) or (version == 1 and end <= len(data)):
                client_id = data[_USUAL.size : end].decode(errors="backslashreplace")
                values = api_key, api_version, correlation_id, client_id, end + version - 1
                return tuple.__new__(RequestHeader, values)  # half the price of calling the class
    return _read_unusual(data)


def _read_unusual(data: bytes) -> RequestHeader:
    """A header without client id, with tags, or one that does not fit."""
    if len(data) < _KEY_VERSION_CORRELATION.size:
        raise Truncated(f"{len(data)} bytes are not a request header", pos=0)
    api_key, api_version, correlation_id = _KEY_VERSION_CORRELATION.unpack_from(data)
    if not (0 <= api_key <= MAX_API_KEY and 0 <= api_version <= MAX_API_VERSION):
        raise Malformed(f"API key {api_key} in version {api_version}", pos=0)
    for decode in _request_decoders(api_key, api_version):
        try:
            header, end = decode(data, 0, DecodeBudget(_HEADER_BYTES))
        except DecodeError:
            continue
        return RequestHeader(api_key, api_version, correlation_id, header.get("client_id"), end)
    return RequestHeader(api_key, api_version, correlation_id, None, -1)


def read_correlation_id(data: bytes) -> int | None:
    """The first four bytes of a response frame; None where there are fewer."""
    return int(_CORRELATION.unpack_from(data)[0]) if len(data) >= _CORRELATION.size else None


def response_body_pos(data: bytes, api_key: int, api_version: int) -> int:
    """Offset of the body in a response frame, given what was asked.

    Raises:
        Truncated, Malformed, Oversized: the header's tag buffer does not fit.
    """
    version = response_header_version(api_key, api_version)
    return (
        _response_decoder(version)(data, 0, DecodeBudget(_HEADER_BYTES))[1] if version else _CORRELATION.size
    )
