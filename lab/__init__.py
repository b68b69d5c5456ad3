"""Libvirt hosts on this machine, for a first look and for tests. See README.md here."""

from pathlib import Path
from typing import Final

SCRIPTS: Final = Path(__file__).resolve().parent / "scripts"
