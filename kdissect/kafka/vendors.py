"""vendors.tsv -> the APIs that brokers of other vendors have besides Kafka's. Read on first use and cached.

Their keys are numbers that Kafka does not use. AutoMQ and Inkless use the same ones for different APIs: the
keys that a broker advertises in ApiVersions tell them apart. The table has the names in the sources of these
vendors. Where these are not public, or have several APIs of the same number, the number is the name. Bodies
are not decoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

from kdissect.kafka.apis import by_key, plain, version_range
from kdissect.kafka.codes import rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from kdissect.kafka.schema import Versions

AUTOMQ, INKLESS, CONFLUENT, REDPANDA = "AutoMQ", "Inkless", "Confluent", "Redpanda"
VENDORS = (AUTOMQ, INKLESS, CONFLUENT, REDPANDA)
UNKNOWN = "vendor API"
"""The name of an API, before its number, if the vendor is not known."""

_SHARED = range(500, 621)  # of AutoMQ and Inkless
_REDPANDA = range(15_000, 16_000)  # redpanda_api_key_base, in Redpanda's kafka/protocol/types.h
_OTHERS = range(10_000, 20_001)  # besides Redpanda's, Confluent's: github.com/grepplabs/kafka-proxy/pull/185
_BEGINNINGS = tuple(map(plain, (*VENDORS, UNKNOWN)))


@dataclass(frozen=True, slots=True)
class VendorApi:
    """One API.

    Attributes:
        name: with the vendor's.
        versions: those in the source.
        source: repository and file that define it.
    """

    vendor: str
    key: int
    name: str
    versions: Versions
    source: str


def is_vendor_key(api_key: int) -> bool:
    """Whether this can be the key of a vendor's API."""
    return api_key in _SHARED or api_key in _OTHERS


def vendor_of(advertised: Collection[int]) -> str | None:
    """The vendor of a broker that advertises these API keys. None: Kafka's only, or not known."""
    keys = {key for key in advertised if is_vendor_key(key)}
    automq, inkless = (keys & _named()[vendor].keys() & {*_SHARED} for vendor in (AUTOMQ, INKLESS))
    if automq or inkless:
        if automq <= inkless:  # AutoMQ's brokers have more than these
            return INKLESS
        return AUTOMQ if inkless <= automq and len(automq) > 1 else None
    keys -= {*_SHARED}
    if not keys:
        return None
    return REDPANDA if keys <= {*_REDPANDA} else CONFLUENT


def name(api_key: int, vendor: str | None = None) -> str | None:
    """The name of an API, with its vendor: ``AutoMQ CreateStreams``, ``AutoMQ 517``, ``vendor API 505``. None
    if it is not a vendor's.

    Args:
        api_key: its key.
        vendor: of the broker. None: not known.
    """
    if api_key in _SHARED:
        vendor = vendor if vendor in (AUTOMQ, INKLESS) else None
    elif api_key in _OTHERS:
        vendor = vendor or (REDPANDA if api_key in _REDPANDA else CONFLUENT)
    else:
        return None
    if vendor is None:
        return f"{UNKNOWN} {api_key}"
    api = _named()[vendor].get(api_key)
    return f"{vendor} {api_key}" if api is None else api.name


def api_name(api_key: int, vendor: str | None = None) -> str | None:
    """The name of an API of Kafka or of a vendor. None if it is not known."""
    api = by_key(api_key)
    return name(api_key, vendor) if api is None else api.name


def names() -> Iterator[str]:
    """All names that APIs can have."""
    for api_key in chain(_SHARED, _OTHERS):
        yield from names_of(api_key)


def names_of(api_key: int) -> list[str]:
    """The names that the API with this key can have."""
    each = (name(api_key, vendor) for vendor in (None, *VENDORS))
    return list(dict.fromkeys(text for text in each if text is not None))


def find(text: str) -> list[str]:
    """The names of APIs that the user named: ``AutoMQ CreateStreams``, ``automq-create-streams``, ``automq
    517``, or ``505``, which several vendors have. Empty: it is not a vendor's.
    """
    if text.isdecimal():
        return names_of(int(text))
    query = plain(text)
    for vendor in VENDORS:
        key = query.removeprefix(plain(vendor))
        if key != query and key.isdecimal():
            return [each for each in names_of(int(key)) if each.startswith(vendor)]
    return [each for each in names() if plain(each) == query] if query.startswith(_BEGINNINGS) else []


def vendor_apis(text: str | None = None) -> list[VendorApi]:
    """The APIs with known names, by vendor and key: all, or those whose name, key or vendor is ``text``."""
    every = [api for named in _named().values() for api in named.values()]
    if text is None:
        return every
    query = plain(text)
    return [api for api in every if query in (plain(api.name), str(api.key), plain(api.vendor))]


@cache
def _named() -> dict[str, dict[int, VendorApi]]:
    named: dict[str, dict[int, VendorApi]] = {vendor: {} for vendor in VENDORS}
    for row in rows("vendors.tsv"):
        key = int(row["key"])
        vendor, versions = row["vendor"], version_range(row["versions"])
        named[vendor][key] = VendorApi(vendor, key, f"{vendor} {row['name']}", versions, row["source"])
    return named
