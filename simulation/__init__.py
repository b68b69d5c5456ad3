"""Simulate the production engine on a trace, with a simulated clock and simulated hosts."""

from simulation.errors import InputError, SimulationError
from simulation.experiments.fleet import FleetStudy, JobQueue
from simulation.experiments.job_run import run_job
from simulation.experiments.jobs import JobFiles, JobTakenError, SharedFolderError
from simulation.experiments.run import RunProgress, simulate
from simulation.experiments.specs import RunSpec, TraceSpec
from simulation.experiments.study import (
    AnyStudy,
    RunFailedError,
    Study,
    stop_on_interrupt,
    write_summary,
)
from simulation.experiments.study_plan import plan_study, read_zone_policies
from simulation.recordings.recording import DecidedRounds, Recording, read_recording, record_period
from simulation.slots.engine import Engine
from simulation.slots.moving.move_options import MoveOptions
from simulation.slots.slot_decider import SimulatedPolicy
from simulation.topology.inventory import HostInventory, read_inventory

__all__ = [
    "AnyStudy",
    "DecidedRounds",
    "Engine",
    "FleetStudy",
    "HostInventory",
    "InputError",
    "JobFiles",
    "JobQueue",
    "JobTakenError",
    "MoveOptions",
    "Recording",
    "RunFailedError",
    "RunProgress",
    "RunSpec",
    "SharedFolderError",
    "SimulatedPolicy",
    "SimulationError",
    "Study",
    "TraceSpec",
    "plan_study",
    "read_inventory",
    "read_recording",
    "read_zone_policies",
    "record_period",
    "run_job",
    "simulate",
    "stop_on_interrupt",
    "write_summary",
]
