"""What stands in the order of exchanges where a connection is over: behind the last of its own. Holds the
dialogue until that is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kdissect.analysis.dialogue import Dialogue
    from kdissect.model import Anomaly, Closed
    from kdissect.net.connection import Connection

_BEHIND_ALL = 1 << 62  # of the packets


class Over:
    """The end of a connection; it waits for its place as exchanges do.

    Attributes:
        connection, dialogue, end: what a survey is told.
        completed_ns: when the connection was closed.
        held_bytes, decoded_bytes, anomalies, topic_names: as exchanges have them; nothing.
    """

    __slots__ = ("anomalies", "completed_ns", "connection", "dialogue", "end", "topic_names")
    held_bytes = 0
    decoded_bytes = 0

    def __init__(self, connection: Connection, dialogue: Dialogue, end: Closed, completed_ns: int) -> None:
        self.connection = connection
        self.dialogue = dialogue
        self.end = end
        self.completed_ns = completed_ns
        self.anomalies: list[Anomaly] = []
        self.topic_names: dict[str, str] = {}

    @property
    def connection_id(self) -> str:
        """Whose end it is."""
        return self.connection.id

    @property
    def order(self) -> tuple[int, int]:
        """Sorts it behind all that was completed by then."""
        return self.completed_ns, _BEHIND_ALL
