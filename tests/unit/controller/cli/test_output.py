"""What commands print for programs, what they complete, and lists that are watched."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from controller.cli.main import main
from controller.session import completion
from controller.terminal.yaml_text import yaml_text
from tests.fakes.http_api import HttpApi, http_api

FUGA = Path(sys.executable).with_name("fuga")
DEADLINE_S = 120.0

plain = st.none() | st.booleans() | st.integers() | st.text()
floats = st.floats(allow_nan=False, allow_infinity=False)
documents = st.recursive(
    plain | floats, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HttpApi]:
    with http_api() as found:
        for name in [each for each in os.environ if each.startswith("FUGA_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("FUGA_STATE_DIR", str(tmp_path))
        monkeypatch.setenv("FUGA_URL", found.url)
        monkeypatch.setenv("FUGA_TOKEN", "t")
        found.on_list("/v1/hosts", a_host("h1"), a_host("h2"))
        yield found


def a_host(name: str) -> dict[str, Any]:
    return {
        "id": f"id-{name}",
        "name": name,
        "admin": "active",
        "health": "up",
        "labels": ["zone=east", "ssd"],
        "inventories": [],
        "last_polled_at": None,
        "last_error": None,
    }


# ---- YAML -----------------------------------------------------------------------


@given(documents)
def test_yaml_says_what_json_says(value: Any) -> None:
    assert yaml.safe_load(yaml_text(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        *("no", "Yes", "null", "~", "1.0", "1e5", "0x1f", "12:30", "a: b", "# c", "- d", "", " e"),
        *("f\n", "2026-01-01", "{}", "*a", "&a", "!a", "%a", "@a"),
        *("\x7f", "\x85", "\u2028", "\ufeff", "😀"),
    ],
)
def test_a_string_that_looks_like_something_else_stays_a_string(text: str) -> None:
    assert yaml.safe_load(yaml_text({text: [text, {"k": text}]})) == {text: [text, {"k": text}]}


@pytest.mark.parametrize("number", [1e-07, -1e22, 0.1, 1.5e300, 0.0, 2**70])
def test_a_number_stays_a_number(number: float) -> None:
    assert yaml.safe_load(yaml_text([number])) == [number]


def test_yaml_is_for_people_too() -> None:
    written = yaml_text({"name": "web", "labels": ["ssd", "zone=east"], "hosts": None, "vms": []})

    assert written == 'name: web\nlabels:\n  - ssd\n  - "zone=east"\nhosts: null\nvms: []\n'


# ---- -o --------------------------------------------------------------------------


def test_one_list_in_every_form(api: HttpApi, capsys: pytest.CaptureFixture[str]) -> None:
    def told(form: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["host", "list", "-o", form])
        assert not ended.value.code
        return capsys.readouterr().out

    assert [each["name"] for each in json.loads(told("json"))] == ["h1", "h2"]
    assert yaml.safe_load(told("yaml")) == json.loads(told("json"))
    assert told("name") == "h1\nh2\n"
    assert "admin" in told("table")


def test_what_was_done_is_named(api: HttpApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.on("PATCH", "/v1/hosts/h1", a_host("h1"))
    api.on_list("/v1/vms")

    with pytest.raises(SystemExit):
        main(["host", "drain", "h1", "-o", "name"])

    assert capsys.readouterr().out == "h1\n"


def test_a_form_that_is_none_is_refused(api: HttpApi, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["host", "list", "-o", "xml"])

    assert ended.value.code == 2
    assert "yaml" in capsys.readouterr().err


# ---- --watch ---------------------------------------------------------------------


def test_a_watched_list_is_shown_in_place_and_ctrl_c_ends_it_well(api: HttpApi) -> None:
    parent, child = pty.openpty()
    watching = subprocess.Popen(
        [FUGA, "host", "list", "--watch"],
        stdin=child,
        stdout=child,
        stderr=child,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(child)
    try:
        seen = read_until(parent, "h2")
        api.on_list("/v1/hosts", a_host("h1"), a_host("new-host"))
        seen += read_until(parent, "new-host")
        watching.send_signal(signal.SIGINT)
        read_until(parent, None)

        assert watching.wait(DEADLINE_S) == 0
        assert "Traceback" not in seen
    finally:
        watching.kill()
        watching.wait()
        os.close(parent)


def test_a_watched_list_in_a_pipe_comes_again_and_again(api: HttpApi) -> None:
    watching = subprocess.Popen(
        [FUGA, "host", "list", "-w"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert watching.stdout is not None
        heads = 0
        while heads < 2:
            line = watching.stdout.readline()
            assert line, watching.stderr.read() if watching.stderr else ""
            heads += "admin" in line
        watching.send_signal(signal.SIGINT)
        _, said = watching.communicate(timeout=DEADLINE_S)

        assert watching.returncode == 0, said
        assert said == ""
    finally:
        watching.kill()
        watching.wait()


def test_watching_is_for_tables(api: HttpApi, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["host", "list", "--watch", "-o", "json"])

    assert ended.value.code == 2
    assert "--watch cannot be used with -o" in capsys.readouterr().err


def read_until(terminal: int, wanted: str | None) -> str:
    """Read what a terminal shows until something appears; None: until nobody writes any more."""
    seen, deadline = "", time.monotonic() + DEADLINE_S
    while wanted is None or wanted not in seen:
        assert time.monotonic() < deadline, seen
        if select.select([terminal], [], [], 1)[0]:
            try:
                read = os.read(terminal, 65_536).decode(errors="replace")
            except OSError:  # the other side is closed
                read = ""
            if not read:
                assert wanted is None, seen
                return seen
            seen += read
    return seen


# ---- completion ------------------------------------------------------------------


def completed(words: str, **env: str) -> list[str]:
    done = subprocess.run(
        [FUGA],
        env={
            **os.environ,
            "_FUGA_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
            **env,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_names_are_completed_from_the_api(api: HttpApi) -> None:
    api.on_list("/v1/vm-types", {"name": "small"}, {"name": "smallish"}, {"name": "large"})
    api.on_list("/v1/requests", {"name": "web"})
    api.on_list("/v1/vms", {"name": "web-1"}, {"name": "db-1"})

    assert completed("fuga request sm") == ["small", "smallish"]
    assert completed("fuga host show h") == ["h1", "h2"]
    assert completed("fuga rm we") == ["web", "web-1"]


def test_without_an_api_nothing_is_completed_and_nothing_said(api: HttpApi) -> None:
    assert completed("fuga host show h", FUGA_URL="http://127.0.0.1:1") == []
    assert completed("fuga host show h", FUGA_URL="nonsense") == []
    assert completed("fuga re") != []  # commands need no API


def test_an_api_that_hangs_is_given_up_soon(api: HttpApi, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[dict[str, Any]] = []

    class Recording:
        def __init__(self, _connection: object, **how: Any) -> None:
            requested.append(how)
            raise TimeoutError

    monkeypatch.setattr("controller.client.http.Client", Recording)

    assert completion.complete_host("h") == []
    assert requested[0]["timeout_s"] <= 1
    assert requested[0]["retry_after_s"] == ()


def test_completion_is_installed_for_a_shell(tmp_path: Path) -> None:
    env = {**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}

    done = subprocess.run(
        [FUGA, "--install-completion", "bash"], env=env, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert (
        "_FUGA_COMPLETE=complete_bash" in (tmp_path / ".bash_completions" / "fuga.sh").read_text()
    )
