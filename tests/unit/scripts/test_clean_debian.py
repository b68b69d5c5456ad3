"""What `scripts/check-deb` and `scripts/check-container` take from guide and Containerfile.

They need root and many minutes; what they rely on is looked at here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from scripts.guide import commands
from tests.docs.markdown import ROOT

SCRIPTS = {
    name: (ROOT / "scripts" / name).read_text()
    for name in ("clean-debian", "check-deb", "check-container")
}


def typed_sections() -> Iterator[tuple[str, ...]]:
    for text in SCRIPTS.values():
        for call in re.findall(r"(?:\{|;|^) *guide ((?!\(\))[^;|}>\n]+)", text, re.MULTILINE):
            yield tuple(shlex.split(call))


@pytest.mark.parametrize("call", sorted(set(typed_sections())), ids=" ".join)
def test_the_guide_has_what_the_checks_type(call: tuple[str, ...]) -> None:
    assert list(commands(*call))


def test_a_section_that_types_nothing_ends_the_check() -> None:
    with pytest.raises(SystemExit, match="types nothing"):
        list(commands("fuga", "no such command"))


def test_prompts_are_left_out_and_here_documents_stay() -> None:
    lines = "# cat >/etc/one <<'END'", "name = 1", "END", "$ for each in 1; do", ">   ls", "> done"
    block = "\n".join(["## Hosts", "", "```console", *lines, "```"])

    (text,) = commands("Hosts", text=f"# Guide\n\n{block}")

    assert text == "cat >/etc/one <<'END'\nname = 1\nEND\nfor each in 1; do\n  ls\ndone"


def test_each_instruction_of_the_containerfile_is_done_by_the_check() -> None:
    known = set(re.findall(r"^    ([A-Z]+)\)", SCRIPTS["check-container"], re.MULTILINE))
    text = re.sub(r"\\\n", " ", (ROOT / "deploy" / "Containerfile").read_text())

    used = {line.split()[0] for line in text.splitlines() if line and not line.startswith("#")}

    assert used - known == set()
