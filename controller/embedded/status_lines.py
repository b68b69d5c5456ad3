"""The output of `fuga up` while it runs: a line per round and per important change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from controller.client.errors import ApiError
from controller.session.host_texts import health_text
from controller.session.round_texts import decided_by_text, shares_text
from controller.terminal.times import clock

if TYPE_CHECKING:
    from controller.client.http import Client

_ROUNDS = 20


class StatusLines:
    """Polls the API and prints a line per change since the last poll."""

    def __init__(self, api: Client, say: Callable[[str], None]) -> None:
        self._api = api
        self._say = say
        self._round: int | None = None
        self._health: dict[str, str] = {}
        self._running: int | None = None

    def print_changes(self) -> None:
        """Print changes of rounds and hosts since the last call, if the API answers."""
        try:
            rounds = self._api.get("rounds", limit=_ROUNDS)["items"]
            hosts = list(self._api.items("hosts"))
            vms = list(self._api.items("vms"))
        except ApiError:
            return
        self._print_rounds(rounds)
        self._print_hosts(hosts)
        running = sum(vm["observed"] == "running" and vm["unknown_since"] is None for vm in vms)
        if running != self._running:
            if self._running is not None:
                self._say(f"{running} of {len(vms)} VMs run")
            self._running = running

    def _print_rounds(self, newest_first: Sequence[Mapping[str, Any]]) -> None:
        """Print a line for each new round."""
        if self._round is None:  # the past is in `fuga rounds`
            self._round = max((it["number"] for it in newest_first), default=0)
            return
        for found in reversed(newest_first):
            if found["number"] <= self._round:
                continue
            self._round = found["number"]
            line = (
                f"round {found['number']} (slot {clock(found['slot_start_at'])}): "
                f"{found['placed']} placed, {found['left_out']} wait"
            )
            if found["dropped"]:
                line += f", {found['dropped']} dropped"
            if found["decided_by"] != "policy" or found.get("cut"):
                line += f", decided by {decided_by_text(found)}"
            shares_by_tenant = shares_text(found)
            self._say(f"{line}; shares {shares_by_tenant}" if shares_by_tenant else line)

    def _print_hosts(self, hosts: Sequence[Mapping[str, Any]]) -> None:
        for host in hosts:
            before = self._health.get(host["name"])
            health = health_text(host)
            if before is not None and before != health:
                why = f": {host['last_error']}" if host["last_error"] else ""
                self._say(f"host {host['name']} is {health}{why}")
            self._health[host["name"]] = health
