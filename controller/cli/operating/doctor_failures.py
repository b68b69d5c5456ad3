"""`fuga doctor`: whether what is said of failing hosts has an effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from controller.cli.operating.doctor_register import Finding

if TYPE_CHECKING:
    from registry.hosts import OnFailure

_NAMED: Final = 5


def failure_findings(
    hosts: Sequence[Mapping[str, Any]], by_default: OnFailure
) -> Iterator[Finding]:
    """Find hosts whose VMs are to be placed elsewhere, and wait: their disks are there alone."""
    # Slow; `--help` needs none of it.
    from registry.hosts import OnFailure, shared_pool_of, wanted_of  # noqa: PLC0415

    waits = [
        host["name"]
        for host in hosts
        if host["admin"] != "retired"
        and wanted_of(host["labels"], by_default=by_default) is OnFailure.REPLACE
        and shared_pool_of(host["labels"]) is None
    ]
    if not waits:
        return
    more = f" and {len(waits) - _NAMED} more" if len(waits) > _NAMED else ""
    yield Finding(
        "failures",
        False,
        f"on_failure=replace moves nothing from {', '.join(waits[:_NAMED])}{more}: without a shared"
        " pool (label shared_pool=NAME) VMs wait for their host. Label them on_failure=wait, or"
        " on_failure=rebuild, which loses what VMs had written",
    )
