"""Handshake messages -> what decryption needs of them (RFC 8446 section 4, RFC 5246 section 7.4).

``Hellos`` holds the beginning of both directions, at most ``_MAX_HELLO`` bytes each. The rest is stateless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kdissect.model import TlsSession
from kdissect.names import kept
from kdissect.tls.suites import SUITES, TLS_1_3

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CLIENT_HELLO, SERVER_HELLO, NEW_SESSION_TICKET, CERTIFICATE, CLIENT_KEY_EXCHANGE, KEY_UPDATE = (
    1,
    2,
    4,
    11,
    16,
    24,
)
HEADER_BYTES = 4
RANDOM_BYTES = 32

_SERVER_NAME, _ENCRYPT_THEN_MAC, _EXTENDED_MASTER_SECRET = 0, 22, 23
_SESSION_TICKET, _PRE_SHARED_KEY, _SUPPORTED_VERSIONS = 35, 41, 43

_RETRY_RANDOM = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")


_RECORD_HEADER_BYTES = 5
_HANDSHAKE_RECORD = 22
_MAX_HELLO = 0x5000  # bytes of the records with a hello, which few fill


class _EndOfMessage(Exception):
    """A message is shorter than its fields."""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pos = 0

    @property
    def is_at_end(self) -> bool:
        return self._pos >= len(self._data)

    def take(self, length: int) -> bytes:
        piece = self._data[self._pos : self._pos + length]
        if len(piece) < length:
            raise _EndOfMessage
        self._pos += length
        return piece

    def number(self, length: int) -> int:
        return int.from_bytes(self.take(length), "big")

    def vector(self, length_bytes: int) -> bytes:
        return self.take(self.number(length_bytes))


class Hello(NamedTuple):
    """A ClientHello or a ServerHello.

    Attributes:
        random: 32 bytes.
        session_id: of a ServerHello: of the session that is opened or resumed.
        version: of a ServerHello: the version of the session.
        cipher: of a ServerHello: number of the cipher suite.
        server_name: of a ClientHello: of the server that the client requests; None if it names none.
        ticket: of a ClientHello: with which it wants to resume a session before TLS 1.3; empty: none.
        encrypt_then_mac, extended_master_secret: of a ServerHello: whether these were negotiated.
        is_retry: of a ServerHello: whether it is a HelloRetryRequest.
        psk: of a ClientHello: the first ticket with which it wants to resume a TLS 1.3 session; empty: none.
        is_psk: of a ServerHello: whether that session is resumed.
    """

    random: bytes
    session_id: bytes
    version: int
    cipher: int = 0
    server_name: str | None = None
    ticket: bytes = b""
    encrypt_then_mac: bool = False
    extended_master_secret: bool = False
    is_retry: bool = False
    psk: bytes = b""
    is_psk: bool = False


def client_hello(body: bytes) -> Hello | None:
    """Read a ClientHello without its header. None if it is malformed."""
    reader = _Reader(body)
    try:
        version, random, session_id = reader.number(2), reader.take(RANDOM_BYTES), reader.vector(1)
        reader.vector(2)
        reader.vector(1)
        extensions = dict(_extensions(reader))
    except _EndOfMessage:
        return None
    return Hello(
        random,
        session_id,
        version,
        server_name=_server_name(extensions),
        ticket=extensions.get(_SESSION_TICKET, b""),
        psk=_first_identity(extensions.get(_PRE_SHARED_KEY, b"")),
    )


def server_hello(body: bytes) -> Hello | None:
    """Read a ServerHello without its header. None if it is malformed."""
    reader = _Reader(body)
    try:
        version, random, session_id = reader.number(2), reader.take(RANDOM_BYTES), reader.vector(1)
        cipher = reader.number(2)
        reader.take(1)
        extensions = dict(_extensions(reader))
    except _EndOfMessage:
        return None
    selected = extensions.get(_SUPPORTED_VERSIONS, b"")
    return Hello(
        random,
        session_id,
        int.from_bytes(selected, "big") if len(selected) == 2 else version,
        cipher,
        encrypt_then_mac=_ENCRYPT_THEN_MAC in extensions,
        extended_master_secret=_EXTENDED_MASTER_SECRET in extensions,
        is_retry=random == _RETRY_RANDOM,
        is_psk=extensions.get(_PRE_SHARED_KEY) == b"\0\0",
    )


def _extensions(reader: _Reader) -> Iterator[tuple[int, bytes]]:
    if reader.is_at_end:  # TLS 1.0 and 1.1 may have none
        return
    inner = _Reader(reader.vector(2))
    while not inner.is_at_end:
        yield inner.number(2), inner.vector(2)


def _server_name(extensions: Mapping[int, bytes]) -> str | None:
    """RFC 6066 section 3."""
    if _SERVER_NAME not in extensions:
        return None
    reader = _Reader(extensions[_SERVER_NAME])
    try:
        names = _Reader(reader.vector(2))
        return kept(names.vector(2).decode("ascii", "backslashreplace")) if names.number(1) == 0 else None
    except _EndOfMessage:
        return None


def _first_identity(extension: bytes) -> bytes:
    """RFC 8446 section 4.2.11."""
    try:
        return _Reader(_Reader(extension).vector(2)).vector(2)
    except _EndOfMessage:
        return b""


def new_session_ticket(body: bytes, version: int) -> bytes:
    """The ticket in a NewSessionTicket (RFC 5077, RFC 8446 section 4.6.1); empty if there is none."""
    reader = _Reader(body)
    try:
        reader.take(4)
        if version == TLS_1_3:
            reader.take(4)
            reader.vector(1)
        return reader.vector(2)
    except _EndOfMessage:
        return b""


def first_certificate(body: bytes, version: int) -> bytes:
    """The sender's own certificate in a Certificate message; empty if it has none."""
    reader = _Reader(body)
    try:
        if version == TLS_1_3:
            reader.vector(1)
        certificates = _Reader(reader.vector(3))
        return b"" if certificates.is_at_end else certificates.vector(3)
    except _EndOfMessage:
        return b""


def principal_of(certificate: bytes) -> str | None:
    """The principal that Kafka derives from a certificate without mapping rules. None if it is malformed."""
    from cryptography import x509  # few connections have one

    try:
        return kept(f"User:{x509.load_der_x509_certificate(certificate).subject.rfc4514_string()}")
    except ValueError:
        return None


def encrypted_premaster(body: bytes) -> bytes:
    """The encrypted premaster secret in the ClientKeyExchange of RSA key exchange; empty if there is none."""
    try:
        return _Reader(body).vector(2)
    except _EndOfMessage:
        return b""


_NAMES = {0x0300: "SSL 3.0", 0x0301: "TLS 1.0", 0x0302: "TLS 1.1", 0x0303: "TLS 1.2", TLS_1_3: "TLS 1.3"}


def cipher_name(cipher: int) -> str:
    """``TLS_AES_256_GCM_SHA384``; the number of a cipher suite that is not supported."""
    return f"TLS_{SUITES[cipher].name}" if cipher in SUITES else f"0x{cipher:04x}"


def version_name(version: int) -> str:
    """``TLS 1.3``."""
    return _NAMES.get(version, f"TLS version 0x{version:04x}")


class Hellos:
    """The bytes of a connection that stays encrypted -> its session: the hellos of both sides are in clear.

    Attributes:
        session: as far as it is known.
    """

    __slots__ = ("_records", "session")

    def __init__(self) -> None:
        self._records: list[bytearray | None] = [bytearray(), bytearray()]  # None: no more is needed
        self.session: TlsSession | None = None

    def feed(self, side: int, payload: bytes) -> None:
        """Process the next bytes of a side."""
        records = self._records[side]
        if records is None:
            return
        records += payload
        if records[0] != _HANDSHAKE_RECORD:
            self._records[side] = None
            return
        message = _first_message(records)
        if message is not None or len(records) > _MAX_HELLO:
            self._records[side] = None
        if message is not None:
            self._hello(message[0], message[HEADER_BYTES:])

    def lose(self, side: int) -> None:
        """The next bytes of a side were not captured."""
        self._records[side] = None

    def needs(self, side: int) -> bool:
        """Whether the hello of a side is not complete."""
        return self._records[side] is not None

    @property
    def held(self) -> int:
        """Bytes of hellos that are not complete."""
        return sum(len(records) for records in self._records if records)

    def _hello(self, kind: int, body: bytes) -> None:
        known = self.session or TlsSession()
        if kind == CLIENT_HELLO and (client := client_hello(body)) is not None:
            self.session = known._replace(server_name=client.server_name)
        elif kind == SERVER_HELLO and (server := server_hello(body)) is not None:
            self.session = known._replace(
                version=version_name(server.version), cipher=cipher_name(server.cipher)
            )


def is_hello(payload: bytes, *, from_client: bool) -> bool:
    """Whether a segment begins with a whole ClientHello, or ServerHello."""
    if payload[0] != _HANDSHAKE_RECORD or (message := _first_message(payload)) is None:
        return False
    kind, read = (CLIENT_HELLO, client_hello) if from_client else (SERVER_HELLO, server_hello)
    return message[0] == kind and read(message[HEADER_BYTES:]) is not None


def _first_message(records: bytes | bytearray) -> bytes | None:
    """The first handshake message, with its header; None if it is not complete, or none."""
    pos, message = 0, b""
    while len(records) >= pos + _RECORD_HEADER_BYTES and records[pos] == _HANDSHAKE_RECORD:
        end = pos + _RECORD_HEADER_BYTES + int.from_bytes(records[pos + 3 : pos + 5], "big")
        message += records[pos + _RECORD_HEADER_BYTES : end]
        if len(message) >= HEADER_BYTES:
            length = HEADER_BYTES + int.from_bytes(message[1:HEADER_BYTES], "big")
            if len(message) >= length:
                return message[:length]
        pos = end
    return None
