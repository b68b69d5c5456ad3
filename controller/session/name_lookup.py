"""Finds requests, VMs and reservations by typed names and ids."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from controller.client.errors import ApiProblemError
from controller.terminal.errors import BadInputError
from controller.terminal.times import clock
from plain_text import suggest_names

if TYPE_CHECKING:
    from controller.client.http import Client, Json

LIVE_REQUEST = frozenset({"pending", "partly_placed", "placed"})
OPEN_RESERVATION = frozenset({"pending", "accepted", "in_force"})
_SHORTEST_PART = 4
_ADVISED = 500
_MAX_SHOWN = 20  #: earlier VMs of one name
_MANY: Final = 20  #: names from which on whole lists are read instead of two calls for each name
#: How much of a list may be read for each name: a page of 500 costs about as much as four names.
_ITEMS_PER_NAME: Final = 125
_Query: TypeAlias = tuple[str, dict[str, Any]]  #: kind, and parameters of its list
#: The API's pattern of names, repeated here because importing its module would load FastAPI.
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
_VM_NAME = re.compile(r"[a-z0-9._-]{1,80}")


class NameNotFoundError(BadInputError):
    """The typed text names no request and no VM."""

    def __init__(self, typed: str, suggestion: str | None) -> None:
        hint = f"; {suggestion}" if suggestion else ". `fuga requests` and `fuga vms` list them."
        what = f"no request or VM with name or id {typed!r}"
        super().__init__(what + hint)
        self.suggestion = f"; {suggestion}" if suggestion else ""


@dataclass(frozen=True, slots=True)
class LookupTarget:
    """A request or a VM, as the API shows it."""

    kind: str  #: "request" or "vm"
    record: Json

    @property
    def path(self) -> str:
        """The target's path in the API."""
        return f"{self.kind}s/{self.record['id']}"

    def __str__(self) -> str:
        return f"{self.kind} {self.record['name']} of tenant {self.record['tenant']}"

    @property
    def is_live(self) -> bool:
        """Whether the target is neither deleted nor ended."""
        if self.kind == "request":
            return self.record["state"] in LIVE_REQUEST
        return bool(self.record["desired"] != "deleted")


def find_target(api: Client, typed: str) -> LookupTarget:
    """Find a request or VM by id, name, or the beginning or end of an id.

    Among several matches a live one wins, then the newest. Two live matches are ambiguous, also by
    a name and by a part of an id: a tenant may choose a name that equals a part of an id.
    """
    if found := _find_by_id(api, typed):
        return _choose_match(typed, found)
    found = _find_by_name(api, typed)
    named = {each.record["id"] for each in found}
    found += [each for each in _find_by_part_of_id(api, typed) if each.record["id"] not in named]
    if found:
        return _choose_match(typed, found)
    raise NameNotFoundError(typed, suggest_names(typed, _similar_names(api)))


def find_targets(api: Client, typed: Sequence[str]) -> list[LookupTarget]:
    """Find requests and VMs as `find_target` does, all before anything is done with one.

    Many are looked up in whole lists: first what is live, then requests that have ended. What is
    in neither, and all names if the lists are too long for their number, is looked up by itself.
    """
    index = _NameIndex(dict.fromkeys(typed))
    ended: _Query = ("request", {})
    live: list[_Query] = [("request", {"state": state}) for state in sorted(LIVE_REQUEST)]
    for lists, only_live in (([*live, ("vm", {})], True), ([ended], False)):
        missing = index.missing()
        if len(missing) < _MANY:
            break
        budget = _ITEMS_PER_NAME * len(missing)
        listed = (
            LookupTarget(kind, each)
            for kind, query in lists
            for each in api.items(f"{kind}s", **query)
        )
        if index.add_all(islice(listed, budget)) == budget:
            break
        index.choose(only_live=only_live)
    return [index.chosen.get(each) or find_target(api, each) for each in typed]


class _NameIndex:
    """Matches listed requests and VMs with typed names, ids and parts of ids."""

    def __init__(self, typed: Iterable[str]) -> None:
        self.chosen: dict[str, LookupTarget] = {}
        self._matches: dict[str, dict[Any, LookupTarget]] = {each: {} for each in typed}
        self._by_id: dict[str, list[str]] = {}
        self._by_part: dict[str, list[str]] = {}
        for each in self._matches:
            if (whole := _whole_id(each)) is not None:
                self._by_id.setdefault(whole, []).append(each)
            elif _may_be_part_of_id(each):
                self._by_part.setdefault(each.lower(), []).append(each)
        self._lengths = sorted({len(part) for part in self._by_part})

    def missing(self) -> list[str]:
        return [each for each in self._matches if each not in self.chosen]

    def add_all(self, listed: Iterable[LookupTarget]) -> int:
        """Keep what was typed; return how many were listed."""
        count = 0
        for target in listed:
            count += 1
            for each in self._typed_for(target.record):
                self._matches[each].setdefault(target.record["id"], target)
        return count

    def choose(self, *, only_live: bool) -> None:
        """Choose among the matches of each name; with ``only_live``, only if one is live."""
        for each in self.missing():
            found = list(self._matches[each].values())
            if found and (not only_live or any(target.is_live for target in found)):
                self.chosen[each] = _choose_match(each, found)

    def _typed_for(self, record: Json) -> Iterator[str]:
        key, name = str(record["id"]), record["name"]
        yield from self._by_id.get(key, ())
        if name in self._matches and _whole_id(name) is None:
            yield name
        for length in self._lengths:
            for part in {key[:length], key[-length:]}:
                yield from self._by_part.get(part, ())


def _whole_id(typed: str) -> str | None:
    try:
        return str(uuid.UUID(typed))
    except ValueError:
        return None


def find_past_target(api: Client, typed: str, say: Callable[[str], None]) -> LookupTarget:
    """Find a request or VM by name or id; if there is none, find a deleted VM.

    Among several deleted VMs of a name the newest is returned; ``say`` reports the others.
    """
    try:
        found = find_target(api, typed)
    except NameNotFoundError:
        gone = _deleted_vms(api, typed)
        if not gone:
            raise
        found = gone.pop()
    else:
        gone = [
            each for each in _deleted_vms(api, typed) if each.record["id"] != found.record["id"]
        ]
    if gone:
        newest_first = [f"  {_lifetime_text(each.record)}" for each in reversed(gone[-_MAX_SHOWN:])]
        say(
            f"this is {found}: {found.record['id']}. {len(gone)} other VMs that are gone had that"
            " name; give the id of one:\n" + "\n".join(newest_first)
        )
    return found


def _deleted_vms(api: Client, name: str) -> list[LookupTarget]:
    """Return deleted VMs of a name, oldest first: ids rise with time."""
    if not _may_be_name(name):
        return []
    rows = api.items("vms", name=name, include_deleted=True)
    return [
        LookupTarget("vm", each) for each in rows if each["name"] == name and each["deleted_at"]
    ]


def _lifetime_text(vm: Json) -> str:
    return f"{vm['id']} of {vm['tenant']}, {clock(vm['created_at'])} to {clock(vm['deleted_at'])}"


def _choose_match(typed: str, found: Sequence[LookupTarget]) -> LookupTarget:
    """Return the live request or VM of several matches, or the newest; refuse two live ones."""
    live = [each for each in found if each.is_live]
    if len(live) > 1:
        listed = "\n".join(f"  {each}: {each.record['id']}" for each in live)
        raise BadInputError(f"{typed!r} is ambiguous; give the id of one:\n{listed}")
    return live[0] if live else max(found, key=lambda each: str(each.record["id"]))


def _similar_names(api: Client) -> list[str]:
    """Return names of live requests and VMs, one page of each, for suggestions."""
    pages = [api.get(kind, limit=_ADVISED)["items"] for kind in ("requests", "vms")]
    live = [each for page in pages for each in page if each.get("state") in {None, *LIVE_REQUEST}]
    return list(dict.fromkeys(str(each["name"]) for each in live))


def _find_by_id(api: Client, typed: str) -> list[LookupTarget]:
    """Find a request or VM by its whole id."""
    whole = _whole_id(typed)
    if whole is None:
        return []
    for kind in ("request", "vm"):
        try:
            return [LookupTarget(kind, api.get(f"{kind}s/{whole}"))]
        except ApiProblemError as problem:
            if problem.http_status != 404:
                raise
    return []


def _find_by_name(api: Client, typed: str) -> list[LookupTarget]:
    requests = [LookupTarget("request", each) for each in api.items("requests", name=typed)]
    vms = [LookupTarget("vm", each) for each in api.items("vms", name=typed)]
    return [each for each in requests + vms if each.record["name"] == typed]


def _find_by_part_of_id(api: Client, typed: str) -> list[LookupTarget]:
    """Find requests and VMs by the beginning or end of an id."""
    if not _may_be_part_of_id(typed):
        return []
    return [
        LookupTarget(kind, each)
        for kind in ("request", "vm")
        for each in api.items(f"{kind}s")
        if is_part_of_id(typed, each["id"])
    ]


def _may_be_part_of_id(typed: str) -> bool:
    return len(typed) >= _SHORTEST_PART and set(typed.lower()) <= set("0123456789abcdef-")


def _may_be_name(typed: str) -> bool:
    """Return whether text is a valid name: the API refuses to search for others."""
    return _NAME.fullmatch(typed) is not None


def is_part_of_id(typed: str, whole: object) -> bool:
    """Return whether an id begins or ends with the typed text."""
    return str(whole).startswith(typed.lower()) or str(whole).endswith(typed.lower())


def find_request(api: Client, typed: str) -> Json:
    """Find a request by its name or id; refuse the name or id of a VM."""
    target = find_target(api, typed)
    if target.kind != "request":
        raise BadInputError(f"{typed!r} is a VM, not a request")
    return target.record


def find_vm_of_tenant(api: Client, typed: str, tenant: str | None) -> Json:
    """Find a VM by its name or id, by its name among those of a tenant first."""
    if _VM_NAME.fullmatch(typed) is not None:
        rows = api.items("vms", name=typed, tenant=tenant)
        named = [LookupTarget("vm", each) for each in rows if each["name"] == typed]
        if named:
            return _choose_match(typed, named).record
    target = find_target(api, typed)
    if target.kind != "vm":
        raise BadInputError(f"{typed!r} is a request, not a VM; `fuga vms` lists its VMs")
    return target.record


def find_volume(api: Client, typed: str, tenant: str | None = None) -> Json:
    """Find a volume by its id, its name, or the beginning or end of its id.

    Removed volumes are found only by their whole id.
    """
    whole = _whole_id(typed)
    if whole is not None:
        return api.get(f"volumes/{whole}")
    named = _may_be_name(typed)
    found = list(api.items("volumes", name=typed, tenant=tenant)) if named else []
    if _may_be_part_of_id(typed):
        known = {each["id"] for each in found}
        found += [
            each
            for each in api.items("volumes", tenant=tenant)
            if is_part_of_id(typed, each["id"]) and each["id"] not in known
        ]
    if not found:
        listed = api.get("volumes", tenant=tenant, limit=_ADVISED)["items"]
        suggestion = suggest_names(typed, [str(each["name"]) for each in listed])
        raise BadInputError(
            f"no volume with name or id {typed!r}; {suggestion or '`fuga volume list` lists them'}"
        )
    if len(found) > 1:
        raise BadInputError(f"{typed!r} is ambiguous; give the id of one:\n{_id_lines(found)}")
    return found[0]


def find_past_volume(api: Client, typed: str) -> Json | None:
    """Return the volume of a name, else the latest removed one, or None; refuse several."""
    if not _may_be_name(typed):
        return None
    found = list(api.items("volumes", name=typed))
    if len(found) > 1:
        raise BadInputError(f"{typed!r} is ambiguous; give the id of one:\n{_id_lines(found)}")
    found = found or list(api.items("volumes", name=typed, state="removed"))
    return found[-1] if found else None


def _id_lines(found: Iterable[Json]) -> str:
    return "\n".join(f"  {each['name']} of {each['tenant']}: {each['id']}" for each in found)


def find_reservation(api: Client, typed: str) -> Json:
    """Find a reservation by name, id, or the beginning or end of an id; open ones go first.

    Names are searched by the API, because ended reservations are listed for more than a year.
    """
    named = list(api.items("reservations", name=typed)) if _may_be_name(typed) else []
    if _may_be_part_of_id(typed):
        known = {each["id"] for each in named}
        named += [
            each
            for each in api.items("reservations")
            if is_part_of_id(typed, each["id"]) and each["id"] not in known
        ]
    if not named:
        raise BadInputError(
            f"no reservation with name or id {typed!r}; `fuga reservations --all` lists them"
        )
    standing = [each for each in named if each["state"] in OPEN_RESERVATION]
    if len(standing) > 1:
        raise BadInputError(f"{typed!r} is ambiguous; give the id of one:\n{_id_lines(standing)}")
    return (standing or named)[-1]
