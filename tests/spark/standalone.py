"""Servers of Spark on this machine: a standalone cluster of a master and two workers, and Spark Connect."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAX_WAIT_S = 1200
_OTHER_MOUNT = 'mount -t tmpfs none "$0" && exec "$@"'


class Standalone:
    """A running cluster.

    Attributes:
        url: of its master.
        workers: process groups of the workers, with their executors.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.workers: list[int] = []

    def kill_worker(self) -> None:
        """Kill a worker and its executors, at once."""
        os.killpg(self.workers.pop(), signal.SIGKILL)

    def open_in(self, directory: Path) -> list[int]:
        """The Python processes of executors that have files open in a directory, also unnamed ones."""
        return [pid for each in self.workers for pid in _descendants(each) if _has_open(pid, directory)]

    def signal_worker_of(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to the worker, with all its processes, that one belongs to."""
        (worker,) = (each for each in self.workers if pid in _descendants(each))
        for each in (worker, *_descendants(worker)):
            os.kill(each, number)


def _descendants(pid: int) -> list[int]:
    parents = dict[int, int]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has ended
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]


def _has_open(pid: int, directory: Path) -> bool:
    with suppress(OSError):  # the process has ended
        links = (str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir())
        is_python = "python" in Path(f"/proc/{pid}/exe").readlink().name
        return is_python and any(each.startswith(f"{directory}/") for each in links)
    return False


@contextmanager
def standalone(
    directory: Path, environment: Mapping[str, str], other_mount: Path | None = None
) -> Iterator[Standalone]:
    """Start a cluster, and stop it afterwards.

    Args:
        directory: for logs and files of executors.
        environment: of its processes.
        other_mount: a directory in whose place the second worker sees an empty file system; needs root.
    """
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    cluster = Standalone(f"spark://127.0.0.1:{port}")
    address = ("--host", "127.0.0.1", "--webui-port", "0")
    with ExitStack() as stack:
        master = _start(
            stack, directory / "master.log", environment, "master.Master", *address, "--port", str(port)
        )
        _wait_for(master, directory / "master.log", "I have been elected leader")
        for number in range(2):
            log = directory / f"worker{number}.log"
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"work{number}"))
            own = (
                ("unshare", "--mount", "sh", "-c", _OTHER_MOUNT, str(other_mount))
                if other_mount and number
                else ()
            )
            worker = _start(
                stack, log, environment, "worker.Worker", *address, *size, cluster.url, before=own
            )
            cluster.workers.append(worker.pid)
            _wait_for(worker, log, "Successfully registered with master")
        yield cluster


@contextmanager
def connect_server(directory: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Start a Spark Connect server on two cores, and stop it afterwards; its address."""
    import pyspark

    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": directory / "warehouse",
    }
    command = [
        *(Path(pyspark.__path__[0], "bin", "spark-submit"), "--master", "local[2]"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
    ]
    log = directory / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env=environment, cwd=directory, stdout=out, stderr=out, start_new_session=True
        )
    try:
        deadline = time.monotonic() + MAX_WAIT_S
        while not _listens(port):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        _stop(process)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _start(
    stack: ExitStack,
    log: Path,
    environment: Mapping[str, str],
    name: str,
    *arguments: str,
    before: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    import pyspark

    command = (str(Path(pyspark.__path__[0], "bin", "spark-class")), f"org.apache.spark.deploy.{name}")
    process = subprocess.Popen(
        [*before, *command, *arguments],
        env={**environment, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"},
        stdout=stack.enter_context(log.open("wb")),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    stack.callback(_stop, process)
    return process


def _stop(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _wait_for(process: subprocess.Popen[bytes], log: Path, text: str) -> None:
    deadline = time.monotonic() + MAX_WAIT_S
    while text not in log.read_text(errors="replace"):
        assert process.poll() is None, log.read_text(errors="replace")
        assert time.monotonic() < deadline, log.read_text(errors="replace")
        time.sleep(0.2)
