"""The prices of a round as its record tells them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from controller.rounds.policy_process import Ideal
from placement.judging.prices import ClassPrices
from registry.rounds import ClusterView

#: Classes whose prices a round keeps: the dearest. Requests that name hosts may make thousands.
MOST_CLASSES: Final = 20


def prices_document(view: ClusterView, ideal: Ideal | None, resource: int) -> dict[str, Any] | None:
    """Return the prices as JSON values, with names; None: nothing is known of them."""
    if ideal is None:
        return None
    found = ideal.prices
    told: dict[str, Any] = {
        "resource": view.resources[resource],
        "most": None,
        "fair": None,
        "of_fairness": None,
        "classes": [],
        "classes_left_out": 0,
        "error": None,
    }
    if isinstance(found, str):
        return told | {"error": found}
    priced = sorted(
        (each for each in found.classes if each.price.any()),
        key=lambda each: -_of_a_host(view, each),
    )
    return told | {
        "most": found.most,
        "fair": found.fair,
        "of_fairness": found.of_fairness,
        "classes": [_class_document(view, each) for each in priced[:MOST_CLASSES]],
        "classes_left_out": max(0, len(priced) - MOST_CLASSES),
    }


def _of_a_host(view: ClusterView, of_class: ClassPrices) -> float:
    """All that one host offers, at its prices: what classes are compared by."""
    capacity = np.array(view.hosts[of_class.host].capacity, dtype=np.float64)
    return float(capacity @ of_class.price)


def _class_document(view: ClusterView, of_class: ClassPrices) -> dict[str, Any]:
    host = view.hosts[of_class.host]

    def named(values: list[Any] | tuple[Any, ...]) -> dict[str, Any]:
        return dict(zip(view.resources, values, strict=True))

    return {
        "labels": list(host.labels),
        "hosts": of_class.hosts,
        "capacity": named(host.capacity),
        "room": named(of_class.room.tolist()),
        "price": named(of_class.price.tolist()),
    }
