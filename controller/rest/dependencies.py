"""The dependencies of endpoints: the register center and a few settings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, cast

from fastapi import Depends
from starlette.requests import Request as HttpRequest

from controller.fork_server.children import StartChild
from controller.host_aliases import HostNames, Viewer
from controller.queries.wait_estimates import WaitingTimes
from controller.rest.call_batches import CallBatcher
from controller.rest.login.identity_provider import IdentityProvider
from controller.rest.middleware.callers import caller_of
from controller.rest.schemas.operations import Readiness, SiteKeys
from controller.rest.streams import EventFeed, StreamPermits
from controller.what_ifs.executor import WhatIfExecutor
from controller.worker_queue import TaskQueue
from placement.rebalancing.model import RebalanceLimits
from registry import ImageStoreError, Registry, RegistryError
from registry.hosts import FailurePolicy, UriPolicy
from registry.images import ImageStore
from registry.requests import CreateRequestCommand, Request
from registry.tenancy import OverQuota
from service import ProcessMetrics
from service.fair_semaphore import FairSemaphore
from service.settings_in_force import SettingInForce

LOGIN_LIFE_S: Final = 12 * 3600
_ON_FAILURE: Final = "FUGA_ON_FAILURE"  #: the setting
#: Simultaneous previews and replays of plans and survival checks; each takes seconds.
MAX_REPLAYS: Final = 2
#: Rounds that are computed again at once; each may take as long as its round did.
MAX_GAMES: Final = 2
#: Simultaneous computations of the capacity after the queue; one per tenant.
MAX_TURNS: Final = 4
MAX_CONSOLE_READS: Final = 8
MAX_CONSOLE_WAITS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The dependencies of endpoints. They are kept in the app's state, never in a module."""

    registry: Registry
    request_batches: CallBatcher[
        CreateRequestCommand, Request | RegistryError | None
    ]  #: creates requests in batches
    readiness: CallBatcher[None, Readiness]
    site_keys: CallBatcher[None, SiteKeys]
    #: answers about all rows, computed once for simultaneous calls
    host_map: CallBatcher[None, bytes]
    counts: CallBatcher[str | None, bytes]
    shares: CallBatcher[str | None, bytes]
    uri_policy: UriPolicy
    host_names: HostNames
    over_quota: OverQuota
    shutdown_timeout_s: int
    queue: TaskQueue
    console_wait_s: float
    metrics: ProcessMetrics
    move_limits: RebalanceLimits
    waiting_times: WaitingTimes
    feed: EventFeed
    streams: StreamPermits
    what_ifs: WhatIfExecutor
    start_child: StartChild  #: starts the processes in which policies run
    images: ImageStore | None = None
    image_urls: Collection[str] = ()
    default_image: str | None = None
    operator_token_ttl_s: int | None = None  #: default lifetime; None: unlimited
    login_life_s: int = LOGIN_LIFE_S
    provider: IdentityProvider | None = None  #: of OpenID Connect, if people log in by one
    host_reserved: Mapping[str, int] = field(default_factory=dict)
    default_quota: Mapping[str, int] = field(default_factory=dict)
    settings: tuple[SettingInForce, ...] = ()  #: settings of this process, for operators
    disks: Callable[[], Sequence[str]] = tuple  #: returns sentences about disks without room
    replays: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(MAX_REPLAYS))
    #: limits recomputed rounds; apart from ``replays``, so that no plan waits for them
    games: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(MAX_GAMES))
    #: limits computations of the capacity after the queue; beyond it answers omit that
    turns: FairSemaphore = field(default_factory=lambda: FairSemaphore(MAX_TURNS, of_a_name=1))
    #: limits console reads, each of which occupies a thread
    console_reads: FairSemaphore = field(default_factory=lambda: FairSemaphore(MAX_CONSOLE_READS))
    #: limits calls that wait for console output; others are answered at once
    console_waits: FairSemaphore = field(default_factory=lambda: FairSemaphore(MAX_CONSOLE_WAITS))

    @property
    def on_failure(self) -> FailurePolicy:
        """The site's default for VMs of a host that fails.

        It is the setting of the control centres, which decide; if they differ, or none runs,
        this process's.
        """
        processes = self.registry.processes.settings()
        found = {each.settings.get(_ON_FAILURE) for each in processes if each.kind == "control"}
        if len(found) != 1:
            found = {each.value for each in self.settings if each.name == _ON_FAILURE}
        return FailurePolicy(next((each for each in found if each), FailurePolicy.WAIT))

    def image_store(self) -> ImageStore:
        """Return the image store, or raise `ImageStoreError` if this API has none."""
        if self.images is None:
            raise ImageStoreError("(none)", "this API has none")
        return self.images


def services_of(request: HttpRequest) -> Services:
    """Return the dependencies of the application that serves a call."""
    return cast(Services, request.app.state.services)


def registry_of(request: HttpRequest) -> Registry:
    """Return the register center for this call; its writes are audited as this caller's."""
    state = request.scope.setdefault("state", {})
    found: Registry | None = state.get("registry")
    if found is None:
        found = services_of(request).registry
        call, only_if = state.get("writing"), state.get("only_if")
        if call is not None or only_if is not None:
            found = found.for_call(call, only_if)
        state["registry"] = found
    return found


# Coroutines, because they wait for nothing and so need no thread.
async def _provide_services(request: HttpRequest) -> Services:
    services, registry = services_of(request), registry_of(request)
    return services if registry is services.registry else replace(services, registry=registry)


async def _provide_registry(request: HttpRequest) -> Registry:
    return registry_of(request)


def reader_of(request: HttpRequest) -> Viewer:
    """Return the reader of the answer: the caller, with its names of hosts."""
    return Viewer(caller_of(request).tenant, services_of(request).host_names)


async def _provide_reader(request: HttpRequest) -> Viewer:
    return reader_of(request)


ServicesDep = Annotated[Services, Depends(_provide_services)]
RegistryDep = Annotated[Registry, Depends(_provide_registry)]
ViewerDep = Annotated[Viewer, Depends(_provide_reader)]
