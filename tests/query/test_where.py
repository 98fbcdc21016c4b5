from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect.errors import UsageError
from kdissect.model import Redacted
from kdissect.query.filters import convert_amount
from kdissect.query.where import MAX_CHARACTERS, MAX_DEPTH, MAX_MATCHED, Reference, compile_where
from tests.exchange_factory import exchange

if TYPE_CHECKING:
    from kdissect.model import Exchange

VALUES: dict[str, Any] = {
    "api": "Fetch",
    "latency_us": 60_000,
    "ratio": 0.5,
    "flag": True,
    "client_id": "orders-7",
    "absent": None,
    "empty": [],
    "errors": ["NOT_LEADER_OR_FOLLOWER", "OFFSET_OUT_OF_RANGE"],
    "numbers": [1, 5, 9],
    "mixed": [1, "a", None, True],
    "nulls": [None, 3],
    "zeros": [0, 0],
    "data": b"\x01\x02",
    "secret": Redacted(4),
    "body": {"a": 1},
    "huge": 2**63 - 1,
    "ip": "10.1.2.3",
    "ipv6": "fe80::1",
    "addresses": ["10.1.2.3", "192.168.0.1", "name"],
    "frame_bytes": 64_000,
    "timeout_ms": 30_000,
    "request.topics.name": ["a", "b"],
}
EXCHANGE = exchange()
UNITS = "(units: ns, us, µs, ms, s, m, min, h, d)"
FUNCTIONS = "known: len, lower, exists, any, all"


def resolve(name: str) -> Reference:
    if name not in VALUES:
        raise UsageError(f'no column "{name}"')
    unit = name.rpartition("_")[2]
    return Reference(
        lambda _: VALUES[name],
        needs_bodies="." in name,
        to_number=partial(convert_amount, unit) if unit in ("us", "ms", "bytes") else None,
    )


def holds(text: str) -> bool:
    return compile_where(text, resolve).matches(EXCHANGE)


@pytest.mark.parametrize(
    ("true", "false"),
    [
        ('client_id contains "ers-"', 'client_id contains "Ers"'),
        ('errors contains "OFFSET"', 'absent contains ""'),
        ('client_id startswith "orders"', 'client_id startswith "rders"'),
        ('errors endswith "RANGE"', 'numbers endswith "1"'),
        ('client_id contains ["x", "-7"]', 'client_id contains ["x", 7]'),
        ("latency_us in {1, 50000..70000}", "latency_us in {1, 60001..70000}"),
        ("numbers in {2..4, 9}", "numbers in {2..4, 6}"),
        ("numbers not in {-2..0}", "absent not in {1..2}"),
        ('api in {"A".."G"}', 'api in {"a".."g"}'),
        ("ratio in {.5}", "ratio in {0..0.4}"),
        ('api in ("Produce", "Fetch")', 'api in ("FetchSnapshot")'),
        ('api not in ("FetchSnapshot")', 'api not in ("Produce", "Fetch")'),
        ("flag in {true}", "flag in {false, 1}"),
        ("latency_us in {50ms..70ms}", "latency_us in {50us..70us}"),
        ("ip == 10.0.0.0/8", "ip == 10.2.0.0/16"),
        ("ip == 10.1.2.3", "ip != 10.1.2.3"),
        ("ip != 10.2.0.0/16", "absent != 10.0.0.0/8"),
        ("10.1.0.0/16 == ip", "api == 10.0.0.0/8"),
        ("ip in {10.0.0.0/8, 172.16.0.0/12}", "ip in (192.168.0.0/16, 172.16.0.0/12)"),
        ("ipv6 == fe80::/10", "ipv6 == ::1"),
        ("ipv6 == fe80:0:0:0:0:0:0:1", "ip == ::ffff:0:0/96"),
        ("addresses == 192.168.0.0/16", "all(addresses) == 0.0.0.0/0"),
        ("latency_us > 50ms", "latency_us > 0.06s"),
        ("50ms < latency_us <= 60ms", "50ms < latency_us < 60ms"),
        ("timeout_ms == 30s", "timeout_ms < 30s"),
        ("frame_bytes >= 64KB", "frame_bytes >= 64KiB"),
        ("all(numbers) > 0", "all(numbers) > 1"),
        ("any(numbers) > 8", "any(numbers) > 9"),
        ("all(api) == 'Fetch'", "all(empty) == 1"),
        ('all(errors) contains "O"', 'all(errors) startswith "NOT"'),
        ('all(errors) =~ "_"', 'all(errors) =~ "^N"'),
        ("all(numbers) in {1..9}", "all(numbers) in {1..8}"),
        ("all(numbers) not in {2..4}", "all(numbers) not in {9}"),
        ("all(numbers) != null", "all(nulls) != null"),
        ("1 in numbers", "not exists(api)"),
        ("exists(nulls) and not exists(absent)", "exists(empty)"),
    ],
)
def test_sets_amounts_addresses_and_quantifiers(true: str, false: str) -> None:
    assert (holds(true), holds(false)) == (True, False)


@pytest.mark.parametrize(
    "text",
    [
        'api == "Fetch" and latency_us > 50000 and "NOT_LEADER_OR_FOLLOWER" in errors',
        "api == 'Fetch'",
        'api != "Produce"',
        'api < "Produce"',
        "latency_us >= 60000",
        "latency_us <= 6e4",
        "50000 < latency_us < 70000",
        "ratio == 0.5",
        "ratio == .5",
        "latency_us / 1000 == 60",
        "latency_us - 1000 * 2 + 1 == 58001",
        "(latency_us - 1000) * 2 == 118000",
        "-latency_us < 0",
        "--latency_us > 0",
        "1 + -1 == 0",
        "8 / 4 / 2 == 1",
        "flag",
        "flag == true",
        "flag != False",
        "not not flag",
        "!absent",
        "not empty",
        "not zeros",
        "numbers",
        "not absent and not empty",
        'api == "x" or api == "Fetch"',
        'api == "x" || flag && !empty',
        "api == 'x' and absent or flag",
        # in the words of SQL and tshark
        "api eq 'Fetch' AND latency_us gt 50000 OR absent",
        "NOT absent AND 5 IN numbers AND 7 NOT IN numbers",
        "latency_us lt 70000 and latency_us le 60000 and latency_us ge 60000 and api ne 'x'",
        "api matches '^F'",
        "api ~ '^F'",
        # arrays: any element
        "numbers == 5",
        "numbers != 5",
        "numbers > 8",
        "8 < numbers",
        "1 < numbers < 2 or numbers > 2",
        "5 in numbers",
        "numbers in [5, 6]",
        "7 not in numbers",
        "numbers not in [6, 7]",
        "numbers * 2 == 18",
        "10 - numbers == 1",
        "numbers == zeros + 1 or numbers > zeros",
        'request.topics.name == "b"',
        'request.topics.name != "b"',
        'not request.topics.name == "c"',
        'mixed == "a"',
        "mixed == 1",
        "len(errors) == 2",
        "len(empty) == 0",
        "len(client_id) == 8",
        "len(data) == 2",
        "errors =~ 'LEADER'",
        # absent
        "absent == null",
        "null == absent",
        "api != None",
        "nulls == null",
        "nulls != null",
        "body != null",
        "absent + 1 == null",
        "latency_us / 0 == null",
        "numbers + errors == null",
        "len(absent) == null",
        "len(latency_us) == null",
        "len(secret) == null",
        "null == null",
        "1 != null",
        # text
        '"orders" in client_id',
        '"x" not in client_id',
        'client_id =~ "^orders-[0-9]+$"',
        r'client_id =~ "^orders-\d+$"',
        'api in ["Produce", "Fetch"]',
        'api in ("Fetch")',
        'api not in ["Produce"]',
        'lower(api) == "fetch"',
        'lower(errors) == "offset_out_of_range"',
        r'"a\"b\\" == "a\"b\\"',
        '"it\'s" == "it\'s"',
        "latency_us > 5 and(flag)",
        "huge * huge > huge",
    ],
)
def test_true(text: str) -> None:
    assert holds(text)


@pytest.mark.parametrize(
    "text",
    [
        'api == "fetch"',
        "api == 5",
        "api != 5",
        "api < 5",
        "latency_us == true",
        "flag == 1",
        "flag < 2",
        "absent == 1",
        "absent != 1",
        "absent < 1",
        "1 > absent",
        "absent == absent",
        "absent in numbers",
        "absent not in numbers",
        "1 in absent",
        "1 not in absent",
        "1 in 1",
        "1 not in 1",
        '1 in "1"',
        "absent =~ '.'",
        "latency_us =~ '6'",
        "empty == null",
        "empty != null",
        "empty == 1",
        "empty != 1",
        "numbers == numbers + 100",
        "7 in numbers",
        "5 not in numbers",
        "zeros",
        "absent",
        "null",
        '""',
        "0",
        "false",
        "data == data",
        "data == 'AQI='",
        "secret == 4",
        "secret > 0",
        "body == body",
        "body < body",
        "api + api == 'FetchFetch'",
        "1 < 2 < 2",
        "numbers + errors > 0",
        "mixed == false",
        "not flag or empty",
    ],
)
def test_false(text: str) -> None:
    assert not holds(text)


@pytest.mark.parametrize(
    ("text", "reason", "carets"),
    [
        ('api = "Fetch"', "use == to compare", "    ^"),
        ("latency > 5", 'no column "latency"', "^^^^^^^"),
        ('api == "Fetch" and latency > 5', 'no column "latency"', "                   ^^^^^^^"),
        ("", "expected a value, not end of expression", "^"),
        ("api ==", "expected a value, not end of expression", "      ^"),
        ("(flag", "expected ), not end of expression", "     ^"),
        ("flag)", 'expected "and", "or" or end of expression, not )', "    ^"),
        ("flag flag", 'expected "and", "or" or end of expression, not flag', "     ^^^^"),
        (
            "api is null",
            'expected "and", "or" or end of expression, not is; use == null or != null',
            "    ^^",
        ),
        ("time > 10:05", 'unexpected ":"; put a time in quotes', "         ^"),
        ("ip == 300.0.0.1", 'invalid address "300.0.0.1"', "      ^^^^^^^^^"),
        ("ip < 10.0.0.1", "use == or != with an address, or list it after in", "     ^^^^^^^^"),
        ("1 + 10.0.0.1", "an address can only be compared: client_ip == 10.0.0.0/8", "    ^^^^^^^^"),
        ("len(10.0.0.1)", "expected a comparison, not )", "            ^"),
        ("10.0.0.1", "expected a comparison, not end of expression", "        ^"),
        ("api > 50ms", "50ms needs a column or field with a unit on the other side", "      ^^^^"),
        ("50ms == 50ms", "50ms needs a column or field with a unit on the other side", "^^^^"),
        (
            "latency_us - 5ms > 0",
            "a value with a unit can only be compared with a column: latency > 100ms",
            "             ^^^",
        ),
        ("5 < all(numbers)", "all() must be on the left side of a comparison", "                ^"),
        ("all(numbers)", "expected a comparison, not end of expression", "            ^"),
        ("numbers in {1..'a'}", "a range needs two numbers or two strings", "               ^^^"),
        ("numbers in {1, api}", "expected a constant, not api", "               ^^^"),
        ("numbers in {1, 5", "expected ,, not end of expression", "                ^"),
        ("numbers not in {-'a'}", "expected a constant, not 'a'", "                 ^^^"),
        ("1 in [1, 2", "expected ,, not end of expression", "          ^"),
        ("and flag", "expected a value, not and", "^^^"),
        ("api == 'Fetch", "missing closing quote", "       ^^^^^^"),
        (
            "latency_us > 50kB",
            f'invalid duration "50kB": use a number and a unit: 50ms, 1.5s, 2m {UNITS}',
            "             ^^^^",
        ),
        ("flag ; api", 'unexpected ";"', "     ^"),
        ("api not flag", 'expected "in" after "not", not flag', "        ^^^^"),
        ("api =~ api", "=~ needs a regular expression in quotes, not api", "       ^^^"),
        ("flag & flag", "use && or and", "     ^"),
        ("flag | flag", "use || or or", "     ^"),
        ("size(errors)", f'unknown function "size"; {FUNCTIONS}', "^^^^"),
        ("2 ** 3", "expected a value, not *", "   ^"),
        (
            "__import__('os')",
            f'unknown function "__import__"; {FUNCTIONS}',
            "^^^^^^^^^^",
        ),
        ("api.__class__", 'no column "api.__class__"', "^^^^^^^^^^^^^"),
        ("lambda: 1", 'unexpected ":"', "      ^"),
        ("numbers[0]", 'expected "and", "or" or end of expression, not [', "       ^"),
    ],
)
def test_mistakes_are_shown_where_they_are(text: str, reason: str, carets: str) -> None:
    with pytest.raises(UsageError) as caught:
        compile_where(text, resolve)
    assert str(caught.value).split("\n") == [f"--where: {reason}", f"  {text}", f"  {carets}"]


LOOK_AROUND = "look-around is not supported in regular expressions (RE2)"
BACKREFERENCE = "backreferences are not supported in regular expressions (RE2)"


@pytest.mark.parametrize(
    ("pattern", "reason", "marked"),
    [
        ("a(?=b)", LOOK_AROUND, "(?="),
        ("a(?!b)", LOOK_AROUND, "(?!"),
        ("(?<=a)b", LOOK_AROUND, "(?<="),
        ("(?<!a)b", LOOK_AROUND, "(?<!"),
        (r"(a)\1", BACKREFERENCE, r"\1"),
        ("(?P<n>a)(?P=n)", BACKREFERENCE, "(?P="),
        ("a**", "invalid regular expression (RE2): bad repetition operator: **", "**"),
        ("(a: b", "invalid regular expression (RE2): missing ): (a: b", "(a: b"),
        (r"a\Z", r"invalid regular expression (RE2): invalid escape sequence: \Z", r"\Z"),
        ("a\udc80", r"invalid regular expression (RE2): invalid escape sequence: \u", '"a "'),
        (r"\pL{1000}", "regular expression needs more than 8 MiB of memory", r'"\pL{1000}"'),
    ],
)
def test_a_pattern_that_is_refused(
    pattern: str, reason: str, marked: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        compile_where(f'flag and api =~ "{pattern}"', resolve)
    message, shown, carets = str(caught.value).split("\n")
    assert message == f"--where: {reason}"
    assert shown[carets.index("^") : len(carets)] == marked
    assert capfd.readouterr() == ("", "")  # RE2 writes to stderr by default


def test_a_pattern_that_is_too_long() -> None:
    with pytest.raises(UsageError, match="longer than 500 characters"):
        compile_where(f'api =~ "{"a" * 501}"', resolve)


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|aa)+$", "^(((a*)*)*)*$", "(.*a){40}$", "^(a?b?c?){900}$"], ids=str
)
def test_no_text_keeps_a_pattern_busy(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], pattern: str
) -> None:
    """Python's own engine would not return from most of these. Nor does RE2 complain of too little memory."""
    monkeypatch.setitem(VALUES, "client_id", "a" * 4000 + "!")
    assert not holds(f'client_id =~ "{pattern}"')
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("value", "pattern", "matches_name"),
    [
        ("Orders", "(?i)^oRDERS$", True),
        ("Orders", "(?i:o)rders", True),
        ("Orders", "orders", False),
        ("ÉTÉ 中", "(?i)^été .$", True),
        ("a\nb", "a.b", False),
        ("a\nb", "(?s)a.b", True),
        ("a\nb", "^b", False),
        ("a\nb", "(?m)^b$", True),
        ("x" * MAX_MATCHED + "y", "y", False),
        ("\udcff.pcap", r"^\\\\udcff", True),  # a file's name that is no UTF-8
        ("a", "(?P<name>a)", True),
        ("", "", True),
    ],
)
def test_flags_and_texts(
    monkeypatch: pytest.MonkeyPatch, value: str, pattern: str, *, matches_name: bool
) -> None:
    monkeypatch.setitem(VALUES, "client_id", value)
    assert holds(f"client_id =~ '{pattern}'") is matches_name


def test_a_long_expression_is_shown_near_the_mistake() -> None:
    text = "flag and\n" * 50 + "nothing" + " and flag" * 50
    with pytest.raises(UsageError) as caught:
        compile_where(text, resolve)
    _, shown, carets = str(caught.value).split("\n")
    assert len(shown) == 102
    assert shown[carets.index("^") : carets.rindex("^") + 1] == "nothing"


def test_bounds() -> None:
    deep = "(" * MAX_DEPTH + "flag" + ")" * MAX_DEPTH
    with pytest.raises(UsageError, match="more than 40 levels of nesting"):
        compile_where(deep, resolve)
    assert holds(deep[1:-1])
    with pytest.raises(UsageError, match="4,001 characters; the limit is 4,000"):
        compile_where("1" * (MAX_CHARACTERS + 1), resolve)


@pytest.mark.parametrize(
    "text",
    [
        "not " * 999 + "flag",
        "-" * 3990 + "1 > 0",
        "1" + " + 1" * 990 + " > 0",
        "flag" + " and flag" * 440,
        "empty" + " or flag" * 440,
        "1" + " < 2" * 990,
        "[" + "1," * 1900 + "1] == 1",
        "9" * 3990 + " > 1",
        "huge" + "*huge" * 790 + " > 1",
    ],
    ids=lambda text: str(text[:12]),
)
def test_long_expressions_do_not_break(text: str) -> None:
    holds(text)


def test_two_long_lists_cost_their_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VALUES, "evens", list(range(0, 400_000, 2)))
    monkeypatch.setitem(VALUES, "odds", list(range(1, 400_000, 2)))
    assert not holds("evens == odds or evens in odds or evens > odds + 400000 or evens * odds == 1")
    assert holds("evens < odds and odds > evens and odds != evens and evens not in odds")


def test_needs_bodies_when_a_name_does() -> None:
    assert not compile_where("api == 'Fetch'", resolve).needs_bodies
    assert compile_where("flag or request.topics.name == 'a'", resolve).needs_bodies


ATOMS = [*VALUES, "null", "true", "0", "-3", "2.5", '"a"', "''", "[1, 'a', null]", "[]"]


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0:
        return draw(st.sampled_from(ATOMS))
    left, right = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    forms = ["{0}", "not {0}", "({0})", "len({0})", "lower({0})", "-({0})", "({0}) =~ 'a'", "exists({0})"]
    forms += ["all({0}) == 1", "all({0}) startswith 'a'", "({0}) in {{1..5, 'a', 10.0.0.0/8}}"]
    forms += ["({0}) not in ('a', null)", "all({0}) == null", "any({0}) != 10.0.0.1"]
    signs = [
        "==",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "in",
        "not in",
        "contains",
        "endswith",
        "+",
        "-",
        "*",
        "/",
        "and",
        "or",
    ]
    forms += [f"({{0}}) {sign} ({{1}})" for sign in signs]
    return draw(st.sampled_from(forms)).format(left, right)


@given(expressions())
def test_nothing_raises_at_run_time(text: str) -> None:
    assert holds(text) in (True, False)


@given(st.text(alphabet="ab1.:\"' ()[]{}=!<>~&|+-*/,\\\n_é٣", max_size=40) | st.text(max_size=20))
def test_any_text_compiles_or_is_a_usage_error(text: str) -> None:
    def anything(_: str) -> Reference:
        return Reference(lambda _: 1, needs_bodies=False)

    try:
        where = compile_where(text, anything)
    except UsageError:
        return
    assert where.matches(EXCHANGE) in (True, False)


def test_the_exchange_reaches_the_getter() -> None:
    seen: list[Exchange] = []
    where = compile_where("x", lambda _: Reference(seen.append, needs_bodies=False))
    where.matches(EXCHANGE)
    assert seen == [EXCHANGE]
