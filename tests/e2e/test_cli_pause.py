"""`fuga pause` and `resume` against a real API, and who tells of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller.cli.main import main
from controller.rest import create_app
from registry import Registry
from tests.e2e.conftest import a_token
from tests.register import add_request, add_tenant, add_vm_type
from tests.serving import served

Fuga = Callable[..., str]


@pytest.fixture
def fuga(
    register: Registry,
    register_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Fuga]:
    """Run a command as an operator and return what it prints, whatever its status."""
    with served(create_app(register)) as url:
        monkeypatch.setenv("FUGA_URL", url)
        monkeypatch.setenv("FUGA_TOKEN", a_token(register, None))
        monkeypatch.setenv("FUGA_STATE_DIR", str(tmp_path))
        monkeypatch.setenv("FUGA_DATABASE_URL", register_url)
        monkeypatch.delenv("FUGA_CONFIG", raising=False)

        def run(*words: str, status: int = 0) -> str:
            with pytest.raises(SystemExit) as ended:
                main(words)
            told = capsys.readouterr()
            assert (ended.value.code or 0) == status, told
            return told.out + told.err

        yield run


def test_who_looks_learns_that_it_is_paused(register: Registry, fuga: Fuga) -> None:
    add_vm_type(register)
    add_tenant(register)
    add_request(register, name="web")
    assert "paused" not in fuga("rounds")
    assert "slot loop" not in fuga("doctor", status=1)  # there are no hosts

    fuga("pause", "new storage comes")

    for told in (fuga("rounds"), fuga("doctor", status=1), fuga("explain", "web")):
        assert "new storage comes" in told
    assert "new storage" not in fuga("rounds", "-o", "json")
    assert "not possible in state paused" in fuga("pause", "again", status=2)

    fuga("resume", "it is there")

    assert "paused" not in fuga("rounds")
    assert [event.reason for event in register.events.list(kind="slot_loop")] == [
        "new storage comes",
        "it is there",
    ]
