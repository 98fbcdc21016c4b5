"""A number, a name, or a line of a log -> what it means, and the commands that show it in a capture.

Everything comes from tables that kdissect has anyway: errors, APIs, columns, anomalies, rules of findings and
the first bytes of other protocols. Only for this are ``kafka/words.tsv``, words in columns of outcomes and
states, and ``kafka/log_lines.tsv``, lines of logs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from contextlib import suppress
from functools import cache
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from kdissect.anomalies import CATALOGUE
from kdissect.errors import UsageError
from kdissect.kafka import apis, codes
from kdissect.kafka.other_protocols import protocol_of_size
from kdissect.nearest import did_you_mean
from kdissect.phrases import many
from kdissect.stats.findings.rules import ALL_RULES
from kdissect.tables.columns import ALIASES, EXCHANGE, RECORD

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kdissect.kafka.apis import Api
    from kdissect.kafka.codes import ErrorCode
    from kdissect.stats.findings.rule import Declared

_FINDINGS = "summary --findings CAPTURE"
_CHECK = "check CAPTURE"


class Explanation(NamedTuple):
    """What a word can mean.

    Attributes:
        what: kind and name: ``error 6, NOT_LEADER_OR_FOLLOWER``.
        text: sentences, one paragraph each.
        commands: what to run, without ``kdissect``; CAPTURE stands for the file.
    """

    what: str
    text: tuple[str, ...]
    commands: tuple[str, ...] = ()


def explain(words: str) -> list[Explanation]:
    """Everything that a number, a name or a line of a log can mean; of a line, also the errors in it.

    Raises:
        UsageError: nothing is known about it. The message suggests the nearest name.
    """
    words = words.strip()
    number = words.replace(",", "")
    is_number = _NUMBER.fullmatch(number) is not None
    meanings = list(_of_number(int(number, 0 if "x" in number else 10)) if is_number else _of_name(words))
    if not meanings:
        meanings = list(_of_line(words))
    if not meanings:
        known = [*_finding_rules(), *_columns(), *CATALOGUE, *codes.error_names(), *apis.names(), *_configs()]
        known += _words()
        if " " in words:
            raise UsageError("nothing is known about this line; try the name of its error or a number in it")
        raise UsageError(f'nothing is known about "{words}"{did_you_mean(words, known)}')
    return meanings


_NUMBER = re.compile(r"[+-]?\d{1,19}|0x[0-9a-fA-F]{1,16}")

# ------------------------------------------------------------------------------------------------------------
# Numbers: error codes, API keys, and sizes that are the first bytes of another protocol.
# ------------------------------------------------------------------------------------------------------------


_COORDINATOR = 2**31 - 1
_MAX_NODE = 1_000_000


def _of_number(number: int) -> Iterator[Explanation]:
    for error in codes.all_errors():
        if error.code == number:
            yield _of_error(error)
    if (api := apis.by_key(number)) is not None:
        yield _of_api(api)
    if (size := _of_size(number)) is not None:
        yield size
    if _COORDINATOR - _MAX_NODE < number <= _COORDINATOR:
        node = _COORDINATOR - number
        text = f"{number} is how Java clients number their connection to the coordinator on that node."
        yield Explanation(f"coordinator on node {node}", (text,), ("read --api FindCoordinator CAPTURE",))


def _of_size(number: int) -> Explanation | None:
    protocol = protocol_of_size(number)
    data = number.to_bytes(4, "big") if 0 <= number < 1 << 32 else b""
    if protocol is None and not (data.isalpha() and data.isascii()):
        return None
    is_tls = protocol is not None and protocol.startswith("TLS")
    begins = f"{'a ' if is_tls else ''}{protocol or 'text'} begins"
    broker = " without TLS" if is_tls else "; often it is a health check, a scanner or a wrong port"
    client = ", or is one with TLS while the client has none (security.protocol)" if is_tls else ""
    text = (
        f"No size in Kafka: its four bytes, {data.hex(' ')}{_as_text(data)}, are how {begins}.",
        f"In a broker's log: a client that speaks this has connected to a Kafka listener{broker}.",
        f"In a client's log: what answered is no Kafka listener{client}.",
    )
    return Explanation(f"size {number:,}", text, (_CHECK, _FINDINGS))


def _as_text(data: bytes) -> str:
    return f' or "{data.decode()}"' if data.isascii() and data.decode().isprintable() else ""


# ------------------------------------------------------------------------------------------------------------
# Names.
# ------------------------------------------------------------------------------------------------------------


def _of_name(name: str) -> Iterator[Explanation]:
    for row in _words().get(" ".join(name.lower().replace("_", " ").split()), ()):
        yield Explanation(
            f"{row['kind']}: {row['word']}", (row["meaning"],), tuple(row["commands"].split(" ; "))
        )
    if " " in name:
        return
    if (error := _error_named(name)) is not None:
        yield _of_error(error)
    with suppress(UsageError):
        yield _of_api(apis.find(name))
    if (rule := _finding_rules().get(name.lower())) is not None:
        yield _of_rule(rule)
    if (kind := CATALOGUE.get(name)) is not None:
        command = f"read --where {quote(_where_anomaly(name))} CAPTURE"
        yield Explanation(f"anomaly {name} ({kind.severity})", (kind.description,), (_CHECK, command))
    if name in _columns():
        yield Explanation(f"column {name}", (_columns()[name].replace("`", ""),), (f"fields {name}",))
    if "." in name and name in _configs():
        rules = _configs()[name]
        text = (
            f"{many(len(rules), 'finding')} about it:",
            *(f"{rule.name}: {rule.title} {rule.advice}" for rule in rules),
        )
        yield Explanation(f"config {name}", text, (_FINDINGS,))


def _where_anomaly(name: str) -> str:
    return f'anomalies.kind == "{name}"'


def _error_named(name: str) -> ErrorCode | None:
    """The error of this name, a former one, or that of the Java client's exception."""
    exception = name.rpartition(".")[2].removesuffix("Exception")
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", exception)
    for query in (name, snake, f"{snake}_FAILED", f"{snake}_EXCEPTION", f"{snake}_ERROR"):
        try:
            code = codes.error_code(query)
        except UsageError:
            continue
        return next((error for error in codes.all_errors() if error.code == code), None)
    return None


def _of_error(error: ErrorCode) -> Explanation:
    retry = (
        "Retriable: clients send the request again."
        if error.retriable
        else "Not retriable: the same request would fail again."
    )
    former = f" Formerly {', '.join(error.former_names)}." if error.former_names else ""
    text = (
        [error.meaning, f"{retry} Since Kafka {error.introduced}.{former}"] if error.code else [error.meaning]
    )
    for row in codes.rows("expected.tsv"):
        if row["error"] == error.name:
            where = "any API" if row["apis"] == "*" else ", ".join(row["apis"].split())
            limit = "" if row["new_after_s"] == "0" else f", for {row['new_after_s']} s at most"
            text.append(f"A normal step in {where}{limit}: {row['reason']}")
    rules = [rule for rule in ALL_RULES if error.name in _texts(rule)]
    text += [f"Finding {rule.name}: {rule.title}" for rule in rules]
    commands = (f"read --error {error.name} CAPTURE", _FINDINGS) if error.code else ()
    return Explanation(f"error {error.code}, {error.name}", tuple(text), commands)


def _of_api(api: Api) -> Explanation:
    former = f" Formerly {', '.join(api.former_names)}." if api.former_names else ""
    text = f"Versions {api.versions}, served by {', '.join(api.listeners)}.{former}"
    return Explanation(
        f"API {api.name}, key {api.key}", (text,), (f"apis {api.name}", f"read --api {api.name} CAPTURE")
    )


def _of_rule(rule: type[Declared]) -> Explanation:
    text = (rule.title, f"When: {rule.when}", *([f"Advice: {rule.advice}"] if rule.advice else ()))
    return Explanation(f"finding {rule.name} ({rule.severity})", text, (f"{rule.command} CAPTURE",))


@cache
def _finding_rules() -> dict[str, type[Declared]]:
    return {rule.name: rule for rule in ALL_RULES}


@cache
def _columns() -> dict[str, str]:
    columns = (*EXCHANGE, *ALIASES.values(), *RECORD)
    return {column.name: column.description for column in reversed(columns)}


@cache
def _words() -> Mapping[str, list[dict[str, str]]]:
    """Words in columns of outcomes and states, and what each can mean."""
    meanings: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in codes.rows("words.tsv"):
        meanings[row["word"].lower().replace("_", " ")].append(row)
    return meanings


_CONFIG = re.compile(r"\b[a-z]+(?:\.[a-z]+)+\b")


@cache
def _configs() -> Mapping[str, list[type[Declared]]]:
    """The configs that rules name, and which rules do."""
    named: dict[str, list[type[Declared]]] = defaultdict(list)
    for rule in ALL_RULES:
        for config in dict.fromkeys(_CONFIG.findall(_texts(rule))):
            named[config].append(rule)
    return named


def _texts(rule: type[Declared]) -> str:
    return f"{rule.title} {rule.when} {rule.advice}"


# ------------------------------------------------------------------------------------------------------------
# Lines of logs.
# ------------------------------------------------------------------------------------------------------------


class LogLine(NamedTuple):
    """A line that brokers or clients log.

    Attributes:
        by: who logs it.
        example: of such a line.
        pattern: finds it; its groups stand in ``commands`` in braces.
        findings: names of the rules that look for its causes.
        meaning: in one or two sentences.
        commands: as in ``Explanation``.
    """

    by: str
    example: str
    pattern: re.Pattern[str]
    findings: tuple[str, ...]
    meaning: str
    commands: tuple[str, ...]


@cache
def log_lines() -> tuple[LogLine, ...]:
    """All known lines; the first that matches counts."""
    return tuple(
        LogLine(
            row["by"],
            row["example"],
            re.compile(row["pattern"]),
            tuple(row["findings"].split()),
            row["meaning"],
            tuple(row["commands"].split(" ; ")),
        )
        for row in codes.rows("log_lines.tsv")
    )


_ERROR_IN_LINE = re.compile(r"\b[A-Z]+(?:_[A-Z]+)+\b|\b(?:[A-Z][a-z]+)+Exception\b")


def _of_line(words: str) -> Iterator[Explanation]:
    for line in log_lines():
        if (match := line.pattern.search(words)) is not None:
            known = {name: value for name, value in match.groupdict().items() if value is not None}
            if "size" in known and (size := _of_size(int(known["size"]))) is not None:
                yield size
            text = [line.meaning]
            text += [f"Finding {name}: {_finding_rules()[name].title}" for name in line.findings]
            yield Explanation(
                f"logged by {line.by}",
                tuple(text),
                tuple(_filled(command, known) for command in line.commands),
            )
            break
    for name in dict.fromkeys(_ERROR_IN_LINE.findall(words)):
        if (error := _error_named(name)) is not None:
            yield _of_error(error)


def _filled(command: str, known: Mapping[str, str]) -> str:
    """A command with what the line says, quoted for a shell."""
    return re.sub(r"(\w+:)?\{(\w+)\}", lambda place: quote(f"{place[1] or ''}{known[place[2]]}"), command)
