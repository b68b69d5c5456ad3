"""Fair exchange: give VMs of this round to poorer tenants.

Derived, not in a paper. The game trades fairness against utilisation host by
host, and quotas bound what a tenant is offered, but neither keeps one tenant's
VMs from taking the only hosts where another's would fit. Afterwards we look
for a host on which giving back VMs of a richer tenant makes room for a VM that
a poorer one still wants, and exchange them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from placement.fuga import exchange_loop
from placement.fuga.exchange_tables import ExchangeTables
from placement.model.budget import Budget
from placement.model.vm_kinds import VmKinds
from placement.packing.compiled_loops import compiled_form
from placement.packing.draft import Draft

fair_exchanges: Final = compiled_form(exchange_loop.fair_exchanges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A fair exchange on one host: VMs of one request made room for one of another."""

    host: int
    taken_from: int  #: request of the richer tenant
    taken: int  #: how many of its VMs
    given_to: int  #: request of the poorer tenant


def exchange_unfair(
    draft: Draft, kinds: VmKinds, budget: Budget
) -> tuple[tuple[Exchange, ...], bool]:
    """Exchange VMs between tenants until no single exchange is fairer.

    An exchange is made if the poorer tenant (by dominant share per weight) is
    more than one VM's share behind, and is not above the richer one afterwards.
    Each raises the sorted vector of shares lexicographically, so the sequence
    ends. Of the possible exchanges the poorest tenant's come first, then those
    against the richest, then those that take least, then the least index.

    Parameters
    ----------
    draft : Draft
        Changed in place. Only VMs of this round are taken; what ran before stays.
    kinds : VmKinds
        Of the draft's snapshot.
    budget : Budget
        One unit for each waiting party that is examined, and one for every 512 pairs of a
        taking and a giving party. The search stops when it is spent.

    Returns
    -------
    tuple of Exchange
        Exchanges in the order in which they were made.
    bool
        Whether the budget ended the search.
    """
    made, cut = fair_exchanges(ExchangeTables.of(draft, kinds), budget)
    moves = [
        move for host, rich, taken, poor in made for move in ((rich, host, -taken), (poor, host, 1))
    ]
    draft.put_all(np.array(moves, dtype=np.int64).reshape(-1, 3))
    exchanges = (
        Exchange(host=host, taken_from=rich, taken=taken, given_to=poor)
        for host, rich, taken, poor in made
    )
    return tuple(exchanges), cut
