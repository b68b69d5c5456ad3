"""What a control centre keeps from one round to the next, beside the same made again."""

import hashlib
import json
import zlib
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from controller.rounds.inputs import RoundCache, RoundInputs, decode_inputs
from controller.rounds.round import run_round
from controller.rounds.snapshots import HostArrays, to_snapshot
from placement.model.host_classes import host_classes
from registry.rounds import KeptRoom, PreemptibleVm, SpotView, TenantView
from tests.unit.controller.rounds.test_rounds import (
    CHOICE,
    LEASE,
    SLOT,
    Deciding,
    FakeStore,
    a_host,
    a_request,
    a_view,
    an_id,
)

LABELS = ((), ("ssd",), ("ssd", "zone=a"))


@st.composite
def hosts_after_writes(draw):
    """Return hosts, and the same after some were written, retired or registered."""
    before = {number: a_host(number, labels=draw(st.sampled_from(LABELS))) for number in range(6)}
    after = dict(before)
    for number in draw(st.lists(st.integers(0, 8), max_size=8)):
        after[number] = a_host(
            number,
            version=8,
            accepts=draw(st.booleans()),
            labels=draw(st.sampled_from(LABELS)),
            committed=(draw(st.integers(0, 4)), 1024, 15),
        )
    for number in draw(st.lists(st.integers(0, 8), max_size=2)):
        after.pop(number, None)
    return tuple(tuple(each[key] for key in sorted(each)) for each in (before, after))


@given(case=hosts_after_writes())
def test_arrays_that_were_kept_are_those_made_anew(case):
    before, after = case
    again = HostArrays.of(after, 3)

    kept = HostArrays.of(before, 3).for_hosts(after, 3)

    assert kept.capacity.tolist() == again.capacity.tolist()
    assert kept.committed.tolist() == again.committed.tolist()
    assert kept.names == again.names
    plain = host_classes(after, [])
    for classes in (kept.classes(), again.classes()):
        assert classes.of_host.tolist() == plain.of_host.tolist()
        assert classes.example == plain.example


def plain_text(document):
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


@given(case=hosts_after_writes(), age=st.integers(0, 3), seed=st.integers(0, 9))
def test_inputs_are_stored_and_digested_as_if_nothing_were_kept(case, age, seed):
    kept = RoundCache()
    for hosts in (*case, case[0]):
        view = a_view(hosts, [a_request(1, age=age), a_request(2, count=5)])
        snapshot, names = to_snapshot(view, known=kept.arrays)
        inputs = RoundInputs(
            snapshot=snapshot, names=names, policy="fuga", parameters={}, seed=seed,
            budget_units=None,
        )  # fmt: skip
        document = inputs.document()

        stored = inputs.encode(kept.pieces)

        assert zlib.decompress(stored) == plain_text(document)
        assert stored == decode_inputs(stored).encode()
        document["snapshot"]["age"] = [[0, 0]]
        del document["seed"]
        assert inputs.digest(kept.pieces) == hashlib.sha256(plain_text(document)).hexdigest()


@st.composite
def clusters_in_turn(draw):
    """Yield what rounds read one after another, written to at random in between."""
    hosts = {number: a_host(number, labels=draw(st.sampled_from(LABELS))) for number in range(5)}
    views = []
    for _ in range(draw(st.integers(2, 5))):
        for number in draw(st.lists(st.integers(0, 6), max_size=4)):
            if draw(st.integers(0, 5)) == 0:
                hosts.pop(number, None)
                continue
            hosts[number] = a_host(
                number,
                version=draw(st.integers(7, 9)),
                accepts=draw(st.booleans()),
                labels=draw(st.sampled_from(LABELS)),
                capacity=draw(st.sampled_from(((4, 8192, 500), (8, 4096, 900)))),
                committed=(draw(st.integers(0, 4)), 1024 * draw(st.integers(0, 3)), 15),
            )
        seen = tuple(hosts[key] for key in sorted(hosts))
        requests = [
            a_request(
                number,
                tenant_id=an_id(draw(st.sampled_from((50, 51)))),
                demand=draw(st.sampled_from(((1, 1024, 15), (2, 3072, 15)))),
                count=draw(st.integers(1, 4)),
                age=draw(st.integers(0, 2)),
                hosts=draw(st.sampled_from((None, None, ("host-1", "host-2")))),
                requires=draw(st.sampled_from(((), ("ssd",)))),
                spot=draw(st.booleans()),
            )
            for number in range(draw(st.integers(1, 4)))
        ]
        tenants = tuple(
            TenantView(
                id=an_id(number),
                name=draw(st.sampled_from(("a", "b"))) + str(number),
                weight=draw(st.sampled_from((1.0, 2.0))),
                held=(draw(st.integers(0, 9)), 1024, 15),
            )
            for number in (50, 51)
        )
        spot = SpotView(
            vms=tuple(
                PreemptibleVm(
                    id=an_id(200 + host.id.int),
                    name=f"spot-{host.name}",
                    request_id=an_id(400),
                    tenant_id=an_id(51),
                    host_id=host.id,
                    amounts=(1, 1024, 15),
                    may_end=draw(st.booleans()),
                )
                for host in seen
                if host.committed[0] and draw(st.booleans())
            ),
            kept=tuple(
                KeptRoom(request_id=request.id, host_id=host.id, count=1)
                for request, host in zip(requests, seen, strict=False)
                if not request.spot and draw(st.booleans())
            ),
        )
        if not any(request.spot for request in requests) and draw(st.booleans()):
            spot = None
        views.append(replace(a_view(seen, requests), tenants=tenants, spot=spot))
    return views


@given(views=clusters_in_turn())
def test_rounds_commit_the_same_bytes_whatever_was_kept_of_those_before(views):
    kept = RoundCache()
    for view in views:
        commits = []
        for known in (kept, None):
            store = FakeStore(view)
            run_round(SLOT, LEASE, CHOICE, store=store, decider=Deciding(), kept=known)
            [commit] = store.commits
            commits.append(replace(commit, timings={}))

        assert commits[0] == commits[1]
        used = {part.host_id for part in commits[0].placements}
        used |= {each.host_id for each in (*commits[0].spot.ends, *commits[0].spot.lets_in)}  # type: ignore[attr-defined]
        assert commits[0].host_versions == {
            host.id: host.version for host in view.hosts if host.id in used
        }
