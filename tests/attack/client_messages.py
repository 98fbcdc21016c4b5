"""Messages with credentials that kio and kafka-python wrote, and what no output may show of them."""

from __future__ import annotations

import base64
import io
import json
import warnings
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from kio.index import load_entity_schema
from kio.serial import entity_writer
from kio.static.constants import EntityType

from kdissect.kafka.headers import read_request_header, response_header_version
from tests.frames import request_payload, response_payload, sized
from tests.segments import Talk

if TYPE_CHECKING:
    from collections.abc import Callable

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its import uses importlib.resources.read_text
    from kafka.net.sasl.oauth import AbstractTokenProvider, SaslMechanismOAuth
    from kafka.net.sasl.plain import SaslMechanismPlain

REQUEST, RESPONSE = EntityType.request, EntityType.response
TIME = datetime(2026, 11, 23, tzinfo=UTC)


def part(claims: dict[str, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()


SIGNATURE = "c2lnbmVkLWJ5LXRoZS1yZWQtcXVlZW4"
TOKEN = f"{part({'alg': 'HS256'})}.{part({'sub': 'alice', 'jti': 'rabbit-hole-5'})}.{SIGNATURE}"
PLAIN, JAAS, KEYSTORE, TRUSTSTORE = "jabberwock-1", "tulgey-wood-2", "vorpal-sword-3", "slithy-toves-4"
DESCRIBED, SYNONYM, CREATED = "borogoves-5", "mome-raths-6", "bandersnatch-7"
SALT, SALTED = b"tumtum-tree-8", bytes(range(200, 232))
HMACS = {
    use: use.encode().ljust(24, b".") + bytes(range(100, 140)) for use in ("new", "renew", "expire", "list")
}
TEXTS = (TOKEN, SIGNATURE, PLAIN, JAAS, KEYSTORE, TRUSTSTORE, DESCRIBED, SYNONYM, CREATED)
SECRETS = {*(text.encode() for text in TEXTS), SALT, SALTED, *HMACS.values()}
DAMAGES: tuple[Callable[[bytes], bytes], ...] = (
    bytes,
    lambda data: data[:-1],
    lambda data: data + b"\0",
    lambda data: data[:-2] + b"\xff\xff",
)
JAAS_LINE = (
    f'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="{JAAS}";'
)


class Provider(AbstractTokenProvider):  # type: ignore[misc]
    """Hands out the token."""

    def token(self) -> str:
        return TOKEN


def entity(of: Any, values: dict[str, Any]) -> Any:
    """A structure of kio with these values, and empty ones for the others."""
    hints = get_type_hints(of)
    given: dict[str, Any] = {}
    for each in fields(of):
        hint = hints[each.name]
        inner = [kind for kind in get_args(hint) if kind not in (NoneType, ...)]
        if each.name in values and isinstance(values[each.name], list):
            given[each.name] = tuple(entity(inner[0], value) for value in values[each.name])
        elif each.name in values:
            given[each.name] = values[each.name]
        elif each.default is MISSING:
            given[each.name] = _empty(hint, inner)
    return of(**given)


def _empty(hint: Any, inner: list[Any]) -> Any:
    if NoneType in get_args(hint):
        return None
    if str(hint).startswith("tuple"):
        return ()
    for kind, value in ((str, ""), (bytes, b""), (timedelta, timedelta(0)), (datetime, TIME)):
        if kind in getattr(hint, "__mro__", ()) or kind in inner:
            return value
    return hint(0)


def body(name: str, version: int, sort: EntityType, **values: Any) -> bytes:
    """A message of kio without its header."""
    of = load_entity_schema(name, version, sort)
    out = io.BytesIO()
    entity_writer(of)(out, entity(of, values))
    return out.getvalue()


def config(name: str, value: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "value": value, **more}


def messages() -> list[tuple[int, int, bytes | None, bytes | None]]:
    """API, version, and the bodies that kio wrote of request and response."""
    plain = SaslMechanismPlain(sasl_plain_username="alice", sasl_plain_password=PLAIN).auth_bytes()
    oauth = SaslMechanismOAuth(sasl_oauth_token_provider=Provider()).auth_bytes()
    configs = [
        config("sasl.jaas.config", JAAS_LINE), config("ssl.keystore.password", KEYSTORE),
        config("listener.name.internal.ssl.truststore.password", TRUSTSTORE),
    ]  # fmt: skip
    described = config("innocent", DESCRIBED, is_sensitive=True, synonyms=[config("innocent", SYNONYM)])
    topic = {"name": "t", "configs": [config("my.secret", CREATED)]}
    scram = {"name": "bob", "salt": SALT, "salted_password": SALTED}
    return [
        (17, 1, body("sasl_handshake", 1, REQUEST, mechanism="PLAIN"), None),
        (36, 2, body("sasl_authenticate", 2, REQUEST, auth_bytes=plain), None),
        (17, 1, body("sasl_handshake", 1, REQUEST, mechanism="OAUTHBEARER"), None),
        (36, 2, body("sasl_authenticate", 2, REQUEST, auth_bytes=oauth), None),
        (44, 1, body("incremental_alter_configs", 1, REQUEST, resources=[{"configs": configs}]), None),
        (33, 2, body("alter_configs", 2, REQUEST, resources=[{"configs": configs}]), None),
        (32, 4, None, body("describe_configs", 4, RESPONSE, results=[{"configs": [described]}])),
        (19, 7, body("create_topics", 7, REQUEST, topics=[topic]), None),
        (51, 0, body("alter_user_scram_credentials", 0, REQUEST, upsertions=[scram]), None),
        (38, 3, None, body("create_delegation_token", 3, RESPONSE, token_id="id", hmac=HMACS["new"])),
        (39, 2, body("renew_delegation_token", 2, REQUEST, hmac=HMACS["renew"]), None),
        (40, 2, body("expire_delegation_token", 2, REQUEST, hmac=HMACS["expire"]), None),
        (41, 3, None, body("describe_delegation_token", 3, RESPONSE, tokens=[{"hmac": HMACS["list"]}])),
    ]  # fmt: skip


def conversation() -> Talk:
    """Each of these messages, and one of each that was cut, or whose end was changed."""
    talk = Talk(mss=60_000).handshake()
    number = 0
    for damage in DAMAGES:
        for api, version, sent, answer in messages():
            number += 1
            sent_bytes = request_payload(api, version, correlation_id=number)
            sent_bytes = (
                sent_bytes
                if sent is None
                else damage(sent_bytes[: read_request_header(sent_bytes).body_pos] + sent)
            )
            answer_bytes = response_payload(api, version, correlation_id=number)
            if answer is not None:
                header = number.to_bytes(4, "big") + bytes(response_header_version(api, version))
                answer_bytes = damage(header + answer)
            talk.client_sends(sized(sent_bytes)).broker_sends(sized(answer_bytes))
    return talk
