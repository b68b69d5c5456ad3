"""The inputs of a round as bytes: the policy's process gets them, and replays use the stored ones.

The policy's process and the register center get the same bytes, so a replay sees exactly what the
round saw.

Most of the inputs describe hosts, and little of that changes between two rounds. So each long
value is a piece whose text and compressed form are cached until the value changes. The bytes do
not depend on the cache: each piece is compressed separately, and all are joined into one zlib
stream.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from controller.rounds.damaged_rounds import reporting_damage
from controller.rounds.holding_memory import MemoryCache
from controller.rounds.snapshots import KnownArrays, SnapshotNames
from placement import Allocation, IntArray, LeftOut, QuotaHeadroom, Reason, Snapshot, decide
from placement.catalog.zone_policies import RoundPolicies, ZoneInputs
from placement.constraints.starving_requests import (
    StarvationPatience,
    patient_gangs,
    waiting_levels,
)
from placement.model.constraints import Constraints
from placement.model.memory import HoldingMemory
from placement.model.reservations import (
    ReservationPlacement,
    Reservations,
    Rows,
    check_reservations,
    parse_rows,
    place_reservations,
    restore_reservations,
)
from placement.model.snapshot import Borrowed, Spot
from placement.model.spot_pass import SpotPass
from placement.model.tenant_tree import TenantTree
from placement.rebalancing.freed_hosts import FreedHostsPolicy
from placement.rebalancing.model import RunningState
from placement.rebalancing.spare_policy import (
    SpareCapacityPolicy,
    room_for_failures,
    state_with_placed,
)
from registry.rounds import RoundRecord

#: Fields of a snapshot that are not arrays. `limits` belongs to policies and is never stored.
_NOT_ARRAYS = (
    "tree",
    "constraints",
    "allowances",
    "limits",
    "priority",
    "spot",
    "borrowed",
    "memory",
)
#: Keys that every record of a game between hosts has.
_GAME_KEYS: Final = {"players", "vms", "equilibrium", "sweeps"}
_DTYPES = {"eligible": np.bool_, "weight": np.float64}  # every other array is int64


#: Keys of long values in the document of `RoundInputs`.
LONG_VALUES: Final = frozenset(
    {
        ("names", "hosts"),
        ("names", "tenants"),
        ("snapshot", "capacity"),
        ("snapshot", "free"),
        ("snapshot", "held"),
        ("snapshot", "host_class"),
        ("snapshot", "weight"),
    }
)
#: Compression level: level 6 takes three times as long for a tenth less.
_LEVEL: Final = 4
#: The header of a zlib stream of this level, and an empty final block.
_BEGIN: Final = b"\x78\x5e"
_END: Final = b"\x03\x00"


@dataclass(slots=True, eq=False)
class InputPiece:
    """A part of the canonical text of a round's inputs."""

    value: Any  #: the value that the text encodes; None: not cached
    text: bytes
    _compressed: bytes | None = field(default=None, init=False)

    @property
    def compressed(self) -> bytes:
        """The text as raw deflate blocks that end at a byte boundary, without back references."""
        if self._compressed is None:
            made = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
            self._compressed = made.compress(self.text) + made.flush(zlib.Z_FULL_FLUSH)
        return self._compressed


class PieceCache:
    """Caches the latest piece of each long value of rounds' inputs."""

    def __init__(self) -> None:
        self._latest: dict[tuple[str, str], InputPiece] = {}

    def pieces_of(self, document: Mapping[str, Any]) -> Iterator[InputPiece]:
        """Yield the canonical text of a document of a round's inputs, piece by piece.

        The document may contain arrays; see `RoundInputs.document`.
        """
        short: list[str] = []
        for part in self._text_and_pieces(document):
            if isinstance(part, str):
                short.append(part)
                continue
            yield InputPiece(None, "".join(short).encode())
            yield part
            short = []
        yield InputPiece(None, "".join(short).encode())

    def _text_and_pieces(self, document: Mapping[str, Any]) -> Iterator[str | InputPiece]:
        """Yield the canonical text of a document: short values as text, long ones as pieces."""
        outer = "{"
        for name in sorted(document):
            yield f"{outer}{json.dumps(name)}:"
            outer = ","
            if name not in ("names", "snapshot"):
                yield canonical_json(document[name])
                continue
            inner = "{"
            for key in sorted(document[name]):
                yield f"{inner}{json.dumps(key)}:"
                inner = ","
                value = document[name][key]
                yield (
                    self._cached_piece((name, key), value)
                    if (name, key) in LONG_VALUES
                    else canonical_json(value)
                )
            yield "}"
        yield "}"

    def _cached_piece(self, where: tuple[str, str], value: Any) -> InputPiece:
        """Return the piece of a value; the last one of its key if the value is unchanged."""
        piece = self._latest.get(where)
        if piece is None or not _is_equal_value(piece.value, value):
            piece = self._latest[where] = InputPiece(value, canonical_json(value).encode())
        return piece


def zlib_stream(pieces: Iterator[InputPiece]) -> bytes:
    """Join the pieces of a round's inputs into one zlib stream."""
    parts, check = [_BEGIN], zlib.adler32(b"")
    for piece in pieces:
        parts.append(piece.compressed)
        check = zlib.adler32(piece.text, check)
    return b"".join([*parts, _END, check.to_bytes(4)])


def canonical_json(value: Any) -> str:
    """Return the canonical JSON text of values or an array, which is digested and stored."""
    plain = value.tolist() if isinstance(value, np.ndarray) else value
    return json.dumps(
        plain, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_json_default
    )


def _is_equal_value(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return type(one) is type(other) and bool(one == other)


def _json_default(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no JSON value")


@dataclass(frozen=True, slots=True, eq=False)
class RoundCache:
    """Caches from one round to the next; outcomes do not depend on them.

    They hold the arrays of hosts, the pieces of the stored inputs, and the mean life of VMs.
    """

    arrays: KnownArrays = field(default_factory=KnownArrays)
    memory: MemoryCache = field(default_factory=MemoryCache)
    pieces: PieceCache = field(default_factory=PieceCache)


def _json_value(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SpareInputs:
    """Inputs of a round with spare capacity: the running VMs, and the failure domains."""

    running: RunningState
    domain: IntArray  #: (H,) the failure domain of each host, -1 for none

    def document(self) -> dict[str, Any]:
        """Return JSON values that `from_document` converts back."""
        return {"running": self.running.document(), "domain": self.domain.tolist()}

    @classmethod
    def from_document(cls, document: Mapping[str, Any], snapshot: Snapshot) -> SpareInputs:
        """Convert the JSON values of `document` back to inputs with spare capacity."""
        return cls(
            running=RunningState.from_document(document["running"], snapshot),
            domain=np.array(document["domain"], dtype=np.int64),
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReservedInputs:
    """Reservations of a round, and the room that they get before the policy decides."""

    reserved: Reservations
    drawn: Rows
    kept: Rows
    rooms: tuple[int, ...] = ()  #: room of each allowance before reservations took any

    def document(self) -> dict[str, Any]:
        """Return JSON values that `from_document` converts back."""
        listed = {"drawn": list(map(list, self.drawn)), "kept": list(map(list, self.kept))}
        rooms = list(self.rooms)
        return {"reserved": self.reserved.document(), "rooms": rooms, **listed}

    @classmethod
    def from_document(cls, document: Mapping[str, Any], snapshot: Snapshot) -> ReservedInputs:
        """Convert the JSON values of `document` back to inputs with reservations."""
        return cls(
            reserved=Reservations.from_document(document["reserved"], snapshot),
            drawn=parse_rows(document["drawn"]),
            kept=parse_rows(document["kept"]),
            rooms=tuple(document["rooms"]),
        )

    def restore(self, rest: Snapshot) -> ReservationPlacement:
        """Recompute the placement of reservations from the remaining snapshot, and check it."""
        before = restore_reservations(rest, self.reserved, self.drawn, self.kept, self.rooms)
        check_reservations(before, self.reserved, self.drawn, self.kept)
        return place_reservations(before, self.reserved)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RoundInputs:
    """All inputs of a round's decision: the snapshot, the policy, its parameters and budget."""

    snapshot: Snapshot
    names: SnapshotNames
    policy: str
    parameters: Mapping[str, Any]
    seed: int
    budget_units: int | None
    zones: tuple[ZoneInputs, ...] = ()  #: none: the policy decides on all hosts
    freed: tuple[tuple[int, int], ...] = ()  #: see `placement.rebalancing.freed_hosts`
    spare: SpareInputs | None = None  #: None: no spare capacity is kept
    #: None: no reservations; else the snapshot is without their room
    reserved: ReservedInputs | None = None

    def decide_with(self, who: RoundPolicies) -> Allocation:
        """Run a policy on the round's inputs, within the rules that apply to any policy."""
        policy = who.make_policy()
        left = () if self.snapshot.spot is None else self.snapshot.spot.kept
        if self.freed or left:
            policy = FreedHostsPolicy(
                policy, self.freed, [(request, host) for request, host, _ in left]
            )
        spot_pass = SpotPass(policy=policy)
        if self.spare is not None:
            spot_pass = SpotPass(policy=policy, kept=self._kept_spare)
            policy = SpareCapacityPolicy(policy, self.spare.running, self.spare.domain)
        allocation = decide(
            self.snapshot,
            policy,
            seed=self.seed,
            budget_units=self.budget_units,
            spot_pass=spot_pass,
        )
        if self.reserved is None:
            return allocation
        again = self.reserved.restore(self.snapshot)
        result = {"drawn": list(map(list, again.drawn)), "kept": list(map(list, again.kept))}
        return dataclasses.replace(allocation, details={**allocation.details, "reserved": result})

    def _kept_spare(self, placed: IntArray) -> IntArray:
        """Return the amounts to keep free on each host, (H, R), for the VMs of a failed domain."""
        assert self.spare is not None  # noqa: S101 - the callers have checked
        after = state_with_placed(self.spare.running, self.snapshot, placed)
        return room_for_failures(after, self.spare.domain)

    def encode(self, pieces: PieceCache | None = None) -> bytes:
        """Return the round's inputs as compressed JSON; equal inputs give equal bytes."""
        return zlib_stream(
            (pieces or PieceCache()).pieces_of(self.document(plain=lambda value: value))
        )

    def digest(self, pieces: PieceCache | None = None) -> str:
        """Return the digest of the inputs without the time: equal digests mean equal decisions.

        The seed and the slot are left out: with the rest unchanged, a round that placed nothing
        would place nothing again. Ages of requests count only as far as they change decisions,
        that is, whether hosts may be held back for them. A memory of past holdings counts only
        as being there: it changes with time, and orders what there was no room for.
        """
        document = self.document(plain=lambda value: value)
        document["snapshot"]["age"] = self._waiting_levels()
        if "memory" in document["snapshot"]:
            document["snapshot"]["memory"] = True
        del document["seed"]
        digest = hashlib.sha256()
        for piece in (pieces or PieceCache()).pieces_of(document):
            digest.update(piece.text)
        return digest.hexdigest()

    def _waiting_levels(self) -> list[list[int]]:
        """Return requests' waiting levels for each patience of the policies, and patient gangs."""
        if not self.snapshot.age.any():  # no request has waited a round: all are at the first level
            return [_json_value(self.snapshot.age)]
        parameters = [self.parameters, *(zone.parameters for zone in self.zones)]
        patiences = [StarvationPatience.of(each) for each in parameters]
        levels = [
            _json_value(waiting_levels(self.snapshot.age, each))
            for each in sorted({each.patience for each in patiences})
        ]
        gangs = [patient_gangs(self.snapshot, each) for each in patiences]
        levels += [_json_value(each.astype(int)) for each in gangs if each.any()]
        return [each for at, each in enumerate(levels) if each not in levels[:at]]

    def document(self, plain: Callable[[Any], Any] = _json_value) -> dict[str, Any]:
        """Return the round's inputs as JSON values that `parse_round_inputs` converts back.

        ``plain`` converts arrays; by default to lists.
        """
        snapshot = {
            field.name: plain(getattr(self.snapshot, field.name))
            for field in dataclasses.fields(Snapshot)
            if field.init and field.name not in _NOT_ARRAYS
        }
        if self.snapshot.tree is not None:  # the bytes of rounds without a tree stay as before
            snapshot["tree"] = self.snapshot.tree.document()
        if self.snapshot.constraints:  # nor do those without change theirs
            snapshot["constraints"] = self.snapshot.constraints.document()
        if self.snapshot.allowances:  # nor do those without quotas
            snapshot["allowances"] = [dataclasses.asdict(each) for each in self.snapshot.allowances]
        if self.snapshot.priority is not None:  # nor do those without priorities
            snapshot["priority"] = plain(self.snapshot.priority)
        if self.snapshot.spot is not None:  # nor do those without spot VMs
            snapshot["spot"] = self.snapshot.spot.document()
        if self.snapshot.memory is not None:  # nor do those without a memory of past holdings
            snapshot["memory"] = self.snapshot.memory.document()
        if self.snapshot.borrowed is not None:  # nor do those without borrowed VMs
            snapshot["borrowed"] = self.snapshot.borrowed.document()
        document = {
            "snapshot": snapshot,
            "classes": int(self.snapshot.eligible.shape[1]),
            "names": _names_as_json(self.names),
            "policy": self.policy,
            "parameters": dict(self.parameters),
            "seed": self.seed,
            "budget_units": self.budget_units,
        }
        if self.zones:  # rounds without zones keep their bytes
            document["zones"] = [dataclasses.asdict(zone) for zone in self.zones]
        if self.freed:  # nor do those for which nothing moves
            document["freed"] = [list(row) for row in self.freed]
        if self.spare is not None:  # nor do those that keep nothing
            document["spare"] = self.spare.document()
        if self.reserved is not None:  # nor do those without reservations
            document["reserved"] = self.reserved.document()
        return document


def compressed_json(document: Any) -> bytes:
    """Return a document as compressed canonical JSON; equal documents give equal bytes."""
    return zlib.compress(canonical_json(document).encode(), level=6)


def decode_inputs(data: bytes) -> RoundInputs:
    """Decode the bytes that `RoundInputs.encode` returned."""
    return parse_round_inputs(json.loads(zlib.decompress(data)))


def read_round_inputs(record: RoundRecord) -> RoundInputs:
    """Return the inputs of a stored round.

    Raises
    ------
    RoundPurgedError
        If the inputs are no longer kept.
    RoundDamagedError
        If the inputs or the outcome cannot be read.
    """
    stored = record.decision()
    with reporting_damage(record.number):
        stored.outcome["details"]
        return decode_inputs(stored.inputs)


def parse_round_inputs(document: Mapping[str, Any]) -> RoundInputs:
    """Convert the JSON values of `RoundInputs.document` back to the inputs of a round."""
    stored = document["snapshot"]
    resources = tuple(stored["resources"])
    hosts, requests = len(stored["host_class"]), len(stored["count"])
    # JSON loses the shape of an array in which one axis is empty.
    shape_of = {
        "capacity": (hosts, len(resources)),
        "free": (hosts, len(resources)),
        "eligible": (requests, document["classes"]),
        "demand": (requests, len(resources)),
        "held": (len(stored["weight"]), len(resources)),
    }
    arrays: dict[str, Any] = {}
    for name, values in stored.items():
        if name != "resources" and name not in _NOT_ARRAYS:
            array: NDArray[Any] = np.array(values, dtype=_DTYPES.get(name, np.int64))
            arrays[name] = array.reshape(shape_of.get(name, (-1,)))
    spot, borrowed = stored.get("spot"), stored.get("borrowed")
    names, tree, rules = document["names"], stored.get("tree"), stored.get("constraints")
    priority, memory = stored.get("priority"), stored.get("memory")
    snapshot = Snapshot(
        resources=resources,
        tree=None if tree is None else TenantTree.from_document(tree),
        constraints=None if rules is None else Constraints.from_document(rules),
        allowances=tuple(map(QuotaHeadroom.from_document, stored.get("allowances", ()))),
        priority=None if priority is None else np.array(priority, dtype=np.int64),
        spot=None if spot is None else Spot.from_document(spot, len(resources)),
        memory=None if memory is None else HoldingMemory.from_document(memory),
        borrowed=None if borrowed is None else Borrowed.from_document(borrowed, len(resources)),
        **arrays,
    )
    spare, reserved = document.get("spare"), document.get("reserved")
    return RoundInputs(
        snapshot=snapshot,
        spare=None if spare is None else SpareInputs.from_document(spare, snapshot),
        reserved=None if reserved is None else ReservedInputs.from_document(reserved, snapshot),
        names=SnapshotNames(
            hosts=tuple(map(tuple, names["hosts"])),  # of a large cluster, the most by far
            tenants=tuple((a, b) for a, b in names["tenants"]),
            requests=tuple((a, b, c) for a, b, c in names["requests"]),
            groups=tuple((a, b, node) for a, b, node in names.get("groups", ())),
            quotas=tuple((a, b, most, held) for a, b, most, held in names.get("quotas", ())),
            spot=tuple((a, b) for a, b in names.get("spot", ())),
            borrowed=tuple((a, b) for a, b in names.get("borrowed", ())),
            reserved=tuple((a, b) for a, b in names.get("reserved", ())),
        ),
        policy=document["policy"],
        parameters=document["parameters"],
        seed=document["seed"],
        budget_units=document["budget_units"],
        zones=tuple(
            ZoneInputs(**{**zone, "hosts": tuple(zone["hosts"])})
            for zone in document.get("zones", ())
        ),
        freed=tuple((request, host) for request, host in document.get("freed", ())),
    )


def allocation_document(allocation: Allocation) -> dict[str, Any]:
    """Return an allocation as JSON values in canonical form."""
    document: dict[str, Any] = json.loads(
        canonical_json(
            {
                "placed": _json_value(allocation.placed),
                "left_out": [
                    [left.request, left.count, left.reason.value] for left in allocation.left_out
                ],
                "work": allocation.work,
                "cut": allocation.cut,
                "details": dict(allocation.details),
            }
        )
    )
    return document


def parse_allocation(document: Mapping[str, Any]) -> Allocation:
    """Convert the JSON values of `allocation_document` back to an allocation."""
    return Allocation(
        placed=np.array(document["placed"], dtype=np.int64).reshape(-1, 3),
        left_out=tuple(
            LeftOut(request=request, count=count, reason=Reason(reason))
            for request, count, reason in document["left_out"]
        ),
        work=document["work"],
        cut=document["cut"],
        details=document["details"],
    )


def games_of(details: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Return the games between hosts in an allocation's details.

    Plugin policies may use the key ``games`` for something else, which is ignored.
    """
    games = details.get("games", ())
    listed = games if isinstance(games, Sequence) else ()
    return tuple(each for each in listed if isinstance(each, Mapping) and each.keys() >= _GAME_KEYS)


def _names_as_json(names: SnapshotNames) -> dict[str, Any]:
    """Return the names of a snapshot's rows as JSON values; empty ones of later versions go."""
    document = {field.name: getattr(names, field.name) for field in dataclasses.fields(names)}
    # Rounds without any keep their bytes.
    for name in ("groups", "quotas", "spot", "borrowed", "reserved"):
        if not document[name]:
            del document[name]
    return document
