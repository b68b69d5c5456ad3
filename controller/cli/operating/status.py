"""`fuga status`: whether control centre, workers and monitors do their work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from controller.session.session import Session, pass_session
from controller.terminal.columns import Column, field
from controller.terminal.errors import CliError
from controller.terminal.output import echo, print_json, print_table
from controller.terminal.times import clock, duration_text, time_since

#: Heartbeats of several connections differ by less.
_AHEAD_S: Final = 5.0


@pass_session
def status(session: Session) -> None:
    """Show the leader, the last round, the processes and what is late.

    Exits with status 1 while something is late or a disk has no room.
    """
    found = session.api.get("status")
    if session.json:
        print_json(found)
    else:
        _print_status(found)
    if not found["healthy"]:
        late = [overdue_sentence(each) for each in found["late"]]
        raise CliError("; ".join([*late, *found.get("disks", ())]) or "late")


def overdue_sentence(late: Mapping[str, Any]) -> str:
    """Return a sentence about one overdue task of a process."""
    since = f" since {clock(late['since'])} ({time_since(late['since'])})" if late["since"] else ""
    return f"{late['message']}{since}"


def healthy_sentence(found: Mapping[str, Any]) -> str:
    """Return a line about the leader and the running processes, if nothing is late."""
    heard = [each["kind"] for each in found["processes"] if not each["late"]]
    slot = f", last slot {clock(found['last_slot_at'])}" if found["last_slot_at"] else ""
    return (
        f"{found['leader']} leads since {clock(found['leads_since'])}{slot};"
        f" {heard.count('worker')} workers and {heard.count('monitor')} monitors run"
    )


def clock_sentence(found: Mapping[str, Any]) -> str | None:
    """Return a sentence about a wrong clock of the database, or None if it is right."""
    step, ahead_s = found.get("clock_step"), found.get("clock_ahead_s") or 0.0
    check = "check the time synchronization of the database's machine (chronyc tracking)"
    if ahead_s > _AHEAD_S:
        ahead = duration_text(ahead_s)
        return f"the newest heartbeat lies {ahead} ahead of the database's clock: {check}"
    if step is None:
        return None
    if step.get("ahead_s"):
        return (
            f"the database's clock stepped ahead by {duration_text(step['ahead_s'])}, noticed at"
            f" {clock(step['at'])}: {check}, and set it within an hour of then: requests and"
            " reservations end, and history goes, by the new time only after that"
        )
    return (
        f"the database's clock stepped back by {duration_text(step['back_s'])}, noticed at"
        f" {clock(step['at'])}: {check}; older events and audit rows may lie ahead of newer ones"
    )


def release_sentence(found: Mapping[str, Any]) -> str | None:
    """Return a sentence about processes of another release than the API's, or None."""
    ours = found.get("release")
    others = [each for each in found["processes"] if each.get("release") != ours]
    if ours is None or not others:
        return None
    named = ", ".join(f"{each['name']} {each.get('release') or 'an older one'}" for each in others)
    return f"the API runs {ours}, and others another release: {named}. Restart them"


def _print_status(found: Mapping[str, Any]) -> None:
    """Print the leader, the last slot and round, hosts, processes, and what is late."""
    leader = found["leader"] or ("a control centre" if found["leads_since"] else "none")
    since = f" since {clock(found['leads_since'])}" if found["leads_since"] else ""
    echo(f"{'leads':12}{leader}{since}{', paused (no rounds)' * found['paused']}")
    length = f", {found['slot_length_s']:g} s each" if found["slot_length_s"] else ""
    echo(f"{'last slot':12}{_round_time_text(found['last_slot_at'])}{length}")
    number = f"{found['last_round']}, of the slot {_round_time_text(found['last_round_at'])}"
    echo(f"{'last round':12}{number if found['last_round'] else 'none yet'}")
    if hosts := found["hosts"]:
        echo(f"{'hosts':12}{hosts['up']} of {hosts['active']} active hosts are up")
    if borrowed := found.get("borrowed"):
        echo(f"{'borrowed':12}{_borrowed_text(borrowed)}")
    if found["oldest_unbuilt_at"]:
        echo(
            f"{'unbuilt':12}the oldest VM has waited {time_since(found['oldest_unbuilt_at'])} for a"
            " worker"
        )
    if sentence := clock_sentence(found):
        echo(f"{'clock':12}{sentence}")
    if found.get("release"):
        echo(f"{'release':12}{release_sentence(found) or found['release']}")
    if found["processes"]:
        echo()
        columns = (
            field("kind"),
            field("name"),
            Column("started", lambda row: clock(row["started_at"])),
            Column("heard", lambda row: f"{time_since(row['heartbeat_at'])} ago"),
            Column("", lambda row: "LATE" if row["late"] else row["trouble"] or "ok"),
        )
        print_table(columns, found["processes"], empty="")
        echo()


def _borrowed_text(borrowed: Mapping[str, Any]) -> str:
    """Return how many VMs are borrowed, and how many of them are due to end."""
    text = f"{borrowed['vms']} VMs"
    if borrowed["ending"]:
        text += f", {borrowed['ending']} due to end, the first at {clock(borrowed['first_end_at'])}"
    return text


def _round_time_text(value: object) -> str:
    return f"{clock(value)} ({time_since(value)} ago)" if value else "none yet"
