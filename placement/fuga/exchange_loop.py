"""The search for fair exchanges, on flat arrays; compiled where a compiler is.

`placement.fuga.exchange` says what an exchange is, and the types of C are in the file of the same
name that ends in .pxd. Both forms do the same arithmetic: integers of 64 bits and floats of C.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from placement.fuga.exchange_tables import ExchangeTables
    from placement.model.budget import Budget

#: Pairs weighed in one batch that cost about as much as one combination.
_PAIRS_A_UNIT: Final = 512
#: The most of the poorest parties that are checked together.
_LARGEST_BATCH: Final = 64
#: Different levels that are weighed at a time, after the richest.
_RICHEST: Final = 32
#: VMs needed where no number of them makes room.
_NEVER: Final = 2**62
#: More VMs than any party can give back; below `_NEVER`.
_ANY_NUMBER: Final = 2.0**61
#: As `placement.model.arrays.SHARE_TOLERANCE`.
_TOLERANCE: Final = 1e-9
#: As `placement.fairness.levels.level_in_steps`.
_MAX_STEPS: Final = 2.0**62
#: Parties found able within this margin are compared exactly afterwards.
_SLACK: Final = 3e-9
_ROUNDING: Final = 1 - 1e-12
#: A level that is not known.
_UNKNOWN: Final = -2.0


def fair_exchanges(
    tables: ExchangeTables, budget: Budget
) -> tuple[list[tuple[int, int, int, int]], bool]:
    """Return all fair exchanges in order: host, giving request, VMs given, receiving request.

    The second value says whether the budget ended the search.
    """
    search = ExchangeSearch(tables, budget)
    while search.make_fairest_exchange():
        pass
    return search.made, search.cut


class ExchangeSearch:
    """Finds the fairest exchange between tenants again and again.

    Requests that are alike, of one tenant and one kind, are one party: what one of them could
    gain or give, each could. A party without an exchange in its favour is checked again only
    after an exchange that could change this: one that touched parties on the same host, or made
    another tenant richer. The tenant that became poorer is always checked again.

    Waiting parties and tenants are kept in order of levels, so that a search ends at the first
    party that can give. A tenant that could give only by falling below the poorer one is skipped:
    what giving leaves a tenant at is known until it changes. The result equals a search of all
    parties, and is charged like one.

    The VMs of one request on one host are a row. The rows of a host, and those of a party, are
    linked lists. For each kind that was looked for there is a slot, with the fewest VMs of each
    party that make room for one of that kind on some host.
    """

    def __init__(self, tables: ExchangeTables, budget: Budget) -> None:
        self.made: list[tuple[int, int, int, int]] = []
        self.cut = False
        self._budget = budget
        self._pool, self._weight, self._level = tables.pool, tables.weight, tables.level
        self._held, self._demand, self._room = tables.held, tables.demand, tables.room
        self._first_party, self._tenant, self._kind = (
            tables.first_party,
            tables.tenant,
            tables.kind,
        )
        self._open_to, self._host_class = tables.open_to, tables.host_class
        self._party, self._next_alike = tables.party, tables.next_alike
        self._placed, self._waiting, self._kept = tables.placed, tables.waiting, tables.kept
        self._resources, self._tenants = len(tables.pool), len(tables.weight)
        self._parties, self._hosts = len(tables.tenant), len(tables.host_class)
        kinds = len(tables.demand) // max(self._resources, 1)
        self._classes = len(tables.open_to) // max(kinds, 1)
        self._steps = array("q", [0]) * self._tenants
        for tenant in range(self._tenants):
            self._steps[tenant] = steps_of(self._level[tenant])
        #: the tenants, the richest first
        self._richest: list[int] = []
        for tenant in range(self._tenants):
            if self._first_party[tenant] < self._first_party[tenant + 1]:
                self._richest.insert(self._place_of_tenant(tenant), tenant)
        self._vm_level = array("d", [0.0]) * self._parties
        #: the level of a party's tenant with one VM more
        self._level_after = array("d", [0.0]) * self._parties
        for party in range(self._parties):
            self._vm_level[party] = self._level_with(party, 1, 0)
            self._level_after[party] = self._level_with(party, 1, 1)
        #: of each party the first request that waits, -1 for none
        self._first_waiting = array("q", [-1]) * self._parties
        for party in range(self._parties):
            self._first_waiting[party] = self._next_waiting(tables.first_request[party])
        #: parties without an exchange in their favour, and the level that a giver must exceed
        self._without = array("b", [0]) * self._parties
        self._above = array("d", [0.0]) * self._parties
        #: of these, those for which another party seemed able to make room
        self._seemed_able: list[int] = []
        #: the waiting parties that may have an exchange, the poorest tenant's first
        self._queue: list[int] = []
        self._queued = array("b", [0]) * self._parties
        for party in range(self._parties):
            self._enter_queue(party)
        self._slot = array("q", [-1]) * kinds
        self._kind_of_slot: list[int] = []
        #: of each slot the parties without an exchange, the least level first
        self._without_of_slot: list[list[int]] = []
        self._fewest = array("q")  #: by slot and party
        #: by slot and tenant: its highest level after it makes room, -1 if it can make none
        self._level_left = array("d")
        self._reduced = array("b")  #: of each slot whether a party needs fewer VMs than before
        self._row_request, self._row_host = tables.row_request, tables.row_host
        self._row_count, self._rows = tables.row_count, len(tables.row_host)
        self._first_on_host = array("q", [-1]) * self._hosts
        self._first_of_party = array("q", [-1]) * self._parties
        self._next_on_host = array("q", [-1]) * self._rows
        self._next_of_party = array("q", [-1]) * self._rows
        for row in range(self._rows):
            self._link_row(row)
        self._needed_before = array("q")
        self._best_row, self._best_taken = -1, 0
        self._best_steps, self._best_lost, self._best_key = 0, 0, 0
        self._highest, self._highest_left = 0.0, -1.0

    def make_fairest_exchange(self) -> bool:
        """Make the fairest exchange, the poorest tenant's first; return whether there was one."""
        together = 1
        # Often the very first has one, so more and more are looked at together.
        while self._queue:
            looked_at = self._queue[:together]
            if not self._budget.spend(1 + len(looked_at) * self._parties // _PAIRS_A_UNIT):
                self.cut = True
                return False
            starts = [self._first_able_tenant(party) for party in looked_at]
            for party, start in zip(looked_at, starts, strict=True):
                if start < 0:
                    self._mark_without_exchange(party)
            for party, start in zip(looked_at, starts, strict=True):
                if start < 0:
                    continue
                if self._make_best_exchange_for(party, start):
                    return True
                if self.cut:
                    return False
                self._mark_without_exchange(party)
                self._seemed_able.append(party)
            together = min(2 * together, _LARGEST_BATCH)
        return False

    def _first_able_tenant(self, poor: int) -> int:
        """Return the place among the richest of the first tenant that can give to a poor party.

        Returns -1 if there is none.
        """
        slot = self._slot_of(self._kind[poor])
        too_poor = self._level[self._tenant[poor]] + self._vm_level[poor] - _TOLERANCE
        least = self._level_after[poor] * _ROUNDING - _SLACK
        for place in range(len(self._richest)):
            tenant = self._richest[place]
            if self._level[tenant] < too_poor:
                return -1  # as all that follow: in steps, they may be richer by a step at most
            if self._level_after_making_room(slot, tenant) < least:
                continue
            for rich in range(self._first_party[tenant], self._first_party[tenant + 1]):
                if self._is_able(poor, rich, slot):
                    return place
        return -1

    def _make_best_exchange_for(self, poor: int, start: int) -> bool:
        """Make the best exchange in favour of a waiting party; return whether there is one."""
        slot = self._slot[self._kind[poor]]
        too_poor = self._level[self._tenant[poor]] + self._vm_level[poor] - _TOLERANCE
        least = self._level_after[poor] * _ROUNDING - _SLACK
        place, tenants = start, len(self._richest)
        # The richest come first, so there is seldom need to weigh many.
        together = 1
        while True:
            levels, level, pairs, full = 0, -1, 0, False
            self._best_row = -1
            while place < tenants:
                tenant = self._richest[place]
                if self._level[tenant] < too_poor:
                    break
                if self._level_after_making_room(slot, tenant) >= least:
                    for rich in range(self._first_party[tenant], self._first_party[tenant + 1]):
                        if not self._is_able(poor, rich, slot):
                            continue
                        if self._steps[tenant] != level:
                            full = levels == together
                            if full:
                                break
                            levels, level = levels + 1, self._steps[tenant]
                        pairs += self._weigh_rows(poor, rich)
                if full:
                    break
                place += 1
            if not levels:
                return False
            if not self._budget.spend(1 + pairs // _PAIRS_A_UNIT):
                self.cut = True
                return False
            if self._best_row >= 0:
                self._apply_exchange(self._best_row, self._best_taken, self._first_waiting[poor])
                return True
            together = _RICHEST

    def _weigh_rows(self, poor: int, rich: int) -> int:
        """Keep the best row of a party if it is better than the one so far; return how many fit.

        The richest tenant's comes first, then what takes least of its level, then the least index.
        """
        kind, steps = self._kind[poor], self._steps[self._tenant[rich]]
        maximum = self._max_vms_to_give(poor, rich)
        row, pairs, last, rich_after, lost = self._first_of_party[rich], 0, -1, 0.0, 0
        while row >= 0:
            needed = self._needed(kind, row)
            if needed <= maximum:
                pairs += 1
                if needed != last:
                    rich_after, last = self._level_with(rich, -needed, 1), needed
                    lost = steps - steps_of(rich_after)
                request = self._row_request[row]
                key = request * self._hosts + self._row_host[row]
                if (
                    rich_after >= self._level_after[poor] - _TOLERANCE
                    and needed <= self._placed[request] - self._kept[request]
                    and (self._best_row < 0 or self._is_better(steps, lost, key))
                ):
                    self._best_row, self._best_taken = row, needed
                    self._best_steps, self._best_lost, self._best_key = steps, lost, key
            row = self._next_of_party[row]
        return pairs

    def _is_better(self, steps: int, lost: int, key: int) -> bool:
        """Return whether a row is better than the best so far."""
        if steps != self._best_steps:
            return steps > self._best_steps
        if lost != self._best_lost:
            return lost < self._best_lost
        return key < self._best_key

    def _apply_exchange(self, row: int, taken: int, poor: int) -> None:
        """Give back VMs of a row for one of another request, and find the parties to recheck."""
        rich, host = self._row_request[row], self._row_host[row]
        gave, got = self._party[rich], self._party[poor]
        giver, receiver = self._tenant[gave], self._tenant[got]
        self.made.append((host, rich, taken, poor))
        for tenant in (giver, receiver):
            self._richest.pop(self._place_of_tenant(tenant))
            for party in range(self._first_party[tenant], self._first_party[tenant + 1]):
                if self._queued[party]:
                    self._leave_queue(party)
        for resource in range(self._resources):
            back = self._demand[self._kind[gave] * self._resources + resource]
            want = self._demand[self._kind[got] * self._resources + resource]
            self._held[giver * self._resources + resource] -= taken * back
            self._held[receiver * self._resources + resource] += want
        self._placed[rich] -= taken
        self._waiting[rich] += taken
        self._placed[poor] += 1
        self._waiting[poor] -= 1
        if self._waiting[rich] and not 0 <= self._first_waiting[gave] < rich:
            self._first_waiting[gave] = rich
        if not self._waiting[poor]:
            self._first_waiting[got] = self._next_waiting(poor)
        for tenant in (giver, receiver):
            for party in range(self._first_party[tenant], self._first_party[tenant + 1]):
                self._level_after[party] = self._level_with(party, 1, 1)
            self._level[tenant] = self._level_with(self._first_party[tenant], 0, 1)
            self._steps[tenant] = steps_of(self._level[tenant])
            self._richest.insert(self._place_of_tenant(tenant), tenant)
        self._exchange_on_host(row, taken, poor)
        for slot in range(len(self._kind_of_slot)):
            self._level_left[slot * self._tenants + giver] = _UNKNOWN
            self._level_left[slot * self._tenants + receiver] = _UNKNOWN
            there = self._first_on_host[host]
            while there >= 0:
                tenant = self._tenant[self._party[self._row_request[there]]]
                self._level_left[slot * self._tenants + tenant] = _UNKNOWN
                there = self._next_on_host[there]
        self._recheck(host, giver, receiver)
        for tenant in (giver, receiver):
            for party in range(self._first_party[tenant], self._first_party[tenant + 1]):
                self._enter_queue(party)

    def _exchange_on_host(self, row: int, taken: int, poor: int) -> None:
        """Update the rows and the room of a host, and the fewest VMs of the parties there."""
        host, slots = self._row_host[row], len(self._kind_of_slot)
        gained = self._row_of(poor, host)
        self._keep_needed(host)
        back = self._kind[self._party[self._row_request[row]]]
        want = self._kind[self._party[poor]]
        for resource in range(self._resources):
            self._room[host * self._resources + resource] += (
                taken * self._demand[back * self._resources + resource]
                - self._demand[want * self._resources + resource]
            )
        self._row_count[row] -= taken
        self._row_count[gained] += 1
        for slot in range(slots):
            self._reduced[slot] = 0
        place, there = 0, self._first_on_host[host]
        while there >= 0:
            party = self._party[self._row_request[there]]
            for slot in range(slots):
                kind, fewest = self._kind_of_slot[slot], slot * self._parties + party
                now, before = self._needed(kind, there), self._needed_before[place]
                place += 1
                if before == self._fewest[fewest] and now > before:
                    now = self._fewest_of(party, kind)  # another of its rows may need fewer now
                    self._fewest[fewest] = now
                elif now < self._fewest[fewest]:
                    self._fewest[fewest] = now
                if now < before:
                    self._reduced[slot] = 1
            there = self._next_on_host[there]

    def _row_of(self, request: int, host: int) -> int:
        """Return the row of a request on a host, a new one where it has none there."""
        row = self._first_on_host[host]
        while row >= 0 and self._row_request[row] != request:
            row = self._next_on_host[row]
        if row < 0:
            row = self._rows
            self._row_request = grown(self._row_request, row, request)
            self._row_host = grown(self._row_host, row, host)
            self._row_count = grown(self._row_count, row, 0)
            self._next_on_host = grown(self._next_on_host, row, -1)
            self._next_of_party = grown(self._next_of_party, row, -1)
            self._row_request[row], self._row_host[row] = request, host
            self._row_count[row] = 0
            self._link_row(row)
            self._rows += 1
        return row

    def _keep_needed(self, host: int) -> None:
        """Keep how many VMs of each row of a host make room for the kind of each slot."""
        place, row = 0, self._first_on_host[host]
        while row >= 0:
            for slot in range(len(self._kind_of_slot)):
                self._needed_before = grown(self._needed_before, place, 0)
                self._needed_before[place] = self._needed(self._kind_of_slot[slot], row)
                place += 1
            row = self._next_on_host[row]

    def _recheck(self, host: int, now_poorer: int, now_richer: int) -> None:
        """Queue the parties without an exchange that the last exchange may help."""
        mine = range(self._first_party[now_poorer], self._first_party[now_poorer + 1])
        again = [party for party in mine if self._without[party]]
        # No other tenant became richer, or able with fewer VMs.
        for slot in range(len(self._kind_of_slot)):
            if self._without_of_slot[slot]:
                self._set_highest_giver(slot, host, now_richer)
                if self._highest_left >= 0:
                    again += self._parties_helped(slot, host, now_richer)
        # But for rounding and gangs these have one.
        again += [each for each in self._seemed_able if self._has_giver(each, host, now_richer)]
        for party in again:
            if self._without[party]:
                waiting = self._without_of_slot[self._slot[self._kind[party]]]
                waiting.pop(self._place_of_level(waiting, party))
                self._without[party] = 0
                if party in self._seemed_able:
                    self._seemed_able.remove(party)
                self._enter_queue(party)

    def _set_highest_giver(self, slot: int, host: int, now_richer: int) -> None:
        """Find the highest level of those who can give more, and the highest that giving leaves."""
        self._highest = self._level[now_richer]
        self._highest_left = self._level_after_making_room(slot, now_richer)
        row = self._first_on_host[host] if self._reduced[slot] else -1
        while row >= 0:
            tenant = self._tenant[self._party[self._row_request[row]]]
            self._highest = max(self._highest, self._level[tenant])
            left = self._level_after_making_room(slot, tenant)
            self._highest_left = max(self._highest_left, left)
            row = self._next_on_host[row]

    def _parties_helped(self, slot: int, host: int, now_richer: int) -> list[int]:
        """Return the parties of a slot without an exchange for which another can make room now."""
        helped = []
        for party in self._without_of_slot[slot]:
            if self._above[party] >= self._highest:
                break
            after = self._level_after[party] * _ROUNDING - _SLACK
            if after <= self._highest_left and self._has_giver(party, host, now_richer):
                helped.append(party)
        return helped

    def _has_giver(self, poor: int, host: int, tenant: int) -> bool:
        """Return whether a party of a tenant, or one on a host, can make room for a poor party."""
        slot = self._slot[self._kind[poor]]
        for rich in range(self._first_party[tenant], self._first_party[tenant + 1]):
            if self._is_able(poor, rich, slot):
                return True
        there = self._first_on_host[host]
        while there >= 0:
            if self._is_able(poor, self._party[self._row_request[there]], slot):
                return True
            there = self._next_on_host[there]
        return False

    def _is_able(self, poor: int, rich: int, slot: int) -> bool:
        """Return whether a rich party can make room for one VM of a poor one."""
        fewest = self._fewest[slot * self._parties + rich]
        return fewest < _NEVER and fewest <= self._max_vms_to_give(poor, rich)

    def _max_vms_to_give(self, poor: int, rich: int) -> float:
        """Return the largest number of VMs that a rich party may give for one VM of a poor one.

        Returns a number below 0 if the rich tenant is not ahead by more than one VM, or would
        fall below the new level of the poor one.
        """
        tenant, of_one = self._tenant[rich], self._vm_level[poor]
        of_one = max(of_one, self._vm_level[rich])
        if not self._level[self._tenant[poor]] + of_one < self._level[tenant] - _TOLERANCE:
            return -1.0
        # Some resource must keep the richer share up; each row is then checked exactly.
        level = (self._level_after[poor] - 2 * _TOLERANCE) * self._weight[tenant]
        maximum = -1.0
        for resource in range(self._resources):
            if self._pool[resource] > 0:
                above = self._held[tenant * self._resources + resource] - (
                    level * self._pool[resource]
                )
                each = self._demand[self._kind[rich] * self._resources + resource]
                above = above / each if each else _ANY_NUMBER if above >= 0 else -1.0
                maximum = max(maximum, above)
        return maximum

    def _level_after_making_room(self, slot: int, tenant: int) -> float:
        """Return a tenant's highest level after it makes room for one VM of a slot's kind.

        Returns -1 if the tenant can make no room. The value is kept until the tenant's level or
        rows change; it rules out nearly all parties.
        """
        left = self._level_left[slot * self._tenants + tenant]
        if left == _UNKNOWN:
            left = -1.0
            for rich in range(self._first_party[tenant], self._first_party[tenant + 1]):
                fewest = self._fewest[slot * self._parties + rich]
                if fewest < _NEVER:
                    level = self._level_with(rich, -fewest, 1)
                    left = max(left, level)
            self._level_left[slot * self._tenants + tenant] = left
        return left

    def _level_with(self, party: int, count: int, holding: int) -> float:
        """Return the level of a tenant by VMs of a party and ``holding`` times what it holds."""
        tenant, level = self._tenant[party], 0.0
        for resource in range(self._resources):
            if self._pool[resource] > 0:
                amount = count * self._demand[self._kind[party] * self._resources + resource]
                amount += holding * self._held[tenant * self._resources + resource]
                share = amount / self._pool[resource]
                level = max(level, share)
        return level / self._weight[tenant]

    def _needed(self, kind: int, row: int) -> int:
        """Return how many VMs of a row make room for one VM of a kind; _NEVER if none do."""
        host, count = self._row_host[row], self._row_count[row]
        if count <= 0 or not self._open_to[kind * self._classes + self._host_class[host]]:
            return _NEVER
        back = self._kind[self._party[self._row_request[row]]]
        needed = 0
        for resource in range(self._resources):
            missing = self._demand[kind * self._resources + resource]
            missing -= self._room[host * self._resources + resource]
            if missing > 0:
                each = self._demand[back * self._resources + resource]
                if not each:
                    return _NEVER
                number = (missing - 1) // each + 1
                needed = max(needed, number)
        return needed if needed <= count else _NEVER

    def _fewest_of(self, party: int, kind: int) -> int:
        """Return the fewest VMs of a party that make room for one of a kind on some host."""
        fewest, row = _NEVER, self._first_of_party[party]
        while row >= 0:
            needed = self._needed(kind, row)
            fewest = min(fewest, needed)
            row = self._next_of_party[row]
        return fewest

    def _slot_of(self, kind: int) -> int:
        """Return the slot of a kind, filled when the kind is first looked for."""
        slot = self._slot[kind]
        if slot < 0:
            slot = self._slot[kind] = len(self._kind_of_slot)
            self._kind_of_slot.append(kind)
            self._without_of_slot.append([])
            self._fewest = extended(self._fewest, self._parties, _NEVER)
            self._level_left = extended_levels(self._level_left, self._tenants)
            self._reduced = array("b", [0]) * (slot + 1)
            for party in range(self._parties):
                self._fewest[slot * self._parties + party] = self._fewest_of(party, kind)
        return slot

    def _link_row(self, row: int) -> None:
        """Enter a row in the lists of its host and of its party."""
        host, party = self._row_host[row], self._party[self._row_request[row]]
        self._next_on_host[row] = self._first_on_host[host]
        self._first_on_host[host] = row
        self._next_of_party[row] = self._first_of_party[party]
        self._first_of_party[party] = row

    def _next_waiting(self, request: int) -> int:
        """Return the first request from one on, among those alike, that waits; -1 for none."""
        while request >= 0 and self._waiting[request] <= 0:
            request = self._next_alike[request]
        return request

    def _mark_without_exchange(self, party: int) -> None:
        """Drop a waiting party until another exchange may help it."""
        self._leave_queue(party)
        # Its own level may have risen, which helps it nowhere.
        self._above[party] = self._level[self._tenant[party]] + self._vm_level[party]
        self._without[party] = 1
        waiting = self._without_of_slot[self._slot[self._kind[party]]]
        waiting.insert(self._place_of_level(waiting, party), party)

    def _enter_queue(self, party: int) -> None:
        """Queue a party that waits, unless it is known to have no exchange."""
        if self._first_waiting[party] >= 0 and not self._queued[party] and not self._without[party]:
            self._queue.insert(self._place_in_queue(party), party)
            self._queued[party] = 1

    def _leave_queue(self, party: int) -> None:
        self._queue.pop(self._place_in_queue(party))
        self._queued[party] = 0

    def _place_in_queue(self, party: int) -> int:
        """Return the place of a party in the queue: by level, then by the request that waits."""
        steps, request = self._steps[self._tenant[party]], self._first_waiting[party]
        low, high = 0, len(self._queue)
        while low < high:
            middle = (low + high) // 2
            other = self._queue[middle]
            others = self._steps[self._tenant[other]]
            if others < steps or (others == steps and self._first_waiting[other] < request):
                low = middle + 1
            else:
                high = middle
        return low

    def _place_of_tenant(self, tenant: int) -> int:
        """Return the place of a tenant among the richest: by level, then by its number."""
        steps = self._steps[tenant]
        low, high = 0, len(self._richest)
        while low < high:
            middle = (low + high) // 2
            other = self._richest[middle]
            if self._steps[other] > steps or (self._steps[other] == steps and other < tenant):
                low = middle + 1
            else:
                high = middle
        return low

    def _place_of_level(self, waiting: list[int], party: int) -> int:
        """Return the place of a party without an exchange: by level, then by its number."""
        above = self._above[party]
        low, high = 0, len(waiting)
        while low < high:
            middle = (low + high) // 2
            other = waiting[middle]
            if self._above[other] < above or (self._above[other] == above and other < party):
                low = middle + 1
            else:
                high = middle
        return low


def steps_of(level: float) -> int:
    """Return a level in whole steps of the tolerance, halves to even, as `level_in_steps` does."""
    steps = level / _TOLERANCE
    steps = min(_MAX_STEPS, steps)
    whole = int(steps)
    rest = steps - whole
    if rest > 0.5 or (rest == 0.5 and whole % 2):
        whole += 1
    return whole


def grown(values: array[int], used: int, value: int) -> array[int]:
    """Return an array with room after those that are used."""
    if used < len(values):
        return values
    return extended(values, used // 8 + 64, value)


def extended(values: array[int], more: int, value: int) -> array[int]:
    """Return an array with more values at its end."""
    found = array("q", [value]) * (len(values) + more)
    for place in range(len(values)):
        found[place] = values[place]
    return found


def extended_levels(values: array[float], more: int) -> array[float]:
    """Return an array with more levels at its end, which are not known."""
    found = array("d", [_UNKNOWN]) * (len(values) + more)
    for place in range(len(values)):
        found[place] = values[place]
    return found
