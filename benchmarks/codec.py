"""How long does it take to decode a message: native core, compiled code, walker, kio? Microseconds, best of
several rounds. Without the core, or with KDISSECT_PURE=1, the first column is compiled code too.

python benchmarks/codec.py
"""

from __future__ import annotations

import sys
from functools import partial as call
from pathlib import Path
from timeit import repeat
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader

from kdissect.kafka import schema
from kdissect.kafka.codes import uuid_text
from kdissect.kafka.compiler import collector, decoder, generated_decoder
from kdissect.kafka.primitives import DecodeBudget
from kdissect.kafka.walker import walk
from tests.kafka.encoder import encoder, fill

if TYPE_CHECKING:
    from collections.abc import Callable

    from kdissect.model import Body

ROUNDS = 5
RECORDS = bytes(1000)
TOPIC_ID = uuid_text(bytes(range(16)))

PRODUCE: Body = {
    "acks": -1,
    "timeout_ms": 30_000,
    "topic_data": [{"name": "orders", "partition_data": [{"index": 3, "records": RECORDS}]}],
}
FETCH: Body = {
    "responses": [
        {
            "topic_id": TOPIC_ID,
            "partitions": [
                {
                    "partition_index": index,
                    "high_watermark": 10**6,
                    "aborted_transactions": [],
                    "records": RECORDS,
                }
                for index in range(3)
            ],
        }
    ],
}
METADATA: Body = {
    "brokers": [{"node_id": node, "host": f"broker-{node}.example", "port": 9092} for node in range(3)],
    "cluster_id": "MkU3OEVBNTcwNTJENDM2Qk",
    "topics": [
        {
            "name": f"topic-{number}",
            "topic_id": TOPIC_ID,
            "partitions": [
                {
                    "partition_index": index,
                    "leader_id": index,
                    "replica_nodes": [0, 1, 2],
                    "isr_nodes": [0, 1, 2],
                }
                for index in range(3)
            ],
        }
        for number in range(50)
    ],
}


def microseconds(work: Callable[[], object]) -> float:
    once = min(repeat(work, number=1, repeat=3))
    number = max(1, int(0.02 / once))
    return min(repeat(work, number=number, repeat=ROUNDS)) / number * 1e6


def main() -> None:
    print(
        f"{'':44}{'bytes':>7}{'core':>10}{'compiled':>10}{'walker':>10}{'kio':>10}{'encode':>10}{'errors':>10}"
    )
    shapes: list[tuple[str, Any, int, Body, Any]] = [
        ("Produce v9 request, one partition", schema.request(0), 9, PRODUCE, load_request_schema(0, 9)),
        ("Fetch v13 response, 3 partitions", schema.response(1), 13, FETCH, load_response_schema(1, 13)),
        (
            "Metadata v12 response, 50 topics, 150 parts",
            schema.response(3),
            12,
            METADATA,
            load_response_schema(3, 12),
        ),
        ("Heartbeat v4 request", schema.request(12), 4, {"group_id": "billing"}, load_request_schema(12, 4)),
    ]
    for name, message, version, partial, kio_schema in shapes:
        body = fill(message, version, partial)
        raw = encoder(message, version)(body)
        times = [
            microseconds(call(decoder(message, version), raw, 0, DecodeBudget(1 << 60))),
            microseconds(call(generated_decoder(message, version), raw, 0, DecodeBudget(1 << 60))),
            microseconds(call(walk, message, version, raw)),
            microseconds(call(entity_reader(kio_schema), raw, 0)),
            microseconds(call(encoder(message, version), body)),
        ]
        errors = collector(message, version, "error")
        if errors is not None:
            times.append(microseconds(call(errors, body)))
        print(f"{name:44}{len(raw):7}" + "".join(f"{time:10.2f}" for time in times))


if __name__ == "__main__":
    main()
