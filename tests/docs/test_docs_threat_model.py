"""Each threat names the tests that cover it, and they exist."""

from __future__ import annotations

import re

import pytest

from tests.docs.markdown import ROOT

TEXT = (ROOT / "docs/threat-model.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))
#: Threats are the rows of the tables that have a test.
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for table in re.split(r"\n\n", TEXT)
    if table.startswith("| Threat |")
    for line in table.splitlines()[2:]
]


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_test_that_is_named_is_there(path: str, name: str):
    assert re.search(rf"^ *(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE)


def test_every_threat_has_something_in_its_way_and_a_test():
    assert len(ROWS) > 25
    for row in ROWS:
        threat, mitigation, tests = row
        assert threat, row
        assert mitigation, row
        assert "::test_" in tests, row
