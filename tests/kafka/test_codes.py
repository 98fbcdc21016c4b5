from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from kdissect.errors import UsageError
from kdissect.kafka import schema
from kdissect.kafka.codes import all_errors, enum_name, error_code, error_name, rows


def test_error_codes_agree_with_kio() -> None:
    theirs = {code.value: (code.name.upper(), code.retriable) for code in ErrorCode}
    ours = {error.code: (error.name, error.retriable) for error in all_errors()}
    common = set(theirs) & set(ours)
    assert {code: ours[code] for code in common} == {code: theirs[code] for code in common}
    assert len(common) == 135
    assert set(theirs) <= set(ours)


def test_names_of_error_codes() -> None:
    assert error_name(0) == "NONE"
    assert error_name(-1) == "UNKNOWN_SERVER_ERROR"
    assert error_name(6) == "NOT_LEADER_OR_FOLLOWER"
    assert error_name(1234) == "UNKNOWN_ERROR_1234"
    assert error_name(-7) == "UNKNOWN_ERROR_-7"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("NOT_LEADER_OR_FOLLOWER", 6),
        ("not-leader-or-follower", 6),
        ("NOT_LEADER_FOR_PARTITION", 6),
        ("6", 6),
        ("-1", -1),
        ("UNKNOWN_ERROR_1234", 1234),
        ("UNKNOWN_ERROR_-7", -7),
    ],
)
def test_error_code_takes_what_people_write(name: str, code: int) -> None:
    assert error_code(name) == code


def test_every_name_leads_back_to_its_code() -> None:
    for error in all_errors():
        assert error_code(error.name) == error.code
        assert error_code(error_name(error.code)) == error.code


def test_unknown_error_name_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        error_code("NOT_LEADER_OR_FOLOWER")
    assert str(caught.value) == (
        'unknown error "NOT_LEADER_OR_FOLOWER"; did you mean "NOT_LEADER_OR_FOLLOWER"?'
    )


@pytest.mark.parametrize(
    ("message", "path", "value", "name"),
    [
        ("DescribeAclsRequest", "operation", 3, "READ"),
        ("ProduceRequest", "acks", -1, "ALL_ISR"),
        ("FetchRequest", "isolation_level", 1, "READ_COMMITTED"),
        ("ListOffsetsRequest", "topics.partitions.timestamp", -2, "EARLIEST"),
        ("ListOffsetsRequest", "topics.partitions.timestamp", 1700000000000, None),
        ("FindCoordinatorRequest", "key_type", 1, "TRANSACTION"),
        ("FetchRequest", "max_bytes", 1, None),
        ("NoSuchMessage", "key", 0, None),
    ],
)
def test_names_of_enumerated_values(message: str, path: str, value: int, name: str | None) -> None:
    assert enum_name(message, path, value) == name


def test_values_of_an_enumeration() -> None:
    values = {row["enum"]: row["values"].split() for row in rows("enums.tsv")}
    assert "1=COMMIT" in values["control_record_type"]


def test_every_enumerated_field_exists_and_is_a_small_integer() -> None:
    messages = {
        message.name: message
        for name in schema.file_names()
        for message in schema.parse(schema.file_text(name), name).messages
    }
    for row in rows("enums.tsv"):
        for place in row["fields"].split():
            name, _, path = place.partition(".")
            fields, kind = messages[name].fields, ""
            for step in path.split("."):
                field = next(field for field in fields if field.name == step)
                fields, kind = field.fields, field.type
            assert kind in ("int8", "int16", "int64"), place
