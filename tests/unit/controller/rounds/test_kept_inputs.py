"""What a control centre keeps from one round to the next, beside the same made anew."""

import hashlib
import json
import zlib

from hypothesis import given
from hypothesis import strategies as st

from controller.rounds.inputs import RoundInputs, decode_inputs
from controller.rounds.snapshots import HostArrays, to_snapshot
from placement.round.host_classes import host_classes
from tests.unit.controller.rounds.test_rounds import a_host, a_request, a_view

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
    anew = HostArrays.of(after, 3)

    kept = HostArrays.of(before, 3).now(after, 3)

    assert kept.capacity.tolist() == anew.capacity.tolist()
    assert kept.committed.tolist() == anew.committed.tolist()
    assert kept.names == anew.names
    plain = host_classes(after, [])
    for classes in (kept.classes(), anew.classes()):
        assert classes.of_host.tolist() == plain.of_host.tolist()
        assert classes.example == plain.example


def plain_text(document):
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


@given(case=hosts_after_writes(), age=st.integers(0, 3), seed=st.integers(0, 9))
def test_inputs_are_stored_and_digested_as_if_nothing_were_kept(case, age, seed):
    for hosts in (*case, case[0]):
        view = a_view(hosts, [a_request(1, age=age), a_request(2, count=5)])
        snapshot, names = to_snapshot(view)
        inputs = RoundInputs(
            snapshot=snapshot, names=names, policy="fuga", parameters={}, seed=seed,
            budget_units=None,
        )  # fmt: skip
        document = inputs.document()

        stored = inputs.encode()

        assert zlib.decompress(stored) == plain_text(document)
        assert stored == decode_inputs(stored).encode()
        document["snapshot"]["age"] = [[0, 0]]
        del document["seed"]
        assert inputs.digest() == hashlib.sha256(plain_text(document)).hexdigest()
