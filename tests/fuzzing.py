"""Generated calls with ids of things that are there, of the caller's tenant and of another.

    python -m tests.fuzzing --minutes 10 --role tenant      # make fuzz does it for each role

The API is served on a PostgreSQL of its own and called until the time is over, operation by
operation, each time with other calls. Ends with status 1 at what is not as documented: a
5xx above all.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import hypothesis
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case
from schemathesis.config import SchemathesisConfig
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation import GenerationMode

from controller.rest import create_app
from controller.rest.middleware.http_parser import MAX_HEAD_BYTES
from controller.rounds.policy_process import PolicyProcess
from registry import Registry, upgrade
from registry.images import ImageStore
from service.logs import configure_logging
from tests.e2e.slots import run_slot
from tests.register import a_cluster, add_request
from tests.servers.postgres import DURABLE, postgres_server, why_not
from tests.servers.serving import served

CONFIG: Final = SchemathesisConfig.from_dict(
    {
        # The tests send tokens; the check `ignored_auth` leaves them out again.
        "generation": {"with-security-parameters": False},
        "checks": {
            # What is right in form may name a tenant that is not there: 422 as well.
            "positive_data_acceptance": {
                "expected-statuses": ["2xx", "403", "404", "409", "422", "504"]
            },
            # Consoles of VMs that are there: no worker answers here, and the document says so.
            "not_a_server_error": {"expected-statuses": ["2xx", "3xx", "4xx", "504"]},
        },
        "operations": [
            {
                # A code that is none, whatever its form.
                "include-name": "POST /v1/login",
                "checks": {"positive_data_acceptance": {"expected-statuses": ["401", "422"]}},
            }
        ],
    }
)
#: The document is the same whatever the register center holds.
SCHEMA: Final = schemathesis.openapi.from_dict(
    create_app(cast(Registry, None)).openapi(), config=CONFIG
).exclude(path="/v1/events/stream")  # lasts; tests/e2e/calls/test_event_streams.py follows it
ROLES: Final = ("operator", "tenant", "reader")
#: Only against a hang: other tests may keep the machine busy.
PATIENCE_S: Final = 120
#: Which of the generated parameters and fields are names or ids of things, and of which.
_NAMED: Final[Mapping[str, str]] = {
    "vm_id": "vm",
    "request_id": "request",
    "request": "request",
    "number": "round",
    "round": "round",
    "host": "host",
    "tenant": "tenant",
    "vm_type": "vm_type",
    "key_id": "key",
    "token_id": "token",
    "session_id": "session",
    "group": "group",
}
TOO_LARGE: Final = 431
#: What ``name`` is in a path, by what stands before it.
_COLLECTIONS: Final[Mapping[str, str]] = {
    "hosts": "host",
    "tenants": "tenant",
    "vm-types": "vm_type",
    "quotas": "tenant",
}


@dataclass(frozen=True)
class FuzzedApi:
    """An API with something in it, a token for each role, and the ids of what there is."""

    url: str
    headers: Mapping[str, Mapping[str, str]]
    ids: Mapping[str, Sequence[str]]
    session: requests.Session  #: keeps its connection from call to call

    def call(self, case: Case, role: str) -> int:
        """Make a generated call, some of its ids real; fail if it is not as documented."""
        use_real_ids(case, self.ids)
        headers = dict(self.headers[role])
        found = case.call(self.url, headers=headers, session=self.session, timeout=PATIENCE_S)
        if found.status_code == TOO_LARGE:
            # The parser's answer to any call, which no operation names.
            assert len(found.request.url or "") > MAX_HEAD_BYTES // 2, found.text
        else:
            case.validate_response(found)
        return found.status_code


@contextmanager
def served_with_content(registry: Registry, folder: Path) -> Iterator[FuzzedApi]:
    """Serve an API where two tenants have requests, VMs, keys and sessions, and two hosts."""
    a_cluster(registry, hosts=2)
    for tenant in ("a", "b"):
        add_request(registry, tenant=tenant, count=5, name=f"web-{tenant}")
    decider = PolicyProcess()
    run_slot(registry, decider)
    decider.close()
    for tenant in ("a", "b"):
        add_request(registry, tenant=tenant, count=3, name=f"waits-{tenant}")
    tokens = {
        "operator": registry.tokens.create("operator", None, "ops", actor="cli")[1],
        "tenant": registry.tokens.create("tenant", "a", "a", actor="cli")[1],
        "reader": registry.tokens.create("tenant", "a", "reads", actor="cli", read_only=True)[1],
    }
    # Those that an operator's calls may revoke: the callers' own stay.
    spare = [registry.tokens.create("tenant", t, f"spare-{t}", actor="cli")[0] for t in ("a", "b")]
    vms = registry.vms.list(limit=500).items
    sessions = [
        registry.console_sessions.open(vm.id, actor="operator:ops", force=False) for vm in vms[:2]
    ]
    ids: dict[str, list[str]] = {
        "vm": [str(vm.id) for vm in vms],
        "request": [str(each.id) for each in registry.requests.list(limit=500).items],
        "round": ["1"],
        "host": ["h1", "h2"],
        "tenant": ["a", "b"],
        "vm_type": ["small"],
        "token": [str(token.id) for token in spare],
        "session": [str(session.id) for session in sessions],
    }
    store = ImageStore(folder / "images", max_bytes=4096)
    app = create_app(registry, image_store=store, console_wait_s=0.01)
    with served(app) as url, requests.Session() as session:
        session.trust_env = False  # else it looks for proxies and a .netrc at each call
        headers = {role: {"Authorization": f"Bearer {secret}"} for role, secret in tokens.items()}
        yield FuzzedApi(url, headers, ids, session)


def use_real_ids(case: Case, ids: Mapping[str, Sequence[str]]) -> None:
    """Replace two of three generated ids and names by those of things that are there."""
    draw = random.Random(zlib.crc32(repr((case.path, case.path_parameters, case.body)).encode()))
    collection = case.path.removeprefix("/v1/").partition("/")[0]
    places = {
        ParameterLocation.PATH: case.path_parameters,
        ParameterLocation.QUERY: case.query,
        ParameterLocation.BODY: case.body if isinstance(case.body, dict) else None,
    }
    for place in (places[at] for at in places if places[at] and not _is_wrong(case, at)):
        for name in list(place):
            kind = _NAMED.get(name) or (_COLLECTIONS.get(collection) if name == "name" else None)
            known = ids.get(kind or "")
            # What creates a thing stays as it is.
            right = isinstance(place[name], str | int) and draw.random() < 2 / 3
            if known and right and not (name == "name" and place is case.body):
                place[name] = draw.choice(list(known))


def _is_wrong(case: Case, at: ParameterLocation) -> bool:
    """Return whether a part of a call was generated to be wrong, and is to stay so."""
    part = case.meta.components.get(at) if case.meta else None
    return part is not None and part.mode is GenerationMode.NEGATIVE


def main(argv: Sequence[str] | None = None) -> int:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--minutes", type=float, default=10.0)
    arguments.add_argument("--role", choices=ROLES, action="append", help="every role if left out")
    given_ = arguments.parse_args(argv)
    if reason := why_not():
        print(f"not here: {reason}")
        return 2
    configure_logging("critical", form="text")
    failed = 0
    with postgres_server(DURABLE) as server:
        for role in given_.role or ROLES:
            with server.database() as url, tempfile.TemporaryDirectory() as folder:
                upgrade(url)
                registry = Registry.connect(url)
                with served_with_content(registry, Path(folder)) as api:
                    failed += _fuzz(api, role, given_.minutes * 60)
                registry.close()
    return 1 if failed else 0


def _fuzz(api: FuzzedApi, role: str, seconds: float) -> int:
    """Call every operation again and again; return how many failed, each told once."""
    until = time.monotonic() + seconds
    answers: Counter[int] = Counter()
    failures: dict[str, str] = {}
    seed = 0
    while time.monotonic() < until:
        seed += 1
        for found in SCHEMA.get_all_operations():
            operation = found.ok()
            if time.monotonic() > until:
                break
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                try:
                    _some(api, role, operation.as_strategy(mode), answers, seed)
                except hypothesis.errors.Unsatisfiable:
                    pass  # nothing of it can be wrong
                except BaseException as error:
                    if isinstance(error, KeyboardInterrupt):
                        raise
                    shown = f"{operation.label}: {_leaf(error)}"
                    if failures.setdefault(shown[:200], shown) is shown:
                        print(f"{role}: {shown}", flush=True)
    total, server_faults = (
        answers.total(),
        sum(n for s, n in answers.items() if s >= 500 and s != 504),
    )
    print(
        f"{role}: {total:,} calls in {seed} rounds of all operations, {server_faults} answered 5xx"
        f" but 504, {len(failures)} kinds of failures; {json.dumps(dict(sorted(answers.items())))}",
        flush=True,
    )
    return len(failures)


def _some(api: FuzzedApi, role: str, cases: Any, answers: Counter[int], seed: int) -> None:
    @hypothesis.seed(seed)
    @settings(
        max_examples=10,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def call(case: Case) -> None:
        use_real_ids(case, api.ids)
        headers = dict(api.headers[role])
        response = case.call(api.url, headers=headers, session=api.session, timeout=PATIENCE_S)
        answers[response.status_code] += 1
        case.validate_response(response)

    call()


def _leaf(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    sys.exit(main())
