"""`fuga verify` against a real API, and then without it."""

from __future__ import annotations

import json
from pathlib import Path

from controller.rounds.policy_process import PolicyProcess
from registry import Registry
from tests.e2e.conftest import Api, Fuga
from tests.e2e.slots import run_slot
from tests.problems import the_problem
from tests.raw_sql import RawSql
from tests.register import a_cluster, add_request


def test_a_tenant_checks_its_rows_with_and_without_the_api(
    register: Registry, decider: PolicyProcess, fuga: Fuga, raw: RawSql, tmp_path: Path
) -> None:
    a_cluster(register)
    for number in (1, 2):
        add_request(register, name=f"r{number}", count=number)
        run_slot(register, decider, number)
    file = tmp_path / "a.json"
    verify = ("verify", "--tenant", "a")

    told = fuga(*verify, "--save", str(file))
    found = json.loads(fuga(*verify, "-o", "json"))

    assert told.splitlines() == [
        "2 rounds, 1 to 2, are one chain",
        "2 of them have a row of a, each as it was committed",
        "anchor  the first link of all",
        f"head    {found['head']}  (note it, and give it to --known next time)",
    ]
    [newest, first] = json.loads(file.read_text())["rounds"]
    assert (newest["row"]["asked"], newest["row"]["given"]) == (2, 2)
    assert newest["row"]["before"] == first["row"]["after"] > 0
    assert "exists; name a new file" in fuga(*verify, "--save", str(file), status=2)

    raw.run("UPDATE rounds SET shares = '[]' WHERE number = 1")

    assert "NOT VERIFIED: round 1: its disclosed content is not what was committed" in fuga(
        *verify, status=1
    )
    offline = ("--url", "http://127.0.0.1:1", *verify, "--from", str(file))
    assert "the known link is the link of round 2" in fuga(*offline, "--known", found["head"])
    wrong = fuga("verify", "--tenant", "b", "--from", str(file), status=1)
    assert "NOT VERIFIED: the rows are those of tenant 'a', not of b" in wrong
    file.write_text(file.read_text()[:-9])
    assert "no JSON, or not whole" in fuga(*offline, status=1)
    assert "cannot read" in fuga(*verify, "--from", str(tmp_path / "none"), status=2)


def test_proofs_are_told_to_their_tenant_and_operators(api: Api) -> None:
    path = "/v1/rounds/proofs"

    assert api.tenant_a.get(path, params={"tenant": "a"}).json() == {"items": [], "next": None}
    assert api.operator.get(path, params={"tenant": "a"}).status_code == 200
    the_problem(api.tenant_a.get(path, params={"tenant": "b"}), 403, "forbidden")
    the_problem(api.operator.get(path, params={"tenant": "nobody"}), 422, "invalid")
    the_problem(api.tenant_a.get(path), 422, "invalid")
