"""A fleet's jobs as files: their locks, of real processes, and what messages may do to them."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PosixPath
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.simulations.worker import RunMessageOutcome, run_message
from simulation import (
    FleetStudy,
    JobFiles,
    JobQueue,
    JobTakenError,
    RunFailedError,
    RunProgress,
    RunSpec,
    SharedFolderError,
    TraceSpec,
    run_job,
    simulate,
)
from simulation.experiments.jobs import Job, file_lock

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunSpec:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{20 * n},60,t{n % 2},1\n" for n in range(20))
    (tmp_path / "trace.csv").write_text(f"arrival_s,lifetime_s,tenant,vcpus\n{rows}")
    return RunSpec(
        name="run",
        policy="first_fit",
        parameters={"alpha": 2.5},
        zone_policies={},
        trace=TraceSpec(path="trace.csv"),
        hosts="2:2c",
        add_hosts=("1:1c",),
        without_hosts=("a-1",),
    )


@pytest.fixture
def job(spec: RunSpec, tmp_path: Path) -> Job:
    return Job(spec=spec, cwd=str(tmp_path), digest=spec.digest(), as_csv=False)


@pytest.fixture
def files(tmp_path: Path) -> JobFiles:
    return JobFiles(tmp_path / "study")


@contextmanager
def held(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a lock until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


class Queue:
    """Loses some messages, and hands the others to a worker at once, twice."""

    def __init__(self, *, loses: int = 0) -> None:
        self.sent: list[str] = []
        self._loses = loses

    def send(self, folder: Path, name: str) -> bool:
        self.sent.append(name)
        if len(self.sent) > self._loses:
            for _ in range(2):
                run(JobFiles(folder), name)
        return True

    def is_empty(self) -> bool:
        return True


class NoQueue:
    """A broker that does not answer."""

    def send(self, folder: Path, name: str) -> bool:
        return False

    def is_empty(self) -> bool:
        return False


def run(files: JobFiles, name: str = "run") -> dict[str, Any] | None:
    return run_job(files, name, lambda: False, worker="w1")


def a_study(
    spec: RunSpec, files: JobFiles, queue: JobQueue, warn: Callable[[str], None] = print
) -> FleetStudy:
    return FleetStudy(
        [spec], files.folder, queue, as_csv=False, warn=warn, send_again_s=0, silence_s=0
    )


def test_a_job_survives_its_file(job: Job) -> None:
    read = Job.of(job.text())

    assert read == job
    assert read.spec.digest() == job.digest


def test_a_job_is_its_worker_s_until_that_is_gone(job: Job, files: JobFiles) -> None:
    with files.submission_lock():
        files.submit(job)
        assert not files.is_taken("run")
        with held(files.job_file("run")) as worker:
            assert files.is_taken("run")
            assert not files.withdraw("run")
            assert run(files) is None
            files.submit(job)  # the same: whoever is at it goes on
            with pytest.raises(JobTakenError, match="with other options"):
                files.submit(replace(job, as_csv=True))
            worker.kill()
            worker.wait()

        assert not files.is_taken("run")
        assert files.withdraw("run")


def test_a_job_that_was_taken_back_is_not_begun(job: Job, files: JobFiles) -> None:
    with files.submission_lock():
        files.submit(job)
        files.withdraw("run")

    assert run(files) is None
    assert not files.run_folder("run").exists()


def test_the_lock_of_a_file_that_was_removed_meanwhile_says_nothing(tmp_path: Path) -> None:
    class Raced(PosixPath):
        def open(self, *_: Any) -> Any:
            file = super().open("r+")
            self.unlink()
            self.touch()  # another file, whose lock is another one
            return file

    path = Raced(tmp_path / "job.json")
    path.touch()

    with file_lock(path) as file:
        assert file is None


def test_a_study_has_one_that_submits_it(spec: RunSpec, files: JobFiles, tmp_path: Path) -> None:
    with files.submission_lock():
        pass
    study = a_study(spec, files, Queue())

    with held(tmp_path / "study/fleet/study"), pytest.raises(JobTakenError, match="another `fuga"):
        study.run(lambda _: None)


def test_lost_messages_are_sent_again_and_doubled_ones_do_no_harm(
    spec: RunSpec, files: JobFiles, tmp_path: Path
) -> None:
    queue = Queue(loses=2)

    found = a_study(spec, files, queue).run(lambda _: None)

    assert queue.sent == ["run"] * 3
    alone = simulate(spec, tmp_path / "alone")
    assert [{**each, "timing": None} for each in found] == [{**alone, "timing": None}]
    assert not (files.folder / "fleet").exists()


def test_other_inputs_on_a_worker_fail_the_run(spec: RunSpec, files: JobFiles) -> None:
    class LateQueue(Queue):
        def send(self, folder: Path, name: str) -> bool:
            Path(spec.trace.path).write_text("arrival_s,vcpus\n0,1\n")
            return super().send(folder, name)

    study = a_study(spec, files, LateQueue())

    with pytest.raises(RunFailedError, match=r"is not the same on a worker \(on w1\)") as failed:
        study.run(lambda _: None)
    assert failed.value.bad_input
    assert not (files.folder / "fleet").exists()


def test_a_run_that_is_killed_fails_and_its_worker_says_so(
    job: Job, files: JobFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUGA_KILL_AT", "simulation.reported")
    with files.submission_lock():
        files.submit(job)

    assert run(files) is None

    assert not files.is_taken("run")
    failure = files.failure("run")
    assert failure is not None
    assert failure.message.startswith("was killed (signal 9)")
    assert (failure.worker, failure.bad_input) == ("w1", False)


def test_what_an_earlier_study_left_waiting_is_taken_back(
    spec: RunSpec, job: Job, files: JobFiles
) -> None:
    other, third = (replace(job, spec=replace(spec, name=name)) for name in ("other", "third"))
    with files.submission_lock():
        files.submit(other)
        files.submit(third)
    simulate(spec, files.run_folder("run"))

    with held(files.job_file("third")):  # somebody is at it
        found = a_study(spec, files, Queue()).run(lambda _: None)

    assert [each["name"] for each in found] == ["run"]
    assert files.names() == ["third"]


def test_who_waits_learns_what_keeps_the_fleet(spec: RunSpec, files: JobFiles) -> None:
    said: list[str] = []
    study = a_study(spec, files, NoQueue(), said.append)

    def stop_after_both(_: object) -> None:
        if len(said) == 2:
            study.stop()

    assert study.run(stop_after_both) == []

    assert sorted(line.partition(":")[0].partition(";")[0] for line in said) == [
        "no worker has taken a run",
        "the broker does not answer",
    ]


def test_a_second_interrupt_leaves_a_run_to_its_worker(
    spec: RunSpec, job: Job, files: JobFiles
) -> None:
    said: list[str] = []
    with files.submission_lock():
        files.submit(job)
    with held(files.job_file("run")):
        files.write_progress(
            "run", RunProgress(part=0.5, slot=3, running=2, waiting=1, worker="w1")
        )
        study = a_study(spec, files, NoQueue(), said.append)
        seen: list[RunProgress] = []

        def interrupt(progress: Mapping[str, RunProgress]) -> None:
            seen.extend(progress.values())
            study.stop()

        assert study.run(interrupt) == []

        assert {each.worker for each in seen} == {"w1"}
        assert files.is_stop_requested()
        assert files.names() == ["run"]
    assert [line.partition(";")[2] for line in said] == [
        " Ctrl-C again leaves without waiting for them"
    ]
    assert run(files) is None  # nobody begins what is to stop


@pytest.mark.parametrize(
    ("folder", "name"), [("..", "run"), ("study", "../run"), ("study", ".."), ("study", "")]
)
def test_a_message_may_not_lead_out_of_the_folder(tmp_path: Path, folder: str, name: str) -> None:
    root = tmp_path / "root"
    root.mkdir()

    with capture_logs() as logs:
        outcome = run_message(root, str(root / folder), name, threading.Event(), worker="w1")

    assert outcome is RunMessageOutcome.REFUSED
    assert [line["event"] for line in logs] == ["simulation_refused"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"drain"', '"drain_all"', "another version of fuga"),
        ("fuga ", "fuga 0.0.", r"a job: fuga 0\.0\..*, here is fuga"),
    ],
)
def test_a_job_of_another_version_is_told(
    files: JobFiles, job: Job, old: str, new: str, says: str
) -> None:
    with files.submission_lock():
        files.submit(job)
    files.job_file("run").write_text(job.text().replace(old, new))

    assert run(files) is None

    failure = files.failure("run")
    assert failure is not None
    assert re.search(says, failure.message)
    assert failure.worker == "w1"


def test_a_folder_without_locks_is_told(files: JobFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def lockf(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.lockf", lockf)

    with (
        pytest.raises(SharedFolderError, match=r"No locks available; .* POSIX locks"),
        files.submission_lock(),
    ):
        pass
