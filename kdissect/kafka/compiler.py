"""(message, version) -> Python functions that decode and search it, compiled on first use and cached.

decoder.py generates them, ``source`` shows the text. One function of each kind is cached for every layout
that occurs: about 10 KB each, and the schema has about a thousand layouts.
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
"""Messages above this size are decoded with text charged to the budget. It is not a setting: in smaller
messages text takes too little memory, compared with the estimate ``decoded_bytes``, to be worth counting.
"""


@cache
def decoder(message: Message, version: int, draft: Draft | None = None, *, large: bool = False) -> Decoder:
    """A function (data, pos, budget) -> (body, end position).

    It decodes the layout and stops; the caller handles the bytes after it. A known tag whose value does not
    end where its size says is Malformed: the sender used another layout, perhaps a draft. If a tag occurs
    twice, the last one wins. The function raises only Truncated, Malformed or Oversized, with an approximate
    position and no path. The walker finds the exact place. The budget is charged only on success.

    Text is charged to it only by the function for ``large`` messages. In others text takes 28 MiB at most.

    Raises:
        Unsupported: there is no such version.
    """
    return decoders.generate(layout(message, version, draft), charges_text=large).function()


@cache
def collector(message: Message, version: int, role: str, draft: Draft | None = None) -> Collector | None:
    """A function body -> the values of all fields with that role. None if the layout has no such field.

    Values are in wire order, depth first, without nulls and fields missing from a partial body.

    Raises:
        Unsupported: there is no such version.
    """
    generated = decoders.generate_collector(layout(message, version, draft), role)
    return None if generated is None else generated.function()


def source(message: Message, version: int, draft: Draft | None = None) -> str:
    return str(decoders.generate(layout(message, version, draft)))
