"""The production engine on a trace: same policies, same snapshots, simulated clock and hosts."""

from simulation.errors import InputError, SimulationError
from simulation.recordings.recording import Decided, Recording, read_recording, record
from simulation.sites.inventory import Inventory, read_inventory
from simulation.slots.choice import Choice
from simulation.slots.engine import Engine
from simulation.slots.moving.asked import Moving
from simulation.studies.fleet import FleetStudy, JobQueue
from simulation.studies.job_run import run_job
from simulation.studies.jobs import JobFiles, JobTakenError, SharedFolderError
from simulation.studies.plan import plan, zone_policies
from simulation.studies.run import Progress, simulate
from simulation.studies.specs import RunSpec, TraceSpec
from simulation.studies.study import AnyStudy, RunFailedError, Study, on_interrupt, write_summary

__all__ = [
    "AnyStudy",
    "Choice",
    "Decided",
    "Engine",
    "FleetStudy",
    "InputError",
    "Inventory",
    "JobFiles",
    "JobQueue",
    "JobTakenError",
    "Moving",
    "Progress",
    "Recording",
    "RunFailedError",
    "RunSpec",
    "SharedFolderError",
    "SimulationError",
    "Study",
    "TraceSpec",
    "on_interrupt",
    "plan",
    "read_inventory",
    "read_recording",
    "record",
    "run_job",
    "simulate",
    "write_summary",
    "zone_policies",
]
