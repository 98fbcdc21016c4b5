"""(message, version) -> Python functions that decode and search it, compiled on first use and kept.

decoder.py writes them; ``source`` shows the text. One function of each sort is kept for every layout that a
run meets: about 10 KB each, and the schema has about a thousand layouts.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from kdissect.kafka import decoder as decoders
from kdissect.kafka.layout import layout
from kdissect.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kdissect.kafka.primitives import DecodeBudget
    from kdissect.kafka.schema import Draft, Message
    from kdissect.model import Body

    Decoder = Callable[[bytes, int, DecodeBudget], tuple[Body, int]]
    Collector = Callable[[Mapping[str, Any]], list[Any]]


LARGE_BYTES = MIB
"""Messages beyond this are read by the decoder for large ones, in which text counts. It is no bound to set:
the text of others takes too little beside ``decoded_bytes``, which is an estimate, to spend time on it.
"""


@cache
def decoder(message: Message, version: int, draft: Draft | None = None, *, large: bool = False) -> Decoder:
    """A function (data, pos, budget) -> (body, position behind it).

    It reads the layout and no further: bytes behind it are the caller's. A known tag whose value does not end
    where its size says is Malformed: the sender used another layout, perhaps a draft. Of a tag that comes
    twice the last one counts. The function raises Truncated, Malformed or Oversized and nothing else; it
    knows the position only roughly and no path: walk to find out. The budget is charged on success alone.

    Text is charged to it only by the function for ``large`` messages: in others it takes 28 MiB at most.

    Raises:
        Unsupported: there is no such version.
    """
    return decoders.generate(layout(message, version, draft), charges_text=large).function()


@cache
def collector(message: Message, version: int, role: str, draft: Draft | None = None) -> Collector | None:
    """A function body -> the values of all fields with that role; None if the layout has no such field.

    They come in wire order, depth first. Nulls are left out, and what a partial body lacks.

    Raises:
        Unsupported: there is no such version.
    """
    generated = decoders.generate_collector(layout(message, version, draft), role)
    return None if generated is None else generated.function()


def source(message: Message, version: int, draft: Draft | None = None) -> str:
    return str(decoders.generate(layout(message, version, draft)))
