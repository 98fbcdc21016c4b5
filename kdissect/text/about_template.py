"""The templates of about.txt -> functions that describe an exchange. Caches the parsed templates, and the
core's form of them for each version.

A template looks like the line that it makes. Clauses are separated by commas; one without a value vanishes::

    Heartbeat: group {group_id}, generation {generation_id}, <member>
    Name, Name: request -> response       lines that continue it are indented
    <name>: template                      a part of templates, empty where all its values are

    a, b                  clauses
    a | b                 the first that is not empty; binds less than the comma
    [a]                   a template inside a clause: empty, it vanishes with the blank before it
    text {value}          a clause; vanishes if the value is null, absent, empty, negative, or a UUID of zeros
    {value!}              vanishes only if it is null or absent
    clause if TEST        FIELD, one FIELD, several FIELD (elements), decoded FIELD (an embedded message),
                          FIELD is null, FIELD is empty (an array), FIELD = 1, FIELD < 0, FIELD > 0

A value is a field of the message (``a.b`` in a struct, of every element in an array; ``request.a`` in the
response; ``exchange.a`` of ``model.Exchange``), an integer, or a function of values:

    {a | b}               the first that is neither null nor empty
    {a unless b}          nothing if they are equal
    {only(a.b)}           nothing if an array on the way has not exactly one element
    {each a: template}    the elements of an array, each described by a template
    {list(a, noun)}       the first few and the number of the rest, after the noun
    {count(a, noun)}      the number of elements, or a number, before the noun
    {topics(a)}           topics and their partitions; topics_with_records(a): those with records
    {names(a)}            the names of topics
    {records(a)}          number and size of the records in topics
    {enum(a)}             the name of an enumerated value, by enums.tsv
    {size(a)}             of bytes
    {milliseconds(a)}, {offset_time(a)}

The schema says which fields exist and of what type they are. A field that a message does not have is absent.
"""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect import core
from kdissect.errors import SchemaError
from kdissect.exchanges.content import message_plan
from kdissect.exchanges.undecoded import undecoded
from kdissect.kafka import schema
from kdissect.kafka.bodies import BodyLayout
from kdissect.kafka.codes import enum_names
from kdissect.kafka.decoder import FunctionSource
from kdissect.kafka.internal.payloads import FOLLOWED
from kdissect.model import Embedded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kdissect.kafka.schema import Field, Message
    from kdissect.model import Body, Exchange

    Describe = Callable[[Exchange, Body, Body], tuple[str, str]]
    """Exchange, request, response -> text about the request, text about the response."""

_ZERO_UUID = "A" * 22  # sixteen zero bytes, as Kafka prints them


class Path(NamedTuple):
    """A field. ``root`` is ``exchange`` or ``request``, or empty: the message or element described."""

    root: str
    names: tuple[str, ...]


class Call(NamedTuple):
    """A function of values. Of ``count`` and ``list``, the second argument can be a noun; of ``each``, it is
    a template; of ``enum`` and ``offset_time``, the names of numbers.
    """

    function: str
    arguments: tuple[Any, ...]


Value = Path | Call | int

_API_VERSION = Path("exchange", ("api_version",))


class Placeholder(NamedTuple):
    """A value in a text; ``raw``: shown unless null."""

    value: Value
    raw: bool


class Test(NamedTuple):
    """A condition: what to test (``null``, ``one``, ``<`` ...; empty: not empty), the value, a number."""

    kind: str
    value: Any
    number: int


class Clause(NamedTuple):
    """Texts, placeholders, and templates, which have blanks around them."""

    pieces: tuple[str | Placeholder | Template, ...]
    test: Test | None


Template = tuple[tuple[Clause, ...], ...]
"""Alternatives, which consist of clauses. Empty: there is never a text."""


# Text -> templates


@cache
def _definitions() -> dict[str, str]:
    """The text of each template, by API or ``<name>``."""
    joined = re.sub(r"\n +", " ", schema.file_text("about.txt"))
    lines = (line.partition(":") for line in joined.splitlines() if line and not line.startswith("#"))
    return {name: body.strip() for names, _, body in lines for name in names.split(", ")}


def described_apis() -> set[str]:
    """The names of APIs that have templates."""
    return {name for name in _definitions() if not name.startswith("<")}


@cache
def templates(api: str) -> tuple[Template, Template] | None:
    """The templates of the request and the response of an API. None if it has none.

    Raises:
        SchemaError: about.txt has a mistake.
    """
    text = _definitions().get(api)
    if text is None:
        return None
    request, _, response = text.partition(" -> ")
    return parse(request), parse(response) if response else ()


@cache
def _part(name: str) -> Template:
    return parse(_definitions()[name])


def parse(text: str) -> Template:
    """Parse one template.

    Raises:
        SchemaError: it is not in the notation.
    """
    parser = _TemplateParser(text)
    template = parser.template()
    parser.expect("$")
    return template


class _TemplateParser:
    """Recursive descent."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0

    def match(self, pattern: str) -> str | None:
        match = re.compile(pattern).match(self.text, self.pos)
        if match is None:
            return None
        self.pos = match.end()
        return match[0]

    def expect(self, pattern: str) -> str:
        text = self.match(pattern)
        if text is None:
            raise SchemaError(f"about.txt: not a template from here on: {self.text[self.pos :]!r}")
        return text

    def template(self) -> Template:
        alternatives = [self.clauses()]
        while self.match(r" *\|"):
            alternatives.append(self.clauses())
        return tuple(alternatives)

    def clauses(self) -> tuple[Clause, ...]:
        clauses = list(self.clause())
        while self.match(" *,"):
            clauses += self.clause()
        return tuple(clauses)

    def clause(self) -> Sequence[Clause]:
        """One clause; a template alone, without alternatives, is replaced by its clauses."""
        self.match(" *")
        pieces: list[str | Placeholder | Template] = []
        while (piece := self.piece()) is not None:
            pieces.append(piece)
        test = self.test() if self.match(" if ") else None
        only = pieces[0] if len(pieces) == 1 and test is None else ""
        if not isinstance(only, (str, Placeholder)) and len(only) == 1:
            return only[0]
        return [Clause(tuple(pieces), test)]

    def piece(self) -> str | Placeholder | Template | None:
        if self.match("{each "):
            array = self.value()
            self.expect(": *")
            piece: Placeholder | Template = Placeholder(Call("each", (array, self.template())), raw=False)
            self.expect("}")
        elif self.match("{"):
            value = self.value()
            piece = Placeholder(value, self.match("!") is not None)
            self.expect("}")
        elif self.match(r"\["):
            piece = self.template()
            self.expect("]")
        elif name := self.match(r"<[a-z ]+>"):
            piece = _part(name)
        else:
            return self.match(r"(?:(?! *(?:$|[],|}]| if ))[^][{}<>,|\"\\])+")
        return piece

    def test(self) -> Test:
        kind = self.match("(?:one|several|decoded) ")
        value = self.term()
        if kind is None and (kind := self.match(" is (?:null|empty)")):
            kind = kind.removeprefix(" is ")
        if kind is None and (kind := self.match(" [=<>] ")):
            return Test(kind.strip(), value, int(self.expect(r"-?\d+")))
        return Test((kind or "").strip(), value, 0)

    def value(self) -> Value:
        value = self.either()
        return Call("unless", (value, self.either())) if self.match(" unless ") else value

    def either(self) -> Value:
        terms = [self.term()]
        while self.match(r" \| "):
            terms.append(self.term())
        return terms[0] if len(terms) == 1 else Call("either", tuple(terms))

    def term(self) -> Value:
        if number := self.match(r"\d+"):
            return int(number)
        name = self.expect(r"[a-z_][\w.]*")
        if not self.match(r"\("):
            root, *rest = name.split(".")
            return Path(root, tuple(rest)) if root in ("exchange", "request") else Path("", (root, *rest))
        arguments: list[Any] = [self.either()]
        if self.match(", "):
            arguments.append(self.match(r"\w+(?=\))") or self.either())
        self.expect(r"\)")
        return Call(name, tuple(arguments))


# Templates -> those of one message, without what it does not have


class Scope(NamedTuple):
    """What paths start from: a variable with a struct, and its fields; ``version``: only those of one."""

    variable: str
    message: Message
    fields: tuple[Field, ...]
    path: tuple[str, ...] = ()
    request: Scope | None = None
    version: int | None = None

    def steps(self, path: Path) -> list[tuple[Field, ...]]:
        """The fields that a path leads through: of each step all of that name, none if there is none."""
        fields = self.request.fields if path.root and self.request else self.fields
        steps = []
        for name in path.names:
            named = tuple(field for field in fields if field.name == name and self.has(field))
            steps.append(named)
            if named and named[0].type == "bytes":  # what is in them, another schema says
                break
            fields = tuple(inner for field in named for inner in field.fields)
        return steps

    def has(self, field: Field) -> bool:
        return self.version is None or self.version in field.versions

    def element(self, path: Path, variable: str = "") -> Scope:
        """The scope of an array's elements."""
        fields = tuple(inner for field in self.steps(path)[-1] for inner in field.fields)
        return self._replace(variable=variable, fields=fields, path=(*self.path, *path.names))


def specialized(template: Template, scope: Scope) -> Template:
    """The template without clauses and alternatives that are never shown, because a field is absent."""
    alternatives = (
        tuple(fit for clause in clauses if (fit := _clause(clause, scope))) for clauses in template
    )
    return tuple(clauses for clauses in alternatives if clauses)


def _clause(clause: Clause, scope: Scope) -> Clause | None:
    pieces: list[str | Placeholder | Template] = []
    for piece in clause.pieces:
        if isinstance(piece, str):
            pieces.append(piece)
        elif not isinstance(piece, Placeholder):
            pieces.append(specialized(piece, scope))
        elif (value := _value(piece.value, scope)) is not None:
            pieces.append(Placeholder(value, piece.raw))
        else:
            return None
    test = clause.test
    if test is not None:
        if (value := _value(test.value, scope)) is None:
            return None
        test = test._replace(value=value)
    return Clause(tuple(pieces), test) if any(piece for piece in pieces if piece != " ") else None


def _value(value: Any, scope: Scope) -> Any:
    """None if it is absent."""
    if isinstance(value, Path):
        if value == _API_VERSION and scope.version is not None:
            return scope.version
        return value if value.root == "exchange" or all(scope.steps(value)) else None
    if not isinstance(value, Call):
        return value
    function, (first, *others) = value
    if function == "only" and isinstance(first, Call):
        return _value(Call("either", tuple(Call("only", (each,)) for each in first.arguments)), scope)
    if function == "either":
        known = tuple(fit for each in value.arguments if (fit := _value(each, scope)) is not None)
        return Call(function, known) if len(known) > 1 else known[0] if known else None
    if (fit := _value(first, scope)) is None:
        return None
    if function == "each":
        others = [specialized(others[0], scope.element(fit))]
    elif function in ("enum", "offset_time"):
        others = [_names(first, scope)]
    else:
        others = [_value(each, scope) for each in others]
    return Call(function, (fit, *others))


def _names(value: Any, scope: Scope) -> tuple[tuple[int, str], ...]:
    """The names of an enumerated field's values, in small letters."""
    path = value.arguments[0] if isinstance(value, Call) else value
    if not isinstance(path, Path):
        return ()
    names = enum_names(scope.message.name, ".".join([*scope.path, *path.names]))
    return tuple((number, name.lower().replace("_", " ")) for number, name in names.items())


# Templates -> the native core


@cache
def native_line(api_key: int, version: int) -> core.native.Line | None:
    """The core's ``Line``, which describes exchanges without making bodies of them. None if that is left to
    Python: there is no core, no template, or more to a message than its layout.
    """
    known = undecoded(api_key, version, shows_values=False)
    both = None if known is None else templates(known.request.name.removesuffix("Request"))
    if not core.is_used or known is None or both is None:
        return None
    scope = Scope("", known.request, known.request.fields, version=version)
    of_response = scope._replace(message=known.response, fields=known.response.fields, request=scope)
    try:
        return core.native.Line(
            known.core,
            specialized(both[0], scope),
            specialized(both[1], of_response),
            FOLLOWED if known.follows else None,
            message_plan(BodyLayout(known.response, version)),
        )
    except ValueError:
        return None


# Templates -> a function


_SHOWN = {
    "raw": "{0} is not None",
    "int8": "{0} is not None and {0} >= 0",
    "string": "{0}",
    "text": "{0}",
    "uuid": f'{{0}} and {{0}} != "{_ZERO_UUID}"',
}
_TESTS = {
    "": "{0}",
    "one": "len({0} or ()) == 1",
    "several": "len({0} or ()) > 1",
    "decoded": "isinstance({0}, Embedded)",
    "=": "{0} == {1}",
    "<": "{0} is not None and {0} < {1}",
    ">": "{0} is not None and {0} > {1}",
}
_FUNCTIONS = {
    "topics": "topics_text(exchange, {0})",
    "topics_with_records": "topics_text(exchange, {carried}[0])",
    "records": "amount({carried}[1]) if {carried}[1] else no_records({0})",
    "names": "listed([topic_name(exchange, each) for each in {0} or ()])",
    "list": "listed({0} or ())",
    "list of": "listed({0} or (), {1})",
    "count": 'many(len({0}), {1}) if {0} is not None else ""',
    "number": 'many({0}, {1}) if {0} is not None and {0} >= 0 else ""',
    "size": 'size_of({0}) if {0} is not None else ""',
    "milliseconds": 'duration({0} * 1_000_000) if {0} is not None else ""',
    "enum": '{1}.get({0}) or str({0}) if {0} is not None else ""',
    "offset_time": "offset_time({0}, {1})",
    "unless": "{0} if {0} != {1} else None",
}


class _Code(NamedTuple):
    """An expression, and its type: one of the schema's, ``text`` or ``array``."""

    expression: str
    type: str

    @property
    def is_number(self) -> bool:
        return self.type.startswith(("int", "uint"))


def generate(api_key: int, namespace: Mapping[str, object]) -> FunctionSource | None:
    """The source of a function that describes exchanges of an API. None if it has no templates.

    Args:
        api_key: of a known API.
        namespace: the functions that the source calls, by name.
    """
    messages = schema.request(api_key), schema.response(api_key)
    request, response = (
        Scope(name, message, message.fields)
        for name, message in zip(("request", "response"), messages, strict=True)
        if message is not None
    )
    api = request.message.name.removesuffix("Request")
    both = templates(api)
    return None if both is None else _AboutWriter(api, namespace).generate(both, request, response)


class _AboutWriter:
    """Writes lines that compute values, each value once, and join them.

    ``computed`` has the variables of the expressions that are certain to have been computed: lines inside a
    condition do not count behind it.
    """

    def __init__(self, api: str, namespace: Mapping[str, object]) -> None:
        self.api = api
        reserved = ("exchange", "request", "response", "len", "str", "isinstance", "each", "inner")
        self.source = FunctionSource(f"about {api}", {**namespace, "Embedded": Embedded}, reserved)
        self.computed: dict[str, str] = {}

    def generate(self, both: tuple[Template, Template], request: Scope, response: Scope) -> FunctionSource:
        self.source.line(f"# {self.api}, generated from about.txt.")
        with self.source.block(f"def about_{self.api}(exchange, request, response):"):
            texts = [self.text(both[0], request), self.text(both[1], response._replace(request=request))]
            self.source.line(f"return {', '.join(texts)}")
        return self.source

    @contextmanager
    def branch(self, head: str) -> Iterator[None]:
        computed = self.computed
        self.computed = dict(computed)
        with self.source.block(head):
            yield
        self.computed = computed

    def once(self, expression: str, preferred: str) -> str:
        """The variable of an expression."""
        if expression not in self.computed:
            variable = self.computed[expression] = self.source.name(preferred)
            self.source.line(f"{variable} = {expression}")
        return self.computed[expression]

    # Templates

    def text(self, template: Template, scope: Scope) -> str:
        template = specialized(template, scope)
        return self.template(template, scope) if template else '""'

    def template(self, template: Template, scope: Scope) -> str:
        """Write lines that set a variable to the text, perhaps empty. Returns the variable."""
        line, text = self.source.line, self.source.name("text")
        line(f'{text} = ""')
        with ExitStack() as stack:
            for number, clauses in enumerate(template):
                if number:
                    stack.enter_context(self.branch(f"if not {text}:"))
                if len(clauses) == 1:
                    self.clause(clauses[0], scope, f"{text} = {{}}")
                    continue
                texts = self.source.name("texts")
                line(f"{texts} = []")
                for clause in clauses:
                    self.clause(clause, scope, f"{texts}.append({{}})")
                line(f'{text} = ", ".join({texts})')
        return text

    def clause(self, clause: Clause, scope: Scope, use: str) -> None:
        """Write the line that uses the text of a clause, and before it what must be true for it."""
        with ExitStack() as stack:
            if clause.test is not None:
                stack.enter_context(self.branch(f"if {self.test(clause.test, scope)}:"))
            placeholders: dict[Placeholder, str] = {}
            conditions: dict[str, bool] = {}
            for piece in clause.pieces:
                if isinstance(piece, Placeholder):
                    code = self.value(piece.value, scope)
                    placeholders[piece] = code.expression
                    shown = _SHOWN["raw" if piece.raw else "int8" if code.is_number else code.type]
                    conditions[shown.format(code.expression)] = True
            if conditions:
                stack.enter_context(self.branch(f"if {' and '.join(conditions)}:"))
            text, is_certain = self.joined(clause, placeholders, scope)
            if not is_certain:
                stack.enter_context(self.branch(f"if {text}:"))
            self.source.line(use.format(text))

    def joined(
        self, clause: Clause, placeholders: Mapping[Placeholder, str], scope: Scope
    ) -> tuple[str, bool]:
        """The words of a clause, of which templates can be empty. Whether there is certainly one."""
        words = [""]
        for piece in clause.pieces:
            if isinstance(piece, str):
                words[-1] += piece
            elif isinstance(piece, Placeholder):
                words[-1] += f"{{{placeholders[piece]}}}"
            else:
                words += [self.template(piece, scope) if piece else "", ""]
        if len(words) == 1:
            (word,) = words
            is_hole = word in {f"{{{text}}}" for text in placeholders.values()}
            return word[1:-1] if is_hole else _literal(word), True
        parts = [word if number % 2 else _literal(word.strip()) for number, word in enumerate(words)]
        parts = [part for part in parts if part.strip('"')]
        text = parts[0]
        if len(parts) > 1:
            text = self.once(f'" ".join(filter(None, ({", ".join(parts)})))', "words")
        return text, any(word.strip() for word in words[::2])

    # Values

    def test(self, test: Test, scope: Scope) -> str:
        if test.kind in ("null", "empty"):
            (name,) = test.value.names
            return f'{scope.variable}.get("{name}", 0) {"is None" if test.kind == "null" else "== []"}'
        return _TESTS[test.kind].format(self.value(test.value, scope).expression, test.number)

    def value(self, value: Any, scope: Scope, *, only: bool = False) -> _Code:
        """Write lines that compute a value."""
        if isinstance(value, int):
            return _Code(str(value), "int8")
        if isinstance(value, Path):
            return self.path(value, scope, only=only)
        function, (first, *others) = value
        if function == "only":
            return self.path(first, scope, only=True)
        if function == "either":
            return self.either([self.value(each, scope) for each in value.arguments])
        code = self.value(first, scope)
        if function == "each":
            return self.each(code, others[0], scope.element(first, self.source.name("element")))
        if function == "count" and code.is_number:
            function = "number"
        if function == "list" and others:
            function = "list of"
        arguments = [code.expression, *(self.argument(each, scope) for each in others)]
        text = _FUNCTIONS[function]
        if "{carried}" in text:
            carried = self.once(f"partitions_with_records({arguments[0]})", "carried")
            return _Code(self.once(text.format(*arguments, carried=carried), "text"), "text")
        text = self.once(text.format(*arguments), "text")
        return _Code(text, code.type if function == "unless" else "text")

    def argument(self, value: Any, scope: Scope) -> str:
        if isinstance(value, str):
            return f'"{value}"'
        if not isinstance(value, (Path, Call)):
            names = self.source.name("names")
            self.source.namespace[names] = dict(value)
            return names
        return self.value(value, scope).expression

    def path(self, path: Path, scope: Scope, *, only: bool) -> _Code:
        if path.root == "exchange":
            (name,) = path.names
            return _Code(f"exchange.{name}", "int16" if name == "api_version" else "text")
        if path.root:
            assert scope.request is not None
            scope = scope.request
        variable, kind = scope.variable, "root"
        for name, (field, *_) in zip(path.names, scope.steps(path), strict=False):
            get = f'{variable}.get("{name}")'
            if kind == "array" and only:
                get = f'{variable}[0].get("{name}") if {variable} and len({variable}) == 1 else None'
            elif kind == "array" and field.array:
                get = f'[inner for each in {variable} or () for inner in each.get("{name}") or ()]'
            elif kind == "array":
                get = f'[each["{name}"] for each in {variable} or () if "{name}" in each]'
            elif kind != "root":
                get = f'{variable}.get("{name}") if {variable} else None'
            kind = "array" if field.array or (kind == "array" and not only) else field.type
            variable = self.once(get, name)
        if kind == "bytes" and path.names[-1] != name:
            get = f'{variable}.decoded.get("{path.names[-1]}") if isinstance({variable}, Embedded) else None'
            return _Code(self.once(get, path.names[-1]), "array")
        return _Code(variable, kind)

    def either(self, codes: Sequence[_Code]) -> _Code:
        (expression, kind), *others = codes
        for code in others:
            other = code.expression
            if kind == "array" and code.type != "array":
                other = f"([{other}] if {other} is not None else [])"
            test = f"if {expression} is not None else" if codes[0].is_number else "or"
            expression = f"{expression} {test} {other}"
        return _Code(self.once(expression, "either"), kind)

    def each(self, array: _Code, template: Template, scope: Scope) -> _Code:
        texts = self.source.name("texts")
        self.source.line(f"{texts} = []")
        with self.branch(f"for {scope.variable} in {array.expression} or ():"):
            self.source.line(f"{texts}.append({self.template(template, scope)})")
        return _Code(self.once(f"listed({texts})", "text"), "text")


def _literal(text: str) -> str:
    """The source of a string: the text, with expressions in braces."""
    return f'f"{text}"' if "{" in text else f'"{text}"'
