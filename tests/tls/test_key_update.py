"""KeyUpdate (RFC 8446 section 4.6.3), which OpenSSL's command line client sends on request."""

from __future__ import annotations

import shutil
import socket
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from OpenSSL import SSL

from kdissect.tls.keylog import read_key_logs
from tests.segments import Talk
from tests.tls.sessions import TlsSettings
from tests.tls.test_connection import decrypted

if TYPE_CHECKING:
    from pathlib import Path

LINES = (b"one", b"K", b"two", b"three", b"k", b"four", b"K", b"five")
SECONDS = 10
BUFFER_BYTES = 1 << 16


class Peer:
    """A TLS server whose connection is recorded as packets."""

    def __init__(self, settings: TlsSettings, accepted: socket.socket) -> None:
        self.talk = Talk().handshake()
        self.received, self.sent = bytearray(), bytearray()
        self._socket = accepted
        self._tls = SSL.Connection(settings.server, None)
        self._tls.set_accept_state()

    def receive(self) -> None:
        """Wait for bytes from the client, and answer what TLS answers."""
        data = self._socket.recv(BUFFER_BYTES)
        assert data
        self.talk.client_sends(data)
        self._tls.bio_write(data)
        with suppress(SSL.WantReadError):
            self.received += self._tls.recv(BUFFER_BYTES)
        self._flush()

    def send(self, data: bytes) -> None:
        self._tls.send(data)
        self.sent += data
        self._flush()

    def _flush(self) -> None:
        with suppress(SSL.WantReadError):
            data = self._tls.bio_read(BUFFER_BYTES)
            self.talk.broker_sends(data)
            self._socket.sendall(data)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
@pytest.mark.parametrize(("lost", "block_bytes"), [(False, 0), (True, 0), (False, 512), (True, 512)])
def test_key_updates(tmp_path: Path, lost: bool, block_bytes: int) -> None:
    """``K`` requests an update from the server too, ``k`` does not. If the update is lost, the next key is
    tried. The client pads its records to ``block_bytes``.
    """
    keys = tmp_path / "keys.log"
    updates: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        command = ["openssl", "s_client", "-connect", address, "-tls1_3", "-keylogfile", str(keys)]
        command += ["-record_padding", str(block_bytes)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdin is not None
            listener.settimeout(SECONDS)
            accepted, _ = listener.accept()
            with accepted:
                accepted.settimeout(SECONDS)
                peer = Peer(TlsSettings(), accepted)
                peer.receive()  # ClientHello
                peer.receive()  # Finished
                for line in LINES:
                    process.stdin.write(line + b"\n")
                    process.stdin.flush()
                    if line in b"Kk":
                        updates.append(len(peer.talk.packets))
                    peer.receive()
                    peer.send(b"after " + line)
            process.kill()
    packets = [each for place, each in enumerate(peer.talk.packets) if not (lost and place in updates)]
    result = decrypted(packets, read_key_logs([str(keys)]))
    assert peer.received == b"one\ntwo\nthree\nfour\nfive\n"
    assert result.text(0) == bytes(peer.received)
    assert result.text(1) == bytes(peer.sent)
    padded = [each for each in packets if len(each.data) > block_bytes]
    assert len(padded) > len(LINES) - len(updates)
