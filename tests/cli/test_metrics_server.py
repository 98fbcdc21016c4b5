from __future__ import annotations

import socket
import ssl
import threading
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime, timedelta
from http.client import OK
from ipaddress import IPv4Address
from typing import TYPE_CHECKING
from urllib.request import urlopen

import click
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kdissect.cli import monitor
from kdissect.cli.monitor import serve_metrics, to_address
from kdissect.limits import DEFAULT
from kdissect.text.metrics import Metrics
from tests.pulses import busy

if TYPE_CHECKING:
    from pathlib import Path

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


def test_half_requests_hold_few_threads_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "_CONNECTION_S", 0.1)
    with serve_metrics(metrics(), ("127.0.0.1", 0)) as port, ExitStack() as stack:
        before = threading.active_count()
        halves = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(24)
        ]
        for half in halves:
            with suppress(ConnectionError):  # it may have been closed at once
                half.sendall(b"GET /metrics HTTP/1.1\r\n")
        most = threading.active_count() - before
        for half in halves:
            with suppress(ConnectionError):
                assert half.recv(1) == b""
        assert most <= 2 * monitor._CONNECTIONS  # each has a timer
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
            assert page.status == OK


def test_metrics_over_tls_also_beside_a_client_that_says_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pem = tmp_path / "server.pem"
    pem.write_bytes(certificate())
    context = ssl.create_default_context(cafile=str(pem))
    with (
        serve_metrics(metrics(), ("127.0.0.1", 0), str(pem)) as port,
        socket.create_connection(("127.0.0.1", port)),
        urlopen(f"https://127.0.0.1:{port}/metrics", timeout=60, context=context) as page,
    ):
        assert b"kdissect_build_info" in page.read()
    assert f"serving metrics on https://127.0.0.1:{port}/metrics" in capsys.readouterr().err


def test_a_certificate_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    pem = tmp_path / "server.pem"
    for content, reason in ((None, "no such file or directory"), (b"x", "no certificate with its key")):
        if content is not None:
            pem.write_bytes(content)
        with (
            pytest.raises(click.ClickException, match=reason),
            serve_metrics(metrics(), ("127.0.0.1", 0), str(pem)),
        ):
            pass


def certificate() -> bytes:
    """A key, and a certificate of 127.0.0.1 that it has signed itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kdissect")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    return private + signed.public_bytes(pem)
