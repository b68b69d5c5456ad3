"""Commands of the operations guide, as somebody types them in a folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from lab import SCRIPTS
from tests.docs.markdown import ROOT, split
from tests.servers.running import FUGA


def chapter(title: str, prompt: str = "$", *, host: str = "kvm-") -> list[str]:
    """Return what a chapter has people type at a prompt; hosts are named as the lab's."""
    text = (ROOT / "docs" / "operations.md").read_text("utf-8")
    section = text.split(f"\n## {title}\n")[1].split("\n## ")[0]
    blocks = [block.text for block in split(section)[0] if block.info == "console"]
    lines = [line for block in blocks for line in block.splitlines()]
    typed = [line[2:] for line in lines if line.startswith(f"{prompt} ")]
    return [line.replace("kvm-0", host) for line in typed]


class Shell:
    """Types commands in a folder."""

    def __init__(self, fuga, folder: Path) -> None:
        self.folder = folder
        path = f"{Path(FUGA).parent}:{os.environ['PATH']}"
        self.environment = {**fuga.environment(), "PATH": path}

    def type(self, line: str, *, ends: int = 0, **environment: str) -> str:
        """Return what a command prints."""
        done = subprocess.run(
            ["bash", "-c", line],
            env={**self.environment, **environment},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == ends, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout


def program(path: Path, script: str, lab_folder: Path) -> Path:
    """Write a program that an operator has, about the hosts of a lab."""
    path.write_text(script.format(scripts=SCRIPTS, lab=lab_folder))
    path.chmod(0o755)
    return path
