"""What callers read who break a rule of the API: each in words, with the name as they gave it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from controller.json_pointers import pointer_of, pointer_text
from controller.rest.pages.published import openapi_document
from controller.rest.problems.patterns import PATTERNS_SAID
from registry.networks import NetworkSource
from tests.e2e.conftest import Api
from tests.register import ACTOR, add_host, add_request, add_tenant, place, start_vm, take_lease

Schema = Mapping[str, Any]

DOCUMENT = openapi_document()
#: What nobody should have to read: pointers, patterns, Python and Pydantic.
NOISE = re.compile(
    r"#/|\^|\{\d|\[a-z|\[!-|\[ -|\bNone\b|\bTrue\b|\bFalse\b|[Ii]nput should|regex|pattern"
    r"|Extra inputs|Field required|UUID|e-0|e\+0|docs"
)


#: An id of nothing; a random one may look like noise.
NOBODY = "0198aaaa-bbbb-7ccc-8ddd-aaaabbbbcccc"


@dataclass(frozen=True)
class Broken:
    """One call with one fault."""

    method: str
    template: str
    source: str
    path: tuple[str | int, ...]
    value: Any

    def __str__(self) -> str:
        return f"{self.method} {self.template} {pointer_text(pointer_of(self.path))}={self.value!r}"


def resolved(schema: Schema) -> list[Schema]:
    if "$ref" in schema:
        return resolved(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    alternatives = schema.get("anyOf", schema.get("allOf"))
    if alternatives:
        return [found for each in alternatives for found in resolved(each)]
    return [] if schema.get("type") == "null" else [schema]


def faults(
    schema: Schema, at: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every place below a schema, with values that it does not take."""
    for found in resolved(schema):
        kind = found.get("type")
        if kind == "object":
            yield at, "text"
            for name, below in found.get("properties", {}).items():
                yield from faults(below, (*at, name))
            for pattern, below in found.get("patternProperties", {}).items():
                yield (*at, " a "), 1
                yield from faults(below, (*at, "vcpus" if "a-z0-9]([a-z" in pattern else "key"))
            if found.get("additionalProperties") is False:
                yield (*at, "surplus"), 1
            if "maxProperties" in found:
                yield at, {f"n{n}": {} for n in range(found["maxProperties"] + 1)}
        elif kind == "array":
            yield at, "text"
            if found.get("maxItems", 10_000) < 2_000:
                yield at, ["x"] * (found["maxItems"] + 1)
            yield from faults(found["items"], (*at, 0))
        elif kind:
            yield from ((at, value) for value in wrong(found))


def wrong(schema: Schema) -> Iterator[Any]:
    yield {}
    if "enum" in schema or "const" in schema:
        yield "surely-not"
    elif schema["type"] in ("integer", "number"):
        yield "much"
        for bound, beyond in (("minimum", -1), ("maximum", 1)):
            if bound in schema and abs(schema[bound]) < 2**60:
                yield schema[bound] + beyond
    elif schema["type"] == "boolean":
        yield "perhaps"
    elif "pattern" in schema:
        yield from (each for each in (" ä ", "\x00") if not re.search(schema["pattern"], each))
    elif "maxLength" in schema:
        yield "x" * (schema["maxLength"] + 1)
    elif schema.get("format"):
        yield "no-such"


def broken() -> Iterator[Broken]:
    for template, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {})
            for path, value in faults(content.get("application/json", {}).get("schema", {}), ()):
                yield Broken(method, template, "body", path, value)
            for each in operation.get("parameters", ()):
                if each["in"] == "query":
                    for path, value in faults(each["schema"], (each["name"],)):
                        if isinstance(value, str | int) and value not in ("\x00", "text"):
                            yield Broken(method, template, "query", path, value)


def body_with(path: tuple[str | int, ...], value: Any) -> Any:
    for part in reversed(path):
        value = [value] if isinstance(part, int) else {part: value}
    return value


CALLS = list(broken())


def test_every_pattern_is_said_in_words() -> None:
    patterns = set(re.findall(r'"pattern": ("(?:[^"\\]|\\.)*")', json.dumps(DOCUMENT)))
    keys = {
        pattern
        for each in DOCUMENT["components"]["schemas"].values()
        for below in each.get("properties", {}).values()
        for found in resolved(below)
        for pattern in found.get("patternProperties", {})
    }

    body = {json.loads(each) for each in patterns} | keys

    assert body - set(PATTERNS_SAID) == set()
    assert set(PATTERNS_SAID) - body == set()


def test_there_is_a_call_for_every_operation_that_takes_something() -> None:
    assert len(CALLS) > 600
    assert {each.source for each in CALLS} == {"body", "query"}


def test_every_rule_that_is_broken_is_said_in_words(api: Api) -> None:
    amiss: list[str] = []
    for call in CALLS:
        where = re.sub(r"\{[^}]*\}", NOBODY, call.template)
        if call.source == "body":
            answer = api.operator.request(call.method, where, json=body_with(call.path, call.value))
        else:
            answer = api.operator.request(
                call.method, where, params={str(call.path[0]): call.value}
            )
        if answer.status_code not in (404, 415, 422):
            amiss.append(f"{call}: {answer.status_code}")
            continue
        problem = answer.json()
        if answer.status_code != 422:
            continue
        for error in problem["errors"]:
            if NOISE.search(error["detail"]) or NOISE.search(error["allowed"]):
                amiss.append(f"{call}: {error['detail']}")
            if len(error["detail"]) > 400:
                amiss.append(f"{call}: {len(error['detail'])} characters")
        name = pointer_text(pointer_of(call.path))
        said = [each["detail"].partition(": ")[0] for each in problem["errors"]]
        if call.path and not any(each.startswith(name) or name.startswith(each) for each in said):
            amiss.append(f"{call}: names {said}")

    assert not amiss, "\n".join(amiss)


@pytest.fixture
def site(api: Api) -> Api:
    """Hosts, networks and images, of which tenant a may see some."""
    register = api.registry
    mine, _ = (add_host(register, name) for name in ("kvm-north", "kvm-south"))
    request = add_request(register, tenant="a", name="web")
    lease = take_lease(register)
    start_vm(register, place(register, request, mine, lease=lease).assignment_ids[0])
    for name, offered in (("lan-open", None), ("lan-secret", ["b"])):
        source = NetworkSource(kind="network", name="default")
        register.networks.add(name, default=source, offered_to=offered, actor=ACTOR)
    add_tenant(register, "bertha")
    return api


def refused(client: httpx.Client, **body: Any) -> str:
    answer = client.post("/v1/requests", json={"vm_type": "small", "count": 1} | body)
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert problem["detail"] == problem["errors"][0]["detail"]
    return str(problem["detail"])


def test_the_nearest_name_is_told(site: Api) -> None:
    a, operator = site.tenant_a, site.operator

    assert refused(a, vm_type="smal") == ("vm_type: VM type 'smal' not found; did you mean small?")
    assert refused(a, vm_type="huge") == "vm_type: VM type 'huge' not found; known: small"
    assert refused(a, network="lan-opn").endswith("did you mean lan-open?")
    assert refused(operator, tenant="berta").endswith("did you mean bertha?")
    assert refused(operator, tenant="a", hosts=["kvm-nort"]).endswith(
        "did you mean kvm-north or kvm-south?"
    )
    assert a.get("/v1/vm-types/smal").json()["detail"] == (
        "VM type 'smal' not found; did you mean small?"
    )
    assert (
        operator.get("/v1/hosts/kvm-sout").json()["detail"].endswith("mean kvm-south or kvm-north?")
    )
    assert operator.get("/v1/networks/lan-secre").json()["detail"].endswith("mean lan-secret?")
    assert "did you mean count?" in refused(a, cuont=1)
    assert (
        "did you mean vms?"
        in operator.patch("/v1/tenants/a/quota", json={"limits": {"vm": 1}}).json()["detail"]
    )
    wrong = a.get("/v1/vms", params={"state": "runing"}).json()["detail"]
    assert wrong.endswith("did you mean running?")


@pytest.mark.parametrize("typed", ["kvm-north", "kvm-nort", "kvm-sout", "KVM-NORTH"])
def test_a_tenant_is_told_of_no_host_but_by_its_own_names(site: Api, typed: str) -> None:
    own = site.alias("kvm-north")

    for detail in (
        refused(site.tenant_a, hosts=[typed.lower()]),
        site.tenant_a.get("/v1/vms", params={"host": typed.lower()}).json()["detail"],
    ):
        shown = detail.replace(repr(typed.lower()), "")
        assert "kvm" not in shown
        assert site.alias("kvm-south") not in shown
        assert own in shown
    assert "host-" not in refused(site.tenant_b, hosts=[typed.lower()]).replace("host-n", "")


def test_a_tenant_is_told_of_no_other_tenant(site: Api) -> None:
    for path in ("/v1/tenants/berta", "/v1/tenants/berta/quota"):
        assert site.tenant_a.get(path).json()["detail"] == "tenant 'berta' not found"
    for path in ("/v1/requests", "/v1/vms", "/v1/ssh-keys", "/v1/vm-groups"):
        answer = site.tenant_a.get(path, params={"tenant": "berta"})
        assert "bertha" not in answer.text


def test_a_tenant_is_told_of_no_network_that_is_not_offered_to_it(site: Api) -> None:
    reported = refused(site.tenant_a, network="lan-secre")
    shown = site.tenant_a.get("/v1/networks/lan-secret").json()["detail"]

    assert reported == "network: network 'lan-secre' not found; known: lan-open"
    assert shown == "network 'lan-secret' not found; known: lan-open"
    assert refused(site.tenant_b, network="lan-secre").endswith("did you mean lan-secret?")


def test_an_owner_of_a_network_that_is_not_there_is_named_as_such(site: Api) -> None:
    body = {"name": "n", "default": {"name": "default"}, "tenant": "berta"}

    problem = site.operator.post("/v1/networks", json=body).json()

    assert problem["errors"][0]["pointer"] == "#/tenant"
    assert problem["detail"] == "tenant: tenant or group 'berta' not found; did you mean bertha?"
