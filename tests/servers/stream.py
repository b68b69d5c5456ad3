"""Many rounds on placement alone: small VMs come and go, and refill every gap."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from placement import Allocation, Budget, Snapshot, check_allocation, policy_by_name
from tests.builders import a_snapshot

#: Rounds that a small VM lasts at most.
LONGEST = 20
SMALL = (1, 1)


@dataclass
class Stream:
    """One tenant asks for large VMs once, two others for small ones in every round."""

    hosts: int
    size: int  #: units of both resources on each host
    large: int  #: units that one large VM takes
    count: int = 1
    min_count: int = 1
    policy: str = "fuga"
    parameters: dict[str, object] = field(default_factory=dict)
    eternal: int = 0  #: small VMs on host 0 that never end
    seed: int = 0

    def rounds_until_placed(self, most: int) -> int | None:
        """Return the round in which the last large VM is placed, None if in none of ``most``."""
        policy = policy_by_name(self.policy, self.parameters)
        rng = np.random.default_rng(self.seed)
        # Host and round of the end of each small VM; the first fill every host.
        running = [(0, 10**9)] * self.eternal
        for host in range(self.hosts):
            free = self.size - sum(on == host for on, _ in running)
            running += [(host, end) for end in rng.integers(1, LONGEST + 1, size=free).tolist()]
        large = [0] * self.hosts
        for number in range(most):
            running = [vm for vm in running if vm[1] > number]
            snapshot = self._snapshot(running, large, number)
            allocation = policy.place(snapshot, np.random.default_rng(number), Budget())
            check_allocation(snapshot, allocation)
            self.look(snapshot, allocation)
            for request, host, count in allocation.placed.tolist():
                if request == 0:
                    large[host] += count
                else:
                    lasts = rng.integers(1, LONGEST + 1, size=count).tolist()
                    running += [(host, number + each) for each in lasts]
            if sum(large) == self.count:
                return number
        return None

    def look(self, snapshot: Snapshot, allocation: Allocation) -> None:
        """See each round; for tests to override."""

    def _snapshot(self, running: list[tuple[int, int]], large: list[int], age: int) -> Snapshot:
        free = np.full((self.hosts, 2), self.size)
        for host, _ in running:
            free[host] -= 1
        free -= np.array(large)[:, None] * self.large
        begun = sum(large) > 0
        return a_snapshot(
            resources=("vcpus", "memory_mib"),
            capacity=[(self.size, self.size)] * self.hosts,
            free=free,
            demand=[(self.large, self.large), SMALL, SMALL],
            count=[self.count - sum(large), self.size * self.hosts, self.size * self.hosts],
            min_count=[1 if begun else self.min_count, 1, 1],
            age=[age, 0, 0],
            held=[
                (self.large * sum(large),) * 2,
                ((len(running) + 1) // 2,) * 2,
                (len(running) // 2,) * 2,
            ],
        )
