"""The REST API as one FastAPI application, made of what it is given."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from controller.consoles import WAIT_S
from controller.queue import NO_WORKERS, TaskQueue
from controller.rest.acceptance import Acceptance
from controller.rest.audit import AuditTrail
from controller.rest.dependencies import MAX_BODY_BYTES, Services
from controller.rest.docs_page import CONTENT_SECURITY_POLICY, docs_page
from controller.rest.limits import Limits
from controller.rest.metrics import HttpMetrics
from controller.rest.metrics import router as metrics_router
from controller.rest.middleware import AccessLog, Authentication, BodyGuard
from controller.rest.openapi import DESCRIPTION, describe
from controller.rest.paths import PROTECTED_PREFIX
from controller.rest.problem_pages import PROBLEMS_PATH, problem_page
from controller.rest.problems import problem_handler
from controller.rest.routers import (
    audit,
    capacity,
    consoles,
    differences,
    events,
    health,
    hosts,
    images,
    label_ratios,
    networks,
    power,
    quotas,
    requests,
    resources,
    rounds,
    shadow_rounds,
    shares,
    slot_loop,
    ssh_keys,
    tenants,
    tokens,
    vm_groups,
    vm_types,
    vms,
)
from controller.rest.versions import Versions
from registry import (
    DEFAULT_URI_POLICY,
    SHUTDOWN_TIMEOUT_S,
    ImageStore,
    OverQuota,
    Registry,
    UriPolicy,
)
from registry.process import ProcessMetrics
from registry.version import engine_version


def create_app(
    registry: Registry,
    *,
    queue: TaskQueue = NO_WORKERS,
    console_wait_s: float = WAIT_S,
    uri_policy: UriPolicy = DEFAULT_URI_POLICY,
    image_store: ImageStore | None = None,
    image_urls: Collection[str] = (),
    default_image: str | None = None,
    over_quota: OverQuota = "refuse",
    max_body_bytes: int = MAX_BODY_BYTES,
    shutdown_timeout_s: int = SHUTDOWN_TIMEOUT_S,
    host_reserved: Mapping[str, int] = MappingProxyType({}),
    metrics: ProcessMetrics | None = None,
    limits: Limits | None = None,
) -> FastAPI:
    """Return the application.

    Parameters
    ----------
    registry : Registry
        An open register center; whoever opened it closes it.
    queue : TaskQueue
        Reaches the workers, who read consoles for callers.
    console_wait_s : float
        How long a caller waits for one.
    uri_policy : UriPolicy
        Which libvirt URIs hosts may have.
    image_store : ImageStore, optional
        Where images lie; without one none can be added.
    image_urls : collection of str
        Beginnings of URLs that images may be fetched from.
    default_image : str, optional
        Image of requests that name none.
    over_quota : OverQuota
        What becomes of requests above a quota where no tenant or group says otherwise.
    max_body_bytes : int
        Bodies above it are answered 413.
    shutdown_timeout_s : int
        What a guest is given to shut down if the caller does not say.
    host_reserved : Mapping[str, int]
        By resource, what new hosts keep for themselves where nothing else is said.
    metrics : ProcessMetrics, optional
        Told at /metrics, with what the calls add to it.
    limits : Limits, optional
        How often callers may call; without them as often as they like.
    """
    metrics = metrics if metrics is not None else ProcessMetrics("api")
    app = FastAPI(
        title="fuga",
        version=engine_version(),
        description=DESCRIPTION,
        docs_url=None,  # FastAPI's page loads scripts from the network; ours does not
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.services = Services(
        registry=registry,
        acceptance=Acceptance(registry),
        uri_policy=uri_policy,
        images=image_store,
        image_urls=image_urls,
        default_image=default_image,
        over_quota=over_quota,
        shutdown_timeout_s=shutdown_timeout_s,
        host_reserved=host_reserved,
        queue=queue,
        console_wait_s=console_wait_s,
        metrics=metrics,
    )
    for module in (
        requests,
        vms,
        vm_groups,
        consoles,
        power,
        vm_types,
        images,
        tenants,
        ssh_keys,
        networks,
        quotas,
        shares,
        hosts,
        differences,
        label_ratios,
        resources,
        rounds,
        shadow_rounds,
        slot_loop,
        events,
        tokens,
        audit,
        capacity,
    ):
        app.include_router(module.router, prefix=PROTECTED_PREFIX)
    app.include_router(health.router)
    app.include_router(metrics_router)

    @app.get("/docs", include_in_schema=False)
    def docs() -> Response:
        """Show the API to people."""
        headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY}
        return HTMLResponse(docs_page(app.openapi()), headers=headers)

    @app.get(PROBLEMS_PATH + "/{code}", include_in_schema=False)
    def problem(code: str) -> Response:
        """Tell people what a kind of problem means."""
        page = problem_page(code)
        if page is None:
            raise HTTPException(404)
        headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY}
        return HTMLResponse(page, headers=headers)

    app.openapi = lambda: describe(app)  # type: ignore[method-assign]  # FastAPI's documented way
    app.add_exception_handler(HTTPException, problem_handler)
    app.add_exception_handler(RequestValidationError, problem_handler)
    # The last one added is the outermost.
    app.add_middleware(Versions, registry=registry)
    app.add_middleware(BodyGuard, max_body_bytes=max_body_bytes)
    app.add_middleware(Authentication, registry=registry, limits=limits or Limits())
    app.add_middleware(AccessLog, metrics=HttpMetrics(metrics))
    app.add_middleware(AuditTrail, registry=registry)
    return app
