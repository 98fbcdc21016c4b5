"""apis.tsv -> the APIs, their versions and the Kafka releases that had them. Read on first use and cached."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from kdissect.errors import UsageError
from kdissect.kafka.codes import rows
from kdissect.kafka.schema import Versions
from kdissect.nearest import did_you_mean


@dataclass(frozen=True, slots=True)
class Api:
    """One API.

    Attributes:
        name: current name, such as ``FindCoordinator``.
        former_names: names in earlier releases, oldest first.
        versions: all that ever existed, the same for request and response.
        flexible: first version with compact lengths and tag buffers. None: no version has them.
        listeners: the processes that serve it: broker, controller, zkBroker (a broker in ZooKeeper mode, gone
            in 4.0).
        introduced: version -> release that introduced it.
        unstable: version -> releases (``3.5..3.6``) that served it only with unstable versions enabled.
        removed: version -> release that removed it, even if a later one restored it.
        restored: version -> release that restored it.
    """

    key: int
    name: str
    former_names: tuple[str, ...]
    versions: Versions
    flexible: int | None
    listeners: tuple[str, ...]
    introduced: dict[int, str]
    unstable: dict[int, str]
    removed: dict[int, str]
    restored: dict[int, str]


def all_apis() -> tuple[Api, ...]:
    """All APIs, by key."""
    return tuple(api for api in map(by_key, _rows()) if api)


def names() -> list[str]:
    """The names of all APIs, by key."""
    return [api.name for api in all_apis()]


@cache
def by_key(key: int) -> Api | None:
    """The API with this key. None if it is newer than kdissect."""
    row = _rows().get(key)
    return None if row is None else _api(row)


def find(text: str) -> Api:
    """The API that the user named: ``FindCoordinator``, ``find-coordinator``, ``10``, or a former name.

    Raises:
        UsageError: no such API. The message suggests the nearest name.
    """
    query = plain(text)
    names = _by_name()
    if query not in names or text.startswith("-"):  # -1 is not a key; inside names dashes are ignored
        hint = "" if query.isdecimal() else did_you_mean(text, [api.name for api in all_apis()])
        hint = hint or f"; kdissect apis lists them (keys 0 to {max(_rows())})"
        raise UsageError(f'unknown API "{text}"{hint}')
    return names[query]


@cache
def _rows() -> dict[int, dict[str, str]]:
    return {int(row["key"]): row for row in rows("apis.tsv")}


@cache
def _by_name() -> dict[str, Api]:
    names = {plain(name): api for api in all_apis() for name in api.former_names}
    names |= {str(api.key): api for api in all_apis()}
    return names | {plain(api.name): api for api in all_apis()}


def plain(text: str) -> str:
    """A name as it is compared: letters and digits, in lower case."""
    return "".join(filter(str.isalnum, text)).lower()


def _api(row: dict[str, str]) -> Api:
    return Api(
        key=int(row["key"]),
        name=row["name"],
        former_names=tuple(name.partition("(")[0] for name in row["former_names"].split()),
        versions=version_range(row["versions"]),
        flexible=int(row["flexible"]) if row["flexible"] else None,
        listeners=tuple(row["listeners"].split()),
        introduced=_releases(row["introduced"]),
        unstable=_releases(row["unstable"]),
        removed=_releases(row["removed"]),
        restored=_releases(row["restored"]),
    )


def version_range(text: str) -> Versions:
    """Read ``0-3`` or ``7``."""
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


def _releases(text: str) -> dict[int, str]:
    """Read ``0-2@4.0.0 3@4.1`` as {0: "4.0.0", ..., 3: "4.1"}."""
    releases: dict[int, str] = {}
    for item in text.split():
        versions, _, release = item.partition("@")
        first, last = version_range(versions)
        releases |= dict.fromkeys(range(first, last + 1), release)
    return releases
