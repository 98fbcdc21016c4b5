"""A decoded body -> the same body with its credentials replaced by ``Redacted``.

The schema identifies credentials: role ``secret`` (tokens, salts, hashes, HMACs), and role ``config`` for the
value of a config, which is a credential if the message says so (``is_sensitive``) or if its name is on the
list in sensitive.txt. Bodies of APIs that carry any of these are never shown as raw bytes either, nor are
undecodable bytes that could belong to such an API: a damaged message must not leak a credential. Nor are the
broker's messages about values that were redacted in the request: brokers quote invalid values of configs.
"""

from __future__ import annotations

import re
from fnmatch import translate
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from kdissect.kafka import schema
from kdissect.kafka.codes import lines
from kdissect.kafka.vendors import is_vendor_key
from kdissect.model import Embedded, Redacted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.kafka.schema import Field, Message
    from kdissect.kafka.walker import Walk
    from kdissect.model import Body


SECRET = "secret"
CONFIG = "config"
MESSAGE = "message"
ENVELOPE = ("envelope_request", "envelope_response")
_ROLES = (SECRET, CONFIG, *ENVELOPE)

# KIP-516 reserves the ID.
_CLUSTER_METADATA = ("__cluster_metadata", "AAAAAAAAAAAAAAAAAAAAAQ")

# Records of __cluster_metadata contain SCRAM credentials, delegation tokens and configs. These APIs carry
# them.
FETCH = 1
FETCH_SNAPSHOT = 59
SASL_AUTHENTICATE = 36
_CARRIES_RECORDS = frozenset({FETCH, FETCH_SNAPSHOT})


@cache
def carries_secrets(message: Message, *, ignore_configs: bool = False) -> bool:
    """Whether any field of any version of the message, or of a message inside it, can be a credential.
    ``ignore_configs``: values of configs do not count.
    """
    roles = (SECRET, *ENVELOPE) if ignore_configs else _ROLES
    return any(_leads_to(field, roles) for field in message.fields)


@cache
def is_credential_api(api_key: int | None) -> bool:
    """Whether undecoded bytes of the API's bodies are redacted. True for an unknown API (None), and for APIs
    of vendors: their bodies are not decoded.
    """
    if api_key is None or api_key in _CARRIES_RECORDS or is_vendor_key(api_key):
        return True
    messages = (schema.request(api_key), schema.response(api_key))
    return any(message is not None and carries_secrets(message) for message in messages)


def redact(message: Message, body: Body) -> None:
    """Redact every credential in ``body``, in place. Accepts partial bodies. Unknown tags beside a credential
    are redacted too.
    """
    if carries_secrets(message):
        _redact(message.fields, body, inherited=False)


@cache
def quotes_secrets(api_key: int | None) -> bool:
    """Whether the broker's messages in responses of the API can be about credentials in its requests. What
    brokers say about SASL tokens is about the login, and does not repeat them.
    """
    if api_key is None or api_key == SASL_AUTHENTICATE:
        return False
    request, response = schema.request(api_key), schema.response(api_key)
    if request is None or response is None:
        return False
    return carries_secrets(request) and any(_leads_to(field, (MESSAGE,)) for field in response.fields)


def redact_quotes(message: Message, body: Body, request: Body | None) -> None:
    """Redact the broker's messages in the response ``body`` about resources for which a value was redacted in
    the request. In place. Without all of the request, redact all messages.
    """
    unknown = request is None or "_undecoded" in request
    names: set[str | None] = {None} if unknown else set(_redacted_resources(request or {}))
    if names:
        _redact_quotes(message.fields, body, names)


def _redacted_resources(request: Body) -> Iterator[str | None]:
    """The names of resources for which something is redacted. None for one without a name."""
    for value in request.values():
        for struct in value if isinstance(value, list) else ():
            if isinstance(struct, dict) and _holds_redacted(struct):
                yield _resource(struct)
        if isinstance(value, Redacted):
            yield None


def _holds_redacted(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_redacted, value.values()))
    return any(map(_holds_redacted, value)) if isinstance(value, list) else isinstance(value, Redacted)


def _resource(struct: Body) -> str | None:
    names = (struct.get(key) for key in ("resource_name", "name"))
    return next((name for name in names if isinstance(name, str)), None)


def _redact_quotes(fields: tuple[Field, ...], body: Body, names: set[str | None]) -> None:
    name = _resource(body)
    is_other = name is not None and name not in names and None not in names
    for field in fields:
        value = body.get(field.name)
        if field.role == MESSAGE and value and isinstance(value, str) and not is_other:
            body[field.name] = Redacted(_length(value))
        elif field.fields and value is not None and _leads_to(field, (MESSAGE,)):
            for struct in value if field.array else (value,):
                _redact_quotes(field.fields, struct, names)


def redact_spans(message: Message, walked: Walk) -> None:
    """The same for the walker's spans. Record data of ``__cluster_metadata``, which is not decoded, is
    redacted too.
    """
    redact(message, walked.value)
    structs: list[tuple[int, Body]] = [(-1, walked.value)]
    for index, span in enumerate(walked.spans):
        while structs[-1][0] >= span.depth:
            structs.pop()
        inside = structs[-1][1]
        if span.type == "struct" and isinstance(span.value, dict):
            structs.append((span.depth, span.value))
        elif span.type == "records" and span.value is not None:
            if message.api_key == FETCH_SNAPSHOT or any(
                map(is_cluster_metadata, (body for _, body in structs))
            ):
                walked.spans[index] = span._replace(value=Redacted(len(span.value)))
        else:
            now = inside.get("_tags", {}).get(int(span.name)) if span.type == "tag" else inside.get(span.name)
            if isinstance(now, Redacted):
                walked.spans[index] = span._replace(value=now)


def is_cluster_metadata(body: Body) -> bool:
    """Whether a struct belongs to the topic ``__cluster_metadata``, by name or by ID."""
    return any(body.get(key) in _CLUSTER_METADATA for key in ("topic", "name", "topic_id"))


@cache
def _leads_to(field: Field, roles: tuple[str, ...]) -> bool:
    return field.role in roles or any(_leads_to(each, roles) for each in field.fields)


def _redact(fields: tuple[Field, ...], body: Body, *, inherited: bool) -> None:
    sensitive = inherited or (any(field.role == CONFIG for field in fields) and _is_sensitive_entry(body))
    for field in fields:
        value = body.get(field.name)
        if value is None or isinstance(value, Embedded) or not _leads_to(field, _ROLES):
            continue
        if field.fields:
            for struct in value if field.array else (value,):
                _redact(field.fields, struct, inherited=sensitive)
        elif field.role != CONFIG or sensitive:
            body[field.name] = Redacted(_length(value))
    if "_tags" in body:
        body["_tags"] = {tag: Redacted(len(raw)) for tag, raw in body["_tags"].items()}


def _is_sensitive_entry(body: Body) -> bool:
    """Whether a struct with a config value is a sensitive config. Without a name it is assumed to be."""
    name = next((body[key] for key in ("name", "key") if isinstance(body.get(key), str)), None)
    return bool(body.get("is_sensitive")) or name is None or is_sensitive_config(name)


def _length(value: str | bytes) -> int:
    return len(value.encode(errors="replace")) if isinstance(value, str) else len(value)


# ------------------------------------------------------------------------------------------------------------
# The name of a config -> whether its value is a credential, by sensitive.txt: read on first use and cached.
# ------------------------------------------------------------------------------------------------------------


_CACHED_CHARACTERS = 256  # of a name


def is_sensitive_config(name: str) -> bool:
    """Whether values of this config are redacted, even if the broker does not mark it as sensitive."""
    return (_is_sensitive if len(name) <= _CACHED_CHARACTERS else _is_sensitive.__wrapped__)(name)


@lru_cache(1024)
def _is_sensitive(name: str) -> bool:
    plain = name.lower().replace("-", ".").replace("_", ".")
    sensitive, harmless = _patterns()
    return sensitive.match(plain) is not None and harmless.match(plain) is None


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    patterns = lines("sensitive.txt")
    harmless = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    return _any_of([pattern for pattern in patterns if not pattern.startswith("!")]), _any_of(harmless)


def _any_of(patterns: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)))
