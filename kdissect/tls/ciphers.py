"""Secrets of a TLS session -> keys, and records -> plaintext.

The key schedules of TLS 1.3 (RFC 8446 section 7) and of TLS 1.0 to 1.2 (RFC 5246 section 6.3, RFC 2246
section 5), and the protection of records: AEAD (RFC 8446 section 5.2; RFC 5288, 6655, 7905), and CBC with the
MAC before or after encryption (RFC 5246 section 6.2.3.2, RFC 7366). The algorithms are those of
pyca/cryptography and hashlib.

A record is accepted only if its tag or MAC is right, so nothing is ever decrypted with a wrong key.
"""

from __future__ import annotations

import hmac
from struct import Struct
from typing import TYPE_CHECKING, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM, ChaCha20Poly1305

from kdissect.tls.suites import CBC, CCM_8, CHACHA, GCM, TLS_1_0, TLS_1_2

if TYPE_CHECKING:
    from collections.abc import Callable

    from kdissect.tls.suites import Suite

# ------------------------------------------------------------------------------------------------------------
# Key schedules
# ------------------------------------------------------------------------------------------------------------


_HASH_BYTES = {"sha1": 20, "sha256": 32, "sha384": 48}
_MASTER_BYTES = 48


def expand_label(secret: bytes, label: bytes, length: int, hash_name: str) -> bytes:
    """HKDF-Expand-Label with an empty context (RFC 8446 section 7.1). All that is needed fits two blocks."""
    full = b"tls13 " + label
    info = length.to_bytes(2, "big") + bytes((len(full),)) + full + b"\0"
    out = block = b""
    for counter in range(1, 3):
        if len(out) < length:
            block = hmac.digest(secret, block + info + bytes((counter,)), hash_name)
            out += block
    return out[:length]


def next_secret(secret: bytes, hash_name: str) -> bytes:
    """The traffic secret after a KeyUpdate."""
    return expand_label(secret, b"traffic upd", len(secret), hash_name)


def _p_hash(secret: bytes, seed: bytes, length: int, hash_name: str) -> bytes:
    out, a = b"", seed
    while len(out) < length:
        a = hmac.digest(secret, a, hash_name)
        out += hmac.digest(secret, a + seed, hash_name)
    return out[:length]


def prf(version: int, suite: Suite, secret: bytes, seed: bytes, length: int) -> bytes:
    """The PRF of TLS 1.2 (RFC 5246 section 5) or of what was before it (RFC 2246 section 5); ``seed`` begins
    with the label.
    """
    if version >= TLS_1_2:
        return _p_hash(secret, seed, length, suite.hash)
    half = (len(secret) + 1) // 2
    md5, sha = _p_hash(secret[:half], seed, length, "md5"), _p_hash(secret[-half:], seed, length, "sha1")
    return bytes(a ^ b for a, b in zip(md5, sha, strict=True))


def master_secret(
    version: int, suite: Suite, premaster: bytes, randoms: bytes, session_hash: bytes | None
) -> bytes:
    """The master secret of a premaster secret.

    Args:
        version: of the session.
        suite: of the session.
        premaster: the premaster secret.
        randoms: of the client, then of the server.
        session_hash: of the handshake if the extended master secret was negotiated (RFC 7627).
    """
    seed = b"master secret" + randoms if session_hash is None else b"extended master secret" + session_hash
    return prf(version, suite, premaster, seed, _MASTER_BYTES)


# ------------------------------------------------------------------------------------------------------------
# Protection of records
# ------------------------------------------------------------------------------------------------------------


CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE, APPLICATION_DATA = 20, 21, 22, 23

_SEQUENCE_AND_HEADER = Struct(">QBHH")
_EXPLICIT_NONCE = 8
_BLOCK = 16

Opened = tuple[int, bytes]
"""Content type and content of a record."""

Bytes = bytes | memoryview
"""Of a record: a view of what was captured, because a copy would be one too many."""


class RecordOpener(Protocol):
    """Opens the records of one direction with one key.

    Attributes:
        sequence: number of the next record.
    """

    sequence: int

    def open(self, content_type: int, version: int, fragment: Bytes) -> Opened | None:
        """Decrypt a record. None, and no change, if it is not the next record under this key."""

    def plaintext_bytes(self, fragment_bytes: int) -> int:
        """Length of the content of a record whose encrypted fragment has this length; the longest possible if
        the length does not decide.
        """

    def sequence_of(self, fragment: Bytes) -> int | None:
        """Number of a record, if the record shows it."""

    def skip(self, fragment: Bytes) -> int:
        """Go on after a record that does not open. Returns the length of its content, see
        ``plaintext_bytes``.

        Args:
            fragment: encrypted. Bytes that were not captured are zeros.
        """

    def follow(self, before: Bytes) -> None:
        """The next record comes behind these bytes."""


_Aead = AESGCM | AESCCM | ChaCha20Poly1305


def _aead(suite: Suite, key: bytes) -> _Aead:
    if suite.kind == GCM:
        return AESGCM(key)
    if suite.kind == CHACHA:
        return ChaCha20Poly1305(key)
    return AESCCM(key, tag_length=_tag_bytes(suite))


def _tag_bytes(suite: Suite) -> int:
    return 8 if suite.kind == CCM_8 else 16


class Opener13:
    """TLS 1.3."""

    __slots__ = ("_aead", "_iv", "_overhead", "secret", "sequence", "suite")

    def __init__(self, suite: Suite, secret: bytes) -> None:
        self.suite = suite
        self.secret = secret
        self.sequence = 0
        self._aead = _aead(suite, expand_label(secret, b"key", suite.key_bytes, suite.hash))
        self._iv = int.from_bytes(expand_label(secret, b"iv", 12, suite.hash), "big")
        self._overhead = _tag_bytes(suite) + 1  # and the content type

    def open(self, content_type: int, version: int, fragment: Bytes) -> Opened | None:  # noqa: ARG002
        """See ``RecordOpener``."""
        if content_type != APPLICATION_DATA or len(fragment) < self._overhead:
            return None
        nonce = (self._iv ^ self.sequence).to_bytes(12, "big")
        header = b"\x17\x03\x03" + len(fragment).to_bytes(2, "big")
        try:
            inner = self._aead.decrypt(nonce, fragment, header)
        except InvalidTag:
            return None
        self.sequence += 1
        if inner[-1] == 0:
            inner = inner.rstrip(b"\0")
            if not inner:
                return ALERT, b""
        return inner[-1], inner[:-1]

    def updated(self) -> Opener13:
        """For the records after a KeyUpdate."""
        return Opener13(self.suite, next_secret(self.secret, self.suite.hash))

    def plaintext_bytes(self, fragment_bytes: int) -> int:
        """See ``RecordOpener``. Padding is taken for content."""
        return max(0, fragment_bytes - self._overhead)

    def sequence_of(self, fragment: Bytes) -> int | None:  # noqa: ARG002
        """See ``RecordOpener``."""
        return None

    def skip(self, fragment: Bytes) -> int:
        """See ``RecordOpener``."""
        self.sequence += 1
        return self.plaintext_bytes(len(fragment))

    def follow(self, before: Bytes) -> None:
        """See ``RecordOpener``. A record needs nothing of the one before."""


class OpenerAead:
    """GCM, CCM and ChaCha20 before TLS 1.3."""

    __slots__ = ("_aead", "_explicit", "_first_nonce", "_iv", "_tag", "sequence")

    def __init__(self, suite: Suite, key: bytes, iv: bytes) -> None:
        self._aead = _aead(suite, key)
        self._iv = iv
        self._explicit = 0 if suite.kind == CHACHA else _EXPLICIT_NONCE
        self._tag = _tag_bytes(suite)
        self._first_nonce: int | None = None  # that of record 0; senders count from there
        self.sequence = 0

    def open(self, content_type: int, version: int, fragment: Bytes) -> Opened | None:
        """See ``RecordOpener``."""
        length = len(fragment) - self._explicit - self._tag
        if length < 0:
            return None
        if self._explicit:
            nonce = self._iv + fragment[: self._explicit]
        else:
            nonce = (int.from_bytes(self._iv, "big") ^ self.sequence).to_bytes(12, "big")
        header = _SEQUENCE_AND_HEADER.pack(self.sequence, content_type, version, length)
        try:
            content = self._aead.decrypt(nonce, fragment[self._explicit :], header)
        except InvalidTag:
            return None
        if self._explicit and self._first_nonce is None:
            explicit = int.from_bytes(fragment[: self._explicit], "big")
            self._first_nonce = (explicit - self.sequence) & 0xFFFF_FFFF_FFFF_FFFF
        self.sequence += 1
        return content_type, content

    def plaintext_bytes(self, fragment_bytes: int) -> int:
        """See ``RecordOpener``."""
        return max(0, fragment_bytes - self._explicit - self._tag)

    def sequence_of(self, fragment: Bytes) -> int | None:
        """See ``RecordOpener``. All senders met add one to the explicit nonce for each record."""
        if self._first_nonce is None or len(fragment) < self._explicit:
            return None
        explicit = int.from_bytes(fragment[: self._explicit], "big")
        return (explicit - self._first_nonce) & 0xFFFF_FFFF_FFFF_FFFF

    def skip(self, fragment: Bytes) -> int:
        """See ``RecordOpener``."""
        self.sequence += 1
        return self.plaintext_bytes(len(fragment))

    def follow(self, before: Bytes) -> None:
        """See ``RecordOpener``. A record needs nothing of the one before."""


class OpenerCbc:
    """CBC: TLS 1.0 takes the last block of the previous record as the IV, later versions send it. A MAC of
    what was encrypted does not show that the IV is right.
    """

    __slots__ = (
        "_is_iv_known",
        "_is_whole",
        "_iv",
        "_key",
        "_mac",
        "_mac_first",
        "_mac_key",
        "_version",
        "sequence",
    )

    def __init__(
        self, suite: Suite, version: int, key: bytes, iv: bytes, mac_key: bytes, *, encrypt_then_mac: bool
    ) -> None:
        self._key = algorithms.AES(key)
        self._iv = iv if version == TLS_1_0 else None
        self._mac = suite.mac
        self._mac_key = mac_key
        self._mac_first = not encrypt_then_mac
        self._is_iv_known = True
        self._is_whole = False  # whether the MAC of the record that did not open was right
        self._version = version
        self.sequence = 0

    def open(self, content_type: int, version: int, fragment: Bytes) -> Opened | None:
        """See ``RecordOpener``."""
        mac_bytes = _HASH_BYTES[self._mac]
        encrypted: Bytes = fragment
        mac: Bytes = b""
        if not self._mac_first:
            encrypted, mac = fragment[:-mac_bytes], fragment[-mac_bytes:]
            self._is_whole = self._is_right(mac, content_type, version, encrypted)
            if not (self._is_whole and self._is_iv_known):
                return None
        iv, blocks = (
            (self._iv, encrypted) if self._iv is not None else (encrypted[:_BLOCK], encrypted[_BLOCK:])
        )
        if not blocks or len(blocks) % _BLOCK or len(iv) != _BLOCK:
            return None
        decryptor = Cipher(self._key, modes.CBC(iv)).decryptor()
        padded = decryptor.update(blocks) + decryptor.finalize()
        content = padded[: -1 - padded[-1]]
        if self._mac_first:
            if len(padded) < 1 + padded[-1] + mac_bytes:
                return None
            content, mac = content[:-mac_bytes], content[-mac_bytes:]
            if not self._is_right(mac, content_type, version, content):
                return None
        if self._iv is not None:
            self._iv = bytes(blocks[-_BLOCK:])
        self._is_whole = False
        self.sequence += 1
        return content_type, content

    def _is_right(self, mac: Bytes, content_type: int, version: int, content: Bytes) -> bool:
        header = _SEQUENCE_AND_HEADER.pack(self.sequence, content_type, version, len(content))
        return hmac.compare_digest(mac, hmac.digest(self._mac_key, header + content, self._mac))

    def plaintext_bytes(self, fragment_bytes: int) -> int:
        """See ``RecordOpener``. The length of the padding is not known before decryption."""
        explicit_iv = 0 if self._iv is not None else _BLOCK
        return max(0, fragment_bytes - explicit_iv - _HASH_BYTES[self._mac] - 1)

    def sequence_of(self, fragment: Bytes) -> int | None:  # noqa: ARG002
        """See ``RecordOpener``."""
        return None

    def skip(self, fragment: Bytes) -> int:
        """See ``RecordOpener``. If the last blocks were captured, they have the length of the padding."""
        self.sequence += 1
        blocks = self._before_mac(fragment)
        tail = ((self._iv or b"") + bytes(blocks[-2 * _BLOCK :]))[-2 * _BLOCK :]
        self.follow(fragment)
        self._is_iv_known = self._mac_first or self._iv is None or self._is_whole
        self._is_whole = False
        longest = self.plaintext_bytes(len(fragment))
        iv, last = tail[:_BLOCK], tail[_BLOCK:]
        if len(blocks) % _BLOCK or len(last) != _BLOCK or not (any(last) and any(iv)):
            return longest
        decryptor = Cipher(self._key, modes.CBC(iv)).decryptor()
        plain = decryptor.update(last) + decryptor.finalize()
        padding = plain[-1]
        is_padding = plain.endswith(bytes((padding,)) * min(padding + 1, _BLOCK))
        return max(0, longest - padding) if is_padding else longest

    def follow(self, before: Bytes) -> None:
        """See ``RecordOpener``."""
        if self._iv is None:
            return
        before = self._before_mac(before)
        self._is_iv_known = self._mac_first or len(before) >= _BLOCK
        if len(before) >= _BLOCK:
            self._iv = bytes(before[-_BLOCK:])

    def _before_mac(self, fragment: Bytes) -> Bytes:
        return fragment if self._mac_first else fragment[: -_HASH_BYTES[self._mac]]


def openers(
    version: int, suite: Suite, master: bytes, randoms: bytes, *, encrypt_then_mac: bool
) -> tuple[RecordOpener, RecordOpener]:
    """For the client's records and for the server's, of a session before TLS 1.3.

    Args:
        version: of the session.
        suite: of the session.
        master: the master secret.
        randoms: of the client, then of the server.
        encrypt_then_mac: whether it was negotiated (RFC 7366); AEAD ignores it.
    """
    mac_bytes = _HASH_BYTES[suite.mac] if suite.kind == CBC else 0
    iv_bytes = {CBC: _BLOCK, CHACHA: 12}.get(suite.kind, 4)
    total = 2 * (mac_bytes + suite.key_bytes + iv_bytes)
    block = prf(version, suite, master, b"key expansion" + randoms[32:] + randoms[:32], total)
    pieces: list[bytes] = []
    for length in (mac_bytes, mac_bytes, suite.key_bytes, suite.key_bytes, iv_bytes, iv_bytes):
        pieces.append(block[:length])
        block = block[length:]
    make: Callable[[int], RecordOpener]
    if suite.kind == CBC:

        def make(side: int) -> RecordOpener:
            return OpenerCbc(
                suite,
                version,
                pieces[2 + side],
                pieces[4 + side],
                pieces[side],
                encrypt_then_mac=encrypt_then_mac,
            )
    else:

        def make(side: int) -> RecordOpener:
            return OpenerAead(suite, pieces[2 + side], pieces[4 + side])

    return make(0), make(1)
