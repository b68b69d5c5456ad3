"""A second policy in shadow: it decides the same rounds, without effect.

It works on rounds that are committed and recorded, in a thread and a process of its own,
so that nothing it does or fails to do reaches a round. Where it is slower than rounds
follow each other, it passes some over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog

from controller.errors import PolicyFailedError
from controller.rounds.policy_process import PolicyProcess, ShadowRun
from placement.catalog.zone_policies import NamedPolicy
from registry import Registry, RoundDamagedError, RoundPurgedError, StaleEpochError
from registry.rounds import Lease, MeasuredDecision, NewShadowRound

log = structlog.get_logger()

#: Of more rounds that wait for it, only the newest are decided.
MAX_BEHIND: Final = 20
#: Below rounds, API and monitor, where these want the processor.
NICENESS: Final = 5
_JOIN_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondPolicy:
    """Which policy decides in shadow, and for how long it may."""

    name: str
    parameters: Mapping[str, Any]
    deadline_s: float
    zones: Mapping[str, NamedPolicy] | None = None  #: None: as the round has them


class ShadowCounters(Protocol):
    """Counts what the second policy did; see `ShadowMetrics`."""

    def count(self, shadow: NewShadowRound) -> None:
        """Count a round."""
        ...


class ShadowDecider:
    """Decides recorded rounds a second time while its control centre leads.

    ``process`` belongs to it: no other code uses it, and it ends with this.
    """

    def __init__(
        self,
        registry: Registry,
        lease: Callable[[], Lease | None],
        second: SecondPolicy,
        *,
        process: PolicyProcess,
        metrics: ShadowCounters,
        interval_s: float,
    ) -> None:
        self._registry = registry
        self._lease = lease
        self._second = second
        self._metrics = metrics
        self._interval_s = interval_s
        self._process = process
        self._woken = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="shadow", daemon=True)
        self._thread.start()

    def nudge(self) -> None:
        """Note that a round was committed; return at once."""
        self._woken.set()

    def stop(self) -> None:
        """End, also in the middle of a decision."""
        self._stop.set()
        self._woken.set()
        while self._thread is not None and self._thread.is_alive():
            self._process.kill()
            self._thread.join(_JOIN_S)
        self._process.close()

    def decide_next(self) -> NewShadowRound | None:
        """Decide the next recorded round; None: there is none, or others lead."""
        lease = self._lease()
        due = None if lease is None else self._registry.shadows.due(MAX_BEHIND)
        if lease is None or due is None:
            return None
        shadow = self._decide_round(due.number, due.skipped)
        if self._stop.is_set():
            return None  # it may have been killed for that
        try:
            self._registry.shadows.add(shadow, lease)
        except StaleEpochError:
            return None
        self._metrics.count(shadow)
        return shadow

    def _decide_round(self, number: int, skipped: int) -> NewShadowRound:
        second = self._second
        document: dict[str, Any] = {
            "round": number,
            "policy": second.name,
            "parameters": second.parameters,
            "skipped": skipped,
        }
        try:
            stored = self._registry.rounds.get(number).decision()
            shadow_run = ShadowRun(
                inputs=stored.inputs,
                outcome=stored.outcome,
                policy=NamedPolicy(policy=second.name, parameters=second.parameters),
                zones=second.zones,
                zone_of=self._zones() if second.zones else {},
            )
            found = self._process.decide_in_shadow(shadow_run, deadline_s=second.deadline_s)
        except (PolicyFailedError, RoundPurgedError, RoundDamagedError) as error:
            log.warning("shadow_round_failed", round=number, policy=second.name, error=str(error))
            return NewShadowRound(**document, error=str(error))
        del found["requests"]  # those of tenants are kept
        document |= found | {name: MeasuredDecision(**found[name]) for name in ("decided", "first")}
        return NewShadowRound(**document)

    def _zones(self) -> Mapping[str, str]:
        """Return the zone of each host, by its id as inputs have it."""
        return {str(key): zone for key, zone in self._registry.shadows.zones().items()}

    def _run(self) -> None:
        while not self._stop.is_set():
            self._woken.wait(self._interval_s)
            self._woken.clear()
            try:
                while not self._stop.is_set() and self.decide_next() is not None:
                    pass
            except Exception:  # whatever it is, rounds go on, and so does this with the next
                log.exception("shadow_failed")
