"""Explains why a VM is on its host: the round that placed it, and the host's combinations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from controller.host_aliases import Viewer
from controller.queries.explanations import VmExplanation, WeighedCombination
from controller.queries.move_text import move_sentence, redact_move
from controller.rounds.inputs import RoundInputs, read_round_inputs
from controller.rounds.solved_games import filling_comparisons, solution_sentence, solved_games
from registry import CopyState, Registry, RoundDamagedError, RoundPurgedError, VmDesired, VmObserved
from registry.hosts import FailurePolicy, Host, failure_outlook, failure_policy_of, is_replaced
from registry.requests import ImageWait, Vm
from registry.rounds import RoundRecord

_PAUSED: Final = (
    "its host has had its guest paused since {since}: it could not write to its disk, as where the"
    " storage there is full, or an operator suspended it. Nothing that it wrote is lost: ask an"
    " operator to make room there and let it go on, or stop and start it yourself"
)


#: Phases before the policy's own decision, and the details that list their (request, host) rows.
_EARLIER: Final = (("priority", ("took",)), ("held", ("holding", "freed")), ("gang", ("gangs",)))
_WHY: Final = {
    "reservation": "round {round} placed it on {host}, where room was kept for the reservation "
    "that its request draws on",
    "fallback": "round {round} was decided by the fallback, Best-Fit DRFH ({because}): {host} "
    "matched its shape best",
    "held": "round {round} placed it on {host}, which was reserved for its request: it had waited "
    "long below its fair share",
    "priority": "round {round} placed it on {host} in place of VMs of its tenant with a lower "
    "priority",
    "gang": "round {round} placed it before the game, by Best-Fit DRFH: its request's min_count of "
    "VMs is needed at once, or it has an anti-affinity group",
    "remainder": "round {round} placed it after the game, by Best-Fit DRFH: of the hosts with "
    "room, {host} matched its shape best",
}


def explain_vm(
    registry: Registry,
    vm_id: UUID,
    reader: Viewer,
    *,
    on_failure: FailurePolicy = FailurePolicy.WAIT,
) -> VmExplanation:
    """Return the explanation of a VM's host for a reader.

    A host's combinations contain VMs of all tenants: a tenant sees only its own VMs of the chosen
    one. ``on_failure`` is the site's default for VMs of a failed host.

    Raises
    ------
    NotFoundError
        If there is no such VM.
    """
    vm = registry.vms.get(vm_id)
    if vm.deleted_at is not None:
        return _unplaced_explanation(
            vm,
            f"it is gone since {vm.deleted_at:%Y-%m-%d %H:%M:%S} UTC; `fuga events"
            f" --subject {vm.id}` says who deleted it",
        )
    if vm.round is None or vm.host is None:
        kept = registry.fencing.has_kept_disk(vm.id)
        disk = "; its host failed, and it starts elsewhere with its disk" if kept else ""
        return _unplaced_explanation(
            vm, "it has no host yet; `fuga explain` of its request shows what it waits for" + disk
        )
    record = registry.rounds.get(vm.round)
    assert vm.assignment_id is not None  # noqa: S101 - a VM with a host has one
    brought = registry.moves.move_to_place(vm.assignment_id, vm_id=vm.id)
    last = next(iter(registry.moves.list(vm_id=vm.id, limit=1).items), None)
    if brought is None:
        placed = _placement_explanation(vm, record, reader)
    else:
        message = f"round {record.number} placed it on another host"
        placed = _base_explanation(vm, record, reader, message)
    moved = {each.id: redact_move(each, reader) for each in (brought, last) if each is not None}
    placed = replace(
        placed,
        moved_here=None if brought is None else moved[brought.id],
        last_move=None if last is None else moved[last.id],
        message="; ".join((placed.message, *map(move_sentence, moved.values()))),
    )
    if vm.unknown_since is not None:
        seen, since = vm.observed.value, f"{vm.unknown_since:%Y-%m-%d %H:%M:%S} UTC"
        unknown = f"its state is unknown: its host answered last at {since}; it was {seen} then"
        host = registry.hosts.get(vm.host)
        sentences = (placed.message, unknown, *_host_failure_sentences(host, reader, on_failure))
        placed = replace(placed, message="; ".join(sentences))
    elif vm.paused_since is not None:
        since = f"{vm.paused_since:%Y-%m-%d %H:%M:%S} UTC"
        placed = replace(placed, message=f"{placed.message}; {_PAUSED.format(since=since)}")
    elif vm.observed == VmObserved.STOPPED and vm.desired == VmDesired.RUNNING:
        stops = registry.events.list(
            subject_id=str(vm.id), kind="vm_observed", newest=True, limit=1
        )
        whys = (f"it is off since {each.at:%Y-%m-%d %H:%M:%S} UTC: {each.reason}" for each in stops)
        placed = replace(placed, message="; ".join((placed.message, *whys)))
    image = vm.waits_for_image
    if image is None:
        return placed
    message = (
        f"{placed.message}; it is created once image {image.image} is there:"
        f" {_upload_progress_text(image)}"
    )
    return replace(placed, waits_for_image=image, message=message)


def _host_failure_sentences(host: Host, reader: Viewer, on_failure: FailurePolicy) -> Iterator[str]:
    """Yield sentences about a VM on a host that does not answer: the outlook and a remedy."""
    yield failure_outlook(host.labels, host.shared_pool, by_default=on_failure)
    wanted = failure_policy_of(host.labels, by_default=on_failure)
    if is_replaced(wanted, host.shared_pool):
        return
    if not reader.is_operator:
        yield "an operator can start its host again; or delete the VM and request another one"
        return
    disk = (
        "are rebuilt from their images elsewhere, without what they had written"
        if host.shared_pool is None
        else "start elsewhere with their disks"
    )
    yield (
        f"start host {host.name} again (`fuga host show {host.name}` has its last error); if it"
        f" stays off, `fuga host fence {host.name} --by-hand`: then its VMs {disk}"
    )


def _unplaced_explanation(vm: Vm, message: str) -> VmExplanation:
    """Return the explanation of a VM that is on no host."""
    return VmExplanation(
        vm=vm.id,
        name=vm.name,
        host=None,
        round=None,
        slot_start_at=None,
        policy=None,
        decided_by=None,
        phase=None,
        utilities=(),
        message=message,
    )


def _upload_progress_text(image: ImageWait) -> str:
    """Return how far the upload of the image for which a VM waits is."""
    if image.held:
        return (
            "it is held because hosts stopped answering while they received it,"
            " until an operator releases it"
        )
    if image.state is CopyState.UPLOADING:
        return f"{image.uploaded_bytes} of {image.size_bytes} bytes uploaded"
    if image.state is CopyState.FAILED:
        return "the upload failed; the next round decides this VM again"
    return "the upload has not begun"


def _placement_explanation(vm: Vm, record: RoundRecord, reader: Viewer) -> VmExplanation:
    """Explain the host of a VM by the stored inputs and outcome of its round."""
    assert vm.host is not None  # noqa: S101 - called for placed VMs alone
    host_name = reader.host(vm.host)
    placed = f"round {record.number} placed it on {host_name}; the details of the game are"
    try:
        inputs = read_round_inputs(record)
    except RoundPurgedError:
        return _base_explanation(vm, record, reader, f"{placed} purged")
    except RoundDamagedError:
        return _base_explanation(vm, record, reader, f"{placed} damaged, and cannot be read")
    answer = _base_explanation(vm, record, reader, placed)
    names = inputs.names
    details = record.decision().outcome["details"]
    host = next((h for h, (_, name) in enumerate(names.hosts) if name == vm.host), None)
    request = next(
        (q for q, (each, _, _) in enumerate(names.requests) if each == str(vm.request_id)), None
    )
    phase = _placement_phase(record, details, request, host)
    why = _placement_message(host_name, record, phase, reader)
    if phase == "remainder" and reader.is_operator:
        chosen_fillings = [
            each.sentence for each in filling_comparisons(details) if each.chosen == "filling"
        ]
        why = "; ".join([why, *chosen_fillings])
    if phase != "game" or host is None:
        return replace(answer, phase=phase, message=why)
    if not reader.is_operator:
        own = _tenants_vms_in_game(details, inputs, vm.tenant, host)
        return replace(
            answer,
            phase=phase,
            message=f"in the game of round {record.number}, {host_name} took"
            f" {_combination_text(own)} of yours, in its combination of VMs with the highest"
            " utility",
        )
    utilities = tuple(
        WeighedCombination(
            combination=_counts_by_type(each["counts"], names.requests),
            minimum_utilization=each["minimum_utilization"],
            utility=each["utility"],
            chosen=each["chosen"],
        )
        for each in details.get("weighed", {}).get(str(host), ())
    )
    chosen = next((each for each in utilities if each.chosen), None)
    if chosen is not None:
        several = "s" if len(utilities) > 1 else ""
        why = (
            f"in the game of round {record.number}, {host_name} evaluated {len(utilities)} "
            f"combination{several} and took {_combination_text(chosen.combination)}, "
            f"the one with the highest utility ({chosen.utility:.4f})"
        )
        game = details["weighed"][str(host)][0]["game"]
        why += "".join(
            f"; {solution_sentence(each)}" for each in solved_games(details) if each.game == game
        )
    return replace(answer, phase=phase, utilities=utilities, message=why)


def _base_explanation(vm: Vm, record: RoundRecord, reader: Viewer, message: str) -> VmExplanation:
    """Return an explanation with what the round's record alone says."""
    return VmExplanation(
        vm=vm.id,
        name=vm.name,
        host=reader.host_or_none(vm.host),
        round=record.number,
        slot_start_at=record.slot_start_at.isoformat(),
        policy=record.policy,
        decided_by=record.decided_by,
        phase=None,
        utilities=(),
        message=message,
    )


def _tenants_vms_in_game(
    details: Mapping[str, Any], inputs: RoundInputs, tenant: str, host: int
) -> dict[str, int]:
    """Return how many VMs of a tenant a host took in the game, by VM type."""
    owners = inputs.snapshot.tenant
    of_tenants = inputs.names.tenants
    own = {
        str(request): game
        for request, there, game, _ in details.get("phase", ())
        if there == host and game and of_tenants[owners[request]][1] == tenant
    }
    return _counts_by_type(own, inputs.names.requests)


def _combination_text(combination: Mapping[str, int]) -> str:
    return " + ".join(f"{count} {name}" for name, count in combination.items()) or "nothing"


def _placement_phase(
    record: RoundRecord, details: Mapping[str, Any], request: int | None, host: int | None
) -> str:
    """Return the phase of a round that placed a VM: reservation, game, fallback and so on."""
    here = [request, host]
    if here in _request_host_pairs(details.get("reserved", {}).get("drawn", ())):
        return "reservation"
    if record.decided_by == "fallback":
        return "fallback"
    for phase, rows in _EARLIER:
        if here in _request_host_pairs(row for name in rows for row in details.get(name, ())):
            return phase
    for q, h, game, _ in details.get("phase", ()):
        if (q, h) == (request, host):
            return "game" if game > 0 else "remainder"
    return record.policy


def _counts_by_type(
    counts: Mapping[str, int], requests: tuple[tuple[str, str, str], ...]
) -> dict[str, int]:
    """Sum counts of VMs by request to counts by VM type."""
    by_type: dict[str, int] = {}
    for request, count in counts.items():
        vm_type = requests[int(request)][2]
        by_type[vm_type] = by_type.get(vm_type, 0) + count
    return dict(sorted(by_type.items()))


def _request_host_pairs(rows: Iterable[Sequence[int]]) -> list[list[int]]:
    """Return request and host of rows of a round's details."""
    return [list(row[:2]) for row in rows]


def _placement_message(host: str, record: RoundRecord, phase: str, reader: Viewer) -> str:
    """Return a sentence that says why a round placed a VM on its host."""
    reason = _WHY.get(phase, "round {round} placed it on {host} by policy {policy}")
    return reason.format(
        round=record.number,
        host=host,
        policy=record.policy,
        because=reader.redact_text_or_none(record.fallback_reason),
    )
