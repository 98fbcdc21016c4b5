"""16 bytes <-> a uuid in Kafka's text form: url-safe base64 without padding, 22 characters.

A capture names the same few topics again and again, so the latest translations are kept: 4096 of them, about
1 MB.
"""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from functools import lru_cache

ZERO = "A" * 22
"""The uuid of no topic at all: sixteen zero bytes."""

_KEPT = 4096


@lru_cache(_KEPT)
def uuid_text(raw: bytes) -> str:
    """Kafka's text form of 16 bytes."""
    return urlsafe_b64encode(raw).decode("ascii").rstrip("=")


@lru_cache(_KEPT)
def uuid_bytes(text: str) -> bytes:
    """The 16 bytes behind Kafka's text form.

    Raises:
        ValueError: the text is not a uuid in that form.
    """
    try:
        raw = b64decode(f"{text}==", altchars=b"-_", validate=True)
    except ValueError:
        raw = b""
    if len(raw) != 16:
        raise ValueError(f"{text!r} is no uuid in Kafka's form: 22 characters of url-safe base64")
    return raw
