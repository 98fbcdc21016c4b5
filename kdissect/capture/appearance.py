"""The first bytes of what is not a capture -> a few words on what it is, for who named the wrong file."""

from __future__ import annotations

import codecs

_MAGICS = (
    (b"snoop\0\0\0", "a snoop file, which editcap can turn into pcapng"),
    (b"GMBU", "a Network Monitor file, which editcap can turn into pcapng"),
    (b"RTSS", "a Network Monitor file, which editcap can turn into pcapng"),
    (b"XCP\0", "a NetXRay file, which editcap can turn into pcapng"),
    (b"TRSNIFF data", "a Sniffer file, which editcap can turn into pcapng"),
    (b"\x1f\x8b", "gzip data once more"),
    (b"\x28\xb5\x2f\xfd", "zstd data once more"),
    (b"\x04\x22\x4d\x18", "lz4 data once more"),
    (b"\x02\x21\x4c\x18", "lz4 data in the legacy format, to be unpacked first"),
    (b"BZh", "bzip2 data, to be unpacked first"),
    (b"\xfd7zXZ\0", "xz data, to be unpacked first"),
    (b"PK\x03\x04", "a zip archive, to be unpacked first"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive, to be unpacked first"),
    (b"PAR1", "a Parquet file"),
    (b"\x7fELF", "a program"),
)
_TEXT_CONTROLS = frozenset("\t\n\r\f\x1b")


def appearance(head: bytes) -> str:
    """What data that begins with ``head`` looks like; goes after "it is"."""
    if not head:
        return "empty"
    for magic, name in _MAGICS:
        if head.startswith(magic):
            return name
    if not any(head):
        return "all zeros, as a file is whose writing was lost"
    try:
        # An incremental decoder: the head may end in the middle of a character.
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return "something else"
    return "text" if all(c.isprintable() or c in _TEXT_CONTROLS for c in text) else "something else"
