"""Blocks of commands are tidy: comments of neighbouring lines stand one below the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, documents

DOCUMENTS = documents()
_COMMENTED = re.compile(r"^(?P<command>[^#\s>].*?\S)(?P<gap>\s+)# \S")


@pytest.mark.parametrize("path", DOCUMENTS, ids=[str(path.relative_to(ROOT)) for path in DOCUMENTS])
def test_comments_of_neighbouring_lines_are_aligned(path: Path) -> None:
    ragged, before, is_code = [], None, False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        is_code ^= line.startswith("```")
        found = _COMMENTED.match(line) if is_code else None
        column = found.end("gap") if found else None
        if before is not None and column not in (None, before):
            ragged.append(f"{number}: {line}")
        before = column

    assert ragged == []
