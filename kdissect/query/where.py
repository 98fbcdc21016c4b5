"""``--where`` text -> a test of exchanges or records. Holds the compiled expression, kept small by the limits
below.

    api == "Fetch" and latency_us > 50000 and "NOT_LEADER_OR_FOLLOWER" in errors
    request.topics.partitions.fetch_offset > 5 or client_id =~ "^orders-[0-9]+$"

A recursive descent parser turns each rule of the grammar into closures; nothing is evaluated as Python.

    or      = and { "or" and }                      also ||, OR
    and     = not { "and" not }                     also &&, AND
    not     = "not" not | compare                   also !, NOT
    compare = operand { sign operand | "=~" string | ("in" | "not in") members }
                                                    a < b < c is a < b and b < c
    sign    = == | != | < | <= | > | >= | contains | startswith | endswith | in | "not in"
                                                    also eq ne lt le gt ge matches
    operand = all(or) | any(or) | amount | address | sum
    members = { member, member } | (member, member)         member = constant | constant..constant
    sum     = product { (+ -) product }
    product = unary { (* /) unary }
    unary   = "-" unary | value
    value   = number | string | true | false | null | name | name.path | (or) | [or, or]
            | len(or) | lower(or) | exists(or)

An amount (``100ms``, ``64KB``) is converted to the unit of the column that it is compared with. An address or
network (``10.0.0.5``, ``10.0.0.0/8``, ``fe80::/10``) equals any address in it.

How arrays, absent values and values of different types compare, and what counts as true: see below.

Regular expressions are RE2's: whatever the pattern, a search takes time in proportion to the text. Names in a
capture are untrusted, and in Python's re "(a+)+$" takes hours on a name of 40 letters.
"""

from __future__ import annotations

import operator
import re
from functools import cache, lru_cache, partial, reduce
from ipaddress import ip_address, ip_network
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.errors import UsageError
from kdissect.kafka import apis, schema
from kdissect.kafka.records import RecordData
from kdissect.model import Embedded
from kdissect.names import kept
from kdissect.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

    from kdissect.kafka.schema import Field

    Row = Any
    """What an expression is about: an exchange or a record."""
    Getter = Callable[[Row], Any]
    Network = IPv4Network | IPv6Network

# Far above the length of any readable expression. They limit the parser's recursion, the size of numbers, and
# the size of patterns.
MAX_CHARACTERS = 4000
MAX_DEPTH = 40
MAX_PATTERN = 500
MAX_PATTERN_MIB = 8  # memory of RE2 per pattern; past it, searches get slower

_SHOWN = 100  # characters of the expression in an error message


def _always_valid(_sign: str, _text: str | None) -> None:
    return None


class Reference(NamedTuple):
    """The meaning of a name in an expression.

    Attributes:
        get: reads it from a row; None if absent, never raises.
        needs_bodies: whether it needs decoded bodies.
        why_invalid: why a comparison (its sign, and the text on the other side, None for a number) would be
            meaningless; None if it is not.
        to_number: converts an amount such as ``100ms`` to a number in the unit of its values, or raises
            UsageError; None: it has no unit.
    """

    get: Getter
    needs_bodies: bool
    why_invalid: Callable[[str, str | None], str | None] = _always_valid
    to_number: Callable[[str], float] | None = None


class Comparison(NamedTuple):
    """A name and constants.

    Attributes:
        name: on the left side.
        sign: ``==``, ``in``, ``=~`` and so on; ``part of`` and ``not part of`` of a constant text.
        constants: what it is compared with; of ``in``, all members.
        ranges: of ``in``: first and last of each.
        is_true: whether it is true of a value.
        value: reads what is compared from a row.
    """

    name: str
    sign: str
    constants: Sequence[Any]
    ranges: Sequence[tuple[Any, Any]]
    is_true: Callable[[Any], bool]
    value: Getter


class WherePart(NamedTuple):
    """An expression or a part of one that is true or false.

    Attributes:
        get: its value; see ``is_true``.
        names: all names in it.
        operator: ``and``, ``or`` or ``not``: of ``parts``.
        parts: see above.
        comparison: if it is no more than that.
    """

    get: Getter
    names: frozenset[str]
    operator: str = ""
    parts: Sequence[WherePart] = ()
    comparison: Comparison | None = None


class Where(NamedTuple):
    """A compiled expression.

    Attributes:
        text: as it was written.
        matches: whether a row matches; never raises.
        needs_bodies: whether any name in it needs decoded bodies.
        whole: its parts.
        resolve: what its names stand for.
    """

    text: str
    matches: Callable[[Row], bool]
    needs_bodies: bool
    whole: WherePart
    resolve: Callable[[str], Reference]

    @property
    def of_values(self) -> WherePart:
        """The same parts, of dictionaries with the value of each name."""
        get = itemgetter
        return compile_where(self.text, lambda name: self.resolve(name)._replace(get=get(name))).whole

    @property
    def names(self) -> frozenset[str]:
        """All names in it."""
        return self.whole.names


def compile_where(text: str, resolve: Callable[[str], Reference]) -> Where:
    """Compile an expression.

    Args:
        text: the expression.
        resolve: name or dotted path -> what it stands for; raises UsageError for a name that does not exist.

    Raises:
        UsageError: invalid expression; the message marks the place with carets.
    """
    if len(text) > MAX_CHARACTERS:
        raise UsageError(
            f"--where: the expression has {len(text):,} characters; the limit is {MAX_CHARACTERS:,}"
        )
    parser = _Parser(text, resolve)
    value = parser.expression()
    return Where(text, lambda row: is_true(value(row)), parser.needs_bodies, parser.part(value), resolve)


class _Operand(NamedTuple):
    """One side of a comparison.

    Attributes:
        token: if it is a single name or constant.
        is_all: whether the comparison must be true for all elements of a list, not only for one.
    """

    get: Getter
    token: _Token | None
    is_all: bool = False

    @property
    def is_null(self) -> bool:
        token = self.token
        return token is not None and token.kind == "word" and _CONSTANTS.get(token.text, "") is None

    @property
    def is_constant(self) -> bool:
        token = self.token
        return token is not None and token.kind in ("number", "string", "amount")


class _Members(NamedTuple):
    """Constants and ranges after ``in``.

    Attributes:
        test: whether a value is one of the constants, or in one of the ranges; the opposite after ``not in``.
    """

    test: Callable[[Any, Row], bool]
    constants: Sequence[Any]
    ranges: Sequence[tuple[Any, Any]]


class _Token(NamedTuple):
    kind: str
    text: str
    pos: int


_TOKEN = re.compile(
    r"""\s*(?:
    (?P<address> \d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,3})?(?![\w.])
               | [0-9a-fA-F]{0,4}:[0-9a-fA-F]{0,4}:[0-9a-fA-F:.]*(?:/\d{1,3})?(?!\w) )
  | (?P<number> (?:\d+(?:\.(?!\.)\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?!\w|\.\d) )
  | (?P<amount> (?:\d+(?:\.\d+)?|\.\d+)[a-zA-Zµ]+(?!\w) )
  | (?P<string> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' )
  | (?P<name>   [^\W\d]\w*(?:\.\w+)* )
  | (?P<sign>   ==|!=|<=|>=|=~|&&|\|\||\.\.|[-+*/<>()\[\]{},!=&|~] )
  | (?P<end>    \Z )
    )""",
    re.VERBOSE,
)
# Other backslashes stay, so "\d+" is the pattern \d+.
_ESCAPE = re.compile(r"""\\([\\"'])""")

_LOOKAROUND = ("(?=", "(?!", "(?<=", "(?<!")
_BACKREFERENCE = re.compile(r"\\[1-9]\d*")

# Other spellings: of C, of SQL, of tshark.
_WORDS = {
    "&&": "and",
    "||": "or",
    "!": "not",
    "AND": "and",
    "OR": "or",
    "NOT": "not",
    "IN": "in",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "matches": "=~",
    "~": "=~",
    "contains": "contains",
    "startswith": "startswith",
    "endswith": "endswith",
}
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "in": "has"}
_CONSTANTS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_LITERALS = ("amount", "address")  # constants that must be the whole side of a comparison
_RESERVED = frozenset({"and", "or", "not", "in", *_CONSTANTS})
_TYPOS = {
    "=": "use == to compare",
    "&": "use && or and",
    "|": "use || or or",
}
_HINTS = {
    "like": "use contains, startswith, endswith, or =~ with a regular expression",
    "is": "use == null or != null",
}


class _Parser:
    """The tokens of an expression, and the current position."""

    def __init__(self, text: str, resolve: Callable[[str], Reference]) -> None:
        self.needs_bodies = False
        self._text = text
        self._resolve = resolve
        self._depth = 0
        self._references: dict[_Token, Reference] = {}
        self._parts: dict[Getter, WherePart] = {}
        self._tokens = list(self._split())
        self._next = 0

    def expression(self) -> Getter:
        """The whole text."""
        value = self._or()
        if self._token.kind != "end":
            raise self._error(f'expected "and", "or" or end of expression, not {self._named()}{self._hint()}')
        return value

    def part(self, get: Getter) -> WherePart:
        """What was parsed last and has this value."""
        return self._parts[get]

    def _joined(self, operator: str, get: Getter, terms: Sequence[Getter]) -> Getter:
        """Note the parts of an operator."""
        parts = [self._parts[term] for term in terms]
        names = frozenset[str]().union(*(part.names for part in parts))
        self._parts[get] = WherePart(get, names, operator, parts)
        return get

    def _noted(self, get: Getter, comparison: Comparison | None = None, *, first: int) -> Getter:
        """Note a part without operators, which begins with this token."""
        tokens = self._tokens[first : self._next]
        names = frozenset(token.text for token in tokens if token in self._references)
        self._parts.setdefault(get, WherePart(get, names, comparison=comparison))
        return get

    # -- tokens

    def _split(self) -> list[_Token]:
        tokens: list[_Token] = []
        pos = 0
        while not tokens or tokens[-1].kind != "end":
            match = _TOKEN.match(self._text, pos)
            if match is None or match.lastgroup is None:
                raise self._token_error(pos)
            kind, text, start = match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)
            if kind in ("name", "sign"):
                text = _WORDS.get(text, text)
                kind = "word" if text in _RESERVED else "sign" if text in _WORDS.values() else kind
            tokens.append(_Token(kind, text, start))
            pos = match.end()
        return tokens

    def _token_error(self, pos: int) -> UsageError:
        pos += len(self._text[pos:]) - len(self._text[pos:].lstrip())
        if self._text[pos] in "\"'":
            return _error("missing closing quote", self._text, pos, len(self._text))
        hint = "; put a time in quotes" if self._text[pos] == ":" and self._text[pos - 1].isdigit() else ""
        return _error(f'unexpected "{self._text[pos]}"{hint}', self._text, pos, pos + 1)

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, *texts: str, kind: str = "sign") -> str | None:
        """Consume the next token if it is one of these."""
        token = self._token
        if token.kind != kind or token.text not in texts:
            return None
        self._next += 1
        return token.text

    def _expect(self, text: str) -> None:
        if self._take(text) is None:
            raise self._error(f"expected {text}, not {self._named()}")

    def _named(self) -> str:
        return "end of expression" if self._token.kind == "end" else self._token.text

    def _hint(self) -> str:
        """A suggestion for a token that is not allowed here."""
        token = self._token
        hint = _HINTS.get(token.text) if token.kind == "name" else None
        return "" if hint is None else f"; {hint}"

    def _error(self, reason: str) -> UsageError:
        token = self._token
        return self._error_at(token, _TYPOS.get(token.text, reason) if token.kind == "sign" else reason)

    def _error_at(self, token: _Token, reason: str) -> UsageError:
        return _error(reason, self._text, token.pos, token.pos + max(1, len(token.text)))

    # -- grammar, from loose to tight

    def _or(self) -> Getter:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH} levels of nesting")
        terms = [self._and()]
        while self._take("or", kind="word"):
            terms.append(self._and())
        self._depth -= 1
        if len(terms) == 1:
            return terms[0]
        return self._joined("or", lambda e: any(is_true(term(e)) for term in terms), terms)

    def _and(self) -> Getter:
        terms = [self._not()]
        while self._take("and", kind="word"):
            terms.append(self._not())
        if len(terms) == 1:
            return terms[0]
        return self._joined("and", lambda e: all(is_true(term(e)) for term in terms), terms)

    def _not(self) -> Getter:
        negate = False
        while self._take("not", kind="word"):
            negate = not negate
        term = self._compare()
        return self._joined("not", lambda e: not is_true(term(e)), (term,)) if negate else term

    def _compare(self) -> Getter:
        first = self._next
        left = self._operand()
        tests: list[Getter] = []
        while True:
            if self._take("=~"):
                search = partial(_matches, self._search())
                tests.append(self._noted(*self._tested(left, "=~", search), first=first))
                break
            name = self._comparison_sign()
            if name is None:
                break
            if name in ("in", "not in") and (close := self._members_follow()):
                members = self._members(left, close, is_in=name == "in")
                tests.append(self._noted(*self._tested(left, name, *members), first=first))
                break
            right = self._operand()
            if right.is_all:
                raise self._error("all() must be on the left side of a comparison")
            tests.append(self._noted(*self._test(left, name, right), first=first))
            left = right
        if not tests:
            if left.is_all or (left.token is not None and left.token.kind in _LITERALS):
                raise self._error(f"expected a comparison, not {self._named()}")
            return self._noted(left.get, first=first)
        if len(tests) == 1:
            return tests[0]
        return self._joined("and", lambda e: all(test(e) for test in tests), tests)

    def _tested(
        self,
        left: _Operand,
        sign: str,
        test: Callable[[Any, Row], bool],
        constants: Sequence[Any] = (),
        ranges: Sequence[tuple[Any, Any]] = (),
    ) -> tuple[Getter, Comparison | None]:
        """A test of the value on the left, which depends on constants only."""
        comparison = None
        if left.token in self._references and not left.is_all:
            comparison = Comparison(
                left.token.text, sign, constants, ranges, lambda value: test(value, None), left.get
            )
        return _quantified(left, test), comparison

    def _test(self, left: _Operand, name: str, right: _Operand) -> tuple[Getter, Comparison | None]:
        if name in ("==", "!=") and (left.is_null or right.is_null):
            test = is_present if name == "!=" else is_absent
            return self._tested(right if left.is_null else left, name, lambda value, _: test(value), (None,))
        self._check(left, name, right)
        self._check(right, name, left)
        for side, other in ((left, right), (right, left)):
            token = side.token
            if token is not None and token.kind == "address":
                if name not in ("==", "!="):
                    raise self._error_at(token, "use == or != with an address, or list it after in")
                is_address = partial(_is_address, [self._network(token)], name == "==")
                return _quantified(other, is_address), None
        values = [self._converted(side, other) for side, other in ((left, right), (right, left))]
        compare, other_value = COMPARISONS[name], values[1]
        if right.is_constant:
            constant = other_value(None)
            sign = {"in": "part of", "not in": "not part of"}.get(name, name)
            return self._tested(left, sign, lambda value, _: compare(value, constant), (constant,))
        value = values[0]
        if left.is_constant and name in _MIRRORED:
            first = value(None)
            return self._tested(right, _MIRRORED[name], lambda value, _: compare(first, value), (first,))
        if left.is_all:
            return _quantified(left, lambda value, e: compare(value, other_value(e))), None
        return (lambda e: compare(value(e), other_value(e))), None

    def _converted(self, side: _Operand, other: _Operand) -> Getter:
        """How to read one side: an amount in the unit of the other side."""
        token = side.token
        if token is not None and token.kind == "amount":
            return _constant(self._amount(token, other))
        if token is not None and token.kind == "string":
            return _constant(_unquoted(token.text))
        return side.get

    def _amount(self, token: _Token, other: _Operand) -> float:
        reference = None if other.token is None else self._references.get(other.token)
        if reference is None or reference.to_number is None:
            raise self._error_at(token, f"{token.text} needs a column or field with a unit on the other side")
        try:
            return reference.to_number(token.text)
        except UsageError as error:
            raise self._error_at(token, str(error)) from None

    def _network(self, token: _Token) -> Network:
        try:
            return ip_network(token.text, strict=False)
        except ValueError:
            raise self._error_at(token, f'invalid address "{token.text}"') from None

    def _members_follow(self) -> str | None:
        """What closes the members that follow ``in``; None: an expression follows."""
        if self._token.kind != "sign" or self._token.text not in ("{", "("):
            return None
        if self._token.text == "{":
            return "}"
        for token in self._tokens[self._next + 1 :]:
            if token.kind == "sign" and token.text == ")":
                return ")"
            is_constant = token.kind in ("string", "number", *_LITERALS) or token.text in _CONSTANTS
            if not is_constant and (token.kind != "sign" or token.text not in ("-", ",", "..")):
                return None
        return None

    def _members(self, left: _Operand, close: str, *, is_in: bool) -> _Members:
        """What follows ``in``: constants, ranges and networks."""
        self._next += 1
        values: list[Any] = []
        ranges: list[tuple[Any, Any]] = []
        networks: list[Network] = []
        while not self._take(close):
            if values or ranges or networks:
                self._expect(",")
            token = self._token
            if token.kind == "address":
                self._next += 1
                networks.append(self._network(token))
                continue
            first = self._member(left)
            if self._take(".."):
                token = self._token
                last = self._member(left)
                if _type(first) != _type(last) or _type(first) not in ("number", "text"):
                    raise self._error_at(token, "a range needs two numbers or two strings")
                ranges.append((first, last))
            else:
                values.append(first)

        def is_member(value: Any, _: Row) -> bool:
            if value is None:
                return False
            elements = _elements(value)
            return is_in is (
                _equal(value, values)
                or any(_is_between(element, *limits) for element in elements for limits in ranges)
                or _is_in_networks(value, networks)
            )

        return _Members(is_member, [*values, *networks], ranges)

    def _member(self, left: _Operand) -> Any:
        """A constant after ``in``."""
        minus = self._take("-")
        token = self._token
        if token.kind == "word" and token.text in _CONSTANTS and not minus:
            self._next += 1
            return _CONSTANTS[token.text]
        if token.kind not in ("number", "amount", *(() if minus else ("string",))):
            raise self._error(f"expected a constant, not {self._named()}")
        self._next += 1
        if token.kind == "amount":
            value: Any = self._amount(token, left)
        else:
            self._check(left, "==", _Operand(left.get, token))
            value = _unquoted(token.text) if token.kind == "string" else _literal(token)
        return -value if minus else value

    def _check(self, column: _Operand, sign: str, constant: _Operand) -> None:
        """Reject comparisons of a column with a value it can never have."""
        if column.token is None or constant.token is None:
            return
        token = constant.token
        if token.kind not in ("number", "string", "address"):
            return
        reference = self._references.get(column.token)
        if reference is not None:
            text = None if token.kind == "number" else _unquoted(token.text) if token.kind == "string" else ""
            why_invalid = reference.why_invalid(sign, text)
            if why_invalid is not None:
                raise self._error_at(token, why_invalid)

    def _comparison_sign(self) -> str | None:
        if sign := self._take("==", "!=", "<", "<=", ">", ">=", "contains", "startswith", "endswith"):
            return sign
        if self._take("in", kind="word"):
            return "in"
        if self._take("not", kind="word"):
            if self._take("in", kind="word"):
                return "not in"
            raise self._error(f'expected "in" after "not", not {self._named()}')
        return None

    def _operand(self) -> _Operand:
        first = self._next
        token, after = self._token, self._tokens[min(first + 1, len(self._tokens) - 1)]
        if token.kind in _LITERALS:
            self._next += 1
            return _Operand(_constant(None), token)
        if token.kind == "name" and token.text in ("any", "all") and after.text == "(":
            self._next += 2
            inner = self._next
            value = self._or()
            last = self._tokens[inner] if self._next == inner + 1 else None
            self._expect(")")
            return _Operand(value, last, is_all=token.text == "all")
        value = self._sum()
        return _Operand(value, self._tokens[first] if self._next == first + 1 else None)

    def _search(self) -> Search:
        """Compile a regular expression."""
        token = self._token
        if token.kind != "string":
            raise self._error(f"=~ needs a regular expression in quotes, not {self._named()}")
        try:
            search = compile_pattern(_unquoted(token.text))
        except PatternError as error:
            start = token.text.find(error.part, 1) if error.part else -1
            if start < 0:
                raise self._error(str(error)) from None
            start += token.pos
            raise _error(str(error), self._text, start, start + len(error.part)) from None
        self._next += 1
        return search

    def _sum(self) -> Getter:
        first = self._product()
        rest: list[tuple[Any, Getter]] = []
        while sign := self._take("+", "-"):
            rest.append((operator.add if sign == "+" else operator.sub, self._product()))
        return _arithmetic(first, rest) if rest else first

    def _product(self) -> Getter:
        first = self._unary()
        rest: list[tuple[Any, Getter]] = []
        while sign := self._take("*", "/"):
            rest.append((operator.mul if sign == "*" else operator.truediv, self._unary()))
        return _arithmetic(first, rest) if rest else first

    def _unary(self) -> Getter:
        negate = False
        while self._take("-"):
            negate = not negate
        value = self._value()
        return _arithmetic(_constant(0), [(operator.sub, value)]) if negate else value

    def _value(self) -> Getter:
        token = self._token
        if token.kind == "amount":
            raise self._error("a value with a unit can only be compared with a column: latency > 100ms")
        if token.kind == "address":
            raise self._error("an address can only be compared: client_ip == 10.0.0.0/8")
        if token.kind == "end" or (token.kind == "sign" and token.text not in ("(", "[")):
            raise self._error(f"expected a value, not {self._named()}")
        if token.kind == "word" and token.text not in _CONSTANTS:
            raise self._error(f"expected a value, not {self._named()}")
        self._next += 1
        if token.kind in ("number", "string"):
            return _constant(_literal(token))
        if token.kind == "word":
            return _constant(_CONSTANTS[token.text])
        if token.text == "(":
            inner = self._or()
            self._expect(")")
            return inner
        if token.text == "[":
            return self._list()
        return self._name(token)

    def _list(self) -> Getter:
        items: list[Getter] = []
        while not self._take("]"):
            if items:
                self._expect(",")
            items.append(self._or())
        return lambda e: flat(item(e) for item in items)

    def _name(self, token: _Token) -> Getter:
        if self._token.text == "(" and self._token.kind == "sign":
            return self._call(token)
        try:
            reference = self._resolve(token.text)
        except UsageError as error:
            raise _error(str(error), self._text, token.pos, token.pos + len(token.text)) from None
        self.needs_bodies |= reference.needs_bodies
        self._references[token] = reference
        return reference.get

    def _call(self, token: _Token) -> Getter:
        function = FUNCTIONS.get(token.text)
        if function is None:
            reason = f'unknown function "{token.text}"; known: {", ".join((*FUNCTIONS, "any", "all"))}'
            raise _error(reason, self._text, token.pos, token.pos + len(token.text))
        self._expect("(")
        argument = self._or()
        self._expect(")")
        return lambda e: function(argument(e))


class PatternError(UsageError):
    """A regular expression is invalid.

    Attributes:
        part: the unsupported part of it; empty if unknown.
    """

    def __init__(self, reason: str, part: str = "") -> None:
        super().__init__(reason)
        self.part = part


def compile_pattern(text: str, *, in_bytes: bool = False) -> Search:
    r"""Compile a regular expression to a search of UTF-8.

    Args:
        text: the pattern.
        in_bytes: whether it searches any bytes, so that ``.`` is a byte and ``\xff`` that one.

    Raises:
        PatternError: it is invalid, too long or too large.
    """
    import re2  # rarely needed

    if len(text) > MAX_PATTERN:
        raise PatternError(f"regular expression longer than {MAX_PATTERN} characters")
    options = re2.Options()
    options.max_mem = MAX_PATTERN_MIB << 20
    options.log_errors = False  # to stderr
    options.never_capture = True
    if in_bytes:
        options.encoding = re2.Options.Encoding.LATIN1
    try:
        search: Search = re2.compile(utf8(text), options).search
    except re2.error as error:
        raise _pattern_error(error.args[0].decode("utf-8", "replace")) from None
    return search


def _pattern_error(reason: str) -> PatternError:
    """The error that RE2 reports."""
    part = reason.partition(": ")[2]
    if part == "(?P":
        part = "(?P="  # (?P<name> is taken
    if part.startswith(_LOOKAROUND):
        reason = "look-around is not supported in regular expressions (RE2)"
    elif part == "(?P=" or _BACKREFERENCE.fullmatch(part):
        reason = "backreferences are not supported in regular expressions (RE2)"
    elif reason.startswith("pattern too large"):
        reason = f"regular expression needs more than {MAX_PATTERN_MIB} MiB of memory"
    else:
        reason = f"invalid regular expression (RE2): {reason}"
    return PatternError(reason, part)


def _error(reason: str, text: str, start: int, end: int) -> UsageError:
    """The reason, and the text around the error with carets under it."""
    first = max(0, min(start - _SHOWN // 2, len(text) - _SHOWN))
    shown = "".join(c if c.isprintable() else " " for c in text[first : first + _SHOWN])
    carets = "^" * max(1, min(end, first + _SHOWN) - start)
    return UsageError(f"--where: {reason}\n  {shown}\n  {' ' * (start - first)}{carets}")


def _unquoted(text: str) -> str:
    return _ESCAPE.sub(r"\1", text[1:-1])


def _constant(value: Any) -> Getter:
    return lambda _: value


def _matches(search: Search, value: Any, _: Row) -> bool:
    return matches(value, search)


def _is_address(networks: Sequence[Network], expected: bool, value: Any, _: Row) -> bool:
    return value is not None and _is_in_networks(value, networks) is expected


def _literal(token: _Token) -> Any:
    if token.kind == "string":
        return _unquoted(token.text)
    return int(token.text) if token.text.isdigit() else float(token.text)


def _quantified(operand: _Operand, test: Callable[[Any, Row], bool]) -> Getter:
    """A test of an operand's value; ``all()``: of each element, and false for an empty or absent list."""
    get = operand.get
    if not operand.is_all:
        return lambda e: test(get(e), e)

    def holds_for_all(row: Row) -> bool:
        value = get(row)
        elements = value if type(value) is list else [] if value is None else [value]
        return bool(elements) and all(test(element, row) for element in elements)

    return holds_for_all


def _arithmetic(first: Getter, rest: list[tuple[Any, Getter]]) -> Getter:
    def calculated(row: Row) -> Any:
        value = first(row)
        for operation, term in rest:
            value = calculate(operation, value, term(row))
        return value

    return calculated


# ------------------------------------------------------------------------------------------------------------
# Two values of an expression -> the result of an operator, for all types.
#
# * A list stands for *any* of its elements: ``request.topics.name != "a"`` is true if some topic has
#   another name, ``not request.topics.name == "a"`` if no topic has this one.
# * A comparison with an absent value (None), or of values of different types, is false, ``!=`` included;
#   only ``x == null`` and ``x != null`` test for absence. Arithmetic with such values gives an
#   absent value.
# * ``contains``, ``startswith`` and ``endswith`` compare texts. With ``all(x)`` on its left a comparison must
#   be true of all elements, and there must be one.
# * ``in`` tests for an element of a list or a part of a text; ``not in`` is its opposite if both are
#   present.
# * Alone, a value is true unless it is absent, false, 0, "" or a list of only these.
# * Numbers compare with numbers, texts with texts, true with false; bytes, structs and credentials with
#   nothing.
#
# Nothing here raises, and two long lists cost the sum of their lengths, not the product.
# ------------------------------------------------------------------------------------------------------------


if TYPE_CHECKING:
    Search = Callable[[bytes], object | None]
    """Searches UTF-8 text; None: no match."""

MAX_MATCHED = 1 << 20
"""Characters of a text that a regular expression searches; only values of records are so long."""

_TYPES = {bool: "boolean", int: "number", float: "number", str: "text"}


def is_true(value: Any) -> bool:
    """Whether a value on its own counts as true."""
    return any(map(is_true, value)) if type(value) is list else bool(value)


def is_present(value: Any) -> bool:
    """``x != null``; for a list: whether any element is present."""
    return any(element is not None for element in value) if type(value) is list else value is not None


def is_absent(value: Any) -> bool:
    """``x == null``; for a list: whether any element is absent."""
    return any(element is None for element in value) if type(value) is list else value is None


def flat(values: Iterable[Any]) -> list[Any]:
    """Flatten lists among the values by one level."""
    flattened: list[Any] = []
    for value in values:
        if type(value) is list:
            flattened += value
        else:
            flattened.append(value)
    return flattened


def matches(value: Any, search: Search) -> bool:
    """``x =~ "pattern"``."""
    if type(value) is list:
        return any(matches(element, search) for element in value)
    return isinstance(value, str) and search(utf8(value[:MAX_MATCHED])) is not None


def utf8(text: str) -> bytes:
    """Encode a text; lone surrogates, as in file names that are not UTF-8, become escapes."""
    return text.encode("utf-8", "backslashreplace")


def calculate(operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """``left + right`` and the like, for numbers; with one list: a list of the results."""
    if type(left) is list and type(right) is not list:
        return [calculate(operation, element, right) for element in left]
    if type(right) is list and type(left) is not list:
        return [calculate(operation, left, element) for element in right]
    if _TYPES.get(type(left)) != "number" or _TYPES.get(type(right)) != "number":
        return None
    try:
        return operation(left, right)
    except (ZeroDivisionError, OverflowError):
        return None


def _equal(left: Any, right: Any) -> bool:
    if type(left) is type(right) and type(left) is not list:
        return type(left) in _TYPES and bool(kept(left) == kept(right))
    rights = {(_TYPES[type(element)], kept(element)) for element in _elements(right)}
    return any((_TYPES[type(element)], kept(element)) in rights for element in _elements(left))


def _ordering(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], bool]:
    def ordered(left: Any, right: Any) -> bool:
        rights = _extremes(right) if type(right) is list else [right]
        lefts = left if type(left) is list else (left,)
        return any(
            _TYPES.get(type(x), "") == _TYPES.get(type(y)) and bool(compare(x, y))
            for x in lefts
            for y in rights
        )

    return ordered


def _extremes(values: list[Any]) -> list[Any]:
    """The minimum and maximum of each type: enough to decide ``<``, ``>`` and ``!=`` for any element."""
    sorts: dict[str, list[Any]] = {}
    for value in _elements(values):
        sorts.setdefault(_TYPES[type(value)], []).append(value)
    return [extreme(sort) for sort in sorts.values() for extreme in (min, max)]


def _elements(value: Any) -> list[Any]:
    """The comparable elements of a list or a single value."""
    return [element for element in (value if type(value) is list else [value]) if type(element) in _TYPES]


def _type(value: Any) -> str | None:
    return _TYPES.get(type(value))


def _is_between(value: Any, low: Any, high: Any) -> bool:
    return _type(value) == _type(low) and bool(low <= value <= high)


def _is_in_networks(value: Any, networks: Sequence[Network]) -> bool:
    if not networks:
        return False
    texts = value if type(value) is list else [value]
    addresses = [
        _address(text) for text in texts if isinstance(text, str) and len(text) <= _ADDRESS_CHARACTERS
    ]
    return any(address in network for address in addresses for network in networks if address is not None)


_ADDRESS_CHARACTERS = 64  # with a zone; a longer text is no address, and not worth a place in the cache


@lru_cache(maxsize=4096)
def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _text_test(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    """A comparison of two texts: of any elements of lists."""

    def is_true_of_any(left: Any, right: Any) -> bool:
        parts = [part for part in (right if type(right) is list else [right]) if isinstance(part, str)]
        texts = left if type(left) is list else [left]
        return any(isinstance(text, str) and any(test(text, part) for part in parts) for text in texts)

    return is_true_of_any


def _in(left: Any, right: Any) -> bool:
    if isinstance(right, str):
        return any(isinstance(part, str) and part in right for part in _elements(left))
    return type(right) is list and _equal(left, right)


def _not_in(left: Any, right: Any) -> bool:
    if left is None or not isinstance(right, str | list):
        return False
    return not _in(left, right)


def _length(value: Any) -> int | None:
    """Elements of a list, characters of a text, bytes of bytes and record data."""
    if isinstance(value, Embedded):
        value = value.data
    if type(value) in _TYPES or value is None or isinstance(value, tuple | dict):
        return len(value) if isinstance(value, str) else None
    return len(value)


def _lower(value: Any) -> Any:
    if type(value) is list:
        return [_lower(element) for element in value]
    return value.lower() if isinstance(value, str) else None


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": _equal,
    "!=": _ordering(lambda left, right: kept(left) != kept(right)),
    "<": _ordering(operator.lt),
    "<=": _ordering(operator.le),
    ">": _ordering(operator.gt),
    ">=": _ordering(operator.ge),
    "in": _in,
    "not in": _not_in,
    "contains": _text_test(str.__contains__),
    "startswith": _text_test(str.startswith),
    "endswith": _text_test(str.endswith),
}

FUNCTIONS: dict[str, Callable[[Any], Any]] = {"len": _length, "lower": _lower, "exists": is_present}


# ------------------------------------------------------------------------------------------------------------
# ``topics.partitions.fetch_offset`` -> the value in a decoded body; the paths that exist.
#
# Caches the field names of all messages on first use: about 2,000 small dictionary entries.
# ------------------------------------------------------------------------------------------------------------


Tree = dict[str, "Tree | None"]
"""Field name -> the fields below it; None if these are unknown: below bytes and records."""

ADDED_FIELDS = frozenset({"_tags", "_trailing", "_undecoded"})
"""By kafka/bodies.py, to any body."""
_OPAQUE = ("bytes", "records")


def value_at(value: Any, path: Sequence[str]) -> Any:
    """The value at ``path`` below ``value``; None if absent.

    Through an array: a list with one value per element. Record data counts as an array of batch headers, and
    bytes with a known payload as that payload.
    """
    values, many = [value], False
    for name in path:
        structs: list[Any] = []
        for outer in map(_decoded, values):
            if type(outer) is list:
                many = True
                structs += outer
            else:
                structs.append(outer)
        values = [struct.get(name) if type(struct) is dict else None for struct in structs]
    return flat(values) if many else values[0]


def _decoded(value: Any) -> Any:
    if isinstance(value, RecordData):
        return value.batches()
    return value.decoded if isinstance(value, Embedded) else value


def check(message: str, path: Sequence[str]) -> None:
    """Check that some version of some message has this path.

    Args:
        message: ``request`` or ``response``.
        path: names of fields, outermost first.

    Raises:
        UsageError: no such path; the message suggests the nearest one.
    """
    tree = names(message)
    known = depth(tree, path)
    if known < len(path):
        siblings = reduce(lambda below, name: below[name] or {}, path[:known], tree)
        raise UsageError(_no_field(message, path[:known], path[known], siblings))


def depth(tree: Tree, path: Sequence[str]) -> int:
    """How many names of a path there may be below ``tree``: all of them, unless one is missing."""
    below: Tree | None = tree
    for number, name in enumerate(path):
        if below is None or name in ADDED_FIELDS:
            break
        if name not in below:
            return number
        below = below[name]
    return len(path)


def _no_field(message: str, parents: Sequence[str], name: str, siblings: Tree) -> str:
    parent = ".".join((message, *parents))
    elsewhere = sorted((path for path in paths(message) if path[-1] == name), key=len)
    if elsewhere:
        hint = f"; did you mean {message}.{'.'.join(elsewhere[0])}?"
    elif near := nearest(name, siblings):
        hint = f"; did you mean {parent}.{near}?"
    else:
        hint = f"; its fields are {', '.join(siblings)}" if parents and siblings else ""
    return f'{parent} has no field "{name}" in any API{hint}'


def _paths(tree: Tree, parents: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, below in tree.items():
        yield (*parents, name)
        yield from _paths(below or {}, (*parents, name))


def paths(message: str) -> Iterator[tuple[str, ...]]:
    """The paths of all fields of requests, or of responses, each the names from the outermost in."""
    return _paths(names(message))


@cache
def names(message: str, api_key: int | None = None) -> Tree:
    """The fields of the requests, or of the responses, of an API in all versions; None: of all APIs."""
    tree: Tree = {}
    for key in [api.key for api in apis.all_apis()] if api_key is None else [api_key]:
        layout = schema.request(key) if message == "request" else schema.response(key)
        if layout is not None:
            for fields in (layout.fields, *(draft.fields for draft in layout.drafts)):
                _add(tree, fields)
    return tree


def _add(tree: Tree, fields: Sequence[Field]) -> None:
    for field in fields:
        if field.type in _OPAQUE:
            tree[field.name] = None
            continue
        below = tree.setdefault(field.name, {})
        if below is not None:
            _add(below, field.fields)
