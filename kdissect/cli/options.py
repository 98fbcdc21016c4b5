"""Options that several commands share -> their values."""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import suppress
from dataclasses import fields
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kdissect.capture.inputs import local
from kdissect.cli.terminal import warn, width
from kdissect.errors import UsageError
from kdissect.extras import install
from kdissect.files import PRIVATE
from kdissect.kafka import apis, codes
from kdissect.limits import DEFAULT, LIVE, Limits
from kdissect.model import KINDS
from kdissect.options import WHOLE, WINDOW, Options
from kdissect.phrases import printable
from kdissect.query.bounds import name_of, parse_limits, value_text
from kdissect.query.filters import parse_port_rule, parse_ports
from kdissect.tls import can_decrypt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from click.shell_completion import CompletionItem

    Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

# ------------------------------------------------------------------------------------------------------------
# ``--limits``: NAME=VALUE strings -> the limits of a run, and the table of all limits for people.
# ------------------------------------------------------------------------------------------------------------


Command = TypeVar("Command", bound="Callable[..., Any]")

SHOW = "help"
"""The value of ``--limits`` without one: show all limits."""

_WIDTH = 100

TABLE_HEAD = """\
Limits keep memory from growing with the capture. Anything dropped because of a limit is counted and
reported. --limits NAME=VALUE sets one: a count, a size (64KB, 16MiB), a time (250ms, 15m).
"""


def limits_option(defaults: Limits = DEFAULT) -> Callable[[Command], Command]:
    """Add ``--limits`` to a command, whose parameter ``limits`` is ``defaults`` with the values set."""

    def read(context: click.Context, _: click.Parameter, texts: tuple[str, ...]) -> Limits:
        if SHOW in texts:
            click.echo(table(defaults, min(width(sys.stdout) or _WIDTH, _WIDTH)), nl=False)
            context.exit()
        return to_limits(texts, defaults)

    return click.option(
        "--limits",
        multiple=True,
        is_flag=False,
        flag_value=SHOW,
        callback=read,
        metavar="NAME=VALUE",
        help=("Set a limit: connections=50000, stream_bytes=16MiB. Use --limits alone to list them all."),
    )


def to_limits(texts: Iterable[str], defaults: Limits = DEFAULT) -> Limits:
    """See ``parse_limits``.

    Raises:
        click.BadParameter: a name is not that of a limit, or a value is invalid.
    """
    try:
        return parse_limits(texts, defaults)
    except UsageError as error:
        raise click.BadParameter(str(error)) from None


def table(limits: Limits = DEFAULT, max_width: int = _WIDTH) -> str:
    """Every limit with its value and its reason, by subject."""
    from textwrap import fill  # needed only here

    names = {limit: name_of(limit) for limit in fields(Limits)}
    longest = max(map(len, names.values()))
    lines, subject = [fill(TABLE_HEAD, max_width) + "\n"], None
    for limit, name in names.items():
        if limit.metadata["subject"] != subject:
            subject = limit.metadata["subject"]
            lines.append(f"{subject}:\n")
        beginning = f"  {name:{longest}}  {value_text(limit, limits):>9}  "
        reason = fill(
            limit.metadata["reason"],
            max_width,
            initial_indent=beginning,
            subsequent_indent=" " * len(beginning),
        )
        lines.append(reason + "\n")
    return "".join(lines)


# ------------------------------------------------------------------------------------------------------------


# Converters from an option's string to its value. They are functions because click.ParamType is generic in
# some releases of click and not in others.


def at_least(minimum: int) -> Callable[[str], int]:
    """The converter to a whole number of at least ``minimum``."""

    def to_number(text: str) -> int:
        if not str(text).isdecimal() or int(text) < minimum:
            raise click.BadParameter(f'invalid number "{text}": use {minimum} or more')
        return int(text)

    return to_number


def to_ports(text: str) -> frozenset[int]:
    """See ``parse_ports``.

    Raises:
        click.BadParameter: the string is not a port, range or list.
    """
    return _parse_parameter(parse_ports, text)


def to_kafka_ports(text: str) -> frozenset[int]:
    """See ``parse_port_rule``.

    Raises:
        click.BadParameter: the string is not such a rule.
    """
    return _parse_parameter(parse_port_rule, text)


KEY_LOG_PREFERENCE = "tls.keylog_file"


def to_key_log(text: str) -> str:
    """``tls.keylog_file:FILE`` -> the file.

    Raises:
        click.BadParameter: it is another of tshark's preferences.
    """
    name, _, path = text.partition(":")
    if name != KEY_LOG_PREFERENCE or not path:
        raise click.BadParameter(f'invalid preference "{text}": use {KEY_LOG_PREFERENCE}:FILE')
    return path


def _parse_parameter(parse: Callable[[str], frozenset[int]], text: str) -> frozenset[int]:
    try:
        return parse(text)
    except UsageError as error:
        raise click.BadParameter(str(error)) from None


def to_local(_: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    """Callback of an option that names an output: returns a path unchanged, and the path of a ``file:`` URL.

    Raises:
        click.BadParameter: the string is any other URL.
    """
    try:
        return None if text is None else local(text)
    except UsageError as error:
        raise click.BadParameter(str(error), param=parameter) from None


def to_exchange_id(text: str) -> tuple[str, int]:
    """``CONNECTION/NUMBER`` -> the key that all tables join on.

    Raises:
        click.BadParameter: the string has another form.
    """
    connection, _, number = text.rpartition("/")
    if not connection or not number.isdecimal():
        raise click.BadParameter(f'invalid exchange "{text}": use CONNECTION/NUMBER, as shown by -V')
    return connection, int(number)


def to_cluster(text: str) -> tuple[str, str]:
    """``[PATTERN=]NAME`` -> both; without a pattern that of all captures.

    Raises:
        click.BadParameter: there is no name.
    """
    pattern, _, name = text.rpartition("=")
    if not name:
        raise click.BadParameter(f"invalid cluster \"{text}\": use prod, or 'host1-*=prod'")
    return pattern, name


MAX_TOPIC_IDS = 1_000_000
_ID = r"[A-Za-z0-9_-]{22}"
_NAMED = (
    re.compile(rf"\s*Topic:\s*(?P<name>\S+)\s+TopicId:\s*(?P<id>{_ID})\s"),  # kafka-topics --describe
    re.compile(rf"\s*(?P<id>{_ID})[\s=]+(?P<name>\S+)\s*$"),
)
_UNNAMED = re.compile(r"\s*(Topic:.*)?$")  # kafka-topics describes each partition too
_KEYS = ("topic_id", "topic"), ("id", "name")


def to_topic_ids(text: str) -> dict[str, str]:
    """A file -> names of topics by ID.

    Raises:
        click.BadParameter: it cannot be read, or a line has another form.
    """
    names: dict[str, str] = {}
    try:
        with Path(text).open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                pair = _named_id(line)
                if pair is not None:
                    names[pair[0]] = pair[1]
                    if len(names) > MAX_TOPIC_IDS:
                        raise click.BadParameter(f"{text} has more than {MAX_TOPIC_IDS:,} topic IDs")
                elif _UNNAMED.match(line) is None:
                    place = f"{text}, line {number}"
                    raise click.BadParameter(
                        f"{place} has no topic ID and name; use the output of kafka-topics --describe, lines "
                        'such as "MLkU0WJWS8akR3iv0xUxVg orders", or JSON lines with topic_id and topic'
                    )
    except OSError as error:
        raise click.BadParameter(f"cannot read {text}: {error.strerror or error}") from None
    if not names:
        raise click.BadParameter(f"{text} has no topic IDs; kafka-topics prints them since Kafka 2.8")
    return names


def _named_id(line: str) -> tuple[str, str] | None:
    """The ID and the name in a line."""
    if line.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):
            row = json.loads(line)
            for id_key, name_key in _KEYS:
                topic_id, name = row.get(id_key), row.get(name_key)
                if isinstance(topic_id, str) and re.fullmatch(_ID, topic_id) and isinstance(name, str):
                    return topic_id, name
        return None
    match = next(filter(None, (form.match(line) for form in _NAMED)), None)
    return None if match is None else (match["id"], match["name"])


def take_options(options: dict[str, Any]) -> Options:
    """Remove the options below from a command's options and return their values, except ``--names``."""
    return Options(
        limits=options.pop("limits", DEFAULT),
        ports=frozenset().union(*options.pop("ports")),
        kafka_ports=frozenset().union(*options.pop("decode_as")),
        topic_ids={each: name for names in options.pop("topic_ids", ()) for each, name in names.items()},
        **clusters_of(options.pop("clusters", ())),
        show_secrets=options.pop("show_secrets"),
        key_logs=key_logs((*options.pop("tls_keylog", ()), *options.pop("preferences", ()))),
        criteria={name: texts for name in CRITERIA if (texts := options.pop(name, ()))},
        where=options.pop("where", None),
        exchanges=frozenset(options.pop("exchanges", ())),
    )


def clusters_of(rules: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """What ``to_cluster`` returned -> ``cluster`` and ``clusters`` of ``Options``.

    Raises:
        UsageError: several clusters have no pattern.
    """
    of_all = [name for pattern, name in rules if not pattern]
    if len(of_all) > 1:
        raise click.UsageError("--cluster names several clusters of all captures; use PATTERN=NAME")
    return {
        "cluster": of_all[0] if of_all else None,
        "clusters": tuple((pattern, name) for pattern, name in rules if pattern),
    }


_KEY_LOG_VARIABLE = "SSLKEYLOGFILE"


def _no_ciphers() -> str:
    return f"decrypting TLS needs the cryptography package: {install('tls')}"


def key_logs(names: Iterable[str]) -> tuple[str, ...]:
    """Names of key logs and directories -> the key logs, with that of the environment.

    Raises:
        UsageError: a name does not exist, or the library for decryption is not installed.
    """
    paths = [path for name in names for path in _key_logs_at(Path(name))]
    of_environment = os.environ.get(_KEY_LOG_VARIABLE)
    if of_environment and Path(of_environment).is_file():
        warn(f"decrypting TLS with {of_environment} ({_KEY_LOG_VARIABLE})")
        paths.append(of_environment)
    if paths and not can_decrypt():
        raise UsageError(_no_ciphers())
    return tuple(paths)


def warn_of_secrets(captures: Iterable[str]) -> None:
    """Warn if a capture has secrets of TLS sessions that cannot be used."""
    if can_decrypt():
        return
    from kdissect.capture.reader import has_secrets

    for path in captures:
        with suppress(OSError):
            if has_secrets(path):
                warn_of_secrets_in(path)
                return


def warn_of_secrets_in(capture: str) -> None:
    """Warn that a capture has secrets of TLS sessions that cannot be used."""
    warn(f"{capture} has TLS secrets; {_no_ciphers()}")


def _key_logs_at(path: Path) -> list[str]:
    if path.is_dir():
        return sorted(str(each) for each in path.iterdir() if each.is_file())
    if not path.exists():
        raise UsageError(f"--tls-keylog {printable(str(path))}: no such file or directory")
    return [str(path)]


def combine(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Combine several options into one decorator, in this order."""
    return lambda command: reduce(lambda decorated, option: option(decorated), reversed(options), command)


def complete_files(_context: click.Context, _parameter: click.Parameter, word: str) -> list[CompletionItem]:
    """Names of files, which the shell completes."""
    from click.shell_completion import CompletionItem  # needed only at a TAB

    return [CompletionItem(word, type="file")]


def complete_words(known: Callable[[], Iterable[str]]) -> Complete:
    """The known words that begin like the last one of a list, in any case."""

    def complete(_context: click.Context, _parameter: click.Parameter, word: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        before, comma, last = word.rpartition(",")
        matching = (each for each in known() if each.lower().startswith(last.lower()))
        return [CompletionItem(before + comma + each) for each in matching]

    return complete


def _column_names() -> Iterator[str]:
    """Columns of exchanges, and the fields of requests and responses."""
    from kdissect.query.where import paths
    from kdissect.tables.columns import ALIASES, EXCHANGE, OBJECT

    yield from (column.name for column in EXCHANGE)
    yield from ALIASES
    for column in EXCHANGE:
        if column.type == OBJECT:
            yield from (".".join((column.name, *path)) for path in paths(column.name))


complete_columns = complete_words(_column_names)


def _criterion(
    name: str, metavar: str, text: str, known: Callable[[], Iterable[str]] | None = None
) -> Callable[[Command], Command]:
    complete = None if known is None else complete_words(known)
    return click.option(f"--{name}", multiple=True, metavar=metavar, help=text, shell_complete=complete)


_file_options = combine(
    click.argument("files", nargs=-1, metavar="FILE...", shell_complete=complete_files),
    click.option(
        "-r",
        "also_files",
        multiple=True,
        metavar="FILE",
        shell_complete=complete_files,
        help="Input file (same as FILE).",
    ),
)
_traffic_options = combine(
    click.option(
        "-d",
        "decode_as",
        multiple=True,
        type=to_kafka_ports,
        metavar="tcp.port==PORT,kafka",
        help="Decode all traffic on PORT as Kafka.",
    ),
    click.option(
        "--port",
        "ports",
        multiple=True,
        type=to_ports,
        metavar="PORT",
        help="Only connections to or from this port.",
    ),
    click.option(
        "--tls-keylog",
        multiple=True,
        metavar="FILE",
        shell_complete=complete_files,
        help="Decrypt TLS with this key log (SSLKEYLOGFILE format), or with all key logs in this "
        "directory. TLS secrets in a pcapng file are used even without this option.",
    ),
    click.option(
        "--topic-ids",
        multiple=True,
        type=to_topic_ids,
        metavar="FILE",
        shell_complete=complete_files,
        help="Names of topic IDs that the traffic does not have: the output of kafka-topics --describe, "
        "lines with an ID and a name, or the table topic_ids of an earlier export.",
    ),
    click.option("--show-secrets", is_flag=True, help="Show credentials, which are redacted by default."),
    click.option(
        "--cluster",
        "clusters",
        multiple=True,
        type=to_cluster,
        metavar="[PATTERN=]NAME",
        help="Cluster of all brokers, or of those in captures whose names match PATTERN: prod, "
        "'host1-*=prod'. Otherwise it is the ID in responses to Metadata and DescribeCluster.",
    ),
)

input_options = combine(
    _file_options,
    _traffic_options,
    limits_option(),
    click.option("--no-progress", is_flag=True, help="No progress bar on stderr."),
)
"""Which captures to read and which connections to decode as Kafka."""

preference_option = click.option(
    "-o",
    "preferences",
    multiple=True,
    type=to_key_log,
    metavar=f"{KEY_LOG_PREFERENCE}:FILE",
    help="Same as --tls-keylog FILE.",
)
"""As in tshark, for commands whose -o has no other meaning."""

live_options = combine(_traffic_options, limits_option(LIVE))
"""The same for live traffic, without input files."""


def names_option(by_default: str = f"{WHOLE} for files, {WINDOW} for pipes") -> Callable[[Command], Command]:
    """``--names``. None: depends on the input, and on the command (``by_default``)."""
    return click.option(
        "--names",
        type=click.Choice([WHOLE, WINDOW]),
        help="Where to look for the name of a topic ID. whole: anywhere in the input, which is then read "
        "twice; window: only in packets before the exchange, or up to 2 s after it (--limits naming_window). "
        f"[default: {by_default}]",
    )


filter_options = combine(
    _criterion("api", "API", "API name or key: Fetch, find-coordinator, FIND_COORDINATOR, 10.", apis.names),
    _criterion("topic", "TOPIC", "Topic name, ID or glob: 'orders-*'."),
    _criterion("partition", "PARTITION", "Partition, with or without its topic: 3 or orders-3."),
    _criterion("client", "CLIENT", "Client ID or glob, or address: 10.0.0.5, 10.0.0.5:41234."),
    _criterion("group", "GROUP", "Group ID or glob."),
    _criterion(
        "error",
        "ERROR",
        "Error name, code or glob: NOT_LEADER_OR_FOLLOWER, 6, '*' (any error), 'serious' (unexpected).",
        codes.error_names,
    ),
    _criterion(
        "kind",
        "KIND",
        "One of answered, unanswered (no response captured; -Y 'outcome == \"unanswered\"' excludes those "
        "still pending), unacknowledged (acks=0), orphan (a response without a request).",
        lambda: KINDS,
    ),
    _criterion("slower-than", "TIME", "Minimum latency: 50ms, 1.5s."),
    _criterion("bigger-than", "SIZE", "Minimum frame size of request or response: 1000, 64KB, 1MiB."),
    _criterion(
        "since",
        "WHEN",
        "Start of the time range: 2026-11-21T09:05:00Z, 09:05 (UTC, on the first day of the capture), or "
        "seconds since 1970.",
    ),
    _criterion("until", "WHEN", "End of the time range (exclusive), in the same formats."),
    _criterion("connection", "ID", "Connection ID or prefix."),
    click.option(
        "--where",
        "-Y",
        "where",
        metavar="EXPRESSION",
        shell_complete=complete_columns,
        help="Filter expression: 'latency > 100ms'; see docs/filters.md. 'kdissect fields' lists the "
        "names of columns and fields.",
    ),
)
"""Which exchanges are shown: criteria of one kind are or-ed, different kinds and-ed."""


def to_mode(text: str) -> int:
    """Octal permissions, as for chmod -> the mode of a file.

    Raises:
        click.BadParameter: the mode is invalid, executable, or does not let the owner read and write.
    """
    mode = int(text, 8) if re.fullmatch("0?[0-7]{3}", text) else 0
    if mode & ~0o066 != PRIVATE:
        raise click.BadParameter(f'invalid mode "{text}": use 600, 640, 660 or 644')
    return mode


mode_option = click.option(
    "--mode",
    type=to_mode,
    metavar="MODE",
    help="File mode of all output, regardless of the umask; new directories get the matching execute bits. "
    "Output may contain payload and credentials. [default: 600]",
)
"""Who may read the files that are written. None: only the owner."""


def exchange_option(text: str) -> Callable[[Command], Command]:
    """``--exchange``: exchanges by ID. ``text`` is the help of the command that uses it."""
    return click.option(
        "--exchange",
        "exchanges",
        multiple=True,
        type=to_exchange_id,
        metavar="CONNECTION/NUMBER",
        help=text,
    )


color_option = click.option(
    "--color",
    "--colour",
    "color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="auto: on a terminal, unless NO_COLOR is set.",
)
"""Whether text output is colored."""

CSV_TEXTS = (
    "On a terminal, control and bidirectional formatting characters are escaped; files and pipes get them "
    "as they are."
)
csv_option = click.option("--csv", "as_csv", is_flag=True, help=f"The same columns as CSV. {CSV_TEXTS}")
"""Rows as CSV."""

CRITERIA = (
    *("api", "topic", "partition", "client", "group", "error", "kind"),
    *("slower_than", "bigger_than", "since", "until", "connection"),
)
"""The filter options by the names of the parameters of ``query.filters.build``, except ``where``."""
