"""Somebody reads what a VM wrote on its serial console."""

from __future__ import annotations

import base64
import uuid
from uuid import UUID

import httpx
import pytest

from controller.rest import create_app
from registry import ConsoleAnswer, Registry
from tests.e2e.conftest import Api
from tests.http_client import a_client
from tests.problems import places, the_problem
from tests.register import add_host, add_request, place, run_vm


class Worker:
    """Answers at once, as a worker that has the host before it."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.written = b"LAB-GUEST-READY\r\n"
        self.error: str | None = None

    def send(self, task: str, row_id: UUID) -> None:
        question = self._registry.console_reads.question(row_id)
        assert question is not None
        content = self.written[question.after :][-question.max_bytes :]
        answer = ConsoleAnswer(content=content, end=len(self.written), error=self.error)
        self._registry.console_reads.answer(row_id, answer)


@pytest.fixture
def worker(api: Api) -> Worker:
    return Worker(api.registry)


@pytest.fixture
def vm(api: Api) -> str:
    host = add_host(api.registry, "h1")
    request = add_request(api.registry, tenant="a")
    [assignment] = place(api.registry, request, host).assignment_ids
    run_vm(api.registry, assignment)
    [vm] = api.registry.vms.list().items
    return str(vm.id)


def served_to(api: Api, client: httpx.Client, **services) -> httpx.Client:
    """The same caller, at an API that reaches workers."""
    token = client.headers["Authorization"].split()[1]
    return a_client(create_app(api.registry, **services), token=token)


def test_a_tenant_reads_its_console_and_goes_on_where_it_was(api: Api, worker: Worker, vm: str):
    tenant = served_to(api, api.tenant_a, queue=worker)

    first = tenant.get(f"/v1/vms/{vm}/console")
    worker.written += b"login: "
    second = tenant.get(f"/v1/vms/{vm}/console", params={"after": first.json()["end"]})
    last = tenant.get(f"/v1/vms/{vm}/console", params={"bytes": 3})

    assert first.status_code == 200
    assert base64.b64decode(first.json()["content"]) == b"LAB-GUEST-READY\r\n"
    assert base64.b64decode(second.json()["content"]) == b"login: "
    assert base64.b64decode(last.json()["content"]) == b"n: "


def test_another_tenants_console_does_not_exist(api: Api, worker: Worker, vm: str):
    stranger = served_to(api, api.tenant_b, queue=worker)

    the_problem(stranger.get(f"/v1/vms/{vm}/console"), 404, "not_found")
    the_problem(stranger.get(f"/v1/vms/{uuid.uuid4()}/console"), 404, "not_found")


def test_when_the_host_does_not_answer_only_operators_learn_its_address(
    api: Api, worker: Worker, vm: str
):
    worker.error = "qemu+tcp://h1.test/system does not answer: silence"

    told = [
        served_to(api, client, queue=worker).get(f"/v1/vms/{vm}/console")
        for client in (api.operator, api.tenant_a)
    ]

    operator, tenant = (the_problem(each, 504, "console_unread") for each in told)
    assert "h1.test" in operator["detail"]
    assert "h1.test" not in tenant["detail"]
    assert "silence" in tenant["detail"]


def test_without_workers_the_answer_is_that_none_came(api: Api, vm: str):
    operator = served_to(api, api.operator, console_wait_s=0.2)

    problem = the_problem(operator.get(f"/v1/vms/{vm}/console"), 504, "console_unread")

    assert "no worker answered" in problem["detail"]


def test_a_vm_that_waits_for_a_place_has_no_console(api: Api):
    add_request(api.registry, tenant="a")
    [vm] = api.registry.vms.list().items

    the_problem(api.tenant_a.get(f"/v1/vms/{vm.id}/console"), 409, "conflict")


@pytest.mark.parametrize(("name", "value"), [("bytes", 0), ("bytes", 65_537), ("after", -1)])
def test_more_than_there_is_cannot_be_asked_for(api: Api, vm: str, name: str, value: int):
    answer = api.tenant_a.get(f"/v1/vms/{vm}/console", params={name: value})

    assert places(the_problem(answer, 422, "invalid")) == [name]
