"""A DNS response -> the name that it is about, and its addresses (RFC 1035, RFC 3596).

     0   2       4           6         8           10           12
     | id | flags | questions | answers | authority | additional | question: name, type, class |
     | answer: name, type 2, class 2, time to live 4, length 2, data |

Only responses to one question are read, and of those only names and addresses. All addresses belong to the
name in the question: what stands between is the chain of its aliases (CNAME). Stateless.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from kdissect.net.tcp import address_text

_UDP_HEADER = 8
_PORT = b"\0\x35"  # 53
_HEADER = Struct(">xxHHHxxxx")
_ANSWER = Struct(">HHxxxxH")
_RESPONSE, _OPCODE, _RCODE = 0x8000, 0x7800, 0x000F
_NO_ERROR, _NO_SUCH_NAME = 0, 3
_INTERNET = 1
_ADDRESS_BYTES = {1: 4, 28: 16}  # A, AAAA
_POINTER = 0xC0  # to a name before
_MAX_ADDRESSES = 64
_MAX_NAME = 255  # RFC 1035 section 3.1


class Resolved(NamedTuple):
    """A name in lower case, and its addresses; None: there is no such name (NXDOMAIN)."""

    name: str
    addresses: list[str] | None


def resolved(datagram: bytes) -> Resolved | None:
    """What a UDP datagram says. None if it is not a response with names or addresses, or cannot be read."""
    if not datagram.startswith(_PORT):
        return None
    try:
        return _resolved(datagram, _UDP_HEADER)
    except (IndexError, ValueError):
        return None


def _resolved(data: bytes, begin: int) -> Resolved | None:
    if len(data) < begin + 12:
        return None
    flags, questions, answers = _HEADER.unpack_from(data, begin)
    rcode = flags & _RCODE
    if (
        flags & (_RESPONSE | _OPCODE) != _RESPONSE
        or questions != 1
        or rcode not in (_NO_ERROR, _NO_SUCH_NAME)
    ):
        return None
    labels, pos = _labels(data, begin + 12)
    name = b".".join(labels).decode("ascii").lower()
    if len(name) > _MAX_NAME:
        return None
    if rcode == _NO_SUCH_NAME:
        return Resolved(name, None)
    pos += 4
    addresses = []
    for _ in range(min(answers, _MAX_ADDRESSES)):
        _, pos = _labels(data, pos)
        if len(data) < pos + _ANSWER.size:
            break  # truncated
        kind, of, size = _ANSWER.unpack_from(data, pos)
        pos += _ANSWER.size
        content = data[pos : pos + size]
        pos += size
        if of == _INTERNET and size == len(content) == _ADDRESS_BYTES.get(kind):
            addresses.append(address_text(content))
    return Resolved(name, addresses)


def _labels(data: bytes, pos: int) -> tuple[list[bytes], int]:
    """The labels of a name up to its end or to a pointer, and the position after it."""
    labels: list[bytes] = []
    while size := data[pos]:
        if size & _POINTER:
            return labels, pos + 2
        labels.append(data[pos + 1 : pos + 1 + size])
        pos += 1 + size
    return labels, pos + 1
