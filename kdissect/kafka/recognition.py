"""Bytes of a stream -> whether it is Kafka, which side is the client, and where the next frame begins.

A Kafka request is recognized on any port because little else fits: a size, an existing API key and version, a
printable client ID, and a body that decodes to its last byte. Other length-prefixed protocols (MongoDB,
MySQL, AMQP, NFS, Thrift, RTMP, DRDA, OpenWire, ZooKeeper, SMPP, PostgreSQL) fail one of these.

The functions here search a ``Search`` (resync.py) and accept nothing without confirmation: a frame that
decodes exactly, or a length that leads to another header. Only a frame too large for the search, or truncated
by the snaplen, is accepted for its first bytes.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from functools import lru_cache, partial
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from kdissect.errors import DecodeError
from kdissect.kafka import schema
from kdissect.kafka.bodies import can_be_response, fits_request, fits_response, is_newer_request
from kdissect.kafka.headers import read_request_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from kdissect.kafka.resync import ByteRun, Search
    from kdissect.model import Frame


if TYPE_CHECKING:
    ApiOf = Callable[[int], tuple[int, int] | None]
    """correlation ID -> API key and version of an outstanding request."""

_SIZE = Struct(">i")
_CORRELATION = Struct(">i")
_SIZE_AND_CORRELATION = Struct(">ii")
_HEAD_BYTES = _SIZE_AND_CORRELATION.size

# size above 7 and below 128 MiB, API key 0-127, version 0-31, correlation ID, client ID null or shorter than
# 256.
_REQUEST_BYTES = 14
_REQUEST = re.compile(
    rb"(?=[\x00-\x07][\s\S]{3}\x00[\x00-\x7f]\x00[\x00-\x1f][\s\S]{4}(?:\x00[\s\S]|\xff\xff))(?!\x00\x00\x00[\x00-\x07])"
)
# The first request of a stream can be newer than this program: API key 0-1023, version 0-127.
_FIRST_REQUEST = re.compile(
    rb"(?!\x00\x00\x00[\x00-\x07])[\x00-\x07][\s\S]{3}[\x00-\x03][\s\S]\x00[\x00-\x7f]"
)
_LARGEST_FIRST_BYTE = 0x07
_ENOUGH_BYTES = 64 * 1024  # bytes of an incomplete first frame after which those must suffice
_PREFIX = 4096  # bytes of an incomplete frame that are decoded
_LONGEST_HEADER = 600  # a header that is still incomplete after this many bytes is not one
_PRODUCE_0 = bytes(4)  # API key and version, or a response's correlation ID
_ACKS_AND_TIMEOUT = 6  # bytes before the topics in the body of Produce 0
_CHAIN = 3  # responses in a row that suffice if no requests were captured


def is_first_request(search: Search, run: ByteRun, final: bool, answer: bytes | None = None) -> bool | None:
    """Whether a stream begins with a request. None if more bytes must decide.

    Args:
        search: has the stream's first byte.
        run: its first run.
        final: nothing more will come.
        answer: the first bytes of the other direction. None while there are none. They decide about a request
            that is newer than this program, or malformed: its response begins with its correlation ID.
    """
    if len(run.data) < _REQUEST_BYTES:
        return False if run.data[0] > _LARGEST_FIRST_BYTE else None
    if not _FIRST_REQUEST.match(run.data):
        return False
    (size,) = _SIZE.unpack_from(run.data)
    captured = min(size, len(run.data) - _SIZE.size)
    frame = search.read(_SIZE.size, size if captured == size else _PREFIX)
    names_client = _names_client(frame)
    if names_client is None:
        if len(frame) < size and search.end > run.end:
            return _is_first_of_cut_requests(search, run, size, final, answer)
        return None if len(frame) < min(size, _LONGEST_HEADER) and not final else False
    if captured < size:
        if size > search.largest or not fits_request(frame, to_the_end=False):
            return False
        return names_client if final or search.end > run.end or captured >= _ENOUGH_BYTES else None
    if fits_request(frame):
        return True
    if not names_client:
        return False
    if answer is None:
        return is_newer_request(frame) if final else None
    correlation = slice(_SIZE.size, _SIZE_AND_CORRELATION.size)
    return len(answer) >= correlation.stop and answer[correlation] == frame[correlation]


def _is_first_of_cut_requests(
    search: Search, run: ByteRun, size: int, final: bool, answer: bytes | None
) -> bool | None:
    """Whether a stream begins with a request whose header was truncated by the snaplen. Then another packet
    follows, and its response or other requests confirm it.
    """
    request = read_beginning(bytes(run.data), search.largest)
    end = _SIZE.size + size
    if request is None or (end < search.end and not search.is_item_start(end)):
        return False
    if answer is not None and end <= search.end:
        return bool(_CORRELATION.unpack_from(answer, _SIZE.size)[0] == request.correlation_id)
    return True if is_row_of_requests(search, 0) is True else False if final else None


def locate_request(search: Search) -> int | None:
    """Find a request in mid-stream."""
    hunt = search.hunt("request")
    return hunt.first(search, hunt.matches(search, _REQUEST, _REQUEST_BYTES), _is_request)


def locate_response(search: Search, api_of: ApiOf, ids: tuple[int | None, int | None]) -> int | None:
    """Find a response to one of the outstanding requests.

    Args:
        search: where to search.
        api_of: the API key and version of the request with a correlation ID. None if there is no such
            request.
        ids: the first and the last outstanding correlation ID (None: of a SASL token).
    """
    hunt = search.hunt("response")
    pattern = _response_pattern(*_prefix_and_range(*ids))
    fresh = hunt.matches(search, pattern, _SIZE_AND_CORRELATION.size)
    return hunt.first(search, fresh, partial(_is_response, api_of))


def locate_response_chain(search: Search) -> int | None:
    """Find responses without captured requests: ``_CHAIN`` frames in a row, the first of them at the start of
    a packet, with consecutive correlation IDs.
    """
    hunt = search.hunt("chain")
    return hunt.first(search, hunt.item_starts(search), _is_chain)


def first_response_before(search: Search, pos: int) -> int:
    """Position of the earliest of the responses before the confirmed one at ``pos``: whole frames, the first
    at the start of a packet, each leading to the next and the last to ``pos``, with rising correlation IDs.
    ``pos`` if there are none.
    """
    ids = {pos: _CORRELATION.unpack(search.read(pos + _SIZE.size, _CORRELATION.size))[0]}
    rejected: set[int] = set()
    starts = [start for start in search.item_starts(0) if start < pos]
    for start in reversed(starts):
        chain: list[tuple[int, int]] = []
        at = start
        while at not in ids and at not in rejected and (head := search.peek(at, _HEAD_BYTES)) is not None:
            size, correlation_id = _SIZE_AND_CORRELATION.unpack(head)
            if not _SIZE.size <= size <= pos - at - _SIZE.size:
                break
            chain.append((at, correlation_id))
            at += _SIZE.size + size
        following = ids.get(at)
        for begin, correlation_id in reversed(chain):
            if following is None or not 0 < following - correlation_id <= _MAX_ID_STEP:
                following = None
                rejected.add(begin)
            else:
                following = ids[begin] = correlation_id
    return min(ids)


def begins_with_response(search: Search, first_id: int) -> bool:
    """Whether the search begins with whole responses to requests before the first one captured, which has
    the correlation ID ``first_id``: frames of rising correlation IDs that end where a packet does.
    """
    at, previous = 0, max(1, first_id - _MAX_ID_STEP)
    while (head := search.peek(at, _HEAD_BYTES)) is not None:
        size, correlation_id = _SIZE_AND_CORRELATION.unpack(head)
        if size < _SIZE.size or not previous <= correlation_id < first_id:
            return False
        at, previous = at + _SIZE.size + size, correlation_id + 1
        if at == search.end or search.is_item_start(at):
            return True
    return False


def _is_response(api_of: ApiOf, search: Search, pos: int) -> bool | int:
    head = search.peek(pos, _SIZE_AND_CORRELATION.size)
    if head is None:
        return False
    size, correlation_id = _SIZE_AND_CORRELATION.unpack(head)
    api = api_of(correlation_id)
    if api is None or not _SIZE.size <= size <= search.largest:
        return False
    start, end = pos + _SIZE.size, pos + _SIZE.size + int(size)
    if size > search.largest_held:  # its first bytes suffice at the start of a packet
        return can_be_response(search.read(start, _PREFIX), *api) if search.is_item_start(pos) else False
    if end > search.end:
        return end if can_be_response(search.read(start, min(size, _PREFIX)), *api) else False
    frame = search.read(start, size)
    if len(frame) == size and fits_response(frame, *api):
        return True
    # Part of it was not captured, or its layout is malformed or unknown. Then it must begin or end at a
    # packet boundary, and another response must follow. (The list of APIs in an ApiVersions response is full
    # of small numbers that rise by one. Only packet boundaries distinguish those from sizes and correlation
    # IDs.)
    if not (search.is_item_start(pos) or (len(frame) < size and search.is_item_start(end))):
        return False
    following = search.peek(end, _SIZE_AND_CORRELATION.size)
    if following is None:
        return end + _SIZE_AND_CORRELATION.size
    next_size, next_id = _SIZE_AND_CORRELATION.unpack(following)
    follows = next_id == correlation_id + 1 or api_of(next_id) is not None
    return bool(follows and _SIZE.size <= next_size <= search.largest)


def _is_chain(search: Search, pos: int) -> bool | int:
    at, previous = pos, None
    for _ in range(_CHAIN):
        head = search.peek(at, _SIZE_AND_CORRELATION.size)
        if head is None:
            return at + _SIZE_AND_CORRELATION.size
        size, correlation_id = _SIZE_AND_CORRELATION.unpack(head)
        if not _SIZE.size <= size <= search.largest:
            return False
        if previous is not None and correlation_id != previous + 1:
            return False
        at, previous = at + _SIZE.size + size, correlation_id
    return True


def _prefix_and_range(oldest: int | None, newest: int | None) -> tuple[bytes, int, int]:
    """The common prefix of all correlation IDs in the range, and the range of the byte after it. Nothing more
    precise, so that few patterns serve many IDs.
    """
    if oldest is None or newest is None or not 0 <= oldest <= newest:
        return b"", 0, 255
    low, high = _SIZE.pack(oldest), _SIZE.pack(newest)
    same = next((index for index in range(3) if low[index] != high[index]), 3)
    return (low[:same], low[same], high[same]) if same < 3 else (low[:3], 0, 255)


@lru_cache(maxsize=64)
def _response_pattern(prefix: bytes, least: int, greatest: int) -> re.Pattern[bytes]:
    """A size of 4 to 1 GiB, then a correlation ID with this prefix."""
    byte = b"[" + re.escape(bytes((least,))) + b"-" + re.escape(bytes((greatest,))) + b"]"
    return re.compile(
        rb"(?!\x00\x00\x00[\x00-\x03])[\x00-\x3f][\s\S]{3}(?=" + re.escape(prefix) + byte + rb")"
    )


def _is_request(search: Search, pos: int) -> bool | int:
    """Whether a request begins here, in mid-stream.

    A frame that decodes exactly must also name its client, or begin with a packet and be followed by another
    request: among zeros and counters an empty request is found by chance.
    """
    head = search.peek(pos, _SIZE.size)
    if head is None:
        return False
    (size,) = _SIZE.unpack(head)
    if size > search.largest:
        return False
    start, end = pos + _SIZE.size, pos + _SIZE.size + size
    beginning = search.read(start, min(size, _PREFIX))
    names_client = _names_client(beginning)
    if names_client is None:
        enough = min(size, _LONGEST_HEADER)
        if start + len(beginning) < min(end, search.end):
            return is_row_of_requests(search, pos)
        return start + enough if len(beginning) < enough else False
    if not (names_client or search.is_item_start(pos)) or not fits_request(beginning, to_the_end=False):
        return False
    if size > search.largest_held:  # its first bytes suffice at the start of a packet
        if not (names_client and search.is_item_start(pos)):
            return False
        return True if len(beginning) == _PREFIX else start + _PREFIX
    if end > search.end:
        return int(end)
    frame = search.read(start, size)
    if len(frame) == size:
        if not fits_request(frame) or _is_idle_produce(frame):
            return False
        if names_client:
            return True
    elif not names_client:
        return False  # a response with a small correlation ID begins like a Produce request
    following = search.peek(end, _REQUEST_BYTES)
    return end + _REQUEST_BYTES if following is None else bool(_REQUEST.match(following))


def _is_idle_produce(frame: bytes) -> bool:
    """Whether this is a Produce v0 without any topics. No client sends one, but an old broker's response to
    an OffsetCommit with correlation ID 0 looks like it, with the topic's name in the place of the client ID.
    """
    if not frame.startswith(_PRODUCE_0):
        return False
    topics = read_request_header(frame).body_pos + _ACKS_AND_TIMEOUT
    return frame[topics : topics + 4] == bytes(4)


def _names_client(frame: bytes) -> bool | None:
    """Whether the header has a client ID. None without a valid header, or if the client ID is not
    printable.
    """
    try:
        header = read_request_header(frame)
    except DecodeError:
        return None
    if header.body_pos < 0:
        return None
    client_id = header.client_id or ""
    return bool(client_id) if client_id.isprintable() and "\\x" not in client_id else None


# ------------------------------------------------------------------------------------------------------------
# The first bytes of a stream -> the name of another protocol, or whether they are a SASL token.
# ------------------------------------------------------------------------------------------------------------


def is_gssapi_token(data: bytes) -> bool:
    """Whether a stream begins with a size and a GSSAPI token, which 0.9 clients send on a SASL port instead
    of a request.

    RFC 2743 section 3.1: tag 0x60, then a DER length that reaches to the token's end.
    """
    if len(data) < _SIZE.size + 4 or data[4] != 0x60:
        return False
    (size,) = _SIZE.unpack_from(data)
    length, octets = data[5], 0
    if length & 0x80:
        octets = length & 0x7F
        length = int.from_bytes(data[6 : 6 + octets], "big")
    return 0 < octets + 2 + length == size and octets <= 4


def other_protocol(data: bytes) -> str | None:
    """The name of another protocol that begins like this. None if unknown. TLS is recognized in mid-stream
    too.
    """
    if (
        len(data) >= 6
        and data[0] in _TLS_RECORDS
        and data[1] == 3
        and data[2] <= 4
        and int.from_bytes(data[3:5], "big") <= _TLS_RECORD_BYTES
        and (data[0] != _TLS_HANDSHAKE or data[5] in _TLS_HELLOS)
    ):
        return "TLS"
    for beginning, name in _BEGINNINGS:
        if data.startswith(beginning):
            return name
    return None


# RFC 8446 section 5.1: record type, version 3.x, a length of at most 2^14 + 256.
_TLS_HANDSHAKE = 0x16
_TLS_RECORDS = (0x14, 0x15, _TLS_HANDSHAKE, 0x17)
_TLS_HELLOS = (1, 2)
_TLS_RECORD_BYTES = 0x4100

_BEGINNINGS = (
    *(
        (method + b" ", "HTTP")
        for method in (b"GET", b"POST", b"PUT", b"HEAD", b"DELETE", b"OPTIONS", b"CONNECT", b"PATCH")
    ),
    (b"HTTP/1.", "HTTP"),
    (b"PRI * HTTP/2", "HTTP/2"),
    (b"SSH-", "SSH"),
    (b"AMQP", "AMQP"),
)


# ------------------------------------------------------------------------------------------------------------
# The captured bytes of a request whose header the snaplen truncated -> whether it can be one, and its client.
#
#      size    api key  api version  correlation id  client id
#     | 4     | 2      | 2          | 4             | 2 + n ...
#
# A snaplen of 96 leaves 30 bytes of a request, too few for a client ID of twenty letters. These bytes prove
# little by themselves, so their context must confirm them: a response that begins with the same correlation
# ID, or several requests in a row, each at the start of a packet and where the previous size leads, from the
# same client, with correlation IDs that do not fall (before 0.9 those of a controller can repeat). Holds
# nothing.
# ------------------------------------------------------------------------------------------------------------


_BEGINNING = Struct(">ihhih")
_DECODER = getincrementaldecoder("utf-8")

LONGEST_CLIENT_ID = 255
_IN_A_ROW = 3
_MAX_ID_STEP = 10_000  # a Java client numbers its requests to all brokers together


class Beginning(NamedTuple):
    """The captured part of a request header.

    Attributes:
        size: the value of the size field.
        client: the client ID's length and its first bytes.
    """

    size: int
    correlation_id: int
    client: bytes


def read_beginning(data: bytes, largest: int) -> Beginning | None:
    """Decode the first bytes, including the size field, of what may be a request of a known API and version
    with a client ID. None if it is not one.

    Args:
        data: the captured bytes. Anything after the client ID is ignored.
        largest: size of the largest frame.
    """
    if len(data) < _BEGINNING.size:
        return None
    size, api_key, version, correlation_id, length = _BEGINNING.unpack_from(data)
    if not (_BEGINNING.size - 4 + length <= size <= largest and 0 < length <= LONGEST_CLIENT_ID):
        return None
    message = schema.request(api_key)
    if correlation_id < 0 or message is None or version not in message.versions:
        return None
    client = data[_BEGINNING.size : _BEGINNING.size + length]
    try:
        text = _DECODER().decode(client)  # a truncated last character is ignored
    except UnicodeDecodeError:
        return None
    if not text.isprintable():
        return None
    return Beginning(size, correlation_id, data[_BEGINNING.size - 2 : _BEGINNING.size] + client)


def can_be_request(frame: Frame) -> bool:
    """Whether a frame is a request, as far as it was captured."""
    if fits_request(frame.data, to_the_end=frame.complete):
        return True
    return not frame.complete and read_beginning(_SIZE.pack(frame.size) + frame.data, frame.size) is not None


def is_row_of_requests(search: Search, pos: int) -> bool | int:
    """Whether several requests of one client in a row begin here; or the position the stream must reach to
    decide.
    """
    at = pos
    previous: Beginning | None = None
    for _ in range(_IN_A_ROW):
        if at >= search.end:
            return at + _BEGINNING.size
        if not search.is_item_start(at):
            return False
        data = search.read(at, _BEGINNING.size + LONGEST_CLIENT_ID)
        if len(data) < _BEGINNING.size:
            return at + _BEGINNING.size if at + len(data) == search.end else False
        request = read_beginning(data, search.largest)
        if request is None or not (previous is None or _continues(previous, request)):
            return False
        at, previous = at + 4 + request.size, request
    return True


def _continues(previous: Beginning, request: Beginning) -> bool:
    common = min(len(previous.client), len(request.client))
    return (
        previous.client[:common] == request.client[:common]
        and 0 <= request.correlation_id - previous.correlation_id <= _MAX_ID_STEP
    )
