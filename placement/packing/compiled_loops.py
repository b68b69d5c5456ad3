"""Choose the compiled form of a loop where one was built from the same source.

A loop is an ordinary module, such as `placement.fuga.exchange_loop`. A build with Cython and a
compiler adds `placement.compiled.exchange_loop`, compiled from that very file, with a digest of it.
A compiled form whose digest differs from the source's is not used: an edited source runs as it is.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final, TypeVar

Function = TypeVar("Function", bound=Callable[..., object])

#: The modules that hold loops.
LOOPS: Final = ("placement.fuga.exchange_loop", "placement.packing.bucket_loop")


class LoopForm(Enum):
    """The form in which a loop runs here."""

    COMPILED = "compiled code"
    PLAIN = "plain Python, no compiled form was built"
    STALE = "plain Python, the compiled form was built from another source"


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop and the form in which it runs."""

    name: str
    form: LoopForm


def compiled_form(function: Function) -> Function:
    """Return the compiled form of a loop's function, or the function itself without one."""
    module = sys.modules[function.__module__]
    compiled = _compiled_module(module)
    if compiled is None or _is_stale(module, compiled):
        return function
    found: Function = getattr(compiled, function.__name__)
    return found


def loops() -> list[Loop]:
    """Return all loops and their forms."""
    found = []
    for name in LOOPS:
        module = import_module(name)
        compiled = _compiled_module(module)
        form = LoopForm.PLAIN
        if compiled is not None:
            form = LoopForm.STALE if _is_stale(module, compiled) else LoopForm.COMPILED
        found.append(Loop(name.rpartition(".")[2], form))
    return found


def source_digest(source: Path) -> str:
    """Return the digest of a loop's source and of the file that declares its C types."""
    digest = hashlib.sha256(source.read_bytes())
    digest.update(source.with_suffix(".pxd").read_bytes())
    return digest.hexdigest()


def _compiled_module(module: ModuleType) -> ModuleType | None:
    """Return the compiled form of a module; None if it was not built for this interpreter."""
    name = f"placement.compiled.{module.__name__.rpartition('.')[2]}"
    try:
        return import_module(name)
    except ImportError:
        return None


def _is_stale(module: ModuleType, compiled: ModuleType) -> bool:
    """Return whether a compiled form was built from another source than the one here."""
    try:
        return bool(source_digest(Path(module.__file__ or "")) != compiled.SOURCE_DIGEST)
    except OSError:
        return True
