from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdissect.errors import SchemaError
from kdissect.kafka import schema
from kdissect.kafka.apis import all_apis
from kdissect.kafka.schema import ROLES, STRUCT, TYPES, Field, Message, Versions, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = """\
# Nothing: an api for this test.
# It has two lines.

api 7 Nothing, versions 0-9, flexible 6+

request =>
  name: string?4+ topic                     0-7        # the old way
  [ids]?2-5: uuid topic                     2+
  place? =>                                 3+ tag 0
    x: int8
    y: int8                                 5-7
  [pairs]: Pair                             2-8

draft 3.5-3.6 request 0 =>
  name: string

# Empty in version 0.
response =>
  error_code: int16 error                   1+
  one: Pair

Pair =>
  left: string16?0-3
  right: int32 broker                       4+
"""


def all_messages() -> Iterator[Message]:
    for name in schema.file_names():
        yield from parse(schema.file_text(name), name).messages


def all_fields(fields: tuple[Field, ...]) -> Iterator[Field]:
    for field in fields:
        yield field
        yield from all_fields(field.fields)


def layouts() -> Iterator[tuple[str, Versions, tuple[Field, ...]]]:
    for message in all_messages():
        yield message.name, message.versions, message.fields
        for draft in message.drafts:
            yield f"{message.name} {draft.releases}", draft.versions, draft.fields


class TestNotation:
    def test_example_says_what_it_says(self) -> None:
        file = parse(EXAMPLE)
        request, response = file.messages
        assert (file.api_key, file.api_name, file.comment.count("\n")) == (7, "Nothing", 1)
        assert (request.name, request.kind, request.api_key) == ("NothingRequest", "request", 7)
        assert (request.versions, request.flexible) == (Versions(0, 9), 6)
        assert response.comment == "Empty in version 0."
        assert [request.is_flexible(version) for version in (5, 6)] == [False, True]

        name, ids, place, pairs = request.fields
        assert (name.type, name.role, name.versions) == ("string", "topic", Versions(0, 7))
        assert (name.nullable, name.comment) == (Versions(4, 7), "the old way")
        assert (ids.array, ids.type, ids.nullable) == (True, "uuid", Versions(2, 5))
        assert (place.type, place.tag, place.tagged) == (STRUCT, 0, Versions(3, 9))
        assert place.nullable == Versions(3, 9)
        assert [field.versions for field in place.fields] == [Versions(3, 9), Versions(5, 7)]
        assert (pairs.array, pairs.type, pairs.struct) == (True, STRUCT, "Pair")

    def test_shared_struct_has_the_versions_of_its_use(self) -> None:
        request, response = parse(EXAMPLE).messages
        left, right = request.fields[3].fields
        assert (left.versions, left.nullable, right.versions) == (
            Versions(2, 8),
            Versions(2, 3),
            Versions(4, 8),
        )
        assert [field.versions for field in response.fields[1].fields] == [Versions(0, 9), Versions(4, 9)]

    def test_field_of_a_shared_struct_that_its_use_never_has_is_left_out(self) -> None:
        text = EXAMPLE.replace("[pairs]: Pair                             2-8", "[pairs]: Pair  2-3")
        assert [field.name for field in parse(text).messages[0].fields[3].fields] == ["left"]

    def test_draft_stands_with_its_message(self) -> None:
        (draft,) = parse(EXAMPLE).messages[0].drafts
        assert (draft.releases, draft.versions, draft.flexible) == ("3.5-3.6", Versions(0, 0), 6)
        assert not draft.is_flexible(0)
        assert [field.name for field in draft.fields] == ["name"]

    def test_data_message_has_type_and_flexible_in_its_head(self) -> None:
        text = "ARecord 1-2, type 0, flexible 2+ =>\n  id: int32\n\ndraft 2.8 ARecord 1 =>\n  id: int16\n"
        (message,) = parse(text).messages
        assert (message.kind, message.api_key, message.flexible) == ("data", 0, 2)
        assert message.drafts[0].flexible is None

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("A 0 =>\n  a int8\n", "x:2: not a field: 'a int8'"),
            ("A 0 =>\n  a: int9\n", "x:2: no type int9"),
            ("A 0 =>\n  a: int8 color\n", "x:2: no role color"),
            ("A 0 =>\n  a: Missing\n", "x:2: no shared struct Missing"),
            ("A 0 =>\n  a =>\n", "x:2: a struct without fields"),
            ("A 0 =>\n  a: int8\n    b: int8\n", "x:3: indented, but the line above is not a struct"),
            ("A 0 =>\n   a: int8\n", "x:2: indented by an odd number of spaces"),
            ("A 0 =>\n  [a]: int8?\n", "x:2: the ? of arrays and structs goes after the name"),
            ("A 0 =>\n  a?: string\n", "x:2: the ? of a value goes after the type"),
            ("  a: int8\n", "x:1: a field before any message"),
            ("request =>\n  a: int8\n", "x:1: request in a file without an api line"),
            ("draft 2.8 A 0 =>\n  a: int8\n", "x:1: a draft after its message's final layout"),
            ("A 0 =>\n  a: int8\n\nwhat is this\n", "x:4: not a line of the notation: 'what is this'"),
        ],
    )
    def test_broken_text_is_refused_with_its_line(self, text: str, reason: str) -> None:
        with pytest.raises(SchemaError) as caught:
            parse(text, "x")
        assert str(caught.value) == reason


class TestFiles:
    def test_all_layouts_are_there(self) -> None:
        counts: dict[str, int] = {}
        for message in all_messages():
            number = message.versions.last - message.versions.first + 1
            counts[message.kind] = counts.get(message.kind, 0) + number
        assert counts == {"request": 368, "response": 368, "header": 5, "data": 157}
        assert sum(len(message.drafts) for message in all_messages()) == 39

    def test_api_lines_agree_with_the_table_of_apis(self) -> None:
        for api in all_apis():
            request, response = schema.request(api.key), schema.response(api.key)
            assert request is not None
            assert response is not None
            assert (request.name, response.name) == (f"{api.name}Request", f"{api.name}Response")
            for message in (request, response):
                assert (message.versions, message.flexible) == (api.versions, api.flexible)
        assert schema.request(95) is None
        assert schema.response(-1) is None

    def test_file_names_sort_by_api_key(self) -> None:
        names = schema.file_names()
        assert names[0] == "000_Produce.kmsg"
        assert names[: len(all_apis())] == [f"{api.key:03d}_{api.name}.kmsg" for api in all_apis()]

    def test_every_api_says_in_a_sentence_what_it_does(self) -> None:
        for api in all_apis():
            comment = parse(schema.file_text(f"{api.key:03d}_{api.name}.kmsg")).comment
            assert comment.startswith(f"{api.name}: ")
            assert comment.endswith(".")

    def test_fields_lie_inside_their_parents_and_have_their_own_names(self) -> None:
        def check(where: str, fields: tuple[Field, ...], parent: Versions) -> None:
            for version in range(parent.first, parent.last + 1):
                present = [field for field in fields if version in field.versions]
                assert len({field.name for field in present}) == len(present), f"{where} v{version}"
                tags = [field.tag for field in present if field.tag is not None]
                assert len(set(tags)) == len(tags), f"{where} v{version}"
            for field in fields:
                assert field.type in TYPES or field.type == STRUCT
                assert parent.first <= field.versions.first <= field.versions.last <= parent.last
                check(f"{where}.{field.name}", field.fields, field.versions)

        for name, versions, fields in layouts():
            check(name, fields, versions)

    def test_tagged_fields_only_in_flexible_versions(self) -> None:
        for message in all_messages():
            for field in all_fields(message.fields):
                if field.tagged is not None:
                    assert message.is_flexible(field.tagged.first), f"{message.name} {field.name}"

    def test_messages_are_read_once(self) -> None:
        assert schema.request(0) is schema.request(0)
        assert schema.embedded("ConfigRecord") is schema.embedded("ConfigRecord")
        assert schema.embedded("ConfigRecord") in schema.family("metadata_record")

    def test_unknown_embedded_message(self) -> None:
        with pytest.raises(SchemaError, match="no embedded message Nope"):
            schema.embedded("Nope")


class TestRoles:
    def test_embedded_messages_in_roles_exist(self) -> None:
        for _, _, fields in layouts():
            for field in all_fields(fields):
                if field.role is not None and field.role not in ROLES:
                    assert schema.embedded(field.role).kind == "data"
                    assert field.type == "bytes"

    def test_role_and_type_fit(self) -> None:
        types = {
            "topic": {"string", "uuid", "jutf"},
            "broker": {"int32"},
            "partition": {"int32"},
            "group": {"string"},
            "transaction": {"string"},
            "producer": {"int64"},
            "error": {"int16"},
            "secret": {"bytes", "string"},
            "config": {"string"},
        }
        for name, _, fields in layouts():
            for field in all_fields(fields):
                if field.role in types:
                    assert field.type in types[field.role], f"{name} {field.name}"

    def test_every_error_code_of_a_response_has_the_role(self) -> None:
        for message in all_messages():
            for field in all_fields(message.fields):
                if message.kind == "response" and field.name.endswith("error_code"):
                    assert field.role == "error", f"{message.name} {field.name}"

    def test_every_topic_id_has_the_role(self) -> None:
        for name, _, fields in layouts():
            for field in all_fields(fields):
                if field.name == "topic_id":
                    assert field.role == "topic", name

    def test_credentials(self) -> None:
        result = {
            (name, field.name)
            for name, _, fields in layouts()
            for field in all_fields(fields)
            if field.role == "secret"
        }
        assert result == {
            ("SaslAuthenticateRequest", "auth_bytes"),
            ("SaslAuthenticateResponse", "auth_bytes"),
            ("CreateDelegationTokenResponse", "hmac"),
            ("DescribeDelegationTokenResponse", "hmac"),
            ("RenewDelegationTokenRequest", "hmac"),
            ("ExpireDelegationTokenRequest", "hmac"),
            ("AlterUserScramCredentialsRequest", "salt"),
            ("AlterUserScramCredentialsRequest", "salted_password"),
            ("UserScramCredentialRecord", "salt"),
            ("UserScramCredentialRecord", "stored_key"),
            ("UserScramCredentialRecord", "server_key"),
            ("UserScramCredentialRecord 2.8", "salt"),
            ("UserScramCredentialRecord 2.8", "salted_password"),
            ("UserScramCredentialRecord 3.0-3.4", "salt"),
            ("UserScramCredentialRecord 3.0-3.4", "salted_password"),
            ("DelegationTokenRecord", "token_id"),
            ("DelegationTokenRecord 2.8", "token_id"),
            ("DelegationTokenRecord 3.0-3.5", "token_id"),
        }

    def test_values_of_configs_stand_beside_their_names(self) -> None:
        def structs(fields: tuple[Field, ...]) -> Iterator[tuple[Field, ...]]:
            yield fields
            for field in fields:
                yield from structs(field.fields)

        result = set()
        for name, _, fields in layouts():
            for struct in structs(fields):
                if any(field.role == "config" for field in struct):
                    assert {field.name for field in struct} & {"name", "key"}
                    result.add(name)
        assert result == {
            "CreateTopicsRequest",
            "CreateTopicsResponse",
            "DescribeConfigsResponse",
            "AlterConfigsRequest",
            "IncrementalAlterConfigsRequest",
            "StreamsGroupHeartbeatRequest",
            "StreamsGroupDescribeResponse",
            "StreamsGroupMetadataValue",
            "StreamsGroupTopologyValue",
            "ConfigRecord",
            "ConfigRecord 2.8",
        }
