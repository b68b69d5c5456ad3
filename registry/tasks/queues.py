"""Queues of tasks for workers, separate so that urgent tasks never wait behind long ones."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

CREATE: Final = "workers.create_vm"
DELETE: Final = "workers.delete_vm"
REMOVE_LEFTOVER: Final = "workers.remove_leftover"
UPLOAD_IMAGE: Final = "workers.upload_image"
REMOVE_IMAGE: Final = "workers.remove_image"
IMPORT_IMAGE: Final = "workers.import_image"
SWITCH_POWER: Final = "workers.switch_power"
MOVE_VM: Final = "workers.move_vm"
CHANGE_VOLUME: Final = "workers.change_volume"
FENCE_HOST: Final = "workers.fence_host"
READ_CONSOLE: Final = "workers.read_console"
ATTACH_CONSOLE: Final = "workers.attach_console"


class WorkQueue(StrEnum):
    """A queue of messages for workers, the most urgent first.

    A fencing command may take a minute, and whole racks fail at once. So fences have threads of
    their own, and delay neither power changes nor consoles. So do moves, which last as long as the
    transfer of a guest's memory.
    """

    FENCE = "fence"
    URGENT = "urgent"
    REMOVE = "remove"
    BUILD = "build"
    MOVES = "moves"
    IMAGES = "images"

    @property
    def broker_name(self) -> str:
        """The name of this queue at the message broker.

        Builds have the name of the only queue of earlier releases, so that their control centres
        and workers still work during an upgrade.
        """
        return "fuga" if self is WorkQueue.BUILD else f"fuga-{self.value}"


#: By the task's name.
QUEUE_OF: Final[Mapping[str, WorkQueue]] = MappingProxyType(
    {
        FENCE_HOST: WorkQueue.FENCE,
        SWITCH_POWER: WorkQueue.URGENT,
        CHANGE_VOLUME: WorkQueue.URGENT,
        READ_CONSOLE: WorkQueue.URGENT,
        ATTACH_CONSOLE: WorkQueue.URGENT,
        DELETE: WorkQueue.REMOVE,
        REMOVE_LEFTOVER: WorkQueue.REMOVE,
        REMOVE_IMAGE: WorkQueue.REMOVE,
        CREATE: WorkQueue.BUILD,
        MOVE_VM: WorkQueue.MOVES,
        IMPORT_IMAGE: WorkQueue.IMAGES,
        UPLOAD_IMAGE: WorkQueue.IMAGES,
    }
)
