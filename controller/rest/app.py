"""The REST API as one FastAPI application, built from its dependencies."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute

from controller.fork_server.children import StartChild, start_interpreter
from controller.host_aliases import HostNames, HostNaming
from controller.queries.consoles import WAIT_S
from controller.queries.wait_estimates import WaitingTimes
from controller.rest import health
from controller.rest.dependencies import LOGIN_LIFE_S, Services
from controller.rest.login import routes as login
from controller.rest.login.identity_provider import IdentityProvider
from controller.rest.metrics import HttpMetrics, watch_streams
from controller.rest.metrics import router as metrics_router
from controller.rest.middleware.access_log import AccessLog
from controller.rest.middleware.audit_trail import AuditTrail
from controller.rest.middleware.authentication import Authentication
from controller.rest.middleware.callers import PROTECTED_PREFIX
from controller.rest.middleware.concurrent_calls import ConcurrentCalls
from controller.rest.middleware.rate_limits import RateLimits
from controller.rest.middleware.refused_calls import Refusals
from controller.rest.pages.docs import docs_pages
from controller.rest.pages.openapi import TITLE, build_openapi
from controller.rest.pages.static_pages import StaticPage
from controller.rest.pages.web import WEB_PATH, to_web, web_pages
from controller.rest.problems.documents import problem_handler
from controller.rest.problems.pages import PROBLEMS_PATH, problem_meanings, problem_page
from controller.rest.routers import (
    audit,
    capacity,
    consoles,
    differences,
    events,
    hosts,
    networks,
    power,
    quotas,
    requests,
    reservations,
    resources,
    rounds,
    shadow_rounds,
    shares,
    slot_loop,
    ssh_keys,
    status,
    tenants,
    tokens,
    vm_groups,
    vm_types,
    vms,
)
from controller.rest.routers.hosting import host_aliases, host_map, label_ratios
from controller.rest.routers.moving import moves, plans, rolls
from controller.rest.routers.site import budgets, counts, prices, site_keys, usage
from controller.rest.routers.site import settings as settings_router
from controller.rest.routers.site import what_ifs as what_ifs_router
from controller.rest.routers.storage import images, volumes
from controller.rest.streams import EventFeed, StreamPermits
from controller.rest.streams.permits import MAX_STREAMS
from controller.settings import ControllerSettings
from controller.what_ifs.decision_settings import decision_from_settings
from controller.what_ifs.executor import WhatIfBounds, WhatIfExecutor
from controller.worker_queue import NO_WORKERS, TaskQueue
from placement.rebalancing.model import RebalanceLimits
from registry import Registry
from registry.hosts import DEFAULT_URI_POLICY, UriPolicy
from registry.images import ImageStore
from registry.ledger import SHUTDOWN_TIMEOUT_S
from registry.tenancy import OverQuota
from service import ProcessMetrics
from service.settings_in_force import SettingInForce


def create_app(
    registry: Registry,
    *,
    queue: TaskQueue = NO_WORKERS,
    console_wait_s: float = WAIT_S,
    uri_policy: UriPolicy = DEFAULT_URI_POLICY,
    image_store: ImageStore | None = None,
    image_urls: Collection[str] = (),
    default_image: str | None = None,
    operator_token_ttl_s: int | None = None,
    login_life_s: int = LOGIN_LIFE_S,
    provider: IdentityProvider | None = None,
    over_quota: OverQuota = "refuse",
    host_naming: HostNaming = "own",
    shutdown_timeout_s: int = SHUTDOWN_TIMEOUT_S,
    host_reserved: Mapping[str, int] = MappingProxyType({}),
    default_quota: Mapping[str, int] = MappingProxyType({}),
    metrics: ProcessMetrics | None = None,
    limits: RateLimits | None = None,
    move_limits: RebalanceLimits | None = None,
    settings: Sequence[SettingInForce] = (),
    disks: Callable[[], Sequence[str]] = tuple,
    event_streams: int = MAX_STREAMS,
    what_ifs: WhatIfExecutor | None = None,
    start_child: StartChild = start_interpreter,
) -> FastAPI:
    """Build the FastAPI application of the REST API.

    Parameters
    ----------
    registry : Registry
        An open register center; its opener closes it.
    queue : TaskQueue
        Reaches the workers, who read consoles for callers.
    console_wait_s : float
        Time for which a call waits for a console's output.
    uri_policy : UriPolicy
        Which libvirt URIs hosts may have.
    image_store : ImageStore, optional
        The image store; without it no image can be added.
    image_urls : collection of str
        Prefixes of URLs from which images may be fetched.
    default_image : str, optional
        Image of requests that name none.
    operator_token_ttl_s : int, optional
        Default lifetime of operators' tokens; None: unlimited.
    login_life_s : int
        Lifetime of tokens that a login creates.
    provider : IdentityProvider, optional
        The OpenID Connect provider for logins.
    over_quota : OverQuota
        Default handling of requests above a quota.
    host_naming : HostNaming
        Whether tenants see aliases or real names of hosts.
    shutdown_timeout_s : int
        Default time for a guest to shut down.
    host_reserved : Mapping[str, int]
        Default amounts reserved on new hosts, by resource.
    default_quota : Mapping[str, int]
        Default limits of new tenants, by resource.
    metrics : ProcessMetrics, optional
        Published at /metrics, with the figures of the calls.
    limits : RateLimits, optional
        Rate limits of callers; without them calls are unlimited.
    move_limits : RebalanceLimits, optional
        Limits on simultaneous moves, for plans made by this process.
    settings : sequence of SettingInForce
        The settings of this process, for operators.
    disks : callable
        Returns sentences about disks of this process without room.
    event_streams : int
        Maximum number of open event streams.
    what_ifs : WhatIfExecutor, optional
        Runs what-ifs; the caller closes it.
    start_child : StartChild
        Starts the processes in which policies run.
    """
    host_names = HostNames.of(registry, host_naming)
    metrics = metrics if metrics is not None else ProcessMetrics("api")
    streams = StreamPermits(event_streams)
    watch_streams(metrics, streams)
    app = FastAPI(
        title=TITLE,
        openapi_url=None,  # FastAPI generates the document for every call; this one is cached
        docs_url=None,  # FastAPI's page loads scripts from the network; this one does not
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.services = Services(
        registry=registry,
        request_batches=requests.request_batches(registry),
        readiness=health.readiness_batches(registry, disks),
        site_keys=site_keys.site_key_batches(registry),
        host_map=host_map.host_map_batches(registry),
        counts=counts.counts_batches(registry),
        shares=shares.shares_batches(registry),
        uri_policy=uri_policy,
        host_names=host_names,
        images=image_store,
        image_urls=image_urls,
        default_image=default_image,
        operator_token_ttl_s=operator_token_ttl_s,
        login_life_s=login_life_s,
        provider=provider,
        over_quota=over_quota,
        shutdown_timeout_s=shutdown_timeout_s,
        host_reserved=host_reserved,
        default_quota=default_quota,
        queue=queue,
        console_wait_s=console_wait_s,
        metrics=metrics,
        move_limits=move_limits or RebalanceLimits(),
        waiting_times=WaitingTimes(registry, start=start_child),
        settings=tuple(settings),
        disks=disks,
        feed=EventFeed(registry, host_names),
        streams=streams,
        what_ifs=what_ifs or build_what_if_executor(registry, ControllerSettings.model_construct()),
        start_child=start_child,
    )
    app.state.refusals = Refusals(registry)
    app.router.routes.extend(_api_routes())
    pages = _static_pages()
    for path, page in pages.items():
        app.add_route(path, page.answer, methods=["GET"], include_in_schema=False)
    if WEB_PATH in pages:
        for path in ("/", WEB_PATH.rstrip("/")):
            app.add_route(path, to_web, methods=["GET"], include_in_schema=False)
    app.openapi = partial(_openapi_document, app)  # type: ignore[method-assign]  # as documented
    app.add_exception_handler(HTTPException, problem_handler)
    app.add_exception_handler(RequestValidationError, problem_handler)
    # The last one added is the outermost.
    app.add_middleware(ConcurrentCalls)
    app.add_middleware(Authentication, registry=registry, limits=limits or RateLimits())
    app.add_middleware(AccessLog, metrics=HttpMetrics(metrics))
    app.add_middleware(AuditTrail, registry=registry, refusals=app.state.refusals)
    return app


def build_what_if_executor(
    registry: Registry, settings: ControllerSettings, start_child: StartChild = start_interpreter
) -> WhatIfExecutor:
    """Return the executor of what-ifs, with the bounds of the settings."""
    bounds = WhatIfBounds(
        time_s=settings.what_if_time_s,
        memory_mib=settings.what_if_memory_mib,
        max_vms=settings.what_if_max_vms,
    )
    return WhatIfExecutor(registry, bounds, decision_from_settings(settings), start_child)


@cache
def _api_routes() -> Sequence[BaseRoute]:
    """Return the routes of the API. They do not refer to an application, so all share one set.

    FastAPI analyses all routes at an application's first call: 0.2 s of CPU time.
    """
    made = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    for module in (
        requests,
        vms,
        vm_groups,
        consoles,
        power,
        counts,
        usage,
        budgets,
        prices,
        moves,
        vm_types,
        images,
        volumes,
        tenants,
        ssh_keys,
        networks,
        quotas,
        shares,
        hosts,
        host_map,
        host_aliases,
        differences,
        label_ratios,
        resources,
        plans,
        reservations,
        rolls,
        rounds,
        shadow_rounds,
        slot_loop,
        status,
        settings_router,
        what_ifs_router,
        events,
        tokens,
        audit,
        capacity,
    ):
        made.include_router(module.router, prefix=PROTECTED_PREFIX)
    made.include_router(site_keys.router, prefix=PROTECTED_PREFIX)
    made.include_router(tokens.own, prefix=PROTECTED_PREFIX)
    made.include_router(login.entrance, prefix=PROTECTED_PREFIX)
    made.include_router(login.links, prefix=PROTECTED_PREFIX)
    made.include_router(health.router)
    made.include_router(metrics_router)
    return made.router.routes


def _openapi_document(app: FastAPI) -> dict[str, Any]:
    """Build the OpenAPI document and store it on the app.

    Later error answers read the stored document and need no thread.
    """
    app.openapi_schema = _routes_document()
    return app.openapi_schema


#: Held while the document is built. With `cache` alone, every thread that calls during that
#: time would build its own, and unauthenticated callers could keep all threads busy.
_DESCRIBING: Final = threading.Lock()


def _routes_document() -> dict[str, Any]:
    """Return the OpenAPI document of the routes. The first call takes 0.4 s of CPU time."""
    with _DESCRIBING:
        return _cached_routes_document()


@cache
def _cached_routes_document() -> dict[str, Any]:
    """Build the OpenAPI document of the routes, once."""
    return build_openapi(_api_routes())


def _static_pages() -> Mapping[str, StaticPage]:
    """Return the static pages by path: documentation, web console, meanings of problems."""
    nothing_else = {"Content-Security-Policy": "default-src 'none'"}
    return {
        "/openapi.json": StaticPage(lambda: json.dumps(_routes_document()), "application/json"),
        **docs_pages(),
        **web_pages(),
        **{
            f"{PROBLEMS_PATH}/{each.kind.code}": StaticPage(
                partial(problem_page, each), "text/html", nothing_else
            )
            for each in problem_meanings()
        },
    }
