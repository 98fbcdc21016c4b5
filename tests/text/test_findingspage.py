from __future__ import annotations

from kdissect.limits import DEFAULT
from kdissect.stats.findings.rules import RULES, Findings
from kdissect.text.summary_page import finding_sections as sections
from kdissect.text.summary_page import rules
from tests.findings import metadata, produce


def test_each_finding_in_some_lines() -> None:
    findings = Findings(DEFAULT)
    for each in (metadata(0, replicas=2), produce(1, acks=0), produce(2, acks=0), produce(3, error=10)):
        findings.feed(each)
    first, *page = sections(findings.rows(), limit=1)
    assert first.notes[0] == "1 error, 1 warning"
    (section,) = page
    assert (section.title, section.left_out) == ("error: oversized-messages", 1)
    description, when, advice, evidence = section.notes
    assert description.startswith("client payments, topic orders: 1 batch rejected")
    assert when.endswith("3, 1 request failed")
    assert advice.startswith("advice: ")
    assert evidence == "evidence: payments-Produce/3000"


def test_no_findings() -> None:
    (section,) = sections([], limit=1)
    assert section.notes[0].startswith("no findings")


def test_the_rules() -> None:
    table, *each = rules([rule.row() for rule in RULES])
    assert len(table.rows) == len(each) == len(RULES)
    assert each[0].notes[1].startswith("when: ")
