from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect.exchanges.end_to_end import EndToEnd, learn_produced, produce_refs
from kdissect.exchanges.learned import LearnedFacts
from kdissect.limits import DEFAULT, LIVE, Limits
from tests.exchange_factory import START_NS, exchange
from tests.record_batches import BASE_MS, Item, batch
from tests.record_exchanges import data, fetch, opened, produce

if TYPE_CHECKING:
    from kdissect.model import Exchange

MS_NS = 1_000_000
WINDOW_MS = DEFAULT.produce_window_ns // MS_NS
TOPIC_ID = "1_AY0UjPSb2MbWLBR95OPw"


def at(carrier: Exchange, completed_ms: int) -> Exchange:
    """The exchange, completed at a time after the start; its request was complete 10 ms before."""
    carrier.completed_ns = START_NS + completed_ms * MS_NS
    for frame, sent_ms in (("request_frame", 10), ("response_frame", 0)):
        before = getattr(carrier, frame)
        if before is not None:
            setattr(carrier, frame, before._replace(end_ns=carrier.completed_ns - sent_ms * MS_NS))
    return carrier


def produced(offset: int, ms: int, **answer: Any) -> Exchange:
    return at(produce(batch([Item()]), {"base_offset": offset, **answer}), ms)


def fetched(offset: int, ms: int, count: int = 1) -> Exchange:
    raw = b"".join(batch([Item()], base_offset=offset + index) for index in range(count))
    return at(fetch(raw), ms)


def latencies_ms(carrier: Exchange) -> list[int | None]:
    """The end-to-end latency of each record."""
    sources = ((record.source, record.batch) for record in opened(carrier))
    sent = [(source.time_ns, source.produced_ns(batch)) for source, batch in sources]
    return [None if sent_ns is None else (time_ns - sent_ns) // MS_NS for time_ns, sent_ns in sent]


def stage(limits: Limits = DEFAULT, learned: LearnedFacts | None = None) -> EndToEnd[Exchange]:
    return EndToEnd(limits, produce_refs, learned)


def test_a_record_that_was_produced_before() -> None:
    end_to_end, first, second = stage(), produced(7, 0), fetched(7, 25)
    assert end_to_end.feed(first) == [first]
    assert end_to_end.feed(second) == [second]
    assert latencies_ms(second) == [35]
    assert latencies_ms(first) == [None]


def test_a_record_that_is_fetched_before_the_producer_has_its_response() -> None:
    end_to_end, early, other, late = stage(), fetched(7, 25, count=2), produced(1, 27), produced(7, 30)
    assert end_to_end.feed(early) == []
    assert end_to_end.feed(other) == []  # it keeps its place
    assert end_to_end.feed(late) == []  # offset 8 is still unknown
    last = produced(8, 31)
    assert end_to_end.feed(last) == [early, other, late, last]
    assert latencies_ms(early) == [5, 4]
    assert end_to_end.is_idle


def test_a_row_waits_as_long_as_the_window() -> None:
    end_to_end, early, late = stage(), fetched(7, 0), produced(7, WINDOW_MS)
    assert end_to_end.feed(early) == []
    assert end_to_end.feed(late) == [early, late]
    assert latencies_ms(early) == [None]
    end_to_end, last = stage(), fetched(7, 0)
    assert end_to_end.feed(last) == []
    assert end_to_end.close() == [last]


def test_live_rows_do_not_wait() -> None:
    end_to_end, early = stage(LIVE), fetched(7, 0)
    assert end_to_end.feed(early) == [early]


def test_not_more_rows_wait_than_the_limit_allows() -> None:
    end_to_end = stage(Limits(naming_rows=2))
    early = [fetched(offset, 0) for offset in range(3)]
    assert [end_to_end.feed(each) for each in early] == [[], [], [early[0]]]


def test_the_oldest_batches_are_forgotten_and_counted() -> None:
    end_to_end = stage(Limits(produced_batches=2))
    for offset in range(3):
        end_to_end.feed(produced(offset, offset))
    assert end_to_end.evicted == 1
    known = fetched(1, 20)
    assert end_to_end.feed(known) == [known]
    assert end_to_end.feed(fetched(0, 21)) == []
    facts = LearnedFacts(Limits(produced_batches=2))
    for offset in range(3):
        learn_produced(produced(offset, offset), facts)
    assert (len(facts.gathered_batches()), facts.dropped_batches) == (2, 1)


def test_the_first_produce_of_an_offset_counts_and_never_one_after_the_fetch() -> None:
    end_to_end, second = stage(), fetched(7, 25)
    for carrier in (produced(7, 0), produced(7, 20)):  # the same batch twice: the first response was late
        end_to_end.feed(carrier)
    end_to_end.feed(second)
    assert latencies_ms(second) == [35]
    end_to_end, early = stage(), fetched(7, 0)  # only the retry has a response
    end_to_end.feed(early)
    end_to_end.feed(produced(7, 100))
    assert latencies_ms(early) == [None]


@pytest.mark.parametrize("knows_all", [False, True])
def test_the_same_offset_in_another_cluster(knows_all: bool) -> None:
    other = at(produce(batch([Item()], base_ms=BASE_MS - 3_600_000), {"base_offset": 7}), 0)
    here, copy = fetched(7, 25), produced(7, 28)  # fetched before the producer has its response
    facts = LearnedFacts()
    for carrier in (other, copy):
        learn_produced(carrier, facts)
    end_to_end = stage(learned=facts if knows_all else None)
    for carrier in (other, here, copy):
        end_to_end.feed(carrier)
    end_to_end.close()
    assert latencies_ms(here) == [7]


def test_rejected_batches_and_other_offsets_are_not_joined() -> None:
    end_to_end, late = stage(), fetched(7, 25)
    end_to_end.feed(produced(-1, 0, error_code=6))
    end_to_end.feed(produced(8, 0))
    end_to_end.feed(late)
    end_to_end.close()
    assert latencies_ms(late) == [None]


@pytest.mark.parametrize("knows_all", [False, True])
@pytest.mark.parametrize("sent_by", ["name", "topic_id"])
@pytest.mark.parametrize("read_by", ["topic", "topic_id"])
def test_topics_by_name_and_by_id(sent_by: str, read_by: str, knows_all: bool) -> None:
    def topic(by: str) -> dict[str, str]:
        return {by: TOPIC_ID if by == "topic_id" else "orders"}

    raw = data(batch([Item()], base_offset=7))
    response = {**topic(sent_by), "partition_responses": [{"index": 3, "base_offset": 7}]}
    request = {**topic(sent_by), "partition_data": [{"index": 3, "records": raw}]}
    version = 13 if sent_by == "topic_id" else 12
    sent = at(exchange("Produce", version, {"topic_data": [request]}, {"responses": [response]}), 0)
    partition = {"partition_index": 3, "records": raw}
    version = 13 if read_by == "topic_id" else 12
    read = at(
        exchange("Fetch", version, {}, {"responses": [{**topic(read_by), "partitions": [partition]}]}), 25
    )
    facts = LearnedFacts()
    facts.learn_topic(TOPIC_ID, "orders", START_NS)
    learn_produced(sent, facts)
    for carrier in (sent, read):
        carrier.topic_ids[TOPIC_ID] = "orders"
    end_to_end = stage(learned=facts if knows_all else None)
    assert end_to_end.feed(sent) + end_to_end.feed(read) == [sent, read]
    assert latencies_ms(read) == [35]


EVENTS = st.lists(
    st.tuples(st.booleans(), st.integers(0, 3), st.sampled_from([0, 1, 5, WINDOW_MS - 1, WINDOW_MS])),
    max_size=12,
)


@given(EVENTS, st.integers(1, 3))
def test_facts_of_parts_give_what_one_pass_gives(events: list[tuple[bool, int, int]], parts: int) -> None:
    """Whatever is fetched and produced in whatever order, and however the connections are divided."""

    def exchanges() -> list[Exchange]:
        carrier, now_ms = [], 0
        for is_produce, offset, later_ms in events:
            now_ms += later_ms + 1
            carrier.append((produced if is_produce else fetched)(offset, now_ms))
        return carrier

    one_pass, in_parts = exchanges(), exchanges()
    end_to_end = stage()
    out = [each for carrier in one_pass for each in end_to_end.feed(carrier)] + end_to_end.close()
    assert out == one_pass
    facts = LearnedFacts()
    facts.gathered_batches()
    for part in range(parts):
        own = LearnedFacts()
        for carrier in in_parts[::-1][part::parts]:
            learn_produced(carrier, own)
        facts.merge(own)
    end_to_end = stage(learned=facts)
    for carrier in in_parts:
        assert end_to_end.feed(carrier) == [carrier]
    assert list(map(latencies_ms, in_parts)) == list(map(latencies_ms, one_pass))


# --- batches whose Produce failed ---------------------------------------------------------------------------

NOT_LEADER = 6
NUMBERED = {"producer_id": 9, "producer_epoch": 0}


def failed(sequence: int, ms: int, number: int = 1, error: int | None = NOT_LEADER) -> Exchange:
    """A Produce of a numbered batch with an error; None: without an answer."""
    raw = batch([Item()] * 2, base_sequence=sequence, **NUMBERED)
    carrier = produce(raw, None if error is None else {"error_code": error, "base_offset": -1})
    carrier.number, carrier.ended = number, True
    return at(carrier, ms)


def stored(sequence: int, ms: int, offset: int = 7, number: int = 2, **numbers: int) -> Exchange:
    """A Fetch of a numbered batch."""
    raw = batch([Item()] * 2, base_offset=offset, base_sequence=sequence, **(NUMBERED | numbers))
    carrier = at(fetch(raw), ms)
    carrier.number = number
    return carrier


def links(carrier: Exchange) -> list[tuple[int | None, str | None]]:
    """Of each record the offset, and the number of the other exchange."""
    copies = [(record.offset, record.source.copy(record.batch)) for record in opened(carrier)]
    return [(offset, copy and copy.exchange.partition("/")[2]) for offset, copy in copies]


@pytest.mark.parametrize("error", [NOT_LEADER, None])
def test_a_batch_that_is_fetched_although_its_produce_failed(error: int | None) -> None:
    end_to_end, first, second = stage(), failed(80, 0, error=error), stored(80, 500)
    assert end_to_end.feed(first) == []
    assert [*end_to_end.feed(second), *end_to_end.close()] == [first, second]
    assert links(first) == [(7, "2"), (8, "2")]
    assert links(second) == [(7, "1"), (8, "1")]


def test_a_produce_that_times_out_after_its_batch_was_fetched() -> None:
    end_to_end, early, other = stage(), stored(80, 10), produced(1, 3000)
    late = failed(80, 30_000, error=None)
    assert [*end_to_end.feed(early), *end_to_end.feed(other)] == [early, other]
    assert end_to_end.feed(late) == [late]
    assert links(late) == [(7, "2"), (8, "2")]
    assert links(early) == [(7, None), (8, None)]  # its row was complete long before


@pytest.mark.parametrize(
    "other", [{"producer_id": 10}, {"producer_epoch": 1}, {"base_ms": BASE_MS + 1}, {"producer_id": -1}]
)
def test_another_batch_is_no_copy(other: dict[str, int]) -> None:
    end_to_end, first, second = stage(), failed(80, 0), stored(80, 500, **other)
    assert [*end_to_end.feed(first), *end_to_end.feed(second), *end_to_end.close()] == [first, second]
    assert links(first) == [(None, None)] * 2
    assert links(second) == [(7, None), (8, None)]


def test_failed_batches_that_were_learned_beforehand() -> None:
    facts, others = LearnedFacts(DEFAULT), LearnedFacts(DEFAULT)
    facts.gathered_batches()
    learn_produced(failed(80, 0), others)
    facts.merge(others)
    end_to_end, second = stage(learned=facts), stored(80, 5000)
    assert end_to_end.feed(second) == [second]
    assert links(second) == [(7, "1"), (8, "1")]


def test_fetched_batches_are_bounded() -> None:
    end_to_end = stage(Limits(fetched_batches=2, produce_window_ns=0))
    for sequence in (80, 82, 84):
        end_to_end.feed(stored(sequence, sequence))
    for sequence, numbers in ((80, [None] * 2), (84, ["2"] * 2)):
        late = failed(sequence, 30_000)
        end_to_end.feed(late)
        assert [number for _, number in links(late)] == numbers
