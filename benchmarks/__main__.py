"""Print the tables of all benchmarks, or of some.

    python -m benchmarks [--only scan,slot,growth,...] [--full]

scan         whole rounds against a compiled loop that scans all hosts for each VM
slot         ten thousand VMs on half filled hosts against a numpy pass of first fit
half         rounds on half filled hosts: fuga against best_fit_drfh, and its exchanges
growth       from 1,000 hosts on, each size in a process of its own, with its memory
start        `fuga --help` against Python that does nothing
answers      a question to policies in a fork of a warm process, against a new interpreter
balance      moves that level hosts against Ganeti's hbal on the same clusters
policies     every policy on the same rounds, against first fit
parameters   what fuga's parameters do to a round, against its defaults
mechanisms   divisible mechanisms against DRF on one pool
psdsf        PS-DSF to a residual of Theorem 1, against DRFH and the published procedure
hierarchies  MCH against H-DRF on binary trees, and a plot
moves        plans of moves against a pass over all hosts, and rounds that keep spare
plans        plans of moves through the register center, from its rows to the moves
starving     large VMs among small ones: hosts held back against room made by moves
registry     the register center on SQLite and on PostgreSQL
backlog      a commit while ever more VMs wait than it places
sweeps       a sweep as ever more is due, and what the end of large requests holds up
api          requests accepted a second by two processes, against a bare endpoint
pages        what 50 open pages of the web console cost the API, by streams and by polling
floods       what honest callers wait for while a stranger floods the API, and without it
aged         what is done daily on a register a year old, against a young one
monitor      how late hosts are polled while one of them is frozen, and at what cost
monitors     the same of many hosts on two monitors, one host in a hundred frozen
sizing       what each process of a site takes, by number of hosts
guests       real guests through fuga's workers, against a bare script of two processes
evacuation   real guests moved away from a host, against a bare script
whole        rounds from read to record on PostgreSQL, against one VM at a time
simulate     events per second of the simulator, against a plain event loop
azure        the same on 410,000 VMs in 5.7 days drawn from Azure's trace, and on a quarter
memory       the peak of the simulator's memory as its trace grows
bursts       waits of tenants that come in bursts beside steady ones, with a memory of holdings
properties   which properties of fairness hold, by search for counter-examples

All of them take about a quarter of an hour on two idle cores; ``--full`` measures the larger
sizes too, up to 128,000 hosts, and takes an hour or so. Each is also a module of
its own with more arguments (``python -m benchmarks.placement.policies --help``). Times are
of the processor unless a table says otherwise; ratios compare across machines,
seconds do not.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Sequence
from typing import Final

_HOSTS: Final = "1000:64c:256g"
_AZURE: Final = ("--shape", "azure", "--days", "1.425", "--requests", "102569", "--hosts", _HOSTS)
#: Table -> module, its arguments, and the arguments of ``--full``.
TABLES: Final[dict[str, tuple[str, Sequence[str], Sequence[str]]]] = {
    "scan": ("placement.rounds", ["scan"], ["scan"]),
    "slot": ("placement.rounds", ["slot"], ["slot"]),
    "half": ("placement.rounds", ["half"], ["half"]),
    "growth": ("placement.rounds", ["growth"], ["growth", "--full"]),
    "start": ("start", [], []),
    "answers": ("placement.policy_children", [], []),
    "balance": ("placement.balance", [], ["--full"]),
    "policies": ("placement.policies", ["--seeds", "1"], []),
    "parameters": ("placement.parameters", [], ["--full"]),
    "mechanisms": ("placement.mechanisms", ["--repeats", "1"], ["--large"]),
    "psdsf": ("placement.psdsf", ["--quick"], []),
    "hierarchies": (
        "placement.hierarchies",
        ["--jobs", "64,128,256"],
        ["--jobs", "64,128,256,512,1024"],
    ),
    "moves": ("placement.moves", ["--repeats", "1"], []),
    "plans": ("whole_plans", ["--sizes", "125,625"], []),
    "starving": ("placement.starving", ["--seeds", "1"], ["--policies", "best_fit_drfh,fuga"]),
    "registry": ("registry", ["--vms", "3000", "--hosts", "300", "--repeats", "2"], []),
    "sweeps": ("sweeps", ["--due", "100,1000", "--requests", "4"], []),
    "backlog": ("backlog", ["--waiting", "10,1000"], []),
    "aged": ("aged", ["--gone", "100000"], []),
    "monitor": ("monitor", ["--hosts", "10,25"], ["--hosts", "25,50,100,200"]),
    "sizing": ("site.sizing", ["--hosts", "10"], []),
    "monitors": (
        "monitors",
        ["--hosts", "250,1000", "--seconds", "15"],
        ["--hosts", "2000,12500", "--interval", "60", "--seconds", "60"],
    ),
    "guests": (
        "lab.guests",
        ["--guests", "15", "--repeats", "1"],
        ["--guests", "15,30,45", "--repeats", "3"],
    ),
    "evacuation": ("lab.evacuation", ["--guests", "6", "--repeats", "1"], []),
    "api": ("api", [], ["--before", "0,5000,50000", "--connections", "8,32,128"]),
    "floods": ("floods", ["--seconds", "5"], ["--seconds", "20"]),
    "pages": ("pages", ["--seconds", "8"], []),
    "whole": ("whole_rounds", ["--sizes", "500,2500"], []),
    "simulate": (
        "simulate",
        ["--requests", "2000"],
        ["--requests", "20000", "--hosts", "google:1000"],
    ),
    "azure": (
        "simulate",
        [*_AZURE, "--policies", "best_fit_drfh,fuga"],
        [*_AZURE, "--policies", "first_fit,best_fit_drfh,fuga,slots"],
    ),
    "bursts": ("placement.bursts", ["--parts", "2"], ["--parts", "12"]),
    "memory": (
        "memory",
        ["--requests", "2000,20000", "--policies", "best_fit_drfh"],
        ["--requests", "10000,100000,1000000"],
    ),
    "properties": ("properties.__main__", ["--cases", "6"], []),
}


def main(argv: Sequence[str] | None = None) -> None:
    arguments = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_argument("--only", default=",".join(TABLES), help="tables, with commas between")
    arguments.add_argument("--full", action="store_true", help="the larger sizes too")
    given = arguments.parse_args(argv)
    names = given.only.split(",")
    for name in names:
        if name not in TABLES:
            arguments.error(f"--only {name}: one of {', '.join(TABLES)}")
    for name in names:
        module, few, all_ = TABLES[name]
        print(f"\n== {name}", flush=True)
        started = time.perf_counter()
        importlib.import_module(f"benchmarks.{module}").main(all_ if given.full else few)
        print(f"-- {name}: {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
