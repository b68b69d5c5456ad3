"""`fuga shadow` and `fuga rounds show` against a real API: two policies side by side."""

from __future__ import annotations

import json

from controller.rounds.policy_process import PolicyProcess
from registry import Registry
from registry.rounds import MeasuredDecision, NewShadowRound
from tests.e2e.conftest import Fuga
from tests.e2e.slots import run_slot
from tests.register import a_cluster, add_request, take_lease


def test_rounds_are_shown_under_both_policies(
    register: Registry, decider: PolicyProcess, fuga: Fuga
) -> None:
    a_cluster(register)
    for number in (1, 2):
        add_request(register, name=f"r{number}")
        run_slot(register, decider, number)
    assert "no rounds" in fuga("shadow")
    assert "beside it" not in fuga("rounds", "show", "1")
    decided = MeasuredDecision(placed=1, left_out=0, used={"vcpus": 0.25}, fair_distance=0.5)
    share = {"tenant": "a", "before": 0.0, "first": 0.25, "second": 0.25}
    shadow = {"policy": "first_fit", "parameters": {}, "decided": decided, "first": decided}
    for number in (1, 2):
        reported = NewShadowRound(round=number, seconds=0.5, agreed=1, shares=(share,), **shadow)
        register.shadows.add(reported, take_lease(register))

    # Slots of tests begin at 00:01 and 00:02 of a day.
    second = json.loads(fuga("shadow", "--since", "2026-01-01T00:02Z", "-o", "json"))
    first = json.loads(fuga("shadow", "--until", "2026-01-01T00:02Z", "-o", "json"))
    refused = fuga("shadow", "--since", "yesterday", status=2)
    shown = fuga("rounds", "show", "2")

    assert [row["round"] for row in second] == [2]
    assert [row["round"] for row in first] == [1]
    assert "--since: found 'yesterday', wanted a span before now" in refused
    assert "2 rounds; 2 VMs placed, 2 by the second policy" in fuga("shadow")
    assert "second policy first_fit, without effect (first / second):" in shown
    assert "a 0.000 0.250 0.250 +0.000" in " ".join(shown.replace(" - ", " ").split())
