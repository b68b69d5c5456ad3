"""A message that is not JSON is refused unread: pickle would run what its sender likes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from celery import Celery

from registry.db.ids import uuid7
from service.settings import celery_config
from tests.integration.workers.site import open_site
from tests.servers.running import eventually

pytestmark = pytest.mark.sqlite


class Harm:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("serializer", ["pickle", "yaml"])
def test_a_worker_refuses_it_and_goes_on(tmp_path: Path, serializer: str) -> None:
    harm = tmp_path / "harm"
    with open_site(tmp_path / "site") as site:
        app = Celery("attacker", set_as_current=False)
        app.conf.update(celery_config(site.settings))
        worker = site.start("workers")
        eventually(lambda: worker.logged("worker_started"))
        headers = {"task": "workers.create_vm", "id": str(uuid7()), "lang": "py"}
        body = ([Harm(harm) if serializer == "pickle" else "x"], {}, {})
        with app.connection_for_write() as connection:
            connection.Producer().publish(
                body, routing_key="fuga", serializer=serializer, headers=headers
            )
            eventually(lambda: worker.logged("messages_dropped", reasons={"envelope": 1}))

            app.send_task("workers.nothing_of_ours", args=["x"])
            waiting = Path(app.conf.broker_transport_options["data_folder_in"])
            eventually(lambda: not list(waiting.iterdir()))

        assert worker.process.poll() is None
        assert not harm.exists()
