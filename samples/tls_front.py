"""A TLS listener on loopback that passes what it deciphers to a broker that cannot speak TLS. A context of
pyOpenSSL can do what those of Python cannot: renegotiate.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from OpenSSL import SSL

if TYPE_CHECKING:
    from collections.abc import Iterator

_READ_BYTES = 65536


@contextmanager
def tls_front(port: int, broker_port: int, context: ssl.SSLContext | SSL.Context) -> Iterator[None]:
    listener = socket.create_server(("127.0.0.1", port))
    threading.Thread(target=_accept, args=(listener, broker_port, context), daemon=True).start()
    try:
        yield
    finally:
        listener.close()


def _accept(listener: socket.socket, broker_port: int, context: ssl.SSLContext | SSL.Context) -> None:
    serve = _serve if isinstance(context, ssl.SSLContext) else _relay
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            threading.Thread(target=serve, args=(client, broker_port, context), daemon=True).start()


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
        while data := source.recv(_READ_BYTES):
            target.sendall(data)


def _relay(client: socket.socket, broker_port: int, context: SSL.Context) -> None:
    tls = SSL.Connection(context, None)
    tls.set_accept_state()
    with suppress(OSError, SSL.Error), client, socket.create_connection(("127.0.0.1", broker_port)) as broker:
        while True:
            readable, _, _ = select.select([client, broker], [], [])
            if client in readable:
                if not (data := client.recv(_READ_BYTES)):
                    return
                tls.bio_write(data)
                with suppress(SSL.WantReadError):
                    while True:
                        broker.sendall(tls.recv(_READ_BYTES))
            if broker in readable:
                if not (data := broker.recv(_READ_BYTES)):
                    return
                tls.sendall(data)
            with suppress(SSL.WantReadError):
                client.sendall(tls.bio_read(_READ_BYTES * 4))
