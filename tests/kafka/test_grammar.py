from __future__ import annotations

import re

import pytest

from kdissect.kafka import schema
from kdissect.kafka.apis import find
from kdissect.kafka.grammar import grammar


def request(name: str, version: int) -> str:
    message = schema.request(find(name).key)
    assert message is not None
    return grammar(message, version)


def response(name: str, version: int) -> str:
    message = schema.response(find(name).key)
    assert message is not None
    return grammar(message, version)


def test_fetch_request_13() -> None:
    assert request("Fetch", 13) == (
        "Fetch Request (Version: 13) => replica_id max_wait_ms min_bytes max_bytes isolation_level session_id"
        " session_epoch [topics] [forgotten_topics_data] rack_id TAG_BUFFER\n"
        "  replica_id => INT32\n"
        "  max_wait_ms => INT32\n"
        "  min_bytes => INT32\n"
        "  max_bytes => INT32\n"
        "  isolation_level => INT8\n"
        "  session_id => INT32\n"
        "  session_epoch => INT32\n"
        "  topics => topic_id [partitions] TAG_BUFFER\n"
        "    topic_id => UUID\n"
        "    partitions => partition current_leader_epoch fetch_offset last_fetched_epoch log_start_offset"
        " partition_max_bytes TAG_BUFFER\n"
        "      partition => INT32\n"
        "      current_leader_epoch => INT32\n"
        "      fetch_offset => INT64\n"
        "      last_fetched_epoch => INT32\n"
        "      log_start_offset => INT64\n"
        "      partition_max_bytes => INT32\n"
        "  forgotten_topics_data => topic_id [partitions] TAG_BUFFER\n"
        "    topic_id => UUID\n"
        "    partitions => INT32\n"
        "  rack_id => COMPACT_STRING\n"
        "  cluster_id<tag: 0> => COMPACT_NULLABLE_STRING"
    )


def test_old_version_has_neither_compact_types_nor_tags() -> None:
    assert request("Produce", 3) == (
        "Produce Request (Version: 3) => transactional_id acks timeout_ms [topic_data]\n"
        "  transactional_id => NULLABLE_STRING\n"
        "  acks => INT16\n"
        "  timeout_ms => INT32\n"
        "  topic_data => name [partition_data]\n"
        "    name => STRING\n"
        "    partition_data => index records\n"
        "      index => INT32\n"
        "      records => RECORDS"
    )


def test_message_without_fields() -> None:
    assert request("ListGroups", 0) == "ListGroups Request (Version: 0) =>"
    assert request("ListGroups", 3) == "ListGroups Request (Version: 3) => TAG_BUFFER"


def test_tagged_structs_and_arrays_come_last() -> None:
    lines = response("Produce", 10).split("\n")
    assert lines[0] == "Produce Response (Version: 10) => [responses] throttle_time_ms TAG_BUFFER"
    assert lines[-5:] == [
        "  [node_endpoints]<tag: 0> => node_id host port rack TAG_BUFFER",
        "    node_id => INT32",
        "    host => COMPACT_STRING",
        "    port => INT32",
        "    rack => COMPACT_NULLABLE_STRING",
    ]


def test_headers() -> None:
    assert grammar(schema.header("RequestHeader"), 2) == (
        "Request Header (Version: 2) => request_api_key request_api_version correlation_id client_id"
        " TAG_BUFFER\n"
        "  request_api_key => INT16\n"
        "  request_api_version => INT16\n"
        "  correlation_id => INT32\n"
        "  client_id => NULLABLE_STRING"
    )


def test_draft_says_whose_it_is() -> None:
    message = schema.response(68)
    assert message is not None
    text = grammar(message, 0, message.drafts[0])
    assert text.startswith(
        "ConsumerGroupHeartbeat Response (Version: 0, draft of 3.5-3.6) => throttle_time_ms"
    )


def test_version_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="FetchRequest has no version 19"):
        request("Fetch", 19)


def test_every_layout_is_printed_with_every_name_explained() -> None:
    for name in schema.file_names():
        for message in schema.parse(schema.file_text(name), name).messages:
            for version in range(message.versions.first, message.versions.last + 1):
                head, *lines = grammar(message, version).split("\n")
                names = re.findall(r"[a-z]\w*", head.partition("=>")[2])
                assert names == [line.split()[0] for line in lines if re.match(r"  \w+ ", line)], (
                    f"{message.name} v{version}"
                )
