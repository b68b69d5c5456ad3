"""The process that looks at many hosts, where the machine gives it no threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from hypervisor.child import multi_host_child


def test_a_process_that_gets_no_thread_takes_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    def requests() -> Iterator[bytes]:
        taken.append("a request")
        yield b'{"forget": 1}\n'

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=requests()))
    monkeypatch.setattr(threading.Thread, "start", refuse)

    with pytest.raises(RuntimeError, match="start new thread"):
        multi_host_child._serve_requests(
            cast(
                "multi_host_child._PolledHosts",
                SimpleNamespace(forget=taken.append, close=taken.clear),
            )
        )

    assert not taken  # whoever asks learns that the process has gone, and looks by another
