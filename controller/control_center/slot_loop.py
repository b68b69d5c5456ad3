"""The control centre: runs one round at the start of each slot while it leads."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import FrameType

import structlog

from controller.control_center.budget_meter import BudgetMeter
from controller.control_center.capacity_sampler import CapacitySampler
from controller.control_center.clock_watch import ClockWatch, lease_lengths
from controller.control_center.dispatch import Dispatcher
from controller.control_center.failures import FailedHosts
from controller.control_center.leadership import Leadership
from controller.control_center.metrics import SlotMetrics
from controller.control_center.purge import Purger
from controller.control_center.reservation_decider import ReservationDecider
from controller.control_center.steady_clock import SteadyClock
from controller.errors import SlotSkippedError
from controller.fleet_metrics import FleetCollector
from controller.fork_server.children import StartChild
from controller.fork_server.client import ForkServer
from controller.plans.executor import PlanExecutor, Planning
from controller.plans.plan_inputs import build_move_limits
from controller.plans.room_plans import RoomRule
from controller.plans.spare_watch import SpareWatch
from controller.policies import check_policies
from controller.rounds.inputs import RoundCache
from controller.rounds.interfaces import PolicyChoice, Slot
from controller.rounds.policy_process import PRELOADED, PolicyProcess
from controller.rounds.round import run_round
from controller.settings import ControllerSettings, ZonePolicy
from controller.shadow.metrics import ShadowMetrics
from controller.shadow.shadow_decider import NICENESS, SecondPolicy, ShadowDecider
from controller.worker_queue import CeleryQueue
from placement.catalog.zone_policies import NamedPolicy
from placement.constraints.starving_requests import room_patience
from registry import Registry, SlotLoopPausedError, StaleEpochError
from registry.db import checkpoint
from registry.hosts import FailurePolicy
from registry.rounds import HeadSigner, Lease
from service import Check, ProcessMetrics, database_check, listening
from service.certificates import watching_certificates
from service.heartbeat import sending_heartbeats
from service.process_log import begin_log
from service.systemd_notify import supervised

#: Interval at which the loop checks the clock while it waits for the next slot.
_TURN_S = 1.0

log = structlog.get_logger()


class SlotLoopRunner:
    """Waits for the start of each slot and runs its round while it leads."""

    def __init__(
        self,
        registry: Registry,
        leadership: Leadership,
        decider: PolicyProcess,
        choice: PolicyChoice,
        *,
        slot_length_s: float,
        on_committed: Callable[[], None],
        metrics: SlotMetrics,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._registry = registry
        self._leadership = leadership
        self._decider = decider
        self._choice = choice
        self._slot_length_s = slot_length_s
        self._on_committed = on_committed
        self._metrics = metrics
        self._now = now
        self._kept = RoundCache()
        self.turned_at = time.monotonic()

    def run(self, stop: threading.Event) -> None:
        """Wait for each slot and run its round until stopped."""
        while not stop.is_set():
            start = self.next_start()
            while (left_s := start - self._now()) > 0:
                self.turned_at = time.monotonic()
                if left_s > self._slot_length_s + _TURN_S:  # the clock was set back
                    start = self.next_start()
                elif stop.wait(min(left_s, _TURN_S)):
                    return
            self.turned_at = time.monotonic()
            lease = self._current_lease()
            if lease is None:
                self._metrics.count_slot("not_leading")
            else:
                # A round may take as long as policy, fallback and bound are given.
                self.turned_at = time.monotonic() + self._choice.max_time_s
                self.run_slot(
                    Slot(start_at=datetime.fromtimestamp(start, UTC), length_s=self._slot_length_s),
                    lease,
                )

    def next_start(self) -> float:
        """Return the next slot's start: a whole multiple of the slot length since the epoch."""
        return (self._now() // self._slot_length_s + 1) * self._slot_length_s

    def run_slot(self, slot: Slot, lease: Lease) -> None:
        """Run the round of one slot; log every error, and continue the loop."""
        structlog.contextvars.bind_contextvars(slot=slot.start_at.isoformat())
        try:
            report = run_round(
                slot,
                lease,
                self._choice,
                store=self._registry.rounds,
                decider=self._decider,
                running=self._registry.plans,
                kept=self._kept,
            )
            if report is None:
                self._metrics.count_slot("idle")
                self._record_idle_slot(slot)
                return
            self._metrics.count_round(report)
            checkpoint("round.after_commit")
            self._on_committed()
            for request_id, keys in report.assignments.items():
                log.info(
                    "request_placed",
                    round=report.number,
                    request_id=str(request_id),
                    vms=len(keys),
                    assignments=[str(key) for key in keys],
                )
            log.info(
                "round_finished",
                round=report.number,
                decided_by=report.decided_by,
                placed=report.placed,
                left_out=report.left_out,
                dropped=report.dropped,
                duration_s=round(report.duration_s, 4),
            )
        except StaleEpochError:
            self._metrics.count_slot("lease_lost")
            self._leadership.forget(lease)
        except SlotLoopPausedError as error:
            self._metrics.count_slot("paused")
            log.info("slot_paused", reason=error.reason)
        except SlotSkippedError as error:
            self._metrics.count_slot("skipped")
            log.error("slot_skipped", alert=True, reasons=error.reasons)
            self._registry.events.add(
                actor="control",
                kind="slot_skipped",
                subject_type="slot",
                subject_id=slot.start_at.isoformat(),
                reason=str(error),
            )
        except Exception:  # tenants' VMs run on whatever happens here; the next slot tries again
            self._metrics.count_slot("failed")
            log.exception("round_failed", alert=True)
        finally:
            structlog.contextvars.unbind_contextvars("slot")

    def _record_idle_slot(self, slot: Slot) -> None:
        """Record that an idle slot was decided; a failure to record it is only logged."""
        try:
            self._registry.slot_loop.record_decided_slot(slot.start_at, slot.length_s)
        except Exception as error:
            log.warning("slot_not_noted", error=type(error).__name__)

    def _current_lease(self) -> Lease | None:
        """Return the lease, or None if another process leads or the database is away."""
        try:
            return self._leadership.take()
        except Exception:  # a database that is away for a moment
            log.exception("lease_not_taken")
            return None


def policy_choice(settings: ControllerSettings) -> PolicyChoice:
    """Return the policies of the settings, which `check_policies` has checked."""
    return PolicyChoice(
        name=settings.policy,
        parameters=settings.policy_parameters,
        budget_units=settings.budget_units,
        decision_time_s=settings.decision_time_s,
        seed=settings.seed,
        zones=_named_policies(settings.zone_policies),
        spare=settings.spare,
        spot_grace_s=settings.spot_grace_s,
        spot_margin=settings.spot_margin,
        room_hold_s=settings.room_hold_s,
        memory_s=settings.fairness_memory_s,
        makes_room=_build_room_rule(settings) is not None,
    )


def _named_policies(zones: Mapping[str, ZonePolicy]) -> dict[str, NamedPolicy]:
    """Return the policies of zones in the form that rounds take."""
    return {
        name: NamedPolicy(policy=zone.policy, parameters=zone.parameters)
        for name, zone in zones.items()
    }


def build_planning(settings: ControllerSettings) -> Planning:
    """Build the settings by which plans of moves are decided and carried out."""
    return Planning(
        limits=build_move_limits(settings),
        rest_s=settings.plan_rest_s,
        seed=settings.seed or 0,
        budget_units=settings.plan_budget_units,
        deadline_s=settings.plan_deadline_s,
        room_hold_s=settings.room_hold_s,
        balance=settings.balance,
        room=_build_room_rule(settings),
        spare=settings.spare,
    )


def _build_room_rule(settings: ControllerSettings) -> RoomRule | None:
    """Build the rule by which moves make room for starving requests; None if it is off."""
    patience = room_patience(settings.policy_parameters)
    if settings.make_room == "off" or patience == 0:  # then no request is said to starve
        return None
    return RoomRule(how=settings.make_room, patience=patience, rest_s=settings.plan_rest_s)


def build_shadow_decider(
    settings: ControllerSettings,
    registry: Registry,
    leadership: Leadership,
    metrics: ProcessMetrics,
    start_child: StartChild,
) -> ShadowDecider | None:
    """Build the decider of the shadow policy; return None if the settings name none."""
    if settings.shadow_policy is None:
        return None
    zones = settings.shadow_zone_policies
    return ShadowDecider(
        registry,
        lambda: leadership.lease,
        SecondPolicy(
            name=settings.shadow_policy,
            parameters=settings.shadow_parameters,
            deadline_s=settings.shadow_deadline_s or settings.slot_length_s,
            zones=None if zones is None else _named_policies(zones),
        ),
        process=PolicyProcess(niceness=NICENESS, start=start_child),
        metrics=ShadowMetrics(metrics),
        interval_s=settings.slot_length_s,
    )


def build_spare_watch(
    settings: ControllerSettings, registry: Registry, leadership: Leadership, metrics: SlotMetrics
) -> SpareWatch | None:
    """Build the watch of spare capacity; return None if the settings ask for none."""
    if settings.spare is None:
        return None
    return SpareWatch(
        registry,
        lambda: leadership.lease,
        settings.spare,
        interval_s=settings.spare_interval_s,
        report=metrics.set_spare,
    )


def build_reservation_decider(
    settings: ControllerSettings,
    registry: Registry,
    leadership: Leadership,
    start_child: StartChild,
) -> ReservationDecider:
    """Build the decider of pending reservations, which works while this control centre leads."""
    return ReservationDecider(
        registry,
        lambda: leadership.lease,
        PolicyProcess(niceness=NICENESS, start=start_child),
        interval_s=settings.sweep_interval_s,
    )


def _connect_with_signer(settings: ControllerSettings) -> Registry:
    registry = Registry.connect(settings.resolved_database_url())
    registry.rounds.signer = HeadSigner(settings.resolved_signing_key())
    registry.rounds.signer.warm_up()
    return registry


def main(settings: ControllerSettings | None = None) -> None:
    """Run the control centre until SIGTERM or SIGINT."""
    settings = settings or ControllerSettings()
    check_policies(settings)
    metrics = ProcessMetrics("control")
    begin_log(settings, metrics)
    slot_metrics = SlotMetrics(metrics)
    registry = _connect_with_signer(settings)
    stop = threading.Event()

    def stop_on_signal(signum: int, frame: FrameType | None) -> None:
        stop.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, stop_on_signal)

    holder = f"{socket.gethostname()}:{os.getpid()}"
    leadership = Leadership(registry, holder, settings.lease_s)
    slot_metrics.follow_leadership(leadership)
    metrics.registry.register(
        FleetCollector(
            registry, interval_s=settings.metrics_interval_s, max_series=settings.metrics_most
        )
    )
    children = ForkServer(PRELOADED)
    decider = PolicyProcess(start=children.fork)
    decider.warm_up()
    dispatcher = Dispatcher(
        registry,
        CeleryQueue(settings),
        interval_s=settings.sweep_interval_s,
        resend_after_s=settings.resend_after_s,
        build_timeout_s=settings.build_timeout_s,
        on_sent=slot_metrics.count_message,
        clock=SteadyClock.begin(registry),
    )
    slot_metrics.follow_sweep(lambda: dispatcher.age_s)
    purger = Purger(
        registry,
        lambda: leadership.lease,
        settings.periods,
        interval_s=settings.purge_interval_s,
        clock=dispatcher.clock,
    )
    failed_hosts = FailedHosts(
        registry,
        lambda: leadership.lease,
        by_default=FailurePolicy(settings.on_failure),
        interval_s=settings.sweep_interval_s,
    )
    plans = PlanExecutor(
        registry,
        lambda: leadership.lease,
        PolicyProcess(start=children.fork),
        build_planning(settings),
        interval_s=settings.sweep_interval_s,
        on_requested=dispatcher.nudge,
        on_standing=slot_metrics.count_auto_plan,
    )
    shadow = build_shadow_decider(settings, registry, leadership, metrics, children.fork)
    watch = build_spare_watch(settings, registry, leadership, slot_metrics)

    def on_committed() -> None:
        dispatcher.nudge()
        if shadow is not None:
            shadow.nudge()

    loop = SlotLoopRunner(
        registry,
        leadership,
        decider,
        policy_choice(settings),
        slot_length_s=settings.slot_length_s,
        on_committed=on_committed,
        metrics=slot_metrics,
    )
    threads = [
        threading.Thread(target=leadership.renew_until_stopped, args=(stop,), name="lease"),
        threading.Thread(target=dispatcher.run, args=(stop,), name="sweep"),
        threading.Thread(target=purger.run, args=(stop,), name="purge"),
        threading.Thread(
            target=CapacitySampler(registry, lambda: leadership.lease, dispatcher.clock).run,
            args=(stop,),
            name="capacity",
        ),
        threading.Thread(
            target=BudgetMeter(registry, lambda: leadership.lease, dispatcher.clock).run,
            args=(stop,),
            name="budgets",
        ),
        threading.Thread(target=failed_hosts.run, args=(stop,), name="failed-hosts"),
        threading.Thread(target=plans.run, args=(stop,), name="plans"),
        threading.Thread(
            target=ClockWatch(registry, lambda: leadership.lease, lease_lengths(settings)).run,
            args=(stop,),
            name="clock",
        ),
        threading.Thread(
            target=build_reservation_decider(settings, registry, leadership, children.fork).run,
            args=(stop,),
            name="reservations",
        ),
        *(
            []
            if watch is None
            else [threading.Thread(target=watch.run, args=(stop,), name="spare")]
        ),
    ]

    def readiness_checks() -> list[Check]:
        return [database_check(registry), leadership.check(), dispatcher.check()]

    try:
        with (
            # The address may be taken: no thread has begun, and no lease is taken before.
            listening(settings.metrics_address("control"), metrics, ready=readiness_checks),
            sending_heartbeats(
                registry, "control", holder, ready=readiness_checks, settings=settings
            ),
            watching_certificates(settings, metrics),
            supervised(readiness_checks, lambda: loop.turned_at),
        ):
            for thread in threads:
                thread.start()
            if shadow is not None:
                shadow.start()
            log.info("control_centre_started", holder=holder, slot_length_s=settings.slot_length_s)
            loop.run(stop)
    finally:
        stop.set()
        if shadow is not None:
            shadow.stop()
        dispatcher.nudge()
        for thread in (each for each in threads if each.ident is not None):
            thread.join()
        leadership.release()
        children.close()
        registry.close()
        log.info("control_centre_stopped")


if __name__ == "__main__":
    main()
