"""How long does one record take to read, beside kafka-python and aiokafka? Microseconds of processor time,
the best of several rounds.

    python benchmarks/records.py

All three read the same bytes, check the checksum and make an object of every record; aiokafka's reader is
compiled C. The rounds of the three alternate, so that a busy machine is unfair to nobody.

kdissect also does what the others do not: it checks the messages inside a compressed one, and bounds what is
decompressed. And it has all records of a batch at once, where the others hand out one after the other, which
the processor's caches like better when there are 10,000.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent))

from kdissect.kafka.batches import read_records
from kdissect.kafka.records import RecordData
from tests.kafka.oracles.record_builders import IMPLEMENTATIONS
from tests.record_batches import BASE_MS, CODECS, Item, entries

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 15
RECORDS_A_ROUND = 3000
HEADERS = 2
WANTED = 2.5


def items(count: int, shortest: int, longest: int, headers: int) -> list[Item]:
    """Keys of some bytes, values of random lengths, times that rise slowly."""
    random = Random(1)
    found = []
    for place in range(count):
        trace = (b"traceparent", random.randbytes(55)), (b"source", b"web")
        value = random.randbytes(random.randint(shortest, longest))
        found.append(
            Item(random.randbytes(random.randint(4, 12)), value, trace[:headers], BASE_MS + place // 50)
        )
    return found


def ours(data: bytes) -> Callable[[], None]:
    """As the decoder of the message around it leaves it, record data is there before anybody reads it."""
    record_data = RecordData(data, 0, len(data))

    def read() -> None:
        for batch in read_records(record_data):
            for _ in batch.records:
                pass

    return read


def theirs(data: bytes, memory_records: Callable[[bytes], object]) -> Callable[[], None]:
    def read() -> None:
        batches = memory_records(data)
        while batches.has_next():
            batch = batches.next_batch()
            batch.validate_crc()
            for _ in batch:
                pass

    return read


def race(readers: list[Callable[[], None]], count: int) -> list[float]:
    """Microseconds a record of each."""
    times = max(1, RECORDS_A_ROUND // count)
    best = [float("inf")] * len(readers)
    for _ in range(ROUNDS):
        for place, read in enumerate(readers):
            begin = time.thread_time()
            for _ in range(times):
                read()
            best[place] = min(best[place], time.thread_time() - begin)
    return [seconds / times / count * 1e6 for seconds in best]


def row(name: str, data: bytes, count: int) -> None:
    readers = [ours(data), *(theirs(data, each.memory.MemoryRecords) for each in IMPLEMENTATIONS)]
    mine, kafka_python, aiokafka = race(readers, count)
    factor = kafka_python / mine
    note = "" if factor >= WANTED else f"  less than {WANTED}"
    print(f"{name:52}{mine:9.2f}{kafka_python:14.2f}{aiokafka:10.2f}{factor:9.1f}{note}", flush=True)


def main() -> None:
    print(f"{'':52}{'kdissect':>9}{'kafka-python':>14}{'aiokafka':>10}{'factor':>9}")
    for shortest, longest in ((20, 120), (100, 300), (20, 1000)):
        for headers in (0, HEADERS):
            for count in (1, 2, 5, 10, 100, 1000, 10_000):
                what = f"{count} of {shortest} to {longest} bytes" + (
                    f", {headers} headers" if headers else ""
                )
                row(f"magic 2, {what}", entries(2, items(count, shortest, longest, headers)), count)
    for magic in (0, 1, 2):
        for codec in CODECS:
            if (magic, codec) in ((0, "lz4"), (0, "zstd"), (1, "zstd")):
                continue
            for count in (1, 1000):
                data = entries(magic, items(count, 20, 120, 0), codec=CODECS[codec])
                row(f"magic {magic}, {codec}, {count} of 20 to 120 bytes", data, count)


if __name__ == "__main__":
    main()
