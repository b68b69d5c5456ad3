"""Recompute a stored round and compare it with what was recorded."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controller.rounds.inputs import read_round_inputs
from controller.rounds.policy_process import PolicyProcess, ShadowRun
from placement.catalog.zone_policies import NamedPolicy
from registry import Registry
from registry.rounds import RoundRecord
from service.version import engine_version

REPLAY_TIME_S = 600.0
_SHOWN = 5  #: number of differing rows shown per key


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """Whether a replay gave the same outcome, bit for bit."""

    round: int
    identical: bool
    policy: str  #: the policy that decided: the round's own, or the fallback
    decided_by: str
    cut: bool  #: whether the budget cut the round
    seconds: float
    differences: tuple[str, ...]


def replay_round(
    registry: Registry, number: int, process: PolicyProcess | None = None
) -> ReplayResult:
    """Run the policy that decided round ``number`` again, in a new process.

    The process gets only the stored bytes. A caller that may have to kill it passes ``process``.
    The budget is counted in units of work, so a round that was cut is cut again.

    Raises
    ------
    NotFoundError
        If there is no such round.
    RoundPurgedError
        If its inputs are no longer kept.
    RoundDamagedError
        If its inputs or its outcome cannot be read.
    PolicyFailedError
        If the policy does not decide within ten minutes.
    """
    record = registry.rounds.get(number)
    stored = record.decision()
    policy = read_round_inputs(record).policy
    process = process or PolicyProcess()
    started = time.perf_counter()
    try:
        decision = process.decide(stored.inputs, policy=policy, deadline_s=REPLAY_TIME_S)
    finally:
        process.close()
    differences = tuple(outcome_differences(dict(stored.outcome), decision.document))
    return ReplayResult(
        round=number,
        identical=not differences,
        policy=policy,
        decided_by=record.decided_by,
        cut=record.cut,
        seconds=time.perf_counter() - started,
        differences=differences + _version_note(record, differences),
    )


def replay_round_game(
    registry: Registry, number: int, max_steps: int, process: PolicyProcess | None = None
) -> dict[str, Any]:
    """Recompute round ``number`` in a new process; return up to ``max_steps`` of its steps.

    Returns
    -------
    dict
        See `controller.rounds.game_steps.game_view`; ``identical`` and ``differences`` compare the
        recomputed outcome with the stored one.
    """
    record = registry.rounds.get(number)
    stored = record.decision()
    policy = read_round_inputs(record).policy
    process = process or PolicyProcess()
    try:
        answer = process.decide_in_steps(
            stored.inputs, max_steps, policy=policy, deadline_s=REPLAY_TIME_S
        )
    finally:
        process.close()
    differences = tuple(outcome_differences(dict(stored.outcome), answer["outcome"]))
    return {
        "round": number,
        "policy": policy,
        "decided_by": record.decided_by,
        "identical": not differences,
        "differences": differences + _version_note(record, differences),
        **answer["game"],
    }


def decide_again_by(
    registry: Registry,
    number: int,
    policy: str,
    parameters: Mapping[str, Any],
    process: PolicyProcess | None = None,
) -> dict[str, Any]:
    """Have another policy decide round ``number`` in a new process, without effect.

    Returns
    -------
    dict
        See `controller.shadow.child.decide_in_shadow`; the zones of the round keep their policies.

    Raises
    ------
    PolicyFailedError
        If there is no such policy, or it does not decide.
    """
    record = registry.rounds.get(number)
    stored = record.decision()
    read_round_inputs(record)  # refuses damaged inputs before the other policy could fail
    process = process or PolicyProcess()
    shadow = ShadowRun(
        inputs=stored.inputs,
        outcome=stored.outcome,
        policy=NamedPolicy(policy=policy, parameters=parameters),
    )
    try:
        answer = process.decide_in_shadow(shadow, deadline_s=REPLAY_TIME_S)
    finally:
        process.close()
    return {
        "round": number,
        "first_policy": record.policy,
        "policy": policy,
        "parameters": parameters,
        **answer,
    }


def outcome_differences(stored: dict[str, Any], recomputed: dict[str, Any]) -> list[str]:
    """Return texts about the differences between a stored outcome and its replay; empty: equal."""
    differences = []
    for key in sorted(stored.keys() | recomputed.keys()):
        before, after = stored.get(key), recomputed.get(key)
        if before == after:
            continue
        if isinstance(before, list) and isinstance(after, list):
            were, are = ({tuple(row) for row in rows} for rows in (before, after))
            gone = [row for row in before if tuple(row) not in are]
            new = [row for row in after if tuple(row) not in were]
            differences.append(
                f"{key}: {len(gone)} rows are missing {gone[:_SHOWN]}, "
                f"{len(new)} are new {new[:_SHOWN]}"
            )
        else:
            differences.append(
                f"{key}: stored {_short_text(before)}, recomputed {_short_text(after)}"
            )
    return differences


def _version_note(record: RoundRecord, differences: tuple[str, ...]) -> tuple[str, ...]:
    """Return a note if a replay differs and another version of fuga decided the round."""
    if not differences or record.engine_version == engine_version():
        return ()
    return (
        f"version {record.engine_version} decided the round, this is version {engine_version()}",
    )


def _short_text(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
