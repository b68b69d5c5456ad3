"""An API that answers as a test says, and the command line that calls it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.cli.main import main
from tests.fakes.http_api import HttpApi, http_api
from tests.unit.controller.cli.api_documents import Ended, Fuga


@pytest.fixture
def api() -> Iterator[HttpApi]:
    with http_api() as served:
        served.on_list("/v1/volumes")
        yield served


@pytest.fixture
def fuga(
    api: HttpApi,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Fuga:
    monkeypatch.setenv("FUGA_URL", api.url)
    monkeypatch.setenv("FUGA_TOKEN", "secret")
    monkeypatch.setenv("FUGA_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("FUGA_CONFIG", raising=False)

    def run(*arguments: str) -> Ended:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = capsys.readouterr()
        code = ended.value.code
        return Ended(int(code) if code is not None else 0, captured.out, captured.err)

    return run
