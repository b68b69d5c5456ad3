"""What workers have in hand: which rows are due, and how each piece of work ends."""

from registry.records.work import (
    Build,
    Claim,
    CopyClaim,
    CopyRemoval,
    Due,
    Import,
    ImportClaim,
    Leftover,
    PowerClaim,
    PowerStep,
    Removal,
    Upload,
)
from registry.tasks.queues import (
    ATTACH_CONSOLE,
    CREATE,
    DELETE,
    QUEUE_OF,
    READ_CONSOLE,
    SWITCH_POWER,
    WorkQueue,
)

__all__ = [
    "ATTACH_CONSOLE",
    "CREATE",
    "DELETE",
    "QUEUE_OF",
    "READ_CONSOLE",
    "SWITCH_POWER",
    "Build",
    "Claim",
    "CopyClaim",
    "CopyRemoval",
    "Due",
    "Import",
    "ImportClaim",
    "Leftover",
    "PowerClaim",
    "PowerStep",
    "Removal",
    "Upload",
    "WorkQueue",
]
