"""Processes that the site of a chaos run keeps."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.chaos.processes import Managed
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
