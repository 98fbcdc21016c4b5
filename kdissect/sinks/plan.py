"""What the native core does for a sink, as data that it gets once, before the first packet. Holds nothing.

    Plan         of a sink: whether the core finishes exchanges, and which
    CorePlan     what the core gets (core/src/python/plan.rs): what it makes, and of which exchanges
      LinePlan   lines of text
      RowPlan    rows of JSON and CSV, and of tables
      TallyPlan  counts
      RecordPlan records, as JSON lines, CSV or lines of text

Whatever the core cannot decide by its plan, it leaves: such exchanges are fed to the sink. It reads the
attributes by name. The functions in a plan, and why each needs Python, are listed in ``_core.pyi``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kdissect.exchanges.decoding import Decoding
    from kdissect.exchanges.fetch_sessions import Position
    from kdissect.exchanges.latency import Splitters
    from kdissect.exchanges.memory import MemoryPlan
    from kdissect.exchanges.undecoded import FieldPath, MentionsPlan, WholeExchange
    from kdissect.exchanges.written import WrittenText, WrittenTexts
    from kdissect.limits import Limits
    from kdissect.model import ConnectionInfo, Exchange, Interface

    Identity = tuple[str | None, str | None, str | None, str | None]

MIN_INT64, MAX_INT64 = -(1 << 63), (1 << 63) - 1


class TopicIdNames(Protocol):
    """Names of topic IDs."""

    def name(self, topic_id: str, completed_ns: int) -> str | None:
        """What stands for it in an exchange that was completed then: its name; the ID itself if there is
        none; None if one may still come.
        """

    def learn(self, topic_id: str, name: str) -> None:
        """Keep a name. An exception: Python must take the exchange that reveals it."""


class PlanContext(NamedTuple):
    """What an output depends on besides its exchanges.

    Attributes:
        names: of topics.
        limits: to respect.
        decoding: of exchanges; it knows the protocols of groups.
        splitters: of latencies.
        written: where text waits for other copies of its batches; None: batches are not joined.
    """

    names: TopicIdNames
    limits: Limits
    decoding: Decoding
    splitters: Splitters
    written: WrittenTexts | None = None


class CommonPlan(NamedTuple):
    """What the core must know to finish exchanges.

    Attributes:
        shared: from what the exchanges of a connection share, and software name and version, principal and
            SASL mechanism of its client, to the texts that they share, in a table the values.
        api: from API key and version to the core's ``Line`` or ``Row``, the bytes expected after the
            correlation ID of a response, and the texts that such exchanges share. None: they are left to
            Python.
        error: from an error code to its name.
        topic_name: from a topic ID, and when an exchange was completed, to what stands for it, see
            ``TopicIdNames``; None: Python must take the exchange.
        learn_name: takes the ID of a topic and its name.
        around: from a second since 1970 to the texts before and after the decimal point and its digits.
        budget: memory for the bodies of an exchange.
        leaves_flaws: whether exchanges with errors in the response, or anomalies, are left to Python.
    """

    shared: Callable[[ConnectionInfo, Identity], list[Any]]
    api: Callable[[int, int], tuple[Any, bytes, list[Any]] | None]
    error: Callable[[int], str]
    topic_name: Callable[[str, int], str | None]
    learn_name: Callable[[str, str], None]
    around: Callable[[int], tuple[str, str]]
    budget: int
    leaves_flaws: bool = False


class TimeFormat(NamedTuple):
    """How the times of lines are written.

    Attributes:
        digits: after the decimal point.
        width: of shorter ones, which follow blanks.
        since: what they count from: ``epoch``, ``first`` packet, or the previous exchange ``seen`` or
            ``shown``.
        first_ns: of the first packet.
    """

    digits: int
    width: int = 0
    since: str = "epoch"
    first_ns: int = 0


class LinePlan(NamedTuple):
    """What the core must know to write lines of text.

    Attributes:
        common: of all plans.
        times: how they are written.
        pass_times: takes when exchanges began of which lines were written: the first that is shown, if its
            time is not written, because it depends on what came before; the last that is shown; and the last.
            It is called before the sink takes the lines.
        gap: between columns.
        width: of the latency.
        client: from a client ID to its cell.
        follow: takes a connection and the arguments of ``GroupProtocols.follow``, and returns what that does.
        rejected: from the version of an ApiVersions request that a broker does not support, and the frames of
            both messages, to what stands after the latency. It depends on nothing else.
        unacknowledged: what stands for the latency of unacknowledged requests.
        unanswered: from API key and version of a request that got no response, its frame, when that ended and
            the connection did, and the first FIN if any, with whether it was the client's, to what stands for
            its latency.
        followed: what stands after the errors if bytes follow a body.
        ends: width of both ends. None: ``shared`` writes them.
    """

    common: CommonPlan
    times: TimeFormat
    pass_times: Callable[[int | None, int | None, int], None]
    gap: str
    width: int
    client: Callable[[str], str]
    follow: Callable[..., bool]
    rejected: Callable[[int, bytes, bytes], str]
    unacknowledged: str
    unanswered: Callable[[int, int, bytes, tuple[int, int], tuple[int, bool] | None], str]
    followed: str
    ends: int | None


class ConnectionPlan(NamedTuple):
    """What the core must know to count exchanges by connection.

    Attributes:
        take: takes some exchanges of a connection: what they share; the interface of the first; software
            name and version, principal and SASL mechanism of the client; the first client ID; how many are
            answered, how many of these are no handshake, and how many expect no response; whether any is
            selected; bytes of requests and responses; start of the first and end of the last; begin and end
            of the latency of the last one whose API is not among ``waiting``; keys of the APIs that are; and
            whether a response refuses the client, which is known in a ``TallyPlan``. It is called before the
            sink takes what was made of them.
        waiting: keys of APIs.
    """

    take: Callable[..., None]
    waiting: list[int]


class WholePlan(NamedTuple):
    """What the core must know to note what tables need that are made at the end, and to make rows of events
    of groups.

    Attributes:
        take_brokers: takes what the exchanges of a connection share; whether they are selected; what
            responses advertise: cluster, if it is named, and host and port, None if it is the broker that
            responds; and the brokers that those that are selected name: node ID, host and port; time and
            number of the first exchange, time of the last; and the latest rack, after time and number. None:
            they are not needed.
        take_alive: takes what the exchanges of a connection share, group ID, member ID, and the time of the
            last response to a commit or heartbeat without an error. None: these are not needed.
        member: which of the fields for other tables has the member ID.
        events: from connection and number, API key and version, client ID, and both frames, of other
            exchanges of groups, to the rows of their events, values or a line, and what ``take_events``
            takes, if anything. An exception: Python must take the exchange. None: they are not needed.
        has_cluster: returns whether the cluster of a connection is known.
    """

    take_brokers: Callable[..., object] | None
    take_alive: Callable[[ConnectionInfo, str, str, int], object] | None
    member: int
    events: Callable[..., tuple[list[Any], Any]] | None
    take_events: Callable[[Any], object] | None
    has_cluster: Callable[[ConnectionInfo], bool]


class RowPlan(NamedTuple):
    """What the core must know to write JSON lines or CSV, or to fill a table.

    Attributes:
        common: of all plans.
        columns: the text before each column; what is in it, and which of several such
            (core/src/sinks/rows.rs).
        fields: of bodies, which are columns.
        end: the text after them.
        format: ``json``, ``csv`` or ``fields``.
        tables: where rows are added instead: name of each table; its columns by what is in them, and which of
            several such (core/src/sinks/table_rows.rs); the core's ``Columns``; rows and bytes with which
            it is full.
        records: how records become rows, and where these go: ``WaitingColumns`` or ``TableLines``, as those
            of ``tables`` then do. None: they have no table.
        log: what counts the exchanges besides, if anything does.
        whole: what is noted for tables that are made at the end, if there are any.
        learn: takes what the exchanges of a connection share, and the cluster that one of them names; returns
            whether what they share has changed.
        follow: takes a connection and an API key; of a JoinGroup or SyncGroup the group ID, type and name of
            its protocol in both bodies, and the names that are offered; returns the name, which may be
            empty. An exception: its members are not consumers.
        is_secret: from the name of a config to whether its values are credentials.
        rejected: from the version of an ApiVersions request that a broker does not support, and the frames of
            both messages, to the response as JSON. An exception: there is an anomaly.
        capture: from the interface of a packet to the name of its capture.
        expected: from a connection, an API key, the time of a response, and the names of errors to the names
            of those that are expected.
        memory: how to get what connections remember, to split latencies.
    """

    common: CommonPlan
    columns: list[tuple[str, tuple[str, int]]]
    fields: list[FieldPath]
    end: str
    format: str
    tables: list[tuple[str, list[tuple[str, int]], Any, tuple[int, int]]]
    records: tuple[RecordPlan, Any] | None
    log: ConnectionPlan | None
    whole: WholePlan | None
    learn: Callable[[ConnectionInfo, str], bool]
    follow: Callable[..., str]
    is_secret: Callable[[str], bool]
    rejected: Callable[[int, bytes, bytes], str]
    capture: Callable[[Interface], str]
    expected: Callable[[ConnectionInfo, int, int, list[str]], Sequence[str]]
    memory: MemoryPlan


class TallyPlan(NamedTuple):
    """What the core must know to count exchanges.

    Attributes:
        common: of all plans; their texts are not needed. ``api`` has those that can be counted.
        log: how they are counted by connection.
        take: takes counts of exchanges that are alike, see ``stats.core_tallies``.
        take_one: takes what ``one`` has returned.
        take_slow: takes what more is needed of an exchange among the slowest, see there.
        memory: how to get what connections remember.
        slowest: of so many exchanges with the longest service times more is needed than their counts.
        interval: returns the length of an interval in nanoseconds; exchanges of different intervals are not
            alike. 0: they are. Only ever a multiple of what it returned before.
        has_cluster: returns whether the cluster of a connection is known.
        learn_cluster: takes the cluster that an exchange on a connection names.
        alike: keys of APIs of whose exchanges one is kept of those with the same bodies.
        content: from a connection, API key and version, both messages, and when the second was complete, to
            what is kept of the bodies; None: exchanges with these are not counted.
        counted: keys of APIs whose exchanges are counted together, unless they have errors or are not plain.
        one: from a ``WholeExchange``, the parts of the latency and the think time, and the positions after a
            Fetch, to the decoded exchange, with these, which is counted by itself; None: Python takes it.
        refused: errors by which brokers refuse clients.
        slow_us: exchanges that are served for so long are not counted together.
        queued_us: requests that wait so long for the responses to earlier ones are noted.
        by_group, by_partition: whether exchanges of different groups, or with different partitions, are not
            alike.
        is_partition: which partitions are selected. An exchange with others, also in its fetch session, is
            not counted. None: all are.
    """

    common: CommonPlan
    log: ConnectionPlan
    take: Callable[[Any, Any], object]
    take_one: Callable[[tuple[Exchange, Sequence[Position] | None]], object]
    take_slow: Callable[..., object]
    memory: MemoryPlan
    slowest: int
    interval: Callable[[], int]
    has_cluster: Callable[[ConnectionInfo], bool]
    learn_cluster: Callable[[ConnectionInfo, str], object]
    alike: list[int]
    content: Callable[[ConnectionInfo, tuple[int, int], list[bytes], int], Exchange | None]
    counted: list[int]
    one: Callable[..., tuple[Exchange, Sequence[Position] | None] | None]
    refused: list[int]
    slow_us: int
    queued_us: int
    by_group: bool
    by_partition: bool
    is_partition: PartitionTest | None


class RecordPlan(NamedTuple):
    """What the core must know to write the records of exchanges.

    Attributes:
        common: of all plans.
        format: ``json``, ``csv``, ``fields`` or ``text``.
        times: how those are written when records were seen.
        columns: the text before each column; what is in it, and its width (core/src/sinks/records/).
        end: the text after them.
        encodings: the text before the encoding of a key and of a value, if columns have both.
        before_fetch: in ``text``, the texts around the requested offset that a record comes before.
        no_optional: the columns from headers and schemas, of records without any.
        capture: see ``RowPlan``.
        label: from the name of a topic, or its ID and True, to what stands for it in ``text``, and whether
            clients wrote its records.
        rejected: from an error code in the response to a Produce to its text.
        whole: from a ``WholeExchange`` to the exchange, which Python decodes if its records change.
        printed: from a key or value, and whether it is a key, to ``text`` or ``fields``, if it is not plain
            ASCII.
        directions: whether records that were produced, and fetched, are selected.
        is_partition: from the known names of a topic, and a partition, to whether its records are selected;
            None: all are.
        selects: from a ``RecordPlace``, offset, and key, value and headers of a record to whether it is
            selected; None: all are.
        opens: from the same without the offset, of a record that no client wrote, to its type in a control
            batch; the cells of key, its encoding, value and its encoding; and the columns from headers and
            schemas. An exception: Python must take the exchange.
        open_messages: of an exchange with messages in its messages, from its connection and number, API key
            and version, and both frames to the memory that all of them take.
        optional: from key, value and headers of a record to the columns from headers and schemas: their text,
            or in a table the values.
        inflate: from the number of an exchange, whether it is the first batch in it, codec, magic and data to
            the decompressed records of a batch. An exception: Python must take it.
        bounds: records and headers of a batch: how many records, headers of one, and headers of all.
        learn: see ``RowPlan``.
        join: takes the batches in an exchange that was written, before the sink takes its text. None: they
            are not joined.
        has_room: whether more text can wait for that; None: see ``join``.
    """

    common: CommonPlan
    format: str
    times: TimeFormat
    columns: list[tuple[str, tuple[str, int]]]
    end: str
    encodings: tuple[str, str]
    before_fetch: tuple[str, str]
    no_optional: str
    capture: Callable[[Interface], str]
    label: Callable[[str, bool], tuple[str, bool]]
    rejected: Callable[[int], str]
    whole: Callable[[WholeExchange], Exchange]
    printed: Callable[[bytes, bool], str]
    directions: tuple[bool, bool]
    is_partition: PartitionTest | None
    selects: Callable[[tuple[Any, ...], int | None, Any], bool] | None
    opens: Callable[[tuple[Any, ...], Any], tuple[str | None, Sequence[str], str]]
    open_messages: Callable[[tuple[ConnectionInfo, int], tuple[int, int], Sequence[bytes]], int]
    optional: Callable[[bytes | None, bytes | None, list[tuple[str, bytes | None]]], Any]
    inflate: Callable[[int, bool, int, int, bytes], bytes]
    bounds: tuple[int, int, int]
    learn: Callable[[ConnectionInfo, str], bool]
    join: Callable[..., None] | None
    has_room: Callable[[], bool] | None


PartitionTest: TypeAlias = "Callable[[Sequence[str], int], bool]"
"""From the names of a topic, and the number of a partition, to whether it is selected."""

OutputPlan: TypeAlias = LinePlan | RowPlan | TallyPlan | RecordPlan
"""What the core makes."""


CoreTest: TypeAlias = tuple[Any, ...]
"""What is tested in an exchange (core/src/sinks/conditions.rs), after its name:

    and, or     some tests
    not         a test
    of_client   which bit of ``Conditions.of_client``
    number      which number; ranges that it is in, each the first and last number; the result if it is absent
    mentions    what bodies mention; from a name, and for partitions a number, to 0, 1 if that selects, 2 if
                it excludes; the result if all are 0, and whether any may exclude
    errors      the result if there are no errors in the response; with errors, it is left
    values      where each comes from: ``number``, ``mention`` or ``field``, and which; ranges of numbers that
                alone decide, if there are; from the values to the result
    left        it is left to Python
"""


class Conditions(NamedTuple):
    """Which exchanges are selected, as far as the core can decide it. What is left is fed to the sink, unless
    other tests decide.

    Attributes:
        of_header, of_bodies: tests that all must be true; those of bodies are made if all others are.
        of_client: from what the exchanges of a connection share, software name and version, principal and
            SASL mechanism of its client, whether they are answered (unacknowledged if not), API key, API
            version and client ID to the results of tests, as bits. Called at least once for each client of a
            connection.
        mentions: from API key and version to where bodies have what tests ask for; None: it is left.
        memory: how to get what connections remember, to split latencies. None: no test needs their parts.
        topic_name, budget: see ``CommonPlan``.
        note_name: takes names that exchanges mention, while none is selected: what it is, ``topic`` or
            ``group``, and the name.
        noted: for which of these it is called.
        note_ids: takes the topic IDs in an exchange that have no name, if the tests of its header are true.
            None: it is not needed.
        times_ns: from when until before when the request ended, or when records were seen if ``of_records``.
        note_times: takes when the first and last request ended that are outside ``times_ns``, if any is, and
            whether any is inside. Called at the end. None: there is no range of times.
    """

    of_header: Sequence[CoreTest]
    of_bodies: Sequence[CoreTest]
    of_client: Callable[[ConnectionInfo, Identity, bool, int, int, str | None], int]
    mentions: Callable[[int, int], MentionsPlan | None]
    memory: MemoryPlan | None
    topic_name: Callable[[str, int], str | None]
    budget: int
    note_name: Callable[[str, str], None]
    noted: Sequence[str]
    note_ids: Callable[[Sequence[str]], None] | None
    times_ns: tuple[int, int]
    of_records: bool
    note_times: Callable[[tuple[int, int] | None, bool], None] | None


class CorePlan(NamedTuple):
    """What the core gets.

    Attributes:
        output: what it makes.
        conditions: of which exchanges; None: of all.
    """

    output: OutputPlan
    conditions: Conditions | None


Describe: TypeAlias = "Callable[[Exchange, PlanContext], bool]"
"""Sets ``text`` and ``errors`` of an exchange that is not decoded, unless something in it is unusual. Returns
whether it did."""


class Plan(NamedTuple):
    """What the core does for a sink, settled before the first packet. The exchanges that it leaves are fed.

    Attributes:
        output: from the context to what the core must know to finish exchanges. None: it finishes none.
        describe: describes exchanges that are fed. None: all of them are decoded.
        conditions: from the context to which exchanges are selected, once the first packet is known. None:
            all are.
        release: takes what the core has made of exchanges with records, when their batches are joined. None:
            they are not.
        has_row_each: whether each selected exchange is one row.
    """

    output: Callable[[PlanContext], OutputPlan] | None = None
    describe: Describe | None = None
    conditions: Callable[[PlanContext], Conditions] | None = None
    release: Callable[[WrittenText], object] | None = None
    has_row_each: bool = True

    def of_core(self, context: PlanContext) -> CorePlan | None:
        """What the core gets; None: it finishes no exchanges."""
        if self.output is None:
            return None
        conditions = None if self.conditions is None else self.conditions(context)
        return CorePlan(self.output(context), conditions)
