from __future__ import annotations

import pytest

from kdissect.errors import DecodeError
from kdissect.kafka.headers import (
    is_flexible,
    read_correlation_id,
    read_request_header,
    response_body_pos,
    response_header_version,
)
from tests.frames import request_payload


@pytest.mark.parametrize(
    ("api_key", "version", "header"),
    [
        (7, 0, "00070000 00000001"),  # ControlledShutdown v0: no client ID
        (7, 1, "00070001 00000001 0001 63"),
        (17, 1, "00110001 00000001 0001 63"),  # SaslHandshake is never flexible
        (12, 3, "000c0003 00000001 0001 63"),
        (12, 4, "000c0004 00000001 0001 63 00"),  # flexible: a tag buffer behind the client ID
        (18, 3, "00120003 00000001 0001 63 00"),
    ],
)
def test_the_header_version_follows_from_api_and_version(api_key: int, version: int, header: str) -> None:
    data = bytes.fromhex(header)
    result = read_request_header(data + b"body")
    assert result.body_pos == len(data)
    assert (result.api_key, result.api_version, result.correlation_id) == (api_key, version, 1)
    assert result.client_id == (None if (api_key, version) == (7, 0) else "c")


def test_a_null_client_id() -> None:
    assert read_request_header(request_payload(12, 4, client_id=None)).client_id is None


def test_response_headers_are_flexible_with_the_body_but_for_api_versions() -> None:
    assert response_header_version(12, 3) == 0
    assert response_header_version(12, 4) == 1
    assert response_header_version(18, 3) == 0
    assert response_header_version(120, 0) == 1  # an api of tomorrow
    assert response_body_pos(b"\0\0\0\1\0body", 12, 4) == 5
    assert response_body_pos(b"\0\0\0\1body", 18, 4) == 4


def test_versions_newer_than_ours_are_flexible_where_the_api_became_so() -> None:
    assert is_flexible(1, 40)
    assert not is_flexible(17, 9)


@pytest.mark.parametrize("end", range(20))
def test_a_truncated_header_is_decoded_as_far_as_possible(end: int) -> None:
    data = bytes.fromhex("000c0004 00000001 0005") + b"hello" + b"\0"
    if end < 8:
        with pytest.raises(DecodeError):
            read_request_header(data[:end])
    else:
        result = read_request_header(data[:end])
        assert (result.api_key, result.correlation_id) == (12, 1)
        assert result.body_pos == (-1 if end < len(data) else len(data))


def test_correlation_ids_are_signed_and_may_be_missing() -> None:
    assert read_correlation_id(b"\xff\xff\xff\xfe") == -2
    assert read_correlation_id(b"\0\0\0") is None
