from __future__ import annotations

from dataclasses import fields, is_dataclass

from kdissect.stats import document


def test_every_field_says_what_it_means() -> None:
    kinds = [kind for kind in vars(document).values() if isinstance(kind, type) and is_dataclass(kind)]
    assert document.Summary in kinds
    without = [
        f"{kind.__name__}.{each.name}"
        for kind in kinds
        for each in fields(kind)
        if not each.metadata["sentence"]
    ]
    assert without == []
