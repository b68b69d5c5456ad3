"""`fuga reproduce` at a prompt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controller.cli.main import main


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", *words])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


def test_the_list_names_every_item_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "--list")

    assert status == 0
    assert "psdsf-table4" in out
    assert "Table IV" in out


def test_an_item_leaves_its_files_and_tells_its_verdict(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, out, _ = run(capsys, "drfh-fig3", "--out", str(tmp_path / "results"))

    assert status == 0
    assert "drfh-fig3  agrees" in out
    assert json.loads((tmp_path / "results/drfh-fig3/verdict.json").read_text())["numbers"]
    assert "### drfh-fig3" in (tmp_path / "results/reproduction.md").read_text()


def test_for_programs_it_answers_json_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, out, _ = run(capsys, "drfh-fig2", "-o", "json", "--out", str(tmp_path))

    assert status == 0
    assert json.loads(out)["verdicts"]["agrees"] == 1


@pytest.mark.parametrize(
    ("words", "told"), [((), "give tables or figures"), (("drfh-fig11x",), "near are drfh-fig1")]
)
def test_what_cannot_be_meant_is_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    status, _, error = run(capsys, *words)

    assert status == 2
    assert told in error
