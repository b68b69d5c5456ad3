"""What the project's Markdown files tell people to type, and where they point."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHELL_LANGUAGES = {"bash", "sh", "shell"}
_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>.*)$")
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s]+)\)")
_SEPARATORS = re.compile(r"^[;&|()]+$")
_ASSIGNMENT = re.compile(r"^[A-Z_]+=")


@dataclass(frozen=True)
class Typed:
    """One command that a document shows."""

    document: str
    line: int
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.document}:{self.line}: {shlex.join(self.words)}"


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    line: int
    info: str
    text: str


def documents() -> list[Path]:
    """Every Markdown file of the project."""
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-co", "--exclude-standard", "*.md"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [ROOT / name for name in listed.stdout.split("\n") if name and (ROOT / name).exists()]


def split(text: str) -> tuple[list[Block], str]:
    """Return the fenced blocks, and the prose with nothing but empty lines in their place."""
    blocks: list[Block] = []
    prose: list[str] = []
    inside: list[str] | None = None
    began, info, indent = 0, "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line)
        prose.append("" if fence or inside is not None else line)
        if fence and inside is None:
            inside, began = [], number
            info, indent = fence["info"].strip(), len(fence["indent"])
        elif fence and inside is not None:
            blocks.append(Block(began, info, "\n".join(inside)))
            inside = None
        elif inside is not None:
            inside.append(line[indent:])
    assert inside is None, f"a fence that is opened at line {began} is not closed"
    return blocks, "\n".join(prose)


def typed(path: Path, program: str) -> Iterator[Typed]:
    """Yield what blocks of a document have people type to `program`."""
    name = str(path.relative_to(ROOT))
    blocks, prose = split(path.read_text("utf-8"))
    for block in blocks:
        for line, text in shell_lines(block):
            yield from _of(program, name, line, text)
    # In blocks by indentation commands stand without a prompt.
    for number, text in enumerate(prose.splitlines(), start=1):
        if text.startswith(f"    {program} "):
            yield from _of(program, name, number, text.strip())


def shell_lines(block: Block) -> Iterator[tuple[int, str]]:
    """Yield the commands of a block, each with its continuation lines."""
    language = block.info.split(" ")[0]
    pending, began = "", 0
    for number, line in enumerate(block.text.splitlines(), start=block.line + 1):
        if pending:
            pending += line.strip()
        elif language == "console" and line.startswith("$ "):
            pending, began = line[2:], number
        elif language in SHELL_LANGUAGES and line.strip() and not line.startswith("#"):
            pending, began = line, number
        else:
            continue
        if pending.endswith("\\"):
            pending = pending[:-1] + " "
            continue
        yield began, pending
        pending = ""


def mentioned(path: Path) -> Iterator[tuple[int, str]]:
    """Yield what prose has between backquotes, with its line."""
    _, prose = split(path.read_text("utf-8"))
    for found in _CODE_SPAN.finditer(prose):
        line = prose.count("\n", 0, found.start()) + 1
        yield line, " ".join(found[2].replace("\\|", "|").split())


def links(path: Path) -> Iterator[tuple[int, str]]:
    """Yield links to files and headings of the project."""
    _, prose = split(path.read_text("utf-8"))
    for found in _LINK.finditer(prose):
        yield prose.count("\n", 0, found.start()) + 1, found[1]


def anchors(path: Path) -> set[str]:
    """Return what links may point to in a document: its headings, as forges write them."""
    _, prose = split(path.read_text("utf-8"))
    headings = re.findall(r"^#+ +(.*?) *$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def _of(program: str, document: str, line: int, text: str) -> Iterator[Typed]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if not _SEPARATORS.match(word):
            words.append(word)
            continue
        while words and _ASSIGNMENT.match(words[0]):
            words.pop(0)
        if words and words[0].rsplit("/", 1)[-1] == program:
            yield Typed(document, line, tuple(words))
        words = []
