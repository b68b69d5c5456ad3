"""`fuga api`: serve the application until stopped."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
import sys
import threading
import time
from collections.abc import Collection
from contextlib import ExitStack
from functools import partial
from typing import Final, cast

import structlog
import uvicorn
from fastapi import FastAPI

from controller.fleet_metrics import FleetCollector
from controller.fork_server.children import StartChild
from controller.fork_server.client import ForkServer
from controller.plans.plan_inputs import build_move_limits
from controller.policies import check_policies
from controller.rest.app import build_what_if_executor, create_app
from controller.rest.login.identity_provider import IdentityProvider, ProviderSettings
from controller.rest.metrics import refusal_counter
from controller.rest.middleware.connection_limits import (
    LimitedListener,
    ServingLoop,
    build_limits,
    raise_file_limit,
)
from controller.rest.middleware.log_throttle import throttle_library_logs
from controller.rest.middleware.protocol import BoundedProtocol, Deadlines
from controller.rest.middleware.rate_limits import Rate, RateLimits
from controller.rest.middleware.tls import ServerCertificate, renewed_on_hangup
from controller.rest.problems.errors import CertificateError, ListenError
from controller.rounds.policy_process import PRELOADED
from controller.settings import ControllerSettings
from controller.what_ifs.executor import CHILD
from controller.worker_queue import CeleryQueue
from registry import Registry, RegistryError, SettingsError
from registry.images import ImageStore, remove_files_of_removed
from service import Check, ProcessMetrics, database_check, listening
from service.certificates import watching_certificates
from service.disks import DiskWatch
from service.process_log import begin_log
from service.settings_in_force import settings_in_force
from service.socket_addresses import split_address
from service.systemd_notify import supervised

GRACE_S: Final = 10
DEADLINES: Final = Deadlines()
#: Rate limit of an address for calls without a token: pages, health, unknown paths.
STRANGERS: Final = Rate(per_s=20, burst=100)
#: Delay of refusals for callers that exceed their rate, so that their next call waits.
REFUSED_AFTER_S: Final = 1.0
#: After this time the API preloads the modules of policies in the fork server.
PRELOAD_AFTER_S: Final = 30.0
BACKLOG: Final = 2048
#: Switch interval of threads, instead of Python's 5 ms: each call needs some twenty turns of the
#: event loop, which a computing thread would delay.
SWITCH_S: Final = 0.0005

log = structlog.get_logger(__name__)


class WatchedServer(uvicorn.Server):
    """A server that records when its event loop last ran."""

    _turned_at = 0.0

    def last_turn_at(self) -> float:
        """Return the time of the loop's last turn, by `time.monotonic`."""
        return self._turned_at

    def check(self) -> Check:
        """Return the health check of the server: that it accepts calls."""
        message = "calls are answered" if self.started else "it has not begun"
        return Check("server", self.started, message)

    async def on_tick(self, counter: int) -> bool:
        """Record a turn; uvicorn calls this ten times a second."""
        self._turned_at = time.monotonic()
        return await super().on_tick(counter)


def main() -> int:
    """Serve with the settings of the environment; return the exit status, 1 if it cannot start."""
    settings = ControllerSettings()
    metrics = ProcessMetrics("api")
    begin_log(settings, metrics)
    try:
        check_policies(settings)
        serve(settings, metrics)
    except (CertificateError, ListenError, RegistryError) as error:
        sys.stderr.write(f"fuga api: {error}\n")
        return 1
    return 0


def serve(settings: ControllerSettings, metrics: ProcessMetrics) -> None:
    """Serve until SIGTERM or SIGINT, then finish the calls under way and return.

    Raises
    ------
    CertificateError
        If the certificate's files are not valid.
    ListenError
        If the address is in use or not available.
    ListenerError
        If the address of the metrics is in use or not available.
    SchemaOutdatedError
        If the database needs `fuga db upgrade`.
    """
    files = raise_file_limit()
    sys.setswitchinterval(SWITCH_S)
    certificate = build_server_certificate(settings)
    context = None if certificate is None else certificate.context()
    images = settings.resolved_image_store()
    registry = Registry.connect(settings.resolved_database_url())
    try:
        metrics.registry.register(
            FleetCollector(
                registry, interval_s=settings.metrics_interval_s, max_series=settings.metrics_most
            )
        )
        address = settings.metrics_address("api")
        with (
            open_listener(settings.listen) as listener,
            listening(address, metrics, ready=lambda: [database_check(registry)]),
            watching_certificates(settings, metrics),
            ExitStack() as stack,
        ):
            children = ForkServer((*PRELOADED, CHILD))
            stack.callback(children.close)
            limits = build_rate_limits(settings)
            app = _create_application(registry, settings, metrics, limits, children.fork)
            stack.callback(app.state.refusals.flush)
            stack.callback(app.state.services.what_ifs.close)
            server = bounded_server(app, trusted_proxies=settings.trusted_proxies, limits=limits)
            connection_limits = build_limits(
                settings.api_connections,
                settings.api_connections_per_address,
                settings.trusted_proxies,
                files=files,
            )
            listener.set_limits(connection_limits, refusal_counter(metrics))
            if certificate is not None and context is not None:
                server.config.load()
                server.config.ssl = context
                stack.enter_context(renewed_on_hangup(context, certificate))
            elif not _is_local(listener):
                log.warning("api_without_tls", listen=settings.listen)
            _remove_leftover_images(registry, images)
            preload = threading.Timer(PRELOAD_AFTER_S, children.warm_up)
            preload.daemon = True
            stack.callback(preload.cancel)
            preload.start()
            stack.enter_context(
                supervised(lambda: [database_check(registry), server.check()], server.last_turn_at)
            )
            _run_server(server, listener)
    finally:
        registry.close()


def open_listener(listen: str) -> LimitedListener:
    """Return a socket that listens on ``host:port``; raise `ListenError` if it cannot."""
    try:
        host, port = split_address(listen)
    except ValueError:
        raise ListenError(listen, "it is not host:port") from None
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without a named protocol asyncio leaves Nagle's algorithm on: 40 ms for each answer.
    listener = LimitedListener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(listen, error.strerror or str(error)) from error
    return listener


def build_rate_limits(settings: ControllerSettings) -> RateLimits:
    """Return the rate limits of this process: its share of those in the settings."""
    tokens = Rate(per_s=settings.rate_limit_per_s, burst=settings.rate_limit_burst)
    failures = Rate(per_s=settings.auth_failures_per_s, burst=settings.auth_failures_burst)
    return RateLimits(
        tokens if tokens.per_s else None,
        failures if failures.per_s else None,
        STRANGERS,
        refused_after_s=REFUSED_AFTER_S,
        processes=settings.api_processes,
    )


def build_identity_provider(settings: ControllerSettings) -> IdentityProvider | None:
    """Return the client of the OpenID Connect provider in the settings, or None."""
    if settings.oidc_issuer is None or settings.oidc_client_id is None:
        return None
    secret = settings.oidc_client_secret
    found = ProviderSettings(
        issuer=settings.oidc_issuer,
        client_id=settings.oidc_client_id,
        client_secret=None if secret is None else secret.get_secret_value(),
        scopes=settings.oidc_scopes,
        rules=settings.oidc_rules,
        name_claim=settings.oidc_name_claim,
        ca=settings.oidc_ca,
    )
    try:
        return IdentityProvider(found)
    except OSError as error:
        raise SettingsError(
            f"FUGA_OIDC_CA: cannot read certificates from {settings.oidc_ca}: {error}"
        ) from error


def build_server_certificate(settings: ControllerSettings) -> ServerCertificate | None:
    """Return the TLS certificate in the settings, or None."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return ServerCertificate(settings.tls_cert, settings.tls_key)


def _is_local(listener: socket.socket) -> bool:
    """Return whether a socket listens on a loopback address only."""
    return ipaddress.ip_address(listener.getsockname()[0]).is_loopback


def _remove_leftover_images(registry: Registry, store: ImageStore) -> None:
    """Delete files of removed images that a killed API process left."""
    try:
        for removed in remove_files_of_removed(registry.images, store):
            log.info("image_file_removed", reason=removed.message)
    except (RegistryError, OSError) as error:
        log.warning("image_store_not_tidied", error=str(error))


def _create_application(
    registry: Registry,
    settings: ControllerSettings,
    metrics: ProcessMetrics,
    limits: RateLimits,
    start_child: StartChild,
) -> FastAPI:
    """Create the application of the REST API with the settings of this process."""
    return create_app(
        registry,
        uri_policy=settings.uri_policy(),
        over_quota=settings.over_quota,
        host_naming=settings.host_names,
        operator_token_ttl_s=settings.operator_token_ttl_s,
        login_life_s=settings.login_hours * 3600,
        provider=build_identity_provider(settings),
        shutdown_timeout_s=settings.shutdown_timeout_s,
        image_store=settings.resolved_image_store(),
        image_urls=settings.image_urls,
        default_image=settings.default_image,
        host_reserved=settings.host_reserved,
        default_quota=settings.default_quota,
        limits=limits,
        queue=CeleryQueue(settings),
        metrics=metrics,
        move_limits=build_move_limits(settings),
        settings=settings_in_force(settings),
        disks=DiskWatch(settings).full_disk_messages,
        event_streams=settings.api_event_streams,
        what_ifs=build_what_if_executor(registry, settings, start_child),
        start_child=start_child,
    )


def bounded_server(
    app: FastAPI,
    *,
    trusted_proxies: Collection[str] = (),
    deadlines: Deadlines = DEADLINES,
    limits: RateLimits | None = None,
) -> WatchedServer:
    """Return a server that is bounded against slow, numerous or malicious clients.

    ``limits`` are those of the application: invalid HTTP counts like a call without a token.
    """
    throttle_library_logs()
    protocol = partial(BoundedProtocol, deadlines=deadlines, limits=limits or RateLimits())
    return WatchedServer(
        uvicorn.Config(
            app,
            log_config=None,  # the access log is ours, the rest goes to the root logger
            access_log=False,
            server_header=False,
            # Failures count by address: a caller with a forged address would escape the limit.
            proxy_headers=bool(trusted_proxies),
            forwarded_allow_ips=sorted(trusted_proxies),
            lifespan="off",
            timeout_graceful_shutdown=GRACE_S,
            http=cast(type[asyncio.Protocol], protocol),
            ws="none",
            loop=f"{ServingLoop.__module__}:{ServingLoop.__name__}",
        )
    )


def _run_server(server: uvicorn.Server, listener: socket.socket) -> None:
    """Serve at a socket until SIGINT or SIGTERM."""
    # uvicorn ends on these signals and then raises them again for an earlier
    # handler; an orderly end is no death by signal, so there is none.
    before = {
        number: signal.signal(number, _ignore_signal) for number in (signal.SIGINT, signal.SIGTERM)
    }
    address = listener.getsockname()
    tls = server.config.ssl is not None if server.config.loaded else False
    log.info("api_started", host=address[0], port=address[1], tls=tls)
    try:
        server.run(sockets=[listener])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        log.info("api_stopped")


def _ignore_signal(_number: int, _frame: object) -> None:
    return None
