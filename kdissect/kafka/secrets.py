"""A decoded body -> the same body with its credentials replaced by ``Redacted``.

The schema identifies credentials: role ``secret`` (tokens, salts, hashes, HMACs), and role ``config`` for the
value of a config, which is a credential if the message says so (``is_sensitive``) or if its name is on the
list in sensitive.txt. Bodies of APIs that carry any of these are never shown as raw bytes either, nor are
undecodable bytes that could belong to such an API: a damaged message must not leak a credential.
"""

from __future__ import annotations

import re
from fnmatch import translate
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from kdissect.kafka import schema
from kdissect.kafka.codes import lines
from kdissect.model import Embedded, Redacted

if TYPE_CHECKING:
    from kdissect.kafka.schema import Field, Message
    from kdissect.kafka.walker import Walk
    from kdissect.model import Body


SECRET = "secret"
CONFIG = "config"
ENVELOPE = ("envelope_request", "envelope_response")
_ROLES = (SECRET, CONFIG, *ENVELOPE)

# KIP-516 reserves the ID.
_CLUSTER_METADATA = ("__cluster_metadata", "AAAAAAAAAAAAAAAAAAAAAQ")

# Records of __cluster_metadata contain SCRAM credentials, delegation tokens and configs. These APIs carry
# them.
FETCH = 1
FETCH_SNAPSHOT = 59
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
    """Whether undecoded bytes of the API's bodies are redacted. True for an unknown API (None)."""
    if api_key is None or api_key in _CARRIES_RECORDS:
        return True
    messages = (schema.request(api_key), schema.response(api_key))
    return any(message is not None and carries_secrets(message) for message in messages)


def redact(message: Message, body: Body) -> None:
    """Redact every credential in ``body``, in place. Accepts partial bodies. Unknown tags beside a credential
    are redacted too.
    """
    if carries_secrets(message):
        _redact(message.fields, body, inherited=False)


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
