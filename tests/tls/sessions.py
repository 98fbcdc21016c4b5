"""TLS sessions between two ends of OpenSSL in this process, as the packets of a capture, with their key log.

OpenSSL is the judge: what it passed through is what must be decrypted.
"""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from OpenSSL import SSL

from tests.segments import Talk

if TYPE_CHECKING:
    from typing import Any

VERSIONS = {
    "TLS 1.0": SSL.TLS1_VERSION,
    "TLS 1.1": SSL.TLS1_1_VERSION,
    "TLS 1.2": SSL.TLS1_2_VERSION,
    "TLS 1.3": SSL.TLS1_3_VERSION,
}
SERVER_NAME = "broker-1.example"
_NO_ENCRYPT_THEN_MAC = 1 << 19  # SSL_OP_NO_ENCRYPT_THEN_MAC
_NO_EXTENDED_MASTER_SECRET = 1 << 0  # SSL_OP_NO_EXTENDED_MASTER_SECRET
_NO_TICKET = 1 << 14  # SSL_OP_NO_TICKET
_ALLOW_CLIENT_RENEGOTIATION = 1 << 8  # SSL_OP_ALLOW_CLIENT_RENEGOTIATION
_READ_BYTES = 1 << 20
_MAX_FLIGHTS = 20


@cache
def _certificate(kind: str) -> tuple[Any, Any]:
    key = rsa.generate_private_key(65537, 2048) if kind == "rsa" else ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, SERVER_NAME)])
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + dt.timedelta(days=3650))
        .sign(key, hashes.SHA256())
    )
    return key, certificate


class TlsSettings:
    """The contexts of both ends. Sessions of the same settings can be resumed.

    Args:
        version: of all sessions.
        cipher: as OpenSSL names it; empty: any.
        certificate: ``rsa`` or ``ec``.
        client_certificate: whether the client has one too.
        encrypt_then_mac, extended_master_secret, tickets: whether they are offered.
    """

    def __init__(
        self,
        version: str = "TLS 1.3",
        cipher: str = "",
        certificate: str = "rsa",
        *,
        encrypt_then_mac: bool = True,
        extended_master_secret: bool = True,
        tickets: bool = True,
        client_certificate: bool = False,
    ) -> None:
        self.key_log: list[bytes] = []
        self.client, self.server = self._context(), self._context()
        options = (
            _ALLOW_CLIENT_RENEGOTIATION
            | (0 if encrypt_then_mac else _NO_ENCRYPT_THEN_MAC)
            | (0 if extended_master_secret else _NO_EXTENDED_MASTER_SECRET)
            | (0 if tickets else _NO_TICKET)
        )
        for context in (self.client, self.server):
            context.set_min_proto_version(VERSIONS[version])
            context.set_max_proto_version(VERSIONS[version])
            context.set_options(options)
            if version == "TLS 1.3" and cipher:
                context.set_tls13_ciphersuites(cipher.encode())
            else:
                context.set_cipher_list(f"{cipher or 'ALL'}:@SECLEVEL=0".encode())
        key, self.certificate = _certificate(certificate)
        self.server.use_privatekey(key)
        self.server.use_certificate(self.certificate)
        self.server.set_session_id(b"kdissect")
        if client_certificate:
            self.client.use_privatekey(key)
            self.client.use_certificate(self.certificate)
            self.server.set_verify(SSL.VERIFY_PEER, lambda *_: True)
        self.client.set_keylog_callback(lambda _, line: self.key_log.append(line + b"\n"))

    @staticmethod
    def _context() -> SSL.Context:
        return SSL.Context(SSL.TLS_METHOD)


class TlsTalk(Talk):
    """A conversation of which only the TLS records are on the wire.

    Attributes:
        sent: by side, the plaintext that the other end received.
        ends_of_tls: client and server.
    """

    def __init__(self, settings: TlsSettings, *, session: SSL.Session | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.sent = (bytearray(), bytearray())
        self.ends_of_tls = SSL.Connection(settings.client, None), SSL.Connection(settings.server, None)
        client, server = self.ends_of_tls
        client.set_connect_state()
        client.set_tlsext_host_name(SERVER_NAME.encode())
        server.set_accept_state()
        if session is not None:
            client.set_session(session)

    def opens(self) -> TlsTalk:
        """The TCP handshake, then that of TLS."""
        self.handshake()
        return self.negotiates()

    def negotiates(self) -> TlsTalk:
        """The TLS handshake, also of a renegotiation."""
        for _ in range(_MAX_FLIGHTS):
            for side in (0, 1):
                with suppress(SSL.WantReadError):
                    self.ends_of_tls[side].do_handshake()
                self._receive(side)
                self.flush(side)
        for side in (1, 0):  # tickets
            self.flush(side)
            self._receive(1 - side)
        return self

    def says(self, side: int, data: bytes) -> TlsTalk:
        """A side sends data, as records of at most 16 KiB."""
        for start in range(0, len(data), 1 << 14):
            self.ends_of_tls[side].send(data[start : start + (1 << 14)])
            self.flush(side)
        self._receive(1 - side)
        return self

    def flush(self, side: int) -> None:
        """Put what this end has written on the wire, and into the other end."""
        try:
            data = self.ends_of_tls[side].bio_read(_READ_BYTES)
        except SSL.WantReadError:
            return
        self._send(side, data)
        self.ends_of_tls[1 - side].bio_write(data)

    def _receive(self, side: int) -> None:
        while True:
            try:
                self.sent[1 - side].extend(self.ends_of_tls[side].recv(_READ_BYTES))
            except SSL.WantReadError:
                return
