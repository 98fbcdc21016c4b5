from __future__ import annotations

import pytest

from kdissect.errors import UsageError
from kdissect.query.filters import parse_port_rule, parse_ports


def test_ports_one_by_one_and_as_ranges() -> None:
    assert parse_ports("9092, 9192-9194") == {9092, 9192, 9193, 9194}
    assert parse_port_rule("tcp.port==9093,kafka") == parse_port_rule("9093") == {9093}


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_ports, "kafka", 'invalid port "kafka": use '),
        (parse_ports, "9095-9092", 'invalid port "9095-9092": use '),
        (parse_ports, "65536", 'invalid port "65536": use '),
        (parse_port_rule, "udp.port==53", 'invalid rule "udp.port==53": use '),
        (parse_port_rule, "9093,http", 'unsupported protocol "http": use '),
    ],
)
def test_invalid_values_are_reported(parse: object, text: str, message: str) -> None:
    assert callable(parse)
    with pytest.raises(UsageError, match=message):
        parse(text)
