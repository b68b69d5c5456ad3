"""How many VMs the benchmarks of registers place one at a time, and which fit at all."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.registered import AMOUNTS, spread_vms
from benchmarks.whole_rounds import SAMPLE, sample_of


@pytest.mark.parametrize(("hosts", "sample"), [(1, 1), (125, 20), (1250, SAMPLE), (12500, SAMPLE)])
def test_few_hosts_get_a_sample_that_they_have_room_for(hosts: int, sample: int) -> None:
    assert sample_of(hosts) == sample


def test_vms_that_do_not_fit_are_refused() -> None:
    capacity = np.array([4 * AMOUNTS.max(axis=0), AMOUNTS.min(axis=0)])

    types, hosts = spread_vms(capacity, 5)
    assert len(types) == len(hosts) == 5
    with pytest.raises(ValueError, match=r"1000 VMs do not fit on 2 hosts: \d+ do"):
        spread_vms(capacity, 1000)
