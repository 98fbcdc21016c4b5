"""``--schemas DIR|URL`` -> decoders of keys and values. Needs fastavro, protobuf and grpcio-tools.

A directory has the schemas as files ``ID.avsc``, ``ID.json`` or ``ID.proto`` (also ``GUID.avsc`` ...), and
responses of a registry in any other ``*.json`` file: a schema, a list of them, or one per line. A registry
gets one request per schema, ``GET /schemas/ids/ID``; no more after it has rejected one or failed to answer a
few.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from base64 import b64encode
from functools import cached_property
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

import orjson

from kdissect.children import python_environment
from kdissect.errors import UsageError
from kdissect.exchanges.registered import Decoder, RegisteredSchemas, SchemaFault
from kdissect.extras import install
from kdissect.limits import DEFAULT
from kdissect.phrases import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from http.client import HTTPMessage
    from urllib.request import Request

    from kdissect.kafka.traces import SchemaId
    from kdissect.limits import Limits

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
_TYPES = {".avsc": AVRO, ".json": JSON, ".proto": PROTOBUF}
_PACKAGES = ("fastavro", "google.protobuf", "grpc_tools")

_TIMEOUT_S = 5.0  # of a request; of the compiler, four times as long
_PART_BYTES = 1 << 16
_MAX_FAILURES = 3
_MAX_REFERENCES = 200
_MAX_DUMP_BYTES = 256 << 20
_MAIN = "registered_schema.proto"
_PROTOC_ERROR = re.compile(r"[\w./-]+\.proto:")
_IMPORT = re.compile(r'^\s*import\s+(?:public\s+|weak\s+)?"([^"]+)"\s*;', re.MULTILINE)


class Schema(NamedTuple):
    """A registered schema.

    Attributes:
        type: ``AVRO``, ``JSON`` or ``PROTOBUF``.
        text: of the schema.
        references: the other schemas that it needs: name, subject, version.
    """

    type: str
    text: str
    references: tuple[tuple[str, str, int], ...] = ()

    @classmethod
    def of(cls, response: Any) -> Schema:
        """The schema in a response of a registry.

        Raises:
            SchemaFault: there is none.
        """
        if not isinstance(response, dict) or not isinstance(response.get("schema"), str):
            raise SchemaFault("the registry's response has no schema")
        references = response.get("references") or []
        try:
            named = tuple(
                (str(each["name"]), str(each["subject"]), int(each["version"])) for each in references
            )
        except (KeyError, TypeError, ValueError):
            raise SchemaFault("invalid references") from None
        return cls(response.get("schemaType") or AVRO, response["schema"], named)


class SchemaSource(Protocol):
    """Where schemas are."""

    def find(self, schema: SchemaId) -> Schema:
        """A schema by ID or GUID; raises ``SchemaFault`` if there is none."""

    def reference(self, name: str, subject: str, version: int) -> Schema:
        """A schema that another one needs; raises ``SchemaFault`` if there is none."""


def open_schemas(place: str, limits: Limits = DEFAULT) -> RegisteredSchemas:
    """Schemas of a directory or registry.

    Raises:
        UsageError: there is no such directory, the URL is invalid, or a package is missing.
    """
    if any(find_spec(name.partition(".")[0]) is None or find_spec(name) is None for name in _PACKAGES):
        raise UsageError(f"--schemas needs fastavro, protobuf and grpcio-tools: {install('schemas')}")
    source = SchemaRegistry(place, limits) if "://" in place else SchemaDirectory(Path(place), limits)
    return RegisteredSchemas(lambda schema: decoder(source.find(schema), source, limits), limits)


class SchemaDirectory:
    """Schemas in a directory.

    Args:
        directory: the directory.
        limits: maximum size of a schema.

    Raises:
        UsageError: it is not a directory.
    """

    def __init__(self, directory: Path, limits: Limits = DEFAULT) -> None:
        if not directory.is_dir():
            raise UsageError(f"--schemas: {directory} is not a directory")
        self._directory = directory
        self._limits = limits

    def find(self, schema: SchemaId) -> Schema:
        for suffix, kind in _TYPES.items():
            for name in filter(None, (schema.id, schema.guid)):
                text = self._read(f"{name}{suffix}")
                if text is not None:
                    return _in_file(kind, text)
        try:
            return self._dumped[str(schema)]
        except KeyError:
            raise SchemaFault(f"not in {self._directory}") from None

    def reference(self, name: str, subject: str, version: int) -> Schema:
        if (dumped := self._dumped.get(f"{subject}/{version}")) is not None:
            return dumped
        text = self._read(name)
        if text is None:
            raise SchemaFault(f'"{printable(name)}" is not in {self._directory}')
        return _in_file(_TYPES.get(Path(name).suffix, AVRO), text)

    def _read(self, name: str) -> str | None:
        """The text of a file in the directory; None if there is none."""
        path = (self._directory / name).resolve()
        if not path.is_relative_to(self._directory.resolve()) or not path.is_file():
            return None
        try:
            with path.open("rb") as file:
                data = file.read(self._limits.schema_bytes + 1)
        except OSError as error:
            raise SchemaFault(f"cannot read {path}: {error.strerror}") from None
        return _text(data, self._limits)

    @cached_property
    def _dumped(self) -> dict[str, Schema]:
        """What files with a registry's responses have: by ID, by GUID, and by subject and version."""
        schemas: dict[str, Schema] = {}
        for path in sorted(self._directory.glob("*.json")):
            if not path.stem.isdecimal() and path.stat().st_size <= _MAX_DUMP_BYTES:
                for response in _responses(path.read_bytes()):
                    schema = Schema.of(response)
                    names = (
                        response.get("id"),
                        response.get("guid"),
                        f"{response.get('subject')}/{response.get('version')}",
                    )
                    schemas.update((str(name), schema) for name in names if name is not None)
        return schemas


def _in_file(kind: str, text: str) -> Schema:
    """The schema in a file: as it is, or in a response of the registry."""
    if kind == JSON:
        response = next(_responses(text.encode()), None)
        if response is not None:
            return Schema.of(response)
    imports = _IMPORT.findall(text) if kind == PROTOBUF else []
    return Schema(
        kind, text, tuple((name, name, 0) for name in imports if not name.startswith("google/protobuf/"))
    )


def _responses(data: bytes) -> Iterator[dict[str, Any]]:
    """The responses of a registry in a file: one, a list, or one per line."""
    try:
        documents = [orjson.loads(data)]
    except orjson.JSONDecodeError:
        documents = []
        for line in data.splitlines():
            try:
                documents.append(orjson.loads(line))
            except orjson.JSONDecodeError:
                continue
    for document in documents:
        for each in document if isinstance(document, list) else [document]:
            if isinstance(each, dict) and isinstance(each.get("schema"), str):
                yield each


class SchemaRegistry:
    """Schemas of a registry. Credentials in the URL are sent to its host only, and never shown.

    Args:
        url: http or https.
        limits: how large a schema may be.

    Raises:
        UsageError: the URL is invalid.
    """

    def __init__(self, url: str, limits: Limits = DEFAULT) -> None:
        from urllib.parse import unquote, urlsplit
        from urllib.request import HTTPRedirectHandler, build_opener

        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = None
        if host is None or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
            raise UsageError("--schemas: use a directory, or the http(s) URL of a schema registry")
        shown_host = f"[{host}]" if ":" in host else host
        self.url = (
            f"{parts.scheme}://{shown_host}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}"
        )
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {b64encode(user.encode()).decode()}"
        self._limits = limits
        self._failures = 0
        self._refusal: str | None = None

        class SameHost(HTTPRedirectHandler):
            """Follows a redirect only to the same scheme, host and port: others must not see credentials."""

            def redirect_request(
                self, req: Request, fp: Any, code: int, msg: str, headers: HTTPMessage, newurl: str
            ) -> Request | None:
                new = urlsplit(newurl)
                if (new.scheme, new.hostname, new.port) != (parts.scheme, host, port):
                    fp.close()
                    raise SchemaFault("the registry redirects to another host")
                return super().redirect_request(req, fp, code, msg, headers, newurl)

        self._opener = build_opener(SameHost)

    def find(self, schema: SchemaId) -> Schema:
        return self._get(
            f"/schemas/ids/{schema.id}" if schema.id is not None else f"/schemas/guids/{schema.guid}"
        )

    def reference(self, name: str, subject: str, version: int) -> Schema:  # noqa: ARG002
        from urllib.parse import quote

        return self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}")

    def _get(self, path: str) -> Schema:
        from http.client import HTTPException, responses
        from urllib.error import HTTPError
        from urllib.request import Request

        if self._refusal is not None:
            raise SchemaFault(self._refusal)
        try:
            with self._opener.open(
                Request(self.url + path, headers=self._headers), timeout=_TIMEOUT_S
            ) as response:
                text = _text(self._received(response), self._limits)
        except HTTPError as error:
            error.close()
            if error.code == 404:
                raise SchemaFault(f"not in {self.url}") from None
            self._fail(
                f"{self.url} returned {error.code} {responses.get(error.code, '')}",
                is_final=error.code in (401, 403),
            )
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            self._fail(f"no response from {self.url}: {printable(str(reason)) or type(error).__name__}")
        try:
            return Schema.of(orjson.loads(text))
        except orjson.JSONDecodeError:
            raise SchemaFault(f"the response from {self.url} is not JSON") from None

    def _received(self, response: Any) -> bytes:
        data, deadline = bytearray(), monotonic() + 4 * _TIMEOUT_S
        while len(data) <= self._limits.schema_bytes and (part := response.read1(_PART_BYTES)):
            data += part
            if monotonic() > deadline:
                raise TimeoutError("timed out")
        return bytes(data)

    def _fail(self, reason: str, *, is_final: bool = False) -> NoReturn:
        """Raise; after some failures, do not request anything anymore."""
        self._failures += 1
        if is_final or self._failures >= _MAX_FAILURES:
            self._refusal = reason
        raise SchemaFault(reason)


def _text(data: bytes, limits: Limits) -> str:
    if len(data) > limits.schema_bytes:
        raise SchemaFault("larger than --limits schema_bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SchemaFault("not UTF-8") from None


# ------------------------------------------------------------------------------------------------------------
# A schema -> its decoder.
# ------------------------------------------------------------------------------------------------------------


def decoder(schema: Schema, source: SchemaSource, limits: Limits = DEFAULT) -> Decoder:
    """The decoder of a schema.

    Args:
        schema: the schema.
        source: where the schemas are that it needs.
        limits: how large it may be with these.

    Raises:
        SchemaFault: it is invalid, or needs a schema that is not there.
    """
    if schema.type == JSON:
        return Decoder(lambda data, _: orjson.loads(data))
    if schema.type not in (AVRO, PROTOBUF):
        raise SchemaFault(f"type {printable(schema.type)} is not supported")
    needed = _needed(schema, source, limits)
    return _avro(schema, needed.values()) if schema.type == AVRO else _protobuf(schema, needed)


def _needed(schema: Schema, source: SchemaSource, limits: Limits) -> dict[str, str]:
    """The texts of all schemas that a schema refers to, by name, those first that others need."""
    texts: dict[str, str] = {}
    left = [limits.schema_bytes - len(schema.text)]

    def add(outer: Schema, depth: int) -> None:
        for name, subject, version in outer.references:
            if name in texts:
                continue
            if depth > _MAX_REFERENCES or len(texts) >= _MAX_REFERENCES:
                raise SchemaFault(f"more than {_MAX_REFERENCES} references")
            inner = source.reference(name, subject, version)
            left[0] -= len(inner.text)
            if left[0] < 0:
                raise SchemaFault("larger than --limits schema_bytes with its references")
            add(inner, depth + 1)
            texts[name] = inner.text

    add(schema, 0)
    return texts


def _avro(schema: Schema, needed: Iterable[str]) -> Decoder:
    """The compiled reader of fastavro crashes where data is nested too deeply, so a recursive schema gets the
    one in Python, which raises an exception.
    """
    import fastavro
    from fastavro import _read_py

    named: dict[str, Any] = {}
    try:
        for text in needed:
            fastavro.parse_schema(_avro_document(text), named_schemas=named)
        parsed = fastavro.parse_schema(_avro_document(schema.text), named_schemas=named)
        shape = _AvroShape(named)
        shape.check(parsed)
    except SchemaFault:
        raise
    except Exception as error:  # noqa: BLE001  (fastavro raises anything)
        raise SchemaFault(f"invalid Avro schema ({type(error).__name__})") from None
    read = _read_py.schemaless_reader if shape.is_recursive else fastavro.schemaless_reader

    def decode(data: bytes, _: Sequence[int]) -> Any:
        stream = BytesIO(data)
        value = read(stream, parsed, None)
        if stream.read(1):
            raise SchemaFault("data does not match the schema: trailing bytes")
        return value

    return Decoder(decode)


def _avro_document(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text.strip()  # the name of a primitive type


class _AvroShape:
    """What a parsed Avro schema allows in data.

    Attributes:
        is_recursive: whether a value can contain one of the same type.
    """

    def __init__(self, named: dict[str, Any]) -> None:
        self.is_recursive = False
        self._named = named
        self._inside: set[str] = set()
        self._done: set[str] = set()

    def check(self, schema: Any) -> None:
        """Find recursion.

        Raises:
            SchemaFault: the elements of an array can be empty, so that a few bytes become any number of them.
        """
        if isinstance(schema, str):
            if schema in self._inside:
                self.is_recursive = True
            elif schema in self._named:
                self.check(self._named[schema])
            return
        if isinstance(schema, list):
            for branch in schema:
                self.check(branch)
            return
        match schema["type"]:
            case "array":
                if self._is_empty(schema["items"], frozenset()):
                    raise SchemaFault("arrays of empty elements are not supported")
                self.check(schema["items"])
            case "map":
                self.check(schema["values"])
            case "record" | "error":
                self._check_record(schema)
            case inner if inner in self._named or not isinstance(inner, str):
                self.check(inner)

    def _check_record(self, schema: Any) -> None:
        name = schema["name"]
        if name in self._inside:
            self.is_recursive = True
        elif name not in self._done:
            self._inside.add(name)
            for field in schema["fields"]:
                self.check(field["type"])
            self._inside.discard(name)
            self._done.add(name)

    def _is_empty(self, schema: Any, inside: frozenset[str]) -> bool:
        """Whether a value takes no byte."""
        if isinstance(schema, str):
            if schema in inside or schema not in self._named:
                return schema == "null"
            return self._is_empty(self._named[schema], inside | {schema})
        if isinstance(schema, list):
            return False  # the number of the branch
        match schema["type"]:
            case "record" | "error":
                inside |= {schema["name"]}
                return all(self._is_empty(field["type"], inside) for field in schema["fields"])
            case "fixed":
                return bool(schema["size"] == 0)
            case "array" | "map" | "enum":
                return False
            case inner:
                return self._is_empty(inner, inside)


def _protobuf(schema: Schema, needed: dict[str, str]) -> Decoder:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message_factory import GetMessageClass

    files = FileDescriptorSet.FromString(_compiled(schema.text, needed))
    pool = DescriptorPool()
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    main = pool.FindFileByName(_MAIN)
    types = [main.message_types_by_name[each.name] for each in files.file[-1].message_type]

    def decode(data: bytes, path: Sequence[int]) -> Any:
        message_type, inner = None, types
        for index in path:
            if not 0 <= index < len(inner):
                raise SchemaFault("it has no such message type")
            message_type = inner[index]
            inner = message_type.nested_types
        assert message_type is not None
        message = GetMessageClass(message_type).FromString(data)
        return MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)

    return Decoder(decode, has_path=True)


def _compiled(text: str, needed: dict[str, str]) -> bytes:
    """Compile a schema in a separate process: a FileDescriptorSet, the schema last."""
    with TemporaryDirectory() as name:
        directory = Path(name).resolve()
        for path, content in {**needed, _MAIN: text}.items():
            file = (directory / path).resolve()
            if not file.is_relative_to(directory):
                raise SchemaFault("invalid reference name")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        out = directory / "out"
        protoc = (sys.executable, "-m", "grpc_tools.protoc", "-I.", "--include_imports")
        try:
            done = subprocess.run(
                [*protoc, f"--descriptor_set_out={out}", _MAIN],
                cwd=directory,  # so that messages name the file without it
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=4 * _TIMEOUT_S,
                env=os.environ | python_environment(),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SchemaFault("compiling it took too long") from None
        if done.returncode or not out.exists():
            lines = done.stderr.decode("utf-8", "replace").splitlines()
            reason = next((line for line in lines if _PROTOC_ERROR.match(line)), "")
            raise SchemaFault(f"invalid Protobuf schema: {printable(reason)}")
        return out.read_bytes()
