"""How `fuga audit` tells of refusals that share a row."""

from __future__ import annotations

from typing import Any

import pytest

from controller.cli.operating.audit import COLUMNS, audit_columns
from controller.terminal import output
from controller.terminal.output import print_table

ROW = {
    "at": "2026-01-01T10:00:00Z",
    "token": "laptop",
    "tenant": "physics",
    "address": "2001:db8:1:2:3:4:5:6",
    "method": "DELETE",
    "path": "/v1/requests/019f0000-0000-7000-8000-000000000000",
    "subject": "019f0000-0000-7000-8000-000000000000",
    "status": 404,
    "request_id": "019f0000-0000-7000-8000-000000000001",
    "suppressed": 0,
    "refusals": None,
    "last_at": None,
}
GATHERED = ROW | {
    "suppressed": 1233,
    "refusals": {
        "404 DELETE /v1/requests/{request_id}": 800,
        "404 DELETE /v1/vms/{vm_id}": 33,
        "no answer POST /v1/requests": 1,
        "429 DELETE none": 400,
    },
    "last_at": "2026-01-01T10:00:59Z",
}


def printed(rows: list[dict[str, Any]], width: int, capsys: pytest.CaptureFixture[str]) -> str:
    print_table(audit_columns(width), rows, empty="")
    return capsys.readouterr().out


def test_eighty_columns_hold_every_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(output, "terminal_width", lambda: 80)

    out = printed([ROW, GATHERED], 80, capsys)

    assert max(map(len, out.splitlines())) <= 80
    assert "physics:laptop" in out
    assert "404 ×833" in out
    assert "429 ×400" in out


def test_a_row_of_many_refusals_tells_how_many_of_each_and_until_when(
    capsys: pytest.CaptureFixture[str],
):
    out = printed([GATHERED], 400, capsys)

    assert "404 ×833, 429 ×400, no answer ×1, until " in out
    assert "and others" in out
    assert audit_columns(400) is COLUMNS


def test_a_row_of_an_older_process_tells_what_it_left_out(capsys: pytest.CaptureFixture[str]):
    assert "429 (+7 like it)" in printed([ROW | {"status": 429, "suppressed": 7}], 400, capsys)
