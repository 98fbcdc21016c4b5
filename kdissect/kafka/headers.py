"""The first bytes of a frame -> request header or correlation ID; which header version belongs to a body.

The rules and their exceptions (KIP-482, KIP-511, protocol guide "Headers"):

* a request header is v2 if the body's version is flexible, otherwise v1. Only ControlledShutdown v0 has v0,
  without client ID;
* a response header is v1 if the body's version is flexible, otherwise v0. ApiVersions responses always have
  v0, so that a client can read them before it knows the broker's versions;
* an API newer than kdissect is assumed to be flexible: every new one since Kafka 2.4 is.
"""

from __future__ import annotations

from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from kdissect.errors import DecodeError, Malformed, Truncated
from kdissect.kafka import schema
from kdissect.kafka.compiler import decoder
from kdissect.kafka.primitives import DecodeBudget
from kdissect.kafka.vendors import is_vendor_key
from kdissect.limits import KIB

if TYPE_CHECKING:
    from kdissect.kafka.compiler import Decoder

CONTROLLED_SHUTDOWN = 7
API_VERSIONS = 18

# Limits on plausible headers: about seven APIs were added per year, and less than two versions per year of
# each. (Vendors use larger API keys, too.)
MAX_API_KEY = 1023
MAX_API_VERSION = 127

_KEY_VERSION_CORRELATION = Struct(">hhi")
_USUAL = Struct(">hhih")  # the same, followed by the length of the client ID
_NO_TAGS = b"\0"
_HEADER_BYTES = 64 * KIB  # in memory: Kafka has no tagged fields in headers yet
_CORRELATION = Struct(">i")
CORRELATION_ID_BYTES = _CORRELATION.size
HEADER_BEGINS_BYTES = _KEY_VERSION_CORRELATION.size
"""API key, API version and correlation ID: the least that identifies a request."""


class RequestHeader(NamedTuple):
    """A decoded request header.

    Attributes:
        body_pos: position of the body after it. -1 if the header could not be decoded completely.
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
    """0: no client ID (only ControlledShutdown v0); 1: with client ID; 2: with tagged fields."""
    if api_key == CONTROLLED_SHUTDOWN and api_version == 0:
        return 0
    return 2 if is_flexible(api_key, api_version) else 1


@cache
def _request_decoders(api_key: int, api_version: int) -> list[Decoder]:
    """Decoders of the header. For an unknown API the older one too, in case it is not flexible."""
    if api_key == CONTROLLED_SHUTDOWN and api_version == 0:
        versions = [0]
    elif schema.request(api_key) is None:
        versions = [2, 1]
    else:
        versions = [2 if is_flexible(api_key, api_version) else 1]
    return [decoder(schema.header("RequestHeader"), version) for version in versions]


@cache
def response_header_version(api_key: int, api_version: int) -> int:
    """0: only the correlation ID; 1: followed by tagged fields."""
    return int(api_key != API_VERSIONS and is_flexible(api_key, api_version))


@cache
def _response_decoder(version: int) -> Decoder:
    return decoder(schema.header("ResponseHeader"), version)


def read_request_header(data: bytes) -> RequestHeader:
    """Decode the header at the start of a request frame.

    Raises:
        Truncated: fewer than the eight bytes of API key, version and correlation ID.
        Malformed: an API key or version that Kafka will not reach in this decade, so this is not a request.
    """
    if len(data) >= _USUAL.size:
        api_key, api_version, correlation_id, size = _USUAL.unpack_from(data)
        if size >= 0 and 0 <= api_key <= MAX_API_KEY and 0 <= api_version <= MAX_API_VERSION:
            version = request_header_version(api_key, api_version)
            end = _USUAL.size + size
            if (version == 2 and data.startswith(_NO_TAGS, end)) or (version == 1 and end <= len(data)):
                client_id = data[_USUAL.size : end].decode(errors="backslashreplace")
                values = api_key, api_version, correlation_id, client_id, end + version - 1
                return tuple.__new__(RequestHeader, values)  # takes half the time of calling the class
    return _read_unusual(data)


def _read_unusual(data: bytes) -> RequestHeader:
    """Decode a header that has no client ID, has tags, or does not fit."""
    if len(data) < _KEY_VERSION_CORRELATION.size:
        raise Truncated(f"{len(data)} bytes are not a request header", pos=0)
    api_key, api_version, correlation_id = _KEY_VERSION_CORRELATION.unpack_from(data)
    is_possible = 0 <= api_key <= MAX_API_KEY or is_vendor_key(api_key)
    if not (is_possible and 0 <= api_version <= MAX_API_VERSION):
        raise Malformed(f"API key {api_key} in version {api_version}", pos=0)
    for decode in _request_decoders(api_key, api_version):
        try:
            header, end = decode(data, 0, DecodeBudget(_HEADER_BYTES))
        except DecodeError:
            continue
        return RequestHeader(api_key, api_version, correlation_id, header.get("client_id"), end)
    return RequestHeader(api_key, api_version, correlation_id, None, -1)


def read_correlation_id(data: bytes) -> int | None:
    """The first four bytes of a response frame. None if there are fewer."""
    return int(_CORRELATION.unpack_from(data)[0]) if len(data) >= _CORRELATION.size else None


def response_body_pos(data: bytes, api_key: int, api_version: int) -> int:
    """Position of the body in the response to a request of this API and version.

    Raises:
        Truncated, Malformed, Oversized: the header's tag buffer does not fit.
    """
    version = response_header_version(api_key, api_version)
    return (
        _response_decoder(version)(data, 0, DecodeBudget(_HEADER_BYTES))[1] if version else _CORRELATION.size
    )
