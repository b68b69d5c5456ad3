"""What a fault is: how it is made, and how it ends."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from tests.chaos.site import Site


class ChaosFault(ABC):
    """One fault. `inject` returns once it has its effect, `lift` once it is over.

    What heals by itself is not waited for: `healing` does that for all alike.
    """

    kind: ClassVar[str]
    strikes: ClassVar[tuple[str, ...]]  #: parts of the site; no two faults strike one at once

    def __init__(self, site: Site, rng: random.Random) -> None:
        self.site = site
        self.rng = rng
        #: Waits until metrics tell of what is noted; the run sets it.
        self.until_shown: Callable[[Mapping[str, Any]], None] = lambda _: None

    @abstractmethod
    def inject(self) -> dict[str, Any]:
        """Make it happen; return what to note of it."""

    def lift(self) -> None:  # noqa: B027 - some are over at once
        """End it."""

    def hold(self, least_s: float, most_s: float) -> None:
        """Let it last: how long is part of the fault, nothing is waited for."""
        time.sleep(self.rng.uniform(least_s, most_s))
