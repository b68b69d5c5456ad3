"""The production engine on a trace: same policies, same snapshots, simulated clock and hosts."""

from simulation.engine import Choice, Engine
from simulation.errors import InputError, SimulationError
from simulation.inventory import Inventory, read_inventory
from simulation.plan import plan, zone_policies
from simulation.recording import Decided, Recording, read_recording, record
from simulation.run import Progress, simulate
from simulation.specs import RunSpec, TraceSpec
from simulation.study import RunFailedError, Study, on_interrupt, write_summary

__all__ = [
    "Choice",
    "Decided",
    "Engine",
    "InputError",
    "Inventory",
    "Progress",
    "Recording",
    "RunFailedError",
    "RunSpec",
    "SimulationError",
    "Study",
    "TraceSpec",
    "on_interrupt",
    "plan",
    "read_inventory",
    "read_recording",
    "record",
    "simulate",
    "write_summary",
    "zone_policies",
]
