"""A TLS listener on loopback that passes what it deciphers to a broker that cannot speak TLS."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator


@contextmanager
def tls_front(port: int, broker_port: int, context: ssl.SSLContext) -> Iterator[None]:
    listener = socket.create_server(("127.0.0.1", port))
    threading.Thread(target=_accept, args=(listener, broker_port, context), daemon=True).start()
    try:
        yield
    finally:
        listener.close()


def _accept(listener: socket.socket, broker_port: int, context: ssl.SSLContext) -> None:
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            threading.Thread(target=_serve, args=(client, broker_port, context), daemon=True).start()


def _serve(client: socket.socket, broker_port: int, context: ssl.SSLContext) -> None:
    with (
        suppress(OSError),
        context.wrap_socket(client, server_side=True) as secure,
        socket.create_connection(("127.0.0.1", broker_port)) as broker,
    ):
        answers = threading.Thread(target=_pass, args=(broker, secure), daemon=True)
        answers.start()
        _pass(secure, broker)
        broker.shutdown(socket.SHUT_WR)
        answers.join(5)


def _pass(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
