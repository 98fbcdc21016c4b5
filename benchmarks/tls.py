"""How fast does kdissect decrypt TLS, compared with tshark with the same key log?

    python benchmarks/tls.py [CIPHER ...]          200 MB for each cipher
    python benchmarks/tls.py --work chatty --megabytes 20
    python benchmarks/tls.py --before DIRECTORY     also run another checkout of kdissect
    python benchmarks/tls.py --sessions 100000      read a key log of so many sessions; no captures

Generates captures as traffic.py does, with TLS by OpenSSL: each frame is written at once, so records have up
to 16 KiB. Measures as against_tshark.py does: medians of CPU time of whole processes, megabytes per second of
CPU time, peak memory. The benchmark fails if exchanges are missing from an output.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from OpenSSL import SSL

from benchmarks.against_tshark import FIELDS, REPOSITORY, Program, compare, lines, machine, report, requests
from benchmarks.traffic import BROKER_PORT, WORKS, Contents, Talk, Wire, make
from kdissect.tls.keylog import read_key_logs
from tests.tls.sessions import TlsSettings

if TYPE_CHECKING:
    from random import Random
    from typing import BinaryIO

CIPHERS = {
    "AES-128-GCM": ("TLS 1.3", "TLS_AES_128_GCM_SHA256"),
    "AES-256-GCM": ("TLS 1.3", "TLS_AES_256_GCM_SHA384"),
    "CHACHA20": ("TLS 1.3", "TLS_CHACHA20_POLY1305_SHA256"),
    "1.2-AES-128-GCM": ("TLS 1.2", "ECDHE-RSA-AES128-GCM-SHA256"),
    "1.2-AES-256-CBC": ("TLS 1.2", "ECDHE-RSA-AES256-SHA384"),
}
_USUAL = "AES-128-GCM", "AES-256-GCM", "CHACHA20"
_READ_BYTES = 1 << 24
_FLIGHTS = 3
_LINES_OF_SESSION = (
    "CLIENT_HANDSHAKE_TRAFFIC_SECRET", "SERVER_HANDSHAKE_TRAFFIC_SECRET",
    "CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0",
)  # fmt: skip


class TlsWire(Wire):
    """Writes the packets of TLS connections."""

    def __init__(self, file: BinaryIO, mss: int, settings: TlsSettings) -> None:
        super().__init__(file, mss)
        self._settings = settings
        self._ends: dict[tuple[object, ...], tuple[SSL.Connection, SSL.Connection]] = {}

    def open(self, number: int, random: Random) -> Talk:
        talk = super().open(number, random)
        client, server = self._ends[talk.ends] = (
            SSL.Connection(self._settings.client, None),
            SSL.Connection(self._settings.server, None),
        )
        client.set_connect_state()
        server.set_accept_state()
        for _ in range(_FLIGHTS):
            for side, end in enumerate((client, server)):
                with suppress(SSL.WantReadError):
                    end.do_handshake()
                with suppress(SSL.WantReadError):
                    flight = end.bio_read(_READ_BYTES)
                    super().frame(talk, side, flight)
                    (server, client)[side].bio_write(flight)
        return talk

    def frame(self, talk: Talk, side: int, data: bytes) -> None:
        end = self._ends[talk.ends][side]
        end.sendall(data)
        super().frame(talk, side, end.bio_read(_READ_BYTES))

    def close(self, talk: Talk) -> None:
        super().close(talk)
        del self._ends[talk.ends]


def make_tls(work: str, cipher: str, path: Path, size: int) -> Contents:
    """Write a capture, and its key log beside it."""
    settings = TlsSettings(*CIPHERS[cipher])
    contents = make(work, path, size, wire=lambda file, mss: TlsWire(file, mss, settings))
    path.with_suffix(".keys").write_bytes(b"".join(settings.key_log))
    return contents


def programs(keys: Path, before: Path | None) -> list[Program]:
    """The programs to compare; the first is the baseline."""
    fields = [word for field in FIELDS for word in ("-e", field)]
    tls = "-d", f"tcp.port=={BROKER_PORT},tls", "-d", f"tls.port=={BROKER_PORT},kafka"
    tshark = ["tshark", "-n", "-o", f"tls.keylog_file:{keys}", *tls]
    ours = [sys.executable, "-m", "kdissect", "read", "--tls-keylog", str(keys)]
    earlier = [Program("kdissect before", ours, before.resolve(), lines)] if before else []
    return [
        Program("tshark", [*tshark, "-T", "fields", *fields, "-r"], REPOSITORY, requests),
        *earlier,
        Program("kdissect", ours, REPOSITORY, lines),
    ]


def read_sessions(sessions: int) -> None:
    """Print what reading a key log of TLS 1.3 sessions costs."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "keys.log"
        with path.open("w") as file:
            for _ in range(sessions):
                client_random = os.urandom(32).hex()
                file.writelines(
                    f"{each} {client_random} {os.urandom(48).hex()}\n" for each in _LINES_OF_SESSION
                )
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.process_time()
        log = read_key_logs([str(path)])
        cpu_s = time.process_time() - began
        used = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(f"{len(log):,} sessions, {path.stat().st_size / 1e6:.0f} MB: {cpu_s:.2f} s, {used:.0f} MiB")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("ciphers", nargs="*", metavar="CIPHER", help=", ".join(CIPHERS))
    parser.add_argument("--work", choices=WORKS, default="bulk")
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--sessions", type=int)
    options = parser.parse_args(arguments)
    if options.sessions is not None:
        read_sessions(options.sessions)
        return 0
    print(machine())
    print(f"{'':34} {'':15} {'cpu s':>7} {'wall s':>7} {'MB/s':>7} {'us/exchange':>11} {'MiB':>5}  faster")
    with tempfile.TemporaryDirectory() as directory:
        for cipher in options.ciphers or _USUAL:
            capture = Path(directory) / f"{cipher}.pcap"
            with ProcessPoolExecutor(1) as process:  # its memory would count for the programs
                size = int(options.megabytes * 1e6)
                contents = process.submit(make_tls, options.work, cipher, capture, size).result()
            racing = programs(capture.with_suffix(".keys"), options.before)
            medians = compare(racing, capture, contents.exchanges, options.rounds)
            size = capture.stat().st_size
            label = f"{cipher} {size / 1e6:.0f} MB, {contents.packets:,} packets"
            report(label, size, contents, medians)
            capture.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
