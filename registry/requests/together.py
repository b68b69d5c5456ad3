"""Requests accepted in one transaction: each as it would be alone, in the order of its calls.

What a transaction costs, and what many statements cost that each touch one row, is paid
once for all who ask at the same time. Nothing is refused here. A call that cannot be
accepted, or whose acceptance needs more than what is read for all together, is left out
and leaves nothing behind; made alone (`new_requests`) it is told why, or accepted.

The locks are taken in the order in which a request alone takes them: keys, tenants, the
groups of tenants above them. Of each kind all are taken in one statement, in one order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, Select, bindparam, func, select, union_all

from registry.catalogue.resources import VMS
from registry.catalogue.vm_types import get_vm_type
from registry.errors import RegistryError
from registry.ground.audited import Told, write_intents
from registry.ground.bulk import insert_rows
from registry.ground.clock import db_now
from registry.ground.locks import has_one_writer
from registry.ground.names import is_name
from registry.ground.schema import (
    request_access,
    request_images,
    requests,
    tenants,
    vm_types,
    vms,
)
from registry.images.images import image_for
from registry.journal.events import record
from registry.journal.idempotency import claim_keys, give_back, keep_answers
from registry.lifecycle import FINISHED, VmDesired
from registry.networks.addresses import give_macs
from registry.records.images import Image
from registry.records.journal import IdempotencyKey, StoredAnswer
from registry.records.requests import Request
from registry.records.tenancy import OverQuota
from registry.requests.guest_access import access_rows
from registry.requests.new import Asking, history, new_request, request_row
from registry.requests.vm_names import numbered_names, vm_rows
from registry.tenancy.quota_use import Amounts, amounts_of, asked, limits_of, lock_limited
from registry.tenancy.quotas import MOST_ASKED, when_over

#: Of one call: who asks for more waits for nobody, and nobody waits for it.
MOST_VMS: Final = 32
#: All wait while one waits, so they give up early, and each waits by itself.
LOCK_WAIT_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Group:
    """What became of some calls: the requests that were made, in place; and the audit's rows."""

    made: Sequence[Request | None]
    told: Sequence[Told]


@dataclass(frozen=True, slots=True)
class _Draft:
    """A request that can be made, and is not yet."""

    asking: Asking
    made: Request
    owner: UUID
    type_id: UUID
    image: Image | None
    answer: StoredAnswer | None


def goes_together(asking: Asking) -> bool:
    """Tell whether a call rests on nothing but what is read for all together."""
    wanted = asking.asked
    return (
        wanted.count <= MOST_VMS
        and wanted.hosts is None
        and wanted.network is None
        and wanted.rules.affinity is None
        and wanted.rules.anti_affinity is None
    )


def make_together(connection: Connection, askings: Sequence[Asking]) -> Group:
    """Write all of these requests that can be accepted, and return them in their places."""
    now = _begin(connection)
    keys = [each.idempotency for each in askings if each.idempotency is not None]
    claimed = claim_keys(connection, keys, now)
    drafts = _drafts(connection, askings, claimed, now)
    drafted = {draft.asking.idempotency for draft in drafts.values()}
    give_back(connection, [key for key in claimed if key not in drafted])
    told = _write(connection, list(drafts.values()), now)
    places = range(len(askings))
    return Group([drafts[at].made if at in drafts else None for at in places], told)


def _begin(connection: Connection) -> datetime:
    """Return the time, and let this transaction wait for no lock for long."""
    if has_one_writer(connection):
        return db_now(connection)
    found: datetime = connection.execute(_BEGIN, {"wait": f"{LOCK_WAIT_MS}ms"}).one()[0]
    return found.astimezone(UTC)


def _drafts(
    connection: Connection,
    askings: Sequence[Asking],
    claimed: Iterable[IdempotencyKey],
    now: datetime,
) -> Mapping[int, _Draft]:
    """Return by their places the requests that can be made, in the order of their calls."""
    unused = set(claimed)
    wanted: dict[int, Asking] = {}
    for at, each in enumerate(askings):
        if each.idempotency is not None:
            if each.idempotency not in unused:  # answered before, or by one before it here
                continue
            unused.remove(each.idempotency)
        if goes_together(each):
            wanted[at] = each
    owners = _ids(connection, _ASKERS, {each.asked.tenant for each in wanted.values()})
    types = _ids(connection, _TYPES, {each.asked.vm_type for each in wanted.values()})
    wanted = {
        at: each
        for at, each in wanted.items()
        if each.asked.tenant in owners and each.asked.vm_type in types
    }
    left = _Left(connection, {owners[each.asked.tenant] for each in wanted.values()})
    names_used = _Names(connection, owners, list(wanted.values()))
    images = _Images(connection)
    drafts: dict[int, _Draft] = {}
    for at, each in wanted.items():
        owner, type_id = owners[each.asked.tenant], types[each.asked.vm_type]
        try:
            image = images.of(each)
            made = new_request(each.asked, image, None, now=now)
        except RegistryError:
            continue
        if names_used.free(owner, each, made) and left.take(owner, type_id, each):
            answer = each.answered(made) if each.answered is not None else None
            drafts[at] = _Draft(each, made, owner, type_id, image, answer)
    return drafts


def _ids(
    connection: Connection, query: Select[UUID, str], names: Iterable[str]
) -> Mapping[str, UUID]:
    """Return the ids that a query finds by names; of several with one name the last."""
    some = sorted(filter(is_name, names))
    if not some:
        return {}
    return {name: key for key, name in connection.execute(query, {"names": some})}


def _write(connection: Connection, drafts: Sequence[_Draft], now: datetime) -> Sequence[Told]:
    """Write drafts with their VMs, keys and history, and the audit's rows."""
    if not drafts:
        return ()
    insert_rows(
        connection,
        requests,
        [request_row(draft.made, draft.owner, draft.type_id) for draft in drafts],
    )
    insert_rows(
        connection,
        request_images,
        [
            {"request_id": draft.made.id, "image_id": draft.image.id}
            for draft in drafts
            if draft.image is not None
        ],
    )
    insert_rows(
        connection,
        request_access,
        [row for draft in drafts for row in access_rows(draft.made.id, draft.asking.asked.access)],
    )
    of_vms = [
        row
        for draft in drafts
        for row in vm_rows(draft.made, draft.owner, first=1, count=draft.made.count, now=now)
    ]
    insert_rows(connection, vms, of_vms)
    give_macs(connection, [row["id"] for row in of_vms])
    record(connection, [history(draft.made, draft.asking.actor) for draft in drafts])
    keep_answers(
        connection,
        [
            (draft.asking.idempotency, draft.made.id, draft.answer)
            for draft in drafts
            if draft.asking.idempotency is not None
        ],
    )
    return write_intents(
        connection,
        [
            (draft.asking.call, str(draft.made.id), _status(draft))
            for draft in drafts
            if draft.asking.call is not None
        ],
        now,
    )


def _status(draft: _Draft) -> int | None:
    """Return how the call ends, where that is kept."""
    kept = draft.asking.idempotency is not None and draft.answer is not None
    return draft.answer.status if kept and draft.answer is not None else None


class _Left:
    """What quotas leave to some tenants, who are locked, while one after another takes of it."""

    def __init__(self, connection: Connection, owners: Iterable[UUID]) -> None:
        self._connection = connection
        self._limited = lock_limited(connection, owners)
        self._limits = limits_of(
            connection, {key for path in self._limited.values() for key in path}
        )
        self._used: dict[UUID, Counter[str]] = {}
        self._amounts: dict[UUID, Amounts] = {}
        self._waits: dict[tuple[UUID, OverQuota], bool] = {}

    def take(self, owner: UUID, type_id: UUID, asking: Asking) -> bool:
        """Take what a call asks for, if that is left or may wait."""
        limited = self._limited[owner]
        if not limited:
            return True
        if type_id not in self._amounts:
            self._amounts[type_id] = amounts_of(self._connection, {type_id: 1})
        wanted = {
            resource: amount * asking.asked.count
            for resource, amount in self._amounts[type_id].items()
        }
        for key in limited:
            if key not in self._used:
                # Of what this transaction takes nothing is written yet.
                self._used[key] = Counter(asked(self._connection, key))
        enough = all(
            not wanted.get(resource) or self._used[key][resource] + wanted[resource] <= limit
            for key in limited
            for resource, limit in self._limits[key].items()
        )
        if not enough:
            if not self._may_wait(owner, asking.over_quota):
                return False
            if owner not in self._used:  # the limits are those of groups above it
                self._used[owner] = Counter(asked(self._connection, owner))
            if self._used[owner][VMS] + wanted[VMS] > MOST_ASKED:
                return False
        for key in {*limited, *self._used.keys() & {owner}}:
            self._used[key].update(wanted)
        return True

    def _may_wait(self, owner: UUID, otherwise: OverQuota) -> bool:
        if (owner, otherwise) not in self._waits:
            said = when_over(self._connection, owner, otherwise)
            self._waits[owner, otherwise] = said == "wait"
        return self._waits[owner, otherwise]


class _Names:
    """The names that tenants, who are locked, have given to what lives, as far as asked for.

    Stricter than a request alone: a name is one's, whatever it is a name of.
    """

    def __init__(
        self, connection: Connection, owners: Mapping[str, UUID], askings: Sequence[Asking]
    ) -> None:
        self._taken: defaultdict[UUID, set[str]] = defaultdict(set)
        wanted = [
            (owners[each.asked.tenant], _names_of(each.asked.name, each.asked.count))
            for each in askings
            if each.asked.name is not None
        ]
        if not wanted:
            return
        names = sorted({name for _, some in wanted for name in some})
        own = {"owners": sorted({owner for owner, _ in wanted}), "names": names}
        for row in connection.execute(_NAMES, own):
            self._taken[row.tenant_id].add(row.name)

    def free(self, owner: UUID, asking: Asking, made: Request) -> bool:
        """Give a request its names, if nobody has them."""
        names = _names_of(made.name, made.count)
        if asking.asked.name is not None and not self._taken[owner].isdisjoint(names):
            return False
        self._taken[owner].update(names)
        return True


def _names_of(name: str, count: int) -> Sequence[str]:
    return [name, *numbered_names(name, 1, count)]


class _Images:
    """The images that calls name, each kept from being removed once it was found."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._found: dict[tuple[str, str], Image] = {}

    def of(self, asking: Asking) -> Image | None:
        """Return the image of a call, or raise what it would be told alone."""
        reference = asking.asked.image
        if reference is None:
            return None
        wanted = reference, asking.asked.vm_type
        if wanted not in self._found:
            vm_type = get_vm_type(self._connection, asking.asked.vm_type)
            self._found[wanted] = image_for(self._connection, reference, vm_type)
        return self._found[wanted]


_BEGIN: Final = select(
    func.clock_timestamp(), func.set_config("lock_timeout", bindparam("wait"), True)
)
_ASKERS: Final = (
    select(tenants.c.id, tenants.c.name)
    .where(
        tenants.c.name.in_(bindparam("names", expanding=True)),
        tenants.c.removed_at.is_(None),
        tenants.c.is_group.is_(False),
    )
    .order_by(tenants.c.id)
    .with_for_update(key_share=True)
)
_TYPES: Final = (
    select(vm_types.c.id, vm_types.c.name)
    .where(vm_types.c.name.in_(bindparam("names", expanding=True)))
    .order_by(vm_types.c.revision)
)
_NAMES: Final = union_all(
    select(requests.c.tenant_id, requests.c.name).where(
        requests.c.tenant_id.in_(bindparam("owners", expanding=True)),
        requests.c.name.in_(bindparam("names", expanding=True)),
        requests.c.state.not_in([state.value for state in FINISHED]),
    ),
    select(vms.c.tenant_id, vms.c.name).where(
        vms.c.tenant_id.in_(bindparam("owners", expanding=True)),
        vms.c.name.in_(bindparam("names", expanding=True)),
        vms.c.desired != VmDesired.DELETED.value,
    ),
)
