"""Tasks of workers: due rows, claims, and the results of work."""

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
