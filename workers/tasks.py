"""The Celery tasks, each a thin wrapper around a function.

A message carries only an id. It may arrive late, twice or never: the row with that id says what to
do, and the control centre's sweep sends unclaimed work again. So tasks do not retry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final
from uuid import UUID

import structlog
from celery import Celery

from registry.tasks import QUEUE_OF, WorkQueue
from service.broker.messages import AllowedMessages, is_one_id
from workers import (
    builds,
    consoles,
    fencing,
    image_copies,
    imports,
    moves,
    power,
    removals,
    volumes,
)
from workers.context import TaskOutcome, WorkerContext
from workers.metrics import TaskMetrics

#: By name: the kind of the id, and the function that does the work.
TASKS: Final[Mapping[str, tuple[str, Callable[[UUID, WorkerContext], TaskOutcome]]]] = (
    MappingProxyType(
        {
            "create_vm": ("assignment_id", builds.build_vm),
            "delete_vm": ("assignment_id", removals.remove_assignment),
            "switch_power": ("vm_id", power.switch_power),
            "change_volume": ("volume_id", volumes.change_volume),
            "read_console": ("read_id", consoles.read_console),
            "attach_console": ("session_id", consoles.attach_console),
            "remove_leftover": ("leftover_id", removals.remove_leftover),
            "upload_image": ("copy_id", image_copies.upload_image),
            "import_image": ("image_id", imports.import_image),
            "remove_image": ("copy_id", image_copies.remove_image_copy),
            "move_vm": ("move_id", moves.move_vm),
            "fence_host": ("host_id", fencing.fence_host),
        }
    )
)


def allowed_messages_of_queue(queue: WorkQueue, threads: int) -> AllowedMessages:
    """Return the messages that a worker accepts from a queue.

    The build queue allows all tasks, for older control centres.
    """
    names = [f"workers.{name}" for name in TASKS]
    tasks = {name: is_one_id for name in names if queue in (QUEUE_OF[name], WorkQueue.BUILD)}
    return AllowedMessages(queue.broker_name, tasks, threads)


def register_tasks(app: Celery, context: WorkerContext, metrics: TaskMetrics) -> None:
    """Register all tasks of workers with the Celery ``app``; they use ``context``."""
    for name, (key, work) in TASKS.items():
        app.task(_make_task(name, key, work, context, metrics), name=f"workers.{name}")


def _make_task(
    name: str,
    key: str,
    work: Callable[[UUID, WorkerContext], TaskOutcome],
    context: WorkerContext,
    metrics: TaskMetrics,
) -> Callable[[str], None]:
    """Return the function of a Celery task, whose log lines and metrics name the task."""

    def run(row_id: str) -> None:
        with structlog.contextvars.bound_contextvars(task=name, **{key: row_id}):
            metrics.run(name, lambda each: work(each, context), UUID(row_id))

    return run
