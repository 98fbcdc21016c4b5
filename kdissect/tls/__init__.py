"""The bytes of a TLS connection and the secrets of a key log -> the bytes that passed inside."""

from __future__ import annotations

from importlib.util import find_spec


def can_decrypt() -> bool:
    """Whether the library for decryption is installed."""
    return find_spec("cryptography") is not None
