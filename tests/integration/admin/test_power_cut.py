"""What an API on SQLite has answered is there after a power cut: only what was synced survives."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.sqlite,
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here"),
]

#: Answers ten calls, tells what it answered, and is gone without a goodbye.
ANSWERING = """
import os, sys
from controller.rest import create_app
from registry import Registry
from tests.e2e.conftest import a_token
from tests.servers.http_client import a_client
from tests.register import add_tenant, add_vm_type

registry = Registry.connect(sys.argv[1])
add_tenant(registry, "a")
add_vm_type(registry)
client = a_client(create_app(registry), token=a_token(registry, "a"))
for number in range(10):
    answer = client.post("/v1/requests", json={"vm_type": "small", "count": 1})
    assert answer.status_code == 201, answer.text
    print("answered", answer.json()["id"], flush=True)
os._exit(0)
"""


@pytest.mark.long
def test_every_request_that_was_answered_is_there_after_a_power_cut(
    upgraded_database: Path, tmp_path: Path
) -> None:
    shim = tmp_path / "power_cut.so"
    source = Path(__file__).with_name("power_cut.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
    live, durable = tmp_path / "live", tmp_path / "durable"
    for folder in (live, durable):
        folder.mkdir()
        shutil.copy(upgraded_database, folder / "fuga.db")

    done = subprocess.run(
        [sys.executable, "-c", ANSWERING, f"sqlite:///{live / 'fuga.db'}"],
        env={**os.environ, "LD_PRELOAD": str(shim), "DURABLE": str(durable)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    answered = {line[1].replace("-", "") for line in lines if line[0] == "answered"}
    assert len(answered) == 10
    with closing(sqlite3.connect(durable / "fuga.db")) as after:
        assert after.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        survived = {
            str(key).replace("-", "") for (key,) in after.execute("SELECT id FROM requests")
        }
    assert survived == answered
