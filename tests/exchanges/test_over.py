from __future__ import annotations

from kdissect.exchanges.dialogue import Dialogue
from kdissect.exchanges.ordering import Ordering, Over
from kdissect.limits import DEFAULT
from kdissect.model import Closed, Endpoint, Exchange, Interface
from kdissect.net.connection import Connection
from tests.made_exchanges import connection, exchange


def test_the_end_of_a_connection_stands_behind_all_that_was_complete_then() -> None:
    told = Connection(
        "c0ffee",
        (Endpoint("10.0.0.1", 1), Endpoint("10.0.0.2", 9092)),
        0,
        (True, True),
        1,
        0,
        Interface("x", 0, 1),
    )
    over = Over(told, Dialogue(told, DEFAULT), Closed("fin"), 10)
    stage: Ordering[Exchange | Over] = Ordering(DEFAULT)
    exchanges = [
        exchange(completed_ns=time_ns, connection=connection(name))
        for time_ns, name in ((9, "a"), (10, "b"), (11, "c"))
    ]
    assert stage.feed([over, *exchanges], None) == [*exchanges[:2], over, exchanges[2]]
