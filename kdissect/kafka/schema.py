r"""``.kmsg`` text -> ``Message`` values. Caches every file it has read: about 1 MB for all of them.

One line is one field, line order is byte order, the right column has the versions. The notation, in which
quoted brackets are literal, other brackets and bars are as in BNF, and two spaces nest::

    file      comment, empty line, [api, empty line], blocks with an empty line between them
    api       "api" KEY Name ", versions" RANGE [", flexible" F "+"]
    block     ["draft" RELEASES] ("request" | "response") [RANGE] "=>"
              ["draft" RELEASES] Name RANGE [", type" N] [", flexible" F "+"] "=>"   header or data message
              Name "=>"                                                              shared struct
    field     what [RANGE] ["tag" N] ["#" comment]
    what      name ":" TYPE ["?" [RANGE]] [ROLE]                  one value
              "[" name "]" ["?" [RANGE]] ":" TYPE [ROLE]          an array of values
              name ["?" [RANGE]] "=>"                             a struct, its fields indented below
              "[" name "]" ["?" [RANGE]] "=>"                     an array of structs
              (name | "[" name "]") ["?" [RANGE]] ":" Name        the same with a shared struct
    RANGE     A "-" B | A | A "+"                                 "+": to the last version around it

Without a RANGE a field exists in all versions of its parent. "?" alone means nullable in all versions of
the field. Request and response share the versions of the api line. A draft follows the final layout of its
message and is what the named releases sent under the same version number. Drafts of requests and responses
are as flexible as the api line says. The type of a data message is its record type in an internal topic.
Shared structs come last. Where one is used, it has the versions of the field. Comment lines above a block
describe it.

TYPE is one of ``TYPES``. ``string16`` has an int16 length in flexible versions too; ``jutf`` (uint16
length, then Java's modified UTF-8) and ``utf16`` (int32 count of UTF-16BE units) occur in one message of
Kafka Streams. A nullable struct begins with an int8, -1 is null; in the tag buffer with a uvarint, 0 is
null. Everything else follows from ``flexible``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from kdissect.errors import SchemaError
from kdissect.kafka import codes

if TYPE_CHECKING:
    from collections.abc import Iterator

FIXED_TYPES = ("bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "uuid")
TEXT_TYPES = ("string", "string16", "jutf", "utf16")
TYPES = frozenset((*FIXED_TYPES, *TEXT_TYPES, "bytes", "records"))
STRUCT = "struct"

# What a value means: it names one of these (a topic by name or by ID), or is an index, a code, a credential
# or the value of a config. Or it is bytes whose meaning depends on other fields of the message.
VALUE_ROLES = (
    "topic",
    "broker",
    "group",
    "producer",
    "transaction",
    "partition",
    "error",
    "message",
    "secret",
    "config",
)
EMBEDDED = tuple(
    f"embedded/{name}.kmsg"
    for name in (
        "connect_protocol", "consumer_protocol", "control_record", "disk_file", "group_coordinator",
        "metadata_record", "principal", "remote_log_metadata", "share_coordinator", "sticky_assignor",
        "streams_protocol", "txn_coordinator",
    )
)  # fmt: skip
"""Files of messages embedded in others. Listed here because not every loader can list a directory."""

GROUP_ROLES = ("subscription", "assignment", "subscription_data", "assignment_data")
PAYLOAD_ROLES = (*GROUP_ROLES, "telemetry", "envelope_request", "envelope_response")
ROLES = frozenset((*VALUE_ROLES, *PAYLOAD_ROLES))


class Versions(NamedTuple):
    """A closed range of versions. ``version in versions`` tests the range, not the two numbers."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


ALL = Versions(0, 32767)
"""Parent range of a shared struct's own definition: versions are an int16."""


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """One field of a struct, equal only to itself (so that caches keyed by it stay cheap).

    Attributes:
        type: one of ``TYPES``, or ``struct``; of the elements for an array.
        versions: in which it exists, never beyond its parent's.
        nullable: versions in which null is legal (of the array for arrays).
        tag, tagged: its tag, and the versions in which it is in the tag buffer: always all of them.
        role: what the value means to kdissect: one of ``ROLES``, or the name of the embedded message.
        fields: of a struct, in byte order, those of a shared struct included.
        struct: name of the shared struct that ``fields`` come from.

    """

    name: str
    type: str
    array: bool
    versions: Versions
    nullable: Versions | None = None
    tag: int | None = None
    tagged: Versions | None = None
    role: str | None = None
    fields: tuple[Field, ...] = ()
    struct: str | None = None
    comment: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A complete layout that ``releases`` used for ``versions`` before it became final."""

    releases: str
    versions: Versions
    flexible: int | None
    fields: tuple[Field, ...]
    comment: str = ""

    def is_flexible(self, version: int) -> bool:
        """Whether this layout has compact lengths and tag buffers."""
        return self.flexible is not None and version >= self.flexible


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """All versions of one message, equal only to itself.

    Attributes:
        name: ``ProduceRequest``, ``ProduceResponse``, ``RequestHeader``, or an embedded message's name.
        kind: request, response, header or data.
        api_key: of requests and responses; the record type for data that has one.
        flexible: first version with compact lengths and tag buffers.
        drafts: layouts of pre-releases, tried if the final one does not fit.

    """

    name: str
    kind: str
    api_key: int | None
    versions: Versions
    flexible: int | None
    fields: tuple[Field, ...]
    drafts: tuple[Draft, ...] = ()
    comment: str = ""

    def is_flexible(self, version: int) -> bool:
        """Whether this version has compact lengths and tag buffers; for a draft, see ``Draft``."""
        return self.flexible is not None and version >= self.flexible


@dataclass(frozen=True, slots=True, eq=False)
class SharedStruct:
    """A struct that several fields share, as in the file. Its last version is that of the field
    that uses it.
    """

    name: str
    fields: tuple[Field, ...]
    comment: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class File:
    """One .kmsg file; ``api_key`` and ``api_name`` only where it has an api line."""

    comment: str
    messages: tuple[Message, ...]
    structs: tuple[SharedStruct, ...] = ()
    api_key: int | None = None
    api_name: str = ""


_RANGE = r"\d+(?:-\d+|\+)?"
_API = re.compile(
    rf"api (?P<key>\d+) (?P<name>\w+), versions (?P<versions>{_RANGE})(?:, flexible (?P<flexible>\d+)\+)?"
)
_BLOCK = re.compile(
    rf"(?:draft (?P<draft>\S+) )?(?P<name>[A-Za-z]\w*)(?: (?P<versions>{_RANGE}))?(?:, type (?P<type>\d+))?"
    r"(?:, flexible (?P<flexible>\d+)\+)? =>"
)
_FIELD = re.compile(
    rf"(?P<indent> +)(?:\[(?P<array>\w+)\]|(?P<name>\w+))(?P<null>\?(?:{_RANGE})?)?"
    rf"(?: =>|: (?P<type>\w+)(?P<value_null>\?(?:{_RANGE})?)?(?: (?P<role>(?!tag )[A-Za-z]\w*))?)"
    rf"(?: +(?P<versions>{_RANGE}))?(?: +tag (?P<tag>\d+))?(?: +# (?P<comment>.*))?"
)


class _Line(NamedTuple):
    """A field's line and the lines nested below it."""

    number: int
    match: re.Match[str]
    children: list[_Line]


class _Block(NamedTuple):
    number: int
    match: re.Match[str]
    comment: str
    lines: list[_Line]

    @property
    def is_struct(self) -> bool:
        return self.match["name"] not in ("request", "response") and self.match["versions"] is None


class _Fault(Exception):
    """Becomes a SchemaError in ``parse``, which knows the name of the file."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.number = number


def parse(text: str, name: str = "<text>") -> File:
    """Parse one file. ``name`` is used in the ``SchemaError``."""
    try:
        return _file(text.splitlines())
    except _Fault as fault:
        raise SchemaError(f"{name}:{fault.number}: {fault}") from None


def _file(lines: list[str]) -> File:
    api: re.Match[str] | None = None
    head: str | None = None
    comments: list[str] = []
    blocks: list[_Block] = []
    for number, line in enumerate(lines, 1):
        if line.startswith("# "):
            comments.append(line[2:])
        elif not line:
            if head is None:
                head, comments = "\n".join(comments), []
        elif line.startswith(" "):
            if not blocks:
                raise _Fault(number, "a field before any message")
            _add_line(blocks[-1].lines, number, line)
        elif match := _BLOCK.fullmatch(line):
            blocks.append(_Block(number, match, "\n".join(comments), []))
            comments = []
        elif (match := _API.fullmatch(line)) and api is None and not blocks:
            api = match
        else:
            raise _Fault(number, f"not a line of the notation: {line!r}")
    structs = {block.match["name"]: block for block in blocks if block.is_struct}
    return File(
        comment=head or "",
        messages=tuple(_messages(api, blocks, structs)),
        structs=tuple(
            SharedStruct(name, _fields(block.lines, ALL, structs), block.comment)
            for name, block in structs.items()
        ),
        api_key=int(api["key"]) if api else None,
        api_name=api["name"] if api else "",
    )


def _add_line(lines: list[_Line], number: int, text: str) -> None:
    match = _FIELD.fullmatch(text)
    if match is None:
        raise _Fault(number, f"not a field: {text.strip()!r}")
    depth, remainder = divmod(len(match["indent"]), 2)
    for _ in range(depth - 1):
        if not lines or lines[-1].match["type"] is not None:
            raise _Fault(number, "indented, but the line above is not a struct")
        lines = lines[-1].children
    if remainder:
        raise _Fault(number, "indented by an odd number of spaces")
    lines.append(_Line(number, match, []))


def _messages(
    api: re.Match[str] | None, blocks: list[_Block], structs: dict[str, _Block]
) -> Iterator[Message]:
    message: Message | None = None
    for block in blocks:
        if block.is_struct:
            continue
        drafted = _message(api, block, structs)
        if block.match["draft"] is None:
            if message is not None:
                yield message
            message = drafted
        elif message is None or message.name != drafted.name:
            raise _Fault(block.number, "a draft after its message's final layout")
        else:
            draft = Draft(
                block.match["draft"], drafted.versions, drafted.flexible, drafted.fields, drafted.comment
            )
            message = replace(message, drafts=(*message.drafts, draft))
    if message is not None:
        yield message


def _message(api: re.Match[str] | None, block: _Block, structs: dict[str, _Block]) -> Message:
    match = block.match
    name = match["name"]
    source = match
    if name in ("request", "response"):
        if api is None:
            raise _Fault(block.number, f"{name} in a file without an api line")
        kind, name, key, source = name, api["name"] + name.capitalize(), api["key"], api
    else:
        kind, key = "header" if name in ("RequestHeader", "ResponseHeader") else "data", match["type"]
    versions = _versions(match["versions"] or source["versions"], ALL)
    flexible = source["flexible"]
    return Message(
        name=name,
        kind=kind,
        api_key=None if key is None else int(key),
        versions=versions,
        flexible=None if flexible is None else int(flexible),
        fields=_fields(block.lines, versions, structs),
        comment=block.comment,
    )


def _fields(lines: list[_Line], parent: Versions, structs: dict[str, _Block]) -> tuple[Field, ...]:
    fields = (_field(line, parent, structs) for line in lines)
    return tuple(field for field in fields if field is not None)


def _field(line: _Line, parent: Versions, structs: dict[str, _Block]) -> Field | None:
    """The field as it appears inside ``parent``. None if it has no version there (in a shared struct)."""
    match = line.match
    versions = _versions(match["versions"], parent)
    if versions.first > versions.last:
        return None
    kind, struct, children = match["type"] or STRUCT, None, line.children
    if kind[0].isupper():
        if kind not in structs:
            raise _Fault(line.number, f"no shared struct {kind}")
        kind, struct, children = STRUCT, kind, structs[kind].lines
    elif kind not in TYPES and kind != STRUCT:
        raise _Fault(line.number, f"no type {kind}")
    role = match["role"]
    if role and not role[0].isupper() and role not in ROLES:
        raise _Fault(line.number, f"no role {role}")
    if kind == STRUCT and not children:
        raise _Fault(line.number, "a struct without fields")
    if match["value_null"] and (match["null"] or match["array"] or kind == STRUCT):
        raise _Fault(line.number, "the ? of arrays and structs goes after the name")
    if match["null"] and not match["array"] and kind != STRUCT:
        raise _Fault(line.number, "the ? of a value goes after the type")
    null = match["null"] or match["value_null"]
    return Field(
        name=match["array"] or match["name"],
        type=kind,
        array=match["array"] is not None,
        versions=versions,
        nullable=_inside(null[1:], versions) if null else None,
        tag=None if match["tag"] is None else int(match["tag"]),
        tagged=None if match["tag"] is None else versions,
        role=role,
        fields=_fields(children, versions, structs) if kind == STRUCT else (),
        struct=struct,
        comment=match["comment"] or "",
    )


def _versions(text: str | None, parent: Versions) -> Versions:
    """``text`` limited to ``parent``. Empty (first > last) if they do not overlap."""
    if not text:
        return parent
    first, dash, last = text.rstrip("+").partition("-")
    end = parent.last if text.endswith("+") else int(last if dash else first)
    return Versions(max(int(first), parent.first), min(end, parent.last))


def _inside(text: str, parent: Versions) -> Versions | None:
    versions = _versions(text, parent)
    return versions if versions.first <= versions.last else None


def request(api_key: int) -> Message | None:
    """All versions of the API's request. None for an unknown API."""
    file = _api_file(api_key)
    return None if file is None else file.messages[0]


def response(api_key: int) -> Message | None:
    """All versions of the API's response. None for an unknown API."""
    file = _api_file(api_key)
    return None if file is None else file.messages[1]


def header(name: str) -> Message:
    """``RequestHeader`` or ``ResponseHeader``."""
    return next(message for message in _read("headers.kmsg").messages if message.name == name)


@cache
def embedded(name: str) -> Message:
    """The schema of an embedded message, such as ``ConsumerProtocolSubscription``."""
    for file in EMBEDDED:
        if f"\n{name} " in file_text(file):  # to parse one file, not all
            for message in _read(file).messages:
                if message.name == name:
                    return message
    raise SchemaError(f"no embedded message {name}")


def family(name: str) -> tuple[Message, ...]:
    """All messages of one embedded file, such as ``metadata_record``. ``api_key`` is their record type."""
    return _read(f"embedded/{name}.kmsg").messages


def file_names() -> list[str]:
    """The .kmsg files by path inside the messages directory: APIs by key, headers, embedded messages."""
    return [*_api_files().values(), "headers.kmsg", *EMBEDDED]


def file_text(name: str) -> str:
    """Read one of ``file_names()``."""
    return codes.text(f"messages/{name}")


@cache
def _api_files() -> dict[int, str]:
    return {int(row["key"]): f"{row['key']:0>3}_{row['name']}.kmsg" for row in codes.rows("apis.tsv")}


def _api_file(api_key: int) -> File | None:
    name = _api_files().get(api_key)
    return None if name is None else _read(name)


@cache
def _read(name: str) -> File:
    return parse(file_text(name), name)
