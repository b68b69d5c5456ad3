"""Somebody reads what a VM wrote on its serial console."""

from __future__ import annotations

import base64
import uuid
from uuid import UUID

import httpx
import pytest

from controller.rest import create_app
from registry import Registry
from registry.consoles import ConsoleAnswer
from registry.tasks import ATTACH_CONSOLE, READ_CONSOLE
from tests.e2e.conftest import Api
from tests.problems import places, the_problem
from tests.register import add_host, add_request, place, run_vm
from tests.servers.http_client import a_client


class Worker:
    """Answers at once, as a worker that has the host before it."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.written = b"LAB-GUEST-READY\r\n"
        self.error: str | None = None

    def send(self, task: str, row_id: UUID) -> bool:
        question = self._registry.console_reads.question(row_id)
        assert question is not None
        content = self.written[question.after :][-question.max_bytes :]
        answer = ConsoleAnswer(content=content, end=len(self.written), error=self.error)
        self._registry.console_reads.store_answer(row_id, answer)
        return True


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

    shown = [
        served_to(api, client, queue=worker).get(f"/v1/vms/{vm}/console")
        for client in (api.operator, api.tenant_a)
    ]

    operator, tenant = (the_problem(each, 504, "console_unread") for each in shown)
    assert "h1.test" in operator["detail"]
    assert "h1.test" not in tenant["detail"]
    assert "silence" in tenant["detail"]


def test_the_readings_of_one_tenant_leave_places_to_others(api: Api, worker: Worker, vm: str):
    app = create_app(api.registry, queue=worker)
    tenant, operator = (
        a_client(app, token=client.headers["Authorization"].split()[1])
        for client in (api.tenant_a, api.operator)
    )
    places = app.state.services.console_reads
    while places.take("tenant a"):
        pass

    refused = the_problem(tenant.get(f"/v1/vms/{vm}/console"), 409, "conflict")

    assert "read fewer at a time" in refused["detail"]
    assert operator.get(f"/v1/vms/{vm}/console").status_code == 200
    places.give_back("tenant a")
    assert tenant.get(f"/v1/vms/{vm}/console").status_code == 200


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


class Attaching(Worker):
    """Holds consoles as well: the guest repeats what it hears, in capitals."""

    def send(self, task: str, row_id: UUID) -> bool:
        if task == READ_CONSOLE:
            return super().send(task, row_id)
        assert task == ATTACH_CONSOLE
        work = self._registry.console_holds.claim(row_id, "w1", 60)
        assert work is not None
        self._registry.console_holds.mark_attached(work.claim)
        self.claim = work.claim
        return True

    def answer(self) -> None:
        self._registry.console_holds.store_output(
            self.claim, self._registry.console_holds.take_input(self.claim).upper()
        )


def typed(content: bytes) -> dict[str, str]:
    return {"content": base64.b64encode(content).decode()}


def test_a_tenant_types_on_its_console_and_reads_the_answer(api: Api, vm: str):
    worker = Attaching(api.registry)
    tenant = served_to(api, api.tenant_a, queue=worker)

    opened = tenant.post(f"/v1/vms/{vm}/console/sessions", json={})
    path = f"/v1/vms/{vm}/console/sessions/{opened.json()['id']}"
    waits = opened.json()
    first = tenant.get(path).json()
    attached = tenant.get(path).json()
    for _ in range(2):  # the second time because the answer was lost
        assert tenant.put(f"{path}/input/1", json=typed(b"hello")).status_code == 200
    worker.answer()
    said = tenant.get(path, params={"wait_s": 5}).json()
    on = tenant.get(path, params={"after": said["end"]}).json()
    closed = tenant.delete(path)
    over = tenant.get(path).json()

    assert (opened.status_code, waits["state"], waits["next_input"]) == (201, "waiting", 1)
    assert first["session"]["state"] == attached["session"]["state"] == "attached"
    assert base64.b64decode(said["content"]) == b"HELLO"
    assert (on["content"], on["start"], on["end"]) == ("", 5, 5)
    assert closed.status_code == 204
    assert (over["session"]["state"], over["session"]["reason"]) == ("ended", "it was closed")
    audited = api.operator.get("/v1/audit").json()["items"]
    assert [each["method"] for each in audited] == ["DELETE", "POST"]  # the latest first
    assert base64.b64encode(b"hello").decode() not in str(audited)


def test_keys_that_are_refused_are_in_the_audit(api: Api, vm: str):
    tenant = served_to(api, api.tenant_a, queue=Attaching(api.registry))
    other = served_to(api, api.tenant_b)
    stranger = a_client(create_app(api.registry), token="not-a-token")
    sessions = f"/v1/vms/{vm}/console/sessions"
    path = f"{sessions}/{tenant.post(sessions, json={}).json()['id']}"
    assert tenant.delete(path).status_code == 204

    the_problem(stranger.put(f"{path}/input/1", json=typed(b"x")), 401, "unauthorized")
    the_problem(other.put(f"{path}/input/1", json=typed(b"x")), 404, "not_found")
    the_problem(tenant.put(f"{path}/input/0", json=typed(b"x")), 422, "invalid")
    # A key that was under way when the console was let go is part of the session that was.
    the_problem(tenant.put(f"{path}/input/1", json=typed(b"x")), 409, "conflict")

    audited = api.operator.get("/v1/audit", params={"method": "PUT"}).json()["items"]
    assert [each["status"] for each in audited] == [422, 404, 401]  # the latest first
    assert [each["tenant"] for each in audited] == ["a", "b", None]


def test_a_console_is_held_by_one_until_another_takes_it(api: Api, vm: str):
    tenant = served_to(api, api.tenant_a, queue=Attaching(api.registry))
    path = f"/v1/vms/{vm}/console/sessions"
    first = tenant.post(path, json={}).json()["id"]

    refused = the_problem(tenant.post(path, json={}), 409, "conflict")
    second = tenant.post(path, json={"force": True})

    assert "taken by force" in refused["detail"]
    assert second.status_code == 201
    assert tenant.get(f"{path}/{first}").json()["session"]["state"] == "ended"
    late = tenant.put(f"{path}/{first}/input/1", json=typed(b"x"))
    assert "another session took" in the_problem(late, 409, "conflict")["detail"]


def test_nobody_types_to_the_vms_of_others(api: Api, vm: str):
    tenant = served_to(api, api.tenant_a, queue=Attaching(api.registry))
    stranger = served_to(api, api.tenant_b, queue=Attaching(api.registry))
    key = tenant.post(f"/v1/vms/{vm}/console/sessions", json={}).json()["id"]
    path = f"/v1/vms/{vm}/console/sessions/{key}"

    for refused in (
        stranger.post(f"/v1/vms/{vm}/console/sessions", json={"force": True}),
        stranger.get(path),
        stranger.put(f"{path}/input/1", json=typed(b"x")),
        stranger.delete(path),
        tenant.get(f"/v1/vms/{vm}/console/sessions/{uuid.uuid4()}"),
    ):
        the_problem(refused, 404, "not_found")


@pytest.mark.parametrize("content", ["", "not base64!", "A" * 5465])
def test_what_is_typed_is_checked_and_never_quoted(api: Api, vm: str, content: str):
    tenant = served_to(api, api.tenant_a, queue=Attaching(api.registry))
    key = tenant.post(f"/v1/vms/{vm}/console/sessions", json={}).json()["id"]

    answer = tenant.put(f"/v1/vms/{vm}/console/sessions/{key}/input/1", json={"content": content})

    assert places(the_problem(answer, 422, "invalid")) == ["#/content"]
    assert not content or content[:11] not in answer.text
