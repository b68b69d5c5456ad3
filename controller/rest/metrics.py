"""Metrics of API calls, and the endpoint that shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fastapi import APIRouter
from prometheus_client import Counter, Gauge, Histogram
from starlette.responses import Response
from starlette.types import Scope

from controller.rest.dependencies import ServicesDep
from controller.rest.middleware.callers import METRICS_PATH, Operator
from controller.rest.middleware.streams import END_STREAM
from controller.rest.streams import StreamPermits
from service import ProcessMetrics
from service.metrics import CONTENT_TYPE

#: Label of calls that no route serves: their paths are arbitrary.
NO_ROUTE: Final = "none"
METHODS: Final = frozenset({"GET", "POST", "PATCH", "PUT", "DELETE", "HEAD", "OPTIONS"})
_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

router = APIRouter()


class HttpMetrics:
    """Counts calls by route and status, and how long they took."""

    def __init__(self, metrics: ProcessMetrics) -> None:
        self._calls = Counter(
            "fuga_http_requests",
            "API calls, by path template.",
            ["method", "route", "status"],
            registry=metrics.registry,
        )
        self._seconds = Histogram(
            "fuga_http_request_seconds",
            "Duration from a call's first byte to the end of its answer.",
            ["method", "route"],
            buckets=_BUCKETS_S,
            registry=metrics.registry,
        )

    def count(self, scope: Scope, status: int | None, seconds: float) -> None:
        """Count one call; its status is None if it ended without an answer."""
        method = scope["method"] if scope["method"] in METHODS else "OTHER"
        route = _route_template(scope)
        self._calls.labels(method, route, "none" if status is None else str(status)).inc()
        if END_STREAM not in scope.get("state", {}):  # callers choose how long streams last
            self._seconds.labels(method, route).observe(seconds)


def refusal_counter(metrics: ProcessMetrics) -> Callable[[str], None]:
    """Register the counter of refused connections; return a function that counts one by reason."""
    counter = Counter(
        "fuga_http_connections_refused",
        "Connections refused because there were too many.",
        ["reason"],
        registry=metrics.registry,
    )
    return lambda reason: counter.labels(reason).inc()


def watch_streams(metrics: ProcessMetrics, places: StreamPermits) -> None:
    """Register the gauge of open event streams."""
    gauge = Gauge("fuga_event_streams", "Open streams of events.", registry=metrics.registry)
    gauge.set_function(lambda: places.taken)


def _route_template(scope: Scope) -> str:
    """Return the path template of the route that served a call, with the router's prefix."""
    found = str(getattr(scope.get("route"), "path", NO_ROUTE))
    inside = scope["path"].startswith("/v1/") and found != NO_ROUTE
    return f"/v1{found}" if inside and not found.startswith("/v1/") else found


@router.get(METRICS_PATH, include_in_schema=False)
def metrics(caller: Operator, services: ServicesDep) -> Response:
    """Return the metrics of this process and the register center; they name tenants."""
    return Response(services.metrics.text(), media_type=CONTENT_TYPE)
