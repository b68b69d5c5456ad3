"""Proofs of rounds: links of the hash chain, their signatures, and rows of tenants."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofPool:
    """The capacity of all hosts that a round's shares are fractions of."""

    resources: tuple[str, ...]
    amounts: tuple[int, ...]  #: by resource


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofMemory:
    """The decay of past holdings in a round."""

    half_life_s: int
    horizon_s: int  #: mean life of VMs


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofHeader:
    """The public fields of a round."""

    round: int
    slot_start_at: str  #: ISO 8601, UTC, to the microsecond
    policy: str
    decided_by: str
    cut: bool
    seed: int
    engine_version: str
    inputs_digest: str
    bound: float | None
    fair_distance: float | None
    pool: ProofPool | None  #: None: of a round from before version 2
    memory: ProofMemory | None = None  #: None: past holdings do not count


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofHeld:
    """What a tenant's shares are computed from, by resource in the order of the pool."""

    before: tuple[int, ...]
    after: tuple[int, ...]  #: with the decided placements


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofLevel:
    """Both parts of a tenant's level after a round, and the past that it follows from."""

    past: float  #: parts of the pool, for what it held in the past
    now: float  #: parts of the pool, for what it holds
    #: decayed mean of what it held, in millionths, by resource in the order of the pool
    past_millionths: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofRow:
    """The values that a round discloses to one tenant about the tenant."""

    tenant: str
    weight: float
    before: float  #: dominant share of the tenant before the round
    after: float  #: dominant share with the round's placements
    target: float | None  #: fair dominant share
    asked: int  #: number of the tenant's VMs that waited
    given: int  #: number of VMs that the round placed
    held: ProofHeld | None  #: None: of a round from before version 2
    level: ProofLevel | None = None  #: None: past holdings do not count


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSignature:
    """The site's signature of a link, and thereby of all links before it."""

    key: str  #: public key, Ed25519, hexadecimal
    signature: str  #: hexadecimal


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteKey:
    """A public key of the site, and the rounds whose links it signs."""

    public_key: str  #: Ed25519, hexadecimal
    first_round: int
    last_round: int | None  #: None: the present key
    #: the signature by which the key before it names it; None: that key does not
    endorsement: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundProof:
    """The link of a round in the hash chain, with one tenant's row; digests are hexadecimal."""

    round: int
    previous: str  #: the link before
    content: str  #: digest of the header and the root
    link: str  #: digest of the link before and the content
    header: ProofHeader | None = None  #: None: purged, the link alone is kept
    root: str | None = None  #: root of the Merkle tree
    row: ProofRow | None = None  #: None: the round has none of this tenant
    salt: str | None = None  #: salt of the row's leaf
    path: tuple[
        tuple[Literal["left", "right"], str], ...
    ] = ()  #: from leaf to root: the sibling digests
    signed: HeadSignature | None = None  #: None: the link is not signed
