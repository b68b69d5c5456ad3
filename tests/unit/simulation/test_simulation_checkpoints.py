"""A checkpoint is numbers and words: the same simulation goes on from it, and nothing runs."""

from __future__ import annotations

import hashlib
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from registry.requests import MembershipRule, Rules
from simulation import RunSpec, TraceSpec, simulate
from simulation.checkpoint import (
    CheckpointError,
    decode_checkpoint,
    encode_checkpoint,
    read_checkpoint,
)
from simulation.metrics.recorder import SeriesRecorder
from simulation.slots.engine import Engine
from simulation.slots.moving.move_options import (
    BalanceOptions,
    MoveOptions,
    MovePrice,
    RollOptions,
    RoomOptions,
)
from simulation.topology.hierarchy import Hierarchy, SimulatedQuota
from simulation.topology.hosts import HostEvent, HostEventKind, SimHost
from simulation.traces.request_constraints import RequestConstraints
from tests.simulations import RESOURCES, a_chunk, an_engine, random_chunks

pytestmark = pytest.mark.slow

DIGEST = hashlib.sha256(b"this simulation").hexdigest()
SLOTS = 36
NO_MOVES = MoveOptions()
HOSTS = [
    SimHost(name=f"h{number}", labels=(f"zone=z{number % 2}", "ssd") if number % 3 else ())
    for number in range(5)
]
WISHES = [
    RequestConstraints(),
    RequestConstraints(requires=("ssd",), rules=Rules(prefers=("zone=z1",))),
    RequestConstraints(rules=Rules(anti_affinity=MembershipRule(group="db"))),
    RequestConstraints(rules=Rules(affinity=MembershipRule(group="web", soft=True), spread="zone")),
]
TREE = Hierarchy(
    groups=("staff",), parents={"t0": "staff", "t1": "staff"}, weights={"staff": 2.0, "t2": 3.0}
)


#: Moves of all kinds, some of which are under way as a slot begins.
MOVING = MoveOptions(
    price=MovePrice(gib_per_s=0.02, rest_s=120.0),
    balance=BalanceOptions(every_s=120.0, least_gain=1e-6),
    spare="host", roll=RollOptions(at_s=600.0, takes_s=90.0, wait_s=300.0),
    room=RoomOptions(patience=3), measured=True,
)  # fmt: skip


def a_site(policy: str, moving: MoveOptions = NO_MOVES) -> Engine:
    """Hosts that fail and return, groups, quotas from a time on, and rules."""
    events = [
        HostEvent(at_s=600.0, host="h1", what=HostEventKind.FAIL),
        HostEvent(at_s=1200.0, host="h1", what=HostEventKind.RETURN),
        HostEvent(at_s=1500.0, host="h2", what=HostEventKind.LEAVE),
        HostEvent(at_s=1800.0, host="h4", what=HostEventKind.JOIN),
    ]
    engine = an_engine(
        HOSTS, capacity=[(4, 4096)] * 5, events=events, absent=frozenset({"h4"}), policy=policy,
        wait_at_most_s=900.0, hierarchy=TREE, moving=moving,
    )  # fmt: skip
    limited = Hierarchy(
        groups=TREE.groups, parents=TREE.parents, weights=TREE.weights,
        quotas=(SimulatedQuota(owner="t3", resource="vms", limit=2),),
    )  # fmt: skip
    engine._hierarchies = [(900.0, limited)]
    return engine


def a_recorder(moving: MoveOptions = NO_MOVES) -> SeriesRecorder:
    return SeriesRecorder(RESOURCES, ["all"] * len(HOSTS), ideal_every=3, moving=moving.measured)


def arriving(seed: int) -> list[Any]:
    wishes = random.Random(seed)
    chunks = random_chunks(seed, SLOTS, 60.0)
    for chunk in chunks:
        object.__setattr__(
            chunk, "request_constraints", tuple(wishes.choice(WISHES) for _ in chunk.tenant)
        )
    # Nothing arrives for a while: rounds that would repeat are left out.
    return chunks[:25] + [a_chunk() for _ in chunks[25:35]] + chunks[35:]


@pytest.mark.parametrize(
    ("policy", "seed", "moving"),
    [
        ("fuga", 1, NO_MOVES),
        ("random_fit", 2, NO_MOVES),
        ("best_fit_drfh", 1, MOVING),
        ("random_fit", 2, MOVING),
    ],
)
def test_a_simulation_taken_up_after_each_slot_is_the_one_that_was_never_stopped(
    policy: str, seed: int, moving: MoveOptions
) -> None:
    whole, parts = a_site(policy, moving), a_site(policy, moving)
    seen, seen_in_parts = a_recorder(moving), a_recorder(moving)
    idle = under_way = 0
    for slot, chunk in enumerate(arriving(seed)):
        seen.record(whole.advance_to(slot, [chunk] if len(chunk) else []), whole)
        seen_in_parts.record(parts.advance_to(slot, [chunk] if len(chunk) else []), parts)
        kept = decode_all({"engine": parts.state(), "recorder": seen_in_parts.state()})
        parts, seen_in_parts = a_site(policy, moving), a_recorder(moving)
        parts.restore(kept["engine"])
        seen_in_parts.restore(kept["recorder"])

        idle += parts.last_idle.seen is not None
        under_way += parts.movers is not None and bool(parts.movers.timetable.under_way)
        assert encode_checkpoint(parts.state(), DIGEST) == encode_checkpoint(whole.state(), DIGEST)
        assert encode_checkpoint(seen_in_parts.state(), DIGEST) == encode_checkpoint(
            seen.state(), DIGEST
        )
    assert idle
    assert bool(under_way) == moving.is_enabled
    assert len(seen.placements.column("count"))


def decode_all(document: dict[str, Any]) -> Any:
    return decode_checkpoint(body_of(encode_checkpoint(document, DIGEST)))


def body_of(data: bytes) -> bytes:
    return data.split(b"\n", 3)[3]


def with_body(body: bytes, digest: str = DIGEST) -> bytes:
    """What somebody writes who knows the format."""
    sums = hashlib.sha256(body).hexdigest()
    return f"fuga checkpoint 2\n{digest}\n{sums}\n".encode() + body


def refusal(path: Path, digest: str) -> str | None:
    """Return why a checkpoint is refused; None for one of another simulation."""
    try:
        assert read_checkpoint(path, digest) is None
    except CheckpointError as error:
        return str(error)
    return None


class Harm:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Path]]:
        return Path.mkdir, (self.folder,)


@pytest.fixture
def stopped(tmp_path: Path) -> tuple[RunSpec, Path]:
    rows = "".join(f"{7 * n},{60 * (1 + n % 9)},t{n % 5},{1 + n % 3},1024\n" for n in range(60))
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,lifetime_s,tenant,vcpus,memory_mib\n" + rows)
    spec = RunSpec(
        name="fuga-seed0", trace=TraceSpec(path=str(trace)), hosts="2:8c:16g", slot_length_s=30
    )
    slots = iter(range(5))
    simulate(spec, tmp_path / "out", stop=lambda: next(slots) == 4)
    return spec, tmp_path / "out"


@pytest.mark.parametrize("name", ["checkpoint.pickle", "checkpoint.bin"])
def test_a_pickle_in_the_place_of_a_checkpoint_is_not_run(
    stopped: tuple[RunSpec, Path], tmp_path: Path, name: str
) -> None:
    spec, folder = stopped
    (folder / "checkpoint.bin").unlink()
    (folder / name).write_bytes(pickle.dumps(Harm(tmp_path / "harm")))

    with pytest.raises(CheckpointError, match=name):
        simulate(spec, folder, resume=True)

    assert not (tmp_path / "harm").exists()


def test_an_old_checkpoint_of_another_simulation_is_nobodys(stopped: tuple[RunSpec, Path]) -> None:
    spec, folder = stopped
    (folder / "checkpoint.bin").unlink()
    (folder / "summary.json").unlink()
    (folder / "checkpoint.pickle").write_bytes(b"?")

    assert simulate(spec, folder, resume=True)["finished"]
    assert not (folder / "checkpoint.pickle").exists()


def test_a_damaged_checkpoint_is_refused_wherever_it_is_cut_or_changed(
    stopped: tuple[RunSpec, Path],
) -> None:
    spec, folder = stopped
    path = folder / "checkpoint.bin"
    whole = path.read_bytes()
    draw = random.Random(1)
    for _ in range(300):
        place = draw.randrange(len(whole))
        damaged = bytearray(whole)
        damaged[place] ^= 1 << draw.randrange(8)
        for content in (whole[:place], bytes(damaged), whole + b"x"):
            path.write_bytes(content)
            problem = refusal(path, spec.digest())
            if problem is None:  # of another simulation, as it says
                assert 18 <= place < 18 + 65
            else:
                assert str(path) in problem


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=300))
def test_no_bytes_do_harm(content: bytes) -> None:
    for body in (content, len(content).to_bytes(8, "little") + content):
        try:
            decode_checkpoint(body)
        except (ValueError, RecursionError):
            continue


@pytest.mark.parametrize(
    "head",
    [
        b'{"arrays": [["float", [281474976710655]]], "document": {}}',
        b'{"arrays": [["float", [70368744177663, 70368744177663]]], "document": {}}',
        b'{"arrays": [["object", [1]]], "document": {}}',
        b'{"arrays": [["float", [-1]]], "document": {}}',
        b'{"arrays": [["float", [1e9]]], "document": {}}',
        b'{"arrays": [], "document": {"a": {"array": 0}}}',
        b'{"arrays": [], "document": []}',
        b'{"arrays": {}}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_sizes_that_nobody_has_are_refused_before_anything_is_made(
    head: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint.bin"
    path.write_bytes(with_body(len(head).to_bytes(8, "little") + head))

    problem = refusal(path, DIGEST)
    assert problem is not None
    assert "damaged" in problem


def test_words_of_a_hostile_hand_are_refused_or_go_on_but_never_fail_otherwise(
    stopped: tuple[RunSpec, Path],
) -> None:
    spec, folder = stopped
    path = folder / "checkpoint.bin"
    document = decode_checkpoint(body_of(path.read_bytes()))
    places = list(places_of(document))
    draw = random.Random(2)
    values = [None, -1, 2**70, "x", [], {}, [["x"]], True, 1.5, np.zeros(3), np.zeros((2, 2), int)]
    refused = 0
    for _ in range(100):
        root: Any = decode_checkpoint(body_of(encode_checkpoint(document, DIGEST)))
        *above, last = draw.choice(places)
        holder = root
        for step in above:
            holder = holder[step]
        holder[last] = draw.choice(values)
        path.write_bytes(encode_checkpoint(root, spec.digest()))
        try:
            simulate(spec, folder, resume=True, stop=lambda: True)
        except CheckpointError:
            refused += 1
    assert refused > 50


def places_of(value: object, path: tuple[Any, ...] = ()) -> Any:
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield (*path, key)
            yield from places_of(each, (*path, key))
