"""How long does it take to read a record, compared with kafka-python and aiokafka? Microseconds of CPU time,
the best of several rounds.

    python benchmarks/records.py

All three read the same bytes, verify the checksum, and create an object per record; aiokafka's reader is
compiled C. Their rounds alternate, so that other load on the machine affects all of them equally.

Unlike the others, kdissect checks the messages inside a compressed one, and limits the decompressed size. And
it returns all records of a batch at once, where the others yield one after the other, which uses the CPU's
caches better when a batch has 10,000 records.
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
EXPECTED = 2.5


def items(count: int, shortest: int, longest: int, headers: int) -> list[Item]:
    """Records with short keys, values of random lengths, and slowly increasing timestamps."""
    random = Random(1)
    result = []
    for place in range(count):
        trace = (b"traceparent", random.randbytes(55)), (b"source", b"web")
        value = random.randbytes(random.randint(shortest, longest))
        result.append(
            Item(random.randbytes(random.randint(4, 12)), value, trace[:headers], BASE_MS + place // 50)
        )
    return result


def kdissect_reader(data: bytes) -> Callable[[], None]:
    """A reader of record data, which starts from what the decoder of the message returns."""
    record_data = RecordData(data, 0, len(data))

    def read() -> None:
        for batch in read_records(record_data):
            for _ in batch.records:
                pass

    return read


def kafka_python_like(data: bytes, memory_records: Callable[[bytes], object]) -> Callable[[], None]:
    def read() -> None:
        batches = memory_records(data)
        while batches.has_next():
            batch = batches.next_batch()
            batch.validate_crc()
            for _ in batch:
                pass

    return read


def race(readers: list[Callable[[], None]], count: int) -> list[float]:
    """Microseconds per record of each reader."""
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
    readers = [
        kdissect_reader(data),
        *(kafka_python_like(data, each.memory.MemoryRecords) for each in IMPLEMENTATIONS),
    ]
    mine, kafka_python, aiokafka = race(readers, count)
    factor = kafka_python / mine
    note = "" if factor >= EXPECTED else f"  less than {EXPECTED}"
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
