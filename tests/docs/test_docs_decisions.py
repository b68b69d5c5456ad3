"""Decisions that changed earlier ones: both say so."""

from __future__ import annotations

import re

from tests.docs.markdown import ROOT

_STATUS = re.compile(r"^Status: .*$", re.MULTILINE)
_CHANGES = re.compile(r"; changes \[(\d{4})\]")
_CHANGED_BY = re.compile(r"(?:; changed by|\) and) \[(\d{4})\]")


def test_a_decision_has_its_number_in_its_name_alone() -> None:
    titles = [
        path.read_text("utf-8").partition("\n")[0] for path in (ROOT / "docs/adr").glob("0*.md")
    ]

    assert titles
    assert not [title for title in titles if not re.match(r"# \D", title)]


def test_a_decision_names_the_later_one_that_changed_it_and_is_named_by_it() -> None:
    forward, backward = set(), set()
    for path in (ROOT / "docs/adr").glob("*.md"):
        status = _STATUS.search(path.read_text("utf-8"))
        if status is None:
            continue
        number = path.name[:4]
        forward |= {(number, earlier) for earlier in _CHANGES.findall(status[0])}
        backward |= {(later, number) for later in _CHANGED_BY.findall(status[0])}

    assert forward
    assert forward == backward
    assert all(later > earlier for later, earlier in forward)
