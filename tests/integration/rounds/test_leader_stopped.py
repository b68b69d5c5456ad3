"""Control centres on PostgreSQL: one that is stopped past its lease holds nobody up for long."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from registry import Registry
from tests.integration.workers.site import ServiceProcess
from tests.raw_sql import RawSql, raw_sql
from tests.register import a_cluster, add_request
from tests.servers.postgres import TEMPLATE, PostgresServer
from tests.servers.running import FUGA, eventually

pytestmark = pytest.mark.postgresql

#: Two new processes, on a machine with other work.
PATIENCE_S = 600.0

StartCentre = Callable[..., ServiceProcess]


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database(template=TEMPLATE) as url:
        yield url


@pytest.fixture
def register(url: str) -> Iterator[Registry]:
    found = Registry.connect(url)
    yield found
    found.close()


@pytest.fixture
def raw(url: str) -> Iterator[RawSql]:
    with raw_sql(url) as raw:
        yield raw


@pytest.fixture
def centre(url: str, tmp_path: Path) -> Iterator[StartCentre]:
    """Return what starts a control centre of short slots."""
    started: list[ServiceProcess] = []

    def start(**env: str) -> ServiceProcess:
        log = tmp_path / f"control-{len(started)}.log"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("FUGA_")}
        given = {
            "FUGA_STATE_DIR": str(tmp_path),
            "FUGA_DATABASE_URL": url,
            "FUGA_LEASE_S": "5",
            "FUGA_SLOT_LENGTH_S": "1",
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [FUGA, "control"],
                env=inherited | given | env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        started.append(ServiceProcess(process, log))
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.mark.parametrize("point", ["round.before_commit", "round.in_commit"])
def test_another_leads_past_one_that_is_stopped_which_then_writes_nothing_and_follows(
    register: Registry, raw: RawSql, centre: StartCentre, tmp_path: Path, point: str
) -> None:
    a_cluster(register)
    add_request(register, 2)
    mark = tmp_path / "stopped"
    first = centre(FUGA_STOP_AT=point, FUGA_KILL_MARK=str(mark))
    eventually(first.is_stopped, within_s=PATIENCE_S)
    assert raw.rows("SELECT number FROM rounds") == []

    second = centre()
    eventually(lambda: raw.rows("SELECT number FROM rounds"), within_s=PATIENCE_S)
    first.send(signal.SIGCONT)
    eventually(lambda: first.logged("lease_lost"), within_s=PATIENCE_S)

    [decided] = raw.rows("SELECT holder, epoch, placed FROM rounds")
    assert (decided["holder"].endswith(f":{second.pid}"), decided["placed"]) == (True, 2)
    assert decided["epoch"] > 1
    assert raw.value("SELECT count(*) FROM assignments") == 2
    assert register.check() == []

    # It is a follower like any other, and leads when its turn comes.
    second.end()
    add_request(register, 1, name="later")
    eventually(
        lambda: [
            row
            for row in raw.rows("SELECT holder, placed FROM rounds")
            if row["holder"].endswith(f":{first.pid}") and row["placed"] == 1
        ],
        within_s=PATIENCE_S,
    )
    assert register.check() == []
