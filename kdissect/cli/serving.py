"""Metrics -> a page over HTTP for Prometheus, served by a thread until the command ends. Holds a socket."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from kdissect.cli.terminal import warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.sinks.metrics import Metrics

LOOPBACK = "127.0.0.1"
_PORTS = 1 << 16

Address = tuple[str, int]


def to_address(text: str) -> Address:
    """``:9464``, ``9464``, ``0.0.0.0:9464``, ``[::1]:9464`` -> host and port; without a host, loopback.

    Raises:
        click.BadParameter: it is none.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (port.isascii() and port.isdecimal() and int(port) < _PORTS):
        raise click.BadParameter(f'"{text}" is no address; write :9464, or 0.0.0.0:9464 for all interfaces')
    return host or LOOPBACK, int(port)


@contextmanager
def serving(metrics: Metrics, address: Address) -> Iterator[int]:
    """Serve them; which port it is, told on stderr too.

    Raises:
        click.ClickException: nothing can be served there.
    """
    from prometheus_client import start_http_server

    host, port = address
    shown = f"[{host}]" if ":" in host else host
    try:
        server, thread = start_http_server(port, host, metrics.registry)
    except OSError as error:
        said = (error.strerror or str(error)).lower()
        raise click.ClickException(f"--prometheus: cannot serve on {shown}:{port}: {said}") from None
    port = server.server_port
    warn(f"metrics are served on http://{shown}:{port}/metrics")
    try:
        yield port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
