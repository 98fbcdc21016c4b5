from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from pathlib import Path

from kdissect.stats import document, quality

KINDS = [
    kind
    for module in (document, quality)
    for kind in vars(module).values()
    if isinstance(kind, type) and is_dataclass(kind)
]
MIGRATION = Path(__file__).resolve().parents[2] / "docs" / "migration.md"


def test_every_field_says_what_it_means() -> None:
    assert {document.Summary, quality.Check} <= set(KINDS)
    without = [
        f"{kind.__name__}.{each.name}"
        for kind in KINDS
        for each in fields(kind)
        if not each.metadata["description"]
    ]
    assert without == []


def test_no_key_is_of_version_1_only() -> None:
    """docs/migration.md names keys that exist on the right, and on the left none of a document's own keys."""
    text = MIGRATION.read_text()
    assert f"version {document.SCHEMA_VERSION - 1} to {document.SCHEMA_VERSION}" in text
    for title, kind in (("summary", document.Summary), ("check", quality.Check)):
        keys = {each.name for each in fields(kind)}
        section = text.split(f"`{title} --json` ([")[1].split("\n\n")[1].strip()
        for line in section.split("\n")[2:]:
            before, after = (re.findall(r"`\.?([\w.\[\]]+)`", cell) for cell in line.split("|")[1:3])
            assert not keys.intersection(before)
            known = {each.name for kind in KINDS for each in fields(kind)}
            assert {part for path in after for part in re.split(r"[.\[\]]+", path) if part} <= known
