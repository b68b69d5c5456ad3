"""The stored inputs of a plan of moves, and the plan as a pure function of them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from controller.errors import PolicyFailedError
from controller.rounds.inputs import RoundInputs, compressed_json, parse_round_inputs
from controller.rounds.running_state import RunningNames
from controller.settings import ControllerSettings
from placement import IntArray
from placement.rebalancing.balance import BALANCE_OBJECTIVE, balance
from placement.rebalancing.evacuate_in_turns import evacuate_before
from placement.rebalancing.model import MovePlan, RebalanceLimits, RunningState
from placement.rebalancing.pack import pack
from placement.rebalancing.repair import repair
from placement.rebalancing.room import plan_room
from placement.rebalancing.spare_policy import state_without_spare


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PlanInputs:
    """Inputs from which a plan of moves is computed: the running VMs, the limits and the seed."""

    kind: str
    arguments: Mapping[str, Any]  #: as requested
    running: RunningState
    names: RunningNames
    limits: RebalanceLimits
    seed: int
    budget_units: int | None = None
    domain: IntArray | None = None  #: (H,) failure domains for which rounds keep spare capacity

    def encode(self) -> bytes:
        """Return the inputs as compressed JSON; equal inputs give equal bytes."""
        snapshot = RoundInputs(
            snapshot=self.running.snapshot,
            names=self.names.snapshot,
            policy=self.kind,
            parameters=self.arguments,
            seed=self.seed,
            budget_units=self.budget_units,
        )
        document = {
            "inputs": snapshot.document(),
            "running": self.running.document(),
            "vms": list(self.names.vms),
            "limits": [self.limits.per_source, self.limits.per_destination, self.limits.at_once],
        }
        if self.domain is not None:
            document["domain"] = self.domain.tolist()
        return compressed_json(document)


def build_move_limits(settings: ControllerSettings) -> RebalanceLimits:
    """Return the settings' limits on simultaneous moves: per host, and in total."""
    return RebalanceLimits(
        per_source=settings.moves_per_host,
        per_destination=settings.moves_per_host,
        at_once=settings.moves_at_once,
    )


def decode_plan_inputs(data: bytes) -> PlanInputs:
    """Decode the bytes that `PlanInputs.encode` returned."""
    document = json.loads(zlib.decompress(data))
    inputs = parse_round_inputs(document["inputs"])
    per_source, per_destination, at_once = document["limits"]
    return PlanInputs(
        kind=inputs.policy,
        arguments=inputs.parameters,
        running=RunningState.from_document(document["running"], inputs.snapshot),
        names=RunningNames(snapshot=inputs.names, vms=tuple(document["vms"])),
        limits=RebalanceLimits(
            per_source=per_source, per_destination=per_destination, at_once=at_once
        ),
        seed=inputs.seed,
        budget_units=inputs.budget_units,
        domain=np.array(document["domain"], dtype=np.int64) if "domain" in document else None,
    )


def decide_plan(data: bytes) -> dict[str, Any]:
    """Compute the plan of encoded inputs, as a JSON document."""
    return compute_plan(decode_plan_inputs(data)).document()


def compute_plan(inputs: PlanInputs) -> MovePlan:
    """Compute the moves of a plan. Raises `PolicyFailedError` for a kind without a planner."""
    how: dict[str, Any] = {
        "limits": inputs.limits,
        "seed": inputs.seed,
        "budget_units": inputs.budget_units,
    }
    match inputs.kind:
        case "evacuate":
            hosts = _host_rows(inputs, inputs.arguments["hosts"])
            later = _host_rows(inputs, inputs.arguments.get("later", ()))
            return evacuate_before(inputs.running, hosts, set(later), **how)
        case "repair" | "mend" as kind:  # "mend": plans from before revision 0066
            return replace(repair(inputs.running, **how), policy=kind)
        case "balance":
            bound = {"most_gib": inputs.arguments.get("most_gib")}
            return balance(inputs.running, BALANCE_OBJECTIVE.with_given(bound), **how)
        case "pack":
            return pack(inputs.running, **how)
        case "room":
            request_id = inputs.arguments["request"]
            waiting = [key for key, _, _ in inputs.names.snapshot.requests]
            if request_id not in waiting:
                raise PolicyFailedError("room", f"finds no VM of request {request_id} that waits")
            running = inputs.running
            if inputs.domain is not None:
                running = state_without_spare(running, inputs.domain)
            return plan_room(running, waiting.index(request_id), **how)
        case _:
            raise PolicyFailedError(inputs.kind, "is no kind of plan that can be decided")


def _host_rows(inputs: PlanInputs, hosts: Sequence[str]) -> list[int]:
    """Return the rows of hosts by their names."""
    wanted = set(hosts)
    return [at for at, (_, name) in enumerate(inputs.names.snapshot.hosts) if name in wanted]
