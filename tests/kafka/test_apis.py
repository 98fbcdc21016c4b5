from __future__ import annotations

import pytest

from kdissect.errors import UsageError
from kdissect.kafka.apis import all_apis, by_key, find


def test_all_95_apis_by_key() -> None:
    assert [api.key for api in all_apis()] == list(range(95))


def test_every_version_was_introduced_once() -> None:
    for api in all_apis():
        versions = list(range(api.versions.first, api.versions.last + 1))
        assert list(api.introduced) == versions, api.name
        assert set(api.removed) <= set(versions)
        assert set(api.unstable) <= set(versions)
        assert set(api.restored) <= set(api.removed)


@pytest.mark.parametrize(
    "text",
    [
        "FindCoordinator",
        "find-coordinator",
        "FIND_COORDINATOR",
        "findcoordinator",
        "find coordinator",
        "10",
        "ConsumerMetadata",
        "group-coordinator",
    ],
)
def test_find_takes_what_people_write(text: str) -> None:
    assert find(text).name == "FindCoordinator"


def test_find_takes_every_name_and_former_name() -> None:
    for api in all_apis():
        assert find(api.name) is find(str(api.key)) is by_key(api.key)
        for former in api.former_names:
            assert find(former) is api


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fethc", 'unknown API "fethc"; did you mean "Fetch"?'),
        ("TopicMetadta", 'unknown API "TopicMetadta"; did you mean "Metadata"?'),
        ("95", 'unknown API "95"; kdissect apis lists them (keys 0 to 94)'),
        ("-1", 'unknown API "-1"; kdissect apis lists them (keys 0 to 94)'),
        ("", 'unknown API ""; kdissect apis lists them (keys 0 to 94)'),
    ],
)
def test_find_names_the_nearest(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        find(text)
    assert str(caught.value) == message


def test_unknown_key() -> None:
    assert by_key(95) is None
    assert by_key(-1) is None


def test_history_of_an_api() -> None:
    fetch = find("Fetch")
    assert (fetch.introduced[13], fetch.removed[3], fetch.flexible) == ("3.1", "4.0.0", 12)
    assert 4 not in fetch.removed
    assert find("OffsetCommit").unstable == {9: "3.6", 10: "4.1"}
    assert find("InitProducerId").unstable[6] == "4.1..4.5-trunk"
    join = find("JoinGroup")
    assert (join.removed, join.restored) == ({0: "4.0.0", 1: "4.0.0"}, {0: "4.0.1", 1: "4.0.1"})


def test_apis_that_kafka_4_does_not_have_any_more() -> None:
    removed = [
        api.name
        for api in all_apis()
        if set(range(api.versions.first, api.versions.last + 1)) <= api.removed.keys() - api.restored.keys()
    ]
    assert removed == ["LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown"]
