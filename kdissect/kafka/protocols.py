"""The first bytes of a stream -> the name of a protocol that is not Kafka, or a SASL token in its place."""

from __future__ import annotations

from struct import Struct

_SIZE = Struct(">i")


def is_gssapi_token(data: bytes) -> bool:
    """Whether a stream begins with a GSSAPI token in a size prefix: what 0.9 clients send on a SASL port
    instead of a request.

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


def looks_like(data: bytes) -> str | None:
    """The name of another protocol that begins like this, None where none is known. TLS also in
    mid-stream.
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
