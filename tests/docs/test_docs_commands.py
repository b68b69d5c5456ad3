"""What documents tell people to type is there, called so, and takes those options."""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import itertools
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from controller.cli.main import app
from controller.settings import ControllerSettings
from monitor.settings import MonitorSettings
from tests.docs.markdown import ROOT, anchors, documents, links, mentioned, typed
from workers.settings import WorkerSettings

DOCUMENTS = documents()
OF_DOCUMENTS = pytest.mark.parametrize(
    "path", DOCUMENTS, ids=[str(path.relative_to(ROOT)) for path in DOCUMENTS]
)
#: What stands for whatever somebody types there.
PLACEHOLDER = re.compile(r"^[A-Z][A-Z_]*$|^…$|^\.\.\.$")


@functools.cache
def commands() -> Any:
    """Every command, as it parses what it is given; none of them does anything."""
    root = typer.main.get_command(app)
    for command in every(root):
        command.callback = lambda **_: None
    return root


def every(command: Any) -> Iterator[Any]:
    yield command
    for below in getattr(command, "commands", {}).values():
        yield from every(below)


def refusal(words: tuple[str, ...]) -> str | None:
    """What the command says to these words, if it does not take them."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            commands().main(args=list(words[1:]), prog_name="fuga")
        except SystemExit as end:
            if end.code:
                return said.getvalue()
    return None


def unknown(words: list[str]) -> str | None:
    """Which of the words names no command and no option; other words may be anything."""
    command = commands()
    rest = iter(words)
    for word in rest:
        names: dict[str, Any] = getattr(command, "commands", {})
        if word.startswith("-") and len(word) > 1:
            option = word.split("=")[0]
            if option in {"-h", "--help"}:
                continue
            if option not in options_of(command) and names and hasattr(command, "implied"):
                command = names[command.implied]  # the option is for a command left out
            known = options_of(command)
            if option not in known:
                return option
            if option == word and not known[option].is_flag:
                next(rest, None)  # its value
        elif word in names:
            command = names[word]
        elif names and hasattr(command, "implied"):  # the word is for a command left out
            command = names[command.implied]
        elif names and not PLACEHOLDER.match(word):
            return word
    return None


def options_of(command: Any) -> dict[str, Any]:
    return {name: each for each in command.params for name in (*each.opts, *each.secondary_opts)}


def readings(text: str) -> Iterator[list[str]]:
    """`host drain|remove NAME [--force]` is two commands, each with an option."""
    words = re.sub(r"[\[\]]", " ", text).split()
    for reading in itertools.product(*(word.split("|") for word in words)):
        yield list(reading)


@functools.cache
def variables() -> frozenset[str]:
    """What our programs read from the environment: settings, and what code and scripts name."""
    settings = (ControllerSettings, MonitorSettings, WorkerSettings)
    fields = {f"FUGA_{field.upper()}" for each in settings for field in each.model_fields}
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "grep", "-hoIE", r"FUGA_[A-Z_]+[A-Z]", "--",
         ":!*.md", ":!tests/docs"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return frozenset(fields | set(listed.stdout.split()))


@OF_DOCUMENTS
def test_commands_that_a_document_shows_are_taken_by_the_command_line(path):
    refused = {str(line): refusal(line.words) for line in typed(path, "fuga")}

    assert {line: why for line, why in refused.items() if why} == {}


@OF_DOCUMENTS
def test_commands_and_options_that_a_document_mentions_exist(path):
    wrong = {
        f"line {line}: {text}": unknown(words)
        for line, text in mentioned(path)
        if text.startswith("fuga ")
        for words in readings(text.removeprefix("fuga "))
    }

    assert {where: word for where, word in wrong.items() if word} == {}


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each text of a module with its line; NAME stands for what is filled in."""
    parts = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts |= {id(part) for part in node.values}
            words = (
                str(part.value) if isinstance(part, ast.Constant) else "NAME"
                for part in node.values
            )
            yield node.lineno, "".join(words)
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts
        ):
            yield node.lineno, re.sub(r"\{\w*\}", "NAME", node.value)


def test_commands_and_options_that_messages_and_docstrings_name_exist():
    found = {
        f"{path.relative_to(ROOT)}:{line}: {text}": unknown(words)
        for package in ("controller", "monitor", "registry", "service", "simulation", "workers")
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, whole in texts(ast.parse(path.read_text()))
        for text in re.findall(r"`+fuga ([^`\n]+)`+", whole)
        for words in readings(text)
    }

    assert {text: word for text, word in found.items() if word is not None} == {}


@OF_DOCUMENTS
def test_targets_of_make_that_a_document_shows_exist(path):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = {
        word
        for line in typed(path, "make")
        for word in line.words[1:]
        if not word.startswith("-") and "=" not in word
    }

    assert shown - targets == set()


@OF_DOCUMENTS
def test_links_of_a_document_lead_somewhere(path):
    lost = []
    for line, link in links(path):
        file, _, heading = link.partition("#")
        to = (path.parent / file) if file else path
        known = to.exists() and (not heading or to.suffix != ".md" or heading in anchors(to))
        if not known:
            lost.append(f"line {line}: {link}")

    assert lost == []


@OF_DOCUMENTS
def test_variables_that_a_document_names_are_settings(path):
    named = set(re.findall(r"\bFUGA_[A-Z_]+[A-Z]\b", path.read_text("utf-8")))

    assert named - variables() == set()


def test_the_guides_show_commands_to_check():
    counts = {str(path.relative_to(ROOT)): len(list(typed(path, "fuga"))) for path in DOCUMENTS}

    assert counts["README.md"] >= 15
    assert counts["docs/tenants.md"] >= 30
    assert sum(n for name, n in counts.items() if name.startswith("docs/operators/")) >= 30


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("fuga requets", "No such command"),
        ("fuga request small --cuont 3", "No such option"),
        ("fuga request", "Missing argument"),
        ("fuga request small large", "unexpected extra argument"),
        ("fuga request small -n many", "Invalid value"),
    ],
)
def test_what_the_command_line_does_not_take_is_seen(words, said):
    assert said in str(refusal(tuple(words.split())))


def test_what_does_not_exist_is_seen_where_it_is_mentioned():
    assert unknown(["host", "drian", "kvm-07"]) == "drian"
    assert unknown(["host", "add", "--netwrok"]) == "--netwrok"
    assert unknown(["host", "add", "--network"]) is None
    assert unknown(["COMMAND", "--help"]) is None
    assert unknown(["--as", "a", "vms"]) is None
    assert unknown(["--as", "a", "vsm"]) == "vsm"
