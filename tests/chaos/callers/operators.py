"""Operators who move VMs without pause: one by one, off a host, by plans, and not after all."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.chaos.callers.calls import TokenHolder
from tests.chaos.checks.proofs import following_month
from tests.chaos.processes import WAIT_S
from tests.chaos.record import Record
from tests.chaos.site import TENANTS, Site

_PAUSE_S = (0.2, 1.5)
_LOOK_S = 0.5
_KEPT = 4
#: How long an operator waits for something before going on with other things.
_PATIENCE_S = 60.0
FIRST_MONTH = "2001-01"  #: of those that are closed
_PLAN_OVER = ("done", "failed", "cancelled")
_MOVE_OVER = ("moved", "failed", "cancelled")
_THAT_MOVE = (
    "SELECT v.id FROM vms v JOIN assignments a ON a.vm_id = v.id"
    " WHERE a.state = 'active' AND v.desired = 'running' AND v.observed = 'running'"
    " AND NOT EXISTS (SELECT 1 FROM moves m WHERE m.vm_id = v.id AND m.ended_at IS NULL)"
    " AND NOT EXISTS (SELECT 1 FROM volumes d WHERE d.vm_id = v.id) ORDER BY v.id"
)


#: Of each operator; one keeps guests on their way while the others wait for theirs.
_HABITS = (
    {"move_one": 1},
    {"move_one": 2, "move_and_cancel": 2, "move_cold": 3},
    {"drain": 2, "balance": 2, "close_month": 1, "release_images": 1},
)


@dataclass(kw_only=True)
class Operator(TokenHolder):
    """Does one thing after another, and undoes it: hosts take VMs again, VMs run again."""

    stop: threading.Event
    habits: Mapping[str, int]  #: what it does, and how often

    def run(self) -> None:
        if "close_month" in self.habits:
            self.close_month()  # once the clock stepped ahead, none is closed for an hour
        while not self.stop.wait(self.rng.uniform(*_PAUSE_S)):
            [habit] = self.rng.choices(list(self.habits), list(self.habits.values()))
            getattr(self, habit)()

    # ---- moves ------------------------------------------------------------------

    def move_one(self) -> None:
        """Have a VM moved that runs, to a host that suits it or to one that is named."""
        vm = self.choose()
        if vm is not None:
            self.ask_for_move(vm, self.rng.choice([None, self.rng.choice(self.site.hosts).name]))

    def move_and_cancel(self) -> None:
        vm = self.choose()
        move = None if vm is None else self.ask_for_move(vm)
        if move is not None:
            self.stop.wait(self.rng.uniform(0, 6))
            answer = self.call("POST", f"/v1/moves/{move}/cancel", {}, self.new_key())
            self.count(answer.status_code == 202, "moves cancelled", "moves not cancelled")

    def move_cold(self) -> None:
        """Stop a VM, have it moved, and start it again, wherever it is then."""
        vm = self.choose(oldest=True)
        if vm is None or not self.switch(vm, "stop"):
            return
        if self.see(vm, "SELECT 1 FROM vms WHERE id = %s AND observed = 'stopped'"):
            move = self.ask_for_move(vm, only_cold=True)
            if move is not None:
                self.wait_for(f"/v1/moves/{move}", _MOVE_OVER)
        self.switch(vm, "start")

    def ask_for_move(
        self, vm: str, host: str | None = None, *, only_cold: bool = False
    ) -> str | None:
        key = self.new_key()
        body = {"vm": vm, "host": host, "only_cold": only_cold, "reason": "chaos"}
        self.record.write("asking to move", key=key, vm=vm)
        answer = self.call("POST", "/v1/moves", body, key)
        if not self.count(answer.status_code == 201, "moves accepted", "moves refused"):
            self.refused(answer.status_code, answer.json().get("code"), "POST /v1/moves")
            return None
        shown = answer.json()
        self.record.write("moving", key=key, id=shown["id"], vm=vm)
        return str(shown["id"])

    # ---- plans ------------------------------------------------------------------

    def drain(self) -> None:
        """Empty a host as `fuga host drain --move` does, and have it take VMs again."""
        host = self.rng.choice(self.site.hosts).name
        self.set_admin(host, self.rng.choice(["draining", "maintenance"]))
        plan = self.ask_for_plan({"kind": "evacuate", "hosts": [host], "approve": True})
        if self.rng.random() < 0.3:
            self.stop.wait(self.rng.uniform(0, 10))
            self.cancel(plan)
        else:
            self.wait_for(f"/v1/plans/{plan}", _PLAN_OVER)
        self.set_admin(host, "active")

    def balance(self) -> None:
        """Have a plan decided, and approve it; sometimes cancel it then."""
        plan = self.ask_for_plan({"kind": self.rng.choice(["balance", "balance", "pack"])})
        seen = self.wait_for(f"/v1/plans/{plan}", ("proposed", *_PLAN_OVER))
        if seen.get("state") != "proposed" or self.rng.random() < 0.2:
            self.cancel(plan)
            return
        self.call("POST", f"/v1/plans/{plan}/approve", {}, self.new_key())
        self.counts["plans approved"] += 1
        self.wait_for(f"/v1/plans/{plan}", _PLAN_OVER)

    def ask_for_plan(self, body: Mapping[str, Any]) -> str:
        answer = self.call("POST", "/v1/plans", body, self.new_key())
        if not self.count(answer.status_code == 202, "plans asked for", "plans refused"):
            self.refused(answer.status_code, answer.text, "POST /v1/plans")
        return str(answer.json()["id"])

    def cancel(self, plan: str) -> None:
        self.call("POST", f"/v1/plans/{plan}/cancel", {}, self.new_key())
        self.counts["plans cancelled"] += 1

    # ---- images -----------------------------------------------------------------

    def release_images(self) -> None:
        """Let hosts receive images again that were held when several hosts fell silent."""
        for name, revision in self.site.sql(
            "SELECT name, revision FROM images WHERE held_at IS NOT NULL"
        ):
            self.call("POST", f"/v1/images/{name}:{revision}/release")
            self.counts["held images released"] += 1

    # ---- closed months -----------------------------------------------------------

    def close_month(self) -> None:
        """Close the next month, or correct the last one; none may be closed for a while."""
        rows = self.site.sql("SELECT max(month) FROM closed_usage WHERE kind = 'month'")
        last = f"{rows[0][0]:%Y-%m}" if rows[0][0] else None
        if last is None or self.rng.random() < 0.7:
            kind, path = "month", "/v1/usage/months"
            body = {"month": FIRST_MONTH if last is None else following_month(last)}
        else:
            kind, path = "correction", "/v1/usage/corrections"
            body = {"month": last, "tenant": self.rng.choice(TENANTS), "cost": "-1.25"}
            body["reason"] = "chaos"
        answer = self.call("POST", path, body, self.new_key())
        if self.count(answer.status_code == 201, f"{kind}s closed", f"{kind}s not closed"):
            entry = f"{kind} {body['month']}"
            self.record.write("closed", number=answer.json()["number"], entry=entry)
        else:  # 409: the database's clock stepped ahead within the last hour
            self.refused(answer.status_code, answer.text, f"POST {path}")

    # ---- what all of it needs ----------------------------------------------------

    def choose(self, *, oldest: bool = False) -> str | None:
        """Return a VM that runs and does not move; None: there is none, or nobody to ask.

        The ``oldest`` are those that their tenants keep.
        """
        rows = self.site.tried_sql(_THAT_MOVE)
        return str(self.rng.choice(rows[:_KEPT] if oldest else rows)[0]) if rows else None

    def switch(self, vm: str, event: str) -> bool:
        answer = self.call("POST", f"/v1/vms/{vm}/{event}", {}, self.new_key())
        return answer.status_code == 202  # else its tenant deleted it meanwhile

    def set_admin(self, host: str, admin: str) -> None:
        answer = self.call("PATCH", f"/v1/hosts/{host}", {"admin": admin})
        if answer.status_code != 200:
            self.refused(answer.status_code, answer.text, f"PATCH /v1/hosts/{host}")

    def see(self, vm: str, query: str) -> bool:
        """Wait for a row about a VM, but not for ever."""
        return self._patiently(lambda: bool(self.site.tried_sql(query, vm)))

    def wait_for(self, path: str, states: tuple[str, ...]) -> dict[str, Any]:
        """Return what is there once it is in one of these states, or patience is over."""
        seen: dict[str, Any] = {}

        def is_there() -> bool:
            seen.update(self.call("GET", path).json())
            return seen.get("state") in states

        self._patiently(is_there)
        return seen

    def _patiently(self, look: Any) -> bool:
        for _ in range(int(_PATIENCE_S / _LOOK_S)):
            if look():
                return True
            if self.stop.wait(_LOOK_S):
                break
        return False

    def count(self, good: bool, yes: str, no: str) -> bool:
        self.counts[yes if good else no] += 1
        return good

    def refused(self, status: int, said: object, call: str) -> None:
        """Note a refusal that no operator expects: of a move, many are."""
        if status != 409:
            self.record.write("refused", name=call, status=status, said=str(said))


class Moving:
    """All operators, each in a thread."""

    def __init__(self, site: Site, record: Record, seed: int) -> None:
        self.stop = threading.Event()
        self.operators = [
            Operator(
                name="operator",
                site=site,
                record=record,
                rng=random.Random(f"{seed} operator {number}"),
                stop=self.stop,
                habits=habits,
            )
            for number, habits in enumerate(_HABITS)
        ]
        self._threads = [
            threading.Thread(target=each.run, name=f"operator {number}", daemon=True)
            for number, each in enumerate(self.operators)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Begin nothing new, and wait until each has undone what it did."""
        self.stop.set()
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive(), f"{thread.name} still waits for an answer"

    def counts(self) -> Counter[str]:
        return sum((each.counts for each in self.operators), Counter())
