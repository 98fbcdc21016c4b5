"""The bytes of one TLS connection's two directions -> what passed inside, or why it stays encrypted.

    side --Data, Gap--> records --> handshake: randoms, cipher, session     -> keys
                                --> application data, opened with the keys  -> Data, Gap

Until a record has been opened with the keys for application data, all items are held: if none can be opened,
they are passed on as they came, and later ones too. In mid-stream, so are those before the first sign of TLS.
A ``Decrypted`` comes before the first plaintext. If the key log is still being written, its lines may come
after the records, and the held items are tried again. So a connection that is not TLS, or whose secrets are
missing, is what it would be without this stage. The plaintext of a record has the time and packet of the
record's last byte.

A record that is missing, or does not open, becomes a gap. After a gap that hides where records begin, the
next record is found by its header and by opening it with one of the sequence numbers that follow.

Holds the items before the first opened record and one incomplete record per direction: at most ``_MAX_HELD``
bytes and ``_MAX_BUFFERED`` bytes.
"""

from __future__ import annotations

import re
from collections import deque
from hashlib import blake2b, md5, new, sha1
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from kdissect.limits import DEFAULT
from kdissect.model import Data, Decrypted, Gap, TlsSession
from kdissect.tls import handshake
from kdissect.tls.ciphers import (
    ALERT,
    APPLICATION_DATA,
    CHANGE_CIPHER_SPEC,
    HANDSHAKE,
    Opener13,
    master_secret,
    openers,
)
from kdissect.tls.keylog import HANDSHAKE as HANDSHAKE_LABELS
from kdissect.tls.keylog import MASTER, PREMASTER, TRAFFIC
from kdissect.tls.suites import CBC, SUITES, TLS_1_2, TLS_1_3

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kdissect.limits import Limits
    from kdissect.model import Retransmitted
    from kdissect.tls.ciphers import Bytes, Opened, RecordOpener
    from kdissect.tls.keylog import KeyLog
    from kdissect.tls.suites import Suite

_HEADER_BYTES = 5
_MAX_FRAGMENT = 0x4000 + 2048  # RFC 5246 section 6.2.3
_MAX_HELD = 512 * 1024
_MAX_PASSED = 256 * 1024  # bytes of a connection in mid-stream without a sign of TLS
_MAX_BUFFERED = 128 * 1024
_MAX_HANDSHAKE = 256 * 1024  # bytes of one handshake message, and of a transcript
_MAX_MISSING = 3000  # records lost in one gap
_MAX_RECENT = 64  # records to find retransmitted bytes in
_MAX_OPENED = 16  # sessions of a connection to note
_MAX_TRIES = 40_000  # per connection: with no handshake, secrets and sequence numbers can only be tried
_MAX_UNGUESSED = 8  # encrypted records for which there is no secret to try
_MAX_UNOPENED = 50  # encrypted records of a handshake whose secrets the key log does not have
_HEADER = Struct(">BHH")
_ANY_HEADER = re.compile(rb"[\x14-\x17](?=\x03[\x00-\x04])")
_NO_SECRET = "the key log has no secret for this client random"
_NOT_OPENED = "no captured TLS record could be decrypted"
_NO_HANDSHAKE = "the handshake was not captured, and no TLS 1.3 secret in the key log decrypts a record"
_WRONG_SECRET = "the secrets that the key log has for this session do not decrypt its TLS records"
_TYPES = frozenset((CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE, APPLICATION_DATA))
_GUESSED = {32: (0x1301, 0x1303), 48: (0x1302,)}  # cipher suites by the length of a TLS 1.3 secret

_new = tuple.__new__  # half the time of calling the class of a named tuple

Items = list[tuple[int, Data | Gap | Decrypted]]


class RecordState(NamedTuple):
    """The records of a side, as they go to the native core and come back.

    Attributes:
        opener: opens the next record; None on the way back, as the side still has it.
        buffer: the beginning of the next record.
        recent: lengths of the content of the latest records that the core has opened.
    """

    opener: RecordOpener | None
    buffer: bytes
    recent: Sequence[int] = ()


class _Direction:
    """The records of one side.

    Attributes:
        buffer: the beginning of the next record.
        needed: length of the buffer at which something can be done with it.
        is_damaged: some bytes of the next record were not captured; they are zeros in the buffer.
        hidden: encrypted bytes before the buffer, if it is not known where a record begins; None if it is
            known.
        searched: beginning of the buffer that holds no record, while the next one is searched.
        opener: opens the next record; None before the first encrypted one was opened.
        candidates: with master secrets before TLS 1.3; one of them opens the next record if ``opener`` does
            not.
        is_encrypted: whether records are encrypted, before TLS 1.3.
        carries_data: whether ``opener`` is for application data.
        messages: the beginning of the next handshake message.
        recent: lengths of the content of the latest records with application data.
    """

    __slots__ = (
        "buffer", "candidates", "carries_data", "hidden", "is_damaged", "is_encrypted", "messages", "needed",
        "opener", "recent", "searched",
    )  # fmt: skip

    def __init__(self, *, is_start: bool) -> None:
        self.buffer = bytearray()
        self.needed = _HEADER_BYTES
        self.is_damaged = False
        self.hidden = None if is_start else 0
        self.searched = 0
        self.opener: RecordOpener | None = None
        self.candidates: list[_Candidate] = []
        self.is_encrypted = self.carries_data = False
        self.messages = bytearray()
        self.recent: deque[int] = deque(maxlen=_MAX_RECENT)


class _Candidate(NamedTuple):
    """One way to open records: of a session with this master secret, or with a secret for application
    data. ``origin`` is the client random or the session ID under which the key log has the master secret.
    """

    opener: RecordOpener
    master: bytes = b""
    origin: bytes = b""
    is_traffic: bool = True
    client_random: bytes = b""


class TlsConnection:
    """Both directions of a connection.

    Args:
        log: the secrets.
        initiator: the side that opened the connection; None if unknown.
        from_start: by side, whether its first byte is the first of the stream.
        sessions: hash of a session ID or ticket -> ``origin`` of the master secret, and principal, of the
            sessions opened so far. Clients that resume a session do not always write a line for it, and do
            not send their certificate.
        limits: to respect.

    Attributes:
        is_open: whether a record was opened with the keys for application data.
        held_bytes: bytes of the items that are held.
        is_bypassed: whether items are passed on unchanged: it is not TLS, or cannot be decrypted.
        reason: why it cannot be decrypted; None if it can, or if it is not TLS.
        version, cipher, server_name, principal: of the session, see ``TlsSession``; None while unknown.
        content_expected: by side, how many of the next bytes of content its reader cannot use in part.
    """

    def __init__(
        self,
        log: KeyLog,
        initiator: int | None,
        from_start: tuple[bool, bool],
        sessions: dict[bytes, tuple[bytes, str | None]] | None = None,
        limits: Limits = DEFAULT,
    ) -> None:
        self._log = log
        self._sessions = {} if sessions is None else sessions
        self._max_sessions = limits.tls_sessions
        self._initiator = initiator
        self._from_start = from_start
        self._held: list[tuple[int, Data | Gap]] = []
        self.held_bytes = self._passed_bytes = 0
        self._tries = _MAX_TRIES
        self.is_open = self.is_bypassed = self._opened_handshake = False
        self.server_name: str | None = None
        self.principal: str | None = None
        self._opened: dict[bytes, None] = {}
        self.content_expected = [0, 0]
        self._restart()

    def _restart(self) -> None:
        self._directions = tuple(_Direction(is_start=is_start) for is_start in self._from_start)
        self._client: int | None = self._initiator
        self._client_hello: handshake.Hello | None = None
        self._session: handshake.Hello | None = None  # the ServerHello
        self._suite: Suite | None = None
        self._ticket = b""
        self._premasters: list[bytes] = []
        self._transcript = bytearray()
        self.version: str | None = None
        self.cipher: str | None = None
        self.reason: str | None = None

    def feed(self, side: int, item: Data | Gap) -> Items:
        """Process the next bytes of a side. Returns plaintext, or items as they came."""
        if self.is_bypassed:
            return [(side, item)]
        if not self.is_open:
            return self._hold(side, item)
        out: Items = []
        if not self._read_single(side, item, out):
            self._process(side, item, out)
        return out

    def is_incomplete(self, side: int) -> bool:
        """Whether a side has begun a record."""
        return bool(self._directions[side].buffer)

    def bytes_expected(self, side: int) -> int:
        """How many of the next bytes of a side cannot be used in part, see ``content_expected``."""
        direction, content_bytes = self._directions[side], self.content_expected[side]
        if direction.opener is None or direction.hidden is not None:
            return 0
        buffered, needed = len(direction.buffer), direction.needed
        if buffered < _HEADER_BYTES:
            return content_bytes and needed - buffered + content_bytes
        in_record = direction.opener.plaintext_bytes(needed - _HEADER_BYTES)
        return needed - buffered + max(0, content_bytes - in_record)

    def retransmitted(self, side: int, item: Retransmitted) -> Retransmitted | None:
        """The same bytes as a position in what is inside; None if they have no part in it."""
        direction = self._directions[side]
        left, back = item.back - len(direction.buffer), 0
        for length in reversed(direction.recent):
            if left <= 0:
                break
            back += length
            left -= length + self._overhead(direction, length)
        return item._replace(back=back) if back else None

    @property
    def is_lendable(self) -> bool:
        """Whether a record can be opened again after a look into it. Not with CBC, whose openers may go on
        from the previous record.
        """
        return self.is_open and (self._suite is None or self._suite.kind != CBC)

    def lend(self) -> tuple[RecordState, RecordState] | None:
        """Both sides, for the native core to open the following records. None if anything is unusual."""
        lent: list[RecordState] = []
        for each in self._directions:
            if (
                not each.carries_data
                or each.opener is None
                or each.hidden is not None
                or each.is_damaged
                or each.messages
            ):
                return None
            lent.append(RecordState(each.opener, bytes(each.buffer)))
        return lent[0], lent[1]

    def restore(self, side: int, state: RecordState) -> None:
        """Continue a side where the native core has stopped."""
        direction = self._directions[side]
        direction.buffer[:] = state.buffer
        direction.needed = _HEADER_BYTES
        if len(state.buffer) >= _HEADER_BYTES:
            direction.needed += _HEADER.unpack_from(state.buffer)[2]
        direction.recent.extend(state.recent)
        self.content_expected[side] = 0

    def close(self) -> Items:
        """Nothing more will come: pass on what is held."""
        if self.is_open or self.is_bypassed:
            return []
        if self._held and (not self._opened_handshake or self._tries < _MAX_TRIES):
            self.reason = self.reason or _NOT_OPENED
        return self.give_up()

    def _hold(self, side: int, item: Data | Gap) -> Items:
        is_first = not any(isinstance(held, Data) for _, held in self._held)
        self._held.append((side, item))
        if isinstance(item, Data):
            if is_first and not self._is_tls(side, item.payload):
                self._passed_bytes += len(item.payload)
                if self._from_start[side] or self._passed_bytes > _MAX_PASSED:
                    self.is_bypassed = True
                passed: Items = [*self._held]
                self._held = []
                return passed
            self.held_bytes += len(item.payload)
        out: Items = []
        self._process(side, item, out)
        return self._settled(out)

    @property
    def session(self) -> TlsSession | None:
        """The session, if any of it is known."""
        session = TlsSession(self.version, self.cipher, self.server_name, self.principal, tuple(self._opened))
        return session if any(session) else None

    @property
    def waits(self) -> bool:
        """Whether a secret is missing that the key log may still get."""
        return self.reason is not None and not self.is_open and not self.is_bypassed

    def try_again(self) -> Items:
        """The key log has new secrets: try them on what is held."""
        hello = self._client_hello
        out: Items = []
        if hello is None or self._log.has_secrets(hello.random, self._names()):
            self._restart()
            for side, item in self._held:
                self._process(side, item, out)
        return self._settled(out)

    def give_up(self) -> Items:
        """Stop trying, and pass on what is held."""
        held: Items = [*self._held]
        self._held = []
        self.held_bytes = 0
        self.is_bypassed = True
        return held

    def _settled(self, out: Items) -> Items:
        if self.is_open:
            self._held = []
            self.held_bytes = 0
            out.insert(0, (0, Decrypted(self.session or TlsSession())))
        elif self.held_bytes > _MAX_HELD or (self.reason is not None and not self._log.can_grow):
            self.reason = self.reason or _NOT_OPENED
            return self.give_up()
        return out

    def _is_tls(self, side: int, payload: bytes) -> bool:
        """Whether these bytes look like TLS. In mid-stream, a record must begin here, or end here."""
        if self._from_start[side]:
            return payload[0] in _TYPES and payload[1:2] in (b"\3", b"")
        for match in _ANY_HEADER.finditer(payload):
            pos = match.start()
            if len(payload) < pos + _HEADER_BYTES:
                return False
            content_type, version, length = _HEADER.unpack_from(payload, pos)
            end = pos + _HEADER_BYTES + length
            is_bounded = pos == 0 or end == len(payload) or (end < len(payload) and _can_begin(payload, end))
            if length and is_bounded and _is_header(content_type, version, length):
                return True
        return False

    # Bytes -> records

    def _process(self, side: int, item: Data | Gap, out: Items) -> None:
        direction = self._directions[side]
        buffer = direction.buffer
        if isinstance(item, Gap):
            if (
                direction.hidden is None
                and len(buffer) + item.length <= direction.needed
                and len(buffer) >= _HEADER_BYTES
            ):
                buffer += bytes(item.length)  # in the middle of a record: the next one begins where expected
                direction.is_damaged = True
                if len(buffer) < direction.needed:
                    return
                data = bytes(buffer)
                buffer.clear()
            else:
                _hide(direction, item.length)
                return
        elif buffer:
            if len(buffer) + len(item.payload) < direction.needed:
                buffer += item.payload
                return
            data = b"".join((buffer, item.payload))
            buffer.clear()
        else:
            data = item.payload
        if direction.hidden is not None:
            data = self._find_record(direction, side, data, item, out)
        if direction.hidden is None:
            self._read_records(direction, side, data, item, out)

    def _read_single(self, side: int, item: Data | Gap, out: Items) -> bool:
        """Open the record in an item that is exactly one, as nearly all are when exchanges are small. Returns
        whether it was.
        """
        direction = self._directions[side]
        opener = direction.opener
        if (
            not direction.carries_data
            or opener is None
            or direction.buffer
            or direction.hidden is not None
            or not isinstance(item, Data)
        ):
            return False
        payload = item.payload
        if len(payload) < _HEADER_BYTES:
            return False
        content_type, version, length = _HEADER.unpack_from(payload)
        if content_type != APPLICATION_DATA or len(payload) != _HEADER_BYTES + length or version >> 8 != 3:
            return False
        opened = opener.open(content_type, version, payload[_HEADER_BYTES:])
        if opened is None:
            return False
        if opened[0] == APPLICATION_DATA and opened[1]:
            direction.recent.append(len(opened[1]))
            content = item.packet, item.time_ns, item.interface, opened[1]
            out.append((side, _new(Data, content)))
        else:
            self._content(direction, side, *opened, item, out)
        return True

    def _read_records(
        self, direction: _Direction, side: int, data: bytes, item: Data | Gap, out: Items
    ) -> None:
        pos, end = 0, len(data)
        view = memoryview(data)  # a slice of it is no copy
        direction.needed = _HEADER_BYTES
        while end - pos >= _HEADER_BYTES:
            content_type, version, length = _HEADER.unpack_from(data, pos)
            if not _is_header(content_type, version, length):
                direction.buffer += view[pos:]
                _hide(direction, 0)
                return
            if end - pos < _HEADER_BYTES + length:
                direction.needed = _HEADER_BYTES + length
                break
            start, pos = pos + _HEADER_BYTES, pos + _HEADER_BYTES + length
            opener = direction.opener
            if (
                content_type == APPLICATION_DATA
                and direction.carries_data
                and opener
                and not direction.is_damaged
            ):
                opened = opener.open(content_type, version, view[start:pos])  # as nearly all records
                if opened is not None:
                    self._content(direction, side, *opened, item, out)
                    continue
            self._record(direction, side, content_type, version, view[start:pos], item, out)
            direction.is_damaged = False
        direction.buffer += view[pos:]

    def _find_record(
        self, direction: _Direction, side: int, data: bytes, item: Data | Gap, out: Items
    ) -> bytes:
        """Find the next record that opens, in a stream with unknown boundaries. Returns what follows it."""
        assert direction.hidden is not None
        for match in _ANY_HEADER.finditer(data, direction.searched):
            pos = match.start()
            if len(data) < pos + _HEADER_BYTES:
                break
            content_type, version, length = _HEADER.unpack_from(data, pos)
            end = pos + _HEADER_BYTES + length
            if not length or not _is_header(content_type, version, length) or not _can_begin(data, end):
                continue
            if end > len(data):
                if end - len(data) > _MAX_FRAGMENT:
                    continue
                break
            fragment = data[pos + _HEADER_BYTES : end]
            is_first = direction.opener is None
            if direction.opener is not None:
                direction.opener.follow(data[:pos])
            located = self._search(direction, side, content_type, version, fragment)
            if located is None:
                continue
            missed, opened = located
            lost = direction.hidden + pos - missed * self._overhead(direction, len(fragment))
            if is_first and not missed:
                lost = 0  # what was before it was the handshake
            direction.hidden, direction.searched = None, 0
            if direction.carries_data and self.is_open and lost > 0:
                out.append((side, Gap(item.packet, item.time_ns, item.interface, lost, "lost")))
            self._content(direction, side, *opened, item, out)
            return data[end:]
        else:
            pos = max(direction.searched, len(data) - _HEADER_BYTES + 1)
        direction.searched = pos
        if len(data) > _MAX_BUFFERED:
            direction.hidden += direction.searched
            data, direction.searched = data[direction.searched :], 0
        direction.buffer += data
        direction.needed = 0
        if self._tries <= 0 and not self.is_open:
            self.reason = self.reason or _NO_HANDSHAKE
        return b""

    def _overhead(self, direction: _Direction, fragment_bytes: int) -> int:
        """Bytes of a record that are not plaintext."""
        if direction.opener is None:
            return 0
        return _HEADER_BYTES + fragment_bytes - direction.opener.plaintext_bytes(fragment_bytes)

    def _search(
        self, direction: _Direction, side: int, content_type: int, version: int, fragment: Bytes
    ) -> tuple[int, Opened] | None:
        """Open a record after an unknown number of others. Returns that number, and the content."""
        if direction.opener is None and not self._is_encrypted(direction, content_type):
            return 0, (content_type, bytes(fragment))
        if direction.opener is not None:
            before = direction.opener.sequence
            shown = direction.opener.sequence_of(fragment)
            numbers = range(before, before + _MAX_MISSING) if shown is None else range(shown, shown + 1)
            opened = self._try(direction.opener, numbers, content_type, version, fragment)
            if opened is None and isinstance(direction.opener, Opener13) and direction.carries_data:
                updated = direction.opener.updated()
                opened = self._try(updated, range(_MAX_MISSING), content_type, version, fragment)
                if opened is not None:
                    direction.opener, before = updated, 0
            if opened is not None:
                return direction.opener.sequence - 1 - before, opened
        candidates = direction.candidates or list(self._guesses(side, content_type))
        if not candidates and not self.is_open:
            self._tries -= _MAX_TRIES // _MAX_UNGUESSED
        depth = max(1, min(_MAX_MISSING, self._tries // max(1, len(candidates))))
        for candidate in candidates:
            opened = self._try(candidate.opener, range(depth), content_type, version, fragment)
            if opened is not None:
                self._accept(direction, side, candidate)
                return candidate.opener.sequence - 1, opened
        return None

    def _try(
        self, opener: RecordOpener, numbers: Iterable[int], content_type: int, version: int, fragment: Bytes
    ) -> Opened | None:
        before = opener.sequence
        for number in numbers:
            if not self.is_open:
                self._tries -= 1
                if self._tries < 0:
                    break
            opener.sequence = number
            opened = opener.open(content_type, version, fragment)
            if opened is not None:
                return opened
        opener.sequence = before
        return None

    def _guesses(self, side: int, content_type: int) -> Iterator[_Candidate]:
        """Ways to open a record of TLS 1.3 without its ClientHello or ServerHello."""
        if content_type != APPLICATION_DATA or (self._session and self._session.version != TLS_1_3):
            return
        hello = self._client_hello
        roles = (0, 1) if self._client is None else (0 if side == self._client else 1,)
        for role in roles:
            secrets = (
                self._log.traffic_secrets(role)
                if hello is None
                else [(hello.random, secret) for secret in self._log.labelled(hello.random, TRAFFIC[role])]
            )
            for client_random, secret in secrets:
                suites = [self._session.cipher] if self._session else _GUESSED.get(len(secret), ())
                for number in suites:
                    if number in SUITES:
                        yield _Candidate(Opener13(SUITES[number], secret), client_random=client_random)

    # Records -> content

    def _is_encrypted(self, direction: _Direction, content_type: int) -> bool:
        if self._session is None or self._session.version == TLS_1_3:
            return content_type == APPLICATION_DATA
        return direction.is_encrypted

    def _record(
        self,
        direction: _Direction,
        side: int,
        content_type: int,
        version: int,
        fragment: Bytes,
        item: Data | Gap,
        out: Items,
    ) -> None:
        if not self._is_encrypted(direction, content_type):
            if direction.is_damaged:
                direction.messages.clear()
            else:
                self._content(direction, side, content_type, bytes(fragment), item, out)
            return
        opened = None
        if not direction.is_damaged:
            opened = self._open(direction, side, content_type, version, fragment)
        if opened is not None:
            self._content(direction, side, *opened, item, out)
            return
        if direction.opener is None or self._is_in_handshake(direction):
            if self._session is None or self._session.version == TLS_1_3:
                self._count_unopened(direction, side, content_type, version, fragment)
            elif direction.is_damaged:
                for candidate in direction.candidates:
                    candidate.opener.skip(fragment)
            else:
                self.reason = self.reason or _WRONG_SECRET
            return
        length = direction.opener.skip(fragment)
        if direction.carries_data and content_type == APPLICATION_DATA and length:
            out.append((side, Gap(item.packet, item.time_ns, item.interface, length, "lost")))

    @staticmethod
    def _is_in_handshake(direction: _Direction) -> bool:
        """Whether its last record was opened with the handshake secrets of TLS 1.3."""
        return isinstance(direction.opener, Opener13) and not direction.carries_data

    def _count_unopened(
        self, direction: _Direction, side: int, content_type: int, version: int, fragment: Bytes
    ) -> None:
        """An encrypted record of TLS 1.3 before the first one that can be opened: of the handshake, whose
        secrets key logs need not have, or of a session whose hello was not captured.
        """
        if self._session is None or self._client_hello is None:
            located = self._search(direction, side, content_type, version, fragment)
            if located is None and self._tries <= 0:
                self.reason = self.reason or _NO_HANDSHAKE
        elif not any(each.candidates for each in self._directions):
            self.reason = self.reason or _NO_SECRET  # at most those of the handshake
        else:
            self._tries -= _MAX_TRIES // _MAX_UNOPENED
            if self._tries <= 0:
                self.reason = self.reason or _WRONG_SECRET

    def _open(
        self, direction: _Direction, side: int, content_type: int, version: int, fragment: Bytes
    ) -> Opened | None:
        opener = direction.opener
        opened = None if opener is None else opener.open(content_type, version, fragment)
        if opened is not None:
            return opened
        for candidate in direction.candidates:
            opened = candidate.opener.open(content_type, version, fragment)
            if opened is not None:
                self._accept(direction, side, candidate)
                return opened
        return None

    def _accept(self, direction: _Direction, side: int, candidate: _Candidate) -> None:
        """A candidate has opened a record."""
        direction.opener = candidate.opener
        direction.carries_data = candidate.is_traffic
        if candidate.is_traffic:
            direction.candidates = []
        else:
            direction.candidates = [each for each in direction.candidates if each.is_traffic]
        if not candidate.is_traffic:
            self._opened_handshake = True
            return
        self.is_open, self.reason = True, None
        client_random = candidate.client_random or (self._client_hello and self._client_hello.random)
        if client_random and len(self._opened) < _MAX_OPENED:
            self._opened[client_random] = None
        if candidate.master and self._session is not None and self._client_hello is not None:
            if candidate.master not in self._log.labelled(self._client_hello.random, MASTER):
                self._log.learn(self._client_hello.random, candidate.master)
            for name in filter(None, (self._session.session_id, self._ticket)):
                self._remember(name, candidate.origin)
        if candidate.client_random and isinstance(candidate.opener, Opener13):
            self._opened_without_hello(side, candidate.client_random, candidate.opener.suite)

    def _remember(self, name: bytes, origin: bytes) -> None:
        if len(self._sessions) < self._max_sessions:
            self._sessions.setdefault(_hash(name), (origin, self.principal))

    def _opened_without_hello(self, side: int, client_random: bytes, suite: Suite) -> None:
        """The other direction is of the same session."""
        self.version, self.cipher = handshake.version_name(TLS_1_3), f"TLS_{suite.name}"
        other = self._directions[1 - side]
        if other.opener is None and not other.candidates:
            other.candidates = [
                _Candidate(Opener13(suite, secret))
                for role in (0, 1)
                for secret in self._log.labelled(client_random, TRAFFIC[role])
            ]

    def _content(
        self,
        direction: _Direction,
        side: int,
        content_type: int,
        content: bytes,
        item: Data | Gap,
        out: Items,
    ) -> None:
        if content_type == APPLICATION_DATA:
            direction.carries_data = True
            if content and direction.opener is not None:
                direction.recent.append(len(content))
                out.append((side, Data(item.packet, item.time_ns, item.interface, content)))
        elif content_type == HANDSHAKE:
            self._messages(direction, side, content)
        elif content_type == CHANGE_CIPHER_SPEC:
            self._change_cipher(direction, side)

    # Handshake messages -> keys

    def _messages(self, direction: _Direction, side: int, content: bytes) -> None:
        messages = direction.messages
        messages += content
        while len(messages) >= handshake.HEADER_BYTES:
            end = handshake.HEADER_BYTES + int.from_bytes(messages[1:4], "big")
            if end > _MAX_HANDSHAKE:
                messages.clear()
            if len(messages) < end:
                return
            message = bytes(messages[:end])
            del messages[:end]
            if len(self._transcript) + end <= _MAX_HANDSHAKE:
                self._transcript += message
            self._message(direction, side, message[0], message)

    def _message(self, direction: _Direction, side: int, kind: int, message: bytes) -> None:
        body = message[handshake.HEADER_BYTES :]
        if kind == handshake.CLIENT_HELLO:
            self._transcript[:] = message
            self._client, self._client_hello = side, handshake.client_hello(body)
            self._premasters = []
            if self._client_hello is not None:
                self.server_name = self._client_hello.server_name
        elif kind == handshake.SERVER_HELLO:
            hello = handshake.server_hello(body)
            if hello is not None and not hello.is_retry:
                self._begin_session(side, hello)
        elif kind == handshake.CLIENT_KEY_EXCHANGE:
            self._premasters = self._masters_of_premaster(handshake.encrypted_premaster(body))
        elif kind == handshake.CERTIFICATE and side == self._client and self._session is not None:
            certificate = handshake.first_certificate(body, self._session.version)
            self.principal = handshake.principal_of(certificate) if certificate else None
        elif kind == handshake.NEW_SESSION_TICKET and self._session is not None:
            self._ticket = handshake.new_session_ticket(body, self._session.version)
            if self._session.version == TLS_1_3 and self.principal and self._ticket and self._client_hello:
                self._remember(self._ticket, self._client_hello.random)
        elif kind == handshake.KEY_UPDATE and isinstance(direction.opener, Opener13):
            direction.opener = direction.opener.updated()

    def _begin_session(self, side: int, hello: handshake.Hello) -> None:
        self._client, self._session, self._ticket = 1 - side, hello, b""
        self._suite = SUITES.get(hello.cipher)
        self.version = handshake.version_name(hello.version)
        self.cipher = handshake.cipher_name(hello.cipher)
        for name in self._resumed(hello):
            self.principal = self.principal or self._sessions.get(_hash(name), (b"", None))[1]
        if self._suite is None:
            self.reason = f"cipher suite {self.cipher} is not supported"
            return
        if hello.version == TLS_1_3 and self._client_hello is not None:
            client_random = self._client_hello.random
            for role, direction in ((0, self._directions[1 - side]), (1, self._directions[side])):
                direction.candidates = [
                    _Candidate(Opener13(self._suite, secret), is_traffic=label == TRAFFIC[role])
                    for label in (HANDSHAKE_LABELS[role], TRAFFIC[role])
                    for secret in self._log.labelled(client_random, label)
                ]
            known = [any(each.is_traffic for each in one.candidates) for one in self._directions]
            if self._log.can_grow and not all(known):  # its lines are being written
                for direction in self._directions:
                    direction.candidates = []
            if not any(direction.candidates for direction in self._directions):
                self.reason = _NO_SECRET

    def _masters_of_premaster(self, encrypted: bytes) -> list[bytes]:
        if self._session is None or self._client_hello is None or self._suite is None:
            return []
        premasters = self._log.labelled(self._client_hello.random, PREMASTER)
        premasters += self._log.of_encrypted(encrypted[:8])
        randoms = self._client_hello.random + self._session.random
        version, suite = self._session.version, self._suite
        session_hash = None
        if self._session.extended_master_secret:
            if version >= TLS_1_2:
                session_hash = new(suite.hash, self._transcript).digest()
            else:
                session_hash = md5(self._transcript).digest() + sha1(self._transcript).digest()
        return [master_secret(version, suite, each, randoms, session_hash) for each in premasters]

    def _change_cipher(self, direction: _Direction, side: int) -> None:
        """From the next record on, this side uses the new keys. In TLS 1.3 this means nothing."""
        if self._session is None or self._client_hello is None or self._suite is None:
            return
        if self._session.version == TLS_1_3:
            return
        masters = dict.fromkeys(
            self._log.labelled(self._client_hello.random, MASTER) + self._premasters,
            self._client_hello.random,
        )
        for name in self._names():
            for origin in filter(None, (name, self._sessions.get(_hash(name), (b"", None))[0])):
                for master in self._log.of_session(origin) + self._log.labelled(origin, MASTER):
                    masters.setdefault(master, origin)
        if not masters:
            self.reason = _NO_SECRET
        randoms = self._client_hello.random + self._session.random
        role = 0 if side == self._client else 1
        direction.is_encrypted = True
        direction.opener = None
        direction.candidates = [
            _Candidate(
                openers(
                    self._session.version,
                    self._suite,
                    master,
                    randoms,
                    encrypt_then_mac=self._session.encrypt_then_mac,
                )[role],
                master,
                origin,
            )
            for master, origin in masters.items()
        ]

    def _resumed(self, hello: handshake.Hello) -> tuple[bytes, ...]:
        """The names of the session that this ServerHello resumes; none if it begins a new one."""
        client = self._client_hello
        if client is None:
            return ()
        if hello.version == TLS_1_3:
            return (client.psk,) if hello.is_psk else ()
        is_resumed = bool(hello.session_id) and hello.session_id == client.session_id
        return (client.ticket, client.session_id) if is_resumed else ()

    def _names(self) -> list[bytes]:
        """The session IDs and the ticket under which the key log may have the master secret."""
        hello, session = self._client_hello, self._session
        names = () if hello is None else (hello.session_id, hello.ticket)
        return [name for name in (*names, b"" if session is None else session.session_id) if name]


def _hash(name: bytes) -> bytes:
    """Of a session ID or ticket: tickets are long, and 16 bytes tell them apart."""
    return blake2b(name, digest_size=16).digest()


def _hide(direction: _Direction, length: int) -> None:
    """After what the buffer holds, ``length`` bytes are missing: where the next record begins is unknown."""
    direction.hidden = (direction.hidden or 0) + len(direction.buffer) + length
    direction.buffer.clear()
    direction.messages.clear()
    direction.is_damaged = False
    direction.needed = direction.searched = 0


def _is_header(content_type: int, version: int, length: int) -> bool:
    return content_type in _TYPES and version >> 8 == 3 and length <= _MAX_FRAGMENT


def _can_begin(data: bytes, pos: int) -> bool:
    """Whether a record can begin here, as far as its header is there."""
    head = data[pos : pos + _HEADER_BYTES]
    if len(head) == _HEADER_BYTES:
        return _is_header(*_HEADER.unpack(head))
    return (not head or head[0] in _TYPES) and (len(head) < 2 or head[1] == 3)
