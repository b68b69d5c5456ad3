"""A check asks once more when libvirt's client, not the host, ended the question."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hypervisor import connection
from monitor.preflight import PreflightTarget, check_host
from registry.hosts import HostCredentials

#: Ends as told by a word for each process, the last of which stands for all that follow.
CHILD = """
import json, os, signal, sys
from pathlib import Path

starts = Path(__file__).with_name("starts")
starts.write_text(starts.read_text() + "x" if starts.exists() else "x")
ends = {ends}
end = ends[min(len(starts.read_text()), len(ends)) - 1]
sys.stdin.readline()
if end == "signal":
    os.kill(os.getpid(), signal.SIGSEGV)
if end == "status":
    sys.exit(3)
print(json.dumps({{"error": "failed", "reason": "it answers"}}), flush=True)
"""


@pytest.mark.parametrize(
    ("ends", "found", "starts"),
    [
        (["signal", "answer"], {"host_fault": "it answers"}, 2),
        (["signal"], {"unreachable": "(-11)"}, 2),
        (["status"], {"unreachable": "(3)"}, 1),
    ],
)
def test_a_child_that_a_signal_ended_is_asked_once_more(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    ends: list[str],
    found: dict[str, str],
    starts: int,
) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD.format(ends=ends))
    monkeypatch.setattr(connection, "_CHILD", (sys.executable, str(script)))

    seen = check_host(
        PreflightTarget(name="rack1", uri="test:///default"),
        [],
        HostCredentials(tmp_path / "credentials"),
        deadline_s=60,
    )

    [(key, part)] = found.items()
    assert part in seen[key]
    assert len((tmp_path / "starts").read_text()) == starts
