from __future__ import annotations

import contextlib
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.db.pages import check_limit, cursor_uuid, decode_cursor, encode_cursor, page_of
from registry.errors import InvalidError


@given(
    st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=40),
    st.integers(min_value=-(2**63), max_value=2**63 - 1),
)
def test_a_cursor_names_the_key_it_was_made_of(text: str, number: int) -> None:
    assert decode_cursor(encode_cursor(text, number), str, int) == (text, number)


@pytest.mark.parametrize(
    "cursor",
    ["", "?", "abc", "é", "W10", encode_cursor(1), encode_cursor("a", "b"), "A" * 5000, "bnVsbA"],
)
def test_what_is_no_cursor_of_this_list_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidError, match="cursor"):
        decode_cursor(cursor, str)


@given(st.text(max_size=60))
def test_no_text_breaks_the_reading_of_cursors(text: str) -> None:
    with contextlib.suppress(InvalidError):  # any other error fails
        cursor_uuid(text)


def test_a_cursor_beyond_64_bits_is_refused() -> None:
    with pytest.raises(InvalidError):
        decode_cursor(encode_cursor(2**63), int)


def test_a_cursor_by_id_names_a_uuid() -> None:
    key = uuid4()

    assert cursor_uuid(encode_cursor(key.hex)) == key


@pytest.mark.parametrize("limit", [0, -1, 501, True])
def test_a_limit_outside_1_to_500_is_refused(limit: int) -> None:
    with pytest.raises(InvalidError, match="limit"):
        check_limit(limit)


def test_a_page_knows_whether_there_is_more() -> None:
    assert page_of([1, 2, 3], 2, lambda row: (row,)).next == encode_cursor(2)
    assert page_of([1, 2], 2, lambda row: (row,)).next is None
    assert page_of([], 2, lambda row: (row,)).next is None
