"""`fuga plan` against a real API."""

from __future__ import annotations

from typing import Any

import pytest

from controller.session import plan_progress, polling
from controller.terminal.errors import WaitExpiredError
from registry import Registry
from registry.moves import PlanKind
from tests.e2e.conftest import Fuga
from tests.register import ACTOR


def test_plans_of_one_minute_are_told_apart_by_what_the_list_shows(
    register: Registry, fuga: Fuga
) -> None:
    requested = [
        str(register.plans.create(kind, {}, approve=False, actor=ACTOR).id)
        for kind in (PlanKind.BALANCE, PlanKind.PACK)
    ]

    shown = [line.split()[0] for line in fuga("plan", "list").splitlines()[2:]]

    for short, whole, kind in zip(shown, requested, ("balance", "pack"), strict=True):
        assert fuga("plan", "show", short).startswith(f"plan {whole}: {kind}, pending")
    assert "several plans" in fuga("plan", "show", requested[0][:6], status=2)
    assert "no plan with an id like 'web'" in fuga("plan", "cancel", "web", status=2)


def test_a_host_is_waited_for_until_it_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    held = [2, 1, 0, 1]

    class Api:
        def get(self, _path: str) -> object:
            return {"inventories": [{"committed": held.pop(0)}]}

        def items(self, _path: str, **_query: object) -> list[object]:
            return []

    api: Any = Api()
    monkeypatch.setattr(polling, "_POLL_EVERY_S", 0)

    plan_progress.wait_until_empty(api, "h1")

    assert held == [1]
    monkeypatch.setattr(plan_progress, "_EMPTY_S", -1)
    with pytest.raises(WaitExpiredError, match="host h1 still holds"):
        plan_progress.wait_until_empty(api, "h1")
