from __future__ import annotations

import pickle
from collections import Counter

from kdissect.errors import UnexpectedError
from kdissect.exchanges.resolver import Refs
from kdissect.model import Anomaly
from kdissect.runs.assembling import (
    Failed,
    LateRows,
    OpenRow,
    ParentUpdate,
    Progress,
    ReaderEnd,
    ResolvedRow,
    Stop,
    WorkerBatch,
    WorkerEnd,
)
from kdissect.runs.worker import columns


def test_messages_survive_pickling() -> None:
    rows = columns()
    rows.places.append(1 << 40)
    batch = "id", 3, 7
    rows.open[0] = OpenRow(1, Refs(["id"], [("id", "name")]), Refs([batch], [(batch, 9)]), {"id": "name"})
    for message in (
        WorkerBatch(7, rows),
        ParentUpdate(
            7,
            {"id": "name"},
            [ResolvedRow(1, {}, [Anomaly("name_not_waited_for", "connection", "")], {batch: 9}, None)],
        ),
        LateRows([(1, (1, b"text"))]),
        Stop(),
        Progress(9),
        ReaderEnd(["warning"], (), "fault", unreadable=True, census=None),
        WorkerEnd(Counter(packets=1), Counter(), [(1, "notice")], [{"name"}], None),
    ):
        assert pickle.loads(pickle.dumps(message)) == message
    failed = pickle.loads(pickle.dumps(Failed(UnexpectedError("what", "x.pcap"))))
    assert (str(failed.error), failed.error.capture) == ("what", "x.pcap")
