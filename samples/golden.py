"""Every sample -> samples/golden/NAME.txt, lines of ``kdissect read``, and NAME.jsonl, those of ``--json``.

python samples/golden.py          refreshes them; read the difference like code, and say in the commit why

Of captures of Apache Kafka, which are the largest, the latter is compressed: zdiff reads it.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "samples" / "golden"
FORMATS = {"txt": [], "jsonl": ["--json"]}


ENDINGS = (".gz", ".zst", ".lz4", ".pcap", ".pcapng")


def captures() -> list[Path]:
    """The captures, relative to the repository's root: their names stand in the output."""
    files = (ROOT / "samples").iterdir()
    return sorted(path.relative_to(ROOT) for path in files if path.suffix in ENDINGS)


def name_of(capture: Path) -> str:
    """A sample's name: the file's, without what its ending says."""
    name = capture.name
    for ending in ENDINGS:
        name = name.removesuffix(ending)
    return name


def golden(capture: Path, ending: str) -> Path:
    """Where its output in this format is kept."""
    large = ending == "jsonl" and name_of(capture).startswith("kafka-")
    return GOLDEN / f"{name_of(capture)}.{ending}{'.gz' if large else ''}"


def kept(path: Path) -> bytes:
    """The output in this file."""
    text = path.read_bytes()
    return gzip.decompress(text) if path.suffix == ".gz" else text


def output(capture: Path, options: list[str]) -> bytes:
    """What kdissect prints for it."""
    command = [sys.executable, "-m", "kdissect", "read", *options, str(capture)]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, env=environment).stdout


def main() -> None:
    """Write all of them."""
    GOLDEN.mkdir(exist_ok=True)
    for capture in captures():
        for ending, options in FORMATS.items():
            path = golden(capture, ending)
            text = output(capture, options)
            changed = not path.exists() or kept(path) != text
            if changed:
                path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
            print(f"{'changed' if changed else 'same   '} {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
