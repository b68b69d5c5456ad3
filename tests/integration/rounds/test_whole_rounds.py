"""The register center that whole rounds are measured on is one that fuga could have left."""

from __future__ import annotations

import pytest

from benchmarks.placement.one_at_a_time import place_one_by_one
from benchmarks.placement.phases import PHASES, Meter
from benchmarks.registered import ask, load, run_what_was_placed
from benchmarks.whole_rounds import TimedRounds
from controller.rounds.policy_process import PolicyProcess
from registry import Registry
from tests.servers.postgres import TEMPLATE, PostgresServer


@pytest.mark.postgresql
def test_the_benchmarks_register_center_is_sound_before_and_after_its_rounds(
    postgres: PostgresServer, decider: PolicyProcess
) -> None:
    with postgres.database(template=TEMPLATE) as url:
        loaded = load(url, hosts=20, running=100)
        registry = Registry.connect(url)
        try:
            assert registry.check() == []
            ask(loaded, 12)
            rounds = TimedRounds(registry, decider, Meter(postmaster=1), "fuga")
            measured = rounds.run()
            run_what_was_placed(loaded)
            ask(loaded, 4)
            for by_query in (True, False):
                place_one_by_one(url, rounds.lease, 2, rounds.meter, by_query=by_query)
            run_what_was_placed(loaded)
            found = registry.check()
        finally:
            registry.close()

    assert measured.report.placed == 12
    assert list(measured.taken) == [*PHASES, "whole"]
    # One VM at a time leaves requests as they are when some of their VMs are placed.
    assert [each for each in found if "VMs say all_placed" not in each] == []
