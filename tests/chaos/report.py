"""The table at the end of a run."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from tests.chaos.run import Outcome


def table(outcome: Outcome) -> str:
    """Faults by kind with the time to heal, what tenants did, findings."""
    heal_s: defaultdict[str, list[float]] = defaultdict(list)
    for struck in outcome.struck:
        heal_s[struck.kind].append(struck.heal_s)
    lines = [
        f"seed {outcome.seed}: {len(outcome.struck)} faults in {outcome.took_s:.0f} s",
        f"  {'fault':46} {'times':>5} {'heal, median':>13} {'longest':>8}",
    ]
    for kind, times in sorted(heal_s.items()):
        lines.append(f"  {kind:46} {len(times):5} {median(times):11.1f} s {max(times):6.1f} s")
    lines += [f"  {what:46} {count:5}" for what, count in sorted(outcome.counts.items())]
    lines.append(f"  {'findings':46} {len(outcome.findings):5}")
    lines += [f"    {finding}" for finding in outcome.findings]
    return "\n".join(lines)
