"""`fuga simulate` as it is typed: several runs in processes of their own, stopped and resumed."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from registry import Registry
from simulation import RunFailedError, RunProgress, RunSpec, Study, TraceSpec, plan_study, simulate
from tests.raw_sql import raw_sql
from tests.register import a_cluster, add_request, place

#: Only against a hang: processes start slowly on a busy machine.
PATIENCE_S = 600


def a_trace(folder: Path, requests: int = 120) -> Path:
    path = folder / "trace.csv"
    rows = "".join(f"{5 * n},{60 * (1 + n % 5)},t{n % 3},{1 + n % 3}\n" for n in range(requests))
    path.write_text(f"arrival_s,lifetime_s,tenant,vcpus\n{rows}")
    return path


def fuga(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "controller.cli.main", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, **env},
    )


def test_policies_run_side_by_side_and_end_in_a_report(tmp_path: Path) -> None:
    trace, out = str(a_trace(tmp_path)), tmp_path / "out"
    words = ("simulate", trace, "--hosts", "3:8c", "--policy", "first_fit,slots", "--out", str(out))

    done = fuga(*words)
    again = fuga(*words)
    resumed = fuga(*words, "--resume", "-o", "json")

    assert done.returncode == 0, done.stderr
    assert "first_fit-seed0" in done.stdout
    assert (out / "report.html").exists()
    document = json.loads((out / "summary.json").read_text())
    assert [run["name"] for run in document["runs"]] == ["first_fit-seed0", "slots-seed0"]
    assert document["finished"]
    assert again.returncode == 2
    assert "give another --out, or --resume" in again.stderr
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["runs"] == document["runs"]  # nothing ran again


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "give a trace"),
        (["nowhere.csv"], "give the hosts"),
        (["nowhere.csv", "--hosts", "1:1c"], "nowhere.csv: No such file"),
        (["google:9", "--hosts", "google:9", "--slot", "0"], "Invalid value for '--slot'"),
        (["google:9", "--hosts", "google:9", "--out", "/dev/null"], "--out /dev/null: File exists"),
        (
            ["nowhere.csv", "--hosts", "1:1c", "--celery", "-j2"],
            "--jobs cannot be used with --celery",
        ),
    ],
)
def test_what_cannot_be_simulated_is_refused(words: list[str], says: str) -> None:
    refused = fuga("simulate", *words)

    assert refused.returncode == 2
    assert says in refused.stderr


@pytest.mark.long
@pytest.mark.sqlite
def test_the_live_system_is_simulated_and_handed_on(
    tmp_path: Path, upgraded_database: Path
) -> None:
    url = f"sqlite:///{shutil.copy(upgraded_database, tmp_path / 'fuga.db')}"
    registry = Registry.connect(url)
    (host,) = a_cluster(registry)
    place(registry, add_request(registry, name="there"), host)
    add_request(registry, count=2, name="waits", tenant="b")
    with raw_sql(url) as raw:
        raw.run("DELETE FROM round_inputs")
        # Whole slots after the requests: a simulation to now decides them.
        raw.run("UPDATE requests SET created_at = datetime(created_at, '-20 minutes')")
    out, saved = tmp_path / "out", tmp_path / "saved"
    words = ("simulate", "--from-registry", "--policy", "first_fit", "--slot", "600")

    def live(*more: str) -> subprocess.CompletedProcess[str]:
        return fuga(*words, *more, FUGA_DATABASE_URL=url)

    done = live("--since", "1h", "--out", str(out))
    add_request(registry, name="later", count=9)
    resumed = live("--since", "1h", "--out", str(out), "--resume", "-o", "json")
    handed = live("--save-trace", str(saved), "--anonymous")
    registry.close()

    assert done.returncode == 0, done.stderr
    assert "0 VMs already running, 0 waiting, 3 requested" in done.stderr
    assert "0 groups of tenants and 0 quotas" in done.stderr
    assert "decided by fuga in slots of 5 s (round 1, zones from the settings" in done.stderr
    assert "because its inputs are purged)" in done.stderr
    document = json.loads((out / "summary.json").read_text())
    assert document["runs"][0]["vms"]["placed"] == 3
    assert json.loads(resumed.stdout)["runs"] == document["runs"]  # of what was recorded
    assert handed.returncode == 0, handed.stderr
    assert f"fuga simulate {saved}/trace.csv --hosts {saved}/hosts.json" in handed.stdout
    again = shlex.split(handed.stdout.splitlines()[-1])
    replayed = fuga(*again[1:], "--out", str(tmp_path / "again"), "-o", "json")
    assert replayed.returncode == 0, replayed.stderr
    (run,) = json.loads(replayed.stdout)["runs"]
    assert (run["policy"], run["slot_length_s"], run["parameters"]) == ("fuga", 5, {"eta": 5})
    assert run["finished"]
    assert "tenant-1" in (saved / "trace.csv").read_text()


@pytest.mark.long
def test_a_study_that_is_stopped_goes_on_to_the_same_end(tmp_path: Path) -> None:
    base = RunSpec(
        name="", trace=TraceSpec(path=str(a_trace(tmp_path))), hosts="3:8c", slot_length_s=10
    )
    specs = plan_study(base, policies=["first_fit", "best_fit_drfh"], seeds=1)
    stopped = Study(specs, tmp_path / "study", jobs=1, resume=False, as_csv=False)

    def stop_at_once(progress: Mapping[str, RunProgress]) -> None:
        stopped.stop()

    before = stopped.run(stop_at_once)
    after = Study(specs, tmp_path / "study", jobs=2, resume=True, as_csv=False).run(lambda _: None)

    assert len(before) <= 1  # the second never began
    assert [each["finished"] for each in after] == [True, True]
    for spec, found in zip(specs, after, strict=True):
        alone = simulate(spec, tmp_path / "alone" / spec.name)
        assert {**found, "timing": None} == {**alone, "timing": None}


def test_a_run_that_fails_is_told_by_its_name(tmp_path: Path) -> None:
    trace = a_trace(tmp_path)
    with trace.open("a") as file:
        file.write("1,1,late,1\n")
    spec = RunSpec(name="run", policy="first_fit", trace=TraceSpec(path=str(trace)), hosts="3:8c")
    study = Study([spec], tmp_path / "study", jobs=1, resume=False, as_csv=False)

    with pytest.raises(RunFailedError, match=r"run: .*trace\.csv:122: arrival_s 1 is before 595"):
        study.run(lambda _: None)
