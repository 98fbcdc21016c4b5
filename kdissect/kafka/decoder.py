"""A layout -> the source of one flat function that decodes it: ``decode(data, pos) -> (body, end)``.

Why it is fast: consecutive fixed-size fields, and the length or first varint byte that follows them, are
one ``unpack_from``; a one-byte varint costs one comparison; structs are plain dict displays; nothing is
called per field.

Why it is safe: ``pos`` only grows; single bytes and structs are read by operations that raise past the end;
and a slice that is too short moves ``pos`` past the end, which the last line checks. So every loop ends. The
memory of arrays and tags, including nested ones, is subtracted from a budget before they are built. The
walker finds the exact place of a fault.
"""

from __future__ import annotations

import linecache
from contextlib import contextmanager
from keyword import iskeyword
from struct import Struct, error, unpack_from
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.errors import Truncated
from kdissect.kafka import primitives
from kdissect.kafka.codes import uuid_text
from kdissect.kafka.layout import (
    element_bytes,
    is_nullable,
    is_tagged,
    is_text,
    split,
    tag_bytes,
    tag_of,
    text_bytes,
)
from kdissect.kafka.primitives import ALWAYS_OLD, FIXED, LENGTH, LONGEST_STRING, size_of
from kdissect.kafka.records import RecordData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kdissect.kafka.layout import Layout
    from kdissect.kafka.schema import Field


_NAMESPACE = {
    "RecordData": RecordData,
    "StructError": error,
    "Truncated": Truncated,
    "modified_utf8": primitives.modified_utf8,
    "null": primitives.null,
    "tag_head": primitives.tag_head,
    "text_bytes": text_bytes,
    "too_long": primitives.too_long,
    "too_many": primitives.too_many,
    "unknown_tags": primitives.unknown_tags,
    "unpack_from": unpack_from,
    "unexpected_null": primitives.unexpected_null,
    "uuid_text": uuid_text,
    "uvarint": primitives.uvarint,
    "wrong_size": primitives.wrong_size,
}
_RESERVED = ("body", "budget", "data", "end", "left", "len", "min", "n", "pos", "range")

# How ``n`` bytes (for utf16: units) become a value. The slice begins at pos and moves pos to its end.
_SLICED = {
    "string": 'data[pos:(pos := pos + {n})].decode("utf-8", "backslashreplace")',
    "string16": 'data[pos:(pos := pos + {n})].decode("utf-8", "backslashreplace")',
    "bytes": "data[pos:(pos := pos + {n})]",
    "records": "RecordData(data, pos, (pos := pos + {n}))",
    "jutf": "modified_utf8(data[pos:(pos := pos + {n})])",
    "utf16": 'data[pos:(pos := pos + 2 * {n})].decode("utf-16-be", "backslashreplace")',
}


class _Length(NamedTuple):
    """Expressions over ``n``, the length field just read."""

    length: str
    times: str
    positive: str
    present: str
    null: str
    unexpected_null: str


_OLD = _Length("n", "{} * n", "n > 0", "n >= 0", "null(n, pos)", "unexpected_null(budget, pos, n)")
_COMPACT = _Length("n - 1", "{} * (n - 1)", "n > 1", "n", "None", "unexpected_null(budget, pos)")


def generate(layout: Layout, *, charges_text: bool = False) -> FunctionSource:
    return _Generator(layout, charges_text=charges_text).generate()


class _Generator:
    """Walks the schema once and writes the code that a walk over the bytes would run.

    A field's method returns the Python expression of its value. Consecutive fixed-size fields (a run) are
    unpacked by ``flush``, which must come before their expressions are used. ``struct`` passes them up, and
    any method that writes a line with them flushes first.
    """

    def __init__(self, layout: Layout, *, charges_text: bool) -> None:
        self.layout = layout
        self.charges_text = charges_text
        self.source = FunctionSource(f"{layout} decoder", _NAMESPACE, _RESERVED)
        self.run: list[tuple[str, str]] = []

    def generate(self) -> FunctionSource:
        source = self.source
        source.line(f"# {self.layout}, generated from its .kmsg text.")
        with source.block(f"def decode_{self.layout.identifier}(data, pos, budget):"):
            source.line("end = len(data)")
            source.line("left = budget.left")
            with source.block("try:"):
                self.struct(self.layout.fields, "body")
                with source.block("if pos > end:"):
                    source.line('raise Truncated("the last field is cut off", pos=end)')
                source.line("budget.left = left")
                source.line("return body, pos")
            with source.block("except (IndexError, StructError):"):
                source.line('raise Truncated("the buffer ends inside the body", pos=min(pos, end)) from None')
        return source

    # Structs

    def struct(self, fields: Sequence[Field], variable: str) -> None:
        """Decode a struct into a variable, including its tag buffer."""
        positional, tagged = split(fields, self.layout.version)
        items = [(field.name, self.positional(field)) for field in positional]
        if not self.layout.flexible:
            self.flush()
            self.source.display(variable, items)
            return
        tags = self.source.name("tags")
        self.run.append((tags, "B"))
        self.flush()
        self.source.display(variable, items)
        with self.source.block(f"if {tags}:"):
            self.long_varint(tags)
            self.spend(tag_bytes(fields, self.layout), tags)
            if tagged:
                self.tag_buffer(tagged, tags, variable)
            else:
                self.source.line(f"pos = unknown_tags(data, pos, {tags}, {variable})")

    def tag_buffer(self, tagged: Sequence[Field], tags: str, struct: str) -> None:
        """Decode a buffer with at least one known tagged field. Its count is in ``tags``."""
        line, block = self.source.line, self.source.block
        tag, stop, unknown = map(self.source.name, ("tag", "stop", "unknown"))
        line(f"{unknown} = {{}}")
        with block(f"for _ in range({tags}):"):
            line(f"{tag}, {stop}, pos = tag_head(data, pos)")
            branch = "if"
            for field in tagged:
                with block(f"{branch} {tag} == {tag_of(field)}:"):
                    value = self.value(field)
                    self.flush()
                    line(f'{struct}["{field.name}"] = {value}')
                branch = "elif"
            with block("else:"):
                line(f"{unknown}[{tag}] = data[pos:(pos := {stop})]")
            with block(f"if pos != {stop}:"):
                line(f"raise wrong_size({tag}, pos, {stop})")
        with block(f"if {unknown}:"):
            line(f'{struct}["_tags"] = {unknown}')

    def positional(self, field: Field) -> str:
        """Like ``value``, but a plain struct of an inflexible version is an expression, so that the run
        continues.
        """
        is_plain = field.type == "struct" and not field.array and not is_nullable(field, self.layout.version)
        if not is_plain or self.layout.flexible:
            return self.value(field)
        nested, _ = split(field.fields, self.layout.version)
        return "{" + ", ".join(f'"{inner.name}": {self.positional(inner)}' for inner in nested) + "}"

    def value(self, field: Field) -> str:
        if field.array:
            return self.array(field)
        if field.type != "struct":
            return self.scalar(field.type, field.name, nullable=is_nullable(field, self.layout.version))
        variable = self.source.name(field.name)
        if is_nullable(field, self.layout.version):
            with self.source.block(f"if {self.marker(field)}:"):
                self.struct(field.fields, variable)
            with self.source.block("else:"):
                self.source.line(f"{variable} = None")
        else:
            self.struct(field.fields, variable)
        return variable

    def marker(self, field: Field) -> str:
        """Read the marker of a nullable struct. Returns the condition for its presence."""
        if is_tagged(field, self.layout.version):
            self.run.append(("n", "B"))
            self.flush()
            self.long_varint("n")
            return "n"
        self.run.append(("n", "b"))
        self.flush()
        return "n >= 0"

    # Arrays

    def array(self, field: Field) -> str:
        n = self.length("array")
        variable = self.source.name(field.name)
        line, block = self.source.line, self.source.block
        code = FIXED.get(field.type)
        with block(f"if {n.positive}:"):
            self.spend(element_bytes(field, self.layout), n.length)
            if code and field.type != "uuid":
                line(f'{variable} = [*unpack_from(f">{{{n.length}}}{code}", data, pos)]')
                line(f"pos += {n.times.format(size_of(code))}")
            else:
                line(f"{variable} = []")
                with block(f"for _ in range({n.length}):"):
                    line(f"{variable}.append({self.element(field)})")
        with block("else:"):
            null = n.null if is_nullable(field, self.layout.version) else n.unexpected_null
            line(f"{variable} = [] if {n.present} else {null}")
        return variable

    def element(self, field: Field) -> str:
        item = f"{field.name}_item"
        if field.type == "struct":
            value = self.source.name(item)
            self.struct(field.fields, value)
        else:
            value = self.scalar(field.type, item, nullable=False)
            self.flush()
        return value

    def spend(self, each: int, count: str) -> None:
        """Subtract the memory of ``count`` elements from the budget."""
        self.source.line(f"left -= {each} * {count if count.isidentifier() else f'({count})'}")
        self.check(count)

    def check(self, count: str) -> None:
        """Stop if the budget is spent."""
        with self.source.block("if left < 0:"):
            self.source.line(f"raise too_many({count}, pos, end)")

    # Scalars

    def scalar(self, kind: str, name: str, *, nullable: bool) -> str:
        variable = self.source.name(name)
        if kind in FIXED:
            self.run.append((variable, FIXED[kind]))
            return f"uuid_text({variable})" if kind == "uuid" else variable
        n = self.length(kind)
        if self.charges_text and is_text(kind):
            with self.source.block(f"if {n.positive}:"):
                units = f"2 * ({n.length})" if kind == "utf16" else n.length
                self.source.line(f"left -= text_bytes(data[pos:pos + {units}])")
                self.check(n.length)
        null = n.null if nullable else n.unexpected_null
        self.source.line(f"{variable} = {_SLICED[kind].format(n=n.length)} if {n.present} else {null}")
        return variable

    def length(self, kind: str) -> _Length:
        """Read the length of a value into ``n``, together with the run before it."""
        if self.layout.flexible and kind not in ALWAYS_OLD:
            self.run.append(("n", "B"))
            self.flush()
            with self.source.block("if n > 127:"):
                self.source.line("n, pos = uvarint(data, pos, n)")
                if kind == "string":
                    with self.source.block(f"if n - 1 > {LONGEST_STRING}:"):
                        self.source.line("raise too_long(n - 1, pos, end)")
            return _COMPACT
        self.run.append(("n", LENGTH[kind]))
        self.flush()
        return _OLD

    def long_varint(self, variable: str) -> None:
        with self.source.block(f"if {variable} > 127:"):
            self.source.line(f"{variable}, pos = uvarint(data, pos, {variable})")

    def flush(self) -> None:
        """Unpack the pending fixed-size fields, all at once."""
        if not self.run:
            return
        codes = "".join(code for _, code in self.run)
        if codes == "B":
            self.source.line(f"{self.run[0][0]} = data[pos]")
        else:
            unpack = "unpack_" + codes.replace("?", "t")
            self.source.namespace[unpack] = Struct(f">{codes}").unpack_from
            targets = ", ".join(variable for variable, _ in self.run)
            self.source.line(f"{targets if len(self.run) > 1 else f'({targets},)'} = {unpack}(data, pos)")
        self.source.line(f"pos += {size_of(codes)}")
        self.run.clear()


# ------------------------------------------------------------------------------------------------------------
# A layout and a role -> the source of a function that collects all such values: ``collect(body) -> list``.
#
# Values are in wire order, depth first, without nulls and fields missing from a partial body. Runs on every
# exchange, for topics, errors, groups. Visits only structs that lead to such a field.
# ------------------------------------------------------------------------------------------------------------


def generate_collector(layout: Layout, role: str) -> FunctionSource | None:
    """The function's source. None if no field of the layout has the role."""
    if not _leading(layout.fields, layout.version, role):
        return None
    source = FunctionSource(f"{layout} {role} collector", {}, ("body", "found", "value"))
    source.line(f"# {role} fields of {layout}, generated from its .kmsg text.")
    with source.block(f"def collect_{role}_{layout.identifier}(body):"):
        source.line("found = []")
        _struct(source, layout.fields, layout.version, role, "body")
        source.line("return found")
    return source


def _struct(source: FunctionSource, fields: Sequence[Field], version: int, role: str, struct: str) -> None:
    for field in _leading(fields, version, role):
        value = f'{struct}.get("{field.name}")'
        if field.role == role and field.array:
            source.line(f"found += {value} or ()")
        elif field.role == role:
            with source.block(f"if (value := {value}) is not None:"):
                source.line("found.append(value)")
        elif field.array:
            item = source.name(f"{field.name}_item")
            with source.block(f"for {item} in {value} or ():"):
                _struct(source, field.fields, version, role, item)
        else:
            nested = source.name(field.name)
            with source.block(f"if {nested} := {value}:"):
                _struct(source, field.fields, version, role, nested)


def _leading(fields: Sequence[Field], version: int, role: str) -> list[Field]:
    """The fields that have the role or contain one that has it, in wire order."""
    positional, tagged = split(fields, version)
    return [f for f in [*positional, *tagged] if f.role == role or _leading(f.fields, version, role)]


# ------------------------------------------------------------------------------------------------------------
# Lines of Python -> a function, with its source available to tracebacks, debuggers and ``inspect``.
#
# Generated code exists only in memory, under a pseudo file name such as ``<kdissect FetchResponse v13
# decoder>``.
# ------------------------------------------------------------------------------------------------------------


_WIDTH = 100


class FunctionSource:
    """The source of one function under construction.

    Attributes:
        namespace: the function's globals.
    """

    __slots__ = ("_depth", "_file", "_lines", "_names", "namespace")

    def __init__(self, title: str, namespace: Mapping[str, Any], reserved: Iterable[str]) -> None:
        self._file = f"<kdissect {title}>"
        self.namespace = dict(namespace)
        self._lines: list[str] = []
        self._depth = 0
        self._names = {*namespace, *reserved}

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n"

    def line(self, text: str) -> None:
        self._lines.append(" " * 4 * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add a line that ends in a colon. Lines added inside the ``with`` are indented below it."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, preferred: str) -> str:
        """A variable name that is unique in this function: the preferred one if it is free."""
        name = f"{preferred}_" if iskeyword(preferred) else preferred
        number = 2
        while name in self._names:
            name = f"{preferred}_{number}"
            number += 1
        self._names.add(name)
        return name

    def display(self, variable: str, items: Iterable[tuple[str, str]]) -> None:
        """Add ``variable = {...}``, a dict display of (key, expression) pairs, on several lines if it is
        long.
        """
        pairs = [f'"{key}": {expression}' for key, expression in items]
        one_line = f"{variable} = {{{', '.join(pairs)}}}"
        if 4 * self._depth + len(one_line) <= _WIDTH:
            self.line(one_line)
            return
        with self.block(f"{variable} = {{"):
            for pair in pairs:
                self.line(f"{pair},")
        self.line("}")

    def function(self) -> Callable[..., Any]:
        """Compile the source and return the one function that it defines."""
        text = str(self)
        existing = set(self.namespace)
        exec(compile(text, self._file, "exec"), self.namespace)
        linecache.cache[self._file] = (len(text), None, text.splitlines(keepends=True), self._file)
        (name,) = self.namespace.keys() - existing - {"__builtins__"}
        function: Callable[..., Any] = self.namespace[name]
        return function
