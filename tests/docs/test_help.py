"""The help of every command fits a terminal of 80 columns and cuts no word."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from controller.cli.main import app

COLUMNS = 80
ROOT = typer.main.get_command(app)


def every(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from every(below, (*path, name))


COMMANDS = dict(every(ROOT))


def shown(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    text = io.StringIO()
    with contextlib.redirect_stdout(text), pytest.raises(SystemExit):
        ROOT.main(args=[*path, "--help"], prog_name="fuga")
    return text.getvalue()


def options(path: tuple[str, ...]) -> list[Any]:
    return [each for each in COMMANDS[path].params if not getattr(each, "hidden", False)]


def cut_words(text: str, wanted: list[str]) -> list[str]:
    """Return the words of these texts that the help does not show in one piece."""
    words = set(re.split(r"[\s│]+", text))
    return [word for each in wanted for word in each.split() if word not in words]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_help_of_a_command_fits_80_columns_and_cuts_no_word(path, monkeypatch):
    text = shown(path, monkeypatch)

    helps = [COMMANDS[path].help or "", *(each.help or "" for each in options(path))]
    assert max(len(line) for line in text.splitlines()) <= COLUMNS
    assert cut_words(text, helps) == []


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_argument_and_option_has_help(path):
    assert [each.name for each in options(path) if not each.help] == []


def test_a_cut_word_is_seen():
    assert cut_words("│ fuga,best_fit_drfh,fir… │", ["fuga,best_fit_drfh,first_fit"]) != []
