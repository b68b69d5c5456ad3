"""Requests of a trace, a few thousand at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from placement import FloatArray, IntArray
from simulation.traces.request_constraints import RequestConstraints


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Chunk:
    """Some requests of a trace in order of arrival, and how much of the trace is read with them."""

    arrival_s: FloatArray  #: (n,)
    lifetime_s: FloatArray  #: (n,) inf: the VMs never end
    tenant: tuple[str, ...]
    demand: IntArray  #: (n, R) one VM of each request
    count: IntArray  #: (n,)
    min_count: IntArray  #: (n,)
    request_constraints: tuple[RequestConstraints, ...]
    read: float  #: part of the trace, within [0, 1]
    on_host: tuple[str | None, ...] = ()  #: where VMs run already; (): none of them does
    #: (n,) after so long without a place VMs are given up; inf, or None for all: never
    wait_at_most_s: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.arrival_s)

    def where(self, rows: IntArray) -> Chunk:
        """Return some of the chunk's requests, by index."""
        return Chunk(
            arrival_s=self.arrival_s[rows],
            lifetime_s=self.lifetime_s[rows],
            tenant=tuple(self.tenant[row] for row in rows.tolist()),
            demand=self.demand[rows],
            count=self.count[rows],
            min_count=self.min_count[rows],
            request_constraints=tuple(self.request_constraints[row] for row in rows.tolist()),
            on_host=tuple(self.on_host[row] for row in rows.tolist()) if self.on_host else (),
            read=self.read,
            wait_at_most_s=None if self.wait_at_most_s is None else self.wait_at_most_s[rows],
        )

    def patience_s(self) -> FloatArray:
        """Return the longest wait of each request's VMs, shape (n,)."""
        if self.wait_at_most_s is None:
            return np.full(len(self), np.inf)
        return self.wait_at_most_s


class Trace(Protocol):
    """A trace of requests, from a file, a generator or the register center."""

    @property
    def resources(self) -> tuple[str, ...]:
        """Names of the resources that the trace's requests demand, the axis R."""
        ...

    def chunks(self) -> Iterator[Chunk]:
        """Read the trace's requests from the beginning, chunk by chunk."""
        ...


class Arrivals:
    """The requests of a trace as they arrive, read at most a chunk ahead."""

    def __init__(self, trace: Trace, skip: int = 0) -> None:
        self._chunks = trace.chunks()
        self._chunk: Chunk | None = None
        self._at = 0
        self.taken = 0  #: requests taken since the beginning
        self.read = 0.0  #: part of the trace
        while skip > self.taken and self._next_chunk() is not None:
            assert self._chunk is not None  # noqa: S101 - filled
            some = min(skip - self.taken, len(self._chunk) - self._at)
            self._at += some
            self.taken += some

    def next_s(self) -> float | None:
        """Return when the next request of the trace arrives; None at the end."""
        chunk = self._next_chunk()
        return None if chunk is None else float(chunk.arrival_s[self._at])

    def take_until(self, time_s: float) -> list[Chunk]:
        """Take the requests of the trace that have arrived by a time, in order."""
        parts = []
        while (chunk := self._next_chunk()) is not None:
            stop = int(np.searchsorted(chunk.arrival_s, time_s, side="right"))
            if stop <= self._at:
                break
            parts.append(chunk.where(np.arange(self._at, stop)))
            self.taken += stop - self._at
            self.read = chunk.read * stop / len(chunk) + self._before * (1 - stop / len(chunk))
            self._at = stop
        return parts

    _before = 0.0

    def _next_chunk(self) -> Chunk | None:
        """Return the chunk with the next request; None at the end of the trace."""
        while self._chunk is None or self._at == len(self._chunk):
            if self._chunk is not None:
                self._before = self._chunk.read
            self._chunk, self._at = next(self._chunks, None), 0
            if self._chunk is None:
                self._chunks = iter(())
                return None
        return self._chunk
