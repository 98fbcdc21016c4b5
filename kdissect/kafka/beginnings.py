"""The captured bytes of a request that a snaplen cut inside its header -> can this be one, and whose is it?

     size    api key  api version  correlation id  client id
    | 4     | 2      | 2          | 4             | 2 + n ...

A client id of twenty letters does not fit into the 30 bytes that a snaplen of 96 leaves of a request. What is
there says little by itself. So it is believed for what stands around it: an answer that begins with its
correlation id (recognition.py), or requests in a row, each at the beginning of a packet and at the place to
which the size of the one before leads, of the same client, with correlation ids that do not fall (those of a
controller before 0.9 may stand still). Holds nothing.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from kdissect.kafka import schema
from kdissect.kafka.bodies import fits_request

if TYPE_CHECKING:
    from kdissect.kafka.resync import Search
    from kdissect.model import Frame

_SIZE = Struct(">i")
_BEGINNING = Struct(">ihhih")
_DECODER = getincrementaldecoder("utf-8")

LONGEST_CLIENT_ID = 255
_IN_A_ROW = 3
_STEP = 10_000  # a Java client counts its requests to all brokers together


class Beginning(NamedTuple):
    """What is there of a request.

    Attributes:
        size: as in the size field.
        client: the client id's length and its first bytes.
    """

    size: int
    correlation_id: int
    client: bytes


def read_beginning(data: bytes, largest: int) -> Beginning | None:
    """Read the first bytes, the size field included, of what may be a request with a client id, of an api and
    version that this program knows; None where it is none.

    Args:
        data: as far as it was captured; what is behind the client id does not matter.
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
        text = _DECODER().decode(client)  # a letter that was cut is not missed
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


def is_row_of_requests(search: Search, place: int) -> bool | int:
    """Whether requests of one client begin here in a row; or the end of the stream at which that can be
    told.
    """
    at = place
    before: Beginning | None = None
    for _ in range(_IN_A_ROW):
        if at >= search.end:
            return at + _BEGINNING.size
        if not search.is_item_start(at):
            return False
        data = search.read(at, _BEGINNING.size + LONGEST_CLIENT_ID)
        if len(data) < _BEGINNING.size:
            return at + _BEGINNING.size if at + len(data) == search.end else False
        request = read_beginning(data, search.largest)
        if request is None or not (before is None or _goes_on(before, request)):
            return False
        at, before = at + 4 + request.size, request
    return True


def _goes_on(before: Beginning, request: Beginning) -> bool:
    common = min(len(before.client), len(request.client))
    return (
        before.client[:common] == request.client[:common]
        and 0 <= request.correlation_id - before.correlation_id <= _STEP
    )
