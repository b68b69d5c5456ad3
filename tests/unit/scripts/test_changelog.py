"""The change log of a release holds each fragment once, in one order."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from scripts.changelog import ROOT, changelog, fragments

ON = date(2026, 11, 27)
RELEASED = "# Changes\n\n## 0.1.0 (2026-01-01)\n\n### Added\n\n- It starts.\n"


def test_issues_come_by_number_and_sentences_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "12.added.md").write_text("Third.\nFourth,\n  which goes on.\n")
    (tmp_path / "2.added.md").write_text("First.\n\n- Second.\n")
    (tmp_path / "3.fixed.md").write_text("It stopped.\n")

    found = changelog("0.2.0", ON, fragments(tmp_path), RELEASED)

    assert found == (
        "# Changes\n\n## 0.2.0 (2026-11-27)\n\n### Added\n\n"
        "- First.\n- Second.\n- Third.\n- Fourth, which goes on.\n\n"
        "### Fixed\n\n- It stopped.\n\n" + RELEASED.removeprefix("# Changes\n\n")
    )


def test_a_version_whose_fragments_are_collected_is_printed_as_it_is() -> None:
    assert changelog("0.1.0", ON, {"added": []}, RELEASED) == RELEASED


def test_changes_after_a_release_need_another_version() -> None:
    with pytest.raises(SystemExit, match=r"raise the version in pyproject\.toml"):
        changelog("0.1.0", ON, {"added": ["Later."]}, RELEASED)


def test_a_version_of_which_nothing_is_known_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"nothing is known of 0\.1\.1"):
        changelog("0.1.1", ON, {}, RELEASED)


def test_a_file_that_is_no_fragment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "12.mended.md").write_text("It works.\n")

    with pytest.raises(SystemExit, match=r"12\.mended\.md: not named"):
        fragments(tmp_path)


def test_each_line_of_the_fragments_here_is_in_the_change_log() -> None:
    folder = ROOT / "changelog.d"
    lines = [line for path in folder.iterdir() for line in path.read_text().splitlines()]

    found = changelog("0.0.1", ON, fragments(folder), "")

    assert [line for line in lines if line.strip().removeprefix("- ") not in found] == []
    assert "- - " not in found
