"""Texts use the words of docs/glossary.md, and none of those that we gave up."""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, split

GLOSSARY = ROOT / "docs" / "glossary.md"
PACKAGES = (
    "controller", "hypervisor", "monitor", "placement", "plain_text", "registry", "service",
    "simulation", "workers",
)  # fmt: skip
#: Their docstrings are help, or descriptions of the API.
SHOWN_DOCSTRINGS = ("controller/cli/", "controller/rest/routers/", "controller/rest/schemas/")
_CODE_SPAN = re.compile(r"`[^`]*`", re.DOTALL)


@dataclass(frozen=True)
class GivenUp:
    """A row of the table of words that we gave up."""

    word: str
    instead: str
    code: bool  #: docstrings and comments are searched as well

    def places(self, text: str) -> Iterator[int]:
        """Yield where the word stands in a text, whatever its case."""
        word = r"\s+".join(map(re.escape, self.word.split()))
        for found in re.finditer(rf"\b{word}(s|ed|ing)?\b", text, re.IGNORECASE):
            yield found.start()


@dataclass(frozen=True)
class Text:
    """A text of a file, from a line on."""

    file: str
    line: int
    text: str
    code: bool = False  #: a docstring or comment that only developers read


def rows(heading: str) -> Iterator[list[str]]:
    """Yield the cells of the table below a heading of the glossary."""
    part = GLOSSARY.read_text("utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    table = [line for line in part.splitlines() if line.startswith("|")]
    for line in table[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


@functools.cache
def given_up() -> tuple[GivenUp, ...]:
    return tuple(
        GivenUp(word, instead, where == "code")
        for word, instead, where in rows("Words that we gave up")
    )


@functools.cache
def allowed() -> frozenset[tuple[str, str]]:
    return frozenset((word, place.strip("`")) for word, place, _ in rows("Words of others"))


def prose(path: Path, name: str) -> Iterator[Text]:
    """Yield the text of a document without blocks of code."""
    yield Text(name, 1, split(path.read_text("utf-8"))[1])


def texts_of_code(source: str, name: str) -> Iterator[Text]:
    """Yield messages, docstrings and comments of a module."""
    tree = ast.parse(source)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node, clean=False) is not None
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            inner = id(node) in docstrings and not name.startswith(SHOWN_DOCSTRINGS)
            yield Text(name, node.lineno, node.value, code=inner)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(name, token.start[0], token.string, code=True)


def line_of(text: str, at: int, first: int) -> int:
    return first + text.count("\n", 0, at)


def wrong_words(text: Text) -> list[str]:
    """Return each given-up word of a text, with its place and the word to use instead."""
    shown = _CODE_SPAN.sub(lambda span: re.sub(r"[^\n]", " ", span[0]), text.text)
    return [
        f"{text.file}:{line_of(shown, at, text.line)}: {each.word!r}, write {each.instead}"
        for each in given_up()
        if (each.code or not text.code) and (each.word, text.file) not in allowed()
        for at in each.places(shown)
    ]


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


DOCUMENTS = sorted(
    {ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs/operators").glob("*.md")}
    - {GLOSSARY}
)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_uses_our_words(path):
    texts = prose(path, str(path.relative_to(ROOT)))

    found = [wrong for text in texts for wrong in wrong_words(text)]

    assert not found, "\n".join(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_messages_help_docstrings_and_comments_use_our_words(package):
    found = [
        wrong
        for path in modules(package)
        for text in texts_of_code(path.read_text("utf-8"), str(path.relative_to(ROOT)))
        for wrong in wrong_words(text)
    ]

    assert not found, "\n".join(found)


@pytest.mark.parametrize("heading", ["Words", "Words that we gave up", "Words of others"])
def test_tables_of_the_glossary_are_sorted_and_have_each_row_once(heading):
    words = [
        (cells[0].lower(), cells[1] if heading == "Words of others" else "")
        for cells in rows(heading)
    ]

    assert words
    assert words == sorted(set(words))


def test_lines_of_the_glossary_fit_100_columns():
    assert [line for line in GLOSSARY.read_text("utf-8").splitlines() if len(line) > 100] == []


def test_places_in_code_exist():
    named = [place for *_, cell in rows("Words") for place in re.findall(r"`([^`]+)`", cell)]

    assert [place for place in named if not (ROOT / place).exists()] == []


def test_words_of_others_stand_where_the_glossary_says():
    unused = [
        (word, place)
        for word, place in allowed()
        if word.lower() not in (ROOT / place).read_text("utf-8").lower()
    ]

    assert unused == []


@pytest.mark.parametrize(
    ("text", "line", "word", "instead"),
    [
        (Text("docs/x.md", 1, "The Registry\nCenter has flavors."), 1, "registry center", "r"),
        (Text("docs/x.md", 1, "One.\nIt has flavors."), 2, "flavor", "VM type"),
        (Text("x.py", 7, "at most so many", code=False), 7, "so many", "a number"),
        (Text("x.py", 7, "# the flavor of it", code=True), 7, "flavor", "VM type"),
    ],
)  # fmt: skip
def test_a_word_that_we_gave_up_is_found_with_its_line_and_the_word_to_use(
    text, line, word, instead
):
    found = wrong_words(text)

    assert any(each.startswith(f"{text.file}:{line}: {word!r}, write {instead}") for each in found)


@pytest.mark.parametrize(
    "text",
    [
        Text("docs/x.md", 1, "A difference of kind `stranger` is noted."),
        Text("docs/from-openstack.md", 1, "A flavor is a VM type."),
        Text("x.py", 1, "# a tick of the clock", code=True),
    ],
)
def test_code_words_of_others_and_comments_are_let_pass(text):
    assert wrong_words(text) == []


def test_a_bad_sentence_is_found_wherever_a_module_has_it():
    source = '"""The flavor."""\nx = f"so many {1}"  # control center\n'

    found = [wrong for text in texts_of_code(source, "x.py") for wrong in wrong_words(text)]

    assert sorted(each.partition(", write")[0] for each in found) == [
        "x.py:1: 'flavor'",
        "x.py:2: 'control center'",
        "x.py:2: 'so many'",
    ]
