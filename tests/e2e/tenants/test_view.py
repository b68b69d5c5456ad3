"""All that a tenant can see of a site holds nothing of hosts, operators and other tenants.

The OpenAPI document says what there is to see: an endpoint that is new is looked at by
itself, with every id that the tenant can come by and with names that it may guess.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

import pytest

from controller.cli.main import main
from controller.host_aliases import HostNames, Viewer
from controller.rest.etags import build_etag
from controller.rounds.policy_process import PolicyProcess
from registry import Registry
from tests.e2e.conftest import Api
from tests.e2e.slots import run_slot
from tests.e2e.tenants.site import RIVAL, RIVAL_TYPE, Site, a_site, failed, host_name
from tests.register import ON_ANY_DATABASE, add_host
from tests.servers.serving import served

pytestmark = ON_ANY_DATABASE

#: What is on offer to everybody, by its name.
PUBLIC: Final = ("/v1/vm-types", "/v1/capacity {'vm_type': 'canary-type'}")
#: Like a host that there is, but there is none.
NOBODY: Final = "canary-host-7"
#: Values of query parameters that have to be given, or lead somewhere.
QUERIES: Final[dict[str, list[str]]] = {
    "vm_type": ["small", RIVAL_TYPE],
    "tenant": ["a", RIVAL],
    "name": ["web", "waits"],
    "format": ["qcow2"],
    "domain": ["host", "zone"],
    "since": ["2020-01-01T00:00:00Z"],
    "group": [RIVAL],
    "by": ["tenant", "group", "type", "label:app"],
    "step": ["hour", "day"],
    "host_class": ["others"],
    "resource": ["vcpus"],
    "days": ["30"],
}
#: Those that narrow a list, and are left out but for one call.
NARROWING: Final = frozenset(
    {"limit", "cursor", "state", "label", "requires", "forbids", "zone", "anti_affinity"}
    | {"affinity", "spread", "after", "kind", "bytes", "wait_s", "include_deleted"}
    | {"until", "include_removed", "include_retired", "sha256", "source", "seed_kind"}
    | {"min_memory_mib", "dry_run", "token", "method", "status", "refused", "request_id", "newest"}
    | {"open", "steps", "search", "address", "mac", "deleted_since"}
)
#: Goes on for an hour; `tests/e2e/calls/test_event_streams.py` follows it as tenants.
LASTS: Final = "/v1/events/stream"
MAX_IDS: Final = 6


@pytest.fixture
def site(register: Registry, decider: PolicyProcess) -> Site:
    return a_site(register, decider)


class Crawl:
    """Calls everything, with whatever ids the answers name."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.document = site.app.openapi()
        self.answers: list[tuple[str, str]] = []  #: the call, and what came
        self.found: defaultdict[str, dict[str, None]] = defaultdict(dict)
        #: What a stranger to others' ids could still guess or have overheard.
        rivals = site.registry.requests.list(tenant=RIVAL).items
        vms = site.registry.vms.list(tenant=RIVAL).items
        self.guessed = {
            "request_id": [str(rivals[0].id)],
            "vm_id": [str(vms[0].id)],
            "name": [RIVAL, RIVAL_TYPE, "a", "small", "lan", host_name(1), NOBODY],
            "reference": ["debian"],
            "number": ["1", "2", "3"],
        }

    def run(self) -> None:
        """Read everything twice, for the second time with the ids of the first, then change."""
        for _ in range(2):
            for path, operations in self.document["paths"].items():
                if "get" in operations and path != LASTS:
                    self._call_with_all("GET", path, operations["get"])
        for path, operations in self.document["paths"].items():
            for method in ("post", "patch", "put", "delete"):
                if method in operations:
                    self._call_with_all(method.upper(), path, operations[method])

    def leaks(self) -> Iterator[str]:
        """Name every answer with something that its reader did not say itself."""
        for call, came in self.answers:
            for word in self.site.forbidden:
                if word.lower() in came.lower():
                    place = came.lower().find(word.lower())
                    yield f"{call}: {word} in …{came[max(0, place - 80) : place + 80]}…"

    def _call_with_all(self, method: str, path: str, operation: dict[str, Any]) -> None:
        names = re.findall(r"{(\w+)}", path)
        values = [self._ids(name)[: 12 if name == "name" else MAX_IDS] for name in names]
        for combination in itertools.product(*values):
            whole = path
            for name, value in zip(names, combination, strict=True):
                whole = whole.replace(f"{{{name}}}", value)
            for query in self._queries(operation) if method == "GET" else [{}]:
                self._call(method, whole, query, list(combination))

    def _ids(self, name: str) -> list[str]:
        found = list(self.found[name]) + self.guessed.get(name, [])
        return found or ["00000000-0000-0000-0000-000000000000"]

    def _queries(self, operation: dict[str, Any]) -> list[dict[str, str]]:
        """Return the call without what may be left out, and one for each value of the rest."""
        given = [each for each in operation.get("parameters", ()) if each["in"] == "query"]
        base = {each["name"]: QUERIES[each["name"]][0] for each in given if each.get("required")}
        queries = [base]
        for name in (each["name"] for each in given):
            if name in ("host", "hosts"):
                known = [*self.found["host"], host_name(1), NOBODY]
                queries += [{**base, name: value} for value in known]
            elif name in ("subject", "request", "vm"):
                ids = [*self.found["vm_id"], str(self.site.registry.hosts.get(host_name(1)).id)]
                queries += [{**base, name: value} for value in ids]
            elif name in QUERIES:
                queries += [{**base, name: value} for value in QUERIES[name]]
            else:
                assert name in NARROWING, f"say with which values {name} is to be tried"
        return queries

    def _call(self, method: str, path: str, query: dict[str, str], sent: list[str]) -> None:
        keywords: dict[str, Any] = {"params": query}
        if method in ("POST", "PATCH", "PUT"):
            keywords["json"] = {}
        answer = self.site.tenant.request(method, path, **keywords)
        assert answer.status_code < 500 or answer.status_code == 504, (method, path, answer.text)
        headers = " ".join(f"{k}: {v}" for k, v in answer.headers.items())
        shown = f"{headers} {answer.text}"
        for value in (*sent, *query.values()):  # what it said itself it may be told again
            if answer.status_code >= 400:
                shown = shown.replace(value, "")
        if not f"{path} {query}".startswith(PUBLIC):
            self.answers.append((f"{method} {path} {query}", shown))
        if answer.content and answer.headers.get("content-type") == "application/json":
            self._gather(path, answer.json())

    def _gather(self, path: str, value: Any) -> None:
        collection = path.split("/")[2] if path.count("/") > 1 else ""
        keys = {"requests": "request_id", "vms": "vm_id", "rounds": "number", "moves": "move_id"}
        for each in value.get("items", [value]) if isinstance(value, dict) else []:
            if not isinstance(each, dict):
                continue
            if "id" in each and collection in keys:
                self.found[keys[collection]][str(each["id"])] = None
            if each.get("host"):
                self.found["host"][each["host"]] = None
            if each.get("data", {}).get("session"):
                self.found["session_id"][each["data"]["session"]] = None
            for name, key in (("vm", "vm_id"), ("request", "request_id"), ("number", "number")):
                if isinstance(each.get(name), str | int):
                    self.found[key][str(each[name])] = None


def test_nothing_that_a_tenant_reads_names_hosts_operators_or_other_tenants(site: Site):
    crawl = Crawl(site)

    crawl.run()

    shown = json.dumps(crawl.answers)
    assert len(crawl.answers) > 300
    assert crawl.found["host"]
    assert crawl.found["session_id"]
    assert len(crawl.found["move_id"]) == 3
    assert all(word in shown for word in ("(its URI)", "(an address)", "(a path)"))  # it was there
    assert list(crawl.leaks()) == []


def test_an_operator_who_asks_the_same_reads_all_of_it(site: Site):
    """The words are there to be found: what the crawl of a tenant misses was not lost."""
    event = "".join(
        site.operator.get(path, params=query).text
        for path, query in (
            ("/v1/vms", {"tenant": "a", "limit": 500}),
            ("/v1/events", {"limit": 500}),
            ("/v1/moves", {"tenant": "a"}),
            ("/v1/rounds", {}),
        )
    )

    missing = [
        word for word in ("canary-host-1", "canary-machine-1", "10.231.7.1") if word not in event
    ]
    assert missing == []
    assert "canary-worker" in event
    assert "canary-operator" in event
    assert "cancelled by operator:canary-operator" in event
    assert "canary-host-29" in event


def test_a_hosts_real_name_is_answered_like_one_that_there_is_not(site: Site):
    def refused(host: str) -> list[tuple[int, str]]:
        body = {"vm_type": "small", "count": 1, "hosts": [host]}
        answers = [
            site.tenant.post("/v1/requests", json=body),
            site.tenant.get("/v1/capacity", params={"vm_type": "small", "hosts": host}),
            site.tenant.get("/v1/vms", params={"host": host}),
            site.tenant.get(f"/v1/hosts/{host}"),
        ]
        return [(each.status_code, each.text.replace(host, "HOST")) for each in answers]

    real, none = refused(host_name(1)), refused(NOBODY)

    assert real == none
    assert [status for status, _ in real] == [422, 422, 422, 403]


def test_a_tenants_name_of_a_host_is_the_same_everywhere_and_is_taken_back(
    site: Site, decider: PolicyProcess
):
    names = HostNames.of(site.registry)
    [vm, *_] = [vm for vm in site.tenant.get("/v1/vms").json()["items"] if vm["host"]]
    alias = vm["host"]
    real = site.registry.vms.get(UUID(vm["id"])).host

    made = site.tenant.post(
        "/v1/requests",
        json={"vm_type": "small", "count": 1, "name": "again", "hosts": [alias]},
        headers={"Idempotency-Key": "k"},
    )
    again = site.tenant.post(
        "/v1/requests",
        json={"vm_type": "small", "count": 1, "name": "again", "hosts": [alias]},
        headers={"Idempotency-Key": "k"},
    )

    assert alias == names.alias("a", str(real))
    assert re.fullmatch(r"host-[a-z2-7]{9}", alias)
    assert made.json()["hosts"] == again.json()["hosts"] == [alias]
    assert again.headers["Idempotency-Replayed"] == "true"
    key = made.json()["id"]
    assert site.registry.requests.get(UUID(key)).hosts == (real,)
    assert site.tenant.get(f"/v1/requests/{key}").json()["hosts"] == [alias]
    assert site.operator.get(f"/v1/requests/{key}").json()["hosts"] == [real]
    here = site.tenant.get("/v1/vms", params={"host": alias}).json()["items"]
    assert vm["id"] in {each["id"] for each in here}
    assert {each["host"] for each in here} == {alias}
    explained = site.tenant.get(f"/v1/vms/{vm['id']}/explanation").json()
    assert explained["host"] == alias
    capacity = site.tenant.get("/v1/capacity", params={"vm_type": "small", "hosts": alias})
    assert capacity.json()["fits"] in (0, 1)


def test_a_retired_host_means_nothing_any_more_and_is_not_named(site: Site):
    names = HostNames.of(site.registry)
    add_host(site.registry, "canary-host-9")
    alias = names.alias("a", "canary-host-9")
    body = {"vm_type": "small", "count": 1, "hosts": [alias]}
    assert site.tenant.post("/v1/requests", json=body).status_code == 201

    assert site.operator.delete("/v1/hosts/canary-host-9").status_code == 200

    answer = site.tenant.post("/v1/requests", json=body)
    assert answer.status_code == 422
    assert alias in answer.text
    assert "canary" not in answer.text


def test_a_version_does_not_tell_what_its_reader_is_not_told(site: Site):
    """A plain hash of a record could be tried out, host by host."""
    [request] = site.tenant.get("/v1/requests", params={"name": "named"}).json()["items"]
    path = f"/v1/requests/{request['id']}"
    here = site.tenant.get(path).headers["etag"]

    there = site.operator.get(path).headers["etag"]
    record = site.registry.requests.get(UUID(request["id"]))
    guessed = build_etag(record, secret=b"")
    assert here == there != guessed


def test_one_hosts_names_for_two_tenants_have_nothing_in_common(site: Site):
    names = HostNames.of(site.registry)

    own, rivals = names.alias("a", host_name(1)), names.alias(RIVAL, host_name(1))

    assert own != rivals
    assert names.resolve_name("a", rivals) is None
    assert names.resolve_name("a", own) == host_name(1)


def test_the_operator_may_let_tenants_see_names_of_hosts_and_still_no_addresses(
    register: Registry, decider: PolicyProcess
):
    site = a_site(register, decider, host_naming="shown")

    vms = site.tenant.get("/v1/vms").json()["items"]

    assert any(vm["host"] == host_name(1) for vm in vms)
    shown = json.dumps([vm["last_error"] for vm in vms])
    assert host_name(1) in shown
    assert not any(word in shown for word in ("10.231.7.1", "qemu+tcp", "canary-pool"))
    body = {"vm_type": "small", "count": 1, "hosts": [host_name(1)]}
    assert site.tenant.post("/v1/requests", json=body).status_code == 201


def test_capacity_does_not_tell_of_single_vms_of_others(api: Api, decider: PolicyProcess):
    for number in range(6):
        add_host(api.registry, f"h{number}", vcpus=4)

    def fits(**query: Any) -> int:
        found = api.tenant_a.get("/v1/capacity", params={"vm_type": "small", **query}).json()
        assert found["classes"] == []
        assert found["at_least"]
        return int(found["fits"])

    seen = []
    for number in range(1, 5):
        seen.append(fits())
        body = {"vm_type": "small", "count": 1, "tenant": "b"}
        assert api.operator.post("/v1/requests", json=body).status_code == 201
        run_slot(api.registry, decider, number)

    assert seen == [20, 20, 20, 20]
    exact = api.operator.get("/v1/capacity", params={"vm_type": "small"}).json()
    assert (exact["fits"], exact["at_least"], len(exact["classes"])) == (20, False, 1)


def test_what_fits_of_vms_that_are_needed_at_once_does_not_either(api: Api, decider: PolicyProcess):
    for number in range(6):
        add_host(api.registry, f"h{number}", vcpus=4)
    gang = {"vm_type": "small", "count": 30, "min_count": 30}
    path = f"/v1/requests/{api.tenant_a.post('/v1/requests', json=gang).json()['id']}"

    seen = []
    for number in range(1, 4):
        body = {"vm_type": "small", "count": 1, "tenant": "b"}
        assert api.operator.post("/v1/requests", json=body).status_code == 201
        run_slot(api.registry, decider, number)
        shown = api.tenant_a.get(f"{path}/explanation").json()["waiting"]
        detail = api.tenant_a.get(path).json()["waiting"]["detail"]
        # What comes before tells when a slot was decided last: each is another here.
        _, _, why = shown["message"].partition("; fewer of these VMs fit")
        seen.append((shown["fit"], detail["gang"]["fit"], why))

    assert len(set(seen)) == 1
    assert seen[0][:2] == (20, 20)
    assert "at least 20 of its VMs would fit, 30 are needed at once" in seen[0][2]
    exact = api.operator.get(f"{path}/explanation").json()["waiting"]
    assert exact["fit"] == 21
    assert "; 21 of its VMs would fit" in exact["message"]


def test_a_vms_explanation_speaks_of_its_tenants_own_vms(site: Site):
    vms = site.tenant.get("/v1/vms").json()["items"]

    shown = [site.tenant.get(f"/v1/vms/{vm['id']}/explanation").json() for vm in vms]

    played = [each for each in shown if each["phase"] == "game"]
    assert played
    for each in played:
        assert each["utilities"] == []
        assert re.search(r"took \d+ small of yours", each["message"])
        operators = site.operator.get(f"/v1/vms/{each['vm']}/explanation").json()
        assert operators["utilities"]


COMMANDS: Final = (
    ["vms"],
    ["requests"],
    ["vm-groups"],
    ["events"],
    ["rounds"],
    ["rounds", "show", "1"],
    ["explain", "web"],
    ["explain", "waits"],
    ["explain", "web-1"],
    ["capacity", "small"],
    ["capacity", "small", "--host", host_name(1)],
    ["quota", "show"],
    ["tenant", "list"],
    ["tenant", "show", "a"],
    ["network", "list"],
    ["image", "list"],
    ["key", "list"],
    ["host", "list"],
    ["host", "show", host_name(1)],
    ["request", "small", "--host", host_name(1)],
    ["console", "web-2", "--log"],
    ["doctor"],
    ["status"],
)


def test_no_command_of_a_tenant_prints_it_either(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]
):
    with served(site.app) as url:
        monkeypatch.setenv("FUGA_URL", url)
        monkeypatch.setenv("FUGA_TOKEN", site.secret)
        # A machine of the tenant's own, from which the register center is not reached.
        monkeypatch.setenv("FUGA_STATE_DIR", str(tmp_path / "of-the-tenant"))
        for name in ("FUGA_CONFIG", "FUGA_DATABASE_URL"):
            monkeypatch.delenv(name, raising=False)
        for command in COMMANDS:
            for form in ([], ["-o", "json"]):
                with pytest.raises(SystemExit):
                    main([*form, *command])
                captured = capsys.readouterr()
                text = captured.out + captured.err
                for word in command:
                    text = text.replace(word, "")
                found = [word for word in site.forbidden if word in text]
                assert found == [], (command, text)


def test_every_word_of_a_failure_that_says_which_machine_it_was_is_taken_out(site: Site):
    names = HostNames.of(site.registry)

    shown = Viewer("a", names).redact_text(failed(2))

    alias = names.alias("a", host_name(2))
    assert shown == (
        f"host {alias} does not answer at (its URI): unable to connect to server at "
        f"'(an address)': Connection refused; {alias} and {alias} say: cannot open (a path) "
        "with its credential ((an address))"
    )
    assert Viewer(None, names).redact_text(failed(2)) == failed(2)
