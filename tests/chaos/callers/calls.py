"""Calls of a tenant or an operator of the run, each repeated until somebody answers."""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field

import httpx

from tests.chaos.record import Record
from tests.chaos.site import Site

_AGAIN_S = 0.5


@dataclass(kw_only=True)
class TokenHolder:
    """Someone with a token."""

    name: str
    site: Site
    record: Record
    rng: random.Random
    counts: Counter[str] = field(default_factory=Counter)

    def new_key(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128)))

    def call(
        self, method: str, path: str, body: object = None, key: str | None = None
    ) -> httpx.Response:
        """Call until somebody answers, each time another API."""
        headers = {} if key is None else {"Idempotency-Key": key}
        api = self.rng.randrange(len(self.site.api_urls))
        while True:
            try:
                with self.site.client(self.name, api) as client:
                    answer = client.request(method, path, json=body, headers=headers)
                if not _try_again(answer):
                    return answer
                self.counts[f"answered {answer.status_code}, retried"] += 1
                if answer.status_code == 500:
                    self.record.write("failed", call=f"{method} {path}", said=answer.text)
            except httpx.HTTPError:
                self.counts["unanswered, retried"] += 1
            api = (api + 1) % len(self.site.api_urls)
            time.sleep(_AGAIN_S)


def _try_again(answer: httpx.Response) -> bool:
    """Its database was away, it is too busy, or the first try is still under way."""
    return answer.status_code in (429, 500, 502, 503, 504) or (
        answer.status_code == 409 and answer.json()["code"] == "idempotency_in_progress"
    )
