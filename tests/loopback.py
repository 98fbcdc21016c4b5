"""A broker on loopback that answers heartbeats, a client that sends them, and whether one can listen."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from contextlib import closing, contextmanager
from secrets import token_hex
from typing import TYPE_CHECKING, BinaryIO

import pytest

from tests.frames import heartbeat_answers, heartbeats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from ssl import SSLContext

WAIT_S = 60  # for what comes at once, unless the machine is very busy


def _why_not() -> str | None:
    if not hasattr(socket, "AF_PACKET"):
        return "packet sockets are Linux's"
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except OSError as error:
        return f"no packet sockets here: {error.strerror}"
    return None


_WHY_NOT = _why_not()


def listens(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that listens to an interface."""
    skip = pytest.mark.skipif(_WHY_NOT is not None, reason=_WHY_NOT or "")
    return pytest.mark.live(skip(test))  # type: ignore[no-any-return]


class Pair:
    """A pair of virtual interfaces: the test listens to the first and sends into the second. Their names are
    random, because other test runs on this machine have interfaces too.
    """

    def __init__(self) -> None:
        name = f"kd{token_hex(4)}"
        self.name, self._other = f"{name}0", f"{name}1"

    def __enter__(self) -> Pair:
        self.add()
        return self

    def __exit__(self, *_: object) -> None:
        self.ip("link", "del", self.name, check=False)

    def add(self) -> None:
        """Make it, and set it up."""
        self.ip("link", "add", self.name, "type", "veth", "peer", "name", self._other)
        for name in (self.name, self._other):
            self.ip("link", "set", name, "mtu", "65535", "up")  # packets of a loopback interface may come

    def remove(self) -> None:
        """Remove it."""
        self.ip("link", "del", self.name)

    def set(self, state: str) -> None:
        """Set the first one ``up`` or ``down``."""
        self.ip("link", "set", self.name, state)

    def send(self, packets: Iterable[bytes]) -> None:
        """Let them arrive at the first one."""
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
            sender.bind((self._other, 0))
            for packet in packets:
                sender.send(packet)

    @staticmethod
    def ip(*arguments: str, check: bool = True) -> None:
        """Run iproute2's command."""
        subprocess.run(["ip", *arguments], check=check, capture_output=True)


def makes_interfaces(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that makes virtual interfaces."""
    can = shutil.which("ip") is not None and os.geteuid() == 0
    return listens(pytest.mark.skipif(not can, reason="needs iproute2, and root")(test))


def _frame(file: BinaryIO) -> bytes:
    size = file.read(4)
    return size + file.read(int.from_bytes(size, "big"))


def _answer(accepted: socket.socket, tls: SSLContext | None) -> None:
    connection = accepted if tls is None else tls.wrap_socket(accepted, server_side=True)
    with connection, connection.makefile("rb") as requests:
        while len(frame := _frame(requests)) > 4:
            correlation_id = int.from_bytes(frame[8:12], "big")
            connection.sendall(b"".join(heartbeat_answers(1, first=correlation_id)))


@contextmanager
def broker(tls: SSLContext | None = None) -> Iterator[int]:
    """A broker's port, with TLS if there is a context."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:  # closed
                    return
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=_answer, args=(connection, tls), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


class Client:
    """A member of a group that says it is alive, and waits for the answer each time."""

    def __init__(self, port: int, tls: SSLContext | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname="127.0.0.1")
        self._answers = self._socket.makefile("rb")
        self._beats = 0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.close()
        self._socket.close()

    def beat(self, count: int) -> None:
        """Beat some times, one after another; correlation ids count from 1."""
        for _ in range(count):
            self._beats += 1
            self.send(b"".join(heartbeats(1, first=self._beats)))

    def send(self, request: bytes) -> None:
        """Send a request, and wait for what this broker takes for an answer."""
        self._socket.sendall(request)
        assert len(_frame(self._answers)) > 4
