"""What the clients of a sample know -> NAME.truth.json: requests, records, groups, errors.

Nothing here looks at packets. librdkafka tells each request and response in its `protocol` debug log, written
to file descriptor 2; kafka-python and aiokafka are watched by watching.py.
"""

from __future__ import annotations

import base64
import json
import os
import re
import tempfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

LIBRDKAFKA = re.compile(
    r"\|(?P<what>SEND|RECV)\|(?P<client>[^|]*)#(?P<handle>[a-z_-]+-\d+)\| .*?\]: (?P<broker>\S+): "
    r"(?:Sent|Received) (?P<api>\w+?)(?:Request|Response) "
    r"\(v(?P<version>-?\d+), (?P<bytes>\d+) bytes(?: @ (?P<at>\d+))?, CorrId (?P<correlation_id>\d+)"
)
# Of a response librdkafka counts what follows the length field and the correlation id.
NOT_COUNTED = 8
MARK = "--- "
# librdkafka's names of APIs, where they are not Kafka's.
LIBRDKAFKA_NAMES = {"ApiVersion": "ApiVersions"}


@dataclass(slots=True)
class Request:
    """One request as its client tells it. Sizes are of whole frames, length field included."""

    client_id: str | None
    software: str
    broker: str
    client_port: int | None
    api: str | None  # null, as client ID, version and correlation id: a SASL token without a header
    version: int | None
    correlation_id: int | None
    request_bytes: int | None
    response_bytes: int | None = None
    errors: list[int] | None = None  # distinct error codes other than 0, in the client's own decoding


@dataclass(slots=True)
class Truth:
    """All that the clients of one sample know; the attributes become the keys of its truth file."""

    sample: str
    ports: list[int]
    software: dict[str, str]
    notes: list[str] = field(default_factory=list)
    topics: dict[str, int] = field(default_factory=dict)
    produced: list[dict[str, Any]] = field(default_factory=list)
    consumed: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    commits: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    broker_requests: dict[str, dict[str, int]] = field(default_factory=dict)
    answered: list[dict[str, Any]] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    def note(self, description: str) -> None:
        """Add a sentence on what is inexact."""
        self.notes.append(description)

    def error(self, client_id: str, doing: str, error: object) -> None:
        """Note that a client was refused something."""
        self.errors.append({"client_id": client_id, "doing": doing, "error": str(error)})

    def write(self, path: Path) -> None:
        """Write indented JSON in which each list item is one line: a re-recording can be read as a diff."""
        content = asdict(self)
        del content["requests"]
        totals = Counter(request.api or "SASL token" for request in self.requests)
        answered = sum(request.response_bytes is not None for request in self.requests)
        content["counts"] = {
            "requests": len(self.requests),
            "answered": answered,
            "by_api": dict(sorted(totals.items())),
        }
        content["requests"] = [asdict(request) for request in self.requests]
        parts = []
        for name, value in content.items():
            if isinstance(value, list) and value:
                lines = ",\n".join("    " + _json(item) for item in value)
                parts.append(f"  {_json(name)}: [\n{lines}\n  ]")
            else:
                parts.append(f"  {_json(name)}: {_json(value)}")
        path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def payload(data: bytes | str | None) -> Any:
    """A key, value or header as JSON: text if it is UTF-8, else {"base64": ...}; if long, its size alone."""
    if data is None or isinstance(data, str):
        return data
    if len(data) > 200:
        return {"bytes": len(data)}
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


@contextmanager
def librdkafka_log(truth: Truth, software: str = "librdkafka") -> Iterator[None]:
    """Turn the `protocol` log lines that librdkafka writes during the block into requests."""
    with tempfile.TemporaryFile("w+") as log:
        kept = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            log.seek(0)
            marks: dict[str, int] = {}
            truth.requests.extend(read_log(log, software, marks))
            if marks:
                truth.facts["marks"] = marks


def mark(name: str) -> None:
    """Note in the log of librdkafka, whose threads write it, that something happens now."""
    os.write(2, f"{MARK}{name}\n".encode())


def read_log(lines: Iterable[str], software: str, marks: dict[str, int]) -> Iterator[Request]:
    requests: dict[tuple[str, str, int], Request] = {}
    in_order = []
    for line in lines:
        if line.startswith(MARK):
            marks[line.removeprefix(MARK).strip()] = len(in_order)
        result = LIBRDKAFKA.search(line)
        if not result:
            if "|FAIL|" in line or "|ERROR|" in line or line.startswith(("Traceback", " ", "%0", "%1", "%2")):
                os.write(2, line.encode())
            continue
        # Correlation ids start anew when a client reconnects: the last request of an id is the one answered.
        key = (result["handle"], result["broker"], int(result["correlation_id"]))
        if result["what"] == "SEND":
            if int(result["at"] or 0):
                continue  # the rest of a request that the socket took in parts
            api = LIBRDKAFKA_NAMES.get(result["api"], result["api"].removesuffix("Request"))
            request = Request(
                client_id=result["client"],
                software=software,
                broker=result["broker"],
                client_port=None,
                api=api,
                version=int(result["version"]),
                correlation_id=int(result["correlation_id"]),
                request_bytes=int(result["bytes"]),
            )
            requests[key] = request
            in_order.append(request)
        elif key in requests:
            requests.pop(key).response_bytes = int(result["bytes"]) + NOT_COUNTED
    yield from in_order
