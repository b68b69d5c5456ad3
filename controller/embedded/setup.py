"""What `fuga up` puts into the register: tokens, VM types, tenants, hosts."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from controller.client.errors import ApiProblemError
from controller.embedded.environment import lab_uri_policy
from controller.embedded.lab_hosts import QEMU, LabHosts
from controller.embedded.state import LAB_IMAGE
from controller.session.credentials import UP_NAME_PREFIX, Credentials
from controller.terminal.errors import BadInputError, CliError

if TYPE_CHECKING:
    from controller.client.http import Client, Json
    from registry import Registry

RESOURCES: Final = ("vcpus", "memory_mib", "disk_gib")

#: The VM types of the FUGA paper's evaluation.
VM_TYPES: Final[Mapping[str, tuple[int, int, int]]] = {
    "tiny": (1, 1024, 5),
    "small": (1, 3072, 15),
    "medium": (2, 6144, 30),
    "large": (4, 12288, 60),
    "xlarge": (8, 24576, 60),
}
#: The hosts of the paper's 8-host cluster: the ledger counts these, whatever the machine has.
CAPACITIES: Final = ((16, 32768, 300),) + ((4, 8192, 500),) * 3 + ((4, 4096, 200),) * 4
TENANTS: Final = ("a", "b")
MEMORY_BACKING_MIB: Final = 128  #: what a guest of the lab really gets, whatever its type says


def ensure_operator_token(registry: Registry, found: Credentials | None, url: str) -> Credentials:
    """Return the credentials with valid tokens only; create an operator's token if it lacks.

    The first token cannot come over REST, which requires one.
    """
    operator = found.operator if found else None
    tenants = dict(found.tenants) if found else {}
    if operator is None or registry.tokens.authenticate(operator) is None:
        # It is stored next to the database, and a reader of both can make others: it ends
        # when it is revoked, and not at night in the middle of a run.
        name = f"{UP_NAME_PREFIX}{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
        _, operator = registry.tokens.create("operator", None, name, actor="cli")
    tenants = {
        name: secret
        for name, secret in tenants.items()
        if registry.tokens.authenticate(secret) is not None
    }
    return Credentials(url=url, operator=operator, tenants=tenants)


def add_catalogue(api: Client) -> None:
    """Create the paper's VM types and two tenants, if missing."""
    for name, amounts in VM_TYPES.items():
        if _is_not_found(api, f"vm-types/{name}"):
            resources = dict(zip(RESOURCES, amounts, strict=True))
            api.post("vm-types", {"name": name, "resources": resources})
    for name in TENANTS:
        if _is_not_found(api, f"tenants/{name}"):
            api.post("tenants", {"name": name, "weight": 1.0})


def add_tenant_tokens(
    api: Client, credentials: Credentials, keep: Callable[[Credentials], None]
) -> Credentials:
    """Create the tenants' tokens that the file lacks; save each at once."""
    for name in TENANTS:
        if name in credentials.tenants or _is_not_found(api, f"tenants/{name}"):
            continue
        made = api.post("tokens", {"role": "tenant", "tenant": name, "name": f"fuga-up-{name}"})
        if made["secret"] is None:  # its answer was lost on the way; the next start makes another
            raise CliError(f"the token of tenant {name} was lost; run `fuga up` again")
        credentials = Credentials(
            url=credentials.url,
            operator=credentials.operator,
            tenants={**credentials.tenants, name: made["secret"]},
        )
        keep(credentials)
    return credentials


def lab_host_bodies(lab: LabHosts) -> list[dict[str, Any]]:
    """Return the API bodies that register the lab's hosts as the paper's cluster."""
    return [
        {
            "name": f"host-{number}",
            "uri": host.uri,
            "overrides": dict(zip(RESOURCES, amounts, strict=True)),
            "domain_type": host.domain_type,
            "pool": host.pool,
            "network": host.network,
            "memory_backing_mib": MEMORY_BACKING_MIB if lab.driver == QEMU else None,
        }
        for number, (host, amounts) in enumerate(zip(lab.hosts, CAPACITIES, strict=True), start=1)
    ]


def add_lab_image(api: Client, file: Path) -> str:
    """Add the lab's guest image, unless the newest revision is the same file."""
    with file.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
        if _is_not_found(api, f"images/{LAB_IMAGE}"):
            newest: Json = {}
        else:
            newest = api.get(f"images/{LAB_IMAGE}")
        if newest.get("sha256") != sha256 or newest["state"] != "ready":
            query = {
                "name": LAB_IMAGE,
                "format": "qcow2",
                "seed_kind": "nocloud",
                "sha256": sha256,
                "source": file.name,
            }
            newest = api.upload("images/upload", content, query=query, report=lambda *_: None)
    return f"{newest['name']}:{newest['revision']}"


def add_hosts(api: Client, bodies: Sequence[Mapping[str, Any]]) -> list[str]:
    """Register the hosts that are not registered; return their names."""
    known = {host["name"]: host for host in api.items("hosts")}
    added = []
    for body in bodies:
        host = known.get(body["name"])
        if host is None:
            try:
                api.post("hosts", body)
            except ApiProblemError as problem:
                raise BadInputError(
                    f"host {body['name']} cannot be registered: {problem}"
                ) from None
            added.append(str(body["name"]))
        elif host["uri"] != body["uri"]:
            raise CliError(
                f"host {body['name']} is registered with URI {host['uri']}, not {body['uri']}. "
                f"Give one of them another name, or `fuga host remove {body['name']}` first."
            )
    return added


def update_host_uris(registry: Registry, names: Sequence[str], uris: tuple[str, ...]) -> int:
    """Update the registered URIs of the lab's hosts."""
    registered = {host.name: host for host in registry.hosts.all()}
    policy = lab_uri_policy(uris)
    moved = 0
    for name, uri in zip(names, uris, strict=False):
        host = registered.get(name)
        if host is not None and host.uri != uri:
            registry.hosts.update(name, uri=uri, uri_policy=policy, actor="cli")
            moved += 1
    return moved


def split_hosts_by_health(api: Client, names: Sequence[str]) -> tuple[list[Json], list[Json]]:
    """Split hosts into those that are up and the others."""
    wanted = set(names)
    hosts = [host for host in api.items("hosts") if host["name"] in wanted]
    well = [host for host in hosts if host["health"] == "up"]
    return well, [host for host in hosts if host["health"] != "up"]


def _is_not_found(api: Client, path: str) -> bool:
    """Return whether the API has nothing at a path."""
    try:
        api.get(path)
    except ApiProblemError as problem:
        if problem.http_status == 404:
            return True
        raise
    return False
