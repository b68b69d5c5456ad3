"""Run one simulation from its inputs to its files; a stopped run can be resumed."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from placement import PlacementError
from simulation.checkpoint import (
    CheckpointData,
    CheckpointError,
    ValueRange,
    encode_checkpoint,
    read_checkpoint,
    read_integer,
    read_seconds,
)
from simulation.experiments.specs import RunSpec, SimulationInputs, open_inputs
from simulation.metrics.recorder import SeriesRecorder
from simulation.metrics.summary import build_summary
from simulation.metrics.tables import write_tables
from simulation.slots.cluster import Cluster
from simulation.slots.engine import Engine
from simulation.slots.interning import InternedNames
from simulation.traces.chunks import Arrivals

SUMMARY: Final = "summary.json"
_CHECKPOINT: Final = "checkpoint.bin"
_OLD_CHECKPOINT: Final = "checkpoint.pickle"  #: of versions whose files could run code
_REPORT_EVERY_S: Final = 0.2
#: The errors of a simulation that resumes from a checkpoint with invalid values.
_MISFITS: Final = (
    ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, PlacementError,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """The progress of a simulation."""

    part: float  #: of the trace
    slot: int
    running: int
    waiting: int
    worker: str | None = None  #: the fleet worker that runs it


@dataclass(slots=True, kw_only=True)
class _RunState:
    """The state of a simulation between two slots."""

    digest: str
    engine: Engine
    recorder: SeriesRecorder
    next_slot: int | None  #: None: nothing has arrived yet
    taken: int  #: requests taken from the trace
    seconds: float  #: of the wall clock, so far
    processor_s: float  #: of this process, so far
    deciding_s: float  #: of the wall clock inside rounds
    events: int

    def state(self) -> CheckpointData:
        """Return the simulation's state for a checkpoint, but what `_initial_state` recreates."""
        return {
            "engine": self.engine.state(),
            "recorder": self.recorder.state(),
            "next_slot": self.next_slot,
            "taken": self.taken,
            "seconds": self.seconds,
            "processor_s": self.processor_s,
            "deciding_s": self.deciding_s,
            "events": self.events,
        }

    def restore(self, kept: CheckpointData) -> None:
        """Restore a simulation's checkpoint into a state that `_initial_state` has just made."""
        self.engine.restore(kept["engine"])
        self.recorder.restore(kept["recorder"])
        if kept["next_slot"] is not None:
            self.next_slot = read_integer(kept, "next_slot", ValueRange(-(2**62), 2**62))
        self.taken, self.events = read_integer(kept, "taken"), read_integer(kept, "events")
        for name in ("seconds", "processor_s", "deciding_s"):
            setattr(self, name, read_seconds(kept, name))


def simulate(
    spec: RunSpec,
    folder: Path,
    *,
    resume: bool = False,
    as_csv: bool = False,
    stop: Callable[[], bool] = lambda: False,
    report: Callable[[RunProgress], None] = lambda _: None,
) -> dict[str, Any]:
    """Run or resume a simulation, and write its files to a folder.

    Parameters
    ----------
    resume : bool
        Go on from where the same simulation was stopped, or take what it wrote
        if it had ended.
    stop : callable
        Called after each slot; once it returns True, what there is so far is written
        together with a checkpoint.

    Returns
    -------
    dict
        The summary, as written; ``finished`` says whether it came to its end.
    """
    digest = spec.digest()
    found = read_summary(folder, digest) if resume else None
    if found is not None and found["finished"]:
        return found
    folder.mkdir(parents=True, exist_ok=True)
    inputs = open_inputs(spec)
    state = _initial_state(spec, inputs, digest)
    if resume:
        _restore_checkpoint(state, folder)
    finished = _run_slots(spec, inputs, state, stop, report)
    summary = _run_summary(spec, inputs, state, finished=finished)
    names = [host.name for host in inputs.inventory.hosts]
    write_tables(folder, state.recorder, state.engine, names, as_csv=as_csv)
    if inputs.faults.count:
        (folder / "bad_rows.txt").write_text("\n".join(inputs.faults.lines()) + "\n")
    if finished:
        (folder / _CHECKPOINT).unlink(missing_ok=True)
    else:
        replace_file(folder / _CHECKPOINT, encode_checkpoint(state.state(), digest))
    (folder / _OLD_CHECKPOINT).unlink(missing_ok=True)
    replace_file(folder / SUMMARY, (json.dumps(summary, indent=2) + "\n").encode())
    return summary


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRun:
    """Results of a simulation that wrote no files."""

    finished: bool
    summary: Mapping[str, Any]
    recorder: SeriesRecorder
    engine: Engine


def simulate_in_memory(
    spec: RunSpec,
    *,
    stop: Callable[[], bool] = lambda: False,
    report: Callable[[RunProgress], None] = lambda _: None,
) -> ObservedRun:
    """Run a simulation as `simulate` does, and write no files."""
    inputs = open_inputs(spec)
    state = _initial_state(spec, inputs, spec.digest())
    finished = _run_slots(spec, inputs, state, stop, report)
    return ObservedRun(
        finished=finished,
        summary=_run_summary(spec, inputs, state, finished=finished),
        recorder=state.recorder,
        engine=state.engine,
    )


def _initial_state(spec: RunSpec, inputs: SimulationInputs, digest: str) -> _RunState:
    """Return the state of a simulation before its first slot."""
    engine = Engine(
        Cluster.of(inputs.inventory, inputs.resources),
        InternedNames(inputs.resources, inputs.weights, inputs.hierarchies[0][1]),
        spec,
        inputs.inventory.events,
        inputs.hierarchies[1:],
    )
    recorder = SeriesRecorder(
        inputs.resources,
        [host.host_class for host in inputs.inventory.hosts],
        ideal_every=spec.ideal_every,
        moving=spec.moving.measured,
    )
    return _RunState(
        digest=digest,
        engine=engine,
        recorder=recorder,
        next_slot=None,
        taken=0,
        seconds=0.0,
        processor_s=0.0,
        deciding_s=0.0,
        events=0,
    )


def _run_slots(
    spec: RunSpec,
    inputs: SimulationInputs,
    state: _RunState,
    stop: Callable[[], bool],
    report: Callable[[RunProgress], None],
) -> bool:
    """Simulate slot after slot until the end or a stop; return whether the end was reached."""
    arrivals = Arrivals(inputs.trace, state.taken)
    engine, length = state.engine, spec.slot_length_s
    if state.next_slot is None:
        first = arrivals.next_s()
        if first is None:
            return True
        state.next_slot = math.ceil(first / length)
    began, last_reported_at, before = time.perf_counter(), 0.0, state.seconds
    busy_before = state.processor_s - time.process_time()
    while True:
        slot = state.next_slot
        chunks = arrivals.take_until(slot * length)
        started = time.perf_counter()
        passed = engine.advance_to(slot, chunks)
        now = time.perf_counter()
        state.deciding_s += now - started
        state.recorder.record(passed, engine)
        placed = 0 if passed.round is None else int(passed.round.placed.count.sum())
        state.events += placed + sum(len(each) for each in passed.arrived)
        state.events += sum(int(vms.count.sum()) for vms in (*passed.ended, *passed.lost))
        state.next_slot, state.taken = slot + 1, arrivals.taken
        state.seconds = before + now - began
        state.processor_s = busy_before + time.process_time()
        if now - last_reported_at > _REPORT_EVERY_S:
            last_reported_at = now
            running, waiting = int(engine.names.vms.sum()), int(engine.waiting.count.sum())
            part = arrivals.read if spec.until_s is None else slot * length / spec.until_s
            report(RunProgress(part=min(part, 1.0), slot=slot, running=running, waiting=waiting))
        if _is_run_over(spec, engine, arrivals, slot, placed):
            return True
        if stop():
            return False


def _is_run_over(spec: RunSpec, engine: Engine, arrivals: Arrivals, slot: int, placed: int) -> bool:
    """Return whether a simulation is over after this slot."""
    if spec.until_s is not None:
        return (slot + 1) * spec.slot_length_s > spec.until_s
    if arrivals.next_s() is not None:
        return False
    if engine.movers is not None and engine.movers.is_rolling:
        return False
    if not spec.drain:
        return True
    # What still waits while nothing more ends, and no host returns, waits for ever.
    return not placed and engine.running.last_slot is None and engine.next_event_s is None


def _run_summary(
    spec: RunSpec, inputs: SimulationInputs, state: _RunState, *, finished: bool
) -> dict[str, Any]:
    """Return the summary of a simulation: its spec, its measures and the time it took."""
    return {
        "name": spec.name,
        "policy": spec.policy,
        "parameters": dict(spec.parameters),
        "seed": spec.seed,
        "slot_length_s": spec.slot_length_s,
        "finished": finished,
        "digest": state.digest,
        "spec": spec.document(),
        **build_summary(state.recorder, state.engine),
        "bad_rows": inputs.faults.document(),
        "timing": {
            "seconds": state.seconds,
            "processor_seconds": state.processor_s,
            "deciding_seconds": state.deciding_s,
            "events": state.events,
            "events_per_processor_second": state.events / max(state.processor_s, 1e-9),
        },
    }


def read_summary(folder: Path, digest: str) -> dict[str, Any] | None:
    """Return a folder's summary if it is of the same simulation, finished or not; else None."""
    try:
        found: dict[str, Any] = json.loads((folder / SUMMARY).read_text())
    except (OSError, ValueError):
        return None
    return found if found.get("digest") == digest else None


def _restore_checkpoint(state: _RunState, folder: Path) -> None:
    """Restore the checkpoint of the same simulation from a folder, if there is one.

    Raises
    ------
    CheckpointError
        If there is one that cannot be gone on from.
    """
    path = folder / _CHECKPOINT
    kept = read_checkpoint(path, state.digest)
    if kept is None:
        old = folder / _OLD_CHECKPOINT
        if old.exists() and read_summary(folder, state.digest) is not None:
            raise CheckpointError(
                old, "an older version of fuga wrote it, in a format that could run programs"
            )
        return
    try:
        state.restore(kept)
    except _MISFITS as error:
        reason = f"{type(error).__name__}: {error}"
        raise CheckpointError(path, f"it does not fit this simulation ({reason:.200})") from error


def replace_file(path: Path, data: bytes) -> None:
    """Write a file atomically: readers see the old one or the new one."""
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(data)
    partial.replace(path)
