"""``--schemas``: what confluent-kafka's serializers wrote (tests/vectors/schemas.py) is decoded again."""

from __future__ import annotations

import builtins
import json
from base64 import b64decode
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from struct import pack
from threading import Thread
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from kdissect.cli import registry
from kdissect.cli.registry import SchemaRegistry
from kdissect.cli.terminal import OK, USAGE
from kdissect.errors import UsageError
from kdissect.exchanges.registered import SchemaFault, message_path, plain
from kdissect.extras import install
from kdissect.kafka.traces import SchemaId
from tests.cli.commands import Run, run, write
from tests.cli.test_records import talk
from tests.record_batches import Item, batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    Answers = dict[str, tuple[int, dict[str, str], bytes]]

VECTORS = json.loads((Path(__file__).parents[1] / "vectors/schemas.json").read_text())
SCHEMAS = VECTORS["schemas"]
SUFFIXES = {"AVRO": ".avsc", "JSON": ".json", "PROTOBUF": ".proto"}


def item(vector: dict[str, Any]) -> Item:
    headers = tuple((name.encode(), b64decode(value)) for name, value in vector["headers"])
    return Item(b"k", b64decode(vector["data"]), headers)


ITEMS = [item(vector) for vector in VECTORS["vectors"]]
EXPECTED = [vector["value"] for vector in VECTORS["vectors"]]


@pytest.fixture
def capture(tmp_path: Path) -> str:
    return write(tmp_path / "x.pcap", talk(batch(ITEMS)))


def dump(directory: Path, text: str | None = None) -> Path:
    directory.mkdir()
    (directory / "dump.json").write_text(json.dumps(SCHEMAS) if text is None else text)
    return directory


def files(directory: Path) -> Path:
    """A file for each schema, and those that others import."""
    directory.mkdir()
    for row in SCHEMAS:
        for name in (row["id"], row["guid"]):
            (directory / f"{name}{SUFFIXES[row['schemaType']]}").write_text(row["schema"])
        if row["subject"] == "common.proto":
            (directory / "common.proto").write_text(row["schema"])
    return directory


def values(done: Run) -> list[Any]:
    assert (done.status, done.err) == (OK, "")
    rows = [json.loads(line) for line in done.lines]
    return [json.loads(row["value"]) if row["value_encoding"] == "json" else row["value"] for row in rows]


@contextmanager
def serving(answers: Answers) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """A server with these answers; yields its URL, and path and credentials of each request."""
    requests: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append((self.path, self.headers["Authorization"]))
            status, headers, body = answers.get(self.path, (404, {}, b"{}"))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", requests
        finally:
            server.shutdown()


def answers_of_registry() -> Answers:
    answers: Answers = {}
    for row in SCHEMAS:
        answer = (200, {}, json.dumps(row).encode())
        for path in (
            f"/schemas/ids/{row['id']}",
            f"/schemas/guids/{row['guid']}",
            f"/subjects/{row['subject']}/versions/{row['version']}",
        ):
            answers[path] = answer
    return answers


@pytest.mark.parametrize("make", [dump, files])
def test_a_directory(make: Any, capture: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = str(make(tmp_path / "schemas"))
    done = run(capsys, "records", "--schemas", directory, "--json", capture)
    assert values(done) == EXPECTED
    assert run(capsys, "records", "--schemas", directory, "--json", "-j", "2", capture).out == done.out


def test_a_registry(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(answers_of_registry()) as (url, requests):
        with_password = url.replace("http://", "http://me:s%40crt@")
        assert values(run(capsys, "records", "--schemas", with_password, "--json", capture)) == EXPECTED
    assert len(requests) == len({path for path, _ in requests}) + 3  # common.proto, for each of four
    assert {credentials for _, credentials in requests} == {"Basic bWU6c0BjcnQ="}


def test_filters_see_what_is_decoded(
    capture: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = str(dump(tmp_path / "schemas"))

    def offsets(*options: str) -> list[str]:
        return run(capsys, "records", "--schemas", directory, *options, "-e", "offset", capture).lines

    assert offsets("-Y", "value.price == '12.50'") == ["0", "3"]
    assert offsets("--grep", '"item_name":"plum"') == ["5"]
    assert offsets("--schema", "3", "-Y", 'value == "customer-40" and schema_id == 3') == ["2"]
    tree = run(capsys, "records", "--schemas", directory, "-V", "-c", "1", capture).lines
    assert [line for line in tree if "schema" in line] == ["  schema: 1"]
    assert '      "item": "plum",' in tree
    line = run(capsys, "records", "--schemas", directory, "-c", "1", capture).lines[0]
    assert '{"id":40,"item":"plum",' in line
    assert line.endswith("schema 1")


def test_what_cannot_be_decoded_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = dump(tmp_path / "schemas")
    (directory / "50.avsc").write_text('{"type": "array", "items": "null"}')
    (directory / "51.proto").write_text("message {")
    (directory / "52.avsc").write_text('"strnig"')
    (directory / "53.json").write_text("{}")
    deep = b"[" * 200 + b"]" * 200
    data = {
        1: b"\2",
        5: b"{",
        7: b"\x02\x08",
        50: b"\xfe\xff\xff\xff\xff\xff\7\0",
        51: b"xx",
        52: b"xx",
        53: deep,
        99: b"xx",
    }
    items = [Item(None, pack(">bi", 0, number) + part) for number, part in data.items()]
    path = write(tmp_path / "x.pcap", talk(batch(items)))
    done = run(capsys, "records", "--schemas", str(directory), path)
    assert (done.status, len(done.lines)) == (OK, len(items))
    assert run(capsys, "records", path).out == done.out
    for reason in (
        "schema 1: data does not match (EOFError)",
        "schema 5: data does not match (JSONDecodeError)",
        "schema 7: it has no such message type",
        "schema 50: arrays of empty elements are not supported",
        "schema 51: invalid Protobuf schema: registered_schema.proto:1:9: Expected message name.",
        "schema 52: invalid Avro schema (UnknownType)",
        "schema 53: more than 100 levels of nesting",
        f"schema 99: not in {directory}",
    ):
        assert f"kdissect: 1 key or value not decoded: {reason}\n" in done.err


def test_data_that_is_nested_too_deeply(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """fastavro's compiled reader would crash."""
    directory = dump(tmp_path / "schemas")
    schema = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
    (directory / "60.avsc").write_text(json.dumps(schema))
    shallow, deep = (pack(">bi", 0, 60) + b"\2" * depth + b"\0" for depth in (50, 100_000))
    path = write(tmp_path / "x.pcap", talk(batch([Item(None, shallow), Item(None, deep)])))
    done = run(capsys, "records", "--schemas", str(directory), "--json", path)
    assert [json.loads(line)["value_encoding"] for line in done.lines] == ["json", "utf-8"]
    assert (
        done.err == "kdissect: 1 key or value not decoded: schema 60: data does not match (RecursionError)\n"
    )


def test_avro_that_fastavro_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "m", "type": {"type": "map", "values": ["null", "double"]}},
            {"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}},
            {"name": "u", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "d", "type": {"type": "int", "logicalType": "date"}},
        ],
    }
    directory = dump(tmp_path / "schemas")
    (directory / "70.avsc").write_text(json.dumps(schema))
    out = BytesIO()
    uuid = "7e6be6ae-3a1c-4c9c-8f0e-1d3a5b7c9e10"
    fastavro.schemaless_writer(
        out,
        fastavro.parse_schema(schema),
        {"m": {"a": 1.5, "b": None}, "f": b"\0\xff", "u": uuid, "d": 20_000},
    )
    path = write(tmp_path / "x.pcap", talk(batch([Item(None, pack(">bi", 0, 70) + out.getvalue())])))
    (value,) = values(run(capsys, "records", "--schemas", str(directory), "--json", path))
    assert value == {"m": {"a": 1.5, "b": None}, "f": {"base64": "AP8="}, "u": uuid, "d": "2024-10-04"}


def test_a_registry_that_fails(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    first = "/schemas/ids/1"
    everything = answers_of_registry()
    for answer, reason, lookups in (
        ((401, {}, b""), "returned 401 Unauthorized", 1),
        ((500, {}, b""), "returned 500 Internal Server Error", 9),
        ((302, {"Location": "http://localhost:1/x"}, b""), "the registry redirects to another host", 9),
        ((302, {"Location": "file:///etc/passwd"}, b""), "returned 302 Found", 9),
        ((200, {}, b"<html>"), "is not JSON", 9),
        ((200, {}, b"[]"), "the registry's response has no schema", 9),
        ((200, {}, b'{"schema": "' + b"x" * (5 << 20) + b'"}'), "larger than --limits schema_bytes", 9),
    ):
        with serving({**everything, first: answer}) as (url, requests):
            done = run(capsys, "records", "--schemas", url.replace("//", "//me:s3cret@"), "--json", capture)
        assert (done.status, len(done.lines)) == (OK, len(ITEMS))
        assert reason in done.err
        assert "schema 1: " in done.err
        assert "s3cret" not in done.err
        assert len([path for path, _ in requests if path.startswith("/schemas")]) == lookups


def test_a_registry_that_is_not_there(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    with serving({}) as (url, _):
        pass
    done = run(capsys, "records", "--schemas", url, "-q", capture)
    assert done.status == OK
    assert f"no response from {url}: " in done.err


def test_a_redirect_on_the_same_host() -> None:
    answers = {"/schemas/ids/7": (302, {"Location": "/x"}, b""), "/x": (200, {}, b'{"schema": "\\"int\\""}')}
    with serving(answers) as (url, requests):
        assert SchemaRegistry(url).find(SchemaId(7, None, 5)).text == '"int"'
    assert len(requests) == 2


@pytest.mark.parametrize(
    "place", ["ftp://host/x", "file:///etc", "http://", "http://host:port/", "https://host/?x=1", "nowhere"]
)
def test_places_that_are_none(place: str, capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "records", "--schemas", place, capture)
    assert (done.status, done.out) == (USAGE, "")
    assert done.err.startswith("kdissect: --schemas: ")


def test_a_file_outside_of_the_directory_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.proto").write_text("x")
    with pytest.raises(SchemaFault):
        registry.SchemaDirectory(dump(tmp_path / "schemas")).reference("../secret.proto", "", 0)


def test_without_the_packages(
    capture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda name: None if name == "fastavro" else builtins)
    done = run(capsys, "records", "--schemas", str(tmp_path), capture)
    needed = f"--schemas needs fastavro, protobuf and grpcio-tools: {install('schemas')}"
    assert (done.status, done.err) == (USAGE, f"kdissect: {needed}\n")


def test_the_limit_of_schemas(capture: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = str(dump(tmp_path / "schemas"))
    done = run(capsys, "records", "--schemas", directory, "--limits", "schemas=8", "-q", capture)
    assert done.err.endswith(": too many schemas (--limits schemas)\n")
    with pytest.raises(UsageError):
        registry.open_schemas(str(tmp_path / "nowhere"))


def test_paths() -> None:
    assert message_path(b"\0rest") == ((0,), b"rest")
    assert message_path(b"\4\2\x80\2rest") == ([1, 128], b"rest")
    assert message_path(b"") == ((0,), b"")
    for data in (b"\2", b"\1", b"\xff" * 9, b"\xff\xff\x7f"):
        with pytest.raises(SchemaFault):
            message_path(data)


def test_plain_values() -> None:
    assert plain({1: (b"x", None, True, 1.5)}) == {"1": [b"x", None, True, 1.5]}
