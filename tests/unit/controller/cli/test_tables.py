"""Tables on terminals of any width: no id or state is broken, one line for a row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cli.vms.requests import VM_COLUMNS
from controller.client.models import Vm
from controller.terminal import output
from controller.terminal.columns import Column, field
from controller.terminal.output import OutputFormat, print_records_as, print_table
from controller.terminal.watch import newest_lines

A_VM = {
    "id": "019abcde-0000-7000-8000-0123456789ab",
    "name": "a-rather-long-name-of-a-vm-12",
    "tenant": "research",
    "vm_type": "m-large",
    "host": "kvm-rack-17-03",
    "desired": "running",
    "observed": "running",
    "address": "10.23.117.201",
    "round": 123_456,
    "created_at": "2026-01-01T00:00:00Z",
    "labels": {"app": "web", "stage": "production"},
    "last_error": "no route to host",
}


@pytest.fixture
def as_a_table() -> None:
    print_records_as(OutputFormat.TABLE)


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    captured = capsys.readouterr().out
    return [line.replace("\x1b[1m", "").replace("\x1b[0m", "") for line in captured.splitlines()]


@pytest.mark.usefixtures("as_a_table")
@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_a_row_is_one_line_and_its_words_are_whole(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda: width)

    print_table(VM_COLUMNS, [A_VM, A_VM], empty="")

    lines = printed(capsys)
    heading, rule, first, second, *rest = lines
    assert first == second
    assert set(rule) == {"─"}
    assert all(len(each) <= width for each in lines[:4])
    for word in ("456789ab", "a-rather-long-name-of-a-vm-12"):
        assert word in first.split()
    shown = {each: heading.split().index(each) for each in ("host", "state") if each in heading}
    assert [first.split()[place] for place in shown.values()] == [
        {"host": "kvm-rack-17-03", "state": "running"}[each] for each in shown
    ]
    if width >= 80:
        assert "running" in first.split()
    if "last error" not in heading:
        [left_out] = rest
        assert left_out.startswith("(-o wide shows ")
        assert "last error" in left_out


@pytest.mark.usefixtures("as_a_table")
def test_wide_leaves_nothing_out_and_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda: 80)
    print_records_as(OutputFormat.WIDE)

    print_table(VM_COLUMNS, [A_VM], empty="")

    lines = printed(capsys)
    assert len(lines) == 3
    assert lines[2].endswith("no route to host")
    assert "running" in lines[2].split()


@pytest.mark.usefixtures("as_a_table")
def test_sentences_are_folded_between_words_beside_what_stays_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda: 50)
    columns = (field("about"), field("finding", prose=True))
    sentence = "no worker is heard since yesterday, and nothing is built or removed meanwhile"

    print_table(columns, [{"about": "workers", "finding": sentence}], empty="")

    lines = printed(capsys)
    assert all(len(line) <= 50 for line in lines)
    assert " ".join(" ".join(lines[2:]).split()) == f"workers {sentence}"


@pytest.mark.usefixtures("as_a_table")
@pytest.mark.parametrize(
    ("width", "headings"),
    [(80, ["round  distance from fair"]), (20, ["round   distance", "       from fair"])],
)
def test_long_headings_are_folded_before_columns_are_left_out(
    width: int,
    headings: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda: width)
    columns = (field("round"), field("far", "distance from fair", right=True))

    print_table(columns, [{"round": "12", "far": "2.5 %"}], empty="")

    *found, rule, row = printed(capsys)
    assert found == headings
    assert (len(rule), row.split()) == (len(headings[0]), ["12", "2.5", "%"])


@given(
    cells=st.lists(
        st.lists(st.text("aé漢 z", max_size=30), min_size=4, max_size=4), min_size=1, max_size=4
    ),
    width=st.integers(20, 120),
)
def test_no_line_is_wider_than_the_terminal_and_rows_keep_their_number(
    cells: list[list[str]], width: int
) -> None:
    from rich.cells import cell_len

    from controller.terminal.tables import columns_with_room, render_lines

    columns = [Column(name, lambda row: row) for name in "abcd"]
    kept = columns_with_room(columns, list("abcd"), cells, width)

    rows = [[row[each] for each in kept] for row in [list("abcd"), *cells]]
    lines = list(render_lines([columns[each] for each in kept], rows, width, bold=False))

    assert kept[0] == 0
    assert len(lines) == len(cells) + 2
    assert all(cell_len(line) <= width for line in lines)


@pytest.mark.parametrize("word", ["存储池不可用" * 8, "libvirt 存储池 a" * 8, "x" * 90])
def test_a_sentence_without_blanks_or_of_wide_characters_is_folded_and_not_cut(word: str) -> None:
    from controller.terminal.tables import render_lines

    columns = [Column("host", lambda row: row), Column("reason", lambda row: row, prose=True)]

    lines = list(render_lines(columns, [["host", "reason"], ["h1", word]], 40, bold=False))[2:]

    shown = "".join(lines).removeprefix("h1").replace(" ", "")
    assert shown == word.replace(" ", "")


def test_a_watched_list_that_is_too_long_shows_its_newest_rows() -> None:
    shown = "\n".join(["heading", "─", *(f"row {number}" for number in range(100))])

    lines = newest_lines(shown, 24).splitlines()

    assert len(lines) < 24
    assert lines[0] == "heading"
    assert lines[-1] == "row 99"
    assert newest_lines("heading\n─\nrow", 24) == "heading\n─\nrow"


def test_a_vm_that_is_silent_or_held_up_says_for_how_long() -> None:
    from controller.cli.vms.requests import vm_state_text

    vm = {**A_VM, "power": None, "unknown_since": "2026-01-01T00:00:00Z"}

    assert vm_state_text(vm).startswith("unknown, ")
    assert vm_state_text({**vm, "unknown_since": None}) == "running"
    paused = {"unknown_since": None, "paused_since": "2026-01-01T00:00:00Z"}
    assert vm_state_text({**vm, **paused}).startswith("paused, ")
    assert {"unknown_since", "paused_since"} <= Vm.__annotations__.keys()
