"""Facts -> API versions that clients use, and those that newer Kafka releases reject.

Kafka 4.0 removed the versions used by clients older than 2.1 (KIP-896). They are read from kafka/apis.tsv,
not from a broker's ApiVersions: 4.0 advertises Produce 0 to 2 but rejects them (KAFKA-18659).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kdissect.kafka import apis
from kdissect.kafka.vendors import api_name, vendor_of
from kdissect.stats import releases
from kdissect.stats.cluster import Cluster
from kdissect.stats.contents import EACH, SUM, SUMS
from kdissect.stats.document import AdvertisedRow, UsedRow, VersionsPart
from kdissect.stats.quantiles import Bounded, Distinct, other_counts
from kdissect.stats.rows import row_of
from kdissect.stats.sums import Summed, joined, merged, own, summed
from kdissect.stats.traffic import Failures, united

if TYPE_CHECKING:
    from kdissect.limits import Limits
    from kdissect.stats.tallies import Alike, Tally


class Usage(NamedTuple):
    """A version that a client uses."""

    client: str
    software: str | None
    api: str
    api_key: int
    version: int
    cluster_id: str | None


@summed
class Uses(Failures):
    """How often, and from which addresses."""

    addresses: Distinct = merged(Distinct)

    def add_sum(self, tally: Alike) -> None:
        """Count exchanges that are alike."""
        self.count += tally.exchanges
        self.first = min(self.first, tally.first[0])
        self.last_ns = max(self.last_ns, tally.last_ns or 0)


@summed
class UsedVersions(Summed):
    """API keys and versions of requests to a broker."""

    versions: set[tuple[int, int]] = joined(set.union, set)


@summed
class VersionUse(Summed):
    """Versions in use, and versions that brokers support."""

    _uses: Bounded[Usage, Uses] = merged()
    _by_broker: Bounded[str, UsedVersions] = merged()
    _cluster: Cluster = merged()
    _max_rows: int = own()

    takes = EACH | SUMS

    def __init__(self, limits: Limits) -> None:
        self._uses = Bounded(limits.summary_rows, Uses)
        self._by_broker = Bounded(limits.summary_rows, UsedVersions)
        self._cluster = Cluster(limits)
        self._max_rows = limits.summary_rows

    def feed(self, tally: Tally) -> None:
        """Take the versions that a broker supports; of sums, those in use."""
        if tally.exchange is None and tally.form == SUM:
            self._use(tally)
        else:
            self._cluster.feed(tally)

    def _use(self, tally: Alike) -> None:
        keys = tally.keys
        if keys.api_key is None or keys.api_version is None or not keys.has_request:
            return
        software = None if not keys.software else f"{keys.software} {keys.software_version or ''}".rstrip()
        cluster_id = tally.connection.cluster_id
        usage = Usage(tally.client, software, keys.api, keys.api_key, keys.api_version, cluster_id)
        uses = self._uses[usage]
        uses.add_sum(tally)
        uses.addresses.add(tally.connection.client.ip)
        used = self._by_broker[tally.broker].versions
        if len(used) < self._max_rows:
            used.add((keys.api_key, keys.api_version))

    def rows(self) -> VersionsPart:
        """Versions that will be rejected first, then by client."""
        used = [self._used(usage, uses) for usage, uses in united(self._uses).items()]
        used.sort(
            key=lambda row: (
                *(row.removed is None, row.client, row.software or "", row.api_key, row.version),
                row.cluster_id or "",
            )
        )
        advertised = [row for broker in sorted(self._cluster.offers) for row in self._advertised(broker)]
        rejected = sum(1 for row in used if row.removed is not None)
        return VersionsPart(rejected=rejected, used=used, advertised=advertised)

    def other_counts(self) -> dict[str, int]:
        """Requests without their own row."""
        return other_counts(versions=(self._uses, "count"))

    def _used(self, usage: Usage, uses: Uses) -> UsedRow:
        api = apis.by_key(usage.api_key)
        return row_of(
            UsedRow,
            uses,
            client=usage.client,
            software=usage.software,
            api=usage.api,
            api_key=usage.api_key,
            version=usage.version,
            cluster_id=usage.cluster_id,
            since=None if api is None else api.introduced.get(usage.version),
            removed=releases.removed_in(usage.api_key, usage.version),
        )

    def _advertised(self, broker: str) -> list[AdvertisedRow]:
        offers = self._cluster.offers[broker]
        release = releases.guess(offers)
        vendor = vendor_of(offers)
        used = self._by_broker[broker].versions if broker in self._by_broker else set()
        return [
            AdvertisedRow(
                broker=broker,
                cluster_id=self._cluster.clusters.get(broker),
                release=release,
                api=api_name(key, vendor) or f"api {key}",
                api_key=key,
                min_version=first,
                max_version=last,
                used=sorted(version for api_key, version in used if api_key == key),
            )
            for key, (first, last) in sorted(offers.items())
        ]
