"""Who uses which version, and what newer brokers refuse: the part of the document for ``--versions``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  (the JSON Schema is made from the annotations)

from kdissect.analysis.summary.fields import told


@dataclass(slots=True, kw_only=True)
class UsedRow:
    """A version of an api that a client uses."""

    client: str = told("Client id, or the address of a client that told none.")
    software: str | None = told("Name and version of its library, where ApiVersions told it.")
    addresses: list[str] = told("Where from: at most 20 addresses.")
    api: str = told("The api.")
    api_key: int = told("Its key.")
    version: int = told("The version of the requests.")
    since: str | None = told("The release of Apache Kafka that brought this version.")
    removed: str | None = told("The release from which on brokers refuse it; null where today's take it.")
    count: int = told("How many requests.")
    first: datetime = told("Time of the first.")
    last: datetime = told("Time of the last.")
    example: str = told("CONNECTION/NUMBER of the first, for `read --exchange`.")


@dataclass(slots=True, kw_only=True)
class OfferRow:
    """An api that a broker offers."""

    broker: str = told("Address and port.")
    release: str | None = told("Which Kafka the broker is, guessed from all that it offers.")
    api: str = told("The api, or its key where it is newer than this program.")
    api_key: int = told("Its key.")
    first_version: int = told("First version that the broker takes.")
    last_version: int = told("Last version that it takes.")
    used: list[int] = told("Versions that were used with this broker; empty: nobody uses the api.")


@dataclass(slots=True, kw_only=True)
class VersionsPart:
    """The audit before an upgrade."""

    refused: int = told("Rows of `used` whose version a newer release refuses.")
    used: list[UsedRow] = told("What clients use; what will break first.")
    offered: list[OfferRow] = told("What brokers offer.")
