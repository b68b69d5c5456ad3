"""The killable process in which policies run."""

from __future__ import annotations

import os
import signal

import pytest

from controller.control_center.policy_child import answer_request
from controller.errors import PolicyFailedError
from controller.rounds.inputs import parse_allocation
from controller.rounds.policy_process import PolicyFailure, PolicyProcess
from placement import check_allocation
from tests.round_inputs import some_inputs


@pytest.fixture
def process():
    process = PolicyProcess()
    yield process
    process.close()


def test_a_policy_decides_in_the_child_as_it_would_here(process):
    inputs = some_inputs(policy="fuga")

    decision = process.decide(inputs.encode(), policy="fuga", deadline_s=60)

    assert decision.document == answer_request("decide", inputs.encode()).document
    check_allocation(inputs.snapshot, parse_allocation(decision.document))


def test_a_policy_that_overruns_its_time_is_killed_and_the_next_call_works(process):
    inputs = some_inputs(policy="fuga")
    process.warm_up()
    child = process._child.pid
    os.kill(child, signal.SIGSTOP)  # as a policy that never returns

    with pytest.raises(PolicyFailedError, match=r"exceeded its time of 0\.2 s and was killed"):
        process.decide(inputs.encode(), policy="fuga", deadline_s=0.2)

    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert process.decide(inputs.encode(), policy="fuga", deadline_s=60).document["placed"]


def test_a_child_that_dies_is_an_error_that_names_the_policy(process):
    process.warm_up()
    os.kill(process._child.pid, signal.SIGSTOP)
    os.kill(process._child.pid, signal.SIGKILL)

    with pytest.raises(PolicyFailedError, match="policy process ended without an answer"):
        process._call_child("ready", None, 60, policy="process")


def test_a_policy_that_raises_is_told_with_its_error(process):
    inputs = some_inputs(policy="fuga", parameters={"eta": 0})

    with pytest.raises(PolicyFailedError, match="policy fuga failed: ParameterError"):
        process.decide(inputs.encode(), policy="fuga", deadline_s=60)


@pytest.mark.parametrize(("wanted", "traced"), [("1", True), ("0", False)])
def test_the_traceback_of_a_policy_that_raises_can_be_had(monkeypatch, capsys, wanted, traced):
    monkeypatch.setenv("FUGA_DEBUG", wanted)

    answer_request("decide", some_inputs(policy="fuga", parameters={"eta": 0}).encode())

    assert ("Traceback" in capsys.readouterr().err) == traced


def test_an_unknown_operation_is_refused():
    assert answer_request("dance", None) == PolicyFailure("unknown operation 'dance'")


def test_the_bound_is_at_least_what_was_placed(process):
    inputs = some_inputs(policy="best_fit_drfh")
    placed = parse_allocation(answer_request("decide", inputs.encode()).document).placed
    vcpus = sum(count * inputs.snapshot.demand[request, 0] for request, _, count in placed.tolist())

    bound = process.ideal(inputs.encode(), resource=0, deadline_s=60).bound

    assert bound >= vcpus - 1e-6
