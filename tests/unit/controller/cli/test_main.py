"""What ends a command, whoever raised it, is one message and a status."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.cli.main import main


@pytest.mark.parametrize("command", [["db", "purge"], ["db", "token", "first"]])
def test_a_register_center_that_is_too_old_is_said_in_a_line(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FUGA_DATABASE_URL", f"sqlite:///{tmp_path}/none.db")

    with pytest.raises(SystemExit) as ended:
        main(command)

    said = capsys.readouterr().err
    assert ended.value.code == 1
    assert said.startswith("fuga: the database is at revision none")
    assert "fuga db upgrade" in said
    assert "Traceback" not in said
