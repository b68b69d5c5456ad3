"""The prices of a round as JSON values, as its record stores them."""

from __future__ import annotations

from typing import Any, Final

from placement import Snapshot
from placement.metrics.prices import HostClassPrices, Prices

#: Number of host classes with stored prices, the highest first; there may be thousands.
MAX_CLASSES: Final = 20


def prices_document(snapshot: Snapshot, found: Prices | str, resource: int) -> dict[str, Any]:
    """Return a round's prices, or the reason why there are none, as JSON values.

    A class is identified by the index of its first host, ``host``.
    """
    document: dict[str, Any] = {
        "resource": snapshot.resources[resource],
        "most": None,
        "fair": None,
        "of_fairness": None,
        "classes": [],
        "classes_left_out": 0,
        "error": None,
    }
    if isinstance(found, str):
        return document | {"error": found}
    priced = sorted(
        (each for each in found.classes if each.price.any()),
        key=lambda each: -_price_of_host(snapshot, each),
    )
    return document | {
        "most": found.maximum,
        "fair": found.fair,
        "of_fairness": found.price_of_fairness,
        "classes": [_class_document(snapshot, each) for each in priced[:MAX_CLASSES]],
        "classes_left_out": max(0, len(priced) - MAX_CLASSES),
    }


def _price_of_host(snapshot: Snapshot, of_class: HostClassPrices) -> float:
    """Return the value of one host's capacity at the prices of its class."""
    capacity = snapshot.capacity[of_class.host, : snapshot.resource_count]
    return float(capacity @ of_class.price)


def _class_document(snapshot: Snapshot, of_class: HostClassPrices) -> dict[str, Any]:
    """Return capacity, room and prices of a class of hosts as JSON values."""
    counted = snapshot.resource_count

    def by_resource(values: list[Any]) -> dict[str, Any]:
        return dict(zip(snapshot.resources[:counted], values, strict=True))

    return {
        "host": of_class.host,
        "hosts": of_class.hosts,
        "capacity": by_resource(snapshot.capacity[of_class.host, :counted].tolist()),
        "room": by_resource(of_class.room.tolist()),
        "price": by_resource(of_class.price.tolist()),
    }
