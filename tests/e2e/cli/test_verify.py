"""`fuga verify` against a real API, and then without it."""

from __future__ import annotations

import json
from pathlib import Path

from controller.rounds.policy_process import PolicyProcess
from registry import Registry
from registry.rounds import HeadSigner
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

    output = fuga(*verify, "--save", str(file))
    found = json.loads(fuga(*verify, "-o", "json"))

    assert output.splitlines() == [
        "2 rounds, 1 to 2, are one chain",
        "2 of them have a row of a, each as it was committed",
        "2 shares follow from what a held and from the pool",
        "not signed: nothing here shows who wrote them",
        "anchor  the first link of all",
        f"head    {found['head']}  (note it, and give it to --known next time)",
        "not proven: that all requests and hosts were counted when rounds were decided, what others"
        " hold, the fair share, and that others are shown the same chain",
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


def test_an_operator_makes_a_key_and_a_tenant_learns_who_signed_its_rounds(
    register: Registry, decider: PolicyProcess, fuga: Fuga, tmp_path: Path
) -> None:
    a_cluster(register)
    file, seen = tmp_path / "a.json", tmp_path / "seen"
    assert "rounds are not signed" in fuga("db", "key")

    said = fuga("db", "key", "create")
    register.rounds.signer = HeadSigner(tmp_path / "site-key.pem")
    add_request(register, name="r1")
    run_slot(register, decider, 1)

    public = json.loads(fuga("db", "key", "-o", "json"))["keys"][0]["public_key"]
    assert public in said
    assert "has key" in fuga("db", "key", "create", status=1)
    verify = ("verify", "--tenant", "a")
    assert f"by key {public}, which the site itself names" in fuga(*verify, "--save", str(file))
    signed = f"signed up to round 1 by key {public}, which --key names or leads to"
    assert signed in fuga(*verify, "--key", public, "--witness", str(seen))
    assert "1 heads seen before are on this chain" in fuga(*verify, "--witness", str(seen))
    assert "no Ed25519 public key" in fuga(*verify, "--key", str(file), status=2)
    assert "to which no endorsement leads" in fuga(*verify, "--key", "0" * 64, status=1)

    fuga("db", "key", "rotate")
    add_request(register, name="r2")
    run_slot(register, decider, 2)
    following = json.loads(fuga(*verify, "--key", public, "-o", "json"))

    assert (following["signed_to"], following["signed_by"] != public) == (2, True)
    assert signed in fuga(*verify, "--key", public, "--from", str(file))
    (tmp_path / "site-key.pem").unlink()
    add_request(register, name="r3")
    run_slot(register, decider, 3)
    assert "the rounds after 2, up to 3, are not signed" in fuga(*verify, "--key", public, status=1)
    assert "is lost or stolen" in fuga("db", "key", "rotate", status=1)
    fuga("db", "key", "rotate", "--lost")
    add_request(register, name="r4")
    run_slot(register, decider, 4)
    assert "to which no endorsement leads" in fuga(*verify, "--key", public, status=1)


def test_an_interrupted_rotation_is_finished(
    register: Registry, fuga: Fuga, tmp_path: Path
) -> None:
    """The database knows the new key, and the process died before it put the file in place."""
    fuga("db", "key", "create")
    file, following = tmp_path / "site-key.pem", tmp_path / "site-key.pem.new"
    old = file.read_bytes()
    fuga("db", "key", "rotate")
    file.rename(following)
    file.write_bytes(old)
    file.chmod(0o600)
    assert "does not sign" in fuga("db", "key")

    assert "is finished" in fuga("db", "key", "rotate")

    assert "does not sign" not in fuga("db", "key")
    assert len(register.site_keys.list()) == 2


def test_public_keys_need_no_token(api: Api) -> None:
    assert api.stranger.get("/v1/site-keys").json() == {"keys": []}
    api.registry.site_keys.add("a" * 64, instead_of=None, actor="cli")

    [key] = api.stranger.get("/v1/site-keys").json()["keys"]

    assert (key["first_round"], key["last_round"], key["endorsement"]) == (1, None, None)
    the_problem(api.stranger.post("/v1/site-keys"), 405, "method_not_allowed")
