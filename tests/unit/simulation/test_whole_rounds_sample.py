"""How many VMs the benchmark of whole rounds places one at a time."""

from __future__ import annotations

import pytest

from benchmarks.whole_rounds import SAMPLE, sample_of


@pytest.mark.parametrize(("hosts", "sample"), [(1, 1), (125, 20), (1250, SAMPLE), (12500, SAMPLE)])
def test_few_hosts_get_a_sample_that_they_have_room_for(hosts: int, sample: int) -> None:
    assert sample_of(hosts) == sample
