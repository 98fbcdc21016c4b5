"""The first bytes of a stream, or a frame -> the name of another protocol, or whether they are a SASL token.

A client may send SASL tokens without SaslHandshake: brokers since 0.9 take one of GSSAPI as the first bytes
of a connection (KIP-43), and a misconfigured client sends one where the broker expects a request. Such a
token is never read as a request, because it can contain a password. Holds nothing.
"""

from __future__ import annotations

import re

# ------------------------------------------------------------------------------------------------------------
# The first bytes of a stream -> the name of another protocol.
# ------------------------------------------------------------------------------------------------------------


def other_protocol(data: bytes) -> str | None:
    """The name of another protocol that begins like this; None: unknown. Finds TLS mid-stream too."""
    if (
        len(data) >= 6
        and data[0] in _TLS_RECORDS
        and data[1] == 3
        and data[2] <= 4
        and int.from_bytes(data[3:5], "big") <= _TLS_RECORD_BYTES
        and (data[0] != _TLS_HANDSHAKE or data[5] in _TLS_HELLOS)
    ):
        return "TLS"
    beginning, name = _BY_FIRST_BYTES.get(data[:_SIZE_BYTES], (b"", None))
    return name if data.startswith(beginning) else None


def tls_alert(data: bytes) -> str | None:
    """The alert at the start of a TLS stream: ``fatal protocol_version (70)``. None if it does not
    begin with one, or if it is encrypted.
    """
    if len(data) < _TLS_ALERT_BYTES or data[0] != _TLS_ALERT or data[3:5] != b"\0\2":
        return None
    level, description = data[5], data[6]
    if level not in _TLS_LEVELS:
        return None
    name = _TLS_ALERTS.get(description, "alert")
    return f"{_TLS_LEVELS[level]} {name} ({description})"


# RFC 8446 section 5.1: record type, version 3.x, a length of at most 2^14 + 256.
_TLS_HANDSHAKE = 0x16
_TLS_RECORDS = (0x14, 0x15, _TLS_HANDSHAKE, 0x17)
_TLS_HELLOS = (1, 2)
_TLS_ALERT, _TLS_ALERT_BYTES = 0x15, 7
_TLS_LEVELS = {1: "warning", 2: "fatal"}
_TLS_ALERTS = {  # RFC 8446 section 6, RFC 5246 section 7.2
    0: "close_notify",
    10: "unexpected_message",
    20: "bad_record_mac",
    21: "decryption_failed",
    22: "record_overflow",
    40: "handshake_failure",
    47: "illegal_parameter",
    50: "decode_error",
    51: "decrypt_error",
    70: "protocol_version",
    71: "insufficient_security",
    80: "internal_error",
    86: "inappropriate_fallback",
    90: "user_canceled",
}
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
_SIZE_BYTES = 4
_BY_FIRST_BYTES: dict[bytes, tuple[bytes, str | None]] = {
    beginning[:_SIZE_BYTES]: (beginning, name) for beginning, name in _BEGINNINGS
}

_OTHER_BEGINNINGS = (
    (b"PROXY ", "PROXY protocol version 1"),
    (b"\r\n\r\n", "PROXY protocol version 2"),
    *_BEGINNINGS,
)
_OTHER_SIZES = frozenset(int.from_bytes(beginning[:_SIZE_BYTES], "big") for beginning, _ in _OTHER_BEGINNINGS)
_TLS_RECORD_SIZES = {_TLS_HANDSHAKE << 8 | 3: "handshake", _TLS_ALERT << 8 | 3: "alert"}
_TLS_SIZES = range(_TLS_HANDSHAKE << 24 | 3 << 16, _TLS_HANDSHAKE << 24 | 4 << 16)

SMALLEST_OTHER_SIZE = min(*_OTHER_SIZES, _TLS_SIZES.start)
"""Smaller sizes of frames are not the first bytes of another protocol."""


def can_be_size(size: int, largest: int) -> bool:
    """Whether four bytes can be the size of a frame: it is not above ``largest``, and HTTP, SSH, TLS
    handshakes and the PROXY protocol do not begin with these bytes (as sizes, 218 MB and more).
    """
    return 0 <= size <= largest and (
        size < SMALLEST_OTHER_SIZE or not (size in _OTHER_SIZES or size in _TLS_SIZES)
    )


def protocol_of_size(size: int) -> str | None:
    """The protocol of a stream whose first four bytes, as a size, are this number: what a broker or client
    that expects Kafka logs as the size of an invalid message. None: no protocol known here, or one of its
    frames could have this size.
    """
    if size >> 16 in _TLS_RECORD_SIZES:
        return f"TLS {_TLS_RECORD_SIZES[size >> 16]}"
    if not 0 <= size < 1 << 32:
        return None
    data = size.to_bytes(_SIZE_BYTES, "big")
    for beginning, name in _OTHER_BEGINNINGS:
        if beginning.startswith(data):
            return name
    return None


# ------------------------------------------------------------------------------------------------------------
# The first bytes of a stream, or a frame -> whether it is the first SASL token of a client.
# ------------------------------------------------------------------------------------------------------------


_LARGEST_TOKEN = 512 * 1024  # sasl.server.max.receive.size
_GSSAPI_TAG = b"\x60"
_GSSAPI_MECHANISMS = tuple(
    bytes.fromhex(oid) for oid in ("06092a864886f712010202", "06062b0601050502")
)  # Kerberos 5 (RFC 4121, 4.1), SPNEGO (RFC 4178, 3)
_LONG_LENGTH, _MAX_OCTETS = 0x80, 4
_OID_BYTES = max(map(len, _GSSAPI_MECHANISMS))
_DECISIVE_BYTES = 2 + _MAX_OCTETS + _OID_BYTES

_GSSAPI = re.compile(rb"\x60(?:[\0-\x7f]|\x81.|\x82.{2}|\x83.{3}|\x84.{4})\x06", re.DOTALL)  # any OID
_SCRAM = re.compile(rb"(?:[ny]|p=[^,\0]+),(?:a=[^,\0]*)?,n=[^,\0]+,r=[!-+\--~]")
_OAUTHBEARER = re.compile(rb"n,(?:a=[^,\0]*)?,\x01(?:[^\x01]*\x01)*?auth=Bearer ", re.IGNORECASE)
_PLAIN = re.compile(rb"[^\0-\x1f]*\0[^\0-\x1f]+\0[^\0-\x1f]+\Z")


def begins_with_token(stream: bytes | bytearray, *, final: bool) -> bool | None:
    """Whether a stream begins with the size of a GSSAPI token and the token, which clients of 0.9 send on a
    SASL port instead of a request. None if more bytes are needed to decide. ``final``: no more will come.
    """
    size = int.from_bytes(stream[:_SIZE_BYTES], "big")
    if stream[0] or (len(stream) > _SIZE_BYTES and not 0 < size <= _LARGEST_TOKEN):
        return False
    verdict = _is_gssapi(bytes(stream[_SIZE_BYTES : _SIZE_BYTES + _DECISIVE_BYTES]), size)
    return False if verdict is None and final else verdict


def sasl_mechanism(token: bytes, size: int) -> str | None:
    """The mechanism of a client's first SASL token, by its form. None if it is not one.

    Args:
        token: the captured bytes.
        size: of the whole token.
    """
    if _GSSAPI.match(token) or _is_gssapi(token, size):
        return "GSSAPI"
    if _SCRAM.match(token):  # RFC 5802, 7; SHA-256 and SHA-512 begin alike
        return "SCRAM"
    if _OAUTHBEARER.match(token):  # RFC 7628, 3.1
        return "OAUTHBEARER"
    if _PLAIN.match(token):  # RFC 4616, 2
        return "PLAIN"
    return None


def _is_gssapi(token: bytes, size: int) -> bool | None:
    """Whether this is the first token of GSSAPI (RFC 2743, 3.1): tag 0x60, a DER length, and the OID of the
    mechanism. If the length does not reach to the token's end, as where a capture's tickets were replaced,
    the OID must be a known one. None if more bytes are needed to decide.
    """
    if len(token) < 2:
        return None if _GSSAPI_TAG.startswith(token) else False
    if not token.startswith(_GSSAPI_TAG):
        return False
    octets = token[1] - _LONG_LENGTH if token[1] & _LONG_LENGTH else 0
    begin = 2 + octets
    if octets > _MAX_OCTETS or begin > size:
        return False
    if len(token) < min(size, begin + _OID_BYTES):
        return None
    length = int.from_bytes(token[2:begin], "big") if octets else token[1]
    return begin + length == size or token.startswith(_GSSAPI_MECHANISMS, begin)
