"""A fault meets a move of a real guest: it runs once afterwards, in the same boot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import cluster, move_faults
from lab.move_faults import DEADLINE_S, FAULTS, MOMENTS, Experiment, MoveFault
from tests.servers.lab_hosts import guest_dir

pytestmark = [pytest.mark.qemu, pytest.mark.slow]

HARMLESS = {"source", "source, resumed", "destination", "destination, resumed"}
BY_NAME = {fault.name: fault for fault in FAULTS}


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Experiment]:
    """Two hosts of their own: faults of theirs meet nobody else."""
    if reason := cluster.real_hosts_obstacle():
        pytest.skip(f"no real hosts here: {reason}")
    directory = tmp_path_factory.mktemp("faults")
    guest_dir().mkdir(parents=True, exist_ok=True)
    made = Experiment(move_faults.start_two_hosts(directory, guest_dir()), directory)
    try:
        made.measure_usual_duration()
        yield made
    finally:
        made.close()
        cluster.stop_hosts(directory, purge=True)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("moment", MOMENTS[1::3])
@pytest.mark.parametrize(
    "name", ["mover killed", "destination's libvirtd killed", "source's libvirtd killed"]
)
def test_what_dies_leaves_the_guest_running_once(
    experiment: Experiment, name: str, moment: float
) -> None:
    trial = experiment.run_trial(BY_NAME[name], moment)

    assert trial.settled in HARMLESS, trial
    assert trial.same_boot, trial
    assert not trial.ran_on_both, trial


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "name",
    [
        "destination's libvirtd hangs",
        "source's libvirtd hangs",
        "destination's network cut",
        "destination off",
    ],
)
def test_what_does_not_answer_any_more_costs_a_bounded_time(
    experiment: Experiment, name: str
) -> None:
    fault: MoveFault = BY_NAME[name]

    trial = experiment.run_trial(fault, 0.6)

    assert trial.settled in HARMLESS, trial
    assert trial.same_boot, trial
    assert not trial.ran_on_both, trial
    # Mostly by keepalive, at the latest when the move was called off and its process killed.
    assert trial.took_s < DEADLINE_S + 20, trial


def test_a_host_that_lost_its_power_has_the_guest_off_and_the_destination_nothing(
    experiment: Experiment,
) -> None:
    trial = experiment.run_trial(BY_NAME["source off"], 0.6)

    assert trial.left == ("stopped", "absent"), trial
    assert trial.settled == "source, off", trial
