"""What Python sees of the native core (core/src/python/). Import it through ``kdissect.core`` only.

Whatever is unusual is left to Python: a function then returns None, or stops before it. None of this raises
because of what is in a capture.

The core calls Python only for what needs Python's objects or what Python alone knows:

* ``_Callbacks.usual``: the notation of messages says which APIs the core pairs, and how their headers end.
* ``_Callbacks.introduction``: how Kafka is recognized by a first request is decided in Python only.
* ``_Callbacks.may_open``: Python remembers the connections that have ended.
* ``_Callbacks.is_known``: the notation of messages says which APIs and versions there are.
* ``_Callbacks.refused``: what is not Kafka is decided in Python only; called once for each direction.
* ``_Callbacks.is_needed``: what a first pass skips depends on the notation of messages.
* ``_Callbacks.info``: makes the object that the exchanges of a connection share.
* ``_Callbacks.topic_ids``: where topic IDs are is read with the notation of messages.
* ``_Callbacks.new``: makes exchanges, frames and headers, which are Python's.
* ``Conditions.of_client``: globs, and the ID of a connection, are Python's; called once for each connection,
  kind, API, version and client ID.
* ``Conditions.mentions``: where names and fields are in bodies is read with the notation of messages, for
  each API once.
* ``values`` of a ``CoreTest``: how values of any types compare is Python's; called once for the same values.
* ``Conditions.topic_name``: see ``CommonPlan.topic_name``.
* ``Conditions.note_name``, ``note_ids``: a message about names without a match needs those of all exchanges.
  Each name is passed once, and once to the tests of names, which are Python's.
* ``Conditions.note_times``: a message about a range without exchanges needs all that the core and Python saw.
* ``CommonPlan.shared``: texts from that object, and of a client's identity, which authentication can change.
* ``CommonPlan.api``: makes a ``Line`` or ``Row`` from the notation of messages, when an API is first seen.
* ``CommonPlan.error``: the names of error codes are read with the notation of messages.
* ``CommonPlan.topic_name``, ``learn_name``: one table of names for all exchanges, those in Python too.
* ``CommonPlan.around``: time zones are Python's.
* ``LinePlan.client``: the width of text in a terminal is Python's.
* ``LinePlan.follow``: Python follows the protocols of groups, for all exchanges.
* ``LinePlan.pass_times``: times that count from the exchange before, which may be Python's; called once for
  each page.
* ``LinePlan.unanswered``: what a line says of a request without a response depends on how its connection
  ended.
* ``LinePlan.rejected``: an ApiVersions response in another version than its request is decoded by Python.
* ``RowPlan.capture``, ``RecordPlan.capture``: the name of a capture belongs to Python's interface.
* ``RowPlan.follow``: see ``LinePlan.follow``.
* ``RowPlan.is_secret``: which configs are credentials is decided in Python only.
* ``RowPlan.rejected``: see ``LinePlan.rejected``.
* ``RowPlan.expected``: rules about errors depend on what a connection did before, in Python too.
* ``RowPlan.learn``, ``RecordPlan.learn``: clusters are learned once for all exchanges, in Python.
* ``WholePlan.events``: the events of groups are read in Python; called once for each exchange that joins or
  leaves a group, or is a heartbeat with an error or of the new protocols.
* ``WholePlan.take_brokers``, ``take_alive``, ``take_events``: tables of all exchanges, those in Python too.
* ``WholePlan.has_cluster``: see ``TallyPlan.has_cluster``.
* ``RecordPlan.inflate``: libraries in C decompress, within limits that depend on the batches before.
* ``RecordPlan.label``: which topics are Kafka's own is Python's; called once for each topic.
* ``RecordPlan.opens``: control records, and those of Kafka's own topics, are decoded and redacted by Python.
* ``RecordPlan.open_messages``: Python opens messages in messages, and follows the protocols of groups.
* ``RecordPlan.rejected``: names of errors, and what they mean, are Python's; called once for each error.
* ``RecordPlan.whole``: a rejected Produce that is fetched nevertheless is written anew, by Python.
* ``RecordPlan.printed``: the width and form of text in a terminal are Python's; for what is not plain ASCII.
* ``RecordPlan.is_partition``, ``TallyPlan.is_partition``: globs are Python's; called once for each partition.
* ``RecordPlan.selects``: patterns and schemas are Python's; called for each record if the options say so.
* ``RecordPlan.optional``: of records that have headers, or may have a schema: traces and schema IDs.
* ``RecordPlan.join``, ``has_room``: batches are joined in Python, with those of the exchanges there, and text
  waits for that. The latter is called once for each page.
* ``ConnectionPlan.take``, ``TallyPlan.take``, ``take_one``, ``take_slow``: give counts, and exchanges that
  are counted one by one, to the parts of a summary.
* ``TallyPlan.has_cluster``, ``learn_cluster``: what a connection's cluster is, is learned in Python.
* ``TallyPlan.content``: rules read bodies as Python decodes them; called once for each pair of bodies.
* ``TallyPlan.one``: exchanges that are not alike are decoded in Python; called once for each of these.
* ``TallyPlan.interval``: intervals become longer as Python counts more of them.
* ``MemoryPlan.lend``, ``restore``: what a connection remembers of its exchanges, which Python continues.
"""

from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any, Final, overload

from typing_extensions import Buffer

from kdissect.exchanges.lending import ConnectionState, StageLimits
from kdissect.kafka.recordbatch import Record
from kdissect.model import Exchange, Interface, PacketBlock
from kdissect.net.connection import Connection
from kdissect.net.duplex import Duplex
from kdissect.sinks.plan import CorePlan

INTERFACE: Final[int]
"""Which version of this interface it is."""

_Place = tuple[int, int, int, int]
_Bodies = tuple[
    tuple[Any, ...],
    tuple[Any, ...],
    list[tuple[list[str], str, str]],
    list[tuple[list[str], str, str]],
    list[tuple[str, list[tuple[int, tuple[Any, ...]]]]],
    tuple[bool, bool],
]
"""``Undecoded.core``: layouts of both bodies, where topics are named, those of payloads, and two flags."""
_Paths = tuple[list[list[str]], tuple[str, int, int] | None]

# Packets

class Places(Sequence[_Place]):
    """``PacketBlock.places``: time in ns, start and end in the buffer, length on the wire, of each packet."""

    def __init__(self, places: Sequence[_Place]) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[_Place]: ...
    @overload
    def __getitem__(self, index: int) -> _Place: ...
    @overload
    def __getitem__(self, index: slice) -> Places: ...
    @property
    def is_consecutive(self) -> bool:
        """Whether the packets have consecutive numbers."""

    @property
    def numbers(self) -> list[int] | None:
        """Those of the packets. None: they are consecutive."""

    @property
    def interfaces(self) -> list[Interface] | None:
        """The interface of each packet. None: they have the same."""

    def by_interface(self) -> list[tuple[Interface, int, list[int]]] | None:
        """Interfaces in order of their first packets, number of packets, and sizes as in ``counted``. None:
        one.
        """

    def number_at(self, first: int, index: int) -> int:
        """The number of a packet, given that of the first."""

    def place_of(self, number: int) -> int:
        """``PacketBlock.place_of``, if there are numbers."""

    def span(self, first: int) -> tuple[int, int | None, int, int]:
        """``PacketBlock.span``, given the number of the first packet. IndexError: there is none."""

    def counted(self, last_ns: int) -> tuple[list[int], list[int]]:
        """See ``_counted`` of stats/survey.py."""

def pcap_places(
    data: bytes, pos: int, is_little: bool, tick_ns: int, header: int, limit: int
) -> tuple[Places, int, int, int] | None:
    """Places of packets in a pcap file; where the next begins, how many bytes it needs, and how many it
    declares.
    """

def pcapng_places(
    data: bytes,
    pos: int,
    is_little: bool,
    clocks: list[tuple[int, int, int]],
    interfaces: list[Interface],
    limit: int,
) -> tuple[Places, int] | None:
    """Places of packets in consecutive enhanced packet blocks, and where the first other block begins."""

def pcapng_skip(path: str | PathLike[str], pos: int, is_little: bool) -> int:
    """Where the first block of a file begins that is not an enhanced packet block. OSError: it cannot be
    read.
    """

def payloads(
    data: bytes,
    places: Places,
    layout: tuple[int, int, int],
    pattern: tuple[int, int, int, bytes, int, int, int],
    now_ns: int,
    until_ns: int,
) -> tuple[bytes, int] | None:
    """See ``payloads`` of net/connection.py: the payload of a run of packets, and their number."""

def encode_slots(
    slots: bytes, slot_bytes: int, received: list[bytes], form: tuple[int, bool, bool, int]
) -> tuple[bytes, int]:
    """Packets in slots of a ring -> pcapng blocks, and their number; ``received``: those too large for a
    slot; ``form``: snaplen, whether they get a cooked header, whether tags may have been removed, and the
    interface.
    """

def divide_packets(data: bytes, places: Places, link_type: int, shards: int, from_: int) -> bytes | None:
    """A record of each packet of a block: its place, counted from ``from_``, and its shard."""

def packets_of_shard(data: Buffer, records: Buffer, number: int, shard: int) -> tuple[bytes, Places]:
    """The packets of a block that a shard needs, see ``divide_packets``; ``number``: of the block's first
    packet.
    """

def bundle_packets(
    block: PacketBlock, link_type: int, at: int, clock_ns: int, shards: int
) -> tuple[list[tuple[int, int, int, int, bytes, bytes]], list[tuple[bytes, int]], int, int] | None:
    """Bundles of packets by shard, from one packet up to the first odd one: shard, clock at first and last
    packet, number of the first, heads and bytes; then payload bytes by ends, the index of the odd packet, and
    the clock.
    """

def unbundle_packets(heads: bytes) -> list[tuple[int, int, Places]]:
    """The blocks of a bundle: number of the first packet, link type, and places."""

# Bodies and records

class Decoder:
    """Decodes bodies by a layout; ``python`` decodes those that are odd, and makes their objects."""

    def __init__(
        self,
        shape: tuple[Any, ...],
        charges_text: bool,
        records: Callable[[bytes, int, int], Any],
        python: Callable[..., tuple[Any, int]],
    ) -> None: ...
    def decode(self, data: bytes, pos: int, budget: Any) -> tuple[Any, int]:
        """The body and its end. DecodeError, by ``python``: it is damaged."""

class Records(Sequence[Record]):
    """The records of a batch. A ``Record`` is made only when it is used."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Record]: ...
    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __eq__(self, other: object) -> bool: ...
    @property
    def headers(self) -> int:
        """Number of headers of all records."""

    @property
    def lowest_offset(self) -> int:
        """Of its records; 0 if there are none."""

    def json_lines(
        self,
        first: int,
        stop: int,
        between: Sequence[bytes],
        offsets_known: bool,
        timestamp: bytes | None,
        second: Callable[[int], str],
        tail: Callable[[int], bytes],
    ) -> bytes | None:
        """Some records as JSON lines. ``second``: text of a second since 1970, in Python's calendar;
        ``tail``: what follows the value of a record with headers or a schema, which Python reads.
        """

    def text_lines(
        self,
        before: str,
        gap: str,
        widths: tuple[int, int],
        offsets_known: bool,
        words: str,
        line: Callable[[int], str],
    ) -> str | None:
        """Lines of text. ``line``: of a record with more than plain ASCII, whose width Python knows."""

def quantiles(
    numbers: Sequence[int],
) -> tuple[int, int | None, int | None, list[int], list[tuple[int, int]]]:
    """Arguments of ``Quantiles.of``."""

def read_records(
    data: bytes,
    place: tuple[int, int],
    base_offset: int,
    base_timestamp_ms: int,
    bounds: tuple[int, int, int],
    new: Callable[..., Record],
) -> Records | None:
    """The records between two positions, within limits of records, headers of one, and headers of all."""

class Line:
    """Describes the exchanges of an API in one version, see text/about_template.py. ValueError: there is
    something in a template that is left to Python.
    """

    def __init__(
        self,
        bodies: _Bodies,
        request_template: tuple[Any, ...],
        response_template: tuple[Any, ...],
        followed: tuple[Sequence[str], Sequence[str]] | None,
        messages: list[tuple[str, Any]] | None,
    ) -> None: ...
    def text(
        self,
        request: tuple[bytes, int],
        response: tuple[bytes, int] | None,
        budget: int,
        topic_name: Callable[[str], str | None],
        learn_name: Callable[[str, str], None],
        follow: Callable[..., bool],
    ) -> tuple[str, list[int]] | None:
        """The text about an exchange, and error codes in the response; see ``CommonPlan``."""

class Row:
    """Finds the columns of the exchanges of an API in one version, see tables/native_rows.py."""

    def __init__(
        self,
        bodies: _Bodies,
        topics: tuple[Any, Any],
        group_and_transaction: tuple[_Paths, _Paths],
        records: tuple[list[list[str]], list[list[str]]],
        flags: tuple[bool, bool, bool],
        user_data: list[tuple[str, tuple[str, int, tuple[Any, ...]] | None]] | None,
        other_tables: tuple[Any, Sequence[Sequence[str]], str, tuple[Any, Any, bool, bool] | None],
    ) -> None: ...

# Rows

class Columns:
    """The rows of the next batch, by columns. ValueError: no such format."""

    def __init__(self, kind: tuple[str, list[Any]]) -> None: ...
    @property
    def rows(self) -> int:
        """Their number."""

    @property
    def held(self) -> int:
        """About how many bytes they have."""

    def feed(self, values: list[Any]) -> None:
        """Add a row. OverflowError: a value does not fit its column."""

    def feed_some(self, values: Sequence[list[Any]], start: int, stop: int, size: int) -> None:
        """Add some rows, whose values are given by column. OverflowError: a value does not fit."""

    def waiting(self) -> WaitingColumns:
        """For rows of the same columns that wait."""

    def take(self) -> Batch:
        """The rows. The next batch begins."""

class WaitingColumns:
    """Rows that wait to be added to others."""

    def move_to(
        self,
        to: Columns,
        rows: int,
        capacity: tuple[int, int],
        later: Sequence[tuple[str, int | str | None]],
    ) -> int:
        """Add the first rows to others, with values of columns that were not known, the same in all of them:
        at most so many, and none after one that fills the others. Returns how many.
        """

class TableLines:
    """JSON lines of a table, given the text before each column."""

    def __init__(self, heads: Sequence[str]) -> None: ...
    @property
    def rows(self) -> int:
        """Their number."""

    @property
    def held(self) -> int:
        """Their bytes."""

    def add(self, text: bytes) -> None:
        """Add lines."""

    def take_first(self, rows: int) -> bytes:
        """The first lines."""

    def take(self, room: int) -> bytes:
        """Lines: at least one, if there is any, and none after the one that exceeds ``room`` bytes."""

class Batch:
    """Rows for one reader of the Arrow C data interface."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Capsules of schema and array. ValueError: there was a reader before."""

class RowBatch:
    """The next rows of a worker: their keys, and texts of those that the core has written."""

    def __init__(self) -> None: ...
    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of keys and of texts."""

    def add(self, place: int, completed_ns: int, packet: int, held: int, connection: int) -> None:
        """Add a row that Python has."""

    def move_to(self, keys: Buffer, text: Buffer) -> None:
        """Move all to memory of these ``sizes``."""

class Merge:
    """Rows of several workers -> rows in order, see parallel/assembling.py."""

    def __init__(self, workers: int, max_rows: int, max_bytes: int) -> None: ...
    def add(self, worker: int, lines: tuple[int, Buffer], waits: Sequence[tuple[int, int | None]]) -> None:
        """Add rows: bytes of the keys; keys and texts, whose memory does not change until they are taken; and
        since when connections waited. ValueError: keys and texts do not fit each other.
        """

    def advance(self, until: int) -> None:
        """Merge the rows of all workers up to and including a place."""

    def take(self, single: bool) -> tuple[int, int, int, tuple[int, MergedText], int, int] | None:
        """A row that Python has: worker, number, 0. Or 0, 0, and a number of rows; how many of them are
        selected, with their texts; completion time and bytes of frames of the last.
        """

class MergedText:
    """Texts of consecutive rows."""

    def __getitem__(self, rows: slice) -> MergedText:
        """Those of the first rows, up to the end of a slice."""

    def __bytes__(self) -> bytes: ...
    def write_to_stdout(self) -> None:
        """Without a copy. OSError: it cannot be written."""

# Connections

_Order = tuple[int, int]
_Numbers = tuple[int, int] | None
_Step = tuple[int, int | None, list[Any], ConnectionState | None]
"""Index of a packet, since when connections wait, exchanges, and the connection that ended."""

class Lending:
    """The connections that the core has, see exchanges/lending.py.

    Args:
        limits: to respect.
        python: ``_Callbacks``.
        kinds: of exchanges that are answered, unacknowledged, unanswered.
    """

    def __init__(self, limits: StageLimits, python: Any, kinds: tuple[Any, Any, Any]) -> None: ...
    def analyze(self) -> None:
        """From now on connections are analyzed, and the end of each is reported."""

    def follow(self, plan: CorePlan, batch: RowBatch | None) -> None:
        """From now on exchanges are queued for ``written``; the rows of a shard go to a batch."""

    @property
    def shift(self) -> None: ...
    @shift.setter
    def shift(self, shift: int) -> None:
        """What to add to the number of a packet to get half its place."""

    @property
    def queued(self) -> tuple[int, int]:
        """Exchanges in the queue, and bytes of their frames."""

    @property
    def first(self) -> _Order | None:
        """The first place in the queue."""

    def written(
        self, before: _Order | None, max_exchanges: int, max_rows: int, writes: bool
    ) -> tuple[bytes, int, int, tuple[tuple[Connection, int, Exchange], int] | None]:
        """Text of queued exchanges before a place, or of those that wait, their number, how many of them are
        selected, and the next exchange if it is odd.
        """

    def finish_paired(self, exchange: Exchange, place: int | None, writes: bool) -> tuple[bytes, int] | None:
        """Finish an exchange that Python has paired: its text, and whether it is selected. None: it is left,
        as without ``writes``. ``place``: of one of a shard.
        """

    def wait(
        self, before: _Order, max_exchanges: int, room: tuple[int, int], budget: int
    ) -> (
        tuple[
            int,
            int,
            int,
            tuple[list[str], list[tuple[str, str]]] | None,
            Exchange | None,
            list[tuple[int, int, int, list[str]]],
        ]
        | None
    ):
        """Let queued exchanges before a place wait: those without names within ``room``, or one. Their
        number, bytes, latest completion, and topic IDs; of one also its names, or a copy in which Python
        finds both; and ``Waiting.parts``.
        """

    def pass_on(self, is_last: bool) -> None:
        """Pass on counts of connections that left the core, or of all."""

    @property
    def held(self) -> int:
        """Bytes, with overhead."""

    def run(
        self,
        block: PacketBlock,
        link_type: int,
        at: int,
        room: tuple[int, int, int],
        opening: tuple[int, int],
    ) -> tuple[list[_Step], int, int, int, list[bytes]]:
        """Take packets from an index on; ``room``: exchanges and bytes for the queue, and the latest time of
        one that Python holds; ``opening``: how many connections may be opened, and the number of the latest.
        Returns steps, the index of the first packet not taken, why, up to which one that is so, and ends of
        connections to lend.
        """

    def take_counts(self) -> list[tuple[str, int]]:
        """What happened to connections that were opened here, by name."""

    def take_reasons(self) -> tuple[list[tuple[str, int]], list[tuple[str, int, int, int]]]:
        """Why packets went to Python, and why complete exchanges did, with API key and version (-1 if Python
        has read the request); and how many since the last call.
        """

    @property
    def waiting_since_ns(self) -> int | None:
        """Since when connections that were opened here wait."""

    def tick(self, time_ns: int) -> list[int]:
        """Let time pass. Returns the connections that Python must take."""

    def ended(
        self, before: _Order
    ) -> list[tuple[int, tuple[bytes, int, tuple[_Numbers, _Numbers]], int | None, ConnectionState | None]]:
        """Connections whose end became final before a time and number: their numbers; the values of an
        ``Ended``; the time of the SYN of one that was opened here; and the state, if it was lent, or its end
        is to be reported.
        """

    def close(self) -> list[tuple[int, bytes, int]]:
        """The capture has ended. Ends the connections opened here of which nothing is left to report, and
        returns their numbers, ends, and the times of their SYNs.
        """

    @property
    def all(self) -> list[int]:
        """The numbers of all connections."""

    def ordinal(self, ends: bytes) -> int | None:
        """The number of the connection between these ends."""

    def has(self, ordinal: int) -> bool:
        """Whether a connection is here."""

    def lend(self, state: ConnectionState) -> bool:
        """Take a connection. False: the core is broken."""

    def recall(self, ordinal: int) -> ConnectionState | None:
        """Give a connection back. None: the core is broken, and it is lost."""

    def ignore(self, ends: bytes) -> None:
        """No connection between these ends will be lent, until ``readmit``."""

    def readmit(self, ends: bytes) -> None:
        """See ``ignore``."""

    def take_touched(self) -> list[tuple[int, Duplex | None, int, bool]]:
        """Connections with segments since the last call, the least recently used first: number, object and
        clock of one that is lent, and whether it is half open.
        """
