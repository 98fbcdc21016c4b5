"""No output shows a credential by default: every way in which one travels, against every way in which
kdissect prints."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from pyarrow import parquet

from kdissect.cli.main import kdissect
from kdissect.kafka import secrets
from kdissect.kafka.bodies import decode_response
from kdissect.model import Redacted
from kdissect.tables.rows import TABLES
from tests.captures import pcap
from tests.exports import part
from tests.frames import (
    API_VERSIONS,
    FETCH,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    request,
    request_payload,
    response,
    response_payload,
    sized,
)
from tests.segments import Talk

if TYPE_CHECKING:
    from pathlib import Path

    from kdissect.model import Packet

PLAIN = b"hunter2-plain"
RAW_PLAIN = b"hunter2-raw-token"
BARE_PLAIN, BARE_TICKET, BARE_NAME = b"hunter2-bare-token", b"hunter2-bare-ticket", b"hunter2-bare-name"
SALT, SALTED = b"hunter2-salt", b"hunter2-salted-password"
HMAC = b"hunter2-token-hmac"
JAAS = "hunter2-jaas"
KEYSTORE = "hunter2-keystore"
HIDDEN = "hunter2-reported-sensitive"
CREATED = "hunter2-at-creation"
ENVELOPED = "hunter2-in-an-envelope"
METADATA_RECORD = b"hunter2-scram-record"
DAMAGED = b"hunter2-in-a-damaged-body"
ORPHANED = b"hunter2-in-an-orphan"
UNKNOWN_VERSION = b"hunter2-in-an-unknown-version"
TAGGED = b"hunter2-in-an-unknown-tag"
BEHIND = b"hunter2-behind-the-body"

SECRETS = [
    BARE_PLAIN, BARE_TICKET, BARE_NAME,
    PLAIN, RAW_PLAIN, SALT, SALTED, HMAC, METADATA_RECORD, DAMAGED, ORPHANED, UNKNOWN_VERSION, TAGGED, BEHIND,
    *(text.encode() for text in (JAAS, KEYSTORE, HIDDEN, CREATED, ENVELOPED)),
]  # fmt: skip

CREATE_TOPICS, DESCRIBE_CONFIGS, CREATE_TOKEN, RENEW_TOKEN, EXPIRE_TOKEN, DESCRIBE_TOKEN = (
    19,
    32,
    38,
    39,
    40,
    41,
)
INVALID = 40
ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS, ALTER_SCRAM, ENVELOPE, FETCH_SNAPSHOT = 33, 44, 51, 58, 59


def config(name: str, value: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "value": value, **more}


def quoting(value: str, resource: str = "") -> dict[str, Any]:
    """A response to a change of configs that quotes a value."""
    entry = {"error_code": INVALID, "error_message": f"Invalid value {value}", "resource_name": resource}
    return {"responses": [entry]}


def exchanges_with_secrets() -> list[tuple[int, int, dict[str, Any], dict[str, Any]]]:
    jaas, keystore = (
        config("sasl.jaas.config", JAAS),
        config("listener.name.x.ssl.keystore.password", KEYSTORE),
    )
    described = [jaas, config("innocent", HIDDEN, is_sensitive=True, synonyms=[config("innocent", HIDDEN)])]
    batch = (
        bytes(8)
        + (61 - 12 + len(METADATA_RECORD)).to_bytes(4, "big")
        + bytes(4)
        + b"\2"
        + bytes(44)
        + METADATA_RECORD
    )
    metadata = {"topic": "__cluster_metadata", "partitions": [{"records": batch}]}
    plain = b"\0alice\0" + PLAIN
    return [
        (SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}, {"mechanisms": ["PLAIN"]}),
        (SASL_AUTHENTICATE, 2, {"auth_bytes": plain, "_tags": {99: TAGGED}}, {"auth_bytes": plain}),
        (
            CREATE_TOPICS,
            7,
            {"topics": [{"name": "t", "configs": [config("my.secret", CREATED)]}]},
            {"topics": [{"name": "t", "error_code": INVALID, "error_message": f"Invalid value {CREATED}"}]},
        ),
        (DESCRIBE_CONFIGS, 4, {}, {"results": [{"configs": described}]}),
        (ALTER_CONFIGS, 2, {"resources": [{"configs": [jaas, keystore]}]}, quoting(JAAS)),
        (INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [{"configs": [jaas, keystore]}]}, quoting(KEYSTORE)),
        (CREATE_TOKEN, 3, {}, {"token_id": "id", "hmac": HMAC}),
        (RENEW_TOKEN, 2, {"hmac": HMAC}, {}),
        (EXPIRE_TOKEN, 2, {"hmac": HMAC}, {}),
        (DESCRIBE_TOKEN, 3, {}, {"tokens": [{"token_id": "id", "hmac": HMAC}]}),
        (
            ALTER_SCRAM,
            0,
            {"upsertions": [{"name": "bob", "salt": SALT, "salted_password": SALTED}]},
            {"results": [{"user": "bob", "error_code": INVALID, "error_message": SALTED.decode()}]},
        ),
        (
            ENVELOPE,
            0,
            {
                "request_data": request_payload(
                    ALTER_CONFIGS, 2, {"resources": [{"configs": [config("x.password", ENVELOPED)]}]}
                )
            },
            {"response_data": response_payload(CREATE_TOKEN, 3, {"hmac": HMAC})},
        ),
        (
            ENVELOPE,
            0,
            {
                "request_data": request_payload(
                    ALTER_CONFIGS, 2, {"resources": [{"configs": [config("x.password", ENVELOPED)]}]}
                )
            },
            {"response_data": response_payload(ALTER_CONFIGS, 2, quoting(ENVELOPED))},
        ),
        (FETCH, 12, {}, {"responses": [metadata]}),
        (FETCH_SNAPSHOT, 0, {}, {"topics": [{"partitions": [{"unaligned_records": batch}]}]}),
    ]


def packets() -> list[Packet]:
    talk = Talk()
    talk.handshake()
    talk.client_sends(request(SASL_HANDSHAKE, 0, {"mechanism": "PLAIN"}, correlation_id=0))
    talk.broker_sends(response(SASL_HANDSHAKE, 0, {}, correlation_id=0))
    talk.client_sends(sized(b"\0alice\0" + RAW_PLAIN))
    talk.broker_sends(sized(b"v=" + RAW_PLAIN))
    number = 0
    for number, (api, version, requested, answered) in enumerate(exchanges_with_secrets(), 1):
        talk.client_sends(request(api, version, requested, correlation_id=number))
        talk.broker_sends(response(api, version, answered, correlation_id=number))
    damaged = request_payload(SASL_AUTHENTICATE, 2, {"auth_bytes": DAMAGED}, correlation_id=50)
    place = damaged.index(DAMAGED)
    talk.client_sends(sized(damaged[: place - 1] + b"\xff\xff" + damaged[place:]))
    talk.broker_sends(sized(response_payload(SASL_AUTHENTICATE, 2, {}, correlation_id=50) + BEHIND))
    newer = bytearray(request_payload(CREATE_TOKEN, 3, correlation_id=51)) + UNKNOWN_VERSION
    newer[3] = 30
    talk.client_sends(sized(bytes(newer)))
    talk.broker_sends(sized(b"\0\0\0\x33\0" + UNKNOWN_VERSION))
    talk.broker_sends(sized(b"\0\0\0\x63\0" + ORPHANED))
    return talk.packets + tokens_without_a_handshake(talk.time_ns)


def tokens_without_a_handshake(start_ns: int) -> list[Packet]:
    """One where the broker expects a request, and two that begin a connection; all span packets."""
    after = Talk(("10.0.0.1", 40001), mss=9, start_ns=start_ns).handshake()
    after.client_sends(request(API_VERSIONS, 0)).broker_sends(response(API_VERSIONS, 0))
    after.client_sends(sized(b"\0alice\0" + BARE_PLAIN)).finish()
    first = Talk(("10.0.0.1", 40002), mss=9, start_ns=after.time_ns).handshake()
    token = bytes.fromhex("06092a864886f712010202") + BARE_TICKET
    first.client_sends(sized(bytes((0x60, len(token))) + token)).broker_sends(sized(BARE_TICKET))
    first.client_sends(sized(b"\5\4" + BARE_NAME)).broker_sends(sized(b"")).finish()
    return after.packets + first.packets


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("secrets") / "secrets.pcap"
    path.write_bytes(pcap((packet.time_ns, packet.data) for packet in packets()))
    return path


FIELDS = (
    "request.topics.configs.value", "request.resources.configs.value", "response.results.configs.value",
    "response.results.configs.synonyms.value", "response.topics.error_message",
    "response.responses.error_message",
)  # fmt: skip
IN_FIELDS = ["-e", ",".join((*FIELDS, "request.topics", "response.results"))]
OUTPUTS = [
    [], ["-V"], ["-x"], ["-V", "-x"], ["--json"], ["--csv"], ["-q"],
    IN_FIELDS, ["--json", *IN_FIELDS], ["--csv", *IN_FIELDS],
]  # fmt: skip
OPENED = [["-V", "--records"], ["-x", "--records"], ["--json", "--records"], ["--csv", "--records"]]


def shown(text: str, secret: bytes) -> bool:
    """Whether the secret stands in the text: as it is, in base64 at any alignment, or as hex, however it is
    spaced."""
    squeezed = "".join(text.split())
    forms = {secret.decode(), secret.hex(), *(base64_core(secret, lead) for lead in range(3))}
    return any(form in squeezed or form in text for form in forms)


def base64_core(secret: bytes, lead: int) -> str:
    """The part of the base64 text that does not depend on what stands around the secret."""
    padded = bytes(lead) + secret
    text = base64.b64encode(padded[: len(padded) // 3 * 3]).decode()
    return text[4:] if lead else text


@pytest.mark.parametrize("options", [*OUTPUTS, *OPENED], ids=" ".join)
def test_no_output_shows_a_credential(capture: Path, options: list[str]) -> None:
    result = CliRunner().invoke(kdissect, ["read", *options, str(capture)], catch_exceptions=False)
    assert result.exit_code == 0
    assert [secret for secret in SECRETS if shown(result.output, secret)] == []
    assert not shown(result.output, b"hunter2")


@pytest.mark.parametrize("field", FIELDS)
def test_no_filter_compares_a_credential(capture: Path, field: str) -> None:
    """What it selects would say what one contains."""
    expression = f"{field} contains 'hunter2'"
    result = CliRunner().invoke(kdissect, ["read", "-Y", expression, str(capture)], catch_exceptions=False)
    assert result.stdout == ""
    options = ["read", "--show-secrets", "-Y", expression, str(capture)]
    assert CliRunner().invoke(kdissect, options, catch_exceptions=False).stdout


@pytest.mark.parametrize(
    "command",
    [["summary"], ["summary", "--json", "--findings"], ["check"], ["story", "topic:t"]],
    ids=" ".join,
)
def test_no_summary_shows_a_credential(capture: Path, command: list[str]) -> None:
    result = CliRunner().invoke(kdissect, [*command, str(capture)], catch_exceptions=False)
    assert result.exit_code == 0
    assert not shown(result.output, b"hunter2")


@pytest.mark.parametrize("form", ["html", "json"])
def test_no_report_shows_a_credential(capture: Path, form: str, tmp_path: Path) -> None:
    if form == "html":
        pytest.importorskip("altair", reason="needs the extra kdissect[report]")
    path = tmp_path / "report"
    command = ["report", "--format", form, "-o", str(path), str(capture)]
    assert CliRunner().invoke(kdissect, command, catch_exceptions=False).exit_code == 0
    text = path.read_text()
    assert len(text) > 10_000
    assert not [secret for secret in (*SECRETS, b"hunter2") if shown(text, secret)]


@pytest.mark.parametrize("options", [[], ["-V"], ["-x"], ["--json"]], ids=" ".join)
def test_only_messages_about_a_resource_with_a_redacted_value_are_redacted(
    tmp_path: Path, options: list[str]
) -> None:
    resources = [
        {"resource_type": 2, "resource_name": "a", "configs": [config("my.password", "hunter2")]},
        {"resource_type": 2, "resource_name": "b", "configs": [config("retention.ms", "soon")]},
    ]
    answers = quoting("hunter2", "a")["responses"] + quoting("soon", "b")["responses"]
    talk = Talk().handshake()
    talk.client_sends(request(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": resources}, correlation_id=1))
    talk.broker_sends(response(INCREMENTAL_ALTER_CONFIGS, 1, {"responses": answers}, correlation_id=1))
    path = tmp_path / "two.pcap"
    path.write_bytes(pcap((packet.time_ns, packet.data) for packet in talk.packets))
    result = CliRunner().invoke(kdissect, ["read", *options, str(path)], catch_exceptions=False)
    assert "Invalid value soon" in result.output
    assert not shown(result.output, b"hunter2")
    result = CliRunner().invoke(
        kdissect, ["read", "--show-secrets", *options, str(path)], catch_exceptions=False
    )
    assert "Invalid value hunter2" in result.output


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nothing is unusual here but the configs."""
    secret = config("my.password", "hunter2")
    marked = config("innocent", "hunter2", is_sensitive=True, synonyms=[config("innocent", "hunter2")])
    resource = {"resource_type": 2, "resource_name": "t"}
    exchanges: list[tuple[int, int, dict[str, Any], dict[str, Any]]] = [
        (DESCRIBE_CONFIGS, 4, {}, {"results": [{**resource, "configs": [secret, marked]}]}),
        (ALTER_CONFIGS, 2, {"resources": [{**resource, "configs": [secret]}]}, {}),
        (INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [{**resource, "configs": [secret]}]}, {}),
        (CREATE_TOPICS, 7, {"topics": [{"name": "t", "configs": [secret]}]}, {}),
    ]
    talk = Talk().handshake()
    for number, (api, version, requested, answered) in enumerate(exchanges):
        talk.client_sends(request(api, version, requested, correlation_id=number))
        talk.broker_sends(response(api, version, answered, correlation_id=number))
    path = tmp_path_factory.mktemp("usual") / "usual.pcap"
    path.write_bytes(pcap((packet.time_ns, packet.data) for packet in talk.packets))
    return path


_CONFIG_VALUES = (
    "response.results.configs.value",
    "response.results.configs.synonyms.value",
    "request.resources.configs.value",
    "request.topics.configs.value",
)


@pytest.mark.parametrize("options", [[], ["--json"], ["--csv"]], ids=" ".join)
@pytest.mark.parametrize(
    "field", [*_CONFIG_VALUES, "response.results", "request.resources", "request.topics"]
)
def test_no_field_shows_a_credential(usual: Path, options: list[str], field: str) -> None:
    arguments = ["read", *options, "--fields", field, str(usual)]
    result = CliRunner().invoke(kdissect, arguments, catch_exceptions=False)
    assert "withheld" in result.output
    assert not shown(result.output, b"hunter2")
    result = CliRunner().invoke(kdissect, [*arguments, "--show-secrets"], catch_exceptions=False)
    assert "hunter2" in result.output


@pytest.mark.parametrize("field", _CONFIG_VALUES)
@pytest.mark.parametrize("test", ['== "hunter2"', '=~ "h.n"', 'startswith "h"'])
def test_no_condition_reveals_a_credential(usual: Path, field: str, test: str) -> None:
    arguments = ["read", "-Y", f"{field} {test}", str(usual)]
    result = CliRunner().invoke(kdissect, arguments, catch_exceptions=False)
    assert result.stdout == ""
    result = CliRunner().invoke(kdissect, [*arguments, "--show-secrets"], catch_exceptions=False)
    assert result.stdout


def test_a_request_that_was_not_captured_whole_may_have_had_credentials() -> None:
    data = response_payload(INCREMENTAL_ALTER_CONFIGS, 1, quoting("x", "a"))
    for answered in (None, {"resources": [], "_undecoded": b"?"}):
        decoded = decode_response(data, INCREMENTAL_ALTER_CONFIGS, 1, request=answered)
        assert decoded.value["responses"][0]["error_message"] == Redacted(len("Invalid value x"))
    decoded = decode_response(data, INCREMENTAL_ALTER_CONFIGS, 1, request={"resources": []})
    assert decoded.value["responses"][0]["error_message"] == "Invalid value x"


@pytest.mark.parametrize("options", [[], ["-V", "--full"], ["--json"], ["--csv"], ["-q"]], ids=" ".join)
def test_no_record_shows_a_credential(capture: Path, options: list[str]) -> None:
    result = CliRunner().invoke(kdissect, ["records", *options, str(capture)], catch_exceptions=False)
    assert result.exit_code == 0
    assert not shown(result.output, b"hunter2")


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_no_export_shows_a_credential(capture: Path, form: str, tmp_path: Path) -> None:
    texts = exported(capture, tmp_path, "--format", form)
    assert len(texts) == len(TABLES)
    assert [(name, secret) for name, text in texts.items() for secret in SECRETS if shown(text, secret)] == []
    assert not shown("".join(texts.values()), b"hunter2")


def exported(capture: Path, directory: Path, *options: str) -> dict[str, str]:
    """All rows of all tables as text, bytes in Python's notation."""
    arguments = ["export", str(capture), "-o", str(directory), "--records", *options]
    assert CliRunner().invoke(kdissect, arguments, catch_exceptions=False).exit_code == 0
    return {name: "\n".join(map(str, rows(part(directory / name)))) for name in TABLES}


def rows(path: Path) -> list[Any]:
    if path.suffix == ".jsonl":
        return path.read_text().splitlines()
    return parquet.read_table(path).to_pylist()  # type: ignore[no-any-return]


def test_with_show_secrets_they_are_there_so_the_test_above_can_fail(capture: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        kdissect, ["read", "--json", "--show-secrets", str(capture)], catch_exceptions=False
    )
    hidden_in_records = {METADATA_RECORD}  # record data is not opened by read --json
    assert [
        secret for secret in SECRETS if secret not in hidden_in_records and not shown(result.output, secret)
    ] == []
    result = CliRunner().invoke(
        kdissect, ["read", "-x", "--show-secrets", str(capture)], catch_exceptions=False
    )
    assert shown(result.output, PLAIN)
    for form in ("jsonl", "parquet"):
        texts = exported(capture, tmp_path / form, "--format", form, "--show-secrets")
        assert shown(texts["exchanges"], PLAIN)


def test_the_user_is_shown_and_the_password_is_not(capture: Path) -> None:
    result = CliRunner().invoke(kdissect, ["read", "--json", str(capture)], catch_exceptions=False)
    assert '"principal":"User:alice"' in result.output


def test_which_apis_may_carry_credentials() -> None:
    assert {key for key in range(95) if secrets.is_credential_api(key)} >= {
        FETCH, CREATE_TOPICS, DESCRIBE_CONFIGS, ALTER_CONFIGS, SASL_AUTHENTICATE, CREATE_TOKEN, RENEW_TOKEN,
        EXPIRE_TOKEN, DESCRIBE_TOKEN, INCREMENTAL_ALTER_CONFIGS, ALTER_SCRAM, ENVELOPE, FETCH_SNAPSHOT,
    }  # fmt: skip
    assert secrets.is_credential_api(None)
    assert not secrets.is_credential_api(3)
