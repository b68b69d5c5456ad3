"""What happened in a run, written down by whoever saw it."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any


class Record:
    """A file of what happened, a JSON object per line, written before anything else is done."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def write(self, what: str, **values: Any) -> None:
        line = json.dumps({"what": what, "at": time.time(), **values})
        with self._lock, self.path.open("a") as file:
            file.write(line + "\n")

    def read(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text().splitlines()]
