"""What the site committed: rounds and closed months are proven, in order and without a gap."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.chaos.findings import Finding, Sql
from tests.chaos.processes import WAIT_S, inherited


def check_months(sql: Sql, record: Sequence[Mapping[str, Any]]) -> Iterable[Finding]:
    """What an operator was told to be closed is, and nothing else: once each, in order."""
    shown = {each["number"]: each["entry"] for each in record if each["what"] == "closed"}
    known = {
        row["number"]: f"{row['kind']} {row['month']:%Y-%m}"
        for row in sql("SELECT number, kind, month FROM closed_usage")
    }
    for number in sorted(shown.keys() | known.keys()):
        if shown.get(number) != known.get(number):
            what = f"told is {shown.get(number)}, it is {known.get(number)}"
            yield Finding("closed months", f"entry {number}", what)
    months = sorted(each.removeprefix("month ") for each in known.values() if "month" in each)
    for before, after in pairwise(months):
        if after != following_month(before):
            yield Finding("closed months", after, f"it follows {before}")


def following_month(month: str) -> str:
    year, number = map(int, month.split("-"))
    return f"{year + number // 12}-{number % 12 + 1:02}"


def unproven(url: str, tokens: Mapping[str, str], key: str) -> Iterable[Finding]:
    """Run what tenants and operators run to check what they are told, with the site's key."""
    for who, token in tokens.items():
        words = ["usage", "verify", "--key", key]
        if who != "operator":
            words = ["verify", "--tenant", who, "--all", "--key", key]
        done = subprocess.run(
            [Path(sys.executable).with_name("fuga"), *words],
            env={**inherited(), "FUGA_URL": url, "FUGA_TOKEN": token},
            capture_output=True, text=True, check=False, timeout=WAIT_S,
        )  # fmt: skip
        if done.returncode:
            yield Finding("not proven", who, (done.stdout + done.stderr).strip())
