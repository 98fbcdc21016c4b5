"""What Apache Kafka's brokers log of each request they have answered -> rows for the truth file.

From 2.7 on a line holds JSON; before, text in which the request and, later than 0.11, the response are
printed. Nothing here looks at packets.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka.protocol.api_key import ApiKey
from watching import error_codes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from truth import Truth

ANSWERED = "Completed request:"
TELEMETRY = "Telemetry:"
NAMES = {int(api): api.name for api in ApiKey}
KEYS = {name.lower(): key for key, name in NAMES.items()}
# What the classes of requests of 0.8 and 0.9 are called, where it is not the API's name.
KEYS |= {"producer": 0, "offset": 2, "topicmetadata": 3, "consumermetadata": 10, "groupcoordinator": 10}

# Three ages: 0.8.2 and 0.9 print Scala's requests and their own (Java's have names in snake case); from 0.11
# on the header comes first. ClientId ends a Scala ControlledShutdown and others, or is not in it.
SCALA = re.compile(
    r"Name: ?(?P<api>\w+?)Request; ?Version: ?(?P<version>\d+);.*?CorrelationId: ?(?P<correlation_id>-?\d+)"
)
SCALA_CLIENT = re.compile(r"; ?ClientId: ?(?P<client_id>[^;]*)")
STRUCT = re.compile(
    r"api_key=(?P<key>\d+),api_version=(?P<version>\d+),correlation_id=(?P<correlation_id>-?\d+),"
    r"client_id=(?P<client_id>[^}]*)}"
)
HEADER = re.compile(
    r"RequestHeader\(apiKey=(?P<api>\w+), apiVersion=(?P<version>\d+), clientId=(?P<client_id>.*?), "
    r"correlationId=(?P<correlation_id>-?\d+)\)"
)
CONNECTION = re.compile(r" from connection \S+?:(?P<broker>\d+)-\S+?:(?P<client>\d+)")
CLIENT_ADDRESS = re.compile(r" from client /\S+?:(?P<client>\d+);")
ERROR_CODE = re.compile(r"\berror_?code=(-?\d+)", re.IGNORECASE)


# In milliseconds; the total is from when a request was read to when its response was written.
TIMES = ("totalTimeMs", "requestQueueTimeMs", "localTimeMs", "remoteTimeMs", "throttleTimeMs")
TIMES += ("responseQueueTimeMs", "sendTimeMs")


@dataclass(slots=True)
class Answered:
    """One request that a broker answered."""

    client_id: str | None
    client_port: int
    broker_port: int
    api_key: int
    version: int
    correlation_id: int
    errors: list[int] | None  # null where the log does not have the response
    forwarded: bool = False  # inside an Envelope
    times: dict[str, float] | None = None  # TIMES; only from 2.7 on

    @property
    def api(self) -> str:
        """Its name on the wire."""
        return "Envelope" if self.forwarded else NAMES[self.api_key]


def read(lines: Iterable[str], broker_port: int) -> Iterator[Answered]:
    """Requests of a broker's log; the port for those releases that do not tell it."""
    for entry in answers(lines):
        yield of_json(entry) if entry.startswith('{"') else of_text(entry, broker_port)


def answers(lines: Iterable[str]) -> Iterator[str]:
    """What the log says of each request, as it stands there."""
    for line in lines:
        _, separator, entry = line.partition(ANSWERED)
        if separator:
            yield entry


def telemetry(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """What our Receiver wrote there of metrics that clients sent."""
    for line in lines:
        if line.startswith(TELEMETRY):
            yield json.loads(line.removeprefix(TELEMETRY))


def of_json(text: str) -> Answered:
    entry = json.loads(text, object_hook=spelled_as_ours)
    header = entry["requestHeader"]
    broker, client, *_ = entry["connection"].split("-")
    return Answered(
        client_id=header["clientId"],
        client_port=int(client.rpartition(":")[2]),
        broker_port=int(broker.rpartition(":")[2]),
        api_key=header["requestApiKey"],
        version=header["requestApiVersion"],
        correlation_id=header["correlationId"],
        errors=error_codes(entry.get("response")),
        forwarded=entry["isForwarded"],
        times={name: entry[name] for name in TIMES},
    )


def spelled_as_ours(body: dict[str, Any]) -> dict[str, Any]:
    """The name by which error_codes() looks for an error code; AddPartitionsToTxn has partitionErrorCode."""
    return {
        "error_code" if name.lower().endswith("errorcode") else name: value for name, value in body.items()
    }


def of_text(text: str, broker_port: int) -> Answered:
    header = HEADER.search(text) or STRUCT.search(text) or SCALA.search(text)
    connection = CONNECTION.search(text) or CLIENT_ADDRESS.search(text)
    if header is None or connection is None:
        raise ValueError(f"no header in {text!r}")
    parts, ends = header.groupdict(), connection.groupdict()
    if "client_id" in parts:
        client_id = parts["client_id"]
    else:
        after = SCALA_CLIENT.search(text[: connection.start()], header.start())
        client_id = after["client_id"].removeprefix("Some(").removesuffix(")") if after else None
    name = parts.get("api", "").replace("_", "").lower()
    _, has_response, response = text[: connection.start()].partition(",response:")
    return Answered(
        client_id=None if client_id == "null" else client_id,
        client_port=int(ends["client"]),
        broker_port=int(ends.get("broker") or broker_port),
        api_key=int(parts["key"]) if "key" in parts else KEYS[name],
        version=int(parts["version"]),
        correlation_id=int(parts["correlation_id"]),
        errors=sorted({int(code) for code in ERROR_CODE.findall(response)} - {0}) if has_response else None,
    )


def report(truth: Truth, requests: Iterable[Answered]) -> None:
    """Count what the brokers answered, and name the requests of clients that do not tell of them themselves.

    A request that one broker forwards to another is on the wire inside an Envelope, of which the log says
    only that there was one.
    """
    telling = {request.client_id for request in truth.requests}
    for request in requests:
        counts = truth.broker_requests.setdefault(str(request.broker_port), {})
        counts[request.api] = counts.get(request.api, 0) + 1
        if request.client_id not in telling and not request.forwarded:
            truth.answered.append(
                {
                    "client_id": request.client_id,
                    "client_port": request.client_port,
                    "broker_port": request.broker_port,
                    "api": request.api,
                    "version": request.version,
                    "correlation_id": request.correlation_id,
                    "errors": request.errors,
                }
            )
