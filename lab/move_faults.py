"""An experiment on two lab hosts: where a guest is after a fault during its move.

Usage: ``python -m lab.move_faults [--times N] [--only WORD] DIR``, as root. Starts two hosts in
DIR, moves one guest to and fro, injects a fault at a moment of each move, queries both hosts,
settles the move as `hypervisor.HostPairMigrator` says, and prints a table.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from hypervisor import (
    DomainSpec,
    DomainState,
    HostConnection,
    HostEndpoint,
    HostPairMigrator,
    HypervisorError,
    Mark,
    MoveSpec,
    OperationFailedError,
    domain_name,
    volume_name,
)
from lab import cluster
from lab.cluster import LabHost
from lab.errors import LabError

#: When in a move, as parts of what one takes: few early, many around its end.
MOMENTS: Final = (0.3, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
_ANSWER_S: Final = 60.0
_LOOK_S: Final = 2.0
DEADLINE_S: Final = 45.0  #: of each move
_SLOW_MIB_S: Final = 8
_BEATING: Final = (
    "run (while :; do read u _ </proc/uptime; echo BEAT $u >/dev/console; sleep 0.2; done) &"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveFault:
    """A fault: an action of ``lab/scripts/host-fault`` on one host, or a kill of the migrator."""

    name: str
    end: str  #: mover, source or destination
    action: str = ""
    until: str = ""  #: the action that ends it; empty: the hosts are started again
    slow: bool = False  #: in the middle of a slow move, not towards the end of a fast one


FAULTS: Final = (
    MoveFault(name="mover killed", end="mover"),
    MoveFault(
        name="destination's libvirtd killed",
        end="destination",
        action="kill-daemon",
        until="restart-daemon",
    ),
    MoveFault(
        name="source's libvirtd killed", end="source", action="kill-daemon", until="restart-daemon"
    ),
    MoveFault(
        name="destination's libvirtd hangs",
        end="destination",
        action="hang-daemon",
        until="resume-daemon",
        slow=True,
    ),
    MoveFault(
        name="source's libvirtd hangs",
        end="source",
        action="hang-daemon",
        until="resume-daemon",
        slow=True,
    ),
    MoveFault(
        name="destination's network cut",
        end="destination",
        action="cut-network",
        until="restore-network",
        slow=True,
    ),
    MoveFault(name="destination off", end="destination", action="power-off", slow=True),
    MoveFault(name="source off", end="source", action="power-off", slow=True),
)


@dataclass(slots=True)
class Trial:
    """The result of one move with a fault."""

    fault: MoveFault
    moment: float
    said: str = ""  #: by the mover
    took_s: float = 0.0
    left: tuple[str, str] = ("", "")  #: once both hosts answered: source, destination
    settled: str = ""
    ran_on_both: bool = False
    same_boot: bool = True


@dataclass
class Experiment:
    """Two hosts and a guest that moves between them."""

    hosts: Sequence[LabHost]
    directory: Path
    trials: list[Trial] = field(default_factory=list)
    usual_s: float = 1.0  #: what a fast move takes here
    _at: int = 0
    _here: MoveSpec | None = None
    _beat: float = 0.0  #: for how long the guest was up when it was last heard

    def __post_init__(self) -> None:
        self._connections = [HostConnection(each.uri, deadline_s=_ANSWER_S) for each in self.hosts]

    def close(self) -> None:
        """Remove the guest of the experiment, and close the connections to both hosts."""
        if self._here is not None:
            self._remove_guest(self._at, self._here)
        for each in self._connections:
            each.close()

    def measure_usual_duration(self, moves: int = 3) -> None:
        """Measure the median duration of moves without faults."""
        taken = []
        for _ in range(moves):
            wanted = self._prepare_move()
            started = time.monotonic()
            with self._open_migrator() as mover:
                mover.move_live(wanted, deadline_s=DEADLINE_S, on_progress=lambda _: None)
            taken.append(time.monotonic() - started)
            self._settle_move(wanted)
        self.usual_s = sorted(taken)[len(taken) // 2]

    def run_trial(self, fault: MoveFault, moment: float) -> Trial:
        """Move the guest, inject a fault at a moment of the move, and locate the guest again."""
        trial = Trial(fault, moment)
        wanted = self._prepare_move()
        if fault.slow:
            wanted = replace(wanted, bandwidth_mib_s=_SLOW_MIB_S)
        before = move_process_ids()
        mover = self._open_migrator()
        moving = threading.Thread(target=self._run_move, args=(mover, wanted, trial))
        looking = threading.Event()
        watching = threading.Thread(target=self._watch_both_hosts, args=(wanted, trial, looking))
        moving.start()
        watching.start()
        # The process of the mover has to start first; it takes a tenth of what a move does.
        time.sleep(moment * (2 * self.usual_s if fault.slow else self.usual_s))
        with self._injected_fault(fault, before, moving):
            moving.join(DEADLINE_S + _ANSWER_S)
        mover.close()
        self._await_both_hosts()
        trial.left = (
            self._domain_state(self._at, wanted),
            self._domain_state(1 - self._at, wanted),
        )
        trial.settled = self._settle_move(wanted)
        looking.set()
        watching.join()
        trial.same_boot = self._is_guest_alive()
        self.trials.append(trial)
        return trial

    # --- the guest -----------------------------------------------------------------

    def _prepare_move(self) -> MoveSpec:
        """Build the guest if there is none, and create its disk on the other host."""
        if self._here is None:
            self._build_guest()
        assert self._here is not None  # noqa: S101 - it was just built
        assignment_id = str(uuid.uuid4())
        mark = replace(
            self._here.mark, assignment_id=assignment_id, generation=self._here.mark.generation + 1
        )
        wanted = replace(
            self._here, mark=mark, volume=volume_name(assignment_id), bandwidth_mib_s=None
        )
        self._create_overlay(1 - self._at, wanted.volume)
        return wanted

    def _build_guest(self) -> None:
        """Build a guest on one of the two hosts, and wait for its first heartbeat."""
        vm_id, assignment_id = str(uuid.uuid4()), str(uuid.uuid4())
        mark = Mark(
            vm_id=vm_id, assignment_id=assignment_id, generation=1, tenant="experiment", round=1
        )
        host, connection = self.hosts[self._at], self._connections[self._at]
        self._here = MoveSpec(
            vm_id=vm_id,
            mark=mark,
            pool=host.pool,
            volume=volume_name(assignment_id),
            seed_volume=None,
            network=host.network,
        )
        self._create_overlay(self._at, self._here.volume)
        connection.define(
            DomainSpec(
                mark=mark,
                name=domain_name(vm_id),
                domain_type=host.domain_type,
                vcpus=1,
                memory_mib=96,
                pool=host.pool,
                volume=self._here.volume,
                network=host.network,
            )
        )
        connection.start_paused(vm_id)
        connection.resume(vm_id)
        _wait_until(lambda: b"LAB-GUEST-READY" in connection.console_tail(vm_id).content)
        connection.open_console(vm_id, force=True)
        typed = f"{_BEATING}\r".encode()
        while typed:
            typed = typed[connection.exchange_console(typed, wait_s=0.5).taken :]
        _wait_until(lambda: b"BEAT" in connection.exchange_console(b"", wait_s=0.5).content)
        connection.release_console()
        self._beat = 0.0
        self._is_guest_alive()

    def _create_overlay(self, at: int, name: str) -> None:
        """Create the guest's disk on one of the two hosts."""
        host = self.hosts[at]
        self._connections[at].create_overlay(
            pool=host.pool, name=name, base_volume=host.base_volume, capacity_gib=1
        )

    def _remove_guest(self, at: int, spec: MoveSpec) -> None:
        """Remove the guest from one host, or raise `LabError`."""
        removed = self._connections[at].remove(
            spec.vm_id,
            assignment_id=spec.mark.assignment_id,
            generation=spec.mark.generation,
            pool=spec.pool,
            volumes=(spec.volume,),
        )
        if not removed:
            raise LabError(f"{self.hosts[at].name} keeps {spec.vm_id}")

    def _is_guest_alive(self) -> bool:
        """Wait for the guest's next heartbeat; return whether it runs on without a reboot."""
        if self._here is None:
            return False
        connection, vm_id, known = self._connections[self._at], self._here.vm_id, self._beat

        def last_beat() -> float:
            output = connection.console_tail(vm_id).content.decode(errors="replace")
            # The last line may be half of one.
            beats = [float(each) for each in re.findall(r"BEAT (\d+\.\d+)\r?\n", output)]
            return beats[-1] if beats and beats[-1] > known else 0.0

        self._beat = _wait_until(last_beat)
        output = connection.console_tail(vm_id).content
        return b"LAB-GUEST-READY" not in output or self._here.mark.generation == 1

    # --- the move ------------------------------------------------------------------

    def _open_migrator(self) -> HostPairMigrator:
        """Return a migrator from the guest's host to the other one."""
        ends = [HostEndpoint(each.uri) for each in self.hosts]
        return HostPairMigrator(ends[self._at], ends[1 - self._at], deadline_s=_ANSWER_S)

    def _run_move(self, mover: HostPairMigrator, wanted: MoveSpec, trial: Trial) -> None:
        """Move the guest, and record in the trial how the move ended and how long it took."""
        started = time.monotonic()
        try:
            mover.move_live(wanted, deadline_s=DEADLINE_S, on_progress=lambda _: None)
            trial.said = "done"
        except HypervisorError as error:
            trial.said = type(error).__name__
        trial.took_s = time.monotonic() - started

    def _watch_both_hosts(self, wanted: MoveSpec, trial: Trial, looking: threading.Event) -> None:
        """Check repeatedly whether the guest runs on both hosts at once."""
        with (
            HostConnection(self.hosts[0].uri, deadline_s=_LOOK_S) as one,
            HostConnection(self.hosts[1].uri, deadline_s=_LOOK_S) as other,
        ):
            while not looking.wait(0.02):
                with suppress(HypervisorError):
                    states = [each.find(wanted.vm_id) for each in (one, other)]
                    # The first may have moved on while the second was queried.
                    states.append(one.find(wanted.vm_id))
                    run = [s is not None and s.state is DomainState.RUNNING for s in states]
                    trial.ran_on_both = trial.ran_on_both or all(run)

    @contextmanager
    def _injected_fault(
        self, fault: MoveFault, before: set[int], moving: threading.Thread
    ) -> Iterator[None]:
        """Inject a fault of a trial, and end it with the block."""
        if fault.end == "mover":
            for pid in move_process_ids() - before:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            yield
            return
        number = 1 + (self._at if fault.end == "source" else 1 - self._at)
        cluster.inject_fault(self.directory, number, fault.action)
        try:
            yield
        finally:
            if fault.until:
                cluster.inject_fault(self.directory, number, fault.until)
            else:
                start_two_hosts(self.directory)
            moving.join()

    # --- afterwards ----------------------------------------------------------------

    def _await_both_hosts(self) -> None:
        """Wait until both hosts answer, and then a second for the end of a broken move."""

        def both_answer() -> bool:
            with suppress(HypervisorError):
                for each in self._connections:
                    each.report("default", deadline_s=_LOOK_S)
                return True
            return False

        _wait_until(both_answer)
        time.sleep(1.0)

    def _domain_state(self, at: int, wanted: MoveSpec) -> str:
        """Return the state of the guest's domain on one host as text."""
        seen = self._connections[at].find(wanted.vm_id)
        if seen is None:
            return "absent"
        return f"{seen.state.value}{' by move' if seen.paused_by_move else ''}"

    def _settle_move(self, wanted: MoveSpec) -> str:
        """Settle a move as `HostPairMigrator` prescribes; return where the guest then is."""
        assert self._here is not None  # noqa: S101 - it was moved
        here, there = self._connections[self._at], self._connections[1 - self._at]
        left, found = here.find(wanted.vm_id), there.find(wanted.vm_id)
        if left is not None and left.state is DomainState.RUNNING:
            self._remove_guest(1 - self._at, wanted)
            return "source"
        resumed = ""
        if left is None and found is not None and found.state is DomainState.PAUSED:
            there.resume(wanted.vm_id)
            resumed = ", resumed"
            found = there.find(wanted.vm_id)
        if found is not None and found.state is DomainState.RUNNING:
            self._remove_guest(self._at, self._here)
            self._here, self._at = wanted, 1 - self._at
            return f"destination{resumed}"
        self._remove_guest(1 - self._at, wanted)
        if left is not None and left.state is DomainState.PAUSED:
            try:
                here.resume(wanted.vm_id)
            except OperationFailedError:
                self._remove_guest(self._at, self._here)
                self._here = None
                return "source, stuck"
            return "source, resumed"
        # Its host or its QEMU failed: what it had in memory is gone.
        if left is not None:
            self._remove_guest(self._at, self._here)
        self._here = None
        return "source, off"


def start_two_hosts(directory: Path, guest: Path | None = None) -> list[LabHost]:
    """Start two real hosts with a network between them, unless they run."""
    return cluster.start_real_hosts(2, directory, guest, transport="tcp")


def results_table(trials: Sequence[Trial]) -> str:
    """Format the trials' results as a table with a row for each fault."""
    lines = [
        "| fault | moves | the mover said | took, s | then at source / destination | settled at |"
        " ran on both |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(each.fault.name for each in trials):
        some = [each for each in trials if each.fault.name == name]
        taken = [each.took_s for each in some]
        both = sum(each.ran_on_both for each in some)
        lines.append(
            f"| {name} | {len(some)} | {_word_counts([each.said for each in some])}"
            f" | {min(taken):.1f}-{max(taken):.1f}"
            f" | {_word_counts([' / '.join(each.left) for each in some])}"
            f" | {_word_counts([each.settled for each in some])} | {both} |"
        )
    return "\n".join(lines)


def _word_counts(words: Sequence[str]) -> str:
    """Return the numbers of equal words as text, the largest first."""
    return ", ".join(f"{word} ({count})" for word, count in Counter(words).most_common())


def move_process_ids() -> set[int]:
    """Return the pids of this process's children that move VMs."""
    found = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                # What follows the name, which may have spaces: state, then the parent's pid.
                parent = (process / "stat").read_text().rpartition(") ")[2].split()[1]
                words = (process / "cmdline").read_bytes().split(b"\0")
                if parent == str(os.getpid()) and b"hypervisor.child.move" in words:
                    found.add(int(process.name))
    return found


def _wait_until(look: Callable[[], float | bool]) -> float:
    """Wait until a function returns a true value, and return it; raise `LabError` after a while."""
    deadline = time.monotonic() + _ANSWER_S
    while not (seen := look()):
        if time.monotonic() > deadline:
            raise LabError(f"the guest or its host was not heard for {_ANSWER_S:g} s")
        time.sleep(0.1)
    return float(seen)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the experiment with faults during moves, and print its table."""
    parser = argparse.ArgumentParser(prog="python -m lab.move_faults", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--times", type=int, default=2, help="moves for each moment")
    parser.add_argument("--only", default="", help="faults whose name has this word")
    parser.add_argument("--guest", type=Path, default=None, help="folder of the guest's image")
    given = parser.parse_args(arguments)
    experiment = Experiment(start_two_hosts(given.directory, given.guest), given.directory)
    try:
        experiment.measure_usual_duration()
        sys.stderr.write(f"a move takes {experiment.usual_s:.2f} s\n")
        for fault in FAULTS:
            if given.only in fault.name:
                for moment in MOMENTS[::5] if fault.slow else MOMENTS * given.times:
                    trial = experiment.run_trial(fault, moment)
                    sys.stderr.write(f"{trial}\n")
        sys.stdout.write(results_table(experiment.trials) + "\n")
    finally:
        experiment.close()
        cluster.stop_hosts(given.directory, purge=True)


if __name__ == "__main__":
    main()
