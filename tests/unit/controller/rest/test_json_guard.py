"""What is refused before any model looks at a body."""

from __future__ import annotations

import pytest

from controller.rest.middleware.bodies import JSON_TYPE, MAX_DEPTH, parse_json
from controller.rest.middleware.callers import is_protected
from controller.rest.problems.errors import MalformedBodyError


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "Expecting property name"),
        (b'{"count": 1,}', "line 1 column"),
        (b"count=1", "Expecting value"),
        (b'{"count": NaN}', "NaN is not a JSON number"),
        (b'{"count": -Infinity}', "-Infinity is not a JSON number"),
        (b'{"count": 1, "count": 2}', "the same name twice"),
        (b'{"name": "\xff"}', "byte 10 is not UTF-8"),
        (b'{"count": ' + b"9" * 5000 + b"}", "a number is too long"),
        (b"[" * 1_000, "nested deeper"),
        (b'{"a":' * 1_000, "nested deeper"),
        (b"[" * 100_000, "lists and objects"),
        (b'"' + b'\\"' * 19_000 + b"[" * 100_000, "lists|Unterminated|control|nested"),
        (b'\xef\xbb\xbf{"count": 1}', "BOM"),
    ],
)
def test_a_body_that_is_not_plain_json_is_refused_with_the_reason(body: bytes, reason: str):
    with pytest.raises(MalformedBodyError, match=reason):
        parse_json(body)


def test_brackets_inside_strings_do_not_count_as_nesting():
    parse_json(b'{"name": "' + b"[{" * 1000 + b'\\"[[["}')


def test_the_deepest_allowed_nesting_passes():
    parse_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"'],
)
def test_json_is_recognised_however_it_is_spelt(content_type: str):
    assert JSON_TYPE.fullmatch(content_type)


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/jsonp", "application/json; charset=latin-1", "application/xml"],
)
def test_other_content_types_are_not_json(content_type: str):
    assert not JSON_TYPE.fullmatch(content_type)


def test_everything_below_v1_needs_a_token_and_nothing_else_does():
    assert is_protected("/v1")
    assert is_protected("/v1/")
    assert is_protected("/v1/hosts")
    assert not is_protected("/v10")
    assert not is_protected("/healthz")
    assert not is_protected("/docs")
