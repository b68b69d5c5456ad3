"""A second policy in shadow: it decides the same rounds, without effect.

It decides committed rounds again, in a separate thread and process, so that its failures affect no
round. If it is slower than the rounds, it skips some.
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

#: Maximum backlog: of more waiting rounds, only the newest are decided.
MAX_BEHIND: Final = 20
#: Rounds, API and monitor get the processor first.
NICENESS: Final = 5
_JOIN_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondPolicy:
    """The policy that decides in shadow, and its time limit."""

    name: str
    parameters: Mapping[str, Any]
    deadline_s: float
    zones: Mapping[str, NamedPolicy] | None = None  #: None: as the round has them


class ShadowCounters(Protocol):
    """Counts rounds of the second policy; see `ShadowMetrics`."""

    def count(self, shadow: NewShadowRound) -> None:
        """Count a round that the second policy decided, failed or skipped."""
        ...


class ShadowDecider:
    """Decides recorded rounds a second time while its control centre leads.

    It owns ``process``: no other code uses it, and `stop` ends it.
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
        """Start the thread that decides rounds by the second policy."""
        self._thread = threading.Thread(
            target=self._decide_until_stopped, name="shadow", daemon=True
        )
        self._thread.start()

    def nudge(self) -> None:
        """Wake the thread of the second policy after a round was committed."""
        self._woken.set()

    def stop(self) -> None:
        """Stop the thread of the second policy, and kill a decision under way."""
        self._stop.set()
        self._woken.set()
        while self._thread is not None and self._thread.is_alive():
            self._process.kill()
            self._thread.join(_JOIN_S)
        self._process.close()

    def decide_next(self) -> NewShadowRound | None:
        """Decide the next recorded round; None if there is none, or if another process leads."""
        lease = self._lease()
        due = None if lease is None else self._registry.shadows.next_due_round(MAX_BEHIND)
        if lease is None or due is None:
            return None
        shadow = self._decide_round(due.number, due.skipped)
        if self._stop.is_set():
            return None  # the decision may have been killed by `stop`
        try:
            self._registry.shadows.add(shadow, lease)
        except StaleEpochError:
            return None
        self._metrics.count(shadow)
        return shadow

    def _decide_round(self, number: int, skipped: int) -> NewShadowRound:
        """Decide a recorded round by the second policy; a failure becomes its ``error``."""
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
                zone_of=self._zones_by_host() if second.zones else {},
            )
            found = self._process.decide_in_shadow(shadow_run, deadline_s=second.deadline_s)
        except (PolicyFailedError, RoundPurgedError, RoundDamagedError) as error:
            log.warning("shadow_round_failed", round=number, policy=second.name, error=str(error))
            return NewShadowRound(**document, error=str(error))
        del found["requests"]  # only the shares are stored
        document |= found | {name: MeasuredDecision(**found[name]) for name in ("decided", "first")}
        return NewShadowRound(**document)

    def _zones_by_host(self) -> Mapping[str, str]:
        """Return the zone of each host, by the host's id as text."""
        return {str(key): zone for key, zone in self._registry.shadows.zones().items()}

    def _decide_until_stopped(self) -> None:
        """Decide due rounds by the second policy after each nudge until stopped."""
        while not self._stop.is_set():
            self._woken.wait(self._interval_s)
            self._woken.clear()
            try:
                while not self._stop.is_set() and self.decide_next() is not None:
                    pass
            except Exception:  # the next round is tried in any case
                log.exception("shadow_failed")
