"""``python -m tests.chaos``: strike a whole site with faults, seed by seed."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from lab import cluster
from tests.chaos.faults import KINDS, batches, schedule
from tests.chaos.run import run
from tests.chaos.site import running_site


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=len(KINDS), help="per seed")
    parser.add_argument("--seeds", default="1", help="one or more, separated by commas")
    parser.add_argument("--hosts", type=int, default=5)
    parser.add_argument("--at-once", type=int, default=5, help="faults that strike together")
    parser.add_argument("--no-fsync", action="store_true", help="PostgreSQL with fsync off")
    parser.add_argument("--only", default="", help="faults whose name or kind contains this")
    parser.add_argument("--logs", type=Path, help="folder that keeps the processes' logs")
    options = parser.parse_args(arguments)
    kinds = [each for each in KINDS if options.only in f"{each.__name__}\n{each.kind}"]
    if not kinds:
        known = ", ".join(sorted(each.__name__ for each in KINDS))
        parser.error(f"no fault's name or kind contains {options.only!r}; faults: {known}")
    if reason := cluster.real_hosts_obstacle():
        parser.error(f"no real hosts here: {reason}")
    # Ended like by Ctrl-C: whatever runs is taken down first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    fsync = "off" if options.no_fsync else "on"
    print(f"PostgreSQL with fsync {fsync}, {options.hosts} hosts, {options.at_once} faults at once")
    findings = 0
    for seed in map(int, options.seeds.split(",")):
        logs = options.logs / str(seed) if options.logs else None
        with running_site(hosts=options.hosts, fsync=not options.no_fsync, keep=logs) as site:
            outcome = run(
                site,
                batches(schedule(options.faults, seed, kinds), options.at_once),
                seed,
                lambda line: print(line, flush=True),
            )
        print(outcome.table(), flush=True)
        findings += len(outcome.findings)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
