"""Estimates of waiting times of requests, made on demand and cached for a while.

One forecast at a time is made for all waiting requests, in a child process of low priority. Calls
during a forecast get the previous estimate, or learn that one is being made. A forecast writes
nothing, and no round waits for it (ADR 0063).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal
from uuid import UUID

import structlog

from controller.errors import PolicyFailedError
from controller.fork_server.children import StartChild, start_interpreter
from controller.queries.wait_forecast import Estimates, ForecastQuery
from controller.rounds.policy_process import PolicyProcess
from placement.forecast.estimate import WaitEstimate
from placement.forecast.lifetimes import MIN_ENDS
from registry import Registry, RegistryError
from registry.rounds import ForecastInputs

log = structlog.get_logger()

#: Time for the samples of one forecast.
TIME_S: Final = 20.0
#: Additional time for the process to start and to turn rows into arrays.
_MORE_S: Final = 60.0
#: Time for which a forecast is served, at least; and as a multiple of the time that it took.
FRESH_S: Final = 60.0
_TIMES_LONGER: Final = 10.0
#: Time for which a call waits for a forecast.
PATIENCE_S: Final = 3.0
_MAX_WAITING_CALLS: Final = 4
#: Rounds, API and monitor get the processor first.
NICENESS: Final = 10

WhyUnavailable = Literal[
    "being_made",
    "too_little_known",
    "too_large",
    "not_decided",
    "new",
    "failed",
    "not_deciding",
    "spot",
    "budget",
]
_WHY: Final[dict[WhyUnavailable, str]] = {
    "being_made": "an estimate of how long it waits is being made; ask again in a minute",
    "new": "an estimate of how long it waits is being made; ask again in a minute",
    "too_little_known": "too little is known of how long VMs live to say how long it waits",
    "too_large": "there was no time for an estimate of how long it waits: too much runs and waits",
    "not_decided": "no round has decided yet, so nothing is known of how long it waits",
    "failed": "no estimate of how long it waits could be made; operators: see the API's log",
    "spot": "spot VMs wait until no other VM needs the room: no estimate is made for them",
    "budget": "it waits for the next month (UTC) or a higher budget: no estimate is made",
    "not_deciding": "nothing is decided now, so its waiting time is not known",
}
#: Durations are rounded up to these steps: seconds, minutes, hours, days.
_STEPS_S: Final = (
    *(5, 10, 15, 20, 30, 45),
    *(60 * each for each in (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50)),
    *(3600 * each for each in (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18)),
    *(86_400 * each for each in (1, 1.5, 2, 3, 4, 5, 6, 7)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingTime:
    """The estimated time from `made_at` on until the last VM of a request is placed."""

    message: str
    unavailable: WhyUnavailable | None  #: None: there is an estimate
    made_at: datetime | None = None
    median_s: float | None = None  #: half of the samples placed it within this; None: later
    p90_s: float | None = None  #: nine in ten samples; None: later than the horizon, or never
    #: nine in ten samples lie between these; None: beyond the horizon
    from_s: float | None = None
    to_s: float | None = None
    horizon_s: float | None = None  #: length of the simulated future
    samples: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _CachedEstimate:
    """A forecast for all requests that waited at a time, or the reason why there is none."""

    at: datetime | None
    until: float  #: end of its use, by the monotonic clock
    estimates: Estimates | None = None
    unavailable: WhyUnavailable | None = None


class WaitingTimes:
    """Makes forecasts and caches the last one. Safe to share between threads."""

    def __init__(
        self,
        registry: Registry,
        *,
        process: Callable[[], PolicyProcess] | None = None,
        start: StartChild = start_interpreter,
    ) -> None:
        self._registry = registry
        self._process = process or (lambda: PolicyProcess(niceness=NICENESS, start=start))
        self._lock = threading.Lock()
        self._made: _CachedEstimate | None = None
        self._making: threading.Event | None = None
        #: limits the calls that wait, as they occupy threads: others are answered at once
        self._waiting = threading.Semaphore(_MAX_WAITING_CALLS)

    def waiting_time(self, request_id: UUID, patience_s: float = PATIENCE_S) -> WaitingTime:
        """Return the estimated wait of a request; start a new forecast if the last is old."""
        with self._lock:
            made = self._made
            making = self._making
            if making is None and (made is None or time.monotonic() > made.until):
                making = self._making = threading.Event()
                threading.Thread(
                    target=self._make_forecast, args=(making,), name="estimates", daemon=True
                ).start()
        if making is not None and self._waiting.acquire(blocking=False):
            try:
                made = self._made if making.wait(patience_s) else made
            finally:
                self._waiting.release()
        if made is None:
            return missing_estimate("being_made")
        return _cached_waiting_time(made, request_id)

    def _make_forecast(self, done: threading.Event) -> None:
        """Make a forecast for all waiting requests and cache it; then set ``done``."""
        began = time.monotonic()
        at, estimates, why = None, None, None
        try:
            if self._registry.cluster_queries.can_forecast():
                view = self._registry.cluster_queries.forecast_inputs()
                at, why = view.cluster.now, unavailable_reason(view)
                if why is None:
                    estimates = self._compute_estimates(view)
                    why = None if estimates.of else "too_large"
            else:  # on a large site, reading that view takes a second
                at, why = self._registry.now(), "not_decided"
        except (PolicyFailedError, RegistryError) as error:
            log.warning("no_estimate_of_waiting_times", error=str(error))
            why = "failed"
        except Exception:  # whatever it is, callers learn that there is no estimate
            log.exception("no_estimate_of_waiting_times")
            why = "failed"
        now = time.monotonic()
        until = now + max(FRESH_S, _TIMES_LONGER * (now - began))
        with self._lock:
            self._made = _CachedEstimate(at=at, until=until, estimates=estimates, unavailable=why)
            self._making = None
        done.set()

    def _compute_estimates(self, view: ForecastInputs) -> Estimates:
        """Compute a forecast in a child process of its own."""
        process = self._process()
        try:
            found: Estimates = process.estimates(
                ForecastQuery(view=view, time_s=TIME_S), deadline_s=TIME_S + _MORE_S
            )
        finally:
            process.close()
        return found


def unavailable_reason(view: ForecastInputs) -> WhyUnavailable | None:
    """Return the reason why no forecast of waiting times can be made, or None."""
    if view.inputs is None or view.slot_length_s is None:
        return "not_decided"
    if sum(life.ended for life in view.lives) < MIN_ENDS:
        return "too_little_known"
    return None


def missing_estimate(why: WhyUnavailable, at: datetime | None = None) -> WaitingTime:
    """Return a waiting time without an estimate, with the reason."""
    return WaitingTime(message=_WHY[why], unavailable=why, made_at=at)


def _cached_waiting_time(made: _CachedEstimate, request_id: UUID) -> WaitingTime:
    """Return the estimated wait of a request from a cached forecast."""
    if made.estimates is None or made.unavailable is not None:
        return missing_estimate(made.unavailable or "failed", made.at)
    estimate = made.estimates.of.get(request_id)
    if estimate is None:
        return missing_estimate("new", made.at)
    return waiting_time(estimate, made.estimates.horizon_s, made.at)


def waiting_time(estimate: WaitEstimate, horizon_s: float, at: datetime | None) -> WaitingTime:
    """Return an estimated wait with coarsely rounded times, which hide other tenants' VMs."""
    median_s, p90_s = round_duration(estimate.half_s), round_duration(estimate.nine_in_ten_s)
    return WaitingTime(
        message=_estimate_message(median_s, p90_s, horizon_s),
        unavailable=None,
        made_at=at,
        median_s=median_s,
        p90_s=p90_s,
        from_s=round_duration(estimate.low_s, up=False),
        to_s=round_duration(estimate.high_s),
        horizon_s=horizon_s,
        samples=estimate.samples,
    )


def round_duration(seconds: float | None, *, up: bool = True) -> float | None:
    """Round a waiting time in seconds up to the next coarse step, or down if not ``up``."""
    if seconds is None:
        return None
    if up:
        return float(next((each for each in _STEPS_S if each >= seconds), _STEPS_S[-1]))
    return float(max((each for each in _STEPS_S if each <= seconds), default=0))


def _estimate_message(median_s: float | None, p90_s: float | None, horizon_s: float) -> str:
    """Return an estimated wait as a sentence."""
    if median_s is None:
        return (
            f"fewer than half of such requests had their place within {_duration_text(horizon_s)}:"
            " it may wait for longer, or for ever"
        )
    half = f"half of such requests had their place within {_duration_text(median_s)}, "
    if p90_s is None:
        return f"{half}fewer than nine in ten within {_duration_text(horizon_s)}"
    return f"{half}nine in ten within {_duration_text(p90_s)}"


def _duration_text(seconds: float) -> str:
    units = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
    for unit, length in units:
        if seconds >= length:
            number = f"{seconds / length:g}"
            return f"{number} {unit}" + ("" if number == "1" else "s")
    return "0 seconds"
