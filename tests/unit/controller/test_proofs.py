"""What a tenant saved of rounds is checked, and whatever is altered in it is found."""

from __future__ import annotations

import copy
import dataclasses
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from controller.session.json_shapes import ProofError
from controller.session.proofs import build_proof_document, parse_document, verify_chain
from controller.session.signed_heads import verify_heads
from registry import Registry, upgrade
from registry.rounds import RoundHoldings
from tests.register import a_commit, add_tenant, take_lease


@pytest.fixture(scope="module")
def register(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A register center with five rounds of three tenants, of which c came late.

    The first two rounds are of an older kind, without what shares follow from.
    """
    url = f"sqlite:///{tmp_path_factory.mktemp('proofs')}/fuga.db"
    upgrade(url)
    found = Registry.connect(url)
    for tenant in "abc":
        add_tenant(found, tenant)
    lease = take_lease(found)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(5):
        tenants = "abc" if number > 1 else "ab"
        found.rounds.commit_round(
            a_commit(
                lease,
                slot_start_at=start + timedelta(seconds=number),
                bound=1e22 if number else None,
                shares=[a_share(tenant, number) for tenant in tenants],
                holdings=holdings(number, len(tenants)) if number > 1 else None,
            )
        )
    yield found
    found.close()


def holdings(number: int, tenants: int) -> RoundHoldings:
    """Return what the shares of `a_share` follow from; the pool has nothing of one resource."""
    return RoundHoldings(
        resources=("vcpus", "memory_mib", "gpu"),
        pool=(3_000_000, 7, 0),
        before=[[100_000 * number, 0, 0]] * tenants,
        after=[[1, 3, 5]] * tenants,
    )


def a_share(tenant: str, number: int) -> dict[str, Any]:
    return {
        "tenant": tenant,
        "weight": 1e17,
        "before": 100_000 * number / 3_000_000,
        "after": 3 / 7,
        "target": None if number == 3 else 1 / 3,
        "asked": 4,
    }


@pytest.fixture
def saved(register: Registry) -> dict[str, Any]:
    """What `fuga verify --save` writes for tenant a, read again."""
    return parse_document(json.dumps(exported(register, "a")).encode())


def exported(register: Registry, tenant: str) -> dict[str, Any]:
    proofs = register.round_proofs.list(tenant).items
    return build_proof_document(tenant, [dataclasses.asdict(each) for each in proofs], keys=[])


def test_rows_as_they_were_committed_are_verified(register: Registry, saved: dict[str, Any]):
    found = verify_chain(saved, "a")

    assert (found.rounds, found.first, found.last, found.rows) == (5, 1, 5, 5)
    assert found.recomputed == 3
    assert (found.without_row, found.purged, found.known_at) == ((), (), None)
    assert found.anchor == "0" * 64
    late = verify_chain(parse_document(json.dumps(exported(register, "c")).encode()), "c")
    assert (late.rows, late.without_row, late.head) == (3, (2, 1), found.head)


def test_files_and_rounds_from_before_signatures_are_verified_as_they_were():
    """The bytes of these digests are fixed: files that tenants saved stay checkable."""
    saved = (Path(__file__).parent / "proofs_of_format_1.json").read_bytes()

    found = verify_chain(parse_document(saved), "a")

    assert (found.rounds, found.rows, found.recomputed) == (2, 2, 0)


def test_a_share_that_does_not_follow_from_what_was_held_is_found_though_it_was_committed(
    tmp_path: Path,
):
    """A site that wrote a wrong share is shown to have done so by its own proof."""
    url = f"sqlite:///{tmp_path}/wrong.db"
    upgrade(url)
    wrong = Registry.connect(url)
    add_tenant(wrong, "a")
    share = {**a_share("a", 2), "after": 0.4}
    lease = take_lease(wrong)
    wrong.rounds.commit_round(a_commit(lease, shares=[share], holdings=holdings(2, 1)))

    document = parse_document(json.dumps(exported(wrong, "a")).encode())
    wrong.close()

    with pytest.raises(ProofError, match=r"round 1: the share after it is 0\.4, but"):
        verify_chain(document, "a")


def test_a_link_that_was_noted_has_to_be_on_the_chain(saved: dict[str, Any]):
    links = [each["link"] for each in saved["rounds"]]
    part = {**saved, "rounds": saved["rounds"][:3]}

    assert verify_chain(saved, "a", links[3]).known_at == 2
    assert verify_chain(part, "a", links[3]).known_at == 0  # what is left follows it
    with pytest.raises(ProofError, match="begins at round 3"):
        verify_chain(part, "a", links[4])
    with pytest.raises(ProofError, match="64 hexadecimal digits"):
        verify_chain(saved, "a", "head")


def test_a_past_that_was_written_anew_no_longer_has_the_link_that_was_noted(
    register: Registry, saved: dict[str, Any], tmp_path: Path
):
    """Whoever changes a round must change all links after it, though each is right by itself."""
    url = f"sqlite:///{tmp_path}/other.db"
    upgrade(url)
    other = Registry.connect(url)
    add_tenant(other, "a")
    lease = take_lease(other)
    for number in range(5):
        other.rounds.commit_round(a_commit(lease, shares=[a_share("a", number)]))

    again = parse_document(json.dumps(exported(other, "a")).encode())
    other.close()

    assert verify_chain(again, "a").rows == 5
    with pytest.raises(ProofError, match="the past was changed"):
        verify_chain(again, "a", saved["rounds"][0]["link"])


def test_the_rows_of_another_tenant_are_refused(saved: dict[str, Any]):
    with pytest.raises(ProofError, match="those of tenant 'a', not of b"):
        verify_chain(saved, "b")
    with pytest.raises(ProofError, match="the row is that of tenant 'a', not of b"):
        verify_chain({**saved, "tenant": "b"}, "b")


def test_rounds_that_are_missing_or_out_of_order_are_found(saved: dict[str, Any]):
    rounds = saved["rounds"]

    with pytest.raises(ProofError, match="round 4 does not follow round 2"):
        verify_chain({**saved, "rounds": [*rounds[:2], *rounds[3:]]}, "a")
    with pytest.raises(ProofError, match="not in order"):
        verify_chain({**saved, "rounds": rounds[::-1]}, "a")
    with pytest.raises(ProofError, match="not in order"):
        verify_chain({**saved, "rounds": [rounds[0], *rounds]}, "a")
    with pytest.raises(ProofError, match="no rounds"):
        verify_chain({**saved, "rounds": []}, "a")


def values(node: Any, path: tuple = ()) -> list[tuple]:
    """Every place of a document that has no parts."""
    if isinstance(node, dict):
        return [place for key, each in node.items() for place in values(each, (*path, key))]
    if isinstance(node, list) and node:
        return [place for at, each in enumerate(node) for place in values(each, (*path, at))]
    return [path]


def put(document: Any, path: tuple, value: Any) -> Any:
    changed = copy.deepcopy(document)
    node = changed
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    return changed


def at(document: Any, path: tuple) -> Any:
    for step in path:
        document = document[step]
    return document


OTHERS = (
    None,
    True,
    0,
    -1,
    7,
    10**400,
    1.5,
    "",
    "x",
    "left",
    "0" * 64,
    "f" * 64,
    [],
    {},
    [[]],
    "é",
)


def test_whatever_is_altered_is_found(saved: dict[str, Any]):
    rng = random.Random(7)
    for path in values(saved):
        for other in rng.sample(OTHERS, 5):
            its = at(saved, path)
            if isinstance(its, bool) == isinstance(other, bool) and its == other:
                continue  # 0 and 0.0 are one number
            data = json.dumps(put(saved, path, other)).encode()
            with pytest.raises(ProofError):
                verify(data, saved["rounds"][0]["link"])


def verify(data: bytes, known: str) -> dict[str, Any]:
    document = parse_document(data)
    verify_chain(document, "a", known)
    verify_heads(document)
    return document


def test_any_bytes_are_a_proof_or_an_error(saved: dict[str, Any]):
    rng = random.Random(11)
    data = json.dumps(saved).encode()
    head = saved["rounds"][0]["link"]
    found = 0
    for _ in range(400):
        mutant = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(len(mutant))
            if rng.random() < 0.3:
                del mutant[place : place + rng.randint(1, 200)]
            else:
                mutant[place] = rng.randrange(256)
        try:
            document = verify(bytes(mutant), head)
        except ProofError:
            found += 1
        else:
            assert document == saved  # as with a space that became a tab
    assert found > 350
    for odd in (b"", b"\xff", b"[" * 100_000, b"1", b'{"a":1,"a":1}', b'{"a":NaN}', b"9" * 9999):
        with pytest.raises(ProofError):
            parse_document(odd)
    for end in range(0, len(data), len(data) // 50):
        with pytest.raises(ProofError):
            parse_document(data[:end])


def test_a_proof_holds_nothing_of_other_tenants_but_digests(register: Registry):
    [mine, theirs] = [exported(register, tenant)["rounds"][0] for tenant in "ab"]

    assert (mine["content"], mine["root"]) == (theirs["content"], theirs["root"])
    assert mine["salt"] != theirs["salt"]
    assert '"b"' not in json.dumps(mine)
    assert {len(digest) for _, digest in mine["path"]} == {64}
