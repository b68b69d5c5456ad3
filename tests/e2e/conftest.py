"""The API in this process, on a register center of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import structlog
from fastapi import FastAPI

from controller.cli.main import main
from controller.host_aliases import HostNames
from controller.rest import create_app
from registry import Registry
from tests.register import add_tenant, add_vm_type
from tests.servers.http_client import a_client
from tests.servers.provider import a_provider
from tests.servers.serving import served


@pytest.fixture(scope="package", autouse=True)
def quiet() -> Iterator[None]:
    """Let the access log of thousands of generated calls not drown a failure."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    yield
    structlog.configure(**before)


@pytest.fixture(scope="session")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a provider of OpenID Connect with users anna, otto and eve."""
    with a_provider(tmp_path_factory.mktemp("provider")) as issuer:
        yield issuer


@dataclass(frozen=True)
class Api:
    """An API, and the parties who talk with it."""

    app: FastAPI
    registry: Registry
    operator: httpx.Client
    tenant_a: httpx.Client
    tenant_b: httpx.Client
    stranger: httpx.Client  #: has no token

    def alias(self, host: str, tenant: str = "a") -> str:
        """Return what a tenant calls a host."""
        return HostNames.of(self.registry).alias(tenant, host)

    def client(self, secret: str) -> httpx.Client:
        return a_client(self.app, token=secret)


@pytest.fixture
def api(register: Registry) -> Api:
    """Tenants a and b, the type `small`, and a token for everybody."""
    app = create_app(register)
    for name in ("a", "b"):
        add_tenant(register, name)
    add_vm_type(register, "small")
    return Api(
        app=app,
        registry=register,
        operator=a_client(app, token=a_token(register, None)),
        tenant_a=a_client(app, token=a_token(register, "a")),
        tenant_b=a_client(app, token=a_token(register, "b")),
        stranger=a_client(app),
    )


def a_token(registry: Registry, tenant: str | None, name: str | None = None) -> str:
    role = "operator" if tenant is None else "tenant"
    name = name or f"{tenant or 'ops'}-token"
    _, secret = registry.tokens.create(role, tenant, name, actor="cli")
    return secret


#: Runs a command and returns what it prints.
Fuga = Callable[..., str]


@pytest.fixture
def fuga(
    register: Registry,
    register_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Fuga]:
    """Run a command as an operator and return what it prints, whatever its status."""
    with served(create_app(register)) as url:
        monkeypatch.setenv("FUGA_URL", url)
        monkeypatch.setenv("FUGA_TOKEN", a_token(register, None))
        monkeypatch.setenv("FUGA_STATE_DIR", str(tmp_path))
        monkeypatch.setenv("FUGA_DATABASE_URL", register_url)
        monkeypatch.delenv("FUGA_CONFIG", raising=False)

        def run(*words: str, status: int = 0) -> str:
            with pytest.raises(SystemExit) as ended:
                main(words)
            captured = capsys.readouterr()
            assert (ended.value.code or 0) == status, captured
            return captured.out + captured.err

        yield run
