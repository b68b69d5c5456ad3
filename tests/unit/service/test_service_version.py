"""What a process says of the code that it runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from service.version import read_commit


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@test")
    done = subprocess.run(
        ["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def a_checkout(tmp_path: Path) -> Path:
    package = tmp_path / "service"
    package.mkdir()
    (package / "version.py").write_text("")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return package


def test_a_package_says_the_commit_that_was_written_into_it(tmp_path: Path) -> None:
    package = a_checkout(tmp_path)
    (package / "commit.txt").write_text("1a2b3c4d5e6f\n")

    assert read_commit(package) == "1a2b3c4d5e6f"


def test_a_checkout_says_its_commit_and_whether_its_files_differ(tmp_path: Path) -> None:
    package = a_checkout(tmp_path)
    git(tmp_path, "tag", "v1")
    head = git(tmp_path, "rev-parse", "--short=12", "HEAD")

    assert read_commit(package) == head
    (package / "version.py").write_text("# changed\n")
    assert read_commit(package) == f"{head}-dirty"


def test_what_is_neither_says_nothing_not_even_of_a_checkout_around_it(tmp_path: Path) -> None:
    a_checkout(tmp_path)
    installed = tmp_path / ".venv" / "service"
    installed.mkdir(parents=True)

    assert read_commit(installed) is None
