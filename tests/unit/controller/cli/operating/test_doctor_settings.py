"""Processes that were started with different settings are named."""

from __future__ import annotations

from typing import Any

import pytest

from controller.cli.doctor.settings import setting_differences


def process(kind: str, name: str, **settings: str | None) -> dict[str, Any]:
    return {"kind": kind, "name": name, "settings": settings}


API = process("api", "the API", FUGA_POLICY="fuga", FUGA_MOVES_AT_ONCE="8")


@pytest.mark.parametrize(
    ("others", "found"),
    [
        ([], []),
        ([process("control", "c1", FUGA_POLICY="fuga")], []),
        (
            [
                process("control", "c1", FUGA_POLICY="fuga"),
                process("control", "c2", FUGA_POLICY="drf"),
            ],
            [("WRONG", "FUGA_POLICY differs: fuga: the API, c1; drf: c2")],
        ),
        (
            [process("worker", "w1", FUGA_MOVES_AT_ONCE=None)],
            [("note", "FUGA_MOVES_AT_ONCE differs: 8: the API; not set: w1")],
        ),
        (
            [process("worker", f"w{n}", FUGA_MOVES_AT_ONCE="9") for n in range(5)],
            [("note", "FUGA_MOVES_AT_ONCE differs: 8: the API; 9: w0, w1, w2 and 2 more")],
        ),
        (
            [
                process("worker", "w1", FUGA_QUEUES="fence", FUGA_METRICS_LISTEN="a"),
                process("worker", "w2", FUGA_QUEUES="build", FUGA_METRICS_LISTEN="b"),
            ],
            [],
        ),
    ],
)
def test_settings_that_differ_are_named_with_who_has_them(
    others: list[dict[str, Any]], found: list[tuple[str, str]]
) -> None:
    shown = list(setting_differences([API, *others]))

    assert [(each.level, each.message) for each in shown if each.note] == found
    assert [each.level for each in shown if not each.note] == ["ok"] * bool(others)
