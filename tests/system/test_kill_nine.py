"""The short form of ``python -m tests.kill_nine``: a few seeds of different kinds."""

from __future__ import annotations

import pytest

from tests.kill_nine import run_seed

pytestmark = [pytest.mark.qemu, pytest.mark.sqlite, pytest.mark.slow]


@pytest.mark.long
@pytest.mark.parametrize(
    ("seed", "point"),
    [
        (101, "round.after_commit"),
        (102, "create.before_resume"),
        (103, "random"),
        (104, "upload.piece"),
    ],
)
def test_nothing_is_lost_or_runs_twice_when_everything_is_killed(
    seed, point, lab_cluster, tmp_path
):
    run_seed(seed, point, tmp_path / "state", list(lab_cluster(3).hosts))
