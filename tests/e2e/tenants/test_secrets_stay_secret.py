"""A whole small conversation with known secrets: they are in no log, output, list or event."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import make_url

from registry import Registry
from tests.e2e.calls.test_serving import environment, port_in
from tests.e2e.conftest import a_token
from tests.register import add_tenant, add_vm_type
from tests.servers.postgres import TEMPLATE, PostgresServer
from tests.servers.running import FUGA, START_TIME_S, eventually

pytestmark = pytest.mark.postgresql

DATABASE_PASSWORD = "the-database-password"
BROKER_PASSWORD = "the-broker-password"
USER_DATA = "#cloud-config\npassword: the-guests-password\n"
WRONG_TOKEN = "fuga_" + "not-a-token-of-anybody-" * 2


@contextmanager
def a_process(module: str, env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module], env=env, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_secrets_are_told_once_or_never(postgres: PostgresServer, tmp_path: Path):
    with postgres.database(template=TEMPLATE) as plain_url:
        url = make_url(plain_url).set(password=DATABASE_PASSWORD)
        database_url = url.render_as_string(hide_password=False)
        registry = Registry.connect(database_url)
        add_tenant(registry, "a")
        add_vm_type(registry, "small")
        operator = a_token(registry, None)
        registry.close()
        env = environment(tmp_path, database_url, 0) | {
            "FUGA_BROKER_URL": f"redis://fuga:{BROKER_PASSWORD}@127.0.0.1:1/0",
            "FUGA_TOKEN": operator,
            "FUGA_LOG_LEVEL": "debug",
        }
        api_log, worker_log = tmp_path / "api.log", tmp_path / "worker.log"
        with a_process("controller.rest", env, api_log), a_process("workers", env, worker_log):
            port = eventually(lambda: port_in(api_log), within_s=START_TIME_S)
            env["FUGA_URL"] = f"http://127.0.0.1:{port}"
            shown, made = converse(env["FUGA_URL"], operator)
            doctor = subprocess.run(
                [FUGA, "doctor"], env=env, capture_output=True, text=True, check=False
            )
            eventually(lambda: "127.0.0.1:1" in worker_log.read_text(), within_s=START_TIME_S)

    assert "connection to broker" in doctor.stdout
    said = {
        "the API's log": api_log.read_text(),
        "the worker's log": worker_log.read_text(),
        "the doctor": doctor.stdout + doctor.stderr,
        "what the API told later": shown,
    }
    assert "http_request" in said["the API's log"]
    secrets = {
        "database password": DATABASE_PASSWORD,
        "broker password": BROKER_PASSWORD,
        "operator's token": operator,
        "tenant's token": made,
        "wrong token": WRONG_TOKEN,
        "user-data": "the-guests-password",
        "user-data as sent": base64.b64encode(USER_DATA.encode()).decode()[:24],
    }
    found = [(what, where) for what, s in secrets.items() for where, t in said.items() if s in t]
    assert found == []


def converse(url: str, operator: str) -> tuple[str, str]:
    """Use every kind of secret, rightly and wrongly; return all that is read afterwards."""
    later: list[str] = []
    with httpx.Client(base_url=url, timeout=120) as http:
        as_operator = {"Authorization": f"Bearer {operator}"}
        body: dict[str, Any] = {"role": "tenant", "tenant": "a", "name": "laptop"}
        made = http.post("/v1/tokens", json=body, headers=as_operator).json()
        as_tenant = {"Authorization": f"Bearer {made['secret']}"}
        user_data = base64.b64encode(USER_DATA.encode()).decode()
        request = {"vm_type": "small", "count": 1, "user_data": user_data}
        created = http.post("/v1/requests", json=request, headers=as_tenant)
        assert created.status_code == 201, created.text
        again = http.post("/v1/requests", json=request | {"count": -1}, headers=as_tenant)
        broken = http.post("/v1/requests", json=request | {"user_data": "!" + user_data},
                           headers=as_tenant)  # fmt: skip
        wrong = http.get("/v1/requests", headers={"Authorization": f"Bearer {WRONG_TOKEN}"})
        basic = base64.b64encode(f"fuga:{DATABASE_PASSWORD}".encode()).decode()
        other = http.post("/v1/tenants", json={}, headers={"Authorization": f"Basic {basic}"})
        assert [each.status_code for each in (again, broken, wrong, other)] == [422, 422, 401, 401]
        later += [each.text for each in (created, again, broken, wrong, other)]
        for path in ("tokens", "events", "audit", "requests", "vms"):
            later.append(http.get(f"/v1/{path}", headers=as_operator).text)
        gone = http.delete(f"/v1/tokens/{made['id']}", headers=as_operator)
        later.append(gone.text)
    return "\n".join(later), made["secret"]
