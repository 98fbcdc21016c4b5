"""Compressed records -> the records, up to a given size.

The codecs are those of a batch's attributes: gzip (RFC 1952), snappy as one raw block or in the block format
of the Java library, LZ4 frames of blocks, zstd (RFC 8878). gzip, LZ4 and zstd data can consist of several
members or frames. All are decompressed in pieces, so that a decompression bomb is stopped early. Only a
single snappy block, and sound LZ4 too short to exceed the limit, are decompressed in one call, which is
faster. Holds the output (of large output one piece at a time) and the decompressor's window: 32 KiB for gzip,
a block of up to 4 MiB for LZ4, a block and up to 128 MiB of window for zstd. A single snappy block is held
completely.

Checksums inside the compressed data are verified as far as the libraries do. The batch around it has one too.
What is wrong with LZ4 frames besides their data does not end decompression: it is a ``Flaw``.
"""

from __future__ import annotations

import zlib
from contextlib import suppress
from functools import cache
from threading import local
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, cast

from kdissect.errors import DecodeError, Malformed, Oversized, Truncated, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from kdissect.limits import Limits

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

HELD_BYTES = 2 * 1024 * 1024
"""Bytes of a batch's records that are held at once. Larger batches are processed in pieces."""

_INPUT_BYTES = 64 * 1024
_FIRST_INPUT_BYTES = 512  # of each gzip member: what remains is copied when the member ends
_PIECE_BYTES = 256 * 1024
# python-zstandard has no limit on the output of one call. It gets one block at a time, which decompresses to
# at most 128 KiB (RFC 8878, section 3.1.1.2).
_ZSTD_BLOCK_HEADER_BYTES = 3
_ZSTD_REPEATED = 1  # one byte, repeated
_ZSTD_MAGIC_AND_DESCRIPTOR_BYTES = 5  # these give the length of a frame's header
_ZSTD_FRAME_HEADER_BYTES = 18  # at most

_JAVA_SNAPPY = b"\x82SNAPPY\x00"
_JAVA_SNAPPY_HEADER_BYTES = (
    16  # the magic and two version numbers, which some libraries write in little-endian order
)
# An element of three bytes copies 64 (snappy's format description, section 2.2), so a block that declares
# more than this is invalid, and nothing is allocated for it.
_SNAPPY_EXPANSION = 22
_SNAPPY_LENGTH_BYTES = 5
_SNAPPY_BLOCK_BYTES = 64 * 1024 * 1024  # the library holds it twice

_LZ4_FLAGS_AT, _LZ4_SIZE_AT, _LZ4_SIZE_BYTES = 4, 6, 8
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_VERSION = 1
_LZ4_INDEPENDENT, _LZ4_BLOCK_CHECKSUM, _LZ4_CONTENT_SIZE = 0x20, 0x10, 0x08
_LZ4_CONTENT_CHECKSUM, _LZ4_DICTIONARY = 0x04, 0x01
_LZ4_UNCOMPRESSED = 0x80000000
_LZ4_WINDOW_BYTES = 64 * 1024
_LZ4_EXPANSION = 255

_LZ4_FASTEST = -1000  # the level at which little is compressed
_CHECKSUM_BYTES = 4
_ALL_REFUSE, _STRICT_REFUSE = "Kafka rejects it", "Kafka ignores it, strict readers reject it"

# Producers fill blocks of 32 KiB and more, and write one member or frame. Data of millions of tiny or empty
# ones takes time and holds nothing.
_ALWAYS_BLOCKS = 1000
_BYTES_PER_BLOCK = 64


class Pieces:
    """Data too large to hold: decompressed on each iteration, up to where it is damaged."""

    __slots__ = ("_codec", "_data", "_size")

    def __init__(self, codec: int, data: bytes, size: int) -> None:
        self._codec = codec
        self._data = data
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[bytes]:
        with suppress(DecodeError):
            for piece in _pieces(self._codec, self._data, self._size):
                yield from in_pieces(piece, 0, len(piece))


_Data = TypeVar("_Data", bound=bytes | Pieces, covariant=True)


class Flaw(NamedTuple):
    """Why a strict reader rejects data that can be decompressed: a kind of anomaly, and its detail."""

    kind: str
    text: str


_LZ4_LINKED = Flaw("lz4_linked_blocks", "LZ4 frame of linked blocks; Kafka's own reader rejects it")


class Inflated(NamedTuple, Generic[_Data]):
    """The result of decompression.

    Attributes:
        data: all of it, or up to the fault.
        fault: Truncated or Malformed for damaged data, Oversized (then there is no data), Unsupported.
        flaws: at most one of each kind of checksum, and one for linked blocks.
    """

    data: _Data
    fault: DecodeError | None
    flaws: Sequence[Flaw] = ()


def in_pieces(data: bytes, pos: int, end: int) -> Iterator[bytes]:
    """Split large data."""
    return (data[at : min(at + _PIECE_BYTES, end)] for at in range(pos, end, _PIECE_BYTES))


def max_inflated(size: int, limits: Limits, exchange: int = 1) -> int:
    """The limit on the decompressed size of this many compressed bytes in an exchange with this number."""
    return min(_by_ratio(size, limits, exchange), limits.inflated_bytes)


def _by_ratio(size: int, limits: Limits, exchange: int) -> int:
    first = limits.inflated_always_exchanges
    return max(size * limits.inflated_ratio, limits.inflated_always_bytes * first // max(first, exchange))


class Budget:
    """The limit on all compressed records of one frame together. A limit on each batch alone would let
    thousands of small bombs take minutes.

    It grows with the compressed bytes. Rejected data counts as the most that it was allowed. Budgets of later
    exchanges of a connection are smaller: a counter of what was inflated before would depend on filters.

    Args:
        exchange: its number on the connection.

    Attributes:
        compressed, inflated: bytes so far.
    """

    __slots__ = ("_exchange", "compressed", "inflated")

    def __init__(self, exchange: int = 1) -> None:
        self._exchange = exchange
        self.compressed = self.inflated = 0

    def inflate(self, codec: int, data: bytes, limits: Limits, magic: int = 2) -> Inflated[bytes | Pieces]:
        """Decompress the content of one batch of this magic, and count it. If it exceeds ``HELD_BYTES``, it
        is not held.
        """
        self.compressed += len(data)
        left = _by_ratio(self.compressed, limits, self._exchange) - self.inflated
        max_bytes = min(left, max_inflated(len(data), limits, self._exchange))
        inflated = _inflate(codec, data, max_bytes, HELD_BYTES, magic)
        self.inflated += max_bytes if isinstance(inflated.fault, Oversized) else len(inflated.data)
        return inflated


def inflate(codec: int, data: bytes, max_bytes: int) -> Inflated[bytes]:
    """Decompress ``data`` to at most ``max_bytes``. Never raises."""
    return cast("Inflated[bytes]", _inflate(codec, data, max_bytes, max_bytes))


def _inflate(codec: int, data: bytes, max_bytes: int, held: int, magic: int = 2) -> Inflated[bytes | Pieces]:
    """The same, in pieces if it exceeds ``held``."""
    if codec == NONE:
        return Inflated(data, None)
    plain = _at_once(codec, data, min(max_bytes, held))
    if plain is None:
        return _step_by_step(codec, data, max_bytes, held, magic)
    is_linked = codec == LZ4 and not data[_LZ4_FLAGS_AT] & _LZ4_INDEPENDENT
    return Inflated(plain, None, (_LZ4_LINKED,) if is_linked else ())


def _step_by_step(codec: int, data: bytes, max_bytes: int, held: int, magic: int) -> Inflated[bytes | Pieces]:
    flaws = _Lz4Flaws(magic) if codec == LZ4 else None
    pieces: list[bytes] = []
    fault: DecodeError | None = None
    size = 0
    try:
        for piece in _pieces(codec, data, max_bytes, flaws):
            size += len(piece)
            if size > max_bytes:
                raise Oversized(f"{len(data)} bytes decompress to more than {max_bytes}")
            if size <= held:
                pieces.append(piece)
            else:
                pieces.clear()
    except Oversized as error:
        return Inflated(b"", error.with_traceback(None))  # its frames would keep their variables alive
    except DecodeError as error:
        fault = error.with_traceback(None)
    whole = b"".join(pieces) if size <= held else Pieces(codec, data, size)
    return Inflated(whole, fault, () if flaws is None else list(flaws.first.values()))


def _pieces(codec: int, data: bytes, max_bytes: int, flaws: _Lz4Flaws | None = None) -> Iterator[bytes]:
    match codec:
        case 1:
            return _gzip(data)
        case 2:
            return _snappy(data, max_bytes)
        case 3:
            return _lz4(data, flaws)
        case 4:
            return _zstd(data)
    raise Unsupported(f"codec {codec}")


class _Blocks:
    """Counts the blocks, members and frames of compressed data.

    Raises:
        Malformed: there are too many for its size.
    """

    def __init__(self, codec: str, data: bytes) -> None:
        self._codec = codec
        self._left = self._max_blocks = _ALWAYS_BLOCKS + len(data) // _BYTES_PER_BLOCK

    def add(self, pos: int) -> None:
        self._left -= 1
        if self._left < 0:
            raise Malformed(f"{self._codec}: more than {self._max_blocks} blocks", pos=pos)


# --- at once ------------------------------------------------------------------------------------------------


def _at_once(codec: int, data: bytes, max_bytes: int) -> bytes | None:
    """Decompress everything with one library call. None if that could exceed the limit, or failed."""
    if codec == LZ4:
        return _lz4_at_once(data, max_bytes)
    if codec == SNAPPY:
        return _snappy_at_once(data, max_bytes)
    return None


@cache
def _snappy_library() -> tuple[Callable[[bytes], bytes], type[Exception]]:
    import snappy

    return snappy.uncompress, snappy.UncompressError


def _snappy_at_once(data: bytes, max_bytes: int) -> bytes | None:
    if data.startswith(_JAVA_SNAPPY):
        start = _JAVA_SNAPPY_HEADER_BYTES + 4
        if len(data) - start != int.from_bytes(data[_JAVA_SNAPPY_HEADER_BYTES:start], "big"):
            return None
        data = data[start:]
    try:
        return _snappy_block(data, max_bytes)
    except DecodeError:
        return None


@cache
def _lz4_library() -> Callable[..., tuple[bytes, int]]:
    import lz4.frame

    read: Callable[..., tuple[bytes, int]] = lz4.frame.decompress
    return read


def _lz4_at_once(data: bytes, max_bytes: int) -> bytes | None:
    size = len(data)
    if not _LZ4_SIZE_AT < size <= max_bytes // _LZ4_EXPANSION or not data.startswith(_LZ4_MAGIC):
        return None
    # The library allocates the size that the frame declares before it reads the rest.
    if data[_LZ4_FLAGS_AT] & _LZ4_CONTENT_SIZE:
        announced = int.from_bytes(data[_LZ4_SIZE_AT : _LZ4_SIZE_AT + _LZ4_SIZE_BYTES], "little")
        if announced > max_bytes:
            return None
    try:
        plain, read = _lz4_library()(data, return_bytes_read=True)
    except RuntimeError:
        return None
    return plain if read == size else None


# --- in pieces ----------------------------------------------------------------------------------------------


def _gzip(data: bytes) -> Iterator[bytes]:
    pos, blocks = 0, _Blocks("gzip", data)
    while pos < len(data) or not pos:
        blocks.add(pos)
        input_bytes = _FIRST_INPUT_BYTES
        member = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        block = b""
        while not member.eof:
            if not block:
                block = data[pos : pos + input_bytes]
                pos += len(block)
                input_bytes = _INPUT_BYTES
            try:
                piece = member.decompress(block, _PIECE_BYTES)
            except zlib.error as error:
                raise Malformed(f"gzip: {error}", pos=pos) from None
            block = member.unconsumed_tail
            if piece:
                yield piece
            elif not block and pos == len(data) and not member.eof:
                raise Truncated("gzip: truncated data", pos=pos)
        pos -= len(member.unused_data)


def _snappy(data: bytes, max_bytes: int) -> Iterator[bytes]:
    if not data.startswith(_JAVA_SNAPPY):
        yield _snappy_block(data, max_bytes)
        return
    pos, blocks = 0, _Blocks("snappy", data)
    while pos < len(data):
        blocks.add(pos)
        # Concatenated streams: no block is as long as the magic would say.
        if data.startswith(_JAVA_SNAPPY, pos):
            pos += _JAVA_SNAPPY_HEADER_BYTES
            if pos > len(data):
                raise Truncated("snappy: truncated header", pos=len(data))
            continue
        start = pos + 4
        pos = start + int.from_bytes(data[pos:start], "big")
        if pos > len(data):
            raise Truncated("snappy: truncated block", pos=start)
        piece = _snappy_block(data[start:pos], max_bytes)
        max_bytes -= len(piece)
        yield piece


def _snappy_block(data: bytes, max_bytes: int) -> bytes:
    uncompress, refused = _snappy_library()
    length = 0
    for index, byte in enumerate(data[:_SNAPPY_LENGTH_BYTES]):
        length |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            break
    # The library allocates the size that the block declares before it reads the rest.
    if length > len(data) * _SNAPPY_EXPANSION:
        raise Malformed(f"snappy: a block of {len(data)} bytes declares {length}")
    if length > min(max_bytes, _SNAPPY_BLOCK_BYTES):
        raise Oversized(f"a block of {len(data)} bytes decompresses to {length}")
    try:
        return uncompress(data)
    except refused as error:
        raise Malformed(f"snappy: {error.__cause__ or error}") from None


class _Lz4Flaws:
    """What is wrong with LZ4 frames, although their blocks can be decompressed: the first of each kind.

    Args:
        magic: of the message or batch. In messages of magic 0, the header checksum of Kafka 0.8 and 0.9 is
            right: it also covers the frame's magic (KAFKA-3160).
    """

    def __init__(self, magic: int) -> None:
        self._magic = magic
        self.first: dict[str, Flaw] = {}

    def check_header(self, data: bytes, pos: int, end: int) -> None:
        """Compare the byte at ``end`` with the header from ``pos``; note linked blocks."""
        stored = data[end]
        computed, old = (xxh32(data[start:end]) >> 8 & 0xFF for start in (pos + len(_LZ4_MAGIC), pos))
        if stored == old != computed and self._magic:
            self._differ("header", stored, computed, "as Kafka 0.8 and 0.9 wrote it; later ones reject it")
        elif stored not in (computed, old):
            self._differ("header", stored, computed, _ALL_REFUSE if self._magic else _STRICT_REFUSE)
        if not data[pos + _LZ4_FLAGS_AT] & _LZ4_INDEPENDENT:
            self.first.setdefault("linked", _LZ4_LINKED)

    def check_block(self, block: bytes, stored: bytes) -> None:
        """Compare the checksum of a block."""
        if len(stored) == _CHECKSUM_BYTES:
            self._check("block", stored, xxh32(block), _ALL_REFUSE)

    def check_content(self, stored: bytes, computed: int) -> None:
        """Compare the checksum of the decompressed frame."""
        if len(stored) == _CHECKSUM_BYTES:
            self._check("content", stored, computed, _STRICT_REFUSE)

    def _check(self, what: str, stored: bytes, computed: int, refused: str) -> None:
        if (number := int.from_bytes(stored, "little")) != computed:
            self._differ(what, number, computed, refused)

    def _differ(self, what: str, stored: int, computed: int, refused: str) -> None:
        text = f"LZ4 {what} checksum stored {stored}, computed {computed}; {refused}"
        self.first.setdefault(what, Flaw("lz4_checksum_mismatch", text))


class _Xxh32:
    """The hash of LZ4's checksums (xxHash, 32 bits), of data in pieces. The library has it only at the end of
    frames, so this compresses the data, as fast as it can, and drops the output.
    """

    def __init__(self) -> None:
        from lz4.frame import LZ4FrameCompressor

        self._frame = LZ4FrameCompressor(content_checksum=True, compression_level=_LZ4_FASTEST)
        self._frame.begin()

    def add(self, data: bytes) -> None:
        """Hash the next piece."""
        self._frame.compress(data)

    def value(self) -> int:
        """The hash of all of it."""
        return int.from_bytes(self._frame.flush()[-_CHECKSUM_BYTES:], "little")


def xxh32(data: bytes) -> int:
    """The hash of bytes that are short, or a block."""
    hashed = _Xxh32()
    hashed.add(data)
    return hashed.value()


def _lz4(data: bytes, flaws: _Lz4Flaws | None) -> Iterator[bytes]:
    """Block by block, because the library's frame decoder rejects frames with flaws. Without ``flaws``, they
    are not looked for.
    """
    pos, blocks = 0, _Blocks("lz4", data)
    while pos < len(data) or not pos:
        blocks.add(pos)
        magic, flags, code = data[pos : pos + 4], data[pos + 4 : pos + 5], data[pos + 5 : pos + 6]
        if not code:
            raise Truncated("lz4: truncated frame header", pos=pos)
        if magic != _LZ4_MAGIC or flags[0] >> 6 != _LZ4_VERSION:
            raise Malformed("lz4: not a frame", pos=pos)
        block_bytes = 1 << 8 + 2 * (code[0] >> 4 & 7)  # 64 KiB, 256 KiB, 1 MiB or 4 MiB: codes 4 to 7
        optional = 8 * bool(flags[0] & _LZ4_CONTENT_SIZE) + 4 * bool(flags[0] & _LZ4_DICTIONARY)
        end = pos + 6 + optional
        if flaws is not None and end < len(data):
            flaws.check_header(data, pos, end)
        pos = yield from _lz4_blocks(data, end + 1, flags[0], block_bytes, blocks, flaws)
        if pos > len(data):
            raise Truncated("lz4: truncated checksum", pos=len(data))


def _lz4_blocks(
    data: bytes, pos: int, flags: int, block_bytes: int, blocks: _Blocks, flaws: _Lz4Flaws | None
) -> Generator[bytes, None, int]:
    """The blocks of one frame. Returns its end."""
    import lz4.block

    checksum_bytes = _CHECKSUM_BYTES * bool(flags & _LZ4_BLOCK_CHECKSUM)
    content = _Xxh32() if flaws is not None and flags & _LZ4_CONTENT_CHECKSUM else None
    window = bytearray()
    while True:
        blocks.add(pos)
        start = pos + 4
        if start > len(data):
            raise Truncated("lz4: truncated frame", pos=pos)
        size = int.from_bytes(data[pos:start], "little")
        if not size:
            end = start + _CHECKSUM_BYTES * bool(flags & _LZ4_CONTENT_CHECKSUM)
            if flaws is not None and content is not None:
                flaws.check_content(data[start:end], content.value())
            return end
        pos = start + (size & ~_LZ4_UNCOMPRESSED)
        if pos > len(data):
            raise Truncated("lz4: truncated block", pos=start)
        block = data[start:pos]
        if flaws is not None and checksum_bytes:
            flaws.check_block(block, data[pos : pos + checksum_bytes])
        if not size & _LZ4_UNCOMPRESSED:
            max_bytes = min(block_bytes, len(block) * _LZ4_EXPANSION)
            try:
                block = lz4.block.decompress(block, uncompressed_size=max_bytes, dict=window)
            except lz4.block.LZ4BlockError as error:
                raise Malformed(f"lz4: {error}", pos=start) from None
        if content is not None:
            content.add(block)
        yield block
        if not flags & _LZ4_INDEPENDENT:
            window += block
            if len(window) > 2 * _LZ4_WINDOW_BYTES:  # not after every block: they may be tiny
                del window[:-_LZ4_WINDOW_BYTES]
        pos += checksum_bytes


class _Zstd(local):
    """The library's decompressor. Creating it takes longer than decompressing a small batch, and threads must
    not share it.
    """

    def __init__(self) -> None:
        from zstandard import ZstdDecompressor

        self.new_frame = ZstdDecompressor().decompressobj


_ZSTD = cache(_Zstd)


def _zstd(data: bytes) -> Iterator[bytes]:
    import zstandard

    new_frame = _ZSTD().new_frame
    pos, blocks = 0, _Blocks("zstd", data)
    while pos < len(data) or not pos:
        blocks.add(pos)
        if len(data) - pos < _ZSTD_MAGIC_AND_DESCRIPTOR_BYTES:
            raise Truncated("zstd: truncated frame header", pos=pos)
        try:
            stop = pos + zstandard.frame_header_size(data[pos : pos + _ZSTD_FRAME_HEADER_BYTES])
            frame = new_frame()
            while not frame.eof:
                # After the last block there can be a checksum, which is read here as a block header. That is
                # harmless.
                header = int.from_bytes(data[stop : stop + _ZSTD_BLOCK_HEADER_BYTES], "little")
                stop += _ZSTD_BLOCK_HEADER_BYTES
                stop += 1 if header >> 1 & 3 == _ZSTD_REPEATED else header >> 3
                block = data[pos:stop]
                blocks.add(pos)
                if not block:
                    raise Truncated("zstd: truncated data", pos=pos)
                pos += len(block)
                if piece := frame.decompress(block):
                    yield piece
        except zstandard.ZstdError as error:
            raise Malformed(f"zstd: {error}", pos=pos) from None
        pos -= len(frame.unused_data)
