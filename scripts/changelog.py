"""Write the change log from the fragments in changelog.d.

    python -m scripts.changelog                 print CHANGELOG.md as a release has it
    python -m scripts.changelog --collect       write it, and delete the fragments it holds

A fragment is a file ISSUE.KIND.md; each of its lines is one sentence about one change. The heading
is the version of pyproject.toml. Versions that CHANGELOG.md holds already follow below.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
#: of fragments, in the order of their sections
KINDS: Final = ("added", "changed", "deprecated", "removed", "fixed", "security")
TITLE: Final = "# Changes"
_NAME: Final = re.compile(rf"(\d+)\.({'|'.join(KINDS)})\.md")


def fragments(folder: Path) -> dict[str, list[str]]:
    """Return the changes of each kind, by number of the issue and then by line.

    Raises
    ------
    SystemExit
        If a file's name is not one of a fragment.
    """
    found: list[tuple[int, str, list[str]]] = []
    for path in folder.iterdir():
        match = _NAME.fullmatch(path.name)
        if match is None:
            raise SystemExit(
                f"changelog: {path}: not named ISSUE.KIND.md, with a KIND of {', '.join(KINDS)}"
            )
        found.append((int(match[1]), match[2], list(_sentences(path))))
    return {
        kind: [each for _, of, changes in sorted(found) if of == kind for each in changes]
        for kind in KINDS
    }


def changelog(version: str, on: date, changes: dict[str, list[str]], earlier: str) -> str:
    """Return the change log: this version's section above those of earlier versions.

    Raises
    ------
    SystemExit
        If the version is there already and changes are left, or nothing is known of it.
    """
    released = re.search(rf"^## {re.escape(version)} ", earlier, re.MULTILINE)
    if not any(changes.values()):
        if released is None:
            raise SystemExit(
                f"changelog: changelog.d has no fragment, nothing is known of {version}"
            )
        return earlier
    if released is not None:
        raise SystemExit(
            f"changelog: CHANGELOG.md has {version} already, and changelog.d has fragments:"
            " raise the version in pyproject.toml"
        )
    parts = [TITLE, f"## {version} ({on})"]
    for kind, sentences in changes.items():
        if sentences:
            parts += [f"### {kind.capitalize()}", "\n".join(f"- {each}" for each in sentences)]
    if below := earlier.removeprefix(TITLE).strip():
        parts.append(below)
    return "\n\n".join(parts) + "\n"


def _sentences(path: Path) -> Iterator[str]:
    """Yield a fragment's sentences; an indented line continues the one before."""
    sentence = ""
    for line in path.read_text().splitlines():
        if line[:1] not in (" ", "") and sentence:
            yield sentence
            sentence = ""
        sentence = f"{sentence} {line.strip().removeprefix('- ')}".strip()
    if sentence:
        yield sentence


def _commit_date() -> date:
    """Return the day of the commit, so that one commit has one change log."""
    said = subprocess.run(
        ["git", "log", "-1", "--format=%cs"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return date.fromisoformat(said.stdout.strip())


def main() -> int:
    """Print the change log, or write it in place of the fragments."""
    parser = argparse.ArgumentParser(prog="scripts.changelog", description=__doc__)
    parser.add_argument("--collect", action="store_true", help="write it and delete the fragments")
    options = parser.parse_args()
    folder, log = ROOT / "changelog.d", ROOT / "CHANGELOG.md"
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    changes = fragments(folder) if folder.is_dir() else {}
    text = changelog(version, _commit_date(), changes, log.read_text() if log.is_file() else "")
    if not options.collect:
        sys.stdout.write(text)
        return 0
    log.write_text(text)
    for path in folder.glob("*.md"):
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
