"""Every sample -> samples/golden/NAME.txt, lines of ``kdissect read``, and NAME.jsonl, those of ``--json``.

python samples/golden.py          refreshes them; read the difference like code, and say in the commit why
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "samples" / "golden"
FORMATS = {"txt": [], "jsonl": ["--json"]}


def captures() -> list[Path]:
    """The captures, relative to the repository's root: their names stand in the output."""
    endings = (".pcap", ".pcapng", ".gz", ".zst", ".lz4")
    found = (ROOT / "samples").iterdir()
    return sorted(path.relative_to(ROOT) for path in found if path.suffix in endings)


def name_of(capture: Path) -> str:
    """A sample's name: the file's, without what its ending says."""
    return capture.name.split(".")[0]


def output(capture: Path, options: list[str]) -> bytes:
    """What kdissect prints for it."""
    command = [sys.executable, "-m", "kdissect", "read", *options, str(capture)]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout


def main() -> None:
    """Write all of them."""
    GOLDEN.mkdir(exist_ok=True)
    for capture in captures():
        for ending, options in FORMATS.items():
            path = GOLDEN / f"{name_of(capture)}.{ending}"
            text = output(capture, options)
            changed = not path.exists() or path.read_bytes() != text
            path.write_bytes(text)
            print(f"{'changed' if changed else 'same   '} {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
