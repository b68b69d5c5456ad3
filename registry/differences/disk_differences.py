"""Differences of domains and files: those that nobody knows, and files that are missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from typing import Final
from uuid import UUID

from registry.differences.compared_hosts import ComparedHosts
from registry.differences.difference_record import new_difference
from registry.hosts.unaccounted_items import UnaccountedItems, assignment_of_volume
from registry.reconciliation import Difference, LedgerAssignment, Remedy
from registry.records.hosts import DomainReport, Host, HostDifference, HostReport
from registry.volumes.host_files import missing_files

#: Prefix of the names of volumes that are image copies.
_IMAGE_COPY: Final = "fuga-image-"
_SHOWN: Final = 5  #: names of files


def pool_differences(
    host: Host, report: HostReport, seen: ComparedHosts
) -> Iterator[HostDifference]:
    """Yield volumes without files, volumes in use, and one difference for all unknown files."""
    if report.pool_silent_since is None:
        files = seen.volume_files.get(host.id, ())
        for lost in missing_files(files, report.volumes, report.started_at):
            what = f"{lost.name}: volume {lost.volume}, {lost.size_gib} GiB"
            yield new_difference(host, Difference.VOLUME_MISSING, lost.name, what)
    is_first = host.same_machine_as is None
    for used in seen.volumes_in_use.get(host.id, ()) if is_first else ():
        who = f"domain {used.domains[0]} has"
        if len(used.domains) > 1:
            who = f"domains {' and '.join(used.domains)} have"
        what = f"{used.file}: {used.volume}; {who} it"
        yield new_difference(host, Difference.VOLUME_IN_USE, used.file, what)
    if is_first and host.shared_pool is None:  # else a domain of another host may name them
        yield from _file_differences(host, report, seen.known_files.get(host.id, frozenset()))


def _file_differences(host: Host, report: HostReport, known: Set[str]) -> Iterator[HostDifference]:
    """Yield one difference for all unaccounted files of a pool, if there are any."""
    ours = {host.base_volume, *known}
    strays = [
        name for name in report.unnamed if name not in ours and assignment_of_volume(name) is None
    ]
    if strays:
        more = f" and {len(strays) - _SHOWN} more" if len(strays) > _SHOWN else ""
        shown = ", ".join(strays[:_SHOWN])
        count = "1 file" if len(strays) == 1 else f"{len(strays)} files"
        what = f"{count}: {shown}{more}"
        if copies_left := sum(name.startswith(_IMAGE_COPY) for name in strays):
            what += (
                f"; {copies_left} named {_IMAGE_COPY}… are copies of images that no host of this"
                f" register center has: no domain of {host.name} names them. Those of hosts here go"
                " by themselves if nothing rests on them. Of others look whether volumes"
                " rest on one (`qemu-img info`) or another fuga made it, else delete it"
                f" (`virsh vol-delete NAME {host.pool}`)"
            )
        yield new_difference(host, Difference.STRAY_FILES, host.pool, what)


def domain_differences(
    host: Host, report: HostReport, unaccounted: UnaccountedItems
) -> Iterator[HostDifference]:
    """Yield a difference for each domain and volume that belongs to no assignment of its host."""
    for domain in report.domains:
        difference = unaccounted.of_domains.get(domain.uuid)
        if difference is not None:
            yield new_difference(
                host,
                difference,
                domain.name,
                f"domain {domain.name}, {domain.state}, {domain.vcpus} vcpus,"
                f" {domain.memory_mib} memory_mib, {domain.disk_gib} disk_gib"
                + _capped_text(domain),
                assignment_id=domain.assignment_id,
                vm_uuid=domain.uuid,
            )
    for name, (difference, assignment_id) in unaccounted.of_volumes.items():
        found = new_difference(
            host, difference, name, f"volume {name}", assignment_id=assignment_id
        )
        if difference == Difference.UNKNOWN_MARK:
            # A name proves nothing of a disk: a pool may have users that no register center knows.
            found = replace(
                found,
                remedy=Remedy.NOTE,
                action="it is left alone, as a host that is not registered here may have it open:"
                f" if nobody needs it, `virsh vol-delete {name} {host.pool}` on the host",
                on_confirmation=None,
            )
        yield found


def _capped_text(domain: DomainReport) -> str:
    if domain.capped_disk is None:
        return ""
    return (
        f"; its disk {domain.capped_disk} claims more than the pool holds and counts as all of it:"
        " if no such disk is meant, remove it from the domain"
    )


def drop_items_of_other_names(
    host: Host,
    report: HostReport,
    unaccounted: UnaccountedItems,
    known: Mapping[UUID, LedgerAssignment],
    firsts: Mapping[UUID, UUID],
) -> UnaccountedItems:
    """Drop items that belong to another name of the machine, and report the others once.

    A machine may be registered under several names. VMs of any of these names are on the right
    machine, and so are their disks. Foreign domains are shown at the machine's first host.
    """
    machine = firsts.get(host.id, host.id)
    elsewhere = {Difference.WRONG_HOST, Difference.DISK_ELSEWHERE}

    def is_counted(difference: Difference, assignment_id: UUID | None) -> bool:
        if host.id in firsts and difference == Difference.STRANGER:
            return False
        its = None if assignment_id is None else known.get(assignment_id)
        is_here = its is not None and firsts.get(its.host_id, its.host_id) == machine
        return not (is_here and difference in elsewhere)

    marks = {domain.uuid: domain.assignment_id for domain in report.domains}
    return replace(
        unaccounted,
        of_domains={
            key: found
            for key, found in unaccounted.of_domains.items()
            if is_counted(found, marks.get(key))
        },
        of_volumes={
            name: found for name, found in unaccounted.of_volumes.items() if is_counted(*found)
        },
    )
