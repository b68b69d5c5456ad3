"""Processes and hosts that the site of a chaos run keeps."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab import cluster
from lab.errors import LabError
from tests.chaos import site as site_module
from tests.chaos.processes import Managed
from tests.chaos.site import Site
from tests.servers.running import eventually


@pytest.mark.parametrize("line", ['{"event": "api_started"}', '{"event": "log_lines_lost"}'])
def test_a_process_is_ready_though_a_full_disk_took_the_line_that_says_so(
    line: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", f"import time; print({line!r}, flush=True); time.sleep(600)"]
    process = Managed("api-1", command, tmp_path / "log", env={}, ready="api_started")
    process.start()
    try:
        eventually(lambda: process.is_ready)
    finally:
        process.kill()


def test_hosts_are_started_again_until_none_of_them_is_kept_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_off = iter(range(5))

    def start(*_: object, **__: object) -> list[object]:
        if next(kept_off, None) is not None:
            raise LabError("host 2 died")
        return []

    monkeypatch.setattr(cluster, "start_real_hosts", start)
    monkeypatch.setattr(site_module, "guest_dir", lambda: tmp_path)
    servers: Any = SimpleNamespace(url="memory://")
    site = Site(tmp_path, servers, servers, 2)

    assert site.start_hosts() == []
