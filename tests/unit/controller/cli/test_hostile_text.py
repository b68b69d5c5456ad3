"""No command shows a character that commands the reader's terminal, whoever wrote the text."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.cli.main import main
from controller.terminal.columns import Column
from controller.terminal.output import (
    OutputFormat,
    echo,
    echo_lines,
    print_json,
    print_records_as,
    print_table,
)
from tests.fakes.http_api import HttpApi, RecordedCall, http_api, problem
from tests.hostile_text import HOSTILE, hostile_answer, is_forbidden

OPENAPI = json.loads((Path(__file__).parents[4] / "docs" / "openapi.json").read_text())
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

#: Every command that tells what the API says, with what it is asked for.
COMMANDS = (
    "host list", "host show h1", "doctor --hosts --yes", "host ratios",
    "host fence h1", "host maintenance h1",
    "host drain h1", "host activate h1", "image list", "image show debian:1", "network list",
    "network show n1", "requests", "vms", "explain web", "capacity small", "rounds", "rounds 1",
    "shadow", "events", "audit", "tenant list", "tenant show a", "quota show a", "quota list",
    "token list", "key list", "type list", "resource list", "vm-groups", "pause",
    "resume", "stop web", "rm web", "console web-1 --log",
)  # fmt: skip


class Lying:
    """An API that says ``text`` wherever its description allows any text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._schemas = OPENAPI["components"]["schemas"]
        self._paths = [
            (re.compile(re.sub(r"\{[^}]*\}", "[^/]+", path) + "$"), reported)
            for path, reported in OPENAPI["paths"].items()
        ]

    def answer(self, asked: RecordedCall) -> tuple[int, Any]:
        for path, reported in self._paths:
            if path.match(unquote(asked.path)) and asked.method.lower() in reported:
                answers = reported[asked.method.lower()]["responses"]
                status = next(each for each in answers if each.startswith("2"))
                schema = answers[status].get("content", {}).get("application/json", {})
                found = hostile_answer(schema.get("schema", {}), self._schemas, self.text)
                if isinstance(found, dict) and "next" in found:
                    found["next"] = None
                return int(status), found
        return 404, problem(404, "not_found", self.text, {"field": self.text, "message": self.text})


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HttpApi]:
    with http_api() as found:
        for name in [each for each in os.environ if each.startswith("FUGA_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("FUGA_STATE_DIR", str(tmp_path))
        monkeypatch.setenv("FUGA_URL", found.url)
        monkeypatch.setenv("FUGA_TOKEN", "t")
        yield found


def shown(capsys: pytest.CaptureFixture[str], words: str) -> str:
    # The description does not tell all that rounds hold; what was printed before counts.
    with contextlib.suppress(SystemExit, KeyError):
        main(words.split())
    out, err = capsys.readouterr()
    return out + err


def assert_harmless(text: str) -> None:
    left = _COLOURS.sub("", text)
    assert not [each for each in left if is_forbidden(each) and each not in "\n\t"], ascii(left)
    assert not re.search(r"(?m)^fuga: all is well", left), left


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_shows_what_commands_a_terminal(
    api: HttpApi, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    whole = HOSTILE.replace("\ud800", "")  # half a character is in no URL, and none in a name
    api.answer = Lying(whole).answer  # type: ignore[method-assign]

    assert_harmless(shown(capsys, command))


@pytest.mark.parametrize("command", ["host list", "host show h1", "vms", "audit"])
@pytest.mark.parametrize("form", ["json", "yaml", "name"])
def test_no_output_for_programs_does_and_it_says_the_same(
    api: HttpApi, capsys: pytest.CaptureFixture[str], command: str, form: str
) -> None:
    lying = Lying(HOSTILE)
    api.answer = lying.answer  # type: ignore[method-assign]

    found = shown(capsys, f"{command} -o {form}")

    assert_harmless(found)
    if form == "json":
        assert json.dumps(HOSTILE)[1:-1] in json.dumps(json.loads(found))
    if form == "yaml":
        yaml.safe_load(found)


def test_a_refusal_s_words_do_not_either(api: HttpApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer = lambda _: (  # type: ignore[method-assign]
        409,
        problem(409, HOSTILE, HOSTILE, {"field": HOSTILE, "message": HOSTILE + "x"}),
    )

    assert_harmless(shown(capsys, "host list"))


def test_markup_of_tables_is_text(api: HttpApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answer = Lying("[bold]x[/bold][link=https://evil]y").answer  # type: ignore[method-assign]

    assert "[bold]x[/bold][link=https://evil]y" in shown(capsys, "tenant list")


@given(st.text(st.characters()))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_printed_is_harmless(capsys: pytest.CaptureFixture[str], text: str) -> None:
    echo(text)
    echo_lines(text.replace("\n", ""))
    print_table([Column(text, lambda row: row["x"])], [{"x": text}, {"x": [text]}], empty="")
    for form in OutputFormat:
        print_records_as(form)
        print_json([{"name": text}])
    print_records_as(OutputFormat.TABLE)

    assert_harmless(capsys.readouterr().out.replace("fuga: all", ""))
