"""The tasks: names on messages, each a few lines around a plain function.

A message carries an id and no more. It may arrive late, twice or never: the row
that it names says what is to be done, and the sweep of the control centre sends
again what nobody picked up. So nothing here retries.
"""

from __future__ import annotations

from uuid import UUID

from celery import Celery

from workers import builds, consoles, imports, power, removals, uploads
from workers.context import WorkerContext


def register_tasks(app: Celery, context: WorkerContext) -> None:
    """Give ``app`` its tasks, working with ``context``."""

    @app.task(name="workers.create_vm")  # type: ignore[untyped-decorator]  # celery is untyped
    def create_vm(assignment_id: str) -> None:
        builds.create(UUID(assignment_id), context)

    @app.task(name="workers.delete_vm")  # type: ignore[untyped-decorator]  # celery is untyped
    def delete_vm(assignment_id: str) -> None:
        removals.delete(UUID(assignment_id), context)

    @app.task(name="workers.switch_power")  # type: ignore[untyped-decorator]  # celery is untyped
    def switch_power(vm_id: str) -> None:
        power.switch(UUID(vm_id), context)

    @app.task(name="workers.read_console")  # type: ignore[untyped-decorator]  # celery is untyped
    def read_console(read_id: str) -> None:
        consoles.read(UUID(read_id), context)

    @app.task(name="workers.remove_leftover")  # type: ignore[untyped-decorator]  # celery is untyped
    def remove_leftover(leftover_id: str) -> None:
        removals.remove_leftover(UUID(leftover_id), context)

    @app.task(name="workers.upload_image")  # type: ignore[untyped-decorator]  # celery is untyped
    def upload_image(copy_id: str) -> None:
        uploads.upload(UUID(copy_id), context)

    @app.task(name="workers.import_image")  # type: ignore[untyped-decorator]  # celery is untyped
    def import_image(image_id: str) -> None:
        imports.fetch(UUID(image_id), context)

    @app.task(name="workers.remove_image")  # type: ignore[untyped-decorator]  # celery is untyped
    def remove_image(copy_id: str) -> None:
        uploads.remove(UUID(copy_id), context)
