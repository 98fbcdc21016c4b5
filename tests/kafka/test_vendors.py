"""APIs of other vendors: which keys are theirs, and whose they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdissect.kafka import apis, vendors

if TYPE_CHECKING:
    from collections.abc import Collection

KAFKA = range(95)


@pytest.mark.parametrize(
    ("advertised", "vendor"),
    [
        ((), None),
        (range(501, 517), "AutoMQ"),
        ((501, 502, 503, 504), "AutoMQ"),
        ((*range(501, 517), 10000, 10020), "AutoMQ"),
        ((*range(501, 517), 519, 522, 620), "AutoMQ"),
        ((501, 502), "Inkless"),
        ((500, 501, 502), "Inkless"),
        ((500,), "Inkless"),
        ((512,), None),  # AutoMQ's brokers have more
        ((500, 501, 503, 512), None),
        ((550, 551), None),
        ((621, 9999, 20001), None),
        ((15000,), "Redpanda"),
        ((15000, 15001), "Redpanda"),
        ((10000, 10001), "Confluent"),
        ((10000, 15000), "Confluent"),
        ((20000,), "Confluent"),
    ],
)
def test_advertised_keys_show_the_vendor(advertised: Collection[int], vendor: str | None) -> None:
    assert vendors.vendor_of([*KAFKA, *advertised]) == vendor


@pytest.mark.parametrize(
    ("api_key", "vendor", "name"),
    [
        (501, "AutoMQ", "AutoMQ CreateStreams"),
        (501, "Inkless", "Inkless AlterDisklessSwitch"),
        (501, None, "vendor API 501"),
        (501, "Confluent", "vendor API 501"),
        (517, "AutoMQ", "AutoMQ 517"),
        (503, "Inkless", "Inkless 503"),
        (10000, "AutoMQ", "AutoMQ DescribeAutoBalancerDecisionTrace"),
        (10000, None, "Confluent 10000"),
        (10007, "AutoMQ", "AutoMQ 10007"),
        (15000, None, "Redpanda DescribeRedpandaRoles"),
        (15001, None, "Redpanda 15001"),
        (15001, "Confluent", "Confluent 15001"),
        (20000, "Confluent", "Confluent 20000"),
        (499, "AutoMQ", None),
        (621, "AutoMQ", None),
        (9999, "Confluent", None),
        (20001, "Confluent", None),
        (-1, None, None),
        (24706, None, None),  # the first bytes of a SASL token
    ],
)
def test_the_name_of_an_api(api_key: int, vendor: str | None, name: str | None) -> None:
    assert vendors.name(api_key, vendor) == name
    assert vendors.is_vendor_key(api_key) == (name is not None)
    if name is not None:
        assert name in vendors.names_of(api_key)
        assert vendors.find(name) == [name]
        assert name in vendors.find(str(api_key))


def test_what_the_user_may_write() -> None:
    assert vendors.find("automq-create-streams") == ["AutoMQ CreateStreams"]
    assert vendors.find("AUTOMQ 517") == ["AutoMQ 517"]
    assert vendors.find("automq-501") == ["AutoMQ CreateStreams"]
    assert vendors.find("inkless 501") == ["Inkless AlterDisklessSwitch"]
    assert vendors.find("505") == ["vendor API 505", "AutoMQ PrepareS3Object", "Inkless 505"]
    assert vendors.find("Fetch") == vendors.find("1") == vendors.find("automq 621") == []


def test_every_api_names_its_source() -> None:
    listed = vendors.vendor_apis()
    assert len({(api.vendor, api.key) for api in listed}) == len(listed)
    for api in listed:
        assert vendors.name(api.key, api.vendor) == api.name
        assert "/" in api.source
        assert apis.by_key(api.key) is None
    assert [api.name for api in vendors.vendor_apis("15000")] == ["Redpanda DescribeRedpandaRoles"]
    assert {api.vendor for api in vendors.vendor_apis("501")} == {"AutoMQ", "Inkless"}
    assert {api.vendor for api in vendors.vendor_apis("automq")} == {"AutoMQ"}
