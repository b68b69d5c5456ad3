"""The child process that runs policies; `controller.rounds.policy_process` is its parent."""

from __future__ import annotations

import functools
import gc
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from controller import debug
from controller.plans import dry_run
from controller.plans.plan_inputs import decide_plan
from controller.queries import capacity_after_queue, failure_survival
from controller.queries.reservation_decision import judge_reservation
from controller.queries.wait_forecast import estimate_waits
from controller.rounds.game_steps import decide_in_steps
from controller.rounds.inputs import allocation_document, decode_inputs
from controller.rounds.policy_process import (
    HEADER,
    Ideal,
    PolicyAnswer,
    PolicyFailure,
    encode_frame,
)
from controller.rounds.price_documents import prices_document
from controller.rounds.stdout_guard import capture_stdout
from controller.shadow.child import decide_in_shadow
from placement import (
    FloatArray,
    PlacementError,
    Snapshot,
    allocation_bound,
    shares_in_tree,
    target_holdings,
)
from placement.catalog.zone_policies import RoundPolicies
from placement.metrics.fair_holdings import fair_vms
from placement.metrics.prices import Prices, round_prices
from placement.model.spot import ordinary_snapshot

#: The bound of a round is computed on the same inputs right after its decision.
_inputs = functools.lru_cache(maxsize=1)(decode_inputs)


def decide(data: bytes) -> PolicyAnswer:
    """Run a round's policy on its encoded inputs, without requests that can never fit."""
    inputs = _inputs(data)
    who = RoundPolicies(policy=inputs.policy, parameters=inputs.parameters, zones=inputs.zones)
    started = time.perf_counter()
    allocation = inputs.decide_with(who)
    seconds = time.perf_counter() - started
    return PolicyAnswer(allocation_document(allocation), seconds)


def compute_ideal(snapshot: Snapshot, resource: int) -> Ideal:
    """Return the LP bound and the fair shares of a snapshot without its spot VMs."""
    snapshot = ordinary_snapshot(snapshot)
    targets = fair_vms(snapshot)
    holdings = target_holdings(snapshot, targets)
    nodes = () if snapshot.tree is None else shares_in_tree(snapshot.tree, holdings).tolist()
    return Ideal(
        bound=allocation_bound(snapshot, resource),
        target_shares=tuple(holdings.max(axis=1, initial=0.0).tolist()),
        node_targets=tuple(nodes),
        prices=prices_document(snapshot, _prices_or_error(snapshot, targets, resource), resource),
    )


def _prices_or_error(snapshot: Snapshot, targets: FloatArray, resource: int) -> Prices | str:
    """Compute the prices; return the error as text, because a round can do without prices."""
    try:
        return round_prices(snapshot, targets, resource)
    except PlacementError as error:
        return str(error)


def _decode_and_find_ideal(argument: tuple[bytes, int]) -> Ideal:
    data, resource = argument
    return compute_ideal(_inputs(data).snapshot, resource)


def _import_lp_solver(_: object) -> bool:
    """Import the LP solver before the first round needs it; other calls may never need it."""
    import scipy.optimize  # noqa: F401, PLC0415 - slow to import

    return True


_OPERATIONS: Final[Mapping[str, Callable[[Any], Any]]] = MappingProxyType(
    {
        "ready": _import_lp_solver,
        "decide": decide,
        "steps": decide_in_steps,
        "ideal": _decode_and_find_ideal,
        "plan": decide_plan,
        "shadow": decide_in_shadow,
        "estimates": estimate_waits,
        "survival": failure_survival.compute_survival,
        "capacity_in_turn": capacity_after_queue.capacity_after_round,
        "rehearse": dry_run.plan_turns,
        "judge_reservation": judge_reservation,
    }
)


#: The operations of a round, in order.
_OF_ROUNDS: Final = ("decide", "ideal")


def answer_request(operation: str, argument: Any) -> Any:
    """Run an operation for the parent process; return a `PolicyFailure` if it raised."""
    if operation not in _OPERATIONS:
        return PolicyFailure(f"unknown operation {operation!r}")
    try:
        return _OPERATIONS[operation](argument)
    except Exception as error:
        if debug.tracebacks_enabled():
            traceback.print_exc()
        return PolicyFailure(f"{type(error).__name__}: {error}")


def main() -> None:
    """Answer the parent until it closes our standard input.

    The garbage collector is off while an operation of a round runs: one collection traverses
    all imported modules and takes longer than placing a VM. It runs after the round's last
    operation.
    """
    stdin, stdout = sys.stdin.buffer, capture_stdout()
    gc.collect()
    gc.freeze()
    while header := stdin.read(HEADER.size):
        (length,) = HEADER.unpack(header)
        gc.disable()
        operation, argument = pickle.loads(stdin.read(length))  # noqa: S301 our own parent
        if operation not in _OF_ROUNDS:
            gc.enable()
        stdout.write(encode_frame(answer_request(operation, argument)))
        stdout.flush()
        del argument
        if operation == _OF_ROUNDS[-1]:
            gc.collect()
        gc.enable()


if __name__ == "__main__":
    main()
