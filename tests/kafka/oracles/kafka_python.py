"""kafka-python's message classes: those made from Kafka's schema files, and its older hand-written ones."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from typing import TYPE_CHECKING, Any

from kdissect.kafka import schema

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its import uses importlib.resources.read_text
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.metadata
    import kafka.protocol.old
    import kafka.protocol.producer
    import kafka.protocol.sasl
    from kafka.protocol.api_data import ApiData
    from kafka.protocol.api_message import ApiMessage
    from kafka.protocol.old.api import Request, Response
    from kafka.protocol.old.types import Schema

    for _module in pkgutil.iter_modules(kafka.protocol.old.__path__):
        importlib.import_module(f"kafka.protocol.old.{_module.name}")

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.kafka.schema import Message


def schema_classes() -> list[Any]:
    """Requests, responses and consumer protocol messages; not their per-version wrappers."""
    messages = [cls for cls in _subclasses(ApiMessage) if cls._class_version is None]
    embedded = [cls for cls in _subclasses(ApiData) if cls.__name__.startswith("ConsumerProtocol")]
    return sorted(messages + embedded, key=lambda cls: cls.__name__)


def old_classes() -> list[Any]:
    """One class for each version; not the abstract ones."""
    result = {
        cls for base in (Request, Response) for cls in _subclasses(base) if isinstance(cls.SCHEMA, Schema)
    }
    return sorted(result, key=lambda cls: cls.__name__)


def class_versions(cls: Any) -> range:
    """The versions that a class made from a schema file knows."""
    first, last = cls._valid_versions
    return range(first, last + 1)


def is_embedded(cls: Any) -> bool:
    return not hasattr(cls, "API_KEY")


def our_message(cls: Any) -> Message:
    """Our schema's message for one of their classes."""
    if is_embedded(cls):
        return schema.embedded(cls.__name__)
    is_request = issubclass(cls, Request) or (issubclass(cls, ApiMessage) and cls.is_request())
    message = schema.request(cls.API_KEY) if is_request else schema.response(cls.API_KEY)
    assert message is not None
    return message


def _subclasses(cls: Any) -> Iterator[Any]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)
