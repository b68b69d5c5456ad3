"""Rounds that end spot or borrowed VMs, and the VMs of a request that they end."""

from __future__ import annotations

from datetime import timedelta

from registry import Registry
from registry.requests import Request, Vm
from tests.integration.moves.test_room import DecidesHere, run
from tests.raw_sql import RawSql
from tests.register import now

GRACE_S = 60


def a_round(register: Registry, at: int):
    return run(register, at, decider=DecidesHere(), spot_grace_s=GRACE_S)


def vms_of(register: Registry, request: Request) -> list[Vm]:
    return list(register.vms.list(request_id=request.id).items)


def ending(register: Registry, request: Request) -> list[Vm]:
    return [vm for vm in vms_of(register, request) if vm.ends_at is not None]


def let_time_pass(raw: RawSql) -> None:
    raw.run("UPDATE spot_preemptions SET ends_at = ?", now() - timedelta(seconds=1))
