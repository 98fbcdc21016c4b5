from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdissect.anomalies import ERROR, NOTE, WARNING
from kdissect.kafka import apis
from kdissect.stats.findings.rules import ALL_RULES, RULES
from kdissect.stats.quality import VERDICTS

if TYPE_CHECKING:
    from kdissect.stats.findings.rule import Declared, Rule


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.name)
def test_every_rule_explains_itself(rule: type[Declared]) -> None:
    row = rule.row()
    assert row.severity in ((ERROR, WARNING, NOTE) if rule in RULES else VERDICTS)
    for description in (row.title, row.advice):
        assert description.endswith(".") or (not description and rule not in RULES)
        assert len(description.splitlines()) <= 1
    assert row.when.endswith(".")
    assert rule.__doc__


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_names_apis_that_exist(rule: type[Rule]) -> None:
    assert rule.apis <= {api.name for api in apis.all_apis()}


def test_names_are_unique() -> None:
    assert len({rule.name for rule in ALL_RULES}) == len(ALL_RULES)
