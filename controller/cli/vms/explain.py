"""`fuga explain`: why VMs run where they run, or why they wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from controller.cli.vms.requests import image_wait_text, observed_state_text
from controller.session.completion import complete_target
from controller.session.session import Session, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.output import echo, print_json, print_table
from controller.terminal.times import clock


@pass_session
def explain(
    session: Session,
    target: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Request or VM, also one that is gone (name, id or end of the id)",
            autocompletion=complete_target,
        ),
    ],
) -> None:
    """Explain why VMs run where they run, or why they wait."""
    from controller.session.name_lookup import find_past_target  # noqa: PLC0415

    found = find_past_target(session.api, target, session.print_note)
    explanation = session.api.get(f"{found.path}/explanation")
    if session.json:
        print_json(explanation)
    elif found.kind == "request":
        _print_request(explanation)
    else:
        _print_vm(explanation)


def _print_request(explanation: Mapping[str, Any]) -> None:
    parts = (("unknown", "unknown"), ("leaving", "being removed"))
    others = "".join(f", {explanation[key]} {word}" for key, word in parts if explanation.get(key))
    echo(
        f"request {explanation['name']}: {explanation['state']}, "
        f"{explanation['wanted']} wanted, {explanation['placed']} placed, "
        f"{explanation['running']} running{others}"
    )
    waiting = explanation.get("waiting")
    if waiting:
        decided = ""
        if waiting.get("round") is not None:
            decided = f" (round {waiting['round']}, slot {clock(waiting.get('slot_start_at'))})"
        echo()
        echo(f"{waiting['count']} wait: {waiting['reason']}{decided}")
        if waiting.get("message"):
            echo(waiting["message"])
        if explanation.get("estimate"):
            echo(_estimate_text(explanation["estimate"]))
        if explanation.get("order") is not None:
            echo(f"order: {explanation['order']}")
        if waiting.get("shortages"):
            echo("")
            print_table(
                [
                    field("resource"),
                    Column(
                        "short on",
                        lambda row: f"{row['hosts_short']} of {row['hosts']} hosts",
                        right=True,
                    ),
                    field("nearest_host"),
                    field("missing", "amount missing", right=True),
                ],
                waiting["shortages"],
                empty="",
            )
        if waiting.get("obstacles"):
            echo("")
            _print_obstacles(waiting["obstacles"])
        if waiting.get("would_help"):
            echo()
            echo("one more VM would be placed after one of these changes:")
            for sentence in waiting["would_help"]:
                echo(f"  {sentence}")
    if explanation.get("unbuilt"):
        echo()
        echo(explanation["unbuilt"])
    if explanation.get("vms"):
        echo("")
        _print_vms(explanation["vms"])


def _print_vms(vms: Sequence[Mapping[str, Any]]) -> None:
    columns = [
        field("name"),
        field("host"),
        Column("observed", observed_state_text),
        field("round", right=True),
    ]
    if any(vm["waits_for_image"] for vm in vms):
        columns.append(Column("waits for", _image_wait_text))
    if any(vm.get("ends_at") for vm in vms):
        columns.append(Column("ends at", _ending_text))
    print_table(columns, vms, empty="")


def _estimate_text(estimate: Mapping[str, Any]) -> str:
    message = str(estimate["message"])
    if estimate["unavailable"] is not None:
        return message
    return f"{message} (as of {clock(estimate['made_at'])})"


def _print_obstacles(obstacles: Sequence[Mapping[str, Any]]) -> None:
    columns = [
        Column("excluded by", _obstacle_text),
        field("hosts", right=True),
        field("only", "by this alone", right=True),
        field("missing", right=True),
    ]
    if any(each.get("until") for each in obstacles):
        columns.append(Column("next attempt", lambda row: clock(row.get("until"))))
    if any(each["only_hosts"] for each in obstacles):  # for operators
        columns.append(Column("such as", lambda row: ", ".join(row["only_hosts"])))
    print_table(columns, obstacles, empty="")


def _ending_text(vm: Mapping[str, Any]) -> str:
    if not vm.get("ends_at"):
        return "-"
    return f"{clock(vm['ends_at'])}, for {vm['ending_for'] or 'another tenant'}"


def _image_wait_text(vm: Mapping[str, Any]) -> str:
    image = vm["waits_for_image"]
    return f"{image['image']}: {image_wait_text(image)}" if image else "-"


def _obstacle_text(obstacle: Mapping[str, Any]) -> str:
    kind, what = obstacle["kind"].replace("_", " "), obstacle["what"]
    if kind == "resource":
        return f"too little {what}"
    return kind if what is None else f"{kind} {what}"


def _print_vm(explanation: Mapping[str, Any]) -> None:
    if explanation.get("host"):
        here = f"on {explanation['host']}"
        if explanation.get("moved_here"):
            here += f" since {clock(explanation['moved_here']['ended_at'])}"
        echo(
            f"vm {explanation['name']}: {here}, "
            f"placed in round {explanation.get('round')} "
            f"(slot {clock(explanation.get('slot_start_at'))}) by policy "
            f"{explanation.get('policy')}, decided by {explanation.get('decided_by')}"
            + (f", phase {explanation['phase']}" if explanation.get("phase") else "")
        )
    else:
        echo(f"vm {explanation['name']}: on no host")
    if explanation.get("message"):
        echo(explanation["message"])
    weighed = explanation.get("utilities")
    if weighed:
        echo("")
        print_table(
            [
                Column("", lambda row: "→" if row.get("chosen") else " "),
                Column("combination", lambda row: _combination_text(row["combination"])),
                field("minimum_utilization", right=True),
                Column("utility", lambda row: f"{row['utility']:.6g}", right=True),
            ],
            weighed,
            empty="",
        )


def _combination_text(counts: Mapping[str, int]) -> str:
    return " + ".join(f"{count} × {name}" for name, count in counts.items()) or "nothing"
