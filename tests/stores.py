"""An S3 server in this process, a proxy before it whose connections break, and servers of other stores."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The public key of all Azurites."""
MINI_HDFS = """
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

public class Mini {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.set("dfs.permissions.enabled", "false");
        settings.set("hdfs.minidfs.basedir", arguments[0]);
        new MiniDFSCluster.Builder(settings)
            .numDataNodes(1).nameNodePort(Integer.parseInt(arguments[1])).build().waitActive();
        System.out.println("READY");
        Thread.currentThread().join();
    }
}
"""
SECRET = "a-secret-that-nobody-may-see"
BUCKET = "captures"


class Bucket(NamedTuple):
    """A bucket.

    Attributes:
        endpoint: of its server.
        client: a ``pyarrow.fs.FileSystem``.
        url: of the test's directory in it.
    """

    endpoint: str
    client: Any
    url: str

    def put(self, name: str, data: bytes) -> str:
        """Write a file in the directory; return its URL."""
        with self.client.open_output_stream(
            f"{self.url}/{name}".removeprefix("s3://"), compression=None
        ) as file:
            file.write(data)
        return f"{self.url}/{name}"

    def put_all(self, directory: Path) -> str:
        """Write all files below a directory; return the URL of what they are below."""
        for path in directory.rglob("*"):
            if path.is_file():
                self.put(path.relative_to(directory).as_posix(), path.read_bytes())
        return self.url

    def remove(self, url: str) -> None:
        self.client.delete_file(url.removeprefix("s3://"))


@contextmanager
def s3_server() -> Iterator[tuple[str, Any]]:
    """A server with a bucket: its endpoint, and a client."""
    server_module = pytest.importorskip("moto.server")
    fs = pytest.importorskip("pyarrow.fs")
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    server = server_module.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = fs.S3FileSystem(
        access_key="key", secret_key=SECRET, endpoint_override=endpoint, allow_bucket_creation=True
    )
    client.create_dir(BUCKET)
    try:
        yield endpoint, client
    finally:
        server.stop()


def environment(endpoint: str) -> dict[str, str]:
    """Variables with which the aws command would use the server."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


class Troubles:
    """What a proxy does to requests for bytes of files; each is done once unless said otherwise.

    Attributes:
        broken: number of responses that end in the middle.
        status: of all responses; 0: what the server says.
        requests: so many there were.
    """

    def __init__(self) -> None:
        self.broken = self.status = self.requests = 0


@contextmanager
def proxy(endpoint: str, troubles: Troubles) -> Iterator[str]:
    """A server before another one; its endpoint."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._pass_on()

        def do_HEAD(self) -> None:
            self._pass_on()

        def _pass_on(self) -> None:
            troubles.requests += 1
            if troubles.status:
                self._refuse(troubles.status)
                return
            request = Request(endpoint + self.path, method=self.command)
            for name in ("Range", "Authorization", "x-amz-date", "x-amz-content-sha256"):
                if name in self.headers:
                    request.add_header(name, self.headers[name])
            try:
                response = urlopen(request)
            except HTTPError as error:
                self._refuse(error.code)
                return
            with response:
                data = response.read()
                self.send_response(response.status)
                for name, text in response.headers.items():
                    if name.lower() not in ("connection", "server", "date"):
                        self.send_header(name, text)
                self.end_headers()
            if data and troubles.broken:
                troubles.broken -= 1
                self.wfile.write(data[: len(data) // 2])
                self.close_connection = True
                return
            self.wfile.write(data)

        def _refuse(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def azurite(directory: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Azurite with a container: its URL, and the variables with which it is reached. From ``AZURITE``, or the
    PATH: ``npm install azurite``.
    """
    program = os.environ.get("AZURITE") or shutil.which("azurite-blob")
    if program is None:
        pytest.skip("needs azurite-blob: npm install azurite, and its path in AZURITE")
    port = _free_port()
    command = [program, "--silent", "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck"]
    with _running([*command, "--blobPort", str(port)], directory / "azurite.log", "successfully listens"):
        host = f"127.0.0.1:{port}"
        fs = pytest.importorskip("pyarrow.fs")
        authorities = {f"{name}_storage_authority": host for name in ("blob", "dfs")}
        schemes = {f"{name}_storage_scheme": "http" for name in ("blob", "dfs")}
        client = fs.AzureFileSystem(AZURITE_ACCOUNT, account_key=AZURITE_KEY, **authorities, **schemes)
        client.create_dir("captures")
        endpoint = f"AccountKey={AZURITE_KEY};BlobEndpoint=http://{host}/{AZURITE_ACCOUNT};"
        yield (
            f"abfss://captures@{AZURITE_ACCOUNT}.dfs.core.windows.net",
            {"AZURE_STORAGE_CONNECTION_STRING": endpoint},
        )


@contextmanager
def gcs_emulator(directory: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """An emulator of Google Cloud Storage with a bucket: its URL, and the variable with which it is reached.
    From ``GCS_EMULATOR``, or the PATH: ``pip install gcp-storage-emulator``.
    """
    program = os.environ.get("GCS_EMULATOR") or shutil.which("gcp-storage-emulator")
    if program is None:
        pytest.skip("needs gcp-storage-emulator: pip install it, and its path in GCS_EMULATOR")
    host, port = "127.0.0.1", str(_free_port())
    command = [
        program,
        "start",
        f"--host={host}",
        f"--port={port}",
        "--in-memory",
        "--default-bucket=captures",
    ]
    with _running(command, directory / "gcs.log", "All services started"):
        yield "gs://captures", {"STORAGE_EMULATOR_HOST": f"http://{host}:{port}"}


@contextmanager
def mini_hdfs(directory: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A name node and a data node of Hadoop: their URL. ``HADOOP_MINICLUSTER`` has the directory of the jars
    of ``org.apache.hadoop:hadoop-client-minicluster`` from Maven; needs a JDK.
    """
    pytest.importorskip("hdfs_native")
    jars = os.environ.get("HADOOP_MINICLUSTER")
    if jars is None or shutil.which("javac") is None:
        pytest.skip("needs a JDK, and jars of hadoop-client-minicluster in HADOOP_MINICLUSTER")
    port = _free_port()
    source = directory / "Mini.java"
    source.write_text(MINI_HDFS)
    command = ["java", "-cp", f"{jars}/*", str(source), str(directory / "hdfs"), str(port)]
    with _running(command, directory / "hdfs.log", "READY"):
        yield f"hdfs://127.0.0.1:{port}", {"HADOOP_USER_NAME": "kafka"}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def _running(command: list[str], log: Path, ready: str) -> Iterator[None]:
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=log.parent)
    try:
        deadline = time.monotonic() + 120
        while ready not in log.read_text(errors="replace"):
            assert process.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.2)
        yield
    finally:
        process.kill()
        process.wait()
