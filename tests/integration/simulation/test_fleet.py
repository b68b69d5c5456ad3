"""`fuga simulate --celery`: a real Redis, and workers of which one dies and one is told to end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from controller.simulations.queue import NoFleetError, SimulationQueue, build_app
from service.settings import SharedSettings
from simulation import FleetStudy, JobFiles, RunSpec, TraceSpec, plan_study, simulate
from tests.integration.workers.site import ServiceProcess
from tests.servers.redis_server import NEEDS_REDIS, PATIENCE_S, redis_server
from tests.servers.running import eventually

pytestmark = NEEDS_REDIS

POLICIES = ("fuga", "slots")


class Fleet:
    """A folder that all share, a broker, and processes that end with the module."""

    def __init__(self, shared: Path, broker: str) -> None:
        self.shared = shared
        self.socket = shared.parent / "worker.sock"
        self._settings = SharedSettings(broker_url=SecretStr(broker))
        self._env = {
            **{name: value for name, value in os.environ.items() if "FUGA_" not in name},
            "FUGA_BROKER_URL": broker,
            "FUGA_STATE_DIR": str(shared.parent / "state"),
            "FUGA_LOG_FORMAT": "json",
        }
        self._processes: list[ServiceProcess] = []
        self._worker: ServiceProcess | None = None
        rows = "".join(f"{5 * n},{60 * (1 + n % 5)},t{n % 3},{1 + n % 3}\n" for n in range(120))
        (shared / "trace.csv").write_text(f"arrival_s,lifetime_s,tenant,vcpus\n{rows}")
        # Whoever does not stop it is at it for hours.
        (shared / "endless.csv").write_text("arrival_s,vcpus\n0,1\n1e12,1\n")

    def start(self, *words: str, **env: str) -> ServiceProcess:
        log = self.shared.parent / f"{len(self._processes)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "controller.cli.main", *words],
                cwd=self.shared,
                env={**self._env, **env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(ServiceProcess(process, log))
        return self._processes[-1]

    def start_worker(self, **env: str) -> ServiceProcess:
        return self.start("simulation-worker", str(self.shared), "--jobs", "1", **env)

    def worker(self) -> ServiceProcess:
        """The one that all tests share."""
        if self._worker is None or self._worker.process.poll() is not None:
            self._worker = self.start_worker(FUGA_METRICS_LISTEN=f"unix:{self.socket}")
        return self._worker

    def ask_worker(self, path: str) -> httpx.Response:
        transport = httpx.HTTPTransport(uds=str(self.socket))
        with httpx.Client(transport=transport, timeout=PATIENCE_S) as client:
            return client.get(f"http://worker{path}")

    def specs(self, trace: str) -> list[RunSpec]:
        shown = TraceSpec(path=str(self.shared / trace))
        return plan_study(RunSpec(name="", trace=shown, hosts="3:8c"), policies=POLICIES, seeds=1)

    def study(self, trace: str, out: Path) -> FleetStudy:
        queue = SimulationQueue(self._settings)
        return FleetStudy(self.specs(trace), out, queue, as_csv=False, warn=lambda _: None)

    def end(self) -> None:
        for each in self._processes:
            if each.process.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
                each.process.wait()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    shared = folder / "shared"
    shared.mkdir()
    with redis_server(folder) as server:
        fleet = Fleet(shared, server.url)
        try:
            yield fleet
        finally:
            fleet.end()


@contextmanager
def going(study: FleetStudy) -> Iterator[Future[list[dict[str, Any]]]]:
    """A study in a thread, told to stop at the end of the block."""
    with ThreadPoolExecutor(1) as threads:
        try:
            yield threads.submit(study.run, lambda _: None)
        finally:
            study.stop()


def files_of(runs: Path) -> dict[str, Any]:
    """Every file of every run; of summaries all but what a clock told."""
    found: dict[str, Any] = {}
    for path in sorted(runs.rglob("*")):
        if path.is_file():
            found[str(path.relative_to(runs))] = (
                {**json.loads(path.read_text()), "timing": None}
                if path.name == "summary.json"
                else path.read_bytes()
            )
    return found


@pytest.mark.long
def test_a_fleet_writes_what_one_machine_writes_though_a_worker_dies(fleet: Fleet) -> None:
    mark = fleet.shared.parent / "stopped"
    study = fleet.start(
        "simulate", str(fleet.shared / "trace.csv"), "--hosts", "3:8c",
        "--policy", ",".join(POLICIES), "--celery", "--out", "out",
    )  # fmt: skip
    dies = fleet.start_worker(FUGA_STOP_AT="simulation.reported", FUGA_KILL_MARK=str(mark))
    pid = eventually(lambda: mark.exists() and mark.read_text().split()[1:], within_s=PATIENCE_S)[0]
    stat = Path(f"/proc/{pid}/stat")
    eventually(lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "T", within_s=PATIENCE_S)
    out = JobFiles(fleet.shared / "out")
    specs = fleet.specs("trace.csv")
    [begun] = [spec.name for spec in specs if out.is_taken(spec.name)]
    eventually(lambda: f"{begun}: started on " in study.log.read_text(), within_s=PATIENCE_S)
    os.killpg(dies.pid, signal.SIGKILL)  # with the run that it began
    dies.process.wait()
    lives = fleet.worker()

    assert study.process.wait(PATIENCE_S) == 0, study.log.read_text()

    shown = study.log.read_text()
    # Who takes it over is logged by that worker; a run that ends between two looks is not told.
    assert "ended, 2 of 2" in shown
    alone = [simulate(spec, fleet.shared / "alone" / spec.name) for spec in specs]
    assert files_of(fleet.shared / "out/runs") == files_of(fleet.shared / "alone")
    assert [each["finished"] for each in alone] == [True, True]
    assert {path.name for path in out.folder.iterdir()} == {
        "runs",
        "summary.json",
        "report.html",
        "plots",
    }
    eventually(
        lambda: lives.logged("simulation_ends", run=begun, finished=True), within_s=PATIENCE_S
    )
    eventually(
        lambda: (
            'fuga_simulation_messages_total{outcome="finished"} 2.0'
            in fleet.ask_worker("/metrics").text
        ),
        within_s=PATIENCE_S,
    )
    eventually(lambda: fleet.ask_worker("/readyz").status_code == 200, within_s=PATIENCE_S)


def test_a_study_that_is_stopped_on_a_fleet_goes_on_on_one_machine(fleet: Fleet) -> None:
    fleet.worker()
    study, out = fleet.study("endless.csv", fleet.shared / "stopped"), fleet.shared / "stopped"
    with going(study) as future:
        eventually(lambda: list(out.glob("fleet/*.progress")), within_s=PATIENCE_S)

        study.stop()

        [found] = future.result(PATIENCE_S)  # the other was not begun
    assert not found["finished"]
    assert not (out / "fleet").exists()
    [spec] = [each for each in fleet.specs("endless.csv") if each.name == found["name"]]
    on = simulate(spec, out / "runs" / spec.name, resume=True, stop=lambda: True)
    assert on["slots"] == found["slots"] + 1


def test_a_worker_that_is_told_to_end_leaves_what_others_go_on_with(fleet: Fleet) -> None:
    worker = fleet.worker()
    study, out = fleet.study("endless.csv", fleet.shared / "left"), fleet.shared / "left"
    with going(study) as future:
        [progress] = eventually(lambda: list(out.glob("fleet/*.progress")), within_s=PATIENCE_S)

        worker.send(signal.SIGTERM)

        assert worker.process.wait(PATIENCE_S) == 0
        name = progress.stem
        assert worker.logged("simulation_ends", run=name, finished=False)
        assert worker.logged("simulation_worker_stopped")
        assert (out / "runs" / name / "checkpoint.bin").exists()
        study.stop()
        assert [each["name"] for each in future.result(PATIENCE_S)] == [name]


def test_what_a_fleet_has_done_is_not_done_again_elsewhere(fleet: Fleet) -> None:
    out = fleet.shared / "done"
    for spec in fleet.specs("trace.csv"):
        simulate(spec, out / "runs" / spec.name)
    before = files_of(out / "runs")

    found = fleet.study("trace.csv", out).run(lambda _: None)  # and no worker

    assert [each["finished"] for each in found] == [True, True]
    assert files_of(out / "runs") == before


def test_messages_wait_in_a_queue_of_their_own(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        settings = SharedSettings(broker_url=SecretStr(server.url))
        queue = SimulationQueue(settings)
        queue.check()
        assert queue.is_empty()

        queue.send(tmp_path, "run")

        assert not queue.is_empty()
        with build_app(settings).connection_for_read() as connection:
            message = connection.SimpleQueue("fuga-simulations").get(timeout=PATIENCE_S)
            assert message.content_type == "application/json"
            assert message.payload[0] == [str(tmp_path), "run"]
            message.ack()
    assert not queue.is_empty()  # of a broker that is gone nobody knows
    assert not queue.send(tmp_path, "run")
    with pytest.raises(NoFleetError, match="does not answer"):
        queue.check()


def test_a_fleet_needs_a_broker_that_it_can_share() -> None:
    with pytest.raises(NoFleetError, match="set FUGA_BROKER_URL"):
        SimulationQueue(SharedSettings(broker_url=None))
