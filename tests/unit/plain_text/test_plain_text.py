"""Whatever somebody wrote is seen, on its line, and commands no terminal."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plain_text import plain, plain_json, plain_lines, shorten_text, split_host_name
from tests.hostile_text import is_forbidden

TEXT = st.text(st.characters())  # surrogates as well


@given(TEXT)
def test_no_text_keeps_a_character_that_commands_a_terminal(text: str) -> None:
    assert not any(is_forbidden(each) for each in plain(text))
    assert not any(is_forbidden(each) for each in plain_lines(text).translate({10: "", 9: ""}))


def test_every_character_there_is_is_told_apart_rightly() -> None:
    for code in range(0x110000):
        character = chr(code)
        assert is_forbidden(character) <= (plain(character) != character), hex(code)
        if unicodedata.category(character)[0] in "LNPS" and plain(character) != character:
            assert character in "\u115f\u1160\u3164\uffa0\u2800", hex(code)


@given(TEXT)
def test_text_is_on_one_line_and_stays_itself_when_shown_again(text: str) -> None:
    assert len(plain(text).splitlines()) <= 1
    assert plain(plain(text)) == plain(text)
    plain(text).encode()  # whatever takes it can write it


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("kvm-07 häß 東京 😀 [bold]", "kvm-07 häß 東京 😀 [bold]"),
        ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
        ("\x9b2J", "\\x9b2J"),
        ("a\u202egpj.exe", "a\\u202egpj.exe"),
        ("a\nfuga: all is well", "a\\nfuga: all is well"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_is_not_seen_is_shown_by_its_escape(text: str, shown: str) -> None:
    assert plain(text) == shown


@given(st.recursive(TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner)))
def test_json_says_the_same(value: object) -> None:
    written = plain_json(json.dumps(value, indent=2, ensure_ascii=False))

    assert json.loads(written) == json.loads(json.dumps(value))
    assert not any(is_forbidden(each) for each in written.replace("\n", ""))


def test_a_long_text_is_shortened_and_says_so() -> None:
    assert shorten_text("short", 100) == "short"
    assert shorten_text("x" * 5_000, 100).endswith("x… (5000 characters)")
    assert len(shorten_text("x" * 5_000, 100)) == 100


@pytest.mark.parametrize(
    ("hostname", "split"),
    [
        ("KVM7.Example.org.", ("kvm7", "example.org")),
        ("kvm7", ("kvm7", None)),
        ("10.0.0.5", ("10.0.0.5", None)),
        ("010.0.0.5", ("010.0.0.5", None)),  # no address to Python, and no name either
        ("FE80::0001", ("fe80::1", None)),
        (" . ", (None, None)),
        ("\u0390" * 255, ("\u0390".casefold() * 85, None)),
    ],
)
def test_a_host_name_is_split_in_the_form_in_which_two_are_compared(
    hostname: str, split: tuple[str | None, str | None]
) -> None:
    assert split_host_name(hostname) == split
