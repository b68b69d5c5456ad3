"""Runs policies in a child process that is killed when it exceeds its time.

The child is a new interpreter, or a fork of a server that has imported all modules
(`controller.fork_server`). This module is the parent's side, and
`controller.control_center.policy_child` the child's. Messages are frames: 8 bytes of length, then a
pickle.
"""

from __future__ import annotations

import os
import pickle
import select
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from controller.errors import PolicyFailedError
from controller.fork_server.children import Child, StartChild, make_nice, start_interpreter
from placement.catalog.zone_policies import NamedPolicy

HEADER = struct.Struct("!Q")
#: Time limit of the child's imports. A shorter one would restart it for ever on a slow machine.
_START_TIME_S = 600.0
_CHUNK = 1 << 20
_CHILD = "controller.control_center.policy_child"
#: Modules that a fork server imports for children that run policies.
PRELOADED = (_CHILD, "scipy.optimize")


@dataclass(frozen=True, slots=True)
class PolicyAnswer:
    """A decision of the policies' child: the allocation as a JSON document, and its time."""

    document: dict[str, Any]
    seconds: float


@dataclass(frozen=True, slots=True)
class Ideal:
    """What a round's decision is compared with: the LP bound, fair shares and prices."""

    bound: float  #: maximum of one resource that could be placed
    target_shares: tuple[float, ...]  #: fair dominant share of each tenant
    node_targets: tuple[float, ...] = ()  #: fair share of each node of the tenant tree, if any
    prices: Mapping[str, Any] | None = None  #: as `controller.rounds.price_documents` returns them


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowRun:
    """A round for another policy to decide in shadow."""

    inputs: bytes
    outcome: Mapping[str, Any]  #: of the round
    policy: NamedPolicy
    zones: Mapping[str, NamedPolicy] | None = None  #: None: as the round has them
    zone_of: Mapping[str, str] = field(default_factory=dict)  #: of hosts, by id, for ``zones``


@dataclass(frozen=True, slots=True)
class PolicyFailure:
    """The child's answer when a policy raised."""

    message: str


def encode_frame(message: object) -> bytes:
    """Encode a message for the pipe between parent and child: its length, then its pickle."""
    data = pickle.dumps(message)
    return HEADER.pack(len(data)) + data


class PolicyProcess:
    """The parent's handle of one child process; it is killed and replaced when it overruns."""

    def __init__(self, *, niceness: int = 0, start: StartChild = start_interpreter) -> None:
        self._child: Child | None = None
        self._niceness = niceness
        self._start = start

    def warm_up(self) -> None:
        """Start the child, so that its imports are done before a round needs it."""
        self._call_child("ready", None, _START_TIME_S, policy="process")

    def decide(self, data: bytes, *, policy: str, deadline_s: float) -> PolicyAnswer:
        """Run the policy that encoded inputs name, within ``deadline_s``.

        Raises
        ------
        PolicyFailedError
            If the policy exceeded its time and was killed, or failed.
        """
        if self._child is None or self._child.poll() is not None:
            self.warm_up()
        decision: PolicyAnswer = self._call_child("decide", data, deadline_s, policy=policy)
        return decision

    def ideal(self, data: bytes, *, resource: int, deadline_s: float) -> Ideal:
        """Return the LP bound on the placeable amount of one resource, and the fair shares."""
        ideal: Ideal = self._call_child("ideal", (data, resource), deadline_s, policy="ideal")
        return ideal

    def decide_in_shadow(self, shadow: ShadowRun, *, deadline_s: float) -> dict[str, Any]:
        """Decide a round's inputs by another policy, and compare with the round's decision.

        See `controller.shadow.child.decide_in_shadow`. Raises `PolicyFailedError` as `decide` does.
        """
        if self._child is None or self._child.poll() is not None:
            self.warm_up()
        answer: dict[str, Any] = self._call_child(
            "shadow", shadow, deadline_s, policy=shadow.policy.policy
        )
        return answer

    def decide_in_steps(
        self, data: bytes, max_steps: int, *, policy: str, deadline_s: float
    ) -> dict[str, Any]:
        """Return a decision step by step, with up to ``max_steps`` steps.

        See `controller.rounds.game_steps.decide_in_steps`. Raises `PolicyFailedError` as `decide`
        does.
        """
        if self._child is None or self._child.poll() is not None:
            self.warm_up()
        answer: dict[str, Any] = self._call_child(
            "steps", (data, max_steps), deadline_s, policy=policy
        )
        return answer

    def plan(self, data: bytes, *, kind: str, deadline_s: float) -> dict[str, Any]:
        """Return the plan of moves for encoded inputs, as a JSON document.

        See `controller.plans.plan_inputs.decide_plan`. Raises `PolicyFailedError` as `decide` does.
        """
        if self._child is None or self._child.poll() is not None:
            self.warm_up()
        answer: dict[str, Any] = self._call_child("plan", data, deadline_s, policy=kind)
        return answer

    def estimates(self, question: object, *, deadline_s: float) -> Any:
        """Return estimated waiting times; see `controller.queries.wait_forecast.estimate_waits`.

        Raises `PolicyFailedError` as `decide` does.
        """
        if self._child is None or self._child.poll() is not None:
            self.warm_up()
        return self._call_child("estimates", question, deadline_s, policy="estimates")

    def survival(self, inputs: object, *, deadline_s: float) -> Any:
        """Return which failure domains may fail; see `controller.queries.failure_survival`.

        Raises `PolicyFailedError` as `decide` does. ``deadline_s`` includes the start of the child.
        """
        return self._call_child("survival", inputs, deadline_s, policy="survival")

    def capacity_in_turn(self, question: object, *, deadline_s: float) -> Any:
        """Return the capacity after the queue; see `controller.queries.capacity_after_queue`.

        Raises `PolicyFailedError` as `decide` does. ``deadline_s`` includes the start of the child.
        """
        return self._call_child("capacity_in_turn", question, deadline_s, policy="capacity")

    def dry_run(self, preview: object, *, deadline_s: float) -> Any:
        """Return the result of a dry run of a roll; see `controller.plans.dry_run`.

        Raises `PolicyFailedError` as `decide` does. ``deadline_s`` includes the start of the child.
        """
        return self._call_child("rehearse", preview, deadline_s, policy="rehearsal")

    def judge_reservation(self, question: object, *, deadline_s: float) -> Any:
        """Judge a reservation; see `controller.queries.reservation_decision`.

        Raises `PolicyFailedError` as `decide` does.
        """
        if self._child is None or self._child.poll() is not None:
            self.warm_up()
        return self._call_child("judge_reservation", question, deadline_s, policy="reservation")

    def kill(self) -> None:
        """Kill the child process at once, from any thread."""
        child = self._child
        if child is not None:
            child.kill()

    def close(self) -> None:
        """End the child process."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def _call_child(
        self, operation: str, argument: object, deadline_s: float, *, policy: str
    ) -> Any:
        """Have the child do an operation, and return its answer; kill it after ``deadline_s``."""
        deadline = time.monotonic() + deadline_s
        try:
            child = self._running_child(deadline)
            _send_frame(child.stdin, encode_frame((operation, argument)), deadline)
            (length,) = HEADER.unpack(_receive_frame(child.stdout, HEADER.size, deadline))
            answer = pickle.loads(_receive_frame(child.stdout, length, deadline))  # noqa: S301 our child
        except TimeoutError:
            self.close()
            raise PolicyFailedError(
                policy, f"exceeded its time of {deadline_s:g} s and was killed"
            ) from None
        except (OSError, EOFError) as error:
            self.close()
            raise PolicyFailedError(policy, f"ended without an answer ({error})") from error
        if isinstance(answer, PolicyFailure):
            raise PolicyFailedError(policy, f"failed: {answer.message}")
        return answer

    def _running_child(self, deadline: float) -> Child:
        """Return the child process; start one if there is none or it has ended."""
        if self._child is not None and self._child.poll() is not None:
            self.close()
        if self._child is None:
            self._child = self._start(_CHILD, deadline)
            os.set_blocking(self._child.stdin.fileno(), False)
            if self._niceness:
                make_nice(self._child.pid, self._niceness)
        return self._child


def _send_frame(pipe: IO[bytes], data: bytes, deadline: float) -> None:
    """Write a message to the child; raise `TimeoutError` after ``deadline``."""
    rest = memoryview(data)
    while rest:
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not select.select([], [pipe], [], remaining)[1]:
            raise TimeoutError
        rest = rest[os.write(pipe.fileno(), rest[:_CHUNK]) :]


def _receive_frame(pipe: IO[bytes], length: int, deadline: float) -> bytes:
    """Read ``length`` bytes from the child; raise `TimeoutError` after ``deadline``."""
    parts: list[bytes] = []
    while length > 0:
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not select.select([pipe], [], [], remaining)[0]:
            raise TimeoutError
        part = os.read(pipe.fileno(), min(length, _CHUNK))
        if not part:
            raise EOFError("its output ended")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
