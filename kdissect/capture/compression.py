"""Blocks of gzip, zstd or lz4 data -> decompressed blocks of at most 64 KiB (zstd: 16 MiB).

Memory: the decompressor's window: 32 KiB for gzip, up to 4 MiB for lz4, up to 128 MiB for zstd.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kdissect.capture.window import Window
from kdissect.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAGIC_BYTES = 4
_PIECE_BYTES = 64 * 1024
# python-zstandard cannot limit the output of a call. Four bytes can become a block of 128 KiB (RFC 8878,
# section 3.1.1.2), so the input of a call is limited instead.
_ZSTD_INPUT_BYTES = 512


class Decompressor(Protocol):
    """Decompressor of one gzip member, or one zstd or lz4 frame; a file may contain several.

    Attributes:
        unused_data: the bytes after its end; None until the end was reached.
        error_type: exception that ``feed`` raises if the data is damaged.
    """

    unused_data: bytes | None
    error_type: type[Exception]

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What ``data`` decompresses to."""
        ...


class Method(NamedTuple):
    """A compression format: its name, how its data may begin, and its decompressor."""

    name: str
    magics: tuple[bytes, ...]
    member: Callable[[], Decompressor]


def recognized(head: bytes) -> Method | None:
    return next((method for method in METHODS if head.startswith(method.magics)), None)


def decompressed(method: Method, blocks: Iterator[bytes], warn: Callable[[str], None]) -> Iterator[bytes]:
    """Decompress all members in sequence. Truncated data is decompressed as far as possible, with a warning.

    Raises:
        CaptureError: the data is damaged; up to 64 KiB before the damage may be lost.
    """
    window = Window(blocks)
    while window.more(0, MAGIC_BYTES) or window.data:
        if not window.data.startswith(method.magics):
            # Zeros are padding, as left by tapes and some copying tools.
            if window.data.strip(b"\0"):
                warn(f"trailing data after the {method.name} stream is ignored")
            return
        member = method.member()
        while member.unused_data is None:
            if not window.more(0, 1):
                warn(f"{method.name} data is truncated")
                return
            try:
                yield from member.feed(window.data)
            except member.error_type as error:
                raise CaptureError(f"{method.name} data cannot be decompressed ({error})") from error
            window.skip(len(window.data) - len(member.unused_data or b""))


class _Gzip:
    def __init__(self) -> None:
        self.unused_data: bytes | None = None
        self.error_type: type[Exception] = zlib.error
        self._decompressor = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    def feed(self, data: bytes) -> Iterator[bytes]:
        piece = b""
        # After a full piece there may be more output even if all input was consumed.
        while data or len(piece) == _PIECE_BYTES:
            piece = self._decompressor.decompress(data, _PIECE_BYTES)
            if piece:
                yield piece
            if self._decompressor.eof:
                self.unused_data = self._decompressor.unused_data
                return
            data = self._decompressor.unconsumed_tail


class _Lz4:
    def __init__(self) -> None:
        import lz4.frame

        self.unused_data: bytes | None = None
        self.error_type: type[Exception] = RuntimeError
        self._decompressor = lz4.frame.LZ4FrameDecompressor()

    def feed(self, data: bytes) -> Iterator[bytes]:
        piece = self._decompressor.decompress(data, max_length=_PIECE_BYTES)
        while piece:
            yield piece
            if self._decompressor.eof or self._decompressor.needs_input:
                break
            piece = self._decompressor.decompress(b"", max_length=_PIECE_BYTES)
        if self._decompressor.eof:
            self.unused_data = self._decompressor.unused_data or b""


class _ZstdFrame:
    def __init__(self) -> None:
        import zstandard

        self.unused_data: bytes | None = None
        self.error_type: type[Exception] = zstandard.ZstdError
        self._decompressor = zstandard.ZstdDecompressor().decompressobj()

    def feed(self, data: bytes) -> Iterator[bytes]:
        for pos in range(0, len(data), _ZSTD_INPUT_BYTES):
            piece = self._decompressor.decompress(data[pos : pos + _ZSTD_INPUT_BYTES])
            if piece:
                yield piece
            if self._decompressor.eof:
                self.unused_data = self._decompressor.unused_data + data[pos + _ZSTD_INPUT_BYTES :]
                return


# Both formats have the same skippable frames. Files of zstd's parallel tools begin with one, lz4's do not.
_SKIPPABLE = tuple(bytes((low, 0x2A, 0x4D, 0x18)) for low in range(0x50, 0x60))
METHODS = (
    Method("gzip", (b"\x1f\x8b",), _Gzip),
    Method("zstd", (b"\x28\xb5\x2f\xfd", *_SKIPPABLE), _ZstdFrame),
    Method("lz4", (b"\x04\x22\x4d\x18",), _Lz4),
)
