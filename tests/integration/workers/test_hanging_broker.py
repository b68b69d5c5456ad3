"""A Redis that hangs: it takes connections and answers nobody. Nothing of ours waits for good."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from pydantic import SecretStr

from controller.control_center.dispatch import Dispatcher
from controller.simulations.queue import NoFleetError, SimulationQueue
from controller.worker_queue import CeleryQueue
from registry import AssignmentState, Registry, RequestState
from service.settings import SharedSettings
from tests.raw_sql import RawSql
from tests.register import a_cluster, add_request, place, take_lease
from tests.servers.redis_server import NEEDS_REDIS, PATIENCE_S, RedisServer, redis_server

pytestmark = [NEEDS_REDIS, pytest.mark.long]

T = TypeVar("T")


def returned(call: Callable[[], T]) -> T:
    """Return what a call returns, which may take its time, but not for ever."""
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(call()), daemon=True)
    thread.start()
    thread.join(PATIENCE_S / 10)
    assert not thread.is_alive(), "it hangs with its broker"
    return found[0]


class Sweep:
    """The sweep of a control centre, message by message."""

    def __init__(self, registry: Registry, broker: RedisServer) -> None:
        self.sent: list[str] = []
        settings = SharedSettings(broker_url=SecretStr(broker.url))
        self.dispatcher = Dispatcher(
            registry,
            CeleryQueue(settings),
            interval_s=1,
            resend_after_s=0,
            build_timeout_s=0.001,
            on_sent=self.sent.append,
        )

    def __call__(self) -> int:
        return returned(self.dispatcher.sweep)


def test_a_sweep_does_what_needs_no_broker_and_sends_the_rest_when_it_answers(
    register: Registry, raw: RawSql, tmp_path: Path
) -> None:
    (host,) = a_cluster(register)
    lease = take_lease(register)
    (begun,) = place(register, add_request(register), host, lease=lease).assignment_ids
    register.assignments.claim_build(begun, "w1", 60)
    (waiting,) = place(register, add_request(register), host, lease=lease).assignment_ids
    expiring = add_request(register, name="expires", ttl_s=60)
    raw.run("UPDATE requests SET expires_at = created_at WHERE name = 'expires'")

    with redis_server(tmp_path) as broker:
        sweep = Sweep(register, broker)
        sweep.dispatcher._queue.queue_lengths()  # a connection is there already
        with broker.stopped():
            assert sweep() == 0
            assert register.requests.get(expiring.id).state is RequestState.EXPIRED
            assert register.assignments.state(begun) is AssignmentState.QUARANTINED
            assert not sweep.dispatcher.check().well
            assert "broker" in sweep.dispatcher.check().message

            # While it hangs, no row is taken for sent.
            before = raw.rows("SELECT id, sent_at FROM assignments ORDER BY id")
            assert sweep() == 0
            assert raw.rows("SELECT id, sent_at FROM assignments ORDER BY id") == before

        assert sweep() == 2
        assert sorted(sweep.sent) == ["workers.create_vm", "workers.delete_vm"]
        assert sweep.dispatcher.check().well
    assert register.assignments.state(waiting) is AssignmentState.RESERVED


def test_a_batch_costs_a_broker_that_hangs_one_message(register: Registry, tmp_path: Path) -> None:
    (host,) = a_cluster(register)
    place(register, add_request(register, 5), host, count=5)

    with redis_server(tmp_path) as broker:
        sweep = Sweep(register, broker)
        queue = sweep.dispatcher._queue
        tried = []
        send = queue.send
        queue.queue_lengths = lambda: {}  # type: ignore[method-assign]  # it hangs after that
        queue.send = lambda task, row_id: (tried.append(row_id), send(task, row_id))[1]  # type: ignore[method-assign]
        with broker.stopped():
            assert sweep() == 0
    assert len(tried) == 1


def test_a_simulation_is_not_submitted_to_a_fleet_whose_broker_hangs(tmp_path: Path) -> None:
    with redis_server(tmp_path) as broker:
        queue = SimulationQueue(SharedSettings(broker_url=SecretStr(broker.url)))
        with broker.stopped():
            with pytest.raises(NoFleetError, match="does not answer"):
                returned_error(queue.check)
            assert not returned(lambda: queue.send(tmp_path, "run"))
        assert returned(lambda: queue.send(tmp_path, "run"))


def returned_error(call: Callable[[], None]) -> None:
    """Raise what a call raises, which may take its time, but not for ever."""

    def tell() -> Exception | None:
        try:
            call()
        except Exception as error:  # whatever it is, the test looks at it
            return error
        return None

    if (error := returned(tell)) is not None:
        raise error
