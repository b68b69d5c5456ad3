"""`fuga what-if`: asked for, followed, and read at 80 columns."""

from __future__ import annotations

import json

import pytest

from controller.rounds.policy_process import PolicyProcess
from registry import Registry
from tests.e2e.conftest import Fuga
from tests.e2e.slots import run_slot
from tests.register import a_cluster, add_request


@pytest.mark.parametrize("register_url", ["sqlite"], indirect=True)
def test_a_what_if_is_asked_for_followed_and_read(
    register: Registry, decider: PolicyProcess, fuga: Fuga, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    a_cluster(register, hosts=2)
    add_request(register, 40, name="batch")
    run_slot(register, decider)

    words = [
        "--hours",
        "1",
        "--add-hosts",
        "20",
        "--like",
        "h1",
        "--weight",
        "a=3",
        "--wait",
        "--timeout",
        "900",
    ]
    output = fuga("what-if", "run", *words)

    assert "+20 hosts like h1; a=3, finished" in output
    assert "100 of 100 % over  finished" in output
    assert max(len(line) for line in output.splitlines() if "of the last" not in line) <= 80
    rows = {line.split("  ")[0].strip(): line.split() for line in output.splitlines()}
    assert rows["hosts"] == ["hosts", "2", "22"]
    assert int(rows["VMs placed"][-1]) > int(rows["VMs placed"][-2])
    listed = fuga("what-if", "list")
    (found,) = json.loads(fuga("what-if", "list", "-o", "json"))
    assert found["id"][-8:] in listed
    shown = json.loads(fuga("what-if", "show", found["id"][-8:], "-o", "json"))
    assert shown["report"]["what_if"]["hosts"] == 22
    output = fuga("what-if", "cancel", found["id"], status=2)
    assert "cancelled is not possible in state finished" in output
    assert "--add-hosts" in fuga("what-if", "run", "--like", "h1", status=2)
