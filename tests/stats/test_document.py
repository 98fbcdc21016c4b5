from __future__ import annotations

from dataclasses import fields, is_dataclass

from kdissect.stats import document, quality

KINDS = [
    kind
    for module in (document, quality)
    for kind in vars(module).values()
    if isinstance(kind, type) and is_dataclass(kind)
]


def test_every_field_says_what_it_means() -> None:
    assert {document.Summary, quality.Check} <= set(KINDS)
    without = [
        f"{kind.__name__}.{each.name}"
        for kind in KINDS
        for each in fields(kind)
        if not each.metadata["description"]
    ]
    assert without == []
