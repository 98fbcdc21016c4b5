"""An S3 server in this process, and a proxy before it whose connections break."""

from __future__ import annotations

import logging
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

    def put_all(self, folder: Path) -> str:
        """Write all files below a directory; return the URL of what they are below."""
        for path in folder.rglob("*"):
            if path.is_file():
                self.put(path.relative_to(folder).as_posix(), path.read_bytes())
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
