"""Runs: their files, their summary, stopping and going on; comparisons over seeds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from simulation import InputError, MoveOptions, RunSpec, TraceSpec, plan_study, simulate
from simulation.experiments.variant_comparison import compare_variants, sign_flip_p


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    rows = "".join(
        f"{7 * n},{60 * (1 + n % 9)},t{n % 5},{1 + n % 3},{1024 * (1 + n % 4)},{1 + n % 2}\n"
        for n in range(300)
    )
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,lifetime_s,tenant,vcpus,memory_mib,count\n" + rows)
    return RunSpec(
        name="fuga-seed0",
        trace=TraceSpec(path=str(path)),
        hosts="6:16c:32g",
        slot_length_s=30,
        ideal_every=2,
    )


def timeless(summary: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in summary.items() if key != "timing"}


def test_a_run_writes_what_its_summary_says(spec: RunSpec, tmp_path: Path) -> None:
    summary = simulate(spec, tmp_path / "out")

    placements = pq.read_table(tmp_path / "out/placements.parquet")
    slots = pq.read_table(tmp_path / "out/slots.parquet")
    assert json.loads((tmp_path / "out/summary.json").read_text()) == summary
    assert summary["finished"]
    assert summary["vms"]["asked"] == 450
    assert summary["vms"]["placed"] == sum(placements["count"].to_pylist())
    waits = np.repeat(
        placements["start_s"].to_numpy() - placements["arrival_s"].to_numpy(),
        placements["count"].to_numpy(),
    )
    assert summary["wait_s"]["mean"] == pytest.approx(waits.mean())
    assert summary["wait_s"]["max"] == waits.max()
    used = slots["used:vcpus"].to_numpy()
    assert summary["used"]["vcpus"]["mean"] == pytest.approx(used.mean())
    assert summary["slots"] == slots.num_rows


def test_measures_by_size_weigh_vms_by_share_and_count_the_waits_of_all(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        "arrival_s,lifetime_s,wait_at_most_s,tenant,vcpus,memory_mib\n"
        "0,100,,a,1,4096\n"  # half of the host; starts at once
        "0,,,b,3,1024\n"  # three quarters; starts at once
        "10,100,,c,1,2048\n"  # a quarter; waits 110 s for the first one to end
        "10,,30,c,4,1024\n"  # all of it; given up after 50 s, at the next slot
        "110,,,d,4,1024\n"  # all of it; waits 10 s, up to the last slot
    )
    spec = RunSpec(
        name="one",
        trace=TraceSpec(path=str(path)),
        hosts="1:4c:8g",
        policy="best_fit_drfh",
        slot_length_s=60,
    )

    summary = simulate(spec, tmp_path / "out")

    assert (summary["vms"]["placed"], summary["vms"]["given_up"]) == (3, 1)
    assert summary["placed_by_size"] == pytest.approx(1.5 / 3.5)
    assert summary["waiting_by_size_s"] == pytest.approx((110 / 4 + 50 + 10) / 3.5)
    assert summary["whole_host_vms"] == {"requested": 2, "placed": 0}


def test_a_run_that_was_stopped_goes_on_to_the_same_end(spec: RunSpec, tmp_path: Path) -> None:
    whole = simulate(spec, tmp_path / "whole")
    slots = 0

    def after_twenty() -> bool:
        nonlocal slots
        slots += 1
        return slots == 20

    stopped = simulate(spec, tmp_path / "parts", stop=after_twenty)
    ended = simulate(spec, tmp_path / "parts", resume=True)

    assert not stopped["finished"]
    assert stopped["slots"] == 20
    assert timeless(ended) == timeless(whole)
    assert not (tmp_path / "parts/checkpoint.bin").exists()


def test_a_resume_takes_nothing_from_another_simulation(spec: RunSpec, tmp_path: Path) -> None:
    simulate(spec, tmp_path / "out", stop=lambda: True)

    other = simulate(replace(spec, policy="first_fit"), tmp_path / "out", resume=True)

    assert other["policy"] == "first_fit"
    assert other["slots"] > 1


def test_a_drained_run_ends_when_everything_has_ended(spec: RunSpec, tmp_path: Path) -> None:
    summary = simulate(replace(spec, drain=True), tmp_path / "out", as_csv=True)

    assert summary["vms"]["completed"] == 450
    assert summary["completed_part"] == 1
    assert (tmp_path / "out/slots.csv").read_text().startswith('"slot","start_s"')


def test_a_run_with_moves_is_the_same_each_time_and_says_what_they_took(
    spec: RunSpec, tmp_path: Path
) -> None:
    moving = MoveOptions.from_options(
        balance="every_s=120", spare="host", room="patience=2", roll="takes_s=60"
    )
    requested = replace(
        spec, policy="best_fit_drfh", slot_length_s=60, until_s=900, ideal_every=4, moving=moving
    )

    first = simulate(requested, tmp_path / "first")
    again = simulate(RunSpec.of(requested.document()), tmp_path / "again")

    assert timeless(again) == timeless(first)
    for name in ("moves", "slots", "placements"):
        tables = [(tmp_path / each / f"{name}.parquet").read_bytes() for each in ("first", "again")]
        assert tables[0] == tables[1]
    moves = pq.read_table(tmp_path / "first/moves.parquet").to_pylist()
    moved = [row for row in moves if row["outcome"] == "moved"]
    shown = first["moves"]
    assert shown["moved"] == len(moved) > 0
    assert shown["moved_gib"] == sum(row["transfer_mib"] for row in moved) / 1024
    assert shown["by_reason"] == {
        reason: sum(row["reason"] == reason for row in moved) for reason in shown["by_reason"]
    }
    assert shown["roll"]["rolled"] == 6
    assert shown["spare"]["asked"] > 0
    assert first["fallbacks"] == 0


def test_moves_stand_beside_a_run_without_them() -> None:
    base = RunSpec(
        name="",
        trace=TraceSpec(path="x"),
        hosts="2:1c",
        moving=MoveOptions.from_options(spare="zone"),
    )

    asis, changed = plan_study(base, policies=["first_fit"], seeds=1, compare_unchanged=True)

    assert not asis.moving.is_enabled
    assert (asis.moving.measured, asis.moving.measured_spare) == (True, "zone")
    assert changed.moving == base.moving


def test_a_plan_has_every_combination_that_a_policy_reads() -> None:
    base = RunSpec(name="", trace=TraceSpec(path="x"), hosts="1:1c")

    specs = plan_study(
        base, policies=["fuga", "first_fit"], seeds=2, sweep=["eta=3,5", "slot=10,60"]
    )

    assert [each.name for each in specs if each.seed == 0] == [
        "fuga-eta3-slot10-seed0",
        "fuga-eta3-slot60-seed0",
        "fuga-eta5-slot10-seed0",
        "fuga-eta5-slot60-seed0",
        "first_fit-slot10-seed0",
        "first_fit-slot60-seed0",
    ]
    assert specs[0].parameters == {"eta": 3}
    assert specs[0].slot_length_s == 10


def test_what_if_stands_beside_what_is() -> None:
    base = RunSpec(
        name="",
        trace=TraceSpec(path="x"),
        hosts="2:1c",
        add_hosts=("1:2c",),
        without_hosts=("a-1",),
    )

    specs = plan_study(base, policies=["first_fit"], seeds=1, compare_unchanged=True)

    assert [(each.name, each.add_hosts, each.without_hosts) for each in specs] == [
        ("first_fit-unchanged-seed0", (), ()),
        ("first_fit-changed-seed0", ("1:2c",), ("a-1",)),
    ]
    with pytest.raises(InputError, match="neither --add-hosts nor --without-hosts"):
        plan_study(specs[0], policies=["first_fit"], seeds=1, compare_unchanged=True)


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"policies": ["fugu"]}, "fugu"),
        ({"policies": ["drfh"]}, "drfh"),
        ({"policies": ["fuga"], "sweep": ["eta=0"]}, "eta"),
        ({"policies": ["first_fit"], "sweep": ["eta=3"]}, "no policy that runs reads this"),
        ({"policies": ["fuga"], "sweep": ["slot=x"]}, "expected seconds"),
        ({"policies": ["fuga"], "parameters": ["eta"]}, "expected NAME=VALUE"),
        ({"policies": ["slots", "slots"]}, "slots-seed0: the name of two runs"),
        ({"policies": ["fuga"], "sweep": ["eta=3,3"]}, "fuga-eta3-seed0: the name of two runs"),
    ],
)
def test_a_plan_that_cannot_run_is_refused(told: dict[str, Any], says: str) -> None:
    base = RunSpec(name="", trace=TraceSpec(path="x"), hosts="1:1c")

    with pytest.raises(InputError, match=says):
        plan_study(base, seeds=1, **told)


def test_differences_are_paired_by_seed() -> None:
    def summary(policy: str, seed: int, placed: float) -> dict[str, Any]:
        return {
            "name": f"{policy}-seed{seed}",
            "policy": policy,
            "seed": seed,
            "placed_part": placed,
        }

    found = compare_variants(
        [summary("a", seed, seed / 10) for seed in range(6)]
        + [summary("b", seed, seed / 10 + 0.1) for seed in range(6)]
    )

    shown = found["variants"][1]["measures"]["placed_part"]["difference"]
    assert shown["mean"] == pytest.approx(0.1)
    assert shown["half_width"] == pytest.approx(0, abs=1e-9)
    assert shown["p"] == 2 / 64
    assert shown["significant"]


def test_one_seed_says_nothing_about_chance() -> None:
    assert sign_flip_p(np.array([1.0, -1.0])) == 1.0
    found = compare_variants(
        [
            {"name": "a-seed0", "policy": "a", "seed": 0, "placed_part": 0.5},
            {"name": "b-seed0", "policy": "b", "seed": 0, "placed_part": 0.6},
        ]
    )
    assert found["variants"][1]["measures"]["placed_part"]["difference"]["p"] is None
