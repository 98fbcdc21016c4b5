"""Bytes of a stream -> whether it is Kafka, which side is the client, and where the next frame begins.

A Kafka request can be recognized on any port, because few other bytes fit: a size, an existing API key and
version, a printable client ID, and a body that decodes to its last byte. Other length-prefixed protocols
(MongoDB, MySQL, AMQP, NFS, Thrift, RTMP, DRDA, OpenWire, ZooKeeper, SMPP, PostgreSQL) fail one of these.

The functions here search a ``Search`` (resync.py) and accept nothing without confirmation: a frame that
decodes exactly, or a length that leads to another header. Only a frame that is too large for the search, or
truncated by the snaplen, is accepted by its first bytes.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from functools import cache, lru_cache, partial
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from kdissect.errors import DecodeError
from kdissect.kafka import schema
from kdissect.kafka.bodies import (
    can_be_response,
    decode_request,
    fits_request,
    fits_response,
    is_newer_request,
    trailing_bytes,
)
from kdissect.kafka.headers import API_VERSIONS, HEADER_BEGINS_BYTES, MAX_API_KEY, read_request_header
from kdissect.kafka.other_protocols import begins_with_token, other_protocol
from kdissect.kafka.resync import Search
from kdissect.model import Data, Interface

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kdissect.kafka.headers import RequestHeader
    from kdissect.kafka.resync import ByteRun
    from kdissect.limits import Limits
    from kdissect.model import Frame


if TYPE_CHECKING:
    ApiOf = Callable[[int], tuple[int, int] | None]
    """correlation ID -> API key and version of an outstanding request."""

NOT_KAFKA = "not Kafka"

_SIZE = Struct(">i")
_CORRELATION = Struct(">i")
_KEY_VERSION_CORRELATION = Struct(">hhi")
_SIZE_AND_CORRELATION = Struct(">ii")
_HEAD_BYTES = _SIZE_AND_CORRELATION.size

# size above 7 and below 128 MiB, API key 0-127, version 0-31, correlation ID, client ID null or shorter than
# 256.
_REQUEST_BYTES = 14
_REQUEST = re.compile(
    rb"(?=[\x00-\x07][\s\S]{3}\x00[\x00-\x7f]\x00[\x00-\x1f][\s\S]{4}(?:\x00[\s\S]|\xff\xff))(?!\x00\x00\x00[\x00-\x07])"
)
# The first request of a stream can be newer than kdissect: API key 0-1023, version 0-127.
_FIRST_REQUEST = re.compile(
    rb"(?!\x00\x00\x00[\x00-\x07])[\x00-\x07][\s\S]{3}[\x00-\x03][\s\S]\x00[\x00-\x7f]"
)
_LARGEST_FIRST_BYTE = 0x07
_LARGEST_SIZE = (_LARGEST_FIRST_BYTE + 1 << 24) - 1
_ENOUGH_BYTES = 64 * 1024  # bytes of an incomplete first frame that must suffice to decide
_PREFIX = 4096  # bytes of an incomplete frame that are decoded
_LONGEST_HEADER = 600  # bytes of a header with a client ID of ordinary length
_LENGTH_BYTES = 2  # of a client ID
_PRODUCE = 0
_PRODUCE_0 = bytes(4)  # API key and version, or a response's correlation ID
_ACKS_AND_TIMEOUT = 6  # bytes before the topics in the body of Produce 0
_MAX_CANDIDATES = 64  # requests that may have a response
_MAX_TRAILING_BYTES = 16  # bytes
_ALL = range(MAX_API_KEY)
_FREQUENT = (0, 1, 2, 3, 8, 9, 10, 11, 12, 18, 63, 68, 76, 78, 88)
"""APIs whose requests clients send several times in a row, or once on each connection: Produce, Fetch,
ListOffsets, Metadata, OffsetCommit, OffsetFetch, FindCoordinator, JoinGroup, Heartbeat, ApiVersions,
BrokerHeartbeat, and the heartbeats and Fetch of newer groups."""
_CHAIN = 3  # responses in a row that suffice if no requests were captured
_CHAIN_WORK = 64 * 1024  # bytes of a stream whose search takes about as long as decoding those


def is_first_request(
    search: Search, run: ByteRun, final: bool, responses: Search | None = None
) -> bool | None:
    """Whether a stream begins with a request. None if more bytes are needed to decide.

    Args:
        search: has the stream's first byte.
        run: its first run.
        final: whether no more bytes will come.
        responses: the search of the other direction, if it is being
            searched. Its first frame decides about a request that is newer than kdissect, is malformed, or
            has an odd client ID.
    """
    if len(run.data) < _REQUEST_BYTES:
        return False if run.data[0] > _LARGEST_FIRST_BYTE else None
    if not _FIRST_REQUEST.match(run.data):
        return False
    (size,) = _SIZE.unpack_from(run.data)
    captured = min(size, len(run.data) - _SIZE.size)
    if captured < min(size, search.undecided) and not final and search.end == run.end:
        return None
    frame = search.read(_SIZE.size, size if captured == size else _PREFIX)
    header = _header(frame)
    if header is None:
        if len(frame) < size and search.end > run.end:
            return _is_first_of_cut_requests(search, run, size, final, responses)
        if HEADER_BEGINS_BYTES + _LENGTH_BYTES + _client_id_bytes(frame) > size:
            return False
        return None if len(frame) < min(size, _header_bytes(frame)) and not final else False
    names_client = _names_client(header)
    if captured < size:
        if size > search.largest or not fits_request(frame, to_the_end=False):
            return False
        if names_client is None:
            return False if final else None
        if final or search.end > run.end or captured >= _ENOUGH_BYTES:
            return names_client
        if captured >= _PREFIX:  # more packets do not change what is decoded
            search.undecided = _ENOUGH_BYTES
        return None
    fits = fits_request(frame)
    if fits and names_client is not None:
        return True
    if not fits and not names_client:
        return False
    is_answered = None if responses is None else _begins_with_answer(responses, header)
    if is_answered is None and final:
        return not fits and is_newer_request(frame)
    return is_answered


def refused_as(payload: bytes, limits: Limits, *, begins: bool) -> str | None:
    """The protocol that a connection is taken for at once because of the first bytes of one side; empty if
    they decide nothing, None if it takes more to decide.

    Args:
        payload: the bytes.
        limits: to respect.
        begins: whether they are the first of all, and of the side that opened the connection. Otherwise it is
            not Kafka, or the other side speaks first.
    """
    protocol = other_protocol(payload)
    if protocol == "TLS" or (begins and protocol is None and payload.startswith((b"P", b"\r"))):
        return None  # its hellos, and PROXY headers, are read
    if protocol is not None or not begins:
        return protocol or ""
    if payload[0] > _LARGEST_FIRST_BYTE and len(payload) >= _SIZE.size + HEADER_BEGINS_BYTES:
        return NOT_KAFKA
    search = Search(limits, at_start=True)
    search.feed(Data(0, 0, Interface("", 0, 0), payload))
    run = search.first_run
    assert run is not None
    verdicts = begins_with_token(payload, final=False), is_first_request(search, run, final=False)
    return NOT_KAFKA if verdicts == (False, False) else None


def begins_with_request(frame: bytes, limits: Limits) -> bool:
    """Whether a stream is recognized at once that begins with a whole frame."""
    payload = _SIZE.pack(len(frame)) + frame
    if other_protocol(payload) is not None:
        return False
    search = Search(limits, at_start=True)
    search.feed(Data(0, 0, Interface("", 0, 0), payload))
    return search.first_run is not None and bool(is_first_request(search, search.first_run, final=False))


def is_first_frame(search: Search, run: ByteRun, final: bool) -> bool | None:
    """Whether a stream towards a known listener of Kafka begins with a request of a known API, whatever its
    client ID: its version is known and its body decodes, or it ends with a packet. None if more bytes are
    needed to decide.
    """
    head = run.data[: _SIZE.size + HEADER_BEGINS_BYTES]
    if len(head) < _SIZE.size + HEADER_BEGINS_BYTES:
        return False if final else None
    (size,) = _SIZE.unpack_from(head)
    if not _FIRST_REQUEST.match(head) or size > search.largest:
        return False
    frame = search.read(_SIZE.size, min(size, _PREFIX))
    if len(frame) < min(size, _PREFIX) and not final:
        return None
    api_key, version, correlation_id = _KEY_VERSION_CORRELATION.unpack_from(frame)
    message = schema.request(api_key)
    if message is None or correlation_id < 0:
        return False
    header = _header(frame)
    if header is None and size == HEADER_BEGINS_BYTES:
        return version in message.versions and _ends_with_packet(search, _SIZE.size + size)
    if api_key == _PRODUCE and (header is None or not header.client_id):
        # ZooKeeper, NFS and SMPP begin with a small number, too. If all of it decodes, it was recognized.
        begins = len(frame) < size and fits_request(frame, to_the_end=False)
        topics = decode_request(frame, api_key, complete=False).value.get("topic_data") if begins else None
        return bool(topics and (topics[0].get("name") or topics[0].get("topic_id")))
    return is_readable_request(frame) or _ends_with_packet(search, _SIZE.size + size)


def _begins_with_answer(responses: Search, header: RequestHeader) -> bool | None:
    """Whether a stream begins with the response to a request. None if more bytes are needed to decide.

    It decodes to its last byte, if its API and version are known. (Some brokers answer an ApiVersions request
    of a version that they do not support with the beginning of a response.)
    """
    head = responses.peek(0, _HEAD_BYTES)
    if head is None:
        return False if responses.end >= _HEAD_BYTES else None
    size, correlation_id = _SIZE_AND_CORRELATION.unpack(head)
    if correlation_id != header.correlation_id or not responses.can_be_size(size):
        return False
    frame = responses.read(_SIZE.size, min(size, responses.largest_held))
    if not can_be_response(frame, header.api_key, header.api_version):
        return False
    end = _SIZE.size + size
    if len(frame) < size:  # the rest has not arrived, was not captured, or is too large to be held
        return None if responses.end < end and size <= responses.largest_held else True
    api_key, version = header.api_key, header.api_version
    message = schema.response(api_key)
    is_known = api_key != API_VERSIONS and message is not None and version in message.versions
    return not is_known or fits_response(frame, api_key, version)


def _is_first_of_cut_requests(
    search: Search, run: ByteRun, size: int, final: bool, responses: Search | None
) -> bool | None:
    """Whether a stream begins with a request whose header was truncated by the snaplen. Then another packet
    follows, and its response or other requests confirm it.
    """
    request = read_beginning(bytes(run.data), search.largest)
    end = _SIZE.size + size
    if request is None or (end < search.end and not search.is_item_start(end)):
        return False
    answer = None if responses is None else responses.peek(0, _HEAD_BYTES)
    if answer is not None and end <= search.end:
        return bool(_CORRELATION.unpack_from(answer, _SIZE.size)[0] == request.correlation_id)
    return True if is_row_of_requests(search, 0) is True else False if final else None


def locate_request(search: Search) -> int | None:
    """Find a request in mid-stream."""
    scan = search.scan("request")
    return scan.first(search, scan.matches(search, _REQUEST, _REQUEST_BYTES), _is_request)


def locate_response(search: Search, api_of: ApiOf, ids: tuple[int | None, int | None]) -> int | None:
    """Find a response to one of the outstanding requests.

    Args:
        search: where to search.
        api_of: the API key and version of the request with a correlation ID. None if there is no such
            request.
        ids: the first and the last outstanding correlation ID (None: of a SASL token).
    """
    scan = search.scan("response")
    pattern = _response_pattern(*_prefix_and_range(*ids))
    fresh = scan.matches(search, pattern, _SIZE_AND_CORRELATION.size)
    return scan.first(search, fresh, partial(_is_response, api_of))


def locate_response_chain(search: Search) -> int | None:
    """Find responses without captured requests: ``_CHAIN`` frames in a row, the first of them at the start of
    a packet, with consecutive correlation IDs, which decode as responses, one of them to a frequent request;
    or whole responses that lead to those.
    """
    scan = search.scan("chain")
    pos = scan.first(search, scan.item_starts(search), _is_chain)
    return None if pos is None else first_response_before(search, pos)


def locate_frames(search: Search, is_head: Callable[[bytes], bool]) -> int | None:
    """Find whole frames on a connection that is known to be Kafka's: the first begins with a packet, the last
    ends with one.

    Args:
        search: where to search.
        is_head: whether a frame can begin like this.
    """
    scan = search.scan("frames")
    return scan.first(search, scan.item_starts(search), partial(_are_frames, is_head))


def _are_frames(is_head: Callable[[bytes], bool], search: Search, pos: int) -> bool | int:
    at = pos
    while (size_field := search.peek(at, _SIZE.size)) is not None:
        (size,) = _SIZE.unpack(size_field)
        if not search.can_be_size(size):
            return False
        if not is_head(search.read(at + _SIZE.size, min(size, _PREFIX))):
            return False
        at += _SIZE.size + size
        if _ends_with_packet(search, at):
            return True
    return at + _SIZE.size if at + _SIZE.size > search.end else False


def can_begin_request(payload: bytes) -> bool:
    """Whether a request mid-stream can begin like this: 14 bytes with a possible size, a known API and
    version, a possible correlation ID and a possible length of the client ID.
    """
    if len(payload) < _BEGINNING.size:
        return False
    size, api_key, version, correlation_id, length = _BEGINNING.unpack_from(payload)
    return bool(
        HEADER_BEGINS_BYTES <= size <= _LARGEST_SIZE
        and correlation_id >= 0
        and -1 <= length <= LONGEST_CLIENT_ID
        and is_known(api_key, version)
    )


@cache
def is_known(api_key: int, version: int) -> bool:
    """Whether requests of this API and version are known."""
    message = schema.request(api_key)
    return message is not None and version in range(message.versions.first, message.versions.last + 1)


def can_begin_response(payload: bytes) -> bool:
    """Whether a response mid-stream can begin like this: with a possible size and correlation ID."""
    if len(payload) < _HEAD_BYTES:
        return False
    size, correlation_id = _SIZE_AND_CORRELATION.unpack_from(payload)
    return bool(_SIZE.size <= size <= _LARGEST_SIZE and correlation_id >= 0)


def is_request_head(frame: bytes) -> bool:
    """Whether a request can begin like this."""
    return _header(frame) is not None


def is_readable_request(frame: bytes) -> bool:
    """Whether a request of a known API and version can begin like this, or is this with bytes behind it."""
    return is_request_head(frame) and (
        fits_request(frame, to_the_end=False) or trailing_bytes(frame) is not None
    )


def is_response_head(frame: bytes) -> bool:
    """Whether a response can begin like this: its correlation ID, if captured, is not negative."""
    return frame[:1] < b"\x80"


class AnsweredRequest:
    """A request mid-stream that has no client ID, an odd one, or bytes after its body: recognized by its
    response. Both are whole frames that begin and end with a packet, both bodies decode, and the response to
    its last byte.

    Holds the positions of at most ``_MAX_CANDIDATES`` requests.
    """

    __slots__ = ("_candidates", "_located")

    def __init__(self) -> None:
        self._candidates: dict[int, tuple[int, RequestHeader]] = {}  # by correlation ID
        self._located: int | None = None

    def locate(self, requests: Search, responses: Search) -> int | None:
        """Position of the request. None if there is no request with a response."""
        scan = requests.scan("answered request")
        scan.first(requests, scan.item_starts(requests), self._note)
        if self._candidates:
            scan = responses.scan("answer")
            scan.first(responses, scan.item_starts(responses), self._is_answer)
        return self._located

    def _note(self, search: Search, pos: int) -> bool | int:
        head = search.peek(pos, _SIZE.size + HEADER_BEGINS_BYTES)
        if head is None or len(self._candidates) >= _MAX_CANDIDATES:
            return False
        (size,) = _SIZE.unpack_from(head)
        end = pos + _SIZE.size + size
        if not HEADER_BEGINS_BYTES <= size <= search.largest_held or head[4] or head[6]:
            return False
        if end > search.end:
            return int(end)
        frame = search.read(pos + _SIZE.size, size)
        header = _header(frame)
        if header is None or len(frame) < size or not _ends_with_packet(search, end):
            return False
        rest = trailing_bytes(frame)
        if rest == 0 or (rest is not None and rest <= _MAX_TRAILING_BYTES and _names_client(header)):
            self._candidates.setdefault(header.correlation_id, (pos, header))
        return False

    def _is_answer(self, search: Search, pos: int) -> bool | int:
        head = search.peek(pos, _HEAD_BYTES)
        if head is None:
            return False
        size, correlation_id = _SIZE_AND_CORRELATION.unpack(head)
        candidate = self._candidates.get(correlation_id)
        if candidate is None or not _SIZE.size <= size <= search.largest_held:
            return False
        request_pos, header = candidate
        end = pos + _SIZE.size + size
        if end > search.end:
            return int(end)
        if _ends_with_packet(search, end) and fits_response(
            search.read(pos + _SIZE.size, size), header.api_key, header.api_version
        ):
            self._located = request_pos
            return True
        return False


def _ends_with_packet(search: Search, pos: int) -> bool:
    return pos == search.end or search.is_item_start(pos)


def first_response_before(search: Search, pos: int) -> int:
    """Position of the earliest of the responses before the confirmed one at ``pos``: whole frames, the first
    at the start of a packet, each leading to the next and the last to ``pos``, with increasing correlation
    IDs from 0 on. ``pos`` if there are none.
    """
    ids = {pos: _CORRELATION.unpack(search.read(pos + _SIZE.size, _CORRELATION.size))[0]}
    rejected: set[int] = set()
    starts = [start for start in search.item_starts(0) if start < pos]
    for start in reversed(starts):
        chain: list[tuple[int, int]] = []
        at = start
        while at not in ids and at not in rejected and (head := search.peek(at, _HEAD_BYTES)) is not None:
            size, correlation_id = _SIZE_AND_CORRELATION.unpack(head)
            if correlation_id < 0 or not _SIZE.size <= size <= pos - at - _SIZE.size:
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
    the correlation ID ``first_id``: frames with increasing correlation IDs that end where a packet does.
    """
    at, previous = 0, max(1, first_id - _MAX_ID_STEP)
    while (head := search.peek(at, _HEAD_BYTES)) is not None:
        size, correlation_id = _SIZE_AND_CORRELATION.unpack(head)
        if size < _SIZE.size or not previous <= correlation_id < first_id:
            return False
        at, previous = at + _SIZE.size + size, correlation_id + 1
        if _ends_with_packet(search, at):
            return True
    return False


def _is_response(api_of: ApiOf, search: Search, pos: int) -> bool | int:
    head = search.peek(pos, _SIZE_AND_CORRELATION.size)
    if head is None:
        return False
    size, correlation_id = _SIZE_AND_CORRELATION.unpack(head)
    api = api_of(correlation_id)
    if api is None or not search.can_be_size(size):
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
    return bool(follows and search.can_be_size(next_size))


def _is_chain(search: Search, pos: int) -> bool | int:
    at, previous = pos, None
    frames: list[tuple[int, int]] = []
    for _ in range(_CHAIN):
        head = search.peek(at, _SIZE_AND_CORRELATION.size)
        if head is None:
            return at + _SIZE_AND_CORRELATION.size
        size, correlation_id = _SIZE_AND_CORRELATION.unpack(head)
        if not search.can_be_size(size):
            return False
        if previous is not None and correlation_id != previous + 1:
            return False
        frames.append((at + _SIZE.size, size))
        at, previous = at + _SIZE.size + size, correlation_id
    if at > search.end and frames[-1][1] <= search.largest_held:
        return at
    pieces = [search.read(begin, min(size, _PREFIX)) for begin, size in frames]
    if any(len(piece) < min(size, _PREFIX) for piece, (_, size) in zip(pieces, frames, strict=True)):
        return False  # too few bytes are left of truncated ones
    search.work += _CHAIN_WORK
    rare = [piece for piece in pieces if not _is_response_of(_FREQUENT, piece)]
    return len(rare) < _CHAIN and all(_is_response_of(_ALL, piece) for piece in rare)


def _is_response_of(api_keys: Iterable[int], frame: bytes) -> bool:
    return any(
        fits_response(frame, api_key, version, to_the_end=len(frame) < _PREFIX)
        for api_key in api_keys
        if (message := schema.response(api_key)) is not None
        for version in range(message.versions.first, message.versions.last + 1)
    )


def _prefix_and_range(oldest: int | None, newest: int | None) -> tuple[bytes, int, int]:
    """The common prefix of all correlation IDs in the range, and the range of the byte after it. Not more
    precise, so that few patterns serve many IDs.
    """
    if oldest is None or newest is None or not 0 <= oldest <= newest:
        return b"", 0, 255
    low, high = _SIZE.pack(oldest), _SIZE.pack(newest)
    same = next((index for index in range(3) if low[index] != high[index]), 3)
    return (low[:same], low[same], high[same]) if same < 3 else (low[:3], 0, 255)


@lru_cache(maxsize=64)
def _response_pattern(prefix: bytes, low: int, high: int) -> re.Pattern[bytes]:
    """A size of 4 to 1 GiB, then a correlation ID with this prefix."""
    byte = b"[" + re.escape(bytes((low,))) + b"-" + re.escape(bytes((high,))) + b"]"
    return re.compile(
        rb"(?!\x00\x00\x00[\x00-\x03])[\x00-\x3f][\s\S]{3}(?=" + re.escape(prefix) + byte + rb")"
    )


def _is_request(search: Search, pos: int) -> bool | int:
    """Whether a request begins here, mid-stream.

    A frame that decodes exactly must also name its client, or begin with a packet and be followed by another
    request: among zeros and counters an empty request can appear by chance.
    """
    head = search.peek(pos, _SIZE.size)
    if head is None:
        return False
    (size,) = _SIZE.unpack(head)
    if size > search.largest:
        return False
    start, end = pos + _SIZE.size, pos + _SIZE.size + size
    beginning = search.read(start, min(size, _PREFIX))
    header = _header(beginning)
    if header is None:
        enough = min(size, _LONGEST_HEADER)
        if start + len(beginning) < min(end, search.end):
            return is_row_of_requests(search, pos)
        return start + enough if len(beginning) < enough else False
    names_client = _names_client(header)
    if names_client is None:
        return False
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


def _header(frame: bytes) -> RequestHeader | None:
    """The header of a request. None without a valid one."""
    try:
        header = read_request_header(frame)
    except DecodeError:
        return None
    return header if header.body_pos >= 0 else None


def _header_bytes(frame: bytes) -> int:
    """A header that is still incomplete after this many bytes is not one."""
    return _LONGEST_HEADER + _client_id_bytes(frame)


def _client_id_bytes(frame: bytes) -> int:
    """Length of the client ID, if there is one."""
    length = frame[HEADER_BEGINS_BYTES : HEADER_BEGINS_BYTES + _LENGTH_BYTES]
    return max(0, int.from_bytes(length, "big", signed=True))


def _names_client(header: RequestHeader) -> bool | None:
    """Whether a request has a client ID. None if it is an odd one: not printable, or not UTF-8."""
    client_id = header.client_id or ""
    return bool(client_id) if client_id.isprintable() and "\\x" not in client_id else None


# ------------------------------------------------------------------------------------------------------------
# The captured bytes of a request whose header the snaplen truncated -> whether it can be one, and its client.
#
#      size    api key  api version  correlation ID  client ID
#     | 4     | 2      | 2          | 4             | 2 + n ...
#
# A snaplen of 96 leaves 30 bytes of a request, too few for a client ID of twenty letters. These bytes alone
# are weak evidence, so their context must confirm them: a response that begins with the same correlation ID,
# or several requests in a row, each at the start of a packet and where the previous size leads, from the same
# client, with correlation IDs that do not decrease (before 0.9 those of a controller can repeat). Holds
# nothing.
# ------------------------------------------------------------------------------------------------------------


_BEGINNING = Struct(">ihhih")
_DECODER = getincrementaldecoder("utf-8")

LONGEST_CLIENT_ID = 255
_IN_A_ROW = 3
_MAX_ID_STEP = 10_000  # a Java client numbers its requests to all brokers in one sequence


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
