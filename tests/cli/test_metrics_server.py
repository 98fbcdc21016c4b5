from __future__ import annotations

import socket
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.request import urlopen

import click
import pytest

from kdissect.cli.monitor import serve_metrics, to_address
from kdissect.limits import DEFAULT
from kdissect.text.metrics import Metrics
from tests.pulses import busy

if TYPE_CHECKING:
    from kdissect.cli.monitor import Address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":9464", ("127.0.0.1", 9464)),
        ("9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("[::1]:9464", ("::1", 9464)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert to_address(text) == address


@pytest.mark.parametrize("text", ["", ":", "host", ":port", ":65536", "1.2.3.4", ":-1", ":٣"])
def test_invalid_addresses(text: str) -> None:
    with pytest.raises(click.BadParameter, match=f'invalid address "{text}": use :9464'):
        to_address(text)


def metrics() -> Metrics:
    pulse = busy()
    return Metrics(DEFAULT, pulse.now, lambda: (0, 0))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_metrics_are_served_until_the_end(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = f"[{host}]" if ":" in host else host
    if ":" in host and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    with serve_metrics(metrics(), (host, 0)) as port:
        message = f"kdissect: serving metrics on http://{shown}:{port}/metrics\n"
        assert capsys.readouterr().err == message
        with urlopen(f"http://{shown}:{port}/metrics", timeout=60) as page:
            assert page.headers["Content-Type"].startswith("text/plain")
            assert b"kdissect_build_info" in page.read()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, port), timeout=60)


def test_a_port_that_is_in_use_is_one_line() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        with (
            pytest.raises(
                click.ClickException, match=rf"cannot serve on 127\.0\.0\.1:{port}: address already in use"
            ),
            serve_metrics(metrics(), ("127.0.0.1", port)),
        ):
            pass


def test_an_address_that_is_not_here_is_one_line() -> None:
    with (
        pytest.raises(click.ClickException, match=r"cannot serve on 203\.0\.113\.1:0: "),
        serve_metrics(metrics(), ("203.0.113.1", 0)),
    ):
        pass
